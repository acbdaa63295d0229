"""Data frames and text files as Arrow tables, when they are connected: which type a column has is declared or the frame's own.

No row decides about a type, and a value that does not fit is NULL in its own row: a question could not tell otherwise
whether somebody's odd value is there.
"""

from __future__ import annotations

import datetime
import decimal
import json
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from discreet.core import lines
from discreet.errors import InvalidValue
from discreet.query.engines.stored import Span

if TYPE_CHECKING:
    import pyarrow as pa

DELIMITERS = {".csv": ",", ".tsv": "\t"}
LINES = (".jsonl", ".ndjson")
TEXT_FILES = (*DELIMITERS, ".json", *LINES)  # of which .json is refused, with what to write
BLOCK = 1 << 26  # bytes of a text file that are parsed at once; no line may be longer, and lines.LONGEST is less


@dataclass(frozen=True, slots=True)
class Declared:
    """The columns of a text file, by name, and which texts stand for NULL beside the empty one."""

    columns: tuple[str, ...]
    nulls: tuple[str, ...] = ()


def frame_table(name: str, frame: Any) -> pa.Table:
    """A pandas or polars frame, or anything that Arrow reads, as an Arrow table whose texts are UTF-8."""
    import pyarrow as pa

    module = type(frame).__module__.split(".")[0]
    if isinstance(frame, pa.Table):
        table = frame
    elif module == "pandas" and hasattr(frame, "columns"):
        columns = [(str(label), _pandas_column(frame.iloc[:, i])) for i, label in enumerate(frame.columns)]
        kept = [(label, column) for label, column in columns if column is not None]
        table = pa.Table.from_arrays([column for _, column in kept], names=[label for label, _ in kept])
    elif module == "polars" and type(frame).__name__ == "DataFrame":
        objects = [label for label, kind in frame.schema.items() if str(kind) == "Object"]
        table = frame.drop(objects).to_arrow()
    elif hasattr(frame, "__arrow_c_stream__") and module != "duckdb" and type(frame).__name__ != "LazyFrame":
        try:
            table = pa.table(frame)
        except (pa.ArrowException, TypeError, ValueError) as error:
            raise InvalidValue(f"{name} cannot be read as an Arrow table. Its owner sees why as __cause__.") from error
    else:
        raise InvalidValue(f"{name} is a {type(frame).__name__}, whose rows are not stored. Give a file, an Arrow table, or a "
                           "pandas or polars DataFrame.")  # fmt: skip
    for place, column in enumerate(table.columns):
        if _is_text(column.type):
            table = table.set_column(place, table.field(place).name, _valid(column))
        elif pa.types.is_timestamp(column.type) and column.type.unit in _PARTS:
            table = table.set_column(place, table.field(place).name, _microseconds(column))
    return table


_PARTS = {"s": 1_000_000, "ms": 1_000}  # microseconds


def _microseconds(column: Any) -> Any:
    """Moments in microseconds, as DuckDB counts them; NULL where one has too many of them, on which DuckDB would fail."""
    import pyarrow as pa
    import pyarrow.compute as pc

    parts = _PARTS[column.type.unit]
    number, most = column.cast(pa.int64()), (2**63 - 1) // parts
    near = pc.and_(pc.less_equal(number, most), pc.greater_equal(number, -most))
    kept = pc.if_else(near, number, pa.scalar(None, pa.int64()))
    return pc.multiply(kept, pa.scalar(parts, pa.int64())).cast(pa.timestamp("us", column.type.tz))


def parquet_table(path: Path, partitions: Mapping[str, str]) -> pa.Table:
    """A parquet file that DuckDB would fail on: in memory, with NULL where a text is not UTF-8 or a moment out of range; and
    with the columns that its folders name."""
    import pyarrow as pa
    import pyarrow.parquet as parquet

    table = frame_table(path.stem, parquet.ParquetFile(path).read())
    for place, column in enumerate(table.columns):
        if pa.types.is_dictionary(column.type):  # as DuckDB reads it from the file
            table = table.set_column(place, table.field(place).name, column.cast(column.type.value_type))
    for name, value in partitions.items():
        if name not in table.column_names:
            table = table.append_column(name, pa.array([value] * table.num_rows, pa.string()))
    return table


def marks(frame: Any, table: pa.Table) -> frozenset[Hashable]:
    """What tells that two frames hold the same data: the object, and where in memory its values are."""
    buffers = [buffer for column in table.columns for chunk in column.chunks for buffer in chunk.buffers()[1:]]
    spans = (Span(buffer.address, buffer.address + buffer.size) for buffer in buffers if buffer is not None and buffer.size)
    return frozenset([id(frame), *spans])


def _is_text(kind: Any) -> bool:
    import pyarrow as pa

    kind = kind.value_type if pa.types.is_dictionary(kind) else kind
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind))


def _valid(column: Any) -> Any:
    """The column, NULL where a text is not UTF-8."""
    import pyarrow as pa

    try:
        column.validate(full=True)
        return column
    except pa.ArrowInvalid:
        plain = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
        chunks = plain.chunks if isinstance(plain, pa.ChunkedArray) else [plain]
        return pa.chunked_array([_decoded(chunk) for chunk in chunks], pa.large_string())


def _decoded(array: Any) -> Any:
    import pyarrow as pa

    if pa.types.is_dictionary(array.type):
        return _decoded(array.dictionary).take(array.indices)
    binary = pa.large_binary() if pa.types.is_large_string(array.type) else pa.binary()
    return pa.array([_utf8(item) for item in array.view(binary).to_pylist()], pa.large_string())


def _utf8(item: bytes | None) -> str | None:
    try:
        return None if item is None else item.decode("utf-8")
    except UnicodeDecodeError:
        return None


