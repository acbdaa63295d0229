"""Rules for indexing, gathering and scattering."""

from __future__ import annotations

from typing import Any

import torch

from discreet.learn.sgd.proof.call import NUMBERS, PUBLIC, ROWS, SUM, Call, Layout, NotProven, Value, positive, rule
from discreet.learn.sgd.proof.shapes import PART
from discreet.learn.sgd.proof.values import Cell, known, merged, rows, summed

_BOOL = (torch.bool, torch.uint8)


COUNTED = {
    "view", "_unsafe_view", "reshape", "squeeze", "unsqueeze", "expand", "alias", "detach", "clone", "lift_fresh", "transpose",
    "permute", "t", "_to_copy", "to", "slice",
}  # fmt: skip


def only_picking(name: str, call: Call) -> None:
    """The positions of examples in the batch may only be moved, or pick entries along the axis of examples."""
    if name in COUNTED and call.outs[0].dtype in (torch.int64, torch.int32):
        return
    value = call.of("self")
    if name in ("index", "_unsafe_index", "index_put", "_unsafe_index_put", "_index_put_impl") and value is not None:
        spot = value.layout.dim if value.layout is not None else -1
        others = [index for place, index in enumerate(call["indices"]) if index is not None and place != spot]
        others += [index for index in (call["self"], call["values"]) if index is not None]
        if all(known(index).kind != NUMBERS for index in others):
            return
    raise NotProven("the place of an example in its batch is used as a number")


def _placed(indices: list[Any]) -> tuple[int, int, list[int]]:
    """For an index by tensors: where its axes go, their number, and which axes of `self` are indexed."""
    used = [place for place, index in enumerate(indices) if index is not None]
    axes = max(indices[place].ndim for place in used)
    together = used == list(range(used[0], used[0] + len(used)))
    return (used[0] if together else 0), axes, used


@rule("index", "_unsafe_index")
def indexed(call: Call) -> Value:
    value, indices = call.of("self"), list(call["indices"])
    assert value is not None
    first, axes, used = _placed(indices)
    its = [known(indices[place]) for place in used]
    _not_by_size(indices[place] for place in used)
    if value.kind in (PUBLIC, SUM) and all(operand.kind == PUBLIC for operand in its):
        return Value(Cell(value.kind))
    if value.kind == PUBLIC:
        if any(operand.kind not in (PUBLIC, ROWS) for operand in its):
            raise NotProven("the place of an example in its batch is used as a number")
        wide = [(operand.layout, indices[place].ndim) for operand, place in zip(its, used) if operand.layout is not None]
        where = merged([operand.at(operand.dim + axes - ndim) for operand, ndim in wide])
        return rows(where.at(where.dim + first))
    layout = value.layout
    if value.kind != ROWS or layout is None:
        raise NotProven("a sum over the batch is used as more than a gradient")
    if layout.dim in used:
        return rows(_own_entries(indices, layout).at(first + axes - 1 - _from_right(indices, layout)))
    if any(operand.kind != PUBLIC for operand in its):
        raise NotProven("an index that differs between examples picks the same entries of all of them")
    moved = layout.dim - sum(place < layout.dim for place in used)
    return rows(layout.at(moved + axes if (moved >= first) else moved))


def _from_right(indices: list[Any], layout: Layout) -> int:
    number = indices[layout.dim]
    where = known(number).layout
    assert where is not None
    return int(number.ndim - 1 - where.dim)


def _own_entries(indices: list[Any], layout: Layout) -> Layout:
    """x[arange(B), i]: each example's own entries."""
    number = known(indices[layout.dim])
    if number.kind != NUMBERS or layout.times != 1:
        raise NotProven(PART)
    right = _from_right(indices, layout)
    for place, index in enumerate(indices):
        if index is not None and place != layout.dim:
            value = known(index)
            if value.kind == ROWS and (
                value.layout is None or index.ndim - 1 - value.layout.dim != right or value.layout.times != 1
            ):
                raise NotProven(PART)
            if value.kind not in (ROWS, PUBLIC):
                raise NotProven(PART)
    return Layout(0, 1, 1)


def _not_by_size(tensors: Any) -> None:
    if any(t.dtype in _BOOL for t in tensors):
        raise NotProven("entries are chosen by a mask, so that how many there are depends on values")


