"""One small plot, as inline SVG: true against false positives, both on a log scale, no script.

The ceiling of a claim and the ROC curve of an attack are points of the same trade-off, so they share this one picture.
Colours are presentation attributes, so a page's own style sheet may override them by class.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape

LOWEST = 1e-4  # both axes start here
_DECADES = (1e-4, 1e-3, 1e-2, 1e-1, 1.0)
_LEFT, _TOP, _RIGHT, _BOTTOM = 66, 14, 26, 52
_COLOURS = {"ceiling": "#3b6fd4", "floor": "#12906f", "broken": "#d9541e", "chance": "#8a8a8a"}
_PLACES = {  # further lines of a role, told apart by colour and by dashes
    "floor": ("#12906f", "#8a5a00", "#8b3fb0", "#0b7a9e", "#a3325e", "#5d6b12"),
    "broken": ("#d9541e", "#b3261e", "#c2410c", "#9a3412"),
    "ceiling": ("#3b6fd4", "#1d3f91", "#5b3fd4", "#2b7fd4"),
}
_DASHES = ("", "7 3", "2 3", "9 3 2 3", "12 4", "4 2 1 2")


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """One curve of the plot: pairs of false- and true-positive rate, lowest first.

    `role` is `ceiling`, `floor` (an attack), `broken` (an attack that went through a ceiling) or `chance`. What lies
    below the rate `resolved` rests on too few samples and is drawn faintly. `band` says between which true-positive rates
    the curve may lie: triples of a false-positive rate, the lower and the upper end. `place` tells several lines of one role
    apart: each place has its own colour and dashes.
    """

    label: str
    role: str
    points: Sequence[tuple[float, float]]
    resolved: float = 0.0
    band: Sequence[tuple[float, float, float]] = ()
    place: int = 0


def levels(count: int = 121) -> list[float]:
    """False-positive rates from the lowest to 1, evenly spaced on the log scale.

    >>> levels(3)
    [0.0001, 0.01, 1.0]
    """
    return [10 ** (math.log10(LOWEST) * (1 - step / (count - 1))) for step in range(count)]


def colour(line: Line) -> str:
    """The colour of a line, by its role and its place among the lines of that role."""
    several = _PLACES.get(line.role, (_COLOURS[line.role],))
    return several[line.place % len(several)]


def dashes(line: Line) -> str:
    """The dashes of a line, empty where it is drawn through."""
    return "4 4" if line.role == "chance" else _DASHES[line.place % len(_DASHES)]


def tradeoff_plot(
    lines: Iterable[Line], *, title: str, description: str, width: int = 520, height: int = 430, paper: str | None = None,
    legend: bool = True, note: tuple[str, str] = ("No attack reaches up here,", "if the claim is true."),
) -> str:  # fmt: skip
    """The picture: `lines` over the diagonal of blind guessing. `description` is what a screen reader says instead.

    `paper` is a colour to lie under it, for a picture that stands alone in a file. Without `legend` the page says which line
    is which. `note` says what lies above a ceiling.
    """
    frame = _Frame(width, height)
    drawn = list(lines)
    chance = Line(label="guessing blindly", role="chance", points=[(LOWEST, LOWEST), (1.0, 1.0)])
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" class="tradeoff" viewBox="0 0 {width} {height}" role="img" '
        f'aria-label="{escape(title)}" font-family="system-ui, sans-serif" font-size="12" fill="currentColor" '
        f'style="max-width:{width}px;width:100%;height:auto">',
        f"<title>{escape(title)}</title>",
        f"<desc>{escape(description)}</desc>",
        f'<rect width="{width}" height="{height}" fill="{escape(paper)}"/>' if paper else "",
        *(_region(frame, line) for line in drawn if line.role == "ceiling"),
        *(_band(frame, line) for line in drawn if line.band),
        _axes(frame),
        *(_note(frame, line, note) for line in drawn if line.role == "ceiling"),
        *(_curve(frame, line) for line in [chance, *drawn]),
        _legend(frame, [*drawn, chance]) if legend else "",
        "</svg>",
    ]
    return "".join(parts)


@dataclass(frozen=True, slots=True)
class _Frame:
    width: int
    height: int

    @property
    def right(self) -> int:
        return self.width - _RIGHT

    @property
    def bottom(self) -> int:
        return self.height - _BOTTOM

    def at(self, point: tuple[float, float]) -> str:
        """Where a pair of rates lies, in pixels."""
        return f"{self.x(point[0]):.1f} {self.y(point[1]):.1f}"

    def x(self, value: float) -> float:
        return _LEFT + (self.right - _LEFT) * _share(value)

    def y(self, value: float) -> float:
        return self.bottom - (self.bottom - _TOP) * _share(value)


def _share(value: float) -> float:
    return 1 - math.log10(min(max(value, LOWEST), 1.0)) / math.log10(LOWEST)


def _visible(line: Line) -> list[tuple[float, float]]:
    return [(x, y) for x, y in line.points if LOWEST <= x <= 1 and LOWEST <= y <= 1]


def _kind(line: Line) -> str:
    """The class of a line, for a page's own style sheet."""
    return f"{line.role} n{line.place % len(_DASHES)}" if line.place else line.role


