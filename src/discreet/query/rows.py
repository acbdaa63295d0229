"""Rows of arrays and data frames, and how much each counts: so that no unit has more than its share."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from numbers import Real
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from discreet.core import Unit
from discreet.errors import InvalidValue

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

WHOLE = 1 << 20  # the weight of a row of a unit that keeps to its bound; rows of the others weigh less
MOST_ROWS = 1 << 16


class Rows(NamedTuple):
    """What a statistic looks at: values, one per row (or a table of columns), and whose row each is."""

    values: Any
    ids: Any = None


@dataclass(frozen=True, slots=True)
class Contribution:
    """How much each row weighs, and how far one unit moves the weights of all rows together.

    A record weighs 1. Of a user with n rows and a bound of `rows`, each row weighs floor(2^20 min(1, rows / n)) parts of 2^20:
    all rows are looked at and none is drawn by lot, and together they weigh at most `rows`.

    >>> from discreet.core import user
    >>> Contribution(user("id", rows=2)).weights(4, ["ann", "bob", "bob", "bob"]).tolist()
    [1048576, 699050, 699050, 699050]
    """

    unit: Unit

    def __post_init__(self) -> None:
        if not isinstance(self.unit, Unit):
            raise InvalidValue(f"unit must be a Unit, such as discreet.record(); got {type(self.unit).__name__}.")
        if self.unit.relation == "zero_out":
            raise InvalidValue("Statistics protect units that are added, removed or replaced; this one is blanked out.")
        if self.unit.rows is None or self.unit.rows > MOST_ROWS:
            raise InvalidValue(
                f"The unit must own at most {MOST_ROWS} rows, or it would move a sum without bound; got {self.unit}. "
                "Set rows=... on the unit: what people have beyond it is weighed down, not refused."
            )

    @property
    def owned(self) -> bool:
        """Whether a row belongs to somebody who may have others."""
        return self.unit.rows != 1 or self.unit.key is not None

    @property
    def one(self) -> int:
        """The weight of a full row."""
        return WHOLE if self.owned else 1

    @property
    def sensitivity(self) -> int:
        """The most by which one unit moves the weights in l1: a replaced one takes its weights away and brings others."""
        assert self.unit.rows is not None
        return self.one * self.unit.rows * (2 if self.unit.relation == "replace" else 1)

    def weights(self, count: int, ids: Any) -> Ints:
        """One weight per row; a row that is nobody's (None or NaN for an id) weighs nothing."""
        if not self.owned:
            if ids is not None:
                raise InvalidValue("ids were given, and the unit is a record. Say unit=discreet.user('id', rows=...).")
            return np.ones(count, np.int64)
        if ids is None:
            raise InvalidValue(f"The unit is {self.unit}: pass ids=..., one per row, so that it is known whose row each is.")
        owner = identities(ids)
        if len(owner) != count:
            raise InvalidValue("ids must have one entry per row; they are not as many as the values.")
        if not count:
            return np.zeros(0, np.int64)
        rows = np.bincount(owner + 1)[owner + 1]
        assert self.unit.rows is not None
        return np.where(owner < 0, 0, np.minimum(WHOLE, WHOLE * self.unit.rows // rows))


def identities(ids: Any) -> Ints:
    """A number per row, the same for the same id, -1 for none. Ids are the same if Python says that they are equal."""
    array = column(ids)
    if array.dtype.kind in "iuUS":
        return np.unique(array, return_inverse=True)[1].astype(np.int64)
    known: dict[Any, int] = {}
    try:
        numbers = [-1 if missing(item) else known.setdefault(item, len(known)) for item in array.tolist()]
    except TypeError:
        raise InvalidValue("ids must be numbers, text or other hashable values.") from None
    return np.array(numbers, np.int64)


def numbers(values: Any) -> Floats:
    """A column of numbers as float64; what is not a number is NaN. What is refused depends on the column's type alone."""
    array = column(values)
    if array.dtype.kind in "iufb":
        return array.astype(np.float64)
    if array.dtype == object:
        return np.array([_number(item) for item in array.tolist()], np.float64)
    raise InvalidValue(f"values must be a column of numbers; got {array.dtype}.")


def codes(values: Any, categories: Sequence[Any]) -> Ints:
    """The place of each value among the public categories, -1 where it is none of them."""
    places = {category: i for i, category in enumerate(categories)}
    array = column(values)
    if array.dtype.kind in "iufbUS":
        different, which = np.unique(array, return_inverse=True)
        return np.array([places.get(item, -1) for item in different.tolist()], np.int64)[which]
    return np.array([_place(places, item) for item in array.tolist()], np.int64)


def column(values: Any) -> NDArray[Any]:
    """A one-dimensional array of what was given: a list, an array, or a column of a data frame. Lists are not converted."""
    if isinstance(values, np.ma.MaskedArray):
        values = values.tolist()
    if hasattr(values, "to_pylist"):  # Arrow
        values = values.to_pylist()
    if hasattr(values, "to_numpy"):  # pandas, polars
        values = values.to_numpy()
    if isinstance(values, (list, tuple, range)):
        array = np.empty(len(values), object)
        array[:] = values if not isinstance(values, tuple) else list(values)
        return array
    if not isinstance(values, np.ndarray) or values.ndim != 1:
        raise InvalidValue(
            f"A column must be a list, an array of one dimension or a data frame's; got {type(values).__name__}."
        )
    return values


def clipped_table(
    rows: Rows, contribution: Contribution, limits: Sequence[tuple[Fraction, Fraction]]
) -> tuple[list[Floats], Ints]:
    """Columns within their bounds, and weights: 0 for a row with a number missing, whose values then do not matter."""
    values = rows.values
    if isinstance(values, np.ndarray) and values.ndim == 2:
        values = list(values.T)
    elif hasattr(values, "columns"):  # a data frame
        values = [values[name] for name in values.columns]
    table = [numbers(item) for item in values]
    if len(table) != len(limits) or len({len(item) for item in table}) != 1:
        raise InvalidValue(f"values must have {len(limits)} columns of one length, one for each pair of bounds; they have not.")
    weights = contribution.weights(len(table[0]), rows.ids)
    known = ~np.any([np.isnan(item) for item in table], axis=0)
    ends = [(float(lower), float(upper)) for lower, upper in limits]
    return [np.clip(np.where(known, item, end[0]), *end) for item, end in zip(table, ends)], np.where(known, weights, 0)


def weigh(cell: Ints, weights: Ints, cells: int) -> Ints:
    """The weight in each cell, in whole numbers."""
    high, low = (np.bincount(cell, weights=part, minlength=cells) for part in (weights >> 10, weights & 1023))
    return high.astype(np.int64) * 1024 + low.astype(np.int64)


def add(numbers: Ints) -> int:
    """The exact sum of whole numbers below 2^52."""
    return int((numbers >> 26).sum()) * (1 << 26) + int((numbers & ((1 << 26) - 1)).sum())  # no overflow below 2^36 rows


def missing(item: Any) -> bool:
    """None, NaN and data frames' own names for nothing."""
    return item is None or type(item).__name__ in ("NAType", "NaTType") or (isinstance(item, float) and math.isnan(item))


def public(name: str, values: Iterable[Any]) -> list[Any]:
    """Public categories or candidates: different from one another, at least one."""
    try:
        items = list(values)
        different = len(set(items)) == len(items)
    except TypeError:
        raise InvalidValue(f"{name} must be a list of hashable values; got {type(values).__name__}.") from None
    if isinstance(values, (str, bytes)) or not items or not different:
        raise InvalidValue(f"{name} must be a list of at least one value, all different, that was not read from the data.")
    return items


def _number(item: Any) -> float:
    if not isinstance(item, (Real, Decimal)):
        return math.nan
    try:
        return float(item)
    except OverflowError:
        return math.inf if item > 0 else -math.inf  # type: ignore[operator]
    except (TypeError, ValueError):
        return math.nan


def _place(places: dict[Any, int], item: Any) -> int:
    try:
        return places.get(item, -1)
    except TypeError:
        return -1
