"""A small chart with plain axes as inline SVG: a frame, round numbers along it, and what is drawn in between."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape

LEFT, TOP, RIGHT, BOTTOM = 58, 12, 14, 44


@dataclass(frozen=True, slots=True)
class Chart:
    """Where values lie in pixels: `across` and `up` are the least and the largest value along each axis."""

    across: tuple[float, float]
    up: tuple[float, float]
    width: int = 440
    height: int = 250
    left: int = LEFT

    @property
    def right(self) -> int:
        return self.width - RIGHT

    @property
    def bottom(self) -> int:
        return self.height - BOTTOM

    def x(self, value: float) -> float:
        return self.left + (self.right - self.left) * _share(value, *self.across)

    def y(self, value: float) -> float:
        return self.bottom - (self.bottom - TOP) * _share(value, *self.up)

    def path(self, points: Iterable[tuple[float, float]]) -> str:
        """The way through the points; those that add nothing to the eye are left out."""
        placed = [(self.x(x), self.y(y)) for x, y in points]
        return "M" + " L".join(f"{x:.1f} {y:.1f}" for x, y in thinned(placed))

    def axes(self, *, across: str, up: str, marks: Sequence[tuple[float, str]] | None = None) -> str:
        """Grid, numbers and names of both axes; `marks` replaces the numbers along the bottom."""
        below = [(value, number(value)) for value in ticks(*self.across)] if marks is None else marks
        parts = ['<g class="axes">']
        for value, told in below:
            parts.append(f'<text x="{self.x(value):.1f}" y="{self.bottom + 17}" text-anchor="middle">{escape(told)}</text>')
        for value in ticks(*self.up):
            y = self.y(value)
            parts.append(
                f'<path d="M{self.left} {y:.1f} H{self.right}" stroke="currentColor" stroke-opacity="0.14"/>'
                f'<text x="{self.left - 8}" y="{y:.1f}" dy="4" text-anchor="end">{number(value)}</text>'
            )
        middle, centre = (TOP + self.bottom) / 2, (self.left + self.right) / 2
        parts.append(
            f'<text class="name" x="{centre:.0f}" y="{self.height - 8}" text-anchor="middle">{escape(across)}</text>'
            f'<text class="name" x="13" y="{middle:.0f}" text-anchor="middle" transform="rotate(-90 13 {middle:.0f})">'
            f"{escape(up)}</text></g>"
        )
        return "".join(parts)

    def drawn(self, inside: str, *, name: str, title: str, alt: str) -> str:
        """The picture around what was drawn."""
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" class="chart {name}" viewBox="0 0 {self.width} {self.height}" role="img" '
            f'aria-label="{escape(title)}" font-family="system-ui, sans-serif" font-size="12" fill="currentColor" '
            f'style="max-width:{round(self.width * 1.25)}px;width:100%;height:auto"><title>{escape(title)}</title>'
            f"<desc>{escape(alt)}</desc>{inside}</svg>"
        )


def ticks(low: float, high: float, count: int = 5) -> list[float]:
    """Round numbers between two values.

    >>> ticks(0, 1)
    [0.0, 0.2, 0.4, 0.6, 0.8, 1.0]
    """
    if not high > low:
        return [low]
    raw = (high - low) / count
    power = 10.0 ** math.floor(math.log10(raw))
    step = next((nice * power for nice in (1, 2, 2.5, 5) if nice * power >= raw * 0.999), 10 * power)
    first = math.ceil(low / step - 1e-9)
    last = math.floor(high / step + 1e-9)
    return [0.0 if place == 0 else round(place * step, 12) for place in range(first, min(last, first + 20) + 1)]


def number(value: float) -> str:
    """A number along an axis.

    >>> number(1500.0), number(0.25), number(2e7)
    ('1500', '0.25', '2e7')
    """
    if value == 0 or value != value:
        return "0" if value == 0 else "unknown"
    if 1e-4 <= abs(value) < 1e6:
        return f"{value:.6g}"
    return f"{value:.3g}".replace("e+0", "e").replace("e-0", "e-").replace("e+", "e")


def thinned(points: Sequence[tuple[float, float]], off: float = 0.25) -> list[tuple[float, float]]:
    """The points of a line that can be seen: those that straight lines would miss by more than `off` pixels.

    Douglas and Peucker (1973), from the ends inwards.
    """
    if len(points) < 3:
        return list(points)
    keep = {0, len(points) - 1}
    todo = [(0, len(points) - 1)]
    while todo:
        first, last = todo.pop()
        far, place = off, -1
        (x0, y0), (x1, y1) = points[first], points[last]
        length = math.hypot(x1 - x0, y1 - y0)
        for between in range(first + 1, last):
            x, y = points[between]
            away = abs((x1 - x0) * (y0 - y) - (x0 - x) * (y1 - y0)) / length if length else math.hypot(x - x0, y - y0)
            if away > far:
                far, place = away, between
        if place > 0:
            keep.add(place)
            todo += [(first, place), (place, last)]
    return [points[place] for place in sorted(keep)]


def _share(value: float, low: float, high: float) -> float:
    return min(max((value - low) / (high - low), 0.0), 1.0) if high > low else 0.5
