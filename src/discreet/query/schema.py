"""What is publicly known of the tables: types, ranges, lists of values, which tables are public.

A `schema.toml` says it once for everyone:

    [people.age]
    type = "integer"
    bounds = [0, 120]
    required = true

    [people.ward]
    categories = ["A", "B", "C"]     # or values

    [wards]
    public = true
    unique = ["ward"]     # with repeats = 3: at most three rows agree on it

It is read by `discreet.schema`, as for every command; what SQL has no use for (bins, mass, what is found privately) is left.
"""

from __future__ import annotations

import difflib
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from discreet import schema as described
from discreet.core import check
from discreet.errors import InvalidDocument, InvalidValue
from discreet.query.engines.frames import Declared
from discreet.query.engines.stored import Stored
from discreet.query.operations import MOMENTS, NUMBERS, Kind
from discreet.query.public import converted, public_values
from discreet.query.tree import Bounds, Field

KNOWN = ("bounds", "values", "required", "type")
STORED = ("categorical", "ordinal")  # types that say how a column is used, not what it holds
MOST_REPEATS = 1_000_000  # rows of one unit in a table, and rows of a public table that agree


@dataclass(frozen=True, slots=True)
class Schema:
    """Facts by table and column; the table "" stands for all. `tables` has what is said of a table itself.

    Names are compared without regard to case, unless `exact` (engines in which "ID" and id are two columns).
    """

    facts: Mapping[str, Mapping[str, Mapping[str, Any]]] = field(default_factory=dict)
    tables: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    exact: bool = False

    def columns(self, table: str) -> Mapping[str, Mapping[str, Any]]:
        """What is said of the columns of this very table."""
        return _found(self.facts, table, self.exact) or {}

    def of(self, table: str) -> Mapping[str, Any]:
        """What is said of the table itself."""
        return _found(self.tables, table, self.exact) or {}

    def text_columns(self) -> dict[str, Declared]:
        """The columns of text files, by table, as they are declared."""
        every = [name for name, facts in self.facts.get("", {}).items() if "type" in facts]  # of all tables, where that says it
        declared = {
            table: (*columns, *(name for name in every if name not in columns)) for table, columns in self.facts.items()
        }
        declared[""] = tuple(every)
        return {table: Declared(names, tuple(self.of(table).get("null", ()))) for table, names in declared.items()}

    def fields(self, table: str, stored: Stored) -> dict[str, Field]:
        """The columns an engine found, with what is known of them; columns of a type that SQL here cannot use are left out."""
        own, every = self.columns(table), self.facts.get("", {})
        for name in own:
            if not any(_same(name, column, self.exact) for column in stored.kinds):
                raise InvalidValue(f"The schema describes {table}.{name}, and {table} has no such column. "
                                   f"{near(name, stored.kinds)}")  # fmt: skip
        columns = {}
        for name, kind in stored.kinds.items():
            facts = {**(_found(every, name, self.exact) or {}), **(_found(own, name, self.exact) or {})}
            if kind == "other":
                if facts:
                    raise InvalidValue(f"The schema describes {table}.{name}, whose type in the table cannot be read here.")
            else:
                columns[name] = _known(f"{table}.{name}", Kind(kind), facts)
        return columns

    def check_used(self, columns: Iterable[str]) -> None:
        """Refuse bounds of a column that no table has."""
        known = list(columns)
        for name in self.facts.get("", {}):
            if not any(_same(name, column, self.exact) for column in known):
                raise InvalidValue(f"bounds names {name!r}, and no table has such a column. {near(name, known)}")

    def with_bounds(self, bounds: Mapping[str, Any] | None) -> Schema:
        """Bounds given by column name, for every table that has such a column."""
        if not bounds:
            return self
        if not isinstance(bounds, Mapping):
            raise InvalidValue(f"bounds must be like {{'age': (0, 120)}}; got {check.shown(bounds)}.")
        said = self.facts.get("", {})
        every = {name: {**said.get(name, {}), "bounds": _bounds(name, pair)} for name, pair in bounds.items()}
        return replace(self, facts={**self.facts, "": {**said, **every}})


