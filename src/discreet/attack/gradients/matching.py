"""Rows whose gradient looks like the update, found by optimisation.

`second_order`: L-BFGS on the squared difference, each parameter's part divided by its own size. With smooth activations the
match is unique in practice and the rows come out almost exactly. `cosine`: the angle between gradients plus total variation,
with the signs of the gradient and Adam (Geiping et al. 2020), for networks with ReLU, where second derivatives vanish.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from discreet.attack.gradients.network import Network
from discreet.attack.gradients.update import Update

SMOOTH = (nn.Tanh, nn.Sigmoid, nn.GELU, nn.SiLU, nn.Softplus, nn.ELU, nn.Mish, nn.LogSigmoid, nn.Softsign)
KINKED = (nn.ReLU, nn.LeakyReLU, nn.ReLU6, nn.PReLU, nn.Hardtanh, nn.MaxPool2d)
STARTS = 4
MOVED, FARTHEST, APART = 0.03, 1e-2, 3e-4  # shares of the range of a cell: each, the farthest afterwards, their mean square
TURN, TURNS = 100, 6  # steps of the search back between two looks, and looks
Progress = Callable[[int, int], None]


@dataclass(frozen=True, slots=True)
class Match:
    rows: Tensor
    residual: float


def smooth(model: nn.Module) -> bool:
    """Has the network smooth activations only?"""
    modules = list(model.modules())
    return any(isinstance(module, SMOOTH) for module in modules) and not any(isinstance(module, KINKED) for module in modules)


def second_order(
    network: Network, update: Update, labels: Tensor, shape: Sequence[int], *, steps: int, seconds: float, seed: int,
    low: float = 0.0, high: float = 1.0, progress: Progress | None = None,
) -> Match:  # fmt: skip
    """L-BFGS from a few starts; the best match."""
    start, best, turn = time.process_time(), Match(torch.empty(0), math.inf), 0
    while turn == 0 or (best.residual > 100.0 * update.rounding and time.process_time() - start < seconds and turn < STARTS):
        generator = torch.Generator().manual_seed(seed + turn)
        noise = torch.randn(len(labels), *shape, generator=generator, dtype=network.dtype)
        rows = (low + high) / 2.0 + 0.1 * (high - low) * noise
        match = _descended(network, update, labels, rows.requires_grad_(), steps, start + seconds, progress)
        residual = network.residual(match, labels, update) if bool(torch.isfinite(match).all()) else math.inf
        if residual < best.residual or not len(best.rows):
            best = Match(match, residual)
        turn += 1
    return best


def found_again(
    network: Network, update: Update, labels: Tensor, rows: Tensor, spans: Tensor, *, seconds: float, seed: int
) -> bool:  # fmt: skip
    """Does the update determine these rows? They are moved and the update is rounded anew: the search must lead back to them.

    Where other rows have the same gradient, or nearly, it leads to one of those instead.
    """
    generator = torch.Generator().manual_seed(seed)
    away = torch.randint(2, rows.shape, generator=generator).to(network.dtype) * 2.0 - 1.0
    rounded = {
        name: value * (1.0 + update.rounding * torch.randn(value.shape, generator=generator, dtype=value.dtype))
        for name, value in update.values.items()
    }
    rows, spans, labels = rows.to(network.dtype).contiguous(), spans.to(network.dtype), labels.cpu()
    start = (rows + MOVED * spans * away).requires_grad_()
    end = time.process_time() + seconds
    for _ in range(TURNS):
        start = _descended(network, Update(rounded, update.rounding), labels, start, TURN, end, None).requires_grad_()
        away = ((start - rows) / spans).detach().abs()
        if float(away.max()) <= FARTHEST and float(away.square().mean().sqrt()) <= APART:
            return True
    return False


def _descended(
    network: Network, update: Update, labels: Tensor, rows: Tensor, steps: int, end: float, progress: Progress | None
) -> Tensor:  # fmt: skip
    """L-BFGS from one start, until it converges."""
    sent = [value.to(network.device, network.dtype) for value in update.list()]
    sizes = [float((value**2).sum()) or 1.0 for value in sent]
    optimizer: Any = torch.optim.LBFGS(
        [rows], max_iter=20, history_size=50, line_search_fn="strong_wolfe", tolerance_grad=1e-14, tolerance_change=1e-16
    )

    def closure() -> Tensor:
        gradient = network.gradient(rows, labels, differentiable=True)
        value = torch.stack([((a - b) ** 2).sum() / size for a, b, size in zip(gradient, sent, sizes)]).sum()
        (rows.grad,) = torch.autograd.grad(value, [rows])
        return value.detach()

    last = math.inf
    for step in range(max(1, steps // 20)):
        value = float(optimizer.step(closure))
        if progress is not None:
            progress((step + 1) * 20, steps)
        if not math.isfinite(value) or value < 1e-22 or value > 0.999999 * last or time.process_time() > end:
            break
        last = value
    return rows.detach()


def cosine(
    network: Network, update: Update, labels: Tensor, shape: Sequence[int], *, steps: int, seconds: float, seed: int,
    low: float = 0.0, high: float = 1.0, variation: float = 1e-2, progress: Progress | None = None,
) -> Match:  # fmt: skip
    """Signed Adam on the angle and, for images, total variation; rows stay within their range."""
    sent = [value.to(network.device, network.dtype) for value in update.list()]
    size = math.sqrt(sum(float((value**2).sum()) for value in sent))
    generator = torch.Generator().manual_seed(seed)
    rows = ((low + high) / 2.0 + 0.3 * (high - low) * torch.randn(len(labels), *shape, generator=generator)).to(
        network.device, network.dtype
    )
    labels = labels.to(network.device)
    rows = rows.clamp(low, high).requires_grad_()
    optimizer = torch.optim.Adam([rows], lr=0.05 * (high - low))
    schedule = torch.optim.lr_scheduler.MultiStepLR(optimizer, [int(steps * part) for part in (0.375, 0.625, 0.875)], gamma=0.1)
    start, best, chosen = time.process_time(), math.inf, rows.detach().clone()
    for step in range(steps):
        made = network.gradient(rows, labels, differentiable=True)
        product = sum(((a * b).sum() for a, b in zip(made, sent)), torch.zeros((), dtype=network.dtype, device=network.device))
        length = torch.sqrt(sum(((a**2).sum() for a in made), torch.zeros((), dtype=network.dtype, device=network.device)))
        value = 1.0 - product / (length * size)
        if float(value.detach()) < best:
            best, chosen = float(value.detach()), rows.detach().clone()
        if len(shape) == 3:
            value = value + variation * total_variation(rows)
        (gradient,) = torch.autograd.grad(value, [rows])
        rows.grad = gradient.sign()
        optimizer.step()
        schedule.step()
        with torch.no_grad():
            rows.clamp_(low, high)
        if progress is not None and step % 20 == 0:
            progress(step, steps)
        if time.process_time() - start > seconds:
            break
    return Match(chosen, network.residual(chosen, labels, update))


def total_variation(rows: Tensor) -> Tensor:
    """The mean absolute difference of neighbouring pixels."""
    return (rows[..., 1:] - rows[..., :-1]).abs().mean() + (rows[..., 1:, :] - rows[..., :-1, :]).abs().mean()
