"""Engines hold the rows: they list tables and columns, and compute sums."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Protocol

from discreet.query.engines.request import Marginals, Request
from discreet.query.engines.stored import Stored
from discreet.query.tree import Base


class Engine(Protocol):
    """A place where rows are. Only names, types and sums over bounded units leave it."""

    name: str
    exact_names: bool  # whether names that differ in case only are two names

    def tables(self) -> Mapping[str, Stored]:
        """What the catalogue says of each table: columns, kinds (integer, number, text, boolean, date, timestamp or other),
        how unit keys are compared, whether it is a base table. No row is read."""
        ...

    def ready(self, tables: Collection[str]) -> None:
        """Raise EngineUnreachable where a question of these tables could not be asked now: the engine cannot be reached, or a
        table is no longer what it was when it was connected. No private row is read."""
        ...

    def unique(self, base: Base) -> bool:
        """Whether no two rows of a public table agree on its `unique` columns; NULL agrees with nothing."""
        ...

    def types(self, table: str) -> Mapping[str, Any]:
        """The Arrow types of a table's columns, where the engine tells them; no row is read."""
        ...

    def text(self, request: Request | Marginals) -> str:
        """The SQL that would run, for people to read."""
        ...

    def aggregate(self, request: Request | Marginals) -> Mapping[str, Sequence[Any]]:
        """The columns k0 …, b, s0 …, units of a request; s, k and s0 of contingency tables."""
        ...

    def register(self, base: Base, rows: int) -> None:
        """Keep a copy of the table with a weight for each row, so that one unit's rows weigh at most `rows` together."""
        ...

    def fingerprint(self) -> str:
        """Changes when the data does, as far as the engine can tell without reading it."""
        ...

    def close(self) -> None: ...
