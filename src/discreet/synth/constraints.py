"""Constraints: combinations of cells that are impossible in estimation, and so in every sampled row."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from discreet.core import check
from discreet.errors import InvalidValue
from discreet.synth.cells import Cells
from discreet.synth.junction import JunctionTree, cells

Set = tuple[int, ...]
Impossible = tuple[Set, NDArray[np.bool_]]  # columns, and which of their cells no row is in
MOST_CELLS = 1_000_000


@dataclass(frozen=True, slots=True)
class Forbidden:
    """No row has all of these: {"married": ["yes"], "age": (0, 15)}. A column is given as a value, a list of values (None for
    missing) or, where it has a range, a pair (low, high), both included; the ends must be ends of bins."""

    where: Mapping[str, Any]

    @property
    def columns(self) -> tuple[str, ...]:
        return tuple(self.where)

    def impossible(self, columns: Sequence[Cells]) -> Impossible:
        return _together(columns, {name: _cells(columns, name, values) for name, values in self.where.items()})


@dataclass(frozen=True, slots=True)
class Implies:
    """Rows that have all of `given` also have `then`, which is one column: Implies({"age": (0, 15)}, {"married": ["no"]})."""

    given: Mapping[str, Any]
    then: Mapping[str, Any]

    @property
    def columns(self) -> tuple[str, ...]:
        return (*self.given, *self.then)

    def impossible(self, columns: Sequence[Cells]) -> Impossible:
        if len(self.then) != 1 or set(self.given) & set(self.then) or not self.given:
            raise InvalidValue("An implication has at least one column given and one other that follows.")
        ((name, consequence),) = self.then.items()
        masks = {column: _cells(columns, column, values) for column, values in self.given.items()}
        return _together(columns, masks | {name: ~_cells(columns, name, consequence)})


@dataclass(frozen=True, slots=True)
class Ordered:
    """`first` is at most `second` in every row in which both are known: Ordered("born", "died"). Both have ranges alike."""

    first: str
    second: str

    @property
    def columns(self) -> tuple[str, ...]:
        return (self.first, self.second)

    def impossible(self, columns: Sequence[Cells]) -> Impossible:
        """The pairs of cells without any values in this order; values are kept in order when they are drawn."""
        first, second = (_named(columns, name) for name in (self.first, self.second))
        kinds = [
            {"integer": "number", "real": "number"}.get(column.column.type, column.column.type) for column in (first, second)
        ]
        if first is second or not first.bins or not second.bins or kinds[0] != kinds[1]:
            raise InvalidValue(
                f"{self.first} and {self.second} cannot be ordered: both must be numbers, dates or timestamps in bins."
            )
        mask = np.zeros((first.size, second.size), bool)
        for i in range(first.known):
            for j in range(second.known):
                open_end = second.column.type == "real" and j < second.bins  # the end of a real bin is not in it
                least, most = first.ends(i)[0], second.ends(j)[1]
                mask[i, j] = least >= most if open_end else least > most
        places = tuple(next(i for i, column in enumerate(columns) if column is wanted) for wanted in (first, second))
        return (places, mask) if places[0] < places[1] else (places[::-1], mask.T)


def ordered_pairs(constraints: Sequence[Any], columns: Sequence[Cells]) -> tuple[tuple[int, int], ...]:
    """The columns that are in order, by place. No column is in two orders: then a pair of cells that is possible has values."""
    names = [column.name for column in columns]
    pairs = [
        (names.index(constraint.first), names.index(constraint.second))
        for constraint in constraints
        if isinstance(constraint, Ordered)
    ]
    used = [place for pair in pairs for place in pair]
    if len(set(used)) != len(used):
        raise InvalidValue("A column can be in one order only.")
    return tuple(pairs)


def impossible_cells(constraints: Sequence[Any], columns: Sequence[Cells]) -> tuple[Impossible, ...]:
    """The cells that the constraints leave out; InvalidValue where they leave out every row there could be."""
    masks = []
    private = {column.name for column in columns if column.column.find}
    for constraint in check.items("constraints", constraints, "a list of Forbidden, Implies and Ordered"):
        if not isinstance(constraint, (Forbidden, Implies, Ordered)):
            raise InvalidValue(f"constraints must be a list of Forbidden, Implies and Ordered; got {check.shown(constraint)}.")
        if private & set(constraint.columns):
            raise InvalidValue(f"A constraint names {min(private & set(constraint.columns))}, whose cells are yet to be found. "
                               "Constraints need public cells: list its categories or the edges of its bins.")  # fmt: skip
        masks.append(constraint.impossible(columns))
    ordered_pairs(constraints, columns)
    sizes = [column.size for column in columns]
    tree = JunctionTree.of(sizes, [places for places, _ in masks])
    if tree.cells > MOST_CELLS:
        raise InvalidValue(f"The constraints tie columns of {tree.cells:,} cells together, and at most {MOST_CELLS:,} fit. "
                           "Use fewer bins, or fewer columns in one constraint.")  # fmt: skip
    if masks and not math.isfinite(tree.conditionals(with_impossible(tree, tree.zeros(), masks))[1]):
        raise InvalidValue("The constraints contradict one another: no row is left. Nothing was spent.")
    return tuple(masks)


def with_impossible(tree: JunctionTree, potentials: list[Any], impossible: Sequence[Impossible]) -> list[Any]:
    """The potentials with minus infinity where no row may be."""
    for places, mask in impossible:
        home = tree.home(places)
        assert home is not None
        shape = [tree.sizes[column] if column in places else 1 for column in tree.cliques[home]]
        potentials[home] = np.where(mask.reshape(shape), -np.inf, potentials[home])
    return potentials


def _together(columns: Sequence[Cells], masks: Mapping[str, NDArray[np.bool_]]) -> Impossible:
    """All of the masks at once, over their columns in the table's order."""
    if not masks:
        raise InvalidValue("A constraint names at least one column.")
    names = [column.name for column in columns]
    places = tuple(sorted(names.index(name) for name in masks))
    if cells(places, [column.size for column in columns]) > MOST_CELLS:
        raise InvalidValue(f"A constraint has more than {MOST_CELLS:,} cells. Use fewer bins, or fewer columns.")
    mask = np.ones([columns[place].size for place in places], bool)
    for i, place in enumerate(places):
        mask &= masks[names[place]].reshape([-1 if j == i else 1 for j in range(len(places))])
    return places, mask


