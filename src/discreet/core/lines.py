"""CSV and TSV by one rule: one line is one record, which depends on the bytes of that line alone.

Parsers that allow line breaks in quotes let one unclosed quote swallow all rows after it, so one person could remove everybody
below. Here a line with an unclosed quote is skipped, and its neighbours stay.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator, Sequence
from functools import cache

from discreet.core import check
from discreet.errors import InvalidValue

LONGEST = 1 << 24  # bytes of a line; a longer one is no record
STEP = 1 << 24  # bytes that are cut into lines at once
BOM = b"\xef\xbb\xbf"


def split_header(data: bytes, delimiter: str) -> tuple[list[str], bytes]:
    """The names in the first line, and all that follows it.

    >>> split_header(b"age,sex\\r\\n34,f", ",")
    (['age', 'sex'], b'34,f')
    """
    data = data.removeprefix(BOM)
    end = re.search(rb"\r\n|\n|\r", data)
    first, body = (data[: end.start()], data[end.end() :]) if end else (data, b"")
    line = first[:LONGEST].decode("utf-8", "replace")
    try:
        return next(csv.reader([line], delimiter=delimiter), []), body
    except csv.Error:  # a name longer than Python's limit
        return [], body


def check_names(file: str, header: Sequence[str], names: Sequence[str]) -> None:
    """Refuse a first line that does not name each column once, without showing it: it may be a private row."""
    lacking = [name for name in names if header.count(name) != 1]
    if lacking:
        raise InvalidValue(f"The first line of {file} must name every declared column once; it does not name "
                           f"{check.shown(lacking[0])}. Add a header, or change what is declared.")  # fmt: skip


def records(body: bytes, delimiter: str, width: int) -> Iterator[bytes]:
    """The lines that are records of so many values by themselves: not empty, not too long, and every quote that opens closes.

    >>> list(records(b'1,"a, b"\\n2,"open\\n3,c\\n4', ",", 2))
    [b'1,"a, b"', b'3,c']
    """
    closed, between = _closed(delimiter, width), delimiter.encode()
    start = 0
    while start < len(body):
        end = body.find(b"\n", start + STEP) + 1 or len(body)
        for line in body[start:end].splitlines():  # bytes end a line at \n, \r\n and \r only
            whole = closed.fullmatch(line) if b'"' in line else line.count(between) == width - 1
            if whole and 0 < len(line) <= LONGEST:
                yield line
        start = end


def cells(line: bytes, delimiter: str) -> list[str | None]:
    """The values of one record, without blanks around them; None for what is empty or not UTF-8.

    >>> cells(b'34, f,"a, b",', ",")
    ['34', 'f', 'a, b', None]
    """
    text = line.decode("utf-8", "surrogateescape")
    try:
        parts = next(csv.reader([text], delimiter=delimiter, strict=True)) if '"' in text else text.split(delimiter)
    except csv.Error:  # a value longer than Python's limit: no record
        return []
    return [_cell(part.strip()) for part in parts]


def _cell(text: str) -> str | None:
    return text if text and not any("\ud800" <= letter <= "\udfff" for letter in text) else None


@cache
def _closed(delimiter: str, width: int) -> re.Pattern[bytes]:
    """So many values that open with a quote and close, with "" for a quote inside; or that open with something else."""
    d = re.escape(delimiter).encode()
    value = rb'(?:"(?:[^"]++|"")*+"|[^"' + d + rb"][^" + d + rb"]*+|)"
    return re.compile(value + rb"(?:%b%b){%d}" % (d, value, width - 1), re.DOTALL)
