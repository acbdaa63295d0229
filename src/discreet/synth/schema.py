"""Public knowledge about a table to be synthesised: each column's type, and its categories or range.

Nothing here is read from the data: a category of a single person would reveal that person. A `schema.toml` states it, in the
form of `discreet.schema` that every command takes:

    age = [17, 90]

    [hours]
    type = "integer"
    bounds = [1, 99]
    mass = [40]

    [sex]
    categories = ["Female", "Male"]
    required = true

    [job]
    type = "categorical"
    find = "categories"

    [notes]
    type = "omit"

    [[constraint]]
    given = { age = { low = 17, high = 18 } }
    then = { sex = ["Female", "Male"] }

    [[workload]]
    columns = ["age", "sex"]

What is not publicly known can be found privately, inside the budget: `find` says what.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from datetime import date, datetime
from typing import Any

from discreet import schema as public
from discreet.core import check
from discreet.errors import InvalidDocument, InvalidValue

LISTED = ("categorical", "ordinal")
RANGED = ("integer", "real", "date", "timestamp")
TYPES = (*LISTED, "boolean", *RANGED)
FINDS: dict[str, tuple[str, ...]] = {
    "categorical": ("categories",), "ordinal": ("categories",), "integer": ("bins", "mass"), "real": ("bins", "mass"),
    "date": ("bins",), "timestamp": ("bins",),
}  # what can be found privately of a column of each type  # fmt: skip
OTHER = "OTHER"  # the name of all categories that were not found
BINS = 32  # of a range, unless the schema says otherwise
MOST_CELLS = 4096  # of one column
_FROM_JSON: dict[type, Any] = {date: date.fromisoformat, datetime: datetime.fromisoformat, int: int}


@dataclass(frozen=True, slots=True)
class Column:
    """One column. `type` is categorical, ordinal, boolean, integer, real, date or timestamp.

    `values` lists the categories. `bounds` are the ends of a range, which `bins` divides: a number of equal parts or a list of
    inner edges. `mass` lists values that many rows share, such as 0 or 40: each gets a cell of its own. `decimals` rounds
    what is sampled. A missing value is a category of its own unless the column is `required`; a missing value that is there
    all the same then counts as the middle of the range, or as the last category, and so does one that is not listed, unless
    `other` names the category that stands for all of those.

    `find` names what is found privately and paid for from the budget: categories of a listed column, bins (their edges, by
    quantiles) and mass of a range.

    >>> Column("integer", bounds=(0, 120), mass=(40,)).bins
    32
    >>> Column("categorical", find="categories").other
    'OTHER'
    """

    type: str
    values: tuple[Any, ...] = ()
    bounds: tuple[Any, Any] | None = None
    bins: int | tuple[Any, ...] = BINS
    mass: tuple[Any, ...] = ()
    decimals: int | None = None
    required: bool = False
    find: tuple[str, ...] = ()
    other: Any = None

    def __post_init__(self) -> None:
        if self.type == "text":
            raise InvalidValue(_TEXT)
        check.word("type", self.type, TYPES)
        for name in ("values", "mass"):
            object.__setattr__(self, name, check.items(name, getattr(self, name), "a list"))
        if not isinstance(self.required, bool):
            raise InvalidValue(f"required must be true or false; got {check.shown(self.required)}.")
        self._check_find()
        if self.type in RANGED:
            self._check_range()
        elif self.bounds is not None or self.mass or self.bins != BINS or self.decimals is not None:
            raise InvalidValue(f"A {self.type} column has values and no bounds, bins, mass or decimals.")
        elif self.type in LISTED:
            if not self.find:
                _check_values(self.values if self.other is None or self.other in self.values else (*self.values, self.other))
            elif self.values:
                raise InvalidValue("Categories are listed or found, not both; take values or find out.")
        elif self.values:
            raise InvalidValue("A boolean column has the values true and false; list none.")

    def _check_find(self) -> None:
        known = FINDS.get(self.type, ())
        wanted = (self.find,) if isinstance(self.find, str) else check.items("find", self.find, "a list")
        if not set(wanted) <= set(known) or len(set(wanted)) != len(wanted):
            able = f"can find {', '.join(known)}" if known else "has nothing to find"
            raise InvalidValue(f"A {self.type} column {able}; got {check.shown(self.find)}.")
        object.__setattr__(self, "find", tuple(sorted(wanted)))
        if "bins" in wanted and (not isinstance(self.bins, int) or not 2 <= self.bins <= 256):
            raise InvalidValue("To find bins, say how many: bins = 2 to 256.")
        if self.other is None and "categories" in wanted:
            object.__setattr__(self, "other", OTHER)
        if self.other is not None and self.type not in LISTED:
            raise InvalidValue(f"other is for listed categories; a column of type {self.type} has none.")

    def _check_range(self) -> None:
        if self.values:
            raise InvalidValue(f"A column of type {self.type} has bounds; only categorical and ordinal columns list values.")
        if isinstance(self.bounds, (str, bytes)) or not isinstance(self.bounds, Sequence) or len(self.bounds) != 2:
            raise InvalidValue(f"bounds of a column of type {self.type} must be a pair (low, high); got "
                               f"{check.shown(self.bounds)}. They must not be read off the data.")  # fmt: skip
        low, high = (self.point("bounds", end) for end in self.bounds)
        if not low < high:
            raise InvalidValue(f"bounds must rise; got {check.shown(self.bounds)}.")
        object.__setattr__(self, "bounds", (low, high))
        if self.decimals is not None:
            object.__setattr__(self, "decimals", check.whole("decimals", self.decimals, least=0, most=15))
        if isinstance(self.bins, int) and not isinstance(self.bins, bool):
            object.__setattr__(self, "bins", check.whole("bins", self.bins, most=MOST_CELLS))
        else:
            edges = tuple(self.point("bins", edge) for edge in check.items("bins", self.bins, "a number or a list of edges"))
            if list(edges) != sorted(set(edges)) or (edges and not (low < edges[0] and edges[-1] <= high)):
                raise InvalidValue("The edges of bins must rise and lie within the bounds.")
            if len(edges) >= MOST_CELLS:
                raise InvalidValue(f"There may be at most {MOST_CELLS} bins; got {len(edges) + 1}.")
            object.__setattr__(self, "bins", edges)
        mass = tuple(self.point("mass", value) for value in self.mass)
        if len(set(mass)) != len(mass) or not all(low <= value <= high for value in mass) or len(mass) > 256:
            raise InvalidValue("mass must list different values within the bounds, at most 256.")
        object.__setattr__(self, "mass", tuple(sorted(mass)))

    def point(self, name: str, value: Any) -> Any:
        """A value on the column's axis, as the column's type has it."""
        if self.type == "date" or self.type == "timestamp":
            return _moment(name, value, self.type)
        number = check.real(name, value)
        if abs(number) > 1e15:
            raise InvalidValue(f"{name} must lie within 1e15; got {number:g}.")
        if self.type == "real":
            return number
        if number != int(number):
            raise InvalidValue(f"{name} of an integer column must be whole; got {number:g}.")
        return int(number)


@dataclass(frozen=True, slots=True)
class Schema:
    """The columns to synthesise by name, and the names of those to leave out; what no row may be, and which marginals matter.

    >>> schema = Schema.of({"sex": ["Female", "Male"], "age": (17, 90), "notes": None})
    >>> [column.type for column in schema.columns.values()], schema.omitted
    (['categorical', 'integer'], frozenset({'notes'}))
    """

    columns: Mapping[str, Column]
    omitted: frozenset[str] = frozenset()
    constraints: tuple[Any, ...] = ()
    workload: tuple[tuple[str, ...], ...] = ()

    def __post_init__(self) -> None:
        if not self.columns:
            raise InvalidValue("The schema describes no column.")

    @classmethod
    def of(cls, given: Schema | Mapping[str, Any] | str | os.PathLike[str], table: str | None = None) -> Schema:
        """A schema; or a mapping from column to a Column, a list of categories, a pair (low, high) or None to leave it out; or
        the path of a TOML file, of which `table` names the one that is meant."""
        if isinstance(given, Schema):
            return given
        if isinstance(given, (str, os.PathLike)):
            return cls.read(given, table)
        if not isinstance(given, Mapping):
            raise InvalidValue(f"schema must map columns to categories or ranges; got {type(given).__name__}.")
        return cls._from(((check.word("column", name), spec) for name, spec in given.items()), InvalidValue)

    @classmethod
    def read(cls, path: str | os.PathLike[str], table: str | None = None) -> Schema:
        """A schema from a TOML file."""
        document = public.read(path)
        rules, work = (document.lists.get(name, ()) for name in ("constraint", "workload"))
        try:
            schema = cls._from(document.one(table).items(), InvalidDocument)
            return replace(schema, constraints=tuple(map(_constraint, rules)), workload=tuple(map(_workload, work)))
        except InvalidDocument:
            raise
        except InvalidValue as error:
            raise InvalidDocument(str(error)) from None

    @classmethod
    def tables(cls, given: Any) -> dict[str, Schema]:
        """The schemas of several tables, by name: a mapping, or the path of a TOML file with [table.column]."""
        if isinstance(given, (str, os.PathLike)):
            columns = public.read(given).columns
            return {name: cls._from({**columns.get("", {}), **own}.items(), InvalidDocument)
                    for name, own in columns.items() if name}  # fmt: skip
        if not isinstance(given, Mapping) or not all(
            isinstance(spec, (Schema, Mapping, str, os.PathLike)) for spec in given.values()
        ):
            raise InvalidValue("The schema of several tables maps each to its own: {'users': {'age': (0, 120)}, 'visits': …}, "
                               "or [users.age] in TOML.")  # fmt: skip
        return {check.word("table", name): cls.of(spec) for name, spec in given.items()}

    @classmethod
    def _from(cls, items: Any, wrong: type[Exception]) -> Schema:
        columns, omitted = {}, set()
        for name, spec in items:
            try:
                column = spec if isinstance(spec, Column) else _column(name, public.column(name, spec))
            except InvalidValue as error:
                message = str(error)
                raise wrong(
                    message if message.startswith(f"{name} ") or message.startswith(f"{name}:") else f"{name}: {message}"
                ) from None
            if column is None:
                omitted.add(name)
            else:
                columns[name] = column
        return cls(columns, frozenset(omitted))

    def readings(self) -> dict[str, str]:
        """How each column was read, in words."""
        facts = {name: public.reading({attribute.name: getattr(column, attribute.name) for attribute in fields(Column)})
                for name, column in self.columns.items()}  # fmt: skip
        return facts | dict.fromkeys(sorted(self.omitted), "left out")

    def settled(self, cells: Mapping[str, Mapping[str, Any]]) -> Schema:
        """The same with cells that a fit found privately: values, bins or mass of columns, by name."""
        columns = dict(self.columns)
        for name in cells.keys() & columns.keys():
            changes: dict[str, Any] = {key: tuple(values) for key, values in cells[name].items()}
            if "values" in changes:  # of the kind of the value that stands for all others
                read = _FROM_JSON.get(type(columns[name].other), lambda value: value)
                changes["values"] = tuple(map(read, changes["values"]))
            columns[name] = replace(columns[name], find=(), **changes)
        return replace(self, columns=columns)

    def __iter__(self) -> Iterator[str]:
        return iter(self.columns)


def _constraint(rule: Any) -> Any:
    """A rule: given and then; forbidden; or ordered. A range is { low = 1, high = 9 }, a missing value { missing = true }."""
    from discreet.synth.constraints import Forbidden, Implies, Ordered

    match rule:
        case {"given": dict(given), "then": dict(then), **rest} if not rest:
            return Implies(_cells(given), _cells(then))
        case {"forbidden": dict(where), **rest} if not rest:
            return Forbidden(_cells(where))
        case {"ordered": [str(first), str(second)], **rest} if not rest:
            return Ordered(first, second)
    raise InvalidValue('a [[constraint]] says given and then, or forbidden, or ordered = ["first", "second"]; '
                       f"got {check.shown(rule)}.")  # fmt: skip


def _cells(where: Mapping[str, Any]) -> dict[str, Any]:
    conditions: dict[str, Any] = {}
    for name, value in where.items():
        match value:
            case {"low": low, "high": high, **rest} if not rest:
                conditions[name] = (low, high)
            case {"missing": True, "values": list(values), **rest} if not rest:
                conditions[name] = [*values, None]
            case {"missing": True, **rest} if not rest:
                conditions[name] = [None]
            case dict():
                raise InvalidValue(f"{name}: a constraint says a value, a list of values, {{ low, high }} or "
                                   f"{{ missing = true }}; got {check.shown(value)}.")  # fmt: skip
            case _:
                conditions[name] = value
    return conditions


def _workload(entry: Any) -> tuple[str, ...]:
    match entry:
        case {"columns": [*names], **rest} if not rest and names and all(isinstance(name, str) for name in names):
            return tuple(names)
    raise InvalidValue(f'a [[workload]] says columns = ["age", "sex"]; got {check.shown(entry)}.')


def _column(name: str, facts: public.Facts) -> Column | None:
    """The column that facts describe; None for one that is left out."""
    kind = public.type_of(facts)
    if kind == "omit":
        return None
    listed = facts.get("values") is not None or "categories" in public.found(facts)
    if kind is None:
        raise InvalidValue(f"the schema must say bounds, categories or a type of {name}; types are {', '.join(TYPES)}.")
    if kind == "number":
        kind = "real"
    if kind == "text" and listed:
        kind = "categorical"
    return Column(**{**facts, "type": kind})


def _check_values(values: tuple[Any, ...]) -> None:
    if not values or len(set(values)) != len(values):
        raise InvalidValue("values must list at least one category, all different. They must not be read off the data.")
    if len(values) > MOST_CELLS:
        raise InvalidValue(f"there are {len(values):,} categories, and at most {MOST_CELLS} fit: noise would drown each. "
                           "Keep the frequent ones that are publicly known, and write the others as one category first; "
                           'or leave the column out: type = "omit".')  # fmt: skip
    kinds = {type(value) for value in values}
    if len(kinds) > 1 or not kinds <= {str, int, float, bool, date, datetime}:
        raise InvalidValue("values must be texts, numbers, truth values or dates, all of one type.")
    if any(isinstance(value, float) and not math.isfinite(value) for value in values):
        raise InvalidValue("values must be finite: what is not a number, or infinite, counts as missing.")


def _moment(name: str, value: Any, kind: str) -> Any:
    if isinstance(value, str):
        try:
            value = (date if kind == "date" else datetime).fromisoformat(value)
        except ValueError:
            raise InvalidValue(f"{name} must be a {kind} such as 2024-01-31; got {check.shown(value)}.") from None
    if kind == "date" and type(value) is date:
        return value
    if kind == "timestamp" and isinstance(value, date):
        return value.replace(tzinfo=None, microsecond=0) if isinstance(value, datetime) else datetime(*value.timetuple()[:3])
    raise InvalidValue(f"{name} must be a {kind}; got {check.shown(value)}.")


_TEXT = (
    'free text cannot be synthesised from counts: nearly every value is one person\'s. Leave it out (type = "omit"), or make a '
    "column of public categories from it first, such as its topic or its length."
)
