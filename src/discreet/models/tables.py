"""Tables from users' files: parquet, or CSV (plain, or compressed as .gz)."""

from __future__ import annotations

import csv
import gzip
from pathlib import Path
from typing import Any

from discreet.errors import InvalidValue, MissingExtra


def read_table(path: str) -> dict[str, Any]:
    """The columns of a file, by name; a CSV column of numbers becomes numbers, an empty cell is missing."""
    file = Path(path)
    if not file.is_file():
        raise InvalidValue(f"There is no file {path!r}; give the name of a CSV or parquet file.")
    table = _parquet(file) if file.name.endswith((".parquet", ".pq")) else _csv(file)
    if not table or not len(next(iter(table.values()))):
        raise InvalidValue(f"{path!r} holds no rows; it must have a line of names and at least one more.")
    return table


def _parquet(file: Path) -> dict[str, Any]:
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
    return columns(table) if table.num_rows else {}


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
