"""Private rows as numbers, converted cell by cell. Refusals depend on types and shapes alone.

An error that depends on a row's content reveals that content without a charge (docs/sharp-edges.md). So a cell that is missing
or not a number counts as the allowed number nearest to 0, one beyond its bounds as the nearest bound, one beyond HUGE as
HUGE, and a row without a usable label or target contributes nothing: each changes its own contribution only.
"""

from __future__ import annotations

import logging
import math
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import check_consistent_length, column_or_1d, validate_data

from discreet.columns import missing
from discreet.errors import InvalidValue
from discreet.learn.estimators.exact import MOST_ROWS, Floats

log = logging.getLogger("discreet.learn")

HUGE = 1e100  # what is beyond it counts as it, so that no square overflows
CELLS: dict[str, Any] = {"dtype": None, "ensure_all_finite": False, "ensure_min_samples": 0}


def features(estimator: Any, X: Any, *, reset: bool = True) -> Floats:
    """The features of rows as numbers, [rows, columns], NaN where a cell is missing or no number."""
    cells = validate_data(estimator, X, reset=reset, **CELLS)
    return _read(cells)


def with_targets(estimator: Any, X: Any, y: Any) -> tuple[Floats, NDArray[Any]]:
    """Features as above and the column that was given beside them, as it is."""
    cells = (CELLS, {**CELLS, "ensure_2d": False})
    values, targets = validate_data(estimator, X, _one_by_one(y), validate_separately=cells)
    targets = column_or_1d(targets, warn=True)
    check_consistent_length(values, targets)
    return _read(values), targets


def _one_by_one(y: Any) -> Any:
    """A list keeps the type of every value: an array of it would turn all of them to text if one is."""
    if not isinstance(y, (list, tuple)) or any(isinstance(value, (list, tuple, np.ndarray)) for value in y):
        return y
    out = np.empty(len(y), object)
    out[:] = y
    return out


def _read(cells: NDArray[Any]) -> Floats:
    if len(cells) > MOST_ROWS:
        raise InvalidValue(f"A fit takes at most {MOST_ROWS:,} rows, for which its arithmetic is proven. Nothing was spent.")
    values = numbers(cells)
    if np.isnan(values).any():
        log.warning("some cells are missing or no numbers; they count as 0, or as the bound nearest to it")
    return values


def numbers(cells: NDArray[Any]) -> Floats:
    """Every cell as a number, by itself; NaN where it is none.

    >>> numbers(np.array([1, "2.5", "x", None, 10**400], object)).tolist()
    [1.0, 2.5, nan, nan, nan]
    """
    if cells.dtype.kind in "biuf":
        return np.clip(np.asarray(cells, np.float64), -HUGE, HUGE)
    if cells.dtype.kind != "O":
        raise InvalidValue(
            f"Rows must be numbers; got columns of type {cells.dtype}. Encode categories first, such as by OneHotEncoder."
        )
    values = np.array([number(cell) for cell in cells.ravel()], np.float64).reshape(cells.shape)
    return np.clip(values, -HUGE, HUGE)


def number(item: Any) -> float:
    """One cell as a number; NaN where it is missing or none."""
    try:
        return math.nan if missing(item) else float(item)
    except Exception:  # whatever a cell is that cannot be a number
        return math.nan


def filled(values: Floats, low: Any = 0.0, high: Any = 0.0) -> Floats:
    """NaN as the number nearest to 0 between the bounds, everything else as it is."""
    return np.where(np.isnan(values), np.clip(0.0, low, high), values)


def bounded(values: Floats, low: Any, high: Any) -> Floats:
    """The same, and what is beyond a bound is that bound."""
    return np.asarray(np.clip(filled(values, low, high), low, high))


def places(column: NDArray[Any], known: NDArray[Any]) -> NDArray[np.int64]:
    """The place of every value among `known`, and -1 for what is none of them.

    >>> places(np.array(["b", None, 3, "a"], object), np.array(["a", "b"])).tolist()
    [1, -1, -1, 0]
    """
    if column.dtype.kind == "O":
        table = {value: place for place, value in enumerate(known.tolist())}
        return np.array([_place(value, table) for value in column], np.int64)
    result = np.full(len(column), -1, np.int64)
    for place, value in enumerate(known):
        result[np.broadcast_to(np.asarray(column == value), result.shape)] = place
    return result


def _place(value: Any, table: dict[Any, int]) -> int:
    try:
        return table.get(value, -1)
    except Exception:  # a value that cannot be compared is none of those known
        return -1


def there(column: NDArray[Any]) -> NDArray[np.bool_]:
    """Which values of a column are not missing."""
    if column.dtype.kind == "f":
        return ~np.isnan(column)
    if column.dtype.kind == "O":
        return np.array([not missing(value) for value in column], bool)
    return np.ones(len(column), bool)
