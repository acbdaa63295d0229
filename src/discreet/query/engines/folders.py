"""Many parquet files as one table: a folder, or a pattern such as visits/*.parquet, with partitions such as year=2024.

Which files there are is settled when connecting. They must all have the columns of the first, by their footers: which of two
types a column has is then nobody's row to decide. Names of partitions are texts, until a schema declares a type.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from glob import glob, has_magic
from pathlib import Path
from typing import Any

from discreet.errors import InvalidValue

MOST_FILES = 100_000


def table_name(location: str | os.PathLike[str]) -> str:
    """What the table of a file, a folder or a pattern is called: by the file or by the folder."""
    path = Path(location)
    while has_magic(path.name) or "=" in path.name:
        path = path.parent
    return path.stem


def parquet_files(location: Any) -> list[Path] | None:
    """The parquet files of a folder or a pattern; None for what is neither."""
    path = Path(location)
    if not path.is_dir() and not has_magic(str(location)):
        return None
    pattern = str(path / "**" / "*.parquet") if path.is_dir() else str(location)
    files = sorted(Path(name).absolute() for name in glob(pattern, recursive=True) if Path(name).is_file())
    if not files or len(files) > MOST_FILES or any(file.suffix.lower() != ".parquet" for file in files):
        raise InvalidValue(
            f"{location} must name between one and {MOST_FILES:,} parquet files, and no others; it names {len(files)}."
        )
    _check_alike(files)
    return files


def partitions(file: Path) -> dict[str, str]:
    """The values that the folders of a file name, such as year=2024."""
    return dict(part.split("=", 1) for part in file.parts[:-1] if "=" in part)


def _check_alike(files: Sequence[Path]) -> None:
    import pyarrow.parquet as parquet

    first, known = parquet.read_schema(files[0]), list(partitions(files[0]))
    for file in files[1:]:
        other = parquet.read_schema(file)
        if not other.equals(first) or list(partitions(file)) != known:
            columns = {*first, *other} - ({*first} & {*other})
            told = ", ".join(sorted({column.name for column in columns})) or "the order of columns, or the folders"
            raise InvalidValue(f"{files[0].name} and {file.name} differ in {told}. Files of one table have the same columns of "
                               "the same types; connect the others as tables of their own.")  # fmt: skip


def state(path: Path) -> str:
    """What tells one writing of a file from the next."""
    status = path.stat()
    return f"{path.name}:{status.st_size}:{status.st_mtime_ns}"


@dataclass(frozen=True, slots=True)
class ParquetFiles:
    """The files of a table, and what they were when they were looked at."""

    paths: Sequence[Path]
    hive: bool
    states: Sequence[str]
    schemas: Sequence[Any]

    @classmethod
    def of(cls, paths: Sequence[Path], *, hive: bool) -> ParquetFiles:
        import pyarrow as pa
        import pyarrow.parquet as parquet

        states = [state(path) for path in paths]
        try:
            return cls(paths, hive, states, [parquet.read_schema(path) for path in paths])
        except pa.ArrowException as error:
            raise InvalidValue(f"{paths[0].name} is damaged. Write it again; its owner sees why as __cause__.") from error

    def changed(self) -> bool:
        return [state(path) for path in self.paths] != self.states
