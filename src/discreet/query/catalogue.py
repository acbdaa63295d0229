"""The tables that may be asked: what the engine's catalogue says of them, and what the schema declares.

Nothing here looks at a private row. What cannot be decided by the catalogue is refused, or declared by the owner and then an
assumption of every claim.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from discreet.core import Unit, check
from discreet.errors import InvalidValue
from discreet.query.engines import Engine
from discreet.query.engines.stored import NO_RULE, Stored, common_rule, rule_of_kind, shares_data
from discreet.query.relations import Catalogue
from discreet.query.schema import Schema, near
from discreet.query.tree import Base, Field


def read_catalogue(engine: Engine, unit: Unit, schema: Schema) -> Catalogue:
    """The tables of an engine that may be asked, and why the others may not be."""
    found = engine.tables()
    if not found:
        raise InvalidValue("There is no table here to ask.")
    tables: dict[str, Base] = {}
    refused: dict[str, str] = {}
    for name, stored in found.items():
        _distinct(name, stored, engine.exact_names)
        public = bool(schema.of(name).get("public"))
        reason = "" if public else _derived(name, stored, {other: found[other] for other in tables if tables[other].private})
        if reason and not _declared(name, schema):
            refused[name] = _refusal(name, reason)
            continue
        tables[name] = _base(name, stored, unit, schema, public=public, most=schema.of(name).get("rows", 1) if reason else 0)
    if not tables:
        raise InvalidValue(next(iter(refused.values())))
    schema.check_used(column for stored in found.values() for column in stored.kinds)
    _check_unique(engine, tables)
    places = {name: stored.place for name, stored in found.items()}
    return Catalogue(_with_rule(unit, tables, found), unit.key, refused=refused, exact=engine.exact_names, places=places)


def _distinct(name: str, stored: Stored, exact: bool) -> None:
    names = [column if exact else column.lower() for column in stored.kinds]
    twice = next((column for column in stored.kinds if names.count(column if exact else column.lower()) > 1), None)
    if twice is not None:
        raise InvalidValue(f"{name} has two columns {twice} that differ in case only. Rename one of them.")


def _derived(name: str, stored: Stored, before: Mapping[str, Stored]) -> str:
    """Why a table is no base table of its own, or nothing."""
    other = next((known for known, table in before.items() if shares_data(table.same, stored.same)), None)
    return stored.derived or (f"the same data as {other} under a second name" if other is not None else "")


def _declared(name: str, schema: Schema) -> bool:
    said = schema.of(name)
    return "rows" in said and said.get("depends_on_one_unit") is True


def _refusal(name: str, reason: str) -> str:
    return (
        f"{name} is {reason}: one unit's rows may be in it many times, or a row may tell of others. Ask the base table; or, if "
        f"its owner knows how often one unit is in it and that each row depends on one unit alone, declare it: [{name}] rows = "
        "3, depends_on_one_unit = true in the schema."
    )


def _base(name: str, stored: Stored, unit: Unit, schema: Schema, *, public: bool, most: int) -> Base:
    fields = schema.fields(name, stored)
    names = tuple(fields)
    key = None
    if not public and unit.key is not None:
        places = [i for i, column in enumerate(names) if _same(column, unit.key, schema.exact)]
        if not places:
            raise InvalidValue(f"{name} has no column {unit.key}, so nobody knows whose rows it holds. {near(unit.key, names)} "
                               f"If it is about nobody, say so in the schema: [{name}] public = true.")  # fmt: skip
        key = places[0]
    return Base(name, names, tuple(fields.values()), not public, key, most, _unique(name, names, schema, public),
                schema.of(name).get("repeats", 1))  # fmt: skip


def _same(one: str, two: str, exact: bool) -> bool:
    return one == two if exact else one.lower() == two.lower()


def _unique(name: str, names: tuple[str, ...], schema: Schema, public: bool) -> tuple[int, ...]:
    """The places of the columns on which a public table is declared to be unique."""
    columns = schema.of(name).get("unique", ())
    if "repeats" in schema.of(name) and not columns:
        raise InvalidValue(f"{name} declares repeats: say of which columns, such as unique = [{check.shown(names[0])}].")
    if columns and not public:
        raise InvalidValue(f"unique is declared of {name}, which is private. Only a public table can be looked at for it.")
    places = []
    for column in columns:
        hits = [i for i, known in enumerate(names) if _same(known, column, schema.exact)]
        if not hits:
            raise InvalidValue(f"{name} is declared unique on {column}, and has no such column. {near(column, names)}")
        places.append(hits[0])
    return tuple(places)


def _check_unique(engine: Engine, tables: Mapping[str, Base]) -> None:
    for name, base in tables.items():
        if base.unique and not _is_unique(engine, base):
            columns = ", ".join(base.names[place] for place in base.unique)
            what = f"{base.repeats} rows" if base.repeats > 1 else "one row"
            raise InvalidValue(f"{name} is declared to have at most {what} for each {columns}, and has more. Mend the public "
                               "table, or declare how many: repeats = … beside unique.")  # fmt: skip


def _is_unique(engine: Engine, base: Base) -> bool:
    try:
        return engine.unique(base)
    except Exception as error:
        raise InvalidValue(
            f"{engine.name} could not look at the public table {base.table}; its owner sees why as __cause__."
        ) from error


def _with_rule(unit: Unit, tables: dict[str, Base], found: Mapping[str, Stored]) -> dict[str, Base]:
    """The tables, with the one rule by which the unit's key is compared in all of them."""
    keyed = {name: base for name, base in tables.items() if base.unit is not None}
    if not keyed:
        return tables
    rules = {name: _rule(base, found[name]) for name, base in keyed.items()}
    for name, rule in rules.items():
        if rule == NO_RULE:
            raise InvalidValue(
                f"{unit.key} in {name} is of a type or collation that may take two spellings for one, so nobody knows whose "
                f'row each is. Keep the key as plain text or whole numbers, or declare [{name}.{unit.key}] type = "text".'
            )
    rule = common_rule(set(rules.values()))
    if rule == NO_RULE:
        (one, first), (two, second), *_ = {rule: name for name, rule in rules.items()}.items()
        raise InvalidValue(f"{unit.key} is compared as {one} in {first} and as {two} in {second}, so nobody knows which units "
                           "are the same. Make the columns of one type, or declare one: type = … in the schema.")  # fmt: skip
    return {name: _compared(base, rule) if name in keyed else base for name, base in tables.items()}


def _rule(base: Base, stored: Stored) -> str:
    assert base.unit is not None
    field = base.fields[base.unit]
    return rule_of_kind(field.kind) if field.stored is not None else stored.compared.get(base.names[base.unit], NO_RULE)


def _compared(base: Base, rule: str) -> Base:
    fields: list[Field] = [
        replace(field, compared=rule) if place == base.unit else field for place, field in enumerate(base.fields)
    ]
    return replace(base, fields=tuple(fields))