def _region(frame: _Frame, line: Line) -> str:
    """What the claim allows: all that lies under its ceiling."""
    seen = _visible(line)
    if not seen:
        return ""
    corners = f"L{frame.at((1.0, LOWEST))} L{frame.at((LOWEST, LOWEST))} Z"
    path = " L".join(frame.at(point) for point in seen)
    return f'<path class="region" d="M{path} {corners}" fill="{colour(line)}" fill-opacity="0.09"/>'


def _band(frame: _Frame, line: Line) -> str:
    upper = [frame.at((x, high)) for x, _, high in line.band]
    lower = [frame.at((x, low)) for x, low, _ in reversed(line.band)]
    path = " L".join([*upper, *lower])
    return f'<path class="band {_kind(line)}" d="M{path} Z" fill="{colour(line)}" fill-opacity="0.22"/>'


def _note(frame: _Frame, line: Line, note: tuple[str, str]) -> str:
    """What the empty corner above the ceiling means, where the ceiling leaves room to say it."""
    if any(y > 0.05 for x, y in line.points if x <= 0.002):
        return ""
    place = f'x="{_LEFT + 12}" fill="{_COLOURS["ceiling"]}" font-style="italic"'
    return (
        f'<g class="note"><text {place} y="{_TOP + 24}">{escape(note[0])}</text>'
        f'<text {place} y="{_TOP + 41}">{escape(note[1])}</text></g>'
    )


def _curve(frame: _Frame, line: Line) -> str:
    width = {"ceiling": 2.6, "chance": 1.2}.get(line.role, 2.0)
    pattern = dashes(line)
    faint = [point for point in _visible(line) if point[0] <= line.resolved]
    firm = [point for point in _visible(line) if point[0] >= line.resolved]
    if faint and firm:
        faint.append(firm[0])
    head = f'<g class="line {_kind(line)}" data-role="{line.role}" data-label="{escape(line.label)}">'
    paint = colour(line)
    paths = [
        f'<path d="M{" L".join(frame.at(point) for point in points)}" fill="none" stroke="{paint}" stroke-width="{width}"'
        f' stroke-linejoin="round" stroke-linecap="round"{style}/>'
        for points, style in (
            (faint, ' stroke-dasharray="1 5"'),
            (firm, f' stroke-dasharray="{pattern}"' if pattern else ""),
        )
        if len(points) > 1
    ]
    return f"{head}<title>{escape(line.label)}</title>{''.join(paths)}</g>"


def _axes(frame: _Frame) -> str:
    parts = ['<g class="axes" stroke-width="1">']
    for value in _DECADES:
        x, y, label = f"{frame.x(value):.1f}", f"{frame.y(value):.1f}", f"{value * 100:g} %"
        parts.append(
            f'<path d="M{x} {_TOP} V{frame.bottom} M{_LEFT} {y} H{frame.right}" stroke="currentColor" stroke-opacity="0.14"/>'
            f'<text x="{x}" y="{frame.bottom + 18}" text-anchor="middle">{label}</text>'
            f'<text x="{_LEFT - 8}" y="{y}" dy="4" text-anchor="end">{label}</text>'
        )
    middle_x, middle_y = (_LEFT + frame.right) / 2, (_TOP + frame.bottom) / 2
    parts.append(
        f'<text x="{middle_x:.0f}" y="{frame.height - 10}" text-anchor="middle" fill-opacity="0.75">false positives: '
        "says “inside”, was not</text>"
        f'<text x="14" y="{middle_y:.0f}" text-anchor="middle" fill-opacity="0.75" transform="rotate(-90 14 {middle_y:.0f})">'
        "true positives: says “inside”, was</text></g>"
    )
    return "".join(parts)


def _legend(frame: _Frame, lines: Sequence[Line]) -> str:
    """Below the diagonal nothing is ever drawn, so the legend stands there."""
    parts = ['<g class="legend">']
    for place, line in enumerate(reversed(lines)):
        y = frame.bottom - 14 - 19 * place
        pattern = f' stroke-dasharray="{dashes(line)}"' if dashes(line) else ""
        parts.append(
            f'<path class="line {_kind(line)}" d="M{frame.right - 32} {y - 4} H{frame.right - 8}" '
            f'stroke="{colour(line)}" stroke-width="2.6"{pattern}/>'
            f'<text x="{frame.right - 40}" y="{y}" text-anchor="end">{escape(line.label)}</text>'
        )
    return "".join([*parts, "</g>"])
