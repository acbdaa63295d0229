"""Small pictures for pages: no script and no inline style, colours by class, the same in words beside them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

from markupsafe import Markup

from discreet.ledger import Balance, Entry
from discreet.ledger.card import left_after, sentence

WIDTH, LEFT, LINE = 560, 130, 26  # pixels: of a picture, before its numbers, of one of its lines


def burn_down(found: Balance, entries: Sequence[Entry]) -> Markup:
    """The part of a budget that is left, entry by entry, as steps."""
    left = left_after(found, entries)
    high, top, side = 96, 6, 6
    count = max(len(left) - 1, 1)

    def at(place: float, value: float) -> str:
        return f"{side + (WIDTH - 2 * side) * place:.1f} {top + (high - 2 * top) * (1 - min(max(value, 0.0), 1.0)):.1f}"

    steps = f"M{at(0, left[0])}"
    for place, value in enumerate(left[1:], 1):
        steps += f" L{at(place / count, left[place - 1])} L{at(place / count, value)}"
    steps += f" L{at(1, left[-1])}"
    area = f"{steps} L{at(1, 0)} L{at(0, 0)} Z"
    rules = "".join(f'<path class="rule" d="M{at(0, value)} L{at(1, value)}"/>' for value in (0.0, 0.5, 1.0))
    return _svg("burn-down", WIDTH, high, f"Budget of {found.source}", sentence(found),
                f'{rules}<path class="area" d="{area}"/><path class="left" d="{steps}"/>')  # fmt: skip


def intervals(labels: Sequence[str], values: Sequence[Any], low: Sequence[Any], high: Sequence[Any], title: str) -> Markup:
    """One number for each group, as a dot on its interval."""
    rows = [(str(name), v, a, b) for name, v, a, b in zip(labels, values, low, high) if v is not None and math.isfinite(v)]
    if not rows:
        return Markup()
    ends = [float(x) for _, *three in rows for x in three if x is not None and math.isfinite(x)]
    least = min(0.0, *ends)
    scale = _Scale(least, max(ends) if max(ends) > least else least + 1)
    tall = LINE * len(rows) + 34
    parts = [
        f'<path class="rule" d="M{scale.at(tick)} 6 V{tall - 26}"/>'
        f'<text class="tick" x="{scale.at(tick)}" y="{tall - 8}" text-anchor="middle">{tick:,.6g}</text>'
        for tick in _ticks(scale.least, scale.most)
    ]
    parts += [_whisker(scale, LINE * place + 20, *row) for place, row in enumerate(rows)]
    told = "; ".join(f"{name} {v:,.4g}" for name, v, _, _ in rows[:20])
    return _svg("intervals", WIDTH, tall, title, told, "".join(parts))


@dataclass(frozen=True, slots=True)
class _Scale:
    least: float
    most: float

    def at(self, value: float) -> str:
        """Where a number lies from left to right, in pixels."""
        inside = min(max(value, self.least), self.most)
        return f"{LEFT + (WIDTH - 16 - LEFT) * (inside - self.least) / (self.most - self.least):.1f}"


def _whisker(scale: _Scale, y: int, name: str, value: float, low: float | None, high: float | None) -> str:
    short = name if len(name) <= 18 else f"{name[:17]}…"
    told = (
        f"{name}: {value:,.6g}, between {'-∞' if low is None else f'{low:,.6g}'} and {'∞' if high is None else f'{high:,.6g}'}"
    )
    a, b = scale.at(scale.least if low is None else low), scale.at(scale.most if high is None else high)
    return (
        f'<g><title>{escape(told)}</title><text x="{LEFT - 12}" y="{y + 4}" text-anchor="end">{escape(short)}</text>'
        f'<path class="whisker" d="M{a} {y} H{b} M{a} {y - 6} v12 M{b} {y - 6} v12"/>'
        f'<circle class="dot" cx="{scale.at(value)}" cy="{y}" r="3"/></g>'
    )


def _ticks(least: float, most: float) -> list[float]:
    step = 10 ** math.floor(math.log10((most - least) / 2))
    step = next(step * each for each in (1, 2, 5, 10) if (most - least) / (step * each) <= 5)
    first = math.ceil(least / step - 1e-9)
    return [step * each for each in range(first, math.floor(most / step + 1e-9) + 1)]


def _svg(kind: str, width: int, height: int, title: str, told: str, body: str) -> Markup:
    return Markup(
        f'<svg xmlns="http://www.w3.org/2000/svg" class="{kind}" viewBox="0 0 {width} {height}" role="img" '
        f'aria-label="{escape(title)}: {escape(told)}">{body}</svg>'
    )
