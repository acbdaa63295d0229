"""What one step keeps: a record for every use of a layer, and what the engine asks of it.

A unit owns `rows` consecutive examples of the batch (one, unless units are users or augmentations are counted as one). All
tensors a record returns have units first.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

Views = Mapping[Tensor, Tensor]  # where the clipped sum of each parameter is added up


class Tape:
    """The records of one forward, in the order the layers were used, and what records share."""

    def __init__(self, rows: int) -> None:
        self.rows = rows
        self.examples = 0
        self.records: list[Record] = []
        self.layout = Layout()
        self._grams: dict[int, tuple[Tensor, Tensor]] = {}

    @property
    def units(self) -> int:
        return self.examples // self.rows

    def add(self, record: Record) -> None:
        self.records.append(record)

    def batched(self, module: nn.Module, x: Tensor) -> Tensor:
        """What a layer was given, with examples first: an input all examples share is repeated for each of them."""
        if self.layout.shared(module, x, self.examples):
            return x.expand(self.examples, *x.shape[1:]) if x.shape[0] == 1 else x.expand(self.examples, *x.shape)
        return x

    def gram(self, x: Tensor) -> Tensor:
        """x times itself over its last axis, per unit; layers that read the same tensor share one."""
        known = self._grams.get(x.data_ptr())
        if known is None or known[0].shape != x.shape or known[0].stride() != x.stride():
            known = self._grams[x.data_ptr()] = (x, gram(x))
        return known[1]

    def clear(self) -> None:
        self.records.clear()
        self._grams.clear()


class Layout:
    """Which layers are given something that does not grow with the batch, such as the numbers of the positions.

    Learned from two batches of different sizes, since one size cannot tell 64 examples from 64 positions.
    """

    def __init__(self) -> None:
        self._seen: dict[tuple[nn.Module, tuple[int, ...]], set[tuple[int, int]]] = {}
        self._shared: set[tuple[nn.Module, tuple[int, ...]]] = set()
        self.learning = False

    def shared(self, module: nn.Module, x: Tensor, examples: int) -> bool:
        place = (module, tuple(x.shape[1:]))
        if self.learning:
            self._seen.setdefault(place, set()).add((examples, x.shape[0]))
            return False
        return place in self._shared and x.shape[0] in {first for _, first in self._seen[place]}

    def learned(self) -> None:
        """What did not change with the number of examples is shared by them."""
        self.learning = False
        self._shared = {
            place for place, seen in self._seen.items()
            if len({examples for examples, _ in seen}) > 1 and len({first for _, first in seen}) == 1
        }  # fmt: skip


class Record:
    """One use of one layer. A layer gives `instantiate`; where something faster is known it overrides the other two."""

    parameters: Sequence[Tensor]

    def instantiate(self) -> dict[Tensor, Tensor]:
        """The gradient of every unit, [units, *shape], by parameter: the obvious way, and what shared parameters need."""
        raise NotImplementedError

    def squared_norms(self) -> Tensor:
        """The squared norm of every unit's gradient, [units]."""
        return squared(self.instantiate())

    def add(self, factors: Tensor, into: Views) -> None:
        """Add the gradients of all units, each times its factor."""
        add_instantiated(self.instantiate(), factors, into)

    def reached(self) -> bool:
        """Whether the losses depend on this use; an output that goes nowhere brings no gradient back."""
        return getattr(self, "gradient", None) is not None

    def blank(self, good: Tensor) -> None:
        """Forget the units that are not good: zero times infinity is not zero."""
        for name in ("x", "gradient"):
            if isinstance(it := getattr(self, name, None), Tensor):
                setattr(self, name, blanked(it, good))
        for name in ("_kept", "_known"):
            if known := getattr(self, name, None):
                setattr(self, name, {p: blanked(g, good) for p, g in known.items()})

    def join(self, other: Record) -> Record | None:
        """One record for both, where that is cheaper than instantiating; both use the same parameters."""
        return None