@rule("index_put", "_unsafe_index_put", "_index_put_impl")
def put(call: Call) -> Value:
    value, indices, written = call.of("self"), list(call["indices"]), call.of("values")
    assert value is not None
    assert written is not None
    first, axes, used = _placed(indices)
    its = [known(indices[place]) for place in used]
    layout = value.layout
    if any(indices[place].dtype in _BOOL for place in used):
        return _masked(call, value, its[0], indices, written)
    if layout is not None and layout.dim in used:
        if value.kind != ROWS or written.kind not in (PUBLIC, ROWS):
            raise NotProven(PART)
        spot = _own_entries(indices, layout).at(first + axes - 1 - _from_right(indices, layout))
        if written.kind == ROWS:
            wide = call["values"].ndim
            full = call["self"].ndim - len(used) + axes
            merged([spot, written.layout.at(written.layout.dim + full - wide)])  # type: ignore[union-attr]
        return rows(layout)
    if layout is None:
        if all(operand.kind == PUBLIC for operand in its) and written.kind in (PUBLIC, SUM):
            return Value(Cell(SUM if SUM in (written.kind, value.kind) else PUBLIC))
        if not call["accumulate"] or value.kind not in (PUBLIC, SUM) or NUMBERS in call.kinds:
            raise NotProven("an example writes where another does")
        return _added_up(call, indices, used, axes, first)
    if value.kind != ROWS or any(operand.kind != PUBLIC for operand in its) or written.kind not in (PUBLIC, ROWS):
        raise NotProven(PART)
    moved = layout.dim - sum(place < layout.dim for place in used)
    spot = layout.at(moved + axes if moved >= first else moved)
    if written.kind == ROWS:
        full = call["self"].ndim - len(used) + axes
        merged([spot, written.layout.at(written.layout.dim + full - call["values"].ndim)])  # type: ignore[union-attr]
    return rows(layout)


def _masked(call: Call, value: Value, mask: Value, indices: list[Any], written: Value) -> Value:
    """x[mask] = number: every entry by its own mask."""
    alone = len(indices) == 1 and call["values"].numel() == 1 and written.kind == PUBLIC
    if not alone or value.kind != ROWS or value.layout is None or mask.kind != ROWS or mask.layout is None:
        raise NotProven("entries are chosen by a mask, so that how many there are depends on values")
    return rows(merged([value.layout, mask.layout]))


def _added_up(call: Call, indices: list[Any], used: list[int], axes: int, first: int) -> Value:
    """Every example adds its own rows at its own positions: a sum over the examples."""
    layouts = []
    for place in used:
        its = known(indices[place])
        if its.kind == ROWS:
            layouts.append(its.layout.at(its.layout.dim + axes - indices[place].ndim + first))  # type: ignore[union-attr]
    written = call.of("values")
    if written is not None and written.kind == ROWS:
        full = call["self"].ndim - len(used) + axes
        layouts.append(written.layout.at(written.layout.dim + full - call["values"].ndim))  # type: ignore[union-attr]
    merged(layouts)
    return summed()


@rule(
    "gather", "scatter", "scatter_add", "scatter_reduce", "index_select", "index_add", "index_copy", "index_fill",
    "take_along_dim",
)  # fmt: skip
def along(call: Call) -> Value:
    """Entries picked or written along one axis other than that of the examples, by an index of the example's own."""
    call.no_sizes()
    dim = positive(call["dim"], max(call["self"].ndim, 1))
    value, index = call.of("self"), call.of("index")
    assert value is not None
    assert index is not None
    if call.name in ("index_select", "index_add", "index_copy", "index_fill"):
        return _by_list(call, value, index, dim)
    layouts = [operand.layout for operand in call.values if operand.kind == ROWS and operand.layout is not None]
    if SUM in call.kinds or NUMBERS in call.kinds or not layouts:
        raise NotProven("a sum over the batch is used as more than a gradient")
    layout = merged(layouts)
    if layout.dim == dim:
        raise NotProven("entries are picked along the axis of examples")
    others = [index] if (source := call.of("src")) is None else [index, source]
    if value.kind != ROWS or (call.name.startswith("scatter") and any(operand.kind != ROWS for operand in others)):
        raise NotProven("some of what meets here is rows of examples and some is not")
    return rows(layout)


def _by_list(call: Call, value: Value, index: Value, dim: int) -> Value:
    source = call.of("source")
    if value.kind == PUBLIC and index.kind == ROWS and call.name == "index_select":
        return rows(index.layout.at(dim))  # type: ignore[union-attr]
    if value.kind in (PUBLIC, SUM) and call.name == "index_add" and source is not None and source.kind == ROWS:
        if index.kind == ROWS:
            merged([index.layout.at(dim), source.layout])  # type: ignore[union-attr,list-item]
            return summed()
        raise NotProven("an example writes where another does")
    if index.kind != PUBLIC or value.layout is None or value.kind != ROWS or value.layout.dim == dim:
        raise NotProven("entries are picked along the axis of examples")
    if source is not None and source.kind == ROWS:
        merged([value.layout, source.layout])  # type: ignore[list-item]
    elif source is not None:  # shared by all examples, it has no entry for each of them
        raise NotProven("some of what meets here is rows of examples and some is not")
    return rows(value.layout)
