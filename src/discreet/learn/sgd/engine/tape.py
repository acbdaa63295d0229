"""The records of one step: one for every use of a layer, with the operations that the engine needs.

A unit owns `rows` consecutive examples of the batch (one, unless units are users or augmentations are counted as one). All
tensors a record returns have units first.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from discreet.errors import InvalidValue
from discreet.learn.sgd.clipping import NARROW, slack

PART = (
    "A layer of the model was given part of the examples of its batch (those that a router chose, say), or has them along "
    "another axis than the first, so it is not known whose gradient is whose. Give every layer all examples, along its first "
    "axis, and multiply by 0 what it makes of those that are not meant for it."
)
Views = Mapping[Tensor, Tensor]  # where the clipped sum of each parameter is added up


@dataclass(frozen=True, eq=False)
class Part:
    """Rows of a parameter along its first axis, perhaps transposed."""

    root: Tensor
    start: int
    stop: int
    transposed: bool = False

    def of(self, whole: Tensor) -> Tensor:
        """This part of something with the axes of the root last."""
        rows = whole.narrow(-self.root.ndim, self.start, self.stop - self.start)
        return rows.mT if self.transposed else rows


class Tape:
    """The records of one forward, in the order of use, and the values that they share."""

    def __init__(self, rows: int) -> None:
        self.rows = rows
        self.examples = 0
        self.records: list[Record] = []
        self.narrow = False  # whether a layer ran under autocast, which a model may have inside
        self.layout = Layout()
        self.parts: dict[Tensor, Part] = {}
        self._made: dict[tuple[int, int, int, bool], Tensor] = {}
        self._gram: tuple[Tensor, Tensor] | None = None
        self._noted: Tape | None = None  # which tape keeps the records, where it is not this one

    @property
    def units(self) -> int:
        return self.examples // self.rows

    def folded(self, times: int) -> Tape:
        """This tape for a layer whose batch has so many entries for every example, side by side: frames, crops, pairs."""
        other = copy.copy(self)  # with the same records, parts and layout
        other.rows, other.examples, other._noted = self.rows * times, self.examples * times, self
        return other

    def add(self, record: Record) -> None:
        if self._noted is not None:
            return self._noted.add(record)
        self.records.append(record)
        self.narrow = self.narrow or torch.is_autocast_enabled("cuda") or torch.is_autocast_enabled("cpu")

    def batched(self, module: nn.Module, x: Tensor) -> Tensor:
        """A layer's input with examples first; an input that all examples share is repeated for each of them."""
        if not x.ndim:  # one entry of a table, for all
            self.layout.lost.add(module)
            return x if self.layout.learning else x.expand(self.examples)
        if self.layout.shared(module, x, self.examples):
            return x.expand(self.examples, *x.shape[1:]) if x.shape[0] == 1 else x.expand(self.examples, *x.shape)
        return self.whole(x)

    def whole(self, x: Tensor) -> Tensor:
        """A layer's input if it holds all examples; with only a part of them, gradients could not be attributed."""
        if not self.layout.learning and self.examples and x.shape[0] % self.examples:
            raise InvalidValue(PART)
        return x

    def gram(self, x: Tensor) -> Tensor:
        """x times itself over its last axis, per unit; layers that read the same tensor, one after the other, share one."""
        if self._gram is None or not self.known_gram(x):
            self._gram = (x, gram(x))
        return self._gram[1]

    def known_gram(self, x: Tensor) -> bool:
        if self._gram is None:
            return False
        known = self._gram[0]
        return known.data_ptr() == x.data_ptr() and known.shape == x.shape and known.stride() == x.stride()

    def part(self, root: Tensor, start: int = 0, stop: int | None = None, transposed: bool = False) -> Tensor:
        """Rows of a parameter, or the parameter transposed, as a tensor of its own; the same object for every use."""
        part = Part(root, start, root.shape[0] if stop is None else stop, transposed)
        key = (id(root), part.start, part.stop, transposed)
        if key not in self._made:
            view = self._made[key] = part.of(root.detach()).requires_grad_(root.requires_grad)
            self.parts[view] = part
        return self._made[key]

    def views(self, views: Views) -> Views:
        """Where sums are added up, for parts of parameters too."""
        if not self.parts:
            return views
        return {**views, **{view: part.of(views[part.root]) for view, part in self.parts.items() if part.root in views}}

    def clear(self) -> None:
        for record in self.records:  # whoever keeps the losses keeps the graph, which knows the records
            record.__dict__.clear()
        self.records.clear()
        self.parts.clear()
        self._made.clear()
        self._gram = None


