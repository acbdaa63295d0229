"""One plot of lines against a number on a log scale, as a small SVG."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from html import escape

COLOURS = ("#1f6feb", "#c2410c", "#15803d", "#7c3aed", "#555555")
LEFT, RIGHT, TOP, BOTTOM = 56, 480, 34, 300


def plot(
    title: str,
    across: str,
    lines: Mapping[str, Sequence[tuple[float, float]]],
    levels: Mapping[str, float],
    low: float,
    high: float,
) -> str:
    """`lines` are points (x, y) by name; `levels` are dashed horizontal lines."""
    xs = sorted({x for points in lines.values() for x, _ in points})
    first, last = math.log(xs[0]), math.log(xs[-1])

    def at(x: float, y: float) -> tuple[float, float]:
        share = (math.log(x) - first) / (last - first)
        return LEFT + (RIGHT - LEFT) * share, BOTTOM - (BOTTOM - TOP) * (min(max(y, low), high) - low) / (high - low)

    rows = len(lines) + len(levels)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 520 {BOTTOM + 52 + 17 * rows}" role="img" '
        f'font-family="system-ui, sans-serif" font-size="12" fill="#555"><title>{escape(title)}</title>',
        f'<text x="8" y="16">{escape(title)}</text>',
    ]
    for step in range(6):
        value = low + (high - low) * step / 5
        _, y = at(xs[0], value)
        parts.append(f'<path d="M{LEFT} {y:.1f} H{RIGHT}" stroke="#999" stroke-opacity="0.3"/>')
        parts.append(f'<text x="{LEFT - 6}" y="{y:.1f}" dy="4" text-anchor="end">{value:.3g}</text>')
    for x in xs:
        parts.append(f'<text x="{at(x, low)[0]:.1f}" y="{BOTTOM + 17}" text-anchor="middle">{x:g}</text>')
    parts.append(f'<text x="{(LEFT + RIGHT) / 2:.0f}" y="{BOTTOM + 34}" text-anchor="middle">{escape(across)}</text>')
    for place, (name, points) in enumerate(
        [*lines.items(), *((name, [(xs[0], y), (xs[-1], y)]) for name, y in levels.items())]
    ):
        colour, dash = COLOURS[place % len(COLOURS)], ' stroke-dasharray="4 4"' if place >= len(lines) else ""
        path = " L".join("{:.1f} {:.1f}".format(*at(x, y)) for x, y in points)
        y = BOTTOM + 52 + 17 * place
        for drawn in (f"M{path}", f"M{LEFT} {y - 4} h24"):
            parts.append(f'<path d="{drawn}" fill="none" stroke="{colour}" stroke-width="2"{dash}/>')
        parts.append(f'<text x="{LEFT + 32}" y="{y}">{escape(name)}</text>')
    return "".join(parts) + "</svg>\n"
