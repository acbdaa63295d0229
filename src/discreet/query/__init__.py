"""Private statistics and SQL: what may be asked of data about people, and what it costs.

Names are loaded when first used: statistics of arrays and local privacy need no SQL engine.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from discreet.query import local
    from discreet.query.arrays import (
        Estimate,
        count,
        covariance,
        estimate,
        histogram,
        mean,
        quantile,
        select,
        sum,
        top_k,
        variance,
    )  # fmt: skip
    from discreet.query.database import Database, connect
    from discreet.query.explain import Explanation

__all__ = [
    "Database", "Estimate", "Explanation", "connect", "count", "covariance", "estimate", "histogram", "local", "mean",
    "quantile", "select", "sum", "top_k", "variance",
]  # fmt: skip

_SQL = {"Database": "database", "Explanation": "explain", "connect": "database"}


def __getattr__(name: str) -> Any:
    from importlib import import_module

    if name == "local":
        return import_module("discreet.query.local")
    if name not in __all__:
        raise AttributeError(f"discreet.query has no {name!r}; it has {', '.join(__all__)}.")
    try:
        return getattr(import_module(f"discreet.query.{_SQL.get(name, 'arrays')}"), name)
    except ModuleNotFoundError as error:
        if error.name is None or error.name.startswith("discreet"):
            raise
        from discreet.errors import MissingExtra

        raise MissingExtra(error.name, "sql", "Private SQL") from None


def __dir__() -> list[str]:
    return sorted(__all__)
