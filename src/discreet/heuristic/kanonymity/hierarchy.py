"""Generalisation of values: numbers become ranges, categories become groups, along a tree where one is given."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from discreet.columns import Column, codes, missing, numeric
from discreet.core import check
from discreet.errors import InvalidValue

Floats = NDArray[np.float64]
ANYTHING = "*"


@dataclass(frozen=True, slots=True)
class Node:
    """A group of categories: the leaves numbered `first` to `last`."""

    label: str
    first: int
    last: int
    children: tuple[Node, ...] = ()

    def covering(self, low: int, high: int) -> Node:
        """The smallest group that holds the leaves from low to high."""
        for child in self.children:
            if child.first <= low and high <= child.last:
                return child.covering(low, high)
        return self


class Hierarchy:
    """A tree of categories, as nested dicts with lists of values at the ends; the outermost dict is "anything".

    >>> tree = Hierarchy({"married": ["civil", "church"], "alone": ["never", "widowed"]})
    >>> tree.root.covering(0, 1).label, tree.root.covering(1, 2).label
    ('married', '*')
    """

    def __init__(self, tree: Mapping[str, Any] | Sequence[Any]) -> None:
        self.values: list[Any] = []
        self.root = self._grown(ANYTHING, tree)
        if len(set(map(str, self.values))) != len(self.values) or not self.values:
            raise InvalidValue("A hierarchy must hold each value once, and at least one.")

    def _grown(self, label: str, tree: Any) -> Node:
        first = len(self.values)
        if isinstance(tree, Mapping):
            children = tuple(self._grown(str(name), part) for name, part in tree.items())
        elif isinstance(tree, Sequence) and not isinstance(tree, (str, bytes)):
            children = tuple(self._leaf(value) for value in tree)
        else:
            raise InvalidValue(f"A hierarchy is made of dicts with lists at the ends; got {check.shown(tree)}.")
        return Node(label, first, len(self.values) - 1, children)

    def _leaf(self, value: Any) -> Node:
        self.values.append(value)
        return Node(str(value), len(self.values) - 1, len(self.values) - 1)


class Scale:
    """One quasi-identifier as numbers that can be cut: the values themselves, or the places of categories in their tree."""

    def __init__(self, name: str, column: Column, hierarchy: Hierarchy | None) -> None:
        self.name = name
        self.tree = hierarchy.root if hierarchy is not None else None
        self.values: list[Any] | None = None
        if hierarchy is not None:
            self.values = hierarchy.values
        elif not numeric(column):
            self.values = codes(column)[1]
        elif not np.isfinite(column).all():
            raise InvalidValue(f"Column {name!r} has numbers that are missing or infinite; fill them, or make it text.")
        self._place = {value: place for place, value in enumerate(self.values)} if self.values is not None else {}
        self.numbers = self.encode(column)
        if self.values is not None and (self.numbers < 0).any():
            raise InvalidValue(f"Column {name!r} has values that its hierarchy does not; add them to it.")
        self.low, self.high = float(self.numbers.min()), float(self.numbers.max())
        if self.values is not None:
            self.low, self.high = 0.0, len(self.values) - 1.0

    def encode(self, column: Column) -> Floats:
        """Numbers as they are; categories as their places, -1 for one that was never seen."""
        if self.values is None:
            return np.asarray(column, dtype=np.float64)
        return np.array([self._place.get(None if missing(item) else item, -1) for item in column.tolist()], dtype=np.float64)

    def label(self, low: float, high: float) -> str:
        """What is published for the values from low to high."""
        if self.values is None:
            return _number(low) if low == high else f"{_number(low)}..{_number(high)}"
        first, last = int(low), int(high)
        if self.tree is not None:
            return self.tree.covering(first, last).label
        if last - first + 1 == len(self.values) > 1:
            return ANYTHING
        names = ["(missing)" if value is None else str(value) for value in self.values[first : last + 1]]
        return names[0] if len(names) == 1 else "{" + ", ".join(names) + "}"

    def box(self, low: float, high: float) -> tuple[float, float]:
        """What the label admits: the range itself, or all of the smallest group."""
        if self.tree is None:
            return low, high
        node = self.tree.covering(int(low), int(high))
        return float(node.first), float(node.last)

    def penalty(self, low: float, high: float) -> float:
        """How inexact the label is, from 0 (one value) to 1 (all): the normalised certainty penalty (Xu et al. 2006)."""
        low, high = self.box(low, high)
        if low == high:
            return 0.0
        return (high - low) / (self.high - self.low) if self.values is None else (high - low + 1) / len(self.values)


def _number(value: float) -> str:
    return str(int(value)) if value == int(value) else repr(float(value))
