"""What is publicly known of the tables: types, ranges, lists of values, which tables are public.

A `schema.toml` says it once for everyone:

    [people.age]
    bounds = [0, 120]
    required = true

    [people.ward]
    values = ["A", "B", "C"]

    [wards]
    public = true
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from discreet.core import check
from discreet.errors import InvalidDocument, InvalidValue
from discreet.query.operations import NUMBERS, Kind
from discreet.query.tree import Bounds, Field

KNOWN = ("bounds", "values", "required", "type")


@dataclass(frozen=True, slots=True)
class Schema:
    """Facts by table and column, names in lower case; the table "" stands for all."""

    facts: Mapping[str, Mapping[str, Mapping[str, Any]]] = field(default_factory=dict)
    public: frozenset[str] = frozenset()

    def fields(self, table: str, kinds: Mapping[str, str]) -> dict[str, Field]:
        """The columns an engine found, with what is known of them; columns of a type that SQL here cannot use are left out."""
        known = {**self.facts.get("", {}), **self.facts.get(table.lower(), {})}
        usable = {name: Kind(kind) for name, kind in kinds.items() if kind != "other"}
        columns = {name: _known(name, kind, known.get(name.lower(), {})) for name, kind in usable.items()}
        missing = set(self.facts.get(table.lower(), {})) - {name.lower() for name in kinds}
        if missing:
            raise InvalidValue(f"The schema describes {table}.{min(missing)}, and {table} has no such column; it has "
                               f"{', '.join(list(kinds)[:12])}.")  # fmt: skip
        return columns

    def with_bounds(self, bounds: Mapping[str, Any] | None) -> Schema:
        """Bounds given by column name, for every table that has such a column."""
        if not bounds:
            return self
        if not isinstance(bounds, Mapping):
            raise InvalidValue(f"bounds must be like {{'age': (0, 120)}}; got {check.shown(bounds)}.")
        every = {name.lower(): {**self.facts.get("", {}).get(name.lower(), {}), "bounds": _bounds(name, pair)}
                 for name, pair in bounds.items()}  # fmt: skip
        return replace(self, facts={**self.facts, "": {**self.facts.get("", {}), **every}})


def read_schema(document: str | os.PathLike[str] | Mapping[str, Any] | None) -> Schema:
    """A schema from a TOML file or from the same as a dict."""
    if document is None:
        return Schema()
    document = document if isinstance(document, Mapping) else _toml(Path(document))
    facts: dict[str, dict[str, dict[str, Any]]] = {}
    public = set()
    for table, columns in document.items():
        if not isinstance(columns, Mapping):
            raise InvalidDocument(f"The schema says {check.shown(columns)} of {table}; it should be a table [{table}.column].")
        for column, said in columns.items():
            if column == "public" and isinstance(said, bool):
                public |= {table.lower()} if said else set()
            else:
                facts.setdefault(table.lower(), {})[column.lower()] = _facts(f"{table}.{column}", said)
    return Schema(facts, frozenset(public))


def _toml(path: Path) -> Mapping[str, Any]:
    import tomllib

    try:
        return tomllib.loads(path.read_text("utf-8"))
    except OSError as error:
        raise InvalidDocument(f"{path} cannot be read: {error.strerror}.") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InvalidDocument(f"{path} is not TOML: {error}.") from None


def _facts(name: str, said: Any) -> dict[str, Any]:
    if not isinstance(said, Mapping):
        raise InvalidDocument(f"The schema says {check.shown(said)} of {name}; it should be like {name} = {{bounds = [0, 1]}}.")
    extra = sorted(set(said) - set(KNOWN))
    if extra:
        raise InvalidDocument(f"The schema says {extra[0]!r} of {name}; it can say {', '.join(KNOWN)}.")
    facts = dict(said)
    if "bounds" in facts:
        facts["bounds"] = _bounds(name, facts["bounds"])
    if "values" in facts:
        facts["values"] = public_values(name, facts["values"])
    if not isinstance(facts.get("required", False), bool):
        raise InvalidDocument(f"required of {name} must be true or false; got {check.shown(facts['required'])}.")
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


def public_values(name: str, values: Any) -> tuple[Any, ...]:
    """A public list of values: all different, and texts, numbers, truth values, dates or None."""
    public = check.items(f"values of {name}", values, "a list of public values")
    if not public or len(set(public)) != len(public):
        raise InvalidValue(f"values of {name} must be a list of different values, at least one; got {check.shown(values)}.")
    if len(public) > 1_000_000:
        raise InvalidValue(f"values of {name} may be at most a million; got {len(public)}.")
    if any(isinstance(value, float) and not math.isfinite(value) for value in public):
        raise InvalidValue(f"values of {name} must be finite; got {check.shown(values)}.")
    return public


def _known(name: str, kind: Kind, facts: Mapping[str, Any]) -> Field:
    bounds = facts.get("bounds")
    if bounds is not None and kind not in NUMBERS:
        raise InvalidValue(f"{name} holds {kind}, so it has no bounds; list its public values instead, or cast it to a number.")
    return Field(kind, bounds, facts.get("values"), facts.get("required", False))
