"""Tables from users' files: parquet, or CSV (plain, or compressed as .gz)."""

from __future__ import annotations

import csv
import gzip
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from discreet.core import lines
from discreet.errors import InvalidValue, MissingExtra

PARQUET = (".parquet", ".pq")


def read_table(path: str) -> dict[str, Any]:
    """The columns of a file, by name; a CSV column of numbers becomes numbers, an empty cell is missing.

    Types are read off the rows: for tables that are attacked or asked about. A private release is made from `read_private`.
    """
    file = _existing(path)
    return _filled(path, _parquet(file) if file.name.endswith(PARQUET) else _csv(file))


def read_private(path: str, names: Sequence[str]) -> dict[str, Any]:
    """The named columns of private rows. Each row is read by itself, so that no other row's values change what it holds.

    Cells of a CSV file stay texts, None where they are empty or not UTF-8; one line is one record, and a line with open quotes
    or another number of cells than the first is left out. Parquet has types of its own.
    """
    file = _existing(path)
    return _filled(path, _parquet(file, names) if file.name.endswith(PARQUET) else _texts(file, names))


def _existing(path: str) -> Path:
    file = Path(path)
    if not file.is_file():
        raise InvalidValue(f"There is no file {path!r}; give the name of a CSV or parquet file.")
    return file


def _filled(path: str, table: dict[str, Any]) -> dict[str, Any]:
    if not table or not len(next(iter(table.values()))):
        raise InvalidValue(f"{path!r} holds no rows; it must have a line of names and at least one more.")
    return table


def _texts(file: Path, names: Sequence[str]) -> dict[str, Any]:
    import numpy as np

    try:
        data = gzip.decompress(file.read_bytes()) if file.name.endswith(".gz") else file.read_bytes()
    except (EOFError, OSError, zlib.error):
        raise InvalidValue(f"{str(file)!r} cannot be read; save it as CSV in UTF-8, or as parquet.") from None
    header, body = lines.split_header(data, ",")
    header = [name.strip() for name in header]
    lines.check_names(file.name, header, names)
    rows = [
        row for row in (lines.cells(line, ",") for line in lines.records(body, ",", len(header))) if len(row) == len(header)
    ]
    places = {name: header.index(name) for name in names}
    return {name: np.array([row[place] for row in rows], dtype=object) for name, place in places.items()}


def _parquet(file: Path, names: Sequence[str] | None = None) -> dict[str, Any]:
    try:
        from pyarrow import ArrowException
        from pyarrow.parquet import read_table as read
    except ImportError:
        raise MissingExtra("pyarrow", "sql", "Reading parquet files") from None
    from discreet.columns import columns

    try:
        table = read(file)
    except (ArrowException, OSError) as error:
        raise InvalidValue(f"{str(file)!r} cannot be read as parquet: {str(error)[:200]}") from None
    if names is None or not table.num_rows:
        return columns(table) if table.num_rows else {}
    cells = columns(table, names)
    return {name: _whole(table.column(name), column) for name, column in cells.items()}


def _whole(stored: Any, column: Any) -> Any:
    """The column, with whole numbers kept whole where some are missing: numpy would make all of them floats."""
    import numpy as np
    from pyarrow import types

    if not (types.is_integer(stored.type) and stored.null_count):
        return column
    return np.array(stored.to_pylist(), dtype=object)


def _csv(file: Path) -> dict[str, Any]:
    opened = gzip.open if file.name.endswith(".gz") else open
    try:
        with opened(file, "rt", encoding="utf-8-sig", newline="") as lines:
            rows = [row for row in csv.reader(lines) if row]
    except (UnicodeDecodeError, csv.Error, EOFError, gzip.BadGzipFile):
        raise InvalidValue(f"{str(file)!r} is not CSV in UTF-8; save it as such, or as parquet.") from None
    if not rows:
        return {}
    names, body = [name.strip() for name in rows[0]], rows[1:]
    if len(set(names)) != len(names):
        raise InvalidValue(f"{str(file)!r} names a column twice in its first line; give each its own name.")
    uneven = [number for number, row in enumerate(body, start=2) if len(row) != len(names)]
    if uneven:
        raise InvalidValue(
            f"{str(file)!r} has {len(names)} columns; {len(uneven)} of its lines have another number, first line {uneven[0]}."
        )
    return {name: _typed([row[place].strip() for row in body]) for place, name in enumerate(names)}


def _typed(cells: list[str]) -> Any:
    """A column as whole numbers, as numbers, or as text with None for what is empty."""
    import numpy as np

    for kind in (np.int64, np.float64):
        try:
            numbers = np.array(cells, dtype=np.str_).astype(kind)
        except (ValueError, OverflowError):
            continue
        if np.isfinite(numbers).all() and not any(cell.startswith("0") and cell[1:].isdigit() for cell in cells):
            return numbers  # a code such as 02139 keeps its zero, as text
    return np.array([cell or None for cell in cells], dtype=object)