def _pandas_column(series: Any) -> Any:
    """A column of a pandas frame by its dtype; one of objects holds texts. None where Arrow knows no such type."""
    import pyarrow as pa

    categories = getattr(series.dtype, "categories", None)
    inner = series.dtype if categories is None else categories.dtype
    if inner.kind == "O" and not str(inner).startswith("str"):
        return texts(series.tolist())
    try:
        array = pa.array(series, from_pandas=True)
    except (pa.ArrowException, TypeError, ValueError, OverflowError):
        return texts(series.tolist()) if str(inner).startswith("str") else None  # a text that has no UTF-8
    return array if isinstance(array, pa.ChunkedArray) else pa.chunked_array([array])


def texts(values: Iterable[Any]) -> Any:
    """Python objects as texts: numbers, truth values and dates as they are written, anything else NULL."""
    import pyarrow as pa

    return pa.chunked_array([pa.array([_as_text(value) for value in values], pa.large_string())])


_WRITTEN = (int, float, decimal.Decimal, datetime.date, datetime.datetime)


def _as_text(value: Any) -> str | None:
    if isinstance(value, str):
        return value if value.isascii() or _encodes(value) else None
    if isinstance(value, bool) or type(value).__name__ in ("bool", "bool_"):
        return "true" if value else "false"
    if hasattr(value, "item") and not hasattr(value, "__len__"):
        value = value.item()
    if not isinstance(value, _WRITTEN) or value != value or type(value).__name__ == "NaTType":
        return None
    return str(value)


def _encodes(value: str) -> bool:
    try:
        value.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


# ---- text files --------------------------------------------------------------------------------------------------------


def text_table(path: Path, declared: Declared | None) -> pa.Table:
    """The declared columns of a CSV, TSV or JSON file, all as texts; the writer of SQL reads them as the declared types."""
    if path.suffix.lower() == ".json":
        raise InvalidValue(f"{path.name} is one array: a fault in one record would decide whether all others can be read. "
                           "Write one object in each line, with the ending .jsonl, such as by jq -c '.[]'.")  # fmt: skip
    if declared is None or not declared.columns:
        raise _undeclared(path)
    read = _csv if path.suffix.lower() in DELIMITERS else _json
    return read(path, declared.columns, declared.nulls)


def _undeclared(path: Path) -> InvalidValue:
    return InvalidValue(
        f"{path.name} is a text file: which columns it has, and of which types, would be read off private rows. Declare them: "
        f"schema={{{path.stem!r}: {{'age': {{'type': 'integer'}}, …}}}}, or [{path.stem}.age] type = \"integer\" in a "
        "schema.toml; types are integer, number, text, boolean, date and timestamp. Or write the table as parquet."
    )


def _unreadable(path: Path, error: Exception) -> InvalidValue:
    """Without the reason: a parser's message shows the line it stopped at."""
    invalid = InvalidValue(f"{path.name} cannot be read as {path.suffix[1:].upper()}. Its owner sees why as __cause__.")
    invalid.__cause__ = error
    return invalid


def _csv(path: Path, columns: Sequence[str], nulls: Sequence[str]) -> pa.Table:
    """One line is one record (`discreet.core.lines`); one with another number of values than the first line is left out."""
    import pyarrow as pa
    import pyarrow.csv as csv

    delimiter = DELIMITERS[path.suffix.lower()]
    try:
        header, body = lines.split_header(path.read_bytes(), delimiter)
        lines.check_names(path.name, header, columns)
        first = b"-"  # a line to skip: a byte order mark in the first record would be cut off
        read = csv.read_csv(
            pa.BufferReader(b"\n".join([first, *lines.records(body, delimiter, len(header)), b""])),
            read_options=csv.ReadOptions(block_size=BLOCK, column_names=_distinct(header), skip_rows=1),
            parse_options=csv.ParseOptions(delimiter=delimiter, invalid_row_handler=lambda _: "skip"),
            convert_options=csv.ConvertOptions(
                check_utf8=False, column_types={name: pa.large_binary() for name in columns}, include_columns=list(columns),
                null_values=["", *nulls], strings_can_be_null=True,
            ),
        )  # fmt: skip
    except (pa.ArrowException, OSError) as error:
        raise _unreadable(path, error) from error
    return pa.table({name: _strings(read.column(name)) for name in columns})


def _strings(column: Any) -> Any:
    """Bytes as texts; NULL where they are not UTF-8."""
    import pyarrow as pa

    try:
        return column.cast(pa.large_string())
    except pa.ArrowInvalid:
        return pa.chunked_array([pa.array([_utf8(item) for item in column.to_pylist()], pa.large_string())])


def _distinct(header: Sequence[str]) -> list[str]:
    """Names of our own for columns that were not declared: two of them may have one name."""
    return [name if header.count(name) == 1 else f"{name} {place}" for place, name in enumerate(header)]


def _json(path: Path, columns: Sequence[str], nulls: Sequence[str]) -> pa.Table:
    import pyarrow as pa

    try:
        rows = [_loaded(line) for line in path.read_bytes().splitlines() if line.strip()]
    except OSError as error:
        raise _unreadable(path, error) from error
    known = [row if isinstance(row, Mapping) else {} for row in rows]
    return pa.table({name: texts(_present(row.get(name), nulls) for row in known) for name in columns})


def _loaded(line: bytes) -> Any:
    """One line; None where it is no JSON. Numbers stay as they are written."""
    try:
        return json.loads(line.decode("utf-8-sig"), parse_float=str, parse_int=str, parse_constant=lambda _: None)
    except (ValueError, RecursionError):
        return None


def _present(value: Any, nulls: Sequence[str]) -> Any:
    return None if isinstance(value, str) and value in nulls else value
