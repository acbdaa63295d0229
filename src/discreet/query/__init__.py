"""Private statistics and SQL: what may be asked of data about people, and what it costs.

Names are loaded when first used: statistics of arrays and local privacy need no SQL engine.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from discreet.query.database import Database, Explanation, connect

__all__ = ["Database", "Explanation", "connect"]

_HOME = {"Database": "database", "Explanation": "database", "connect": "database"}


def __getattr__(name: str) -> Any:
    from importlib import import_module

    if name not in _HOME:
        raise AttributeError(f"discreet.query has no {name!r}; it has {', '.join(__all__)}.")
    try:
        return getattr(import_module(f"discreet.query.{_HOME[name]}"), name)
    except ModuleNotFoundError as error:
        if error.name is None or error.name.startswith("discreet"):
            raise
        from discreet.errors import MissingExtra

        raise MissingExtra(error.name, "sql", "Private SQL") from None


def __dir__() -> list[str]:
    return sorted(__all__)