def near(name: str, known: Iterable[str]) -> str:
    """A sentence with the name that was probably meant, or with those that there are."""
    there = list(dict.fromkeys(known))
    lower = {column.lower(): column for column in there}
    close = difflib.get_close_matches(name.lower(), list(lower), 1)
    return f"Did you mean {lower[close[0]]}?" if close else f"There are {', '.join(there[:12]) or 'none'}."


def _same(one: str, two: str, exact: bool) -> bool:
    return one == two if exact else one.lower() == two.lower()


def _found(facts: Mapping[str, Any], name: str, exact: bool) -> Any:
    return next((said for known, said in facts.items() if _same(known, name, exact)), None)


def read_schema(document: str | os.PathLike[str] | Mapping[str, Any] | None) -> Schema:
    """A schema from a TOML file or from the same as a dict."""
    if document is None:
        return Schema()
    try:
        said = described.read_mapping(document) if isinstance(document, Mapping) else described.read(document)
    except InvalidDocument:
        raise
    except InvalidValue as error:
        raise InvalidDocument(str(error)) from None
    facts = {
        table: {column: _facts(f"{table}.{column}" if table else column, own) for column, own in columns.items()
                if own.get("type") != "omit"}
        for table, columns in said.columns.items()
    }  # fmt: skip
    about = {table: {name: _of_table(table, name, fact) for name, fact in own.items()} for table, own in said.tables.items()}
    return Schema({table: columns for table, columns in facts.items() if columns}, about)


def _of_table(table: str, name: str, said: Any) -> Any:
    """What may be said of a table itself."""
    if name in ("public", "depends_on_one_unit"):
        if not isinstance(said, bool):
            raise InvalidDocument(f"{name} of {table} must be true or false; got {check.shown(said)}.")
        return said
    if name in ("rows", "repeats"):
        return check.whole(f"{name} of {table}", said, most=MOST_REPEATS)
    names = check.items(f"{name} of {table}", said, "a list of texts")
    if not all(isinstance(item, str) for item in names) or not names:
        raise InvalidDocument(f"{name} of {table} must be a list of texts; got {check.shown(said)}.")
    return names


def _facts(name: str, said: Mapping[str, Any]) -> dict[str, Any]:
    """What SQL uses of the facts of a column."""
    facts = {key: fact for key, fact in said.items() if key in KNOWN}
    kind = described.type_of(said)
    if facts.get("type") in STORED:
        facts.pop("type", None)
    elif facts.get("type") == "real":
        facts["type"] = "number"
    if kind in ("date", "timestamp"):
        facts.pop("bounds", None)  # a range of dates is for synthesis: SQL has none
    elif "bounds" in facts:
        facts["bounds"] = _bounds(name, facts["bounds"])
    if "values" in facts:
        facts["values"] = public_values(name, facts["values"])
    return facts


def _bounds(name: str, pair: Any) -> Bounds:
    if isinstance(pair, (str, bytes)) or not isinstance(pair, Sequence) or len(pair) != 2:
        raise InvalidValue(f"bounds of {name} must be two numbers, such as (0, 120); got {check.shown(pair)}.")
    low, high = (check.real(f"bounds of {name}", number) for number in pair)
    if not low < high:
        raise InvalidValue(f"bounds of {name} must rise; got ({low:g}, {high:g}).")
    if max(abs(low), abs(high)) > 1e15 or high - low < 1e-12 * max(abs(low), abs(high)):
        raise InvalidValue(f"bounds of {name} must lie within 1e15 and apart; got ({low:g}, {high:g}).")
    return (low, high)


def _known(name: str, stored: Kind, facts: Mapping[str, Any]) -> Field:
    kind = Kind(facts.get("type", stored))
    if (kind in MOMENTS) != (stored in MOMENTS) and Kind.TEXT not in (kind, stored):
        raise InvalidValue(f"{name} holds {stored}, which cannot be read as {kind}. Change its type in the schema.")
    bounds, values = facts.get("bounds"), facts.get("values")
    if bounds is not None and kind not in NUMBERS:
        raise InvalidValue(f"{name} holds {kind}, so it has no bounds; list its public values instead, or declare "
                           'type = "number".')  # fmt: skip
    public = None if values is None else converted(name, values, kind)
    return Field(kind, bounds, public, facts.get("required", False), None if kind == stored else stored)
