"""One operation of a trace, as the rules see it, and the table of rules."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from discreet.learn.sgd.proof.values import (
    NUMBERS,
    PUBLIC,
    ROWS,
    SUM,
    Cell,
    Layout,
    NotProven,
    Value,
    known,
    merged,
    multiple,
    symbolic,
)  # fmt: skip

Rule = Callable[["Call"], Any]  # gives a Value for every tensor that comes out, in order; one for all where there is one
RULES: dict[str, Rule] = {}


class Call:
    """An operation with its arguments by name, its outputs, and the values of its input tensors."""

    def __init__(self, func: Any, args: Sequence[Any], kwargs: dict[str, Any], out: Any) -> None:
        self.func, self.out = func, out
        self.name = base_name(func)
        self.arguments = bound(func, args, kwargs)
        self.tensors = [leaf for leaf in pytree.tree_leaves(self.arguments) if isinstance(leaf, Tensor)]
        self.values = [known(t) for t in self.tensors]
        self.kinds = {value.kind for value in self.values}

    def __getitem__(self, name: str) -> Any:
        return self.arguments.get(name)

    def of(self, name: str) -> Value | None:
        """What is known of a tensor argument; None where it was not given."""
        argument = self.arguments.get(name)
        return known(argument) if isinstance(argument, Tensor) else None

    def layout(self, name: str) -> Layout | None:
        value = self.of(name)
        return value.layout if value is not None and value.kind in (ROWS, NUMBERS) else None

    @property
    def outs(self) -> list[Tensor]:
        return [leaf for leaf in pytree.tree_leaves(self.out) if isinstance(leaf, Tensor)]

    def no_sums(self) -> None:
        if SUM in self.kinds:
            raise NotProven("a sum over the batch is used as more than a gradient")

    def no_sizes(self, *shapes: str) -> None:
        """Refuse numbers that depend on the batch size, except those that are shapes."""
        leaves = pytree.tree_leaves({k: v for k, v in self.arguments.items() if k not in SHAPES and k not in shapes})
        if any(symbolic(leaf) for leaf in leaves):
            raise NotProven("the size of the batch is used as a number")

    def only_shapes(self, name: str) -> None:
        """Refuse arguments that depend on the batch size, except those that give the output's shape by the table SIZES."""
        allowed = SIZES.get(name, frozenset())
        leaves = pytree.tree_leaves({key: argument for key, argument in self.arguments.items() if key not in allowed})
        if any(symbolic(leaf) for leaf in leaves):
            raise NotProven("the size of the batch is used as a number")

    def rows_of(self, *names: str) -> Layout:
        """The common layout of these arguments, all of which must be rows."""
        layouts = [self.layout(name) for name in names if self[name] is not None]
        if not layouts or None in layouts or not all(self.of(n).kind == ROWS for n in names if self[n] is not None):  # type: ignore[union-attr]
            raise NotProven("some of what meets here is rows of examples and some is not")
        return merged([layout for layout in layouts if layout is not None])

    def publics(self, *names: str) -> None:
        for name in names:
            value = self.of(name)
            if value is not None and value.kind != PUBLIC:
                raise NotProven(f"{name} is not the same for all examples")


SHAPES = {
    "size", "sizes", "input_sizes", "input_size", "output_size", "self_size", "shape", "split_sizes", "dtype", "layout",
    "device", "pin_memory", "memory_format",
}  # fmt: skip


CUTS = {
    "split", "split_with_sizes", "split_copy", "split_with_sizes_copy", "unsafe_split", "unsafe_split_with_sizes", "chunk",
    "unsafe_chunk",
}  # fmt: skip
_MADE = {
    "zeros", "ones", "full", "new_zeros", "new_ones", "new_full", "rand", "randn", "randint", "empty", "new_empty",
    "empty_permuted", "empty_strided", "new_empty_strided",
}  # fmt: skip
_VIEWS = {
    "view", "_unsafe_view", "reshape", "_reshape_alias", "_reshape_copy", "view_copy", "expand", "expand_copy", "unflatten",
}  # fmt: skip
_BACK = {"slice_backward", "select_backward", "diagonal_backward", "unfold_backward"}
_RESIZED = {
    "upsample_nearest1d", "upsample_nearest2d", "upsample_nearest3d", "upsample_linear1d", "upsample_bilinear2d",
    "upsample_bicubic2d", "upsample_trilinear3d", "_upsample_nearest_exact2d",
}  # fmt: skip
# Arguments that may know the size of the batch: each is the shape of what comes out, which is compared with its layout.
SIZES: dict[str, frozenset[str]] = {
    **dict.fromkeys(_MADE, frozenset({"size", "stride"})),
    **dict.fromkeys(_VIEWS, frozenset({"size", "shape", "sizes", "stride"})),
    **dict.fromkeys(_BACK, frozenset({"input_sizes", "input_size"})),
    **dict.fromkeys(CUTS, frozenset({"split_size", "split_sizes"})),  # along the axis of examples: see cut
    **dict.fromkeys((f"{name}_backward" for name in _RESIZED), frozenset({"input_size"})),
    **dict.fromkeys(("slice", "slice_copy"), frozenset({"start", "end"})),  # along the axis of examples: see sliced
    "slice_backward": frozenset({"input_sizes", "start", "end"}),
    "native_group_norm": frozenset({"N"}),
    "native_group_norm_backward": frozenset({"N"}),
    "affine_grid_generator": frozenset({"size"}),
    "repeat": frozenset({"repeats"}),
    "arange": frozenset({"end"}),
}


def whole_parts(func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> bool:
    """Whether m·B entries are cut into parts of q·B each: how many parts there are does not depend on B."""
    arguments = bound(func, args, kwargs)
    size, part_size = (
        arguments["self"].shape[positive(arguments.get("dim") or 0, arguments["self"].ndim)],
        arguments.get("split_size"),
    )
    return part_size is not None and multiple(size) > 0 and multiple(part_size) > 0


def base_name(func: Any) -> str:
    return str(func._schema.name).partition("::")[2]


def namespace(func: Any) -> str:
    return str(getattr(func, "namespace", ""))


def bound(func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> dict[str, Any]:
    schema = func._schema.arguments
    arguments = {parameter.name: parameter.default_value if parameter.has_default_value() else None for parameter in schema}
    arguments.update(zip((parameter.name for parameter in schema), args))
    arguments.update(kwargs)
    return arguments


def rule(*names: str) -> Callable[[Rule], Rule]:
    def enter(function: Rule) -> Rule:
        for name in names:
            RULES[name] = function
        return function

    return enter


def one_like(call: Call, layout: Layout | None, kind: str = ROWS) -> Value:
    return Value(Cell(kind), layout)


def positive(dim: int, axes: int) -> int:
    return dim + axes if dim < 0 else dim


def dims_of(dim: Any, axes: int) -> list[int]:
    """The axes that are meant; all of them where none is named."""
    if dim is None or (isinstance(dim, (list, tuple)) and not dim):
        return list(range(axes))
    return [positive(int(axis), axes) for axis in (dim if isinstance(dim, (list, tuple)) else [dim])]


__all__ = [
    "NUMBERS", "PUBLIC", "ROWS", "RULES", "SUM", "Call", "Cell", "Layout", "NotProven", "Value", "base_name", "bound",
    "dims_of", "namespace", "one_like", "positive", "rule", "torch",
]  # fmt: skip