def _named(columns: Sequence[Cells], name: str) -> Cells:
    match = next((column for column in columns if column.name == name), None)
    if match is None:
        names = ", ".join(column.name for column in columns[:20])
        raise InvalidValue(f"A constraint names {check.shown(name)}, which is no column; there are {names}.")
    return match


def _cells(columns: Sequence[Cells], name: str, values: Any) -> NDArray[np.bool_]:
    """Which cells of a column hold the values that were said."""
    column = _named(columns, name)
    mask = np.zeros(column.size, bool)
    if column.bins and isinstance(values, tuple) and len(values) == 2:
        return _range(column, *values)
    for value in values if isinstance(values, (list, set, frozenset)) else [values]:
        place = column.place(value)
        if place < column.bins and not _single(column, place):
            raise InvalidValue(f"{name}: {check.shown(value)} lies in a bin with other values. Give it a cell of its own "
                               "(mass=…), or name a range of whole bins.")  # fmt: skip
        mask[place] = True
    return mask


def _range(column: Cells, low: Any, high: Any) -> NDArray[np.bool_]:
    least, most = (column.column.point(column.name, end) for end in (low, high))
    mask = np.zeros(column.size, bool)
    for place in range(column.bins):
        first, after = column.edges[place], column.edges[place + 1]
        last = after if column.column.type == "real" else column.previous(after)
        inside = least <= first and last <= most
        if not inside and not (
            last < least or most < first or (column.column.type == "real" and (last <= least or most <= first))
        ):
            raise InvalidValue(f"{column.name}: {low} to {high} cuts a bin ({column.labels()[place]}). Let it begin and end "
                               "with bins, or set the bins' edges in the schema.")  # fmt: skip
        mask[place] = inside
    for i, point in enumerate(column.values):
        mask[column.bins + i] = least <= point <= most
    return mask


def _single(column: Cells, place: int) -> bool:
    return column.column.type != "real" and column.previous(column.edges[place + 1]) == column.edges[place]
