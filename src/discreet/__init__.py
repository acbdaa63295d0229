"""discreet: every release made from sensitive data carries a proven ceiling and a measured floor.

Names are loaded when first used; `import discreet` itself loads nothing heavy.
"""

from __future__ import annotations

import sys

__version__ = "0.1.0.dev0"

TYPE_CHECKING = False  # type checkers read it as true; importing it from typing would double the time to start
if TYPE_CHECKING:
    from typing import Any

    from discreet import (
        accounting,
        attack,
        audit,
        charts,
        core,
        crypto,
        errors,
        federate,
        heuristic,
        learn,
        ledger,
        models,
        noise,
        query,
        report,
        synth,
    )  # fmt: skip
    from discreet.audit import verdict
    from discreet.core import Claim, Evidence, Game, Release, Unit, Verdict, record, user
    from discreet.ledger import Ledger
    from discreet.query import connect
    from discreet.report.gate import assert_below

__all__ = [
    "Claim",
    "Evidence",
    "Game",
    "Ledger",
    "Release",
    "Unit",
    "Verdict",
    "accounting",
    "assert_below",
    "attack",
    "audit",
    "charts",
    "connect",
    "core",
    "crypto",
    "errors",
    "federate",
    "heuristic",
    "learn",
    "ledger",
    "models",
    "noise",
    "query",
    "record",
    "report",
    "synth",
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
    "assert_below": "discreet.report.gate",
    "connect": "discreet.query",
    "record": "discreet.core",
    "user": "discreet.core",
    "verdict": "discreet.audit",
}
_PACKAGES = (
    "accounting",
    "attack",
    "audit",
    "charts",
    "core",
    "crypto",
    "errors",
    "federate",
    "heuristic",
    "learn",
    "ledger",
    "models",
    "noise",
    "query",
    "report",
    "synth",
)


def __getattr__(name: str) -> Any:
    from importlib import import_module

    if name in _PACKAGES:
        return import_module(f"discreet.{name}")
    if name in _HOME:
        return getattr(import_module(_HOME[name]), name)
    raise AttributeError(f"discreet has no {name!r}; it has {', '.join(__all__)}.")


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])


_CARDS = (  # what a notebook shows as a card, by module and class: nothing is imported until one is shown
    ("discreet.core.release", "Release"),
    ("discreet.core.evidence", "Evidence"),
    ("discreet.accounting.curve", "TradeOff"),
    ("discreet.ledger.ledger", "Ledger"),
)


def load_ipython_extension(shell: Any) -> None:
    """Show releases, evidence, curves and ledgers as cards; runs by itself where discreet is imported in a notebook."""
    for module, name in _CARDS:
        shell.display_formatter.formatters["text/html"].for_type_by_name(module, name, _card)


def _card(value: Any) -> str:
    from discreet.charts import card

    return card(value)


if "IPython" in sys.modules and (_shell := sys.modules["IPython"].get_ipython()) is not None:
    load_ipython_extension(_shell)
