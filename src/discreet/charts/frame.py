"""The frame of a small picture as inline SVG: where values lie, round numbers along the axes, no script.

Colours are presentation attributes, so that a page's own style sheet may override them by class.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape

CEILING, FLOOR, OTHER = "#3b6fd4", "#12906f", "#8a5a00"
LOWEST = 1e-4  # logarithmic axes start here
_DECADES = (1e-4, 1e-3, 1e-2, 1e-1, 1.0)


@dataclass(frozen=True, slots=True)
class Frame:
    """Where values lie in pixels: `across` and `up` are the least and the largest value along each axis.

    A `log` frame shows rates from `LOWEST` to 1 on both axes.
    """

    across: tuple[float, float] = (LOWEST, 1.0)
    up: tuple[float, float] = (LOWEST, 1.0)
    width: int = 440
    height: int = 250
    left: int = 58
    top: int = 12
    log: bool = False

    @property
    def right(self) -> int:
        return self.width - (26 if self.log else 14)

    @property
    def bottom(self) -> int:
        return self.height - (52 if self.log else 44)

    def x(self, value: float) -> float:
        return self.left + (self.right - self.left) * self._share(value, *self.across)

    def y(self, value: float) -> float:
        return self.bottom - (self.bottom - self.top) * self._share(value, *self.up)

    def at(self, point: tuple[float, float]) -> str:
        """Where a pair of values lies, in pixels."""
        return f"{self.x(point[0]):.1f} {self.y(point[1]):.1f}"

    def path(self, points: Iterable[tuple[float, float]]) -> str:
        """The path through the points, without those that make no visible difference."""
        placed = [(self.x(x), self.y(y)) for x, y in points]
        return "M" + " L".join(f"{x:.1f} {y:.1f}" for x, y in thinned(placed))

    def axes(self, *, across: str, up: str) -> str:
        """Grid, numbers and names of both axes."""
        below = _DECADES if self.log else ticks(*self.across)
        beside = _DECADES if self.log else ticks(*self.up)
        parts = ['<g class="axes" stroke-width="1">']
        for value in below:
            parts.append(self._label(self.x(value), self.bottom + 17, self._number(value)))
            parts += [rule(f"M{self.x(value):.1f} {self.top} V{self.bottom}")] if self.log else []
        for value in beside:
            y = f"{self.y(value):.1f}"
            parts.append(rule(f"M{self.left} {y} H{self.right}"))
            parts.append(f'<text x="{self.left - 8}" y="{y}" dy="4" text-anchor="end">{self._number(value)}</text>')
        middle = (self.top + self.bottom) / 2
        parts.append(self._label((self.left + self.right) / 2, self.height - 8, across, ' class="name"'))
        parts.append(self._label(13, middle, up, f' class="name" transform="rotate(-90 13 {middle:.1f})"') + "</g>")
        return "".join(parts)

    def _label(self, x: float, y: float, text: str, more: str = "") -> str:
        return f'<text{more} x="{x:.1f}" y="{y:.1f}" text-anchor="middle">{escape(text)}</text>'

    def _number(self, value: float) -> str:
        return f"{value * 100:g} %" if self.log else number(value)

    def _share(self, value: float, low: float, high: float) -> float:
        if self.log:
            value, low, high = math.log10(max(value, low)), math.log10(low), math.log10(high)
        return min(max((value - low) / (high - low), 0.0), 1.0) if high > low else 0.5


def picture(
    body: str, *, kind: str, size: tuple[int, int], title: str, description: str, widest: float | None = 1.0
) -> str:  # fmt: skip
    """The SVG around `body`. `description` is what a screen reader says instead of it.

    `widest` is how far it may be enlarged. None leaves the size to the page's style sheet, for pages that refuse inline style.
    """
    width, height = size
    style = "" if widest is None else f' style="max-width:{round(width * widest)}px;width:100%;height:auto"'
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" class="{kind}" viewBox="0 0 {width} {height}" role="img" '
        f'aria-label="{escape(title)}" font-family="system-ui, sans-serif" font-size="12" fill="currentColor"{style}>'
        f"<title>{escape(title)}</title><desc>{escape(description)}</desc>{body}</svg>"
    )


def on_paper(svg: str, paper: str = "#ffffff") -> str:
    """The picture with a colour under it, for a file of its own."""
    head, _, rest = svg.partition("</desc>")
    width, height = svg.partition('viewBox="0 0 ')[2].partition('"')[0].split()
    return f'{head}</desc><rect width="{width}" height="{height}" fill="{escape(paper)}"/>{rest}'


def line(path: str, kind: str, paint: str, width: float = 2.4, dash: str = "") -> str:
    """A drawn line; `kind` is its class."""
    pattern = f' stroke-dasharray="{dash}"' if dash else ""
    return (
        f'<path class="line {kind}" d="{path}" fill="none" stroke="{paint}" stroke-width="{width}" stroke-linejoin="round"'
        f' stroke-linecap="round"{pattern}/>'
    )


def swatch(kind: str, paint: str, dash: str = "") -> str:
    """A piece of a line for a legend outside the picture."""
    drawn = line("M1 4 H29", kind, paint, 2.6, dash)
    return f'<svg class="key" width="30" height="8" viewBox="0 0 30 8" aria-hidden="true">{drawn}</svg>'


def rule(path: str) -> str:
    """A line of the grid."""
    return f'<path class="rule" d="{path}" stroke="currentColor" stroke-opacity="0.14" fill="none"/>'


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
