"""Rules for operations that move entries: views, slices, concatenation, and new tensors."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from discreet.learn.sgd.proof.call import NUMBERS, PUBLIC, ROWS, SUM, Call, Layout, NotProven, Value, positive, rule
from discreet.learn.sgd.proof.values import (
    Cell,
    batch_axes,
    free,
    known,
    merged,
    multiple,
    public,
    reshaped,
    rows,
    summed,
    symbolic,
)

PART = "some examples of the batch are left out, chosen by their place or put in another order"


def _moved(call: Call, layout: Layout | None, out: Tensor | None = None) -> Value:
    """The value of `self` with another layout."""
    value = call.of("self")
    assert value is not None
    if layout is None and batch_axes((call.outs[0] if out is None else out).shape):
        raise NotProven("something that all examples share is spread over the batch")
    return Value(Cell(value.kind), layout)


@rule(
    "view", "_unsafe_view", "reshape", "_reshape_alias", "_reshape_copy", "view_copy", "squeeze", "unsqueeze", "flatten",
    "unflatten", "view_as", "squeeze_copy", "unsqueeze_copy",
)  # fmt: skip
def order_kept(call: Call) -> Value:
    layout = call.layout("self")
    return _moved(call, layout and reshaped(layout, call["self"].shape, call.outs[0].shape))


@rule(
    "alias", "detach", "lift_fresh", "lift_fresh_copy", "clone", "contiguous", "view_of", "detach_copy", "alias_copy",
)  # fmt: skip
def unchanged(call: Call) -> Value:
    return _moved(call, call.layout("self"))


@rule("permute", "permute_copy")
def permuted(call: Call) -> Value:
    layout, axes = call.layout("self"), call["self"].ndim
    order = [positive(int(dim), axes) for dim in call["dims"]]
    return _moved(call, layout and layout.at(order.index(layout.dim)))


@rule("transpose", "transpose_copy", "t", "t_copy")
def transposed(call: Call) -> Value:
    layout, axes = call.layout("self"), call["self"].ndim
    if call.name.startswith("t_") or call.name == "t":
        first, second = 0, axes - 1
    else:
        first, second = positive(call["dim0"], axes), positive(call["dim1"], axes)
    where = {first: second, second: first}
    return _moved(call, layout and layout.at(where.get(layout.dim, layout.dim)))


@rule("expand", "expand_copy")
def expanded(call: Call) -> Value:
    value, old, new = call.of("self"), call["self"], call.outs[0]
    assert value is not None
    axes = batch_axes(new.shape)
    if value.layout is not None:
        if len(axes) != 1:
            raise NotProven("every example is laid beside every other")
        return _moved(call, value.layout.at(value.layout.dim + new.ndim - old.ndim))
    if not axes:
        return _moved(call, None)
    if value.kind != PUBLIC:
        raise NotProven("a sum over the batch is given back to its examples")
    return rows(_free(new))


def _free(tensor: Tensor) -> Layout:
    layout = free(tensor.shape)
    assert layout is not None
    return layout


@rule("slice", "slice_copy")
def sliced(call: Call) -> Value:
    layout, old = call.layout("self"), call["self"]
    if layout is None or positive(call["dim"] or 0, old.ndim) != layout.dim:
        call.no_sizes()
        return _moved(call, layout)
    return _moved(call, _part(layout, call["start"] or 0, call.outs[0].shape[layout.dim], call["step"]))


def _part(layout: Layout, start: Any, size: Any, step: Any) -> Layout:
    """The layout of a slice that keeps whole runs of all examples; other slices are refused."""
    if step not in (None, 1) or symbolic(step):
        raise NotProven(PART)
    if not multiple(size):
        raise NotProven(PART)
    if layout.times == multiple(size) and not symbolic(start) and start == 0:
        return layout
    first = multiple(start) if symbolic(start) else (0 if start == 0 else -1)
    if first < 0 or first % layout.inner or multiple(size) % layout.inner:
        raise NotProven(PART)
    return Layout(layout.dim, multiple(size) // layout.inner, layout.inner, layout.free)


@rule("select", "select_copy")
def selected(call: Call) -> Value:
    layout, dim = call.layout("self"), positive(call["dim"], call["self"].ndim)
    if symbolic(call["index"]):
        raise NotProven("the size of the batch is used as a number")
    if layout is not None and layout.dim == dim:
        raise NotProven(PART)
    return _moved(call, layout and layout.at(layout.dim - (dim < layout.dim)))


@rule("unbind", "unbind_copy")
def unbound(call: Call) -> list[Value]:
    layout, dim = call.layout("self"), positive(call["dim"] or 0, call["self"].ndim)
    if layout is not None and layout.dim == dim:
        raise NotProven(PART)
    return [_moved(call, layout and layout.at(layout.dim - (dim < layout.dim)), out) for out in call.outs]


@rule(
    "split", "split_with_sizes", "split_copy", "split_with_sizes_copy", "unsafe_split", "unsafe_split_with_sizes", "chunk",
    "unsafe_chunk",
)  # fmt: skip
def cut(call: Call) -> list[Value]:
    layout, dim, start, values = call.layout("self"), positive(call["dim"] or 0, call["self"].ndim), 0, []
    by = pytree.tree_leaves((call["split_size"], call["split_sizes"]))
    if (layout is None or layout.dim != dim) and any(map(symbolic, by)):
        raise NotProven("the size of the batch is used as a number")
    for out in call.outs:
        its = layout
        if layout is not None and layout.dim == dim:
            its = _part(layout, start, out.shape[dim], 1)
            start = start + out.shape[dim]
        values.append(_moved(call, its, out))
    return values


@rule("diagonal", "diagonal_copy")
def diagonal(call: Call) -> Value:
    layout, axes = call.layout("self"), call["self"].ndim
    used = sorted((positive(call["dim1"], axes), positive(call["dim2"], axes)))
    if layout is not None and layout.dim in used:
        raise NotProven(PART)
    return _moved(call, layout and layout.at(layout.dim - sum(dim < layout.dim for dim in used)))


@rule("unfold")
def unfolded(call: Call) -> Value:
    layout = call.layout("self")
    if layout is not None and positive(call["dimension"], call["self"].ndim) == layout.dim:
        raise NotProven(PART)
    return _moved(call, layout)


@rule("slice_backward", "select_backward", "diagonal_backward", "unfold_backward")
def given_back(call: Call) -> Value:
    """The backward of a slice: its gradient embedded in zeros."""
    value = call.of("grad_output") or call.of("grad_in") or call.of("grad")
    assert value is not None
    if value.kind != ROWS:
        return Value(Cell(value.kind))
    out, layout = call.outs[0], value.layout
    assert layout is not None
    where = batch_axes(out.shape)
    if len(where) != 1:
        raise NotProven(PART)
    whole = multiple(out.shape[where[0]])
    if call.name != "slice_backward" or positive(call["dim"], out.ndim) != where[0]:
        call.no_sizes()
        if whole != layout.times:
            raise NotProven(PART)
        return rows(layout.at(where[0]))
    first = multiple(call["start"]) if symbolic(call["start"]) else 0 if call["start"] == 0 else -1
    if first < 0 or first % layout.inner or whole % layout.inner or first + layout.times > whole or call["step"] != 1:
        raise NotProven(PART)
    if whole == layout.times:
        return rows(layout.at(where[0]))
    return rows(Layout(where[0], whole // layout.inner, layout.inner))


@rule("slice_scatter", "select_scatter")
def scattered_in(call: Call) -> Value:
    whole, part = call.of("self"), call.of("src")
    assert whole is not None
    assert part is not None
    if {whole.kind, part.kind} <= {PUBLIC}:
        return public()
    layout = call.layout("self")
    dim = positive(call["dim"] or 0, call["self"].ndim)
    if layout is None or SUM in call.kinds or dim == layout.dim:
        raise NotProven(PART)
    inside = layout.at(layout.dim - (dim < layout.dim)) if call.name == "select_scatter" else layout
    if part.kind == ROWS:
        merged([inside, part.layout])  # type: ignore[list-item]
    return rows(layout)


# ---- joins -----------------------------------------------------------------------------------------------------------


@rule("cat", "concat", "_cat")
def joined(call: Call) -> Value:
    parts = [t for t in call["tensors"] if t.ndim > 1 or t.shape[0] != 0]
    dim = positive(call["dim"] or 0, call.outs[0].ndim)
    kinds = {known(t).kind for t in parts}
    if NUMBERS in kinds:
        raise NotProven("the place of an example in its batch is used as a number")
    if ROWS not in kinds:
        return summed() if SUM in kinds else public()
    if kinds != {ROWS}:
        raise NotProven("some of what is joined is rows of examples and some is not")
    layouts = [layout for t in parts if (layout := known(t).layout) is not None]
    if any(layout.dim != layouts[0].dim for layout in layouts):
        raise NotProven("examples lie along different axes in two tensors that are joined")
    if dim != layouts[0].dim:
        return rows(merged(layouts))
    inner = ([layout for layout in layouts if not layout.free] or layouts)[0].inner
    if any((layout.inner != inner and not layout.free) or layout.times % inner > 0 for layout in layouts):
        raise NotProven("examples lie in another order in two tensors that are joined")
    return rows(Layout(dim, sum(layout.times for layout in layouts) // inner, inner))


@rule("stack")
def stacked(call: Call) -> Value:
    values = [known(t) for t in call["tensors"]]
    kinds, dim = {value.kind for value in values}, positive(call["dim"] or 0, call.outs[0].ndim)
    if NUMBERS in kinds or (ROWS in kinds and kinds != {ROWS}):
        raise NotProven("some of what is joined is rows of examples and some is not")
    if ROWS not in kinds:
        return summed() if SUM in kinds else public()
    layout = merged([value.layout for value in values])  # type: ignore[misc]
    return rows(layout.at(layout.dim + (dim <= layout.dim)))


@rule("repeat")
def repeated(call: Call) -> Value:
    value, out, times = call.of("self"), call.outs[0], list(call["repeats"])
    assert value is not None
    layout, more = value.layout, call.outs[0].ndim - call["self"].ndim
    if layout is None:
        if not batch_axes(out.shape):
            return Value(Cell(value.kind))
        if value.kind != PUBLIC:
            raise NotProven("a sum over the batch is given back to its examples")
        (axis,) = batch_axes(out.shape)  # tiles, all the same: as many of them for every example
        return rows(Layout(axis, 1, multiple(out.shape[axis])))
    place = layout.dim + more
    if any(symbolic(factor) for factor in times) or value.kind != ROWS:
        raise NotProven("every example is laid beside every other")
    return rows(Layout(place, layout.outer * int(times[place]), layout.inner, layout.free))


@rule("flip", "roll")
def turned(call: Call) -> Value:
    layout, axes = call.layout("self"), call["self"].ndim
    if layout is not None and (not call["dims"] or layout.dim in [positive(dim, axes) for dim in call["dims"]]):
        raise NotProven(PART)
    return _moved(call, layout)


@rule("constant_pad_nd", "pad")
def padded(call: Call) -> Value:
    layout, axes = call.layout("self"), call["self"].ndim
    call.no_sizes()
    touched = [axes - 1 - place // 2 for place, size in enumerate(call["pad"]) if size]
    if layout is not None and layout.dim in touched:
        raise NotProven(PART)
    if call["value"] not in (None, 0, 0.0):
        call.no_sums()
    return _moved(call, layout)


# ---- from nothing ----------------------------------------------------------------------------------------------------

SAME = {
    "zeros", "ones", "full", "new_zeros", "new_ones", "new_full", "zeros_like", "ones_like", "full_like", "scalar_tensor",
}  # fmt: skip
DRAWN = {"rand", "randn", "randint", "rand_like", "randn_like", "randint_like"}
BLANK = {"empty", "empty_strided", "new_empty", "new_empty_strided", "empty_like", "empty_permuted"}


@rule(*SAME, *DRAWN, *BLANK)
def made(call: Call) -> Value:
    """New tensors with equal or identically drawn entries, which can be split into examples in any way; or uninitialised."""
    call.no_sizes("stride")
    out = call.outs[0]
    layout = free(out.shape)
    like = call.of("self")
    if layout is not None and call.name.endswith("_like") and like is not None and like.layout is not None:
        layout = like.layout
    return Value(Cell(ROWS if layout is not None else PUBLIC, blank=call.name in BLANK), layout)


@rule("arange")
def counted(call: Call) -> Value:
    start, end, step = call["start"] or 0, call["end"], 1 if call["step"] is None else call["step"]
    if symbolic(start) or symbolic(step):
        raise NotProven("the size of the batch is used as a number")
    if not symbolic(end):
        return public()
    if multiple(end) != 1 or start != 0 or step != 1 or call.outs[0].dtype not in (torch.int64, torch.int32):
        raise NotProven("the size of the batch is used as a number")
    return Value(Cell(NUMBERS), Layout(0, 1, 1))
