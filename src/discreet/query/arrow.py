"""Columns of an answer as Arrow arrays, built from buffers.

`pyarrow.array` would load pandas, wherever that is installed, to see whether it was given some of its objects: more memory than
the engine takes for most tables.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date, datetime, timedelta
from typing import TYPE_CHECKING, Any

import numpy as np

from discreet.query.operations import Kind

if TYPE_CHECKING:
    import pyarrow as pa

KINDS = (Kind.INTEGER, Kind.NUMBER, Kind.TEXT, Kind.BOOLEAN, Kind.DATE, Kind.TIMESTAMP)


def numbers(values: Any) -> pa.Array:
    """Floats without missing ones."""
    import pyarrow as pa

    floats = np.ascontiguousarray(values, np.float64) + 0.0  # one zero
    return pa.Array.from_buffers(pa.float64(), len(floats), [None, pa.py_buffer(floats)])


def known(values: Any) -> pa.Array:
    """Floats, missing where they are NaN: an expression that has no value there."""
    floats = np.asarray(values, np.float64)
    if not np.isnan(floats).any():
        return numbers(floats)
    return column([None if np.isnan(value) else value for value in floats.tolist()], Kind.NUMBER)


def column(values: Sequence[Any], kind: str) -> pa.Array:
    """Values of a kind, None where one is missing."""
    import pyarrow as pa

    kinds = dict(zip(KINDS, (pa.int64(), pa.float64(), pa.string(), pa.bool_(), pa.date32(), pa.timestamp("us"))))
    known = np.array([value is not None for value in values], bool)
    buffers = [None if known.all() else _bits(known)]
    if kind == Kind.TEXT:
        parts = [b"" if value is None else value.encode() for value in values]
        ends = np.cumsum([0, *map(len, parts)])
        if ends[-1] >= 1 << 31:
            return pa.array(values, pa.large_string())
        buffers += [pa.py_buffer(ends.astype(np.int32)), pa.py_buffer(b"".join(parts))]
    elif kind == Kind.BOOLEAN:
        buffers.append(_bits(np.array([bool(value) for value in values], bool)))
    else:
        encode, dtype = _NUMBERS[kind]
        buffers.append(pa.py_buffer(np.array([0 if value is None else encode(value) for value in values], dtype)))
    return pa.Array.from_buffers(kinds[kind], len(values), buffers)


def constant(value: Any, count: int) -> pa.Array:
    """One value, `count` times."""
    import pyarrow as pa

    for types, kind in ((bool, Kind.BOOLEAN), (int, Kind.INTEGER), (float, Kind.NUMBER), (str, Kind.TEXT)):
        if isinstance(value, types):
            return column([value] * count, kind)
    return pa.nulls(count) if value is None else pa.array([value] * count)


def _bits(flags: Any) -> pa.Buffer:
    import pyarrow as pa

    return pa.py_buffer(np.packbits(flags, bitorder="little"))


_NUMBERS: dict[str, tuple[Any, Any]] = {
    Kind.INTEGER: (int, np.int64),
    Kind.NUMBER: (lambda value: float(value) + 0.0, np.float64),
    Kind.DATE: (lambda moment: (moment - date(1970, 1, 1)).days, np.int32),
    Kind.TIMESTAMP: (
        lambda moment: (moment.replace(tzinfo=None) - datetime(1970, 1, 1)) // timedelta(microseconds=1),
        np.int64,
    ),
}