class Layout:
    """Which layers have an input that does not grow with the batch, such as position indices.

    Learned from two batches of different sizes, since one size cannot tell 64 examples from 64 positions.
    """

    def __init__(self) -> None:
        self._seen: dict[tuple[nn.Module, tuple[int, ...]], set[tuple[int, int]]] = {}
        self._shared: set[tuple[nn.Module, tuple[int, ...]]] = set()
        self._starts: dict[tuple[nn.Module, int], set[tuple[int, int, int]]] = {}
        self._second: set[tuple[nn.Module, int]] = set()
        self._times: dict[tuple[nn.Module, tuple[int, ...]], int] = {}
        self.lost: set[nn.Module] = set()  # modules that could not be run example by example, by themselves
        self.learning = False

    def shared(self, module: nn.Module, x: Tensor, examples: int) -> bool:
        place = (module, tuple(x.shape[1:]))
        if self.learning:
            self._seen.setdefault(place, set()).add((examples, x.shape[0]))
            return False
        return place in self._shared and x.shape[0] in {first for _, first in self._seen[place]}

    def times(self, module: nn.Module, x: Tensor, examples: int) -> int:
        """The number of entries of a layer's input per example: more than 1 where an example's frames are in the batch axis."""
        if self.shared(module, x, examples):
            return 1
        times = self._times.get((module, tuple(x.shape[1:])), 1)
        return times if x.shape[0] == times * examples else 1

    def sharing(self) -> set[nn.Module]:
        """The layers that are given something all examples share."""
        return {module for module, _ in self._shared}

    def second(self, module: nn.Module, x: Tensor, examples: int) -> bool:
        """Whether this layer is given its examples along the second axis, [positions, examples, …]."""
        if self.learning and x.ndim > 1:
            self._starts.setdefault((module, x.ndim), set()).add((examples, x.shape[0], x.shape[1]))
        return not self.learning and (module, x.ndim) in self._second

    def learned(self) -> None:
        """An axis that grew with the number of examples holds them; an input without one is shared by them."""
        self.learning = False
        self._second = {
            place for place, sizes in self._starts.items()
            if len({examples for examples, _, _ in sizes}) > 1 and len({first for _, first, _ in sizes}) == 1
            and all(second == examples for examples, _, second in sizes)
        }  # fmt: skip
        self._shared = {
            place for place, sizes in self._seen.items()
            if len({examples for examples, _ in sizes}) > 1 and len({first for _, first in sizes}) == 1
        }  # fmt: skip
        self._times = {
            place: next(first // examples for examples, first in sizes) for place, sizes in self._seen.items()
            if len({examples for examples, _ in sizes}) > 1 and len({first / examples for examples, first in sizes}) == 1
            and all(first > examples and not first % examples for examples, first in sizes)
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

    def longest(self) -> Tensor:
        """Upper bounds on the squared norms that include the rounding of gradients in a narrow type."""
        norms, gradient = self.squared_norms(), self.__dict__.get("gradient")
        more = 0.0 if gradient is None else slack(gradient)
        return norms * (1 + more) ** 2 if more else norms

    def reached(self) -> bool:
        """Whether the losses depend on this use; an unused output gets no gradient."""
        return getattr(self, "gradient", None) is not None

    def blank(self, good: Tensor) -> None:
        """Forget the units that are not good: zero times infinity is not zero."""
        for name in ("x", "gradient"):
            if isinstance(tensor := getattr(self, name, None), Tensor):
                setattr(self, name, blanked(tensor, good))
        for name in ("_kept", "_known"):
            if known := getattr(self, name, None):
                setattr(self, name, {p: blanked(g, good) for p, g in known.items()})

    def join(self, other: Record) -> Record | None:
        """One record for both, where that is cheaper than instantiating; both use the same parameters."""
        return None


# The least normal float32. A square or product below it may underflow to 0, so this is added for every number instead: a tiny
# activation (1e-23) times a huge output gradient (1e18) is not tiny, and must not be counted as 0.
VANISHED = 2.0**-126

# The same for positions of a Gram, where `hidden` counts a share of at least 2^-20 of it, for up to 2^20 products on each side.
ROOM = 2.0 * VANISHED * 2.0**20 * 2.0**20


def gram(x: Tensor) -> Tensor:
    """[units, positions, width] times itself over its width, added up in float32 whatever its type."""
    if x.dtype not in (torch.bfloat16, torch.float16):
        return torch.bmm(x, x.mT)
    return torch.bmm(x, x.mT, out_dtype=torch.float32) if x.is_cuda else torch.bmm(x.float(), x.float().mT)


def from_grams(first: Tensor, second: Tensor, like: Tensor) -> Tensor:
    """The squared norm per unit of a sum of outer products, from the Grams of its two sides; never below the truth.

    Positions can cancel, and then the difference of large numbers is dominated by rounding: the result may be 0, or negative,
    for a gradient of thousands of clip norms. So a bound on the rounding error is added: a share of the largest possible
    norm, which is reached where no positions cancel. Small numbers on one side that multiply large ones on the other vanish
    from one Gram: every position counts as at least `ROOM` long for that.
    """
    norms = torch.linalg.vecdot(first.flatten(1), second.flatten(1).to(first.dtype))
    sizes = (first.diagonal(dim1=1, dim2=2).clamp_min(0) + ROOM) * (second.diagonal(dim1=1, dim2=2).clamp_min(0) + ROOM)
    return norms.clamp_min_(0) + hidden(like) * sizes.sqrt_().sum(1).square_()


def hidden(x: Tensor) -> float:
    """The rounding error as a share of the largest squared norm: of the Grams, or of factors rounded before the product."""
    narrow = x.is_cuda and x.dtype == torch.float32 and torch.get_float32_matmul_precision() != "highest"
    step = 2.0**-11 if narrow else torch.finfo(x.dtype).eps / 2
    return max(2.0**-20, (4 * step) ** 2)


def squared(gradients: Mapping[Any, Tensor]) -> Tensor:
    """The squared norm per unit of instantiated gradients."""
    parts = [torch.linalg.vector_norm(g.reshape(len(g), -1), dim=1, dtype=torch.float32).square() for g in gradients.values()]
    return torch.stack(parts).sum(0) if len(parts) > 1 else parts[0]


def weighted(gradients: Tensor, factors: Tensor) -> Tensor:
    """The sum of [units, numbers], each unit times its factor, added up in float32 whatever the type."""
    if gradients.dtype in NARROW and gradients.is_cuda:
        return torch.mm(factors.to(gradients.dtype)[None], gradients, out_dtype=torch.float32)[0]
    wide = torch.promote_types(gradients.dtype, torch.float32)
    return factors.to(wide) @ gradients.to(wide)


def blanked(tensor: Tensor, good: Tensor) -> Tensor:
    """The tensor, units first, with zeros for those that are not good."""
    flat = tensor.reshape(good.shape[0], -1)
    return torch.where(good[:, None], flat, torch.zeros_like(flat)).reshape(tensor.shape)


def add_instantiated(gradients: Mapping[Tensor, Tensor], factors: Tensor, into: Views) -> None:
    for parameter, gradient in gradients.items():
        view = into[parameter]
        flat, factors = gradient.reshape(len(gradient), -1).to(view.dtype), factors.to(view.dtype)
        if view.is_contiguous():
            view.view(-1).addmv_(flat.mT, factors)
        else:  # a parameter seen transposed
            view.add_((factors @ flat).view(view.shape))


Forward = Callable[[nn.Module, Tape], Callable[..., Any]]  # makes a module's forward for one step


def any_number(make: Forward) -> Forward:
    """A layer that takes whole images, also where the batch has several of every example: [examples x frames, …]."""

    def made(module: nn.Module, tape: Tape) -> Callable[..., Any]:
        forward = make(module, tape)

        def folded(*args: Any, **kwargs: Any) -> Any:
            x, *more = (*args, *kwargs.values())  # a transposed convolution may also be told the size of its output
            times = tape.layout.times(module, x, tape.examples)
            return forward(x, *more) if times == 1 else make(module, tape.folded(times))(x, *more)

        return folded

    return made


def any_order(make: Forward) -> Forward:
    """A layer that works on the last axes alone, also where examples come second: [positions, examples, …]."""

    def made(module: nn.Module, tape: Tape) -> Callable[..., Any]:
        forward = make(module, tape)

        def turned(*args: Any, **kwargs: Any) -> Any:
            (x,) = (*args, *kwargs.values())  # whatever its forward calls it
            if tape.layout.second(module, x, tape.examples):
                return forward(x.transpose(0, 1)).transpose(0, 1)
            return forward(x)

        return turned

    return made