class Joined(Record):
    """Several uses of parameters that overlap (tied weights, modules called twice): gradients are added before norms."""

    def __init__(self, records: Sequence[Record]) -> None:
        self.records = records
        self.parameters = list(dict.fromkeys(p for record in records for p in record.parameters))
        self._known: dict[Tensor, Tensor] = {}

    def blank(self, good: Tensor) -> None:
        super().blank(good)
        for record in self.records:
            record.blank(good)

    def instantiate(self) -> dict[Tensor, Tensor]:
        if not self._known:
            for record in self.records:
                for parameter, gradient in record.instantiate().items():
                    known = self._known.get(parameter)
                    self._known[parameter] = gradient if known is None else known + gradient
        return self._known


def joined(records: Sequence[Record]) -> list[Record]:
    """The records with those that share a parameter made one."""
    groups: list[list[Record]] = []
    where: dict[Tensor, int] = {}
    for record in records:
        met = sorted({where[p] for p in record.parameters if p in where})
        home = met[0] if met else len(groups)
        if not met:
            groups.append([])
        for other in met[1:]:
            for moved in groups[other]:
                where.update(dict.fromkeys(moved.parameters, home))
            groups[home] += groups[other]
            groups[other] = []
        groups[home].append(record)
        where.update(dict.fromkeys(record.parameters, home))
    return [_one(group) for group in groups if group]


def _one(group: list[Record]) -> Record:
    left = [group[0]]
    for record in group[1:]:
        both = left[-1].join(record)
        left[-1:] = [both] if both is not None else [left[-1], record]
    return left[0] if len(left) == 1 else Joined(left)


def gram(x: Tensor) -> Tensor:
    """[units, positions, width] times itself over its width, added up in float32 whatever its type."""
    if x.dtype not in (torch.bfloat16, torch.float16):
        return torch.bmm(x, x.mT)
    return torch.bmm(x, x.mT, out_dtype=torch.float32) if x.is_cuda else torch.bmm(x.float(), x.float().mT)


def from_grams(one: Tensor, other: Tensor, like: Tensor) -> Tensor:
    """The squared norm per unit of a sum of outer products, from the Grams of its two sides; never below the truth.

    Positions can cancel, and then the difference of large numbers is all rounding: it may come out as 0, or below, for a
    gradient that is thousands of clip norms long. So what rounding may have hidden is added: a share of the largest value
    that the norm can have, which is reached where no position cancels another.
    """
    found = torch.linalg.vecdot(one.flatten(1), other.flatten(1).to(one.dtype))
    sizes = one.diagonal(dim1=1, dim2=2).clamp_min(0) * other.diagonal(dim1=1, dim2=2).clamp_min(0)
    return found.clamp_min_(0) + _hidden(like) * sizes.sqrt_().sum(1).square_()


def _hidden(x: Tensor) -> float:
    """The share of the largest squared norm that rounding may hide: of the Grams, or of factors rounded before they met."""
    narrow = x.is_cuda and x.dtype == torch.float32 and torch.get_float32_matmul_precision() != "highest"
    step = 2.0**-11 if narrow else torch.finfo(x.dtype).eps / 2
    return max(2.0**-20, (4 * step) ** 2)


def squared(gradients: Mapping[Any, Tensor]) -> Tensor:
    """The squared norm per unit of instantiated gradients."""
    parts = [torch.linalg.vector_norm(g.flatten(1), dim=1, dtype=torch.float32).square() for g in gradients.values()]
    return torch.stack(parts).sum(0) if len(parts) > 1 else parts[0]


def blanked(it: Tensor, good: Tensor) -> Tensor:
    """The tensor, units first, with zeros for those that are not good."""
    each = it.reshape(good.shape[0], -1)
    return torch.where(good[:, None], each, torch.zeros_like(each)).reshape(it.shape)


def add_instantiated(gradients: Mapping[Tensor, Tensor], factors: Tensor, into: Views) -> None:
    for parameter, gradient in gradients.items():
        view = into[parameter]
        view.view(-1).addmv_(gradient.flatten(1).to(view.dtype).mT, factors.to(view.dtype))


Forward = Callable[[nn.Module, Tape], Callable[..., Any]]  # makes a module's forward for one step
