"""discreet: every release made from sensitive data carries a proven ceiling and a measured floor.

Names are loaded when first used; `import discreet` itself loads nothing heavy.
"""

from __future__ import annotations

__version__ = "0.1.0.dev0"

TYPE_CHECKING = False  # type checkers read it as true; importing it from typing would double the time to start
if TYPE_CHECKING:
    from typing import Any

    from discreet import accounting, attack, audit, core, errors, heuristic, learn, ledger, models, noise, query, report
    from discreet.audit import verdict
    from discreet.core import Claim, Evidence, Game, Release, Unit, Verdict, record, user
    from discreet.ledger import Ledger
    from discreet.query import connect

__all__ = [
    "Claim",
    "Evidence",
    "Game",
    "Ledger",
    "Release",
    "Unit",
    "Verdict",
    "accounting",
    "attack",
    "audit",
    "connect",
    "core",
    "errors",
    "heuristic",
    "learn",
    "ledger",
    "models",
    "noise",
    "query",
    "record",
    "report",
    "user",
    "verdict",
]

_HOME = {
    "Claim": "discreet.core",
    "Evidence": "discreet.core",
    "Game": "discreet.core",
    "Ledger": "discreet.ledger",
    "Release": "discreet.core",
    "Unit": "discreet.core",
    "Verdict": "discreet.core",
    "connect": "discreet.query",
    "record": "discreet.core",
    "user": "discreet.core",
    "verdict": "discreet.audit",
}
_ROOMS = (
    "accounting",
    "attack",
    "audit",
    "core",
    "errors",
    "heuristic",
    "learn",
    "ledger",
    "models",
    "noise",
    "query",
    "report",
)


def __getattr__(name: str) -> Any:
    from importlib import import_module

    if name in _ROOMS:
        return import_module(f"discreet.{name}")
    if name in _HOME:
        return getattr(import_module(_HOME[name]), name)
    raise AttributeError(f"discreet has no {name!r}; it has {', '.join(__all__)}.")


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])
