"""What is publicly known of the columns of tables, read in one way for every command, from TOML and from Python.

    age = [18, 90]                            # two numbers, or two dates: a range
    ward = ["A", "B"]                         # texts: categories
    grade = { categories = [1, 2, 3] }        # numbers that are categories say so

    [hours]                                   # the same in full
    type = "integer"
    bounds = [1, 99]

    [visits.days]                             # a column of the table visits
    bounds = [1, 30]

`[name]` is a column where it says type, bounds, categories and the like; else it is a table of columns. Nothing here looks at
rows. In Python a range is a tuple (18, 90), since a list of two numbers is read by some as a range and by others as values.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime
from typing import Any

from discreet.core import check
from discreet.core.document import read_toml
from discreet.errors import InvalidDocument, InvalidValue

Facts = dict[str, Any]  # of one column: some of KEYS
TYPES = ("integer", "number", "real", "text", "categorical", "ordinal", "boolean", "date", "timestamp", "omit")
KEYS = ("type", "bounds", "values", "categories", "required", "bins", "mass", "decimals", "find", "other")
OF_TABLES = ("public", "unique", "repeats", "rows", "depends_on_one_unit", "null")
LISTS = ("constraint", "workload")  # [[constraint]] and [[workload]], which are about no column


@dataclass(frozen=True, slots=True)
class Tables:
    """The contents of a schema file: columns by table (under "" those of no table), facts about tables, and lists."""

    columns: Mapping[str, Mapping[str, Facts]]
    tables: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    lists: Mapping[str, Sequence[Any]] = field(default_factory=dict)

    def one(self, name: str | None = None) -> dict[str, Facts]:
        """The columns of the table `name`, or of the only one described, with those that belong to no table."""
        described = {table: columns for table, columns in self.columns.items() if table}
        match = next((table for table in described if name is not None and table.lower() == name.lower()), None)
        if match is None and len(described) > 1:
            raise InvalidValue(f"The schema describes the tables {', '.join(described)}, and none is called "
                               f"{check.shown(name)}; say which is meant." if name else
                               f"The schema describes the tables {', '.join(described)}; say which is meant.")  # fmt: skip
        own = described[match] if match is not None else next(iter(described.values()), {})
        return {**self.columns.get("", {}), **own}

    def readings(self) -> dict[str, str]:
        """How each column was read, in words."""
        return {f"{table}.{name}" if table else name: reading(facts)
                for table, columns in self.columns.items() for name, facts in columns.items()}  # fmt: skip


def read(path: str | os.PathLike[str], otherwise: str = "") -> Tables:
    """Read the facts about columns and tables from a TOML file."""
    try:
        return read_mapping(read_toml(path, otherwise), written=True)
    except InvalidDocument:
        raise
    except InvalidValue as error:
        raise InvalidDocument(f"{os.fspath(path)}: {error}") from None


def read_mapping(document: Mapping[str, Any], *, written: bool = False) -> Tables:
    """Read the same facts from a mapping. `written` means that it came from a file, where ranges are lists.

    >>> read_mapping({"age": (18, 90), "visits": {"days": {"bounds": [1, 30]}}}).columns
    {'': {'age': {'bounds': (18, 90)}}, 'visits': {'days': {'bounds': (1, 30)}}}
    """
    columns: dict[str, dict[str, Facts]] = {}
    tables: dict[str, dict[str, Any]] = {}
    lists: dict[str, Sequence[Any]] = {}
    for name, entry in document.items():
        check.word("column", name)
        if name in LISTS and isinstance(entry, list) and all(isinstance(item, Mapping) for item in entry):
            lists[name] = entry
        elif isinstance(entry, Mapping) and _is_table(name, entry):
            columns[name] = {}
            for own, fact in entry.items():
                if own in OF_TABLES and not isinstance(fact, Mapping):
                    tables.setdefault(name, {})[own] = fact
                else:
                    columns[name][own] = column(f"{name}.{own}", fact, written=written)
        else:
            columns.setdefault("", {})[name] = column(name, entry, written=written)
    return Tables(columns, tables, lists)


def _is_table(name: str, entries: Mapping[str, Any]) -> bool:
    """Whether [name] is a table of columns, and no column."""
    own = [key for key, fact in entries.items() if key in KEYS and not isinstance(fact, Mapping)]
    rest = [key for key in entries if key not in own]
    if own and rest and any(isinstance(entries[key], (Mapping, list, tuple, bool)) for key in rest):
        raise InvalidValue(
            f"[{name}] says {own[0]!r}, as of a column, and {rest[0]!r}, which a column does not have. Of a column it can say "
            f"{', '.join(KEYS)}; if {name} is a table, write [{name}.{own[0]}] for its column of that name."
        )
    return not own and all(key in OF_TABLES or isinstance(fact, (Mapping, list, tuple)) for key, fact in entries.items())


def column(name: str, spec: Any, *, written: bool = False) -> Facts:
    """The facts of one column, from any accepted form; ambiguous forms are refused.

    >>> column("age", [18, 90], written=True), column("ward", ["A", "B"])
    ({'bounds': (18, 90)}, {'values': ('A', 'B')})
    """
    if spec is None:
        return {"type": "omit"}
    if isinstance(spec, Mapping):
        return _full(name, spec)
    if isinstance(spec, tuple) and _pair(spec):
        return {"bounds": _rising(name, spec)}
    if isinstance(spec, (list, tuple)):
        return _list(name, spec, written)
    raise InvalidValue(f"{name} must be a list of categories, a range such as "
                       f"{'[0, 120]' if written else '(0, 120)'}, or {{ type = \"…\", bounds or categories = … }}; got "
                       f"{check.shown(spec)}.")  # fmt: skip


def _list(name: str, spec: Sequence[Any], written: bool) -> Facts:
    if _pair(spec):
        if written:
            return {"bounds": _rising(name, spec)}
        ends = f"{spec[0]}, {spec[1]}"
        raise InvalidValue(f"{name}: a list of two numbers or dates could be a range or two categories. Write the range as a "
                           f"tuple, ({ends}), and categories as {{'categories': [{ends}]}}.")  # fmt: skip
    if written and spec and all(_axis(value) for value in spec):
        text = ", ".join(map(str, spec[:4])) + (", …" if len(spec) > 4 else "")
        raise InvalidValue(f"{name} = [{text}] could be bin edges or categories: a plain list of numbers or dates is a range, "
                           f"and has two. Write {name} = {{ categories = [{text}] }}, or {{ bins = [{text}] }} for edges, with "
                           "bounds = [low, high] where the ends are needed.")  # fmt: skip
    return {"values": _plain(name, [value for value in spec if value is not None])}


def _plain(name: str, values: Any) -> tuple[Any, ...]:
    listed = check.items(f"categories of {name}", values, "a list")
    if any(isinstance(value, (list, tuple, Mapping)) for value in listed):
        raise InvalidValue(f"categories of {name} must be texts, numbers, truth values or dates; got {check.shown(values)}.")
    return listed


def _full(name: str, spec: Mapping[str, Any]) -> Facts:
    extra = sorted(set(map(str, spec)) - set(KEYS))
    if extra:
        raise InvalidValue(f"The schema says {extra[0]!r} of {name}; it can say {', '.join(KEYS)}.")
    facts: Facts = {key: tuple(fact) if isinstance(fact, list) else fact for key, fact in spec.items()}
    if "categories" in facts:
        if "values" in facts:
            raise InvalidValue(f"The schema lists values and categories of {name}, which are the same; leave one out.")
        facts["values"] = facts.pop("categories")
    if facts.get("values") is not None:
        facts["values"] = _plain(name, facts["values"])
    if "type" in facts:
        check.word(f"type of {name}", facts["type"], TYPES)
    if not isinstance(facts.get("required", False), bool):
        raise InvalidValue(f"required of {name} must be true or false; got {check.shown(facts['required'])}.")
    return facts


def _rising(name: str, pair: Sequence[Any]) -> tuple[Any, Any]:
    low, high = pair
    try:
        rises = low < high
    except TypeError:  # a date and a number, or times with a zone and without
        raise InvalidValue(f"The ends of {name} must be two numbers or two dates; got {check.shown(pair)}.") from None
    if not rises:
        raise InvalidValue(f"The range of {name} must rise; got {check.shown(pair)}.")
    return low, high


def _axis(value: Any) -> bool:
    return isinstance(value, (int, float, date)) and not isinstance(value, bool)


def _pair(values: Sequence[Any]) -> bool:
    return len(values) == 2 and all(map(_axis, values))


def type_of(facts: Mapping[str, Any]) -> str | None:
    """The type of a column: as stated, else that of the bounds, else categorical for listed values, else None."""
    stated: str | None = facts.get("type")
    if stated is not None:
        return stated
    bounds = facts.get("bounds")
    if isinstance(bounds, (tuple, list)) and bounds:
        kinds = ((datetime, "timestamp"), (date, "date"), (int, "integer"))
        return next((name for kind, name in kinds if all(isinstance(end, kind) for end in bounds)), "real")
    return "categorical" if facts.get("values") is not None or "categories" in found(facts) else None


def found(facts: Mapping[str, Any]) -> tuple[str, ...]:
    find = facts.get("find") or ()
    return (find,) if isinstance(find, str) else check.items("find", find, "a list")


def reading(facts: Mapping[str, Any]) -> str:
    """How a column was read, in words.

    >>> reading({"bounds": (18, 90)}), reading({"values": (18, 90)}), reading({"type": "omit"})
    ('integer 18 to 90', '2 categories', 'left out')
    """
    kind, values, bounds, bins = type_of(facts), facts.get("values"), facts.get("bounds"), facts.get("bins")
    if kind == "omit":
        return "left out"
    if values:
        return f"{len(values)} {'category' if len(values) == 1 else 'categories'}" + (" in order" if kind == "ordinal" else "")
    if "categories" in found(facts):
        return "categories, found privately"
    if bounds is not None:
        text = f"{kind} {bounds[0]} to {bounds[1]}"
    elif isinstance(bins, (tuple, list)):
        text = "number"
    else:
        return {None: "of the type it has", "boolean": "true or false"}.get(kind, str(kind))
    return text + (f" in {len(bins) + 1} bins" if isinstance(bins, (tuple, list)) else "")


def learned(name: str, facts: Mapping[str, Any], command: str, *, bins: bool = False) -> Any:
    """The facts as a model takes them: [low, high], a list of texts, {"categories": […]} of others, or {"bins": […]} where a
    model can use bins; None for a column that is left out.

    >>> learned("age", {"type": "integer", "bounds": (18, 90)}, "discreet fit")
    [18, 90]
    """
    kind = type_of(facts)
    if kind == "omit":
        return None
    values, edges, bounds = facts.get("values"), facts.get("bins"), facts.get("bounds")
    if kind == "boolean" and values is None:
        values = (False, True)
    if values is not None:
        values = [str(value) if isinstance(value, date) else value for value in values]
        return list(values) if all(isinstance(value, str) for value in values) else {"categories": list(values)}
    if bins and isinstance(edges, (tuple, list)):
        return {"bins": [check.real(f"bins of {name}", edge) for edge in edges]}
    if bounds is not None:
        if kind in ("date", "timestamp"):
            raise InvalidValue(f"{name} is a range of dates, and {command} takes numbers and categories. Turn it into a number "
                               'first, such as days, or leave it out: type = "omit".')  # fmt: skip
        if isinstance(bounds, str) or len(check.items(f"bounds of {name}", bounds, "a list")) != 2:
            raise InvalidValue(f"bounds of {name} must be two numbers, such as [0, 120]; got {check.shown(bounds)}.")
        low, high = _rising(name, bounds)
        check.real(f"bounds of {name}", low), check.real(f"bounds of {name}", high)
        return [low, high]
    raise InvalidValue(f"The schema says neither bounds nor categories of {name}, and {command} needs one of them: "
                       f'{name} = [0, 120] or {name} = ["a", "b"]; or leave the column out: type = "omit".')  # fmt: skip
