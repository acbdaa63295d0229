"""What the owner of the server decides in a file that nobody else writes: which data a source is, what may be attacked.

[sources.hospital]
location = "visits.parquet"            # as for discreet query; beside this file, or "env:NAME" for an address with a password
unit = "user:patient_id"               # or "record"; the budget in the ledger is for this unit
rows = 4
schema = "schema.toml"
synth = "synth.toml"                   # the schema of synthetic tables, as for discreet synth; without it none can be made

[attacks.readmission]
release = "readmission-model"          # the release it is about
weights = "model.safetensors"
recipe = "recipe.py"                   # this file is run
members = "train.parquet"
nonmembers = "holdout.parquet"
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from discreet.core import Unit, check, record, user
from discreet.core.document import read_toml
from discreet.errors import InvalidDocument

KINDS = {
    "model": ("weights", "recipe", "members", "nonmembers", "target_column", "attacks", "shadows", "controls", "trust_pickle"),
    "table": ("file", "quasi", "sensitive", "population", "id", "fraction"),
}
MOST_SHADOWS = 256
FILES = ("weights", "recipe", "members", "nonmembers", "file", "population")


@dataclass(frozen=True, slots=True)
class Source:
    """Which data a source of the ledger is."""

    name: str
    location: Any  # a path or URL, or such by table name
    unit: Unit
    schema: Path | None = None
    bounds: Mapping[str, Any] = field(default_factory=dict)
    synth: Path | None = None  # the schema that synthetic tables are made with


@dataclass(frozen=True, slots=True)
class Target:
    """What may be attacked: the arguments that no user chooses."""

    name: str
    kind: str
    release: str
    options: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Settings:
    """All that a server is started with."""

    ledger: str
    releases: Path
    users: Path
    sources: Mapping[str, Source] = field(default_factory=dict)
    targets: Mapping[str, Target] = field(default_factory=dict)
    policy: Path | None = None
    hosts: frozenset[str] = frozenset({"127.0.0.1", "localhost", "[::1]"})
    https: bool = False


def read_config(path: str | os.PathLike[str]) -> tuple[dict[str, Source], dict[str, Target]]:
    """The sources and the targets of a `serve.toml`."""
    file = Path(path)
    document = read_toml(file)
    _only(file, "the file", document, ("sources", "attacks"))
    folder = file.absolute().parent
    sources = {name: _source(file, folder, name, table) for name, table in _tables(file, document, "sources")}
    targets = {name: _target(file, folder, name, table) for name, table in _tables(file, document, "attacks")}
    return sources, targets


def _tables(file: Path, document: Mapping[str, Any], part: str) -> list[tuple[str, Mapping[str, Any]]]:
    tables = document.get(part, {})
    if not isinstance(tables, Mapping) or not all(isinstance(table, Mapping) for table in tables.values()):
        raise InvalidDocument(f"{file}: {part} must be tables such as [{part}.NAME].")
    return list(tables.items())


def _only(file: Path, where: str, table: Mapping[str, Any], known: tuple[str, ...], needed: tuple[str, ...] = ()) -> None:
    extra = sorted(set(table) - set(known))
    if extra:
        raise InvalidDocument(f"{file}: {where} says {check.shown(extra[0])}; it can say {', '.join(known)}.")
    lacking = [name for name in needed if name not in table]
    if lacking:
        raise InvalidDocument(f"{file}: {where} must say {', '.join(lacking)}.")


def _source(file: Path, folder: Path, name: str, table: Mapping[str, Any]) -> Source:
    where = f"[sources.{name}]"
    _only(file, where, table, ("location", "unit", "rows", "relation", "schema", "bounds", "synth"), ("location", "unit"))
    location = table["location"]
    if isinstance(location, Mapping):
        location = {table: _place(file, where, folder, each) for table, each in location.items()}
    else:
        location = _place(file, where, folder, location)
    schema = table.get("schema")
    unit = unit_of(f"{file}: {where}", table["unit"], table.get("rows"), table.get("relation", "add_remove"))
    schema, synth = (None if each is None else folder / str(each) for each in (schema, table.get("synth")))
    return Source(name, location, unit, schema, table.get("bounds", {}), synth)


def unit_of(where: str, named: Any, rows: Any, relation: Any = "add_remove") -> Unit:
    """A unit as people write it: record, or user:KEY with the most rows of one user (or "any")."""
    kind, _, key = str(named).partition(":")
    if named == "record":
        return record(relation)
    if kind != "user" or not key:
        raise InvalidDocument(
            f"{where} must have as unit record or user:KEY, the column that says whose row it is; got {check.shown(named)}."
        )
    if rows is None:
        raise InvalidDocument(f"{where} must say rows: the most rows of one user that count, or any.")
    return user(key, rows=None if rows == "any" else rows, relation=relation)


def _place(file: Path, where: str, folder: Path, location: Any) -> str:
    if not isinstance(location, str) or not location:
        raise InvalidDocument(
            f"{file}: {where} must have a location that is a file or an address; got {check.shown(location)}."
        )
    if location.startswith("env:"):
        value = os.environ.get(location[4:])
        if not value:
            raise InvalidDocument(
                f"{file}: {where} is at {location}, and there is no variable {location[4:]} in the environment."
            )
        return value
    return location if "://" in location or location.startswith("local[") else str(folder / location)


def _target(file: Path, folder: Path, name: str, table: Mapping[str, Any]) -> Target:
    where, kind = f"[attacks.{name}]", table.get("kind", "model")
    if kind not in KINDS:
        raise InvalidDocument(f"{file}: {where} has the kind {check.shown(kind)}; known are {', '.join(KINDS)}.")
    needed = ("release", "weights", "members", "nonmembers") if kind == "model" else ("release", "file", "quasi")
    _only(file, where, table, ("kind", "release", *KINDS[kind]), needed)
    options: dict[str, Any] = {
        key: str(folder / value) if key in FILES else value for key, value in table.items() if key not in ("kind", "release")
    }
    if "attacks" in options:
        options["attacks"] = _names(f"{file}: {where}", options["attacks"])
    if options.get("shadows", 16) not in range(2, MOST_SHADOWS + 1):
        raise InvalidDocument(
            f"{file}: {where} must have shadows from 2 to {MOST_SHADOWS}; got {check.shown(options['shadows'])}."
        )
    return Target(name, kind, str(table["release"]), options)


def _names(where: str, attacks: Any) -> tuple[str, ...]:
    """Names of attacks: a list, or divided by commas as on the command line."""
    names = [each.strip() for each in attacks.split(",")] if isinstance(attacks, str) else attacks
    if not isinstance(names, list) or not names or not all(isinstance(each, str) and each for each in names):
        raise InvalidDocument(f'{where} must have as attacks names such as ["bayes_lira", "loss"]; got {check.shown(attacks)}.')
    return tuple(names)
