"""One kind of values for each column, whatever file a table came from.

A CSV file has text where a parquet file has dates, booleans or numbers with gaps. Values of two kinds are never equal, so that
an exact copy of the real rows would look like a table that has nothing to do with them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import numpy as np

from discreet.columns import Column, Columns, missing
from discreet.core import check
from discreet.errors import InvalidValue

NUMBERS, BOOLEANS, DATES, TEXT = "numbers", "booleans", "dates", "text"
_KINDS = {
    "i": NUMBERS, "u": NUMBERS, "f": NUMBERS, "b": BOOLEANS, "M": DATES, "U": TEXT, "T": TEXT, "S": "bytes", "m": "durations",
}  # fmt: skip
_TYPES = {BOOLEANS: (bool, np.bool_), NUMBERS: (int, float, Decimal, np.number), DATES: (date,), TEXT: (str,)}
_BOOLEANS = {"true": True, "t": True, "yes": True, "1": True, "false": False, "f": False, "no": False, "0": False}
_FORMS = {NUMBERS: "numbers such as 3.5", BOOLEANS: "true or false", DATES: "dates such as 2026-01-31", TEXT: "text"}


def alike(tables: Mapping[str, Columns]) -> dict[str, Columns]:
    """The tables, by what they are called, with the columns that all have brought to one kind: that of the first table.

    >>> made = {"day": np.array(["2026-01-31"], "datetime64[D]"), "ill": np.array([True])}
    >>> read = {"day": np.array(["2026-01-31"], object), "ill": np.array(["false"], object)}
    >>> {name: values.tolist() for name, values in alike({"made": made, "read": read})["read"].items()}
    {'day': [datetime.date(2026, 1, 31)], 'ill': [False]}
    """
    found = {which: dict(table) for which, table in tables.items()}
    first, *others = found.values()
    for name in [name for name in first if all(name in other for other in others)]:
        for which, values in _one_kind(name, {which: table[name] for which, table in found.items()}).items():
            found[which][name] = values
    return found


def _one_kind(name: str, by_table: dict[str, Column]) -> dict[str, Column]:
    kinds = {which: _kind(values) for which, values in by_table.items()}
    seen = [kind for kind in kinds.values() if kind is not None]
    if not seen or (set(seen) == {seen[0]} and seen[0] not in _FORMS):
        return by_table
    kind = seen[0]
    if kind == TEXT:  # a file of text may only look like it: the other tables say what it holds
        kind = next((other for other in seen if other in _FORMS and other != TEXT), TEXT)
        if kind == NUMBERS and not all(_numeric(by_table[which]) for which in by_table if kinds[which] == TEXT):
            kind = TEXT  # codes, of which some table has only those that look like numbers
        elif set(seen) == {TEXT}:
            kind = _meant(name, by_table)
    made = {which: _listed(name, which, values, kinds[which], kind) for which, values in by_table.items()}
    return dict(zip(made, _arrays(kind, list(made.values()), list(by_table.values()))))


def _meant(name: str, by_table: dict[str, Column]) -> str:
    """What texts stand for where programs may have written them in different ways: 34 and 34.0, or true and True."""
    if all(_numeric(values, codes=False) for values in by_table.values()):
        return NUMBERS
    cells = [set(map(_cell, values.tolist())) - {None} for values in by_table.values()]
    for kind in (DATES, BOOLEANS) if any(cells[0].isdisjoint(other) for other in cells[1:]) else ():
        try:
            for which, values in by_table.items():
                _listed(name, which, values, TEXT, kind)
            return kind
        except InvalidValue:
            continue
    return TEXT


def _kind(values: Column) -> str | None:
    """What a column holds; None where every value is missing."""
    if values.dtype != object:
        return _KINDS.get(values.dtype.kind, str(values.dtype))
    types = {type(value) for value in values.tolist() if not missing(value)}
    for kind, classes in _TYPES.items():
        if types and all(issubclass(each, classes) and (kind != NUMBERS or each is not bool) for each in types):
            return kind
    return ", ".join(sorted(each.__name__ for each in types)) or None


def _numeric(values: Column, *, codes: bool = True) -> bool:
    """Whether texts are numbers, among them codes such as 02139 or not."""
    cells = [cell for cell in map(_cell, values.tolist()) if cell is not None]
    try:
        return all(np.isfinite(float(cell)) and (codes or not (cell[0] == "0" and cell[1:].isdigit())) for cell in cells)
    except ValueError:
        return False


def _cell(value: Any) -> Any:
    """A value without the blanks around it; None if nothing is left."""
    return None if missing(value) else (value.strip() or None) if isinstance(value, str) else value


def _listed(name: str, which: str, values: Column, found: str | None, kind: str) -> list[Any]:
    """The values of a column as that kind, None for what is missing."""
    read: Callable[[Any], Any] = {NUMBERS: _number, BOOLEANS: _boolean, DATES: _moment, TEXT: _text}.get(kind, _refuse)
    plain = values.astype("datetime64[us]") if values.dtype.kind == "M" else values
    known: dict[Any, Any] = {}
    for row, value in enumerate(listed := [_cell(value) for value in plain.tolist()], start=1):
        if value is not None:
            try:
                known[value] = known[value] if value in known else read(value)
            except (ValueError, TypeError, KeyError, OverflowError):
                raise InvalidValue(
                    f"Column {check.shown(name)} holds {kind} in one table and {found} in the {which}, which cannot be read as "
                    f"{_FORMS.get(kind, kind)}; first in row {row}. Write it as in the other table, and leave cells empty that "
                    "have no value."
                ) from None
    return [None if value is None else known[value] for value in listed]


def _arrays(kind: str, made: list[list[Any]], given: list[Column]) -> list[Column]:
    if kind == NUMBERS:
        if all(values.dtype.kind in "iu" for values in given):
            return given
        least = min([values.dtype for values in given if values.dtype.kind == "f"], key=lambda it: it.itemsize, default=float)
        return [np.array([np.nan if value is None else value for value in each], least).astype(np.float64) for each in made]
    if kind == DATES:
        days = given[0].dtype == np.dtype("datetime64[D]")
        return [np.array(each, "datetime64[us]").astype("datetime64[D]" if days else "datetime64[us]") for each in made]
    if kind == BOOLEANS and not any(None in each for each in made):
        return [np.array(each, bool) for each in made]
    return [np.array(each, object) for each in made]


def _number(value: Any) -> Any:
    if isinstance(value, (date, np.datetime64)):
        raise TypeError
    return float(value)


def _boolean(value: Any) -> bool:
    if isinstance(value, str):
        return _BOOLEANS[value.lower()]
    if value in (0, 1):
        return bool(value)
    raise ValueError


def _moment(value: Any) -> datetime:
    if isinstance(value, str):
        value = datetime.fromisoformat(value)
    if not isinstance(value, datetime):
        if not isinstance(value, date):
            raise TypeError
        return datetime(value.year, value.month, value.day)
    return value if value.tzinfo is None else value.astimezone(UTC).replace(tzinfo=None)


def _text(value: Any) -> str:
    if isinstance(value, (bool, np.bool_)) or not isinstance(value, (str, int, np.integer)):
        raise TypeError
    return str(value)


def _refuse(value: Any) -> Any:
    raise TypeError
