"""The obvious way to every unit's gradient, one unit after the other, and the engine held against it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

import torch
from torch import nn
from torch.utils import _pytree as pytree

from discreet.learn.sgd.clipping import Flat
from discreet.learn.sgd.engine import Engine
from discreet.learn.sgd.engine.layers import conv, patches
from discreet.learn.sgd.engine.probe import learn
from discreet.learn.sgd.engine.tape import ROOM


class Seen(Flat):
    """Clips at a norm and keeps the squared norms it was shown, those of all groups together."""

    def factors(self, squared, *args):
        self.squared = squared.sum(0) if squared.ndim > 1 else squared
        return super().factors(squared, *args)


def losses(model: nn.Module, batch: Any) -> torch.Tensor:
    """A loss per example that feels every output of the model."""
    given = batch if isinstance(batch, tuple) else (batch,)
    total = torch.zeros(given[0].shape[0])
    for y in pytree.tree_leaves(model(*given)):
        y = y.float().flatten(1)
        total = total + (torch.sin(y) * torch.linspace(0.5, 1.5, y.shape[1])).sum(1)
    return total


def one_by_one(engine: Engine, batch: Any, clipping: Flat) -> tuple[torch.Tensor, torch.Tensor]:
    """Squared norms and clipped sum of the units' gradients, each computed alone."""
    count = pytree.tree_leaves(batch)[0].shape[0]
    rows, norms, total = engine.rows, [], engine.buffer()
    for start in range(0, count, rows):
        its = pytree.tree_map(lambda leaf, start=start: leaf[start : start + rows], batch)
        losses(engine.model, its).sum().backward()
        parts = [torch.zeros_like(p) if p.grad is None else p.grad for p in engine.parameters]
        for p in engine.parameters:
            p.grad = None
        flat = torch.cat([g.flatten() for g in parts])
        norms.append(flat.square().sum())
        total += flat * clipping.factors(flat.square().sum())
    return torch.stack(norms), total


def engine_for(model: nn.Module, make: Any, rows: int = 1) -> Engine:
    engine = Engine(model, rows)
    learn(engine, lambda batch: losses(model, batch), make)
    return engine


def summed(engine: Engine, batch: Any, clipping: Flat) -> torch.Tensor:
    count = pytree.tree_leaves(batch)[0].shape[0]
    found = engine.buffer()
    with engine.recording(count):
        engine.add(losses(engine.model, batch), clipping, found)
    return found


def agree(model: nn.Module, make: Any, rows: int = 1, units: int = 3, share: float = 1e-5, over: float = 0.0) -> Engine:
    """The engine's norms and clipped sum are those of the units one by one, up to rounding.

    Norms that are differences of large numbers may be longer by the share `over`, which keeps them from being too short.
    """
    before = _forwards(model)
    engine = engine_for(model, make, rows)
    batch = make(units * rows)
    size = float(torch.rand(())) + 0.5
    norms, _ = one_by_one(engine, batch, Flat(1.0))
    clip = float(norms.median().sqrt()) * size + 1e-3
    seen = Seen(clip)
    _, wanted = one_by_one(engine, batch, Flat(clip))
    found = summed(engine, batch, seen)
    room = 2 * share * (norms + norms.max()) + ROOM  # a gradient of just 0 is as long as what may have vanished
    assert bool((seen.squared >= norms - room).all()), (seen.squared, norms)
    assert bool((seen.squared <= norms * (1 + over) + room).all()), (seen.squared, norms)
    assert torch.allclose(found, wanted, rtol=0.0, atol=(share + over) * float(wanted.norm()) + 1e-7)
    assert _forwards(model) == before
    return engine


def _forwards(model: nn.Module) -> list[Any]:
    return [module.__dict__.get("forward") for module in model.modules()]


def copies(engine: Engine) -> list[str]:
    """The modules that run under vmap, by class."""
    return [type(module).__name__ for module, make in engine._modules if make.__name__ == "copied"]


class Slow:
    """What the fused kernel of convolutions gives, without a GPU."""

    @staticmethod
    def measured(x, g, kernel, rows, keep, along):
        (block,) = patches.by_patches(x, g, kernel, rows)
        each = block.each.float().flatten(2)
        found = torch.stack((each.square().sum(2), each.sum(2), torch.linalg.vecdot(each, along.flatten(1))), 1)
        return found, [block] if keep else []

    @staticmethod
    def gradients(x, g, kernel, rows, keep):
        (block,) = patches.by_patches(x, g, kernel, rows)
        return block.each.float().flatten(1).square().sum(1), [block] if keep else []

    @staticmethod
    def summed(x, g, factors, kernel, rows):
        return torch.einsum("n,n...->...", factors, patches.by_patches(x, g, kernel, rows)[0].each.float())


@contextmanager
def fused(kept: bool = True) -> Iterator[None]:
    """Standardised convolutions run as they do on a GPU."""
    most = conv.KEPT if kept else 0
    with mock.patch.multiple(conv, fits=lambda x: True, triton=lambda: Slow, KEPT=most):
        yield
