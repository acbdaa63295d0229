"""How templates write numbers and times: a loss is never rounded down, what is left never up."""

from __future__ import annotations

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


FILTERS: dict[str, Callable[..., str]] = {
    "up": up, "down": down, "percent_up": percent_up, "percent_down": percent_down,
    "part": part, "when": when, "cell": cell, "seconds": seconds,
}  # fmt: skip
