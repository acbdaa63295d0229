"""The columns of a table, whatever holds it: a pandas or polars frame, an Arrow table, a dict of lists.

Those packages are never imported here; tables are recognised by their methods.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from discreet.core import check
from discreet.errors import InvalidValue

Column = NDArray[Any]
Columns = dict[str, Column]
Codes = NDArray[np.int64]


def columns(table: Any, names: Sequence[str] | None = None, *, empty: bool = False) -> Columns:
    """The named columns (all of them by default) as arrays of one length, at least one row.

    With `empty` there may be no row: where rows are private, an error would reveal that there are none.

    >>> columns({"age": [34, 51], "sex": ["f", "m"]}, ["age"])["age"].tolist()
    [34, 51]
    """
    present = _names(table)
    wanted = present if names is None else [names] if isinstance(names, str) else list(names)
    lacking = [name for name in wanted if name not in present]
    if lacking:
        raise InvalidValue(f"The table has no column {', '.join(map(check.shown, lacking))}; it has {_listed(present)}.")
    if not wanted:
        raise InvalidValue("No column was named, or the table has none; name at least one.")
    arrays = {name: _array(name, table) for name in wanted}
    lengths = {len(array) for array in arrays.values()}
    if len(lengths) > 1:
        raise InvalidValue(f"The columns of a table must be equally long; they have {sorted(lengths)} rows.")
    if lengths == {0} and not empty:
        raise InvalidValue("The table is empty; it must have at least one row.")
    return arrays


def like(table: Any, arrays: Mapping[str, Sequence[Any] | Column]) -> Any:
    """New columns in the kind of table that was given: frame for frame, Arrow for Arrow, dict for dict."""
    if isinstance(table, Mapping):
        return {name: np.asarray(column) for name, column in arrays.items()}
    plain = {name: np.asarray(column).tolist() for name, column in arrays.items()}
    return type(table).from_pydict(plain) if hasattr(table, "column_names") else type(table)(plain)


def codes(column: Column) -> tuple[Codes, list[Any]]:
    """Each row's value as a small whole number, and the values in order of those numbers; missing values are one value, None.

    >>> codes(np.array(["b", None, "a", "b"], dtype=object))[1]
    ['a', 'b', None]
    """
    if column.dtype.kind in "biuSU" or (column.dtype.kind == "f" and not np.isnan(column).any()):
        values, index = np.unique(column, return_inverse=True)
        return index.astype(np.int64).reshape(-1), values.tolist()
    numbers: dict[Any, int] = {}
    index = np.fromiter(
        (numbers.setdefault(None if missing(item) else item, len(numbers)) for item in column.tolist()), np.int64
    )
    distinct = list(numbers)
    order = sorted(range(len(distinct)), key=lambda place: _rank(distinct[place]))
    new = np.empty(len(distinct), dtype=np.int64)
    new[order] = np.arange(len(distinct))
    return new[index], [distinct[place] for place in order]


def classes(arrays: Sequence[Column]) -> tuple[Codes, int]:
    """Rows that agree in every column share a number, from 0; also how many such classes there are.

    >>> classes([np.array([1, 1, 2]), np.array(["x", "x", "x"])])[0].tolist()
    [0, 0, 1]
    """
    label = np.zeros(len(arrays[0]), dtype=np.int64)
    count = 1
    for array in arrays:
        column_codes, values = codes(array)
        # renumbering after each column keeps the product below the range of int64
        values_found, label = np.unique(label * len(values) + column_codes, return_inverse=True)
        label, count = label.reshape(-1), len(values_found)
    return label, count


def numeric(column: Column) -> bool:
    """Whether a column holds numbers only: what has a range, and not just a set of values."""
    return column.dtype.kind in "iuf"


def missing(value: Any) -> bool:
    """Whether a cell is missing: None, NaN, or a data frame's own missing value."""
    if value is None:
        return True
    try:
        return bool(value != value)
    except (TypeError, ValueError):  # an NA that is neither true nor false
        return True


def _rank(value: Any) -> tuple[bool, str, Any]:
    """An order over values of mixed types: missing last, numbers together, the rest by type and text."""
    if value is None:
        return True, "", 0
    if isinstance(value, (int, float)):
        return False, "", value
    return False, type(value).__name__, str(value)


def _names(table: Any) -> list[str]:
    if isinstance(table, Mapping):
        return list(table)
    names = getattr(table, "column_names", None)
    if names is None:
        names = getattr(table, "columns", None)
    if names is None or not hasattr(table, "__getitem__"):
        raise InvalidValue(
            f"A table is a data frame, an Arrow table or a dict of columns; got {type(table).__name__}. "
            "Turn it into one of these first."
        )
    return [str(name) for name in names]


def _array(name: str, table: Any) -> Column:
    column = table[name]
    if hasattr(column, "to_numpy") and hasattr(column, "chunks"):
        column = column.to_numpy()
    elif isinstance(column, (list, tuple)):
        column = _listed_values(column)
    array = np.asarray(column)
    if array.ndim != 1:
        raise InvalidValue(f"Column {check.shown(name)} must be flat; it has {array.ndim} dimensions.")
    return _listed_values(array.tolist()) if array.dtype == object else array


def _listed_values(values: Sequence[Any]) -> Column:
    """Numbers as a numeric array, other values as objects: numpy would turn a mixed list into text."""
    if set(map(type, values)) in ({int}, {float}, {int, float}, {bool}):
        try:
            return np.asarray(values)
        except OverflowError:
            pass
    return np.fromiter(values, dtype=object, count=len(values))  # each as it is, lists too


def _listed(names: Sequence[str], most: int = 12) -> str:
    text = ", ".join(names[:most])
    return f"{text} and {len(names) - most} more" if len(names) > most else text or "none"
