"""Any other module: every example gets its own copy of the parameters under vmap, so one backward gives each its gradient."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call, vmap
from torch.utils import _pytree as pytree

from discreet.errors import InvalidValue
from discreet.learn.sgd.engine.tape import Record, Tape


class CopiedRecord(Record):
    """Parameters of which every example had a copy."""

    def __init__(self, tape: Tape, copies: dict[Tensor, Tensor]) -> None:
        self.tape, self.copies = tape, copies
        self.parameters = list(copies)
        self._known: dict[Tensor, Tensor] = {}

    def reached(self) -> bool:
        return any(copy.grad is not None for copy in self.copies.values())

    def instantiate(self) -> dict[Tensor, Tensor]:
        if not self._known:
            for parameter, copy in self.copies.items():
                gradient = copy.grad if copy.grad is not None else torch.zeros_like(copy)
                self._known[parameter] = gradient.reshape(-1, self.tape.rows, *parameter.shape).sum(1)
        return self._known


def copied(module: nn.Module, tape: Tape) -> Callable[..., Any]:
    """The module's forward, run example by example under vmap. What is inside it runs there too, fast layers or not."""
    plain = type(module).forward
    trained = {name: p for name, p in module.named_parameters() if p.requires_grad}

    def forward(*args: Any, **kwargs: Any) -> Any:
        leaves, shape = pytree.tree_flatten((args, kwargs))
        examples = tape.examples
        axes = [_axis(module, tape, leaf) for leaf in leaves]
        if 0 not in axes:
            raise InvalidValue(
                f"{type(module).__name__} has parameters of its own but takes nothing with one entry per example, "
                "so no example can be told from another."
            )
        copies = {name: p.detach().expand(examples, *p.shape).contiguous().requires_grad_() for name, p in trained.items()}
        tape.add(CopiedRecord(tape, {trained[name]: copy for name, copy in copies.items()}))

        def one(parameters: dict[str, Tensor], *given: Any) -> Any:
            single = [leaf[None] if axis == 0 else leaf for leaf, axis in zip(given, axes)]
            its_args, its_kwargs = pytree.tree_unflatten(single, shape)
            out = functional_call(
                _Plain(module, plain), {f"inner.{name}": p for name, p in parameters.items()}, its_args, its_kwargs
            )
            return pytree.tree_map(lambda leaf: leaf.squeeze(0) if isinstance(leaf, Tensor) else leaf, out)

        return vmap(one, in_dims=(0, *axes), randomness="different")(copies, *leaves)

    return forward


def _axis(module: nn.Module, tape: Tape, leaf: Any) -> int | None:
    if not isinstance(leaf, Tensor) or not leaf.ndim or leaf.shape[0] != tape.examples:
        return None
    return None if tape.layout.shared(module, leaf, tape.examples) else 0


class _Plain(nn.Module):
    """Calls the module's own forward, not the one the engine put in its place."""

    def __init__(self, inner: nn.Module, forward: Callable[..., Any]) -> None:
        super().__init__()
        self.inner = inner
        self._plain = forward

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self._plain(self.inner, *args, **kwargs)
