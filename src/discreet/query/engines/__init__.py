"""Engines hold the rows: they list tables and columns, and compute sums."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from discreet.query.engines.request import Marginals, Request


class Engine(Protocol):
    """A place where rows are. Only names, types and sums over bounded units leave it."""

    name: str

    def tables(self) -> Mapping[str, Mapping[str, str]]:
        """Columns and their kinds (integer, number, text, boolean, date, timestamp or other), by table; no row is read."""
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

    def register(self, table: str, key: str, rows: int) -> None:
        """Keep a copy of the table with a weight for each row, so that one unit's rows weigh at most `rows` together."""
        ...

    def fingerprint(self) -> str:
        """Changes when the data does, as far as the engine can tell without reading it."""
        ...

    def close(self) -> None: ...
