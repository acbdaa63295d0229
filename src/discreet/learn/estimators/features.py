"""Columns of a table as features for an estimator, by what is publicly known of them and nothing else."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from discreet.columns import Column, columns
from discreet.core import check
from discreet.errors import InvalidValue
from discreet.learn.estimators.exact import Floats
from discreet.learn.estimators.preprocessing import one_hot
from discreet.learn.estimators.rows import number


@dataclass(frozen=True)
class Features:
    """What is known of each column: two numbers are its range, three or more its bin edges, words its categories; a mapping
    {"categories": […]} or {"bins": […]} says which of them numbers are.

    A number is clamped to its range and scaled to [0, 1], or becomes a one in the column of its bin; a category becomes a one
    in its column. What is missing or unknown becomes zeros. So every column adds at most 1 to the squared length of a row.

    >>> known = Features({"age": [0, 100], "hours": [20, 35, 40], "sex": ["f", "m"]})
    >>> known({"age": [50], "hours": [38], "sex": ["m"]}).tolist(), round(known.norm, 3)
    ([[0.5, 0.0, 0.0, 1.0, 0.0, 0.0, 1.0]], 1.732)
    """

    known: Mapping[str, Sequence[Any] | Mapping[str, Sequence[Any]]]

    def __post_init__(self) -> None:
        if not self.known:
            raise InvalidValue("columns names no column to learn from; give at least one, such as age = [0, 120].")
        for name, said in self.known.items():
            values = _listed(name, said)
            if isinstance(values, str) or not isinstance(values, Sequence) or len(values) < (1 if _way(said) == "bins" else 2):
                raise InvalidValue(
                    f"columns.{name} is a range, such as [0, 120], bin edges, such as [18, 40, 65], or two categories or "
                    f"more; got {check.shown(values)}."
                )
            if (
                _way(said) != "categories"
                and _numbers(values)
                and not all(low < high for low, high in pairwise(map(float, values)))
            ):
                raise InvalidValue(f"The numbers of columns.{name} must rise; got {check.shown(values)}.")

    @property
    def norm(self) -> float:
        """No row is longer."""
        return math.sqrt(len(self.known))

    def __call__(self, table: Any) -> Floats:
        found = columns(table, list(self.known), empty=True)
        return np.hstack([_feature(found[name], values) for name, values in self.known.items()])


def _numbers(values: Sequence[Any]) -> bool:
    return all(isinstance(value, (int, float)) and not isinstance(value, bool) for value in values)


def _way(said: Any) -> str:
    """What a mapping says that its values are: categories or bins; "" of a plain list."""
    return next(iter(said), "") if isinstance(said, Mapping) else ""


def _listed(name: str, said: Any) -> Any:
    if not isinstance(said, Mapping):
        return said
    if len(said) != 1 or _way(said) not in ("categories", "bins"):
        raise InvalidValue(f"columns.{name} is {{'categories': […]}} or {{'bins': […]}} or a list; got {check.shown(said)}.")
    values = said[_way(said)]
    if not isinstance(values, Sequence) or (_way(said) == "bins" and not _numbers(values)):
        raise InvalidValue(f"columns.{name} must list values, numbers of bins; got {check.shown(said)}.")
    return values


def _category(value: Any, as_number: bool) -> Any:
    return number(value) if as_number else str(value)


def _feature(column: Column, said: Any) -> Floats:
    values, way = _listed("", said), _way(said)
    if way == "categories" or not _numbers(values):
        as_number = _numbers(values)  # 1 and 1.0 are one category
        places = {_category(value, as_number): place for place, value in enumerate(values)}
        return one_hot([places.get(_category(value, as_number), -1) for value in column.tolist()], len(values))
    numbers = np.array([number(item) for item in column.tolist()])
    there = ~np.isnan(numbers)
    if len(values) == 2 and not way:
        low, high = map(float, values)
        return np.where(there, (np.clip(numbers, low, high) - low) / (high - low), 0.0)[:, None]
    return one_hot(np.where(there, np.digitize(np.where(there, numbers, 0.0), values), -1), len(values) + 1)
