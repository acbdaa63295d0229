"""Groups: the expressions of GROUP BY, the sets that ROLLUP, CUBE and GROUPING SETS make of them, and their public values."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations, product
from typing import Any

from sqlglot import exp

from discreet.core import check
from discreet.errors import InvalidQuery, InvalidValue
from discreet.query.operations import Kind
from discreet.query.public import converted, public_values
from discreet.query.scalars.expression import Scope
from discreet.query.schema import near
from discreet.query.tree import Listed, Question, Scalar

MOST_SETS = 64
MOST_GROUPS = 1_000_000
Lists = Mapping[tuple[str, ...], tuple[Any, ...]]  # names of keys -> values, or tuples of them


@dataclass(frozen=True, slots=True)
class Grouping:
    """The expressions of GROUP BY, and which of them each grouping set has; None: there is one set, of all."""

    keys: list[Any]
    sets: tuple[tuple[int, ...], ...] | None = None


def grouping(node: Any, items: list[Any], scope: Scope) -> Grouping:
    """GROUP BY; a number or an alias stands for an item of SELECT. SELECT DISTINCT groups by all items."""
    clause = node.args.get("group")
    plain = [item.unalias() for item in items]
    if clause is None:
        return Grouping(list(dict.fromkeys(plain)) if node.args.get("distinct") else [])
    if any(clause.args.get(name) for name in ("cube", "rollup", "grouping_sets", "totals")):
        raise InvalidQuery("WITH ROLLUP is not known here. Write GROUP BY ROLLUP (a, b).")
    if clause.args.get("all"):
        return Grouping(list(dict.fromkeys(item for item in plain if not item.find(exp.AggFunc))))
    parts = [_sets(part) for part in clause.expressions]
    keys: list[Any] = []
    sets = []
    for chosen in product(*parts):
        members = [_meant(key, items, scope) for part in chosen for key in part]
        keys = list(dict.fromkeys([*keys, *members]))
        sets.append(tuple(sorted({keys.index(key) for key in members})))
        if len(sets) > MOST_SETS:
            raise InvalidQuery(f"GROUP BY makes more than {MOST_SETS} grouping sets. Ask for fewer at a time.")
    if not any(isinstance(part, _SETS) for part in clause.expressions):
        return Grouping(keys)
    if len(set(sets)) != len(sets):
        raise InvalidQuery("A grouping set stands twice in GROUP BY, and each is paid for. Name it once.")
    return Grouping(keys, tuple(sets))


_SETS = (exp.Rollup, exp.Cube, exp.GroupingSets)


def _sets(part: Any) -> list[tuple[Any, ...]]:
    """The sets of expressions that one part of GROUP BY stands for."""
    if isinstance(part, exp.GroupingSets):
        return [group for item in part.expressions for group in (_sets(item) if isinstance(item, _SETS) else [_members(item)])]
    if not isinstance(part, _SETS):
        return [_members(part) if isinstance(part, exp.Tuple) else (part,)]
    items = [_members(item) for item in part.expressions]
    if isinstance(part, exp.Rollup):
        chosen = [items[:count] for count in range(len(items), -1, -1)]
    else:
        if len(items) > 10:
            raise InvalidQuery(f"CUBE of {len(items)} keys makes {2 ** len(items)} grouping sets. Ask for fewer at a time.")
        chosen = [list(some) for count in range(len(items), -1, -1) for some in combinations(items, count)]
    return [tuple(key for item in some for key in item) for some in chosen]


def _members(item: Any) -> tuple[Any, ...]:
    if isinstance(item, exp.Tuple):
        return tuple(item.expressions)
    return (item.this,) if isinstance(item, exp.Paren) else (item,)


def _meant(key: Any, items: list[Any], scope: Scope) -> Any:
    aliases = {scope.spelled(item.args["alias"]): item.this for item in items if isinstance(item, exp.Alias)}
    if isinstance(key, exp.Literal) and not key.is_string:
        place = int(key.this) if key.this.isdecimal() and len(key.this) < 6 else 0
        if not 1 <= place <= len(items):
            raise InvalidQuery(f"GROUP BY {key.this[:20]} names no column of SELECT.")
        return items[place - 1].unalias()
    if isinstance(key, exp.Column) and not key.table and scope.spelled(key.this) in aliases and not scope.has(key):
        return aliases[scope.spelled(key.this)]
    return key


# ---- public values ------------------------------------------------------------------------------------------------------


def read_lists(keys: Mapping[Any, Any] | None, exact: bool) -> Lists:
    """Public values as they are given for one query: by name, or by a tuple of names for tuples of values."""
    lists: dict[tuple[str, ...], tuple[Any, ...]] = {}
    for given, values in (keys or {}).items():
        names = (given,) if isinstance(given, str) else tuple(given) if isinstance(given, tuple) else ()
        if not names or not all(isinstance(name, str) for name in names) or len(set(names)) != len(names):
            raise InvalidValue(f"keys lists values by name, or tuples by a tuple of names; got {check.shown(given)}.")
        shown = ", ".join(names)
        if len(names) > 1:
            rows = check.items(f"values of {shown}", values, "a list of tuples")
            if any(isinstance(row, str) or not hasattr(row, "__len__") or len(row) != len(names) for row in rows):
                raise InvalidValue(f"values of {shown} must be tuples of {len(names)}; got {check.shown(values)}.")
            values = [tuple(row) for row in rows]
            for column in zip(*values):
                public_values(shown, list(dict.fromkeys(column)))
        lists[tuple(name if exact else name.lower() for name in names)] = public_values(shown, values)
    return lists


def listed(
    keys: list[Scalar], names: Sequence[set[str]], lists: Lists, columns: Sequence[str]
) -> tuple[list[Scalar], tuple[Listed, ...]]:
    """The keys with their public values, and the lists of tuples of some of them. A name that no key has is passed over if it
    is one of `columns`, those of the tables, and refused if not."""
    made = [_by_kind(key) for key in keys]
    tuples = []
    for wanted, values in lists.items():
        places = [next((i for i, known in enumerate(names) if name in known), None) for name in wanted]
        if len(wanted) == 1 and places[0] is not None:
            made[places[0]] = replace(made[places[0]], values=converted(wanted[0], values, made[places[0]].kind))
        elif len(wanted) == 1 and wanted[0] not in columns:
            raise InvalidValue(f"keys lists values of {wanted[0]!r}, and no table has that column and no key that name. "
                               f"{near(wanted[0], columns)}")  # fmt: skip
        elif len(wanted) > 1:
            missing = next((name for name, place in zip(wanted, places) if place is None), None)
            if missing is not None:
                raise InvalidValue(f"keys lists tuples of {', '.join(wanted)}, and the query does not group by {missing}.")
            whole = [place for place in places if place is not None]
            parts = [_column(wanted[i], made[place].kind, [row[i] for row in values]) for i, place in enumerate(whole)]
            tuples.append(Listed(tuple(whole), tuple(zip(*parts))))
    single = [i for i, known in enumerate(names) if any((name,) in lists for name in known)]
    spoken = [*single, *(place for some in tuples for place in some.places)]
    if len(set(spoken)) != len(spoken):
        raise InvalidValue("keys lists the values of one key twice. List them once.")
    return made, tuple(tuples)


def _column(name: str, kind: Kind, column: list[Any]) -> list[Any]:
    known = list(dict.fromkeys(column))
    read = dict(zip(known, converted(name, known, kind)))
    return [read[value] for value in column]


def _by_kind(key: Scalar) -> Scalar:
    """A truth value is true, false or missing: its groups are public without a list."""
    if key.values is not None or key.kind != Kind.BOOLEAN:
        return key
    return replace(key, values=(False, True) if key.required else (False, True, None))


def public_keys(question: Question) -> tuple[tuple[object, ...], ...] | None:
    """All groups, if they are public; the one group if there are no keys; None if their names are private."""
    parts = list(question.listed)
    spoken = {place for some in parts for place in some.places}
    for place, key in enumerate(question.keys):
        if place not in spoken:
            if key.values is None:
                return None
            parts.append(Listed((place,), tuple((value,) for value in key.values)))
    if math.prod(len(some.rows) for some in parts) > MOST_GROUPS:
        raise InvalidQuery("The public keys make more than a million groups. Ask for fewer at a time.")
    parts.sort(key=lambda some: some.places)
    made = []
    for chosen in product(*(some.rows for some in parts)):
        group: list[object] = [None] * len(question.keys)
        for some, row in zip(parts, chosen):
            for place, value in zip(some.places, row):
                group[place] = value
        made.append(tuple(group))
    return tuple(made)


def of_set(question: Question, places: tuple[int, ...]) -> Question:
    """The question of one grouping set: by the keys at these places alone."""
    new = {place: i for i, place in enumerate(places)}
    tuples = []
    for some in question.listed:
        kept = [i for i, place in enumerate(some.places) if place in new]
        if kept:
            rows = dict.fromkeys(tuple(row[i] for i in kept) for row in some.rows)
            tuples.append(Listed(tuple(new[some.places[i]] for i in kept), tuple(rows)))
    return replace(question, keys=tuple(question.keys[place] for place in places), listed=tuple(tuples), sets=(places,))
