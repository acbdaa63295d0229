"""Columns of a table as features for an estimator, encoded by public knowledge about them alone."""

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
        for name, fact in self.known.items():
            values = _listed(name, fact)
            if isinstance(values, str) or not isinstance(values, Sequence) or len(values) < (1 if _way(fact) == "bins" else 2):
                raise InvalidValue(
                    f"columns.{name} is a range, such as [0, 120], bin edges, such as [18, 40, 65], or two categories or "
                    f"more; got {check.shown(values)}."
                )
            if (
                _way(fact) != "categories"
                and _numbers(values)
                and not all(low < high for low, high in pairwise(map(float, values)))
            ):
                raise InvalidValue(f"The numbers of columns.{name} must rise; got {check.shown(values)}.")

    @property
    def norm(self) -> float:
        """No row is longer."""
        return math.sqrt(len(self.known))

    @property
    def names(self) -> list[str]:
        """The names of the features, in their order: age for a range, hours[0] for a bin, sex=f for a category."""
        result: list[str] = []
        for name, fact in self.known.items():
            way = next(iter(fact), "") if isinstance(fact, Mapping) else ""
            values: Sequence[Any] = fact[way] if isinstance(fact, Mapping) else fact
            if way == "categories" or not _numbers(values):
                result += [f"{name}={value}" for value in values]
            elif len(values) == 2 and way != "bins":
                result.append(name)
            else:
                result += [f"{name}[{place}]" for place in range(len(values) + 1)]
        return result

    def __call__(self, table: Any) -> Floats:
        cells = columns(table, list(self.known), empty=True)
        return np.hstack([_feature(cells[name], values) for name, values in self.known.items()])


def _numbers(values: Sequence[Any]) -> bool:
    return all(isinstance(value, (int, float)) and not isinstance(value, bool) for value in values)


def _way(fact: Any) -> str:
    """What a mapping says that its values are: categories or bins; "" of a plain list."""
    return next(iter(fact), "") if isinstance(fact, Mapping) else ""


def _listed(name: str, fact: Any) -> Any:
    if not isinstance(fact, Mapping):
        return fact
    if len(fact) != 1 or _way(fact) not in ("categories", "bins"):
        raise InvalidValue(f"columns.{name} is {{'categories': […]}} or {{'bins': […]}} or a list; got {check.shown(fact)}.")
    values = fact[_way(fact)]
    if not isinstance(values, Sequence) or (_way(fact) == "bins" and not _numbers(values)):
        raise InvalidValue(f"columns.{name} must list values, numbers of bins; got {check.shown(fact)}.")
    return values


def _category(value: Any, as_number: bool) -> Any:
    return number(value) if as_number else str(value)


def _feature(column: Column, fact: Any) -> Floats:
    values, way = _listed("", fact), _way(fact)
    if way == "categories" or not _numbers(values):
        as_number = _numbers(values)  # 1 and 1.0 are one category
        places = {_category(value, as_number): place for place, value in enumerate(values)}
        return one_hot([places.get(_category(value, as_number), -1) for value in column.tolist()], len(values))
    numbers = np.array([number(item) for item in column.tolist()])
    present = ~np.isnan(numbers)
    if len(values) == 2 and not way:
        low, high = map(float, values)
        return np.where(present, (np.clip(numbers, low, high) - low) / (high - low), 0.0)[:, None]
    return one_hot(np.where(present, np.digitize(np.where(present, numbers, 0.0), values), -1), len(values) + 1)
