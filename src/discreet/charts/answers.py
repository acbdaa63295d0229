"""Answers with their intervals, one line for each group."""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape
from typing import Any

from discreet.charts.frame import FLOOR, Frame, picture, rule, ticks

_LINE = 26  # pixels


def intervals(labels: Sequence[str], values: Sequence[Any], low: Sequence[Any], high: Sequence[Any], title: str) -> str:
    """One number for each group, as a dot on its interval; empty where no number is finite. The page's style sheet sizes it.

    >>> intervals(["A"], [float("nan")], [0.0], [1.0], "n")
    ''
    """
    rows = [(str(name), v, a, b) for name, v, a, b in zip(labels, values, low, high) if v is not None and math.isfinite(v)]
    if not rows:
        return ""
    ends = [float(x) for _, *three in rows for x in three if x is not None and math.isfinite(x)]
    least = min(0.0, *ends)
    most = max(ends) if max(ends) > least else least + 1
    frame = Frame((least, most), width=560, height=_LINE * len(rows) + 34, left=130)
    body = "".join(
        rule(f"M{frame.x(tick):.1f} 6 V{frame.height - 26}")
        + f'<text class="tick" x="{frame.x(tick):.1f}" y="{frame.height - 8}" text-anchor="middle">{tick:,.6g}</text>'
        for tick in ticks(least, most)
    )
    body += "".join(_whisker(frame, _LINE * place + 20, *row) for place, row in enumerate(rows))
    described = "; ".join(f"{name} {v:,.4g}" for name, v, _, _ in rows[:20])
    size = frame.width, frame.height
    return picture(body, kind="intervals", size=size, title=f"{title}: {described}", description=described, widest=None)


def _whisker(frame: Frame, y: int, name: str, value: float, low: float | None, high: float | None) -> str:
    label = name if len(name) <= 18 else f"{name[:17]}…"
    ends = ["-∞" if low is None else f"{low:,.6g}", "∞" if high is None else f"{high:,.6g}"]
    a, b = (frame.x(end) for end in (frame.across[0] if low is None else low, frame.across[1] if high is None else high))
    return (
        f"<g><title>{escape(f'{name}: {value:,.6g}, between {ends[0]} and {ends[1]}')}</title>"
        f'<text x="{frame.left - 12}" y="{y + 4}" text-anchor="end">{escape(label)}</text>'
        f'<path class="whisker" d="M{a:.1f} {y} H{b:.1f} M{a:.1f} {y - 6} v12 M{b:.1f} {y - 6} v12" stroke="{FLOOR}"/>'
        f'<circle class="dot" cx="{frame.x(value):.1f}" cy="{y}" r="3" fill="{FLOOR}"/></g>'
    )
