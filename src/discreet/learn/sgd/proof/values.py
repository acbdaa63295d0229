"""Abstract values of the proof: on which examples a tensor depends, and along which axis they lie.

Every tensor of a traced step is one of

- public: a function of parameters, constants and draws that do not depend on the data;
- rows: along one axis the entries of example b are a function of example b (and of public things) alone;
- a sum over the examples of such rows, which may only go on, through linear operations, into the gradient of a parameter;
- numbers: the place of an example in its batch, which may only be used to pick that example's own entries;
- mixed: anything else. It may be computed (a mean that is logged, say), but neither losses nor gradients may come from it.

An axis of examples may also hold other positions: its index is (o · B + b) · inner + i for example b of B.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils._sympy.symbol import SymT, symbol_is_type

PUBLIC, ROWS, SUM, NUMBERS, MIXED = "public", "rows", "sum", "numbers", "mixed"


class NotProven(Exception):
    """Why the examples of a batch could not be shown to be independent of each other."""


@dataclass(frozen=True)
class Layout:
    """Where the examples lie: axis `dim` of size outer · B · inner.

    `free`: the entries along this axis are alike (or drawn alike) at each place of the other axes, so any split of it is true.
    """

    dim: int
    outer: int
    inner: int
    free: bool = False

    def at(self, dim: int) -> Layout:
        return replace(self, dim=dim)

    @property
    def times(self) -> int:
        return self.outer * self.inner


class Cell:
    """One storage with all its views: its kind, whether it may be written, and whether it was ever written."""

    __slots__ = ("blank", "captured", "free", "kind", "pooled", "views", "why")

    def __init__(self, kind: str, captured: bool = False, blank: bool = False, why: str = "") -> None:
        self.kind, self.captured, self.blank, self.views, self.why = kind, captured, blank, False, why
        self.pooled: tuple[Any, ...] | None = None  # the sizes of the images in which pooling found these indices
        self.free = False  # whether some view of it has a free layout


@dataclass(frozen=True)
class Value:
    """What is known of one tensor."""

    cell: Cell
    layout: Layout | None = None

    @property
    def kind(self) -> str:
        return self.cell.kind


def public(captured: bool = False) -> Value:
    return Value(Cell(PUBLIC, captured))


def rows(layout: Layout) -> Value:
    return Value(Cell(ROWS), layout)


def summed() -> Value:
    return Value(Cell(SUM))


def mixed(why: str) -> Value:
    return Value(Cell(MIXED, why=why))


def mark(tensor: Tensor, value: Value) -> None:
    tensor._discreet_value = value  # type: ignore[attr-defined]


def known(tensor: Tensor) -> Value:
    """The value of a tensor. A real tensor existed before the trace, so it is a constant of the model."""
    value = getattr(tensor, "_discreet_value", None)
    if isinstance(value, Value):
        return value
    if isinstance(tensor, FakeTensor):
        raise NotProven("a tensor whose origin was not seen is used")
    return public(captured=True)


# ---- sizes -----------------------------------------------------------------------------------------------------------


def symbolic(number: Any) -> bool:
    """Whether a number depends on the batch size."""
    return isinstance(number, (torch.SymInt, torch.SymFloat, torch.SymBool)) and not getattr(
        number.node.expr, "is_number", True
    )


def multiple(size: Any) -> int:
    """The number of entries per example along an axis: 0 if it does not grow with the batch."""
    if not symbolic(size):
        return 0
    expr = size.node.expr
    if _of_batch(expr):
        return 1
    if expr.is_Mul and len(expr.args) == 2 and expr.args[0].is_Integer and _of_batch(expr.args[1]) and expr.args[0] > 0:
        return int(expr.args[0])
    raise NotProven("a size is computed from the batch size in another way than by a whole factor")


def _of_batch(expr: Any) -> bool:
    """The size of the batch is the one symbol of a trace that is not made from values."""
    return bool(expr.is_Symbol) and symbol_is_type(expr, SymT.SIZE)


def batch_axes(shape: Sequence[Any]) -> list[int]:
    return [dim for dim, size in enumerate(shape) if multiple(size)]


def free(shape: Sequence[Any]) -> Layout | None:
    """The layout of a tensor whose entries are all alike, or drawn alike."""
    axes = batch_axes(shape)
    if len(axes) > 1:
        raise NotProven("a tensor has two axes of examples, so every example meets every other")
    return Layout(axes[0], 1, multiple(shape[axes[0]]), free=multiple(shape[axes[0]]) > 1) if axes else None


def reshaped(layout: Layout, old: Sequence[Any], new: Sequence[Any]) -> Layout:
    """The layout after a change of shape that keeps the order of the entries."""
    axes = batch_axes(new)
    if len(axes) != 1:
        raise NotProven("the axis of examples is split or merged in a way that loses track of them")
    dim = axes[0]
    front, back = math.prod(int(size) for size in old[: layout.dim]), math.prod(int(size) for size in old[layout.dim + 1 :])
    in_front, behind = math.prod(int(size) for size in new[:dim]), math.prod(int(size) for size in new[dim + 1 :])
    if layout.free and (front, back) in ((1, 1), (in_front, behind)):  # all entries alike, or the axis as it was
        return Layout(dim, 1, multiple(new[dim]), free=multiple(new[dim]) > 1)
    before, after = front * layout.outer, back * layout.inner
    if not in_front or not behind or before % in_front or after % behind:
        raise NotProven("the axis of examples is split or merged in a way that loses track of them")
    result = Layout(dim, before // in_front, after // behind)
    if result.times != multiple(new[dim]):
        raise NotProven("the axis of examples is split or merged in a way that loses track of them")
    return result


def merged(layouts: Sequence[Layout]) -> Layout:
    """The common layout of all these."""
    fixed = [layout for layout in layouts if not layout.free] or list(layouts)
    if any((other.dim, other.outer, other.inner) != (fixed[0].dim, fixed[0].outer, fixed[0].inner) for other in fixed):
        raise NotProven("examples lie along different axes, or in another order, in two tensors that meet")
    if any(other.dim != fixed[0].dim or other.times != fixed[0].times for other in layouts):
        raise NotProven("examples lie along different axes in two tensors that meet")
    return fixed[0]
