"""How templates write numbers and times: a loss is never rounded down, what is left never up."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import datetime
from typing import Any

from discreet.figures import down, percent_down, percent_up, up


def when(text: str) -> str:
    """A time in UTC, to the minute."""
    try:
        return datetime.fromisoformat(text).strftime("%Y-%m-%d %H:%M")
    except ValueError:
        return text


def cell(value: Any) -> str:
    """A released value in a table."""
    if value is None:
        return "–"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return f"{value:,.0f}" if abs(value) >= 1e4 else f"{value:,.4g}"
    return str(value)


def part(value: float) -> str:
    """A part of a budget, which was rounded when it was worked out."""
    return f"{100 * value:.2f}".rstrip("0").rstrip(".") + " %"


def seconds(value: float) -> str:
    """A duration, roughly."""
    return f"{value:.0f} s" if value < 120 else f"{value / 60:.0f} min" if value < 7200 else f"{value / 3600:.1f} h"


_SAY_BOUNDS = re.compile(r"Say them, such as bounds=\{[^}]*\}, or clip it")
_GIVE = re.compile(r"\b(delta|groups|epsilon|rows|confidence|noise|method)=([\d.e+-]*\d|'\w+'|\"\w+\")")
_COMMAND = re.compile(r": discreet ledger \w+ (?:'[^']*'(?:\"'\"'[^']*')*|\S+?)(?: --ledger \S+?)?(?=[.;,]? |[.;,]?$)")


def in_the_browser(message: str) -> str:
    """A message of the library for people who fill in a form, and write neither Python nor commands.

    >>> in_the_browser("Lower epsilon to 0.3, or ask its owner to raise the budget: discreet ledger show people")
    'Lower epsilon to 0.3, or ask its owner to raise the budget'
    >>> in_the_browser("Gaussian noise needs a delta, such as delta=1e-6.")
    'Gaussian noise needs a delta, such as delta 1e-6.'
    """
    told = _SAY_BOUNDS.sub("An owner can state them in the schema; or clip it in the question", message)
    return _GIVE.sub(r"\1 \2", _COMMAND.sub("", told))


FILTERS: dict[str, Callable[..., str]] = {
    "up": up, "down": down, "percent_up": percent_up, "percent_down": percent_down,
    "part": part, "when": when, "cell": cell, "seconds": seconds,
}  # fmt: skip
