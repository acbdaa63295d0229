"""Private runs on a GPU whose released sums can be compared with units one by one, in double precision, on the CPU."""

from __future__ import annotations

import copy
import os
from collections.abc import Callable, Iterable
from contextlib import nullcontext
from typing import Any

import torch
from torch import Tensor, nn

import discreet

LOSS = nn.CrossEntropyLoss(reduction="none")
CLIP = 0.5
DEVICE = os.environ.get("DISCREET_TEST_DEVICE", "cuda")  # cpu tries the tests themselves


def cases(names: Iterable[Any]) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """A test that runs once for each of these."""

    def mark(function: Callable[..., None]) -> Callable[..., None]:
        function.cases = list(names)  # type: ignore[attr-defined]
        return function

    return mark


class Keep(torch.optim.SGD):
    """Leaves the weights alone and keeps the gradients of every step."""

    def __init__(self, parameters: Iterable[nn.Parameter]) -> None:
        super().__init__(parameters, lr=0.0)
        self.seen: list[Tensor] = []

    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        held = [p for group in self.param_groups for p in group["params"]]
        parts = [torch.zeros_like(p) if p.grad is None else p.grad for p in held]
        self.seen.append(torch.cat([part.flatten().float() for part in parts]).cpu())


def sums(model: nn.Module, x: Any, y: Tensor, *, steps: int = 5, loss: Any = LOSS, autocast: Any = None, **options: Any) -> Any:
    """The clipped sum of all rows at every step (the later ones replayed from a CUDA graph), and the run."""
    model = model.to(DEVICE)
    optimizer = Keep(model.parameters())
    given = {"unit": discreet.record(), "rate": 1.0, "clip_norm": CLIP, "divisor": 1.0, **options}
    with torch.autocast(DEVICE, autocast) if autocast is not None else nullcontext():
        data = (torch.utils._pytree.tree_map(lambda leaf: leaf.to(DEVICE), x), y.to(DEVICE))
        run = discreet.learn.train(model, optimizer, data, loss, noise_multiplier=1e-7, delta=1e-5, steps=steps, **given)
        for _ in run:
            pass
    return optimizer.seen, run


def one_by_one(model: nn.Module, x: Any, y: Tensor, loss: Any = LOSS) -> Tensor:
    """The same sum from a loop over rows: one forward and backward of a copy each, in double precision."""
    wide = copy.deepcopy(model).cpu().double()
    trained = [p for p in wide.parameters() if p.requires_grad]
    total = torch.zeros(sum(p.numel() for p in trained), dtype=torch.float64)
    for i in range(len(y)):
        row = torch.utils._pytree.tree_map(lambda leaf, i=i: _wide(leaf[i : i + 1]), x)
        parts = torch.autograd.grad(loss(wide(row), _wide(y[i : i + 1])).sum(), trained, allow_unused=True)
        flat = torch.cat([torch.zeros_like(p).flatten() if g is None else g.flatten() for g, p in zip(parts, trained)])
        total += flat * min(1.0, CLIP / float(flat.norm().clamp_min(1e-30)))
    return total


def _wide(leaf: Tensor) -> Tensor:
    return leaf.double() if leaf.is_floating_point() else leaf


def apart(found: Tensor, truth: Tensor) -> float:
    return float((found.double() - truth).norm() / truth.norm())


def exact_products() -> None:
    """No TF32: what is compared is the engine, not the rounding of a tensor core."""
    torch.backends.cuda.matmul.allow_tf32 = False
    torch.backends.cudnn.allow_tf32 = False
