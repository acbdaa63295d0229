"""The main picture: true against false positives, both on a log scale, or on plain axes.

The ceiling of a claim and the ROC curve of an attack are points of the same trade-off, so they share one picture. Every
measured rate and its band come from `discreet.audit.rates`, as the tables have them: only thresholds that exist count.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape

from discreet.audit.appraisal import CONFIDENCE
from discreet.audit.rates import ENOUGH, rates
from discreet.charts.frame import CEILING, LOWEST, Frame, line, picture
from discreet.core import Curve, Evidence

FAINTEST = 4  # false positives expected at a level before a curve is drawn there at all; from ENOUGH on it is drawn firmly
_COLOURS = {  # lines of one role differ in colour and dashes
    "ceiling": (CEILING, "#1d3f91", "#5b3fd4", "#2b7fd4"),
    "floor": ("#12906f", "#8a5a00", "#8b3fb0", "#0b7a9e", "#a3325e", "#5d6b12"),
    "broken": ("#d9541e", "#b3261e", "#c2410c", "#9a3412"),
    "chance": ("#8a8a8a",),
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
    points: Sequence[tuple[float, float]] = ()
    resolved: float = 0.0
    band: Sequence[tuple[float, float, float]] = ()
    place: int = 0

    @property
    def colour(self) -> str:
        return _COLOURS[self.role][self.place % len(_COLOURS[self.role])]

    @property
    def dashes(self) -> str:
        return "4 4" if self.role == "chance" else _DASHES[self.place % len(_DASHES)]

    @property
    def kind(self) -> str:
        """The class of a line, for a page's own style sheet."""
        return f"{self.role} n{self.place % len(_DASHES)}" if self.place else self.role

    def visible(self) -> list[tuple[float, float]]:
        return [(x, y) for x, y in self.points if LOWEST <= x <= 1 and LOWEST <= y <= 1]


CHANCE = Line(label="guessing blindly", role="chance", points=[(LOWEST, LOWEST), (1.0, 1.0)])


def levels(count: int = 61) -> list[float]:
    """False-positive rates from the lowest to 1, evenly spaced on the log scale.

    >>> levels(3)
    [0.0001, 0.01, 1.0]
    """
    return [10 ** (math.log10(LOWEST) * (1 - step / (count - 1))) for step in range(count)]


PLAIN = (0.01, 0.02, *(step / 25 for step in range(1, 26)))  # false-positive rates of a picture on plain axes


def ceiling_line(curve: Curve, label: str, place: int = 0, at: Sequence[float] = ()) -> Line:
    """The upper bound on the true-positive rate of any test, at every false-positive rate."""
    drawn = list(at or levels())
    return Line(label=label, role="ceiling", points=list(zip(drawn, powers(curve, drawn))), place=place)


def powers(curve: Curve, at: Sequence[float]) -> list[float]:
    """The power of a curve at many levels, at once where the curve can."""
    many = getattr(curve, "powers", None)
    return list(many(at)) if many is not None else [curve.power(level) for level in at]


def attack_line(evidence: Evidence, label: str, role: str = "floor", place: int = 0, at: Sequence[float] = ()) -> Line:
    """The ROC curve of an attack with its band, at levels that enough samples resolve."""
    roc, others, drawn = evidence.roc(), int((~evidence.inside).sum()), at or levels()
    points = [(level, roc.at(level)) for level in drawn if level * others >= FAINTEST]
    resolved = ENOUGH / others if others else 0.0
    return Line(label=label, role=role, points=points, resolved=resolved, band=band(evidence, drawn), place=place)


def band(evidence: Evidence, at: Sequence[float] = ()) -> list[tuple[float, float, float]]:
    """Where an attack's true curve may lie, with the intervals that tables show.

    Triples of a false-positive rate, the least and the largest true-positive rate.
    """
    others = int((~evidence.inside).sum())
    grid = [level for level in at or levels() if level * others >= FAINTEST and level < 1]
    measured = rates(evidence.score, evidence.inside, CONFIDENCE, grid) if others and others < len(evidence) else ()
    return [(interval.level, interval.low, interval.high) for interval in measured]


def tradeoff_plot(
    lines: Iterable[Line], *, title: str, description: str, size: tuple[int, int] = (520, 430), legend: bool = True,
    note: tuple[str, str] = ("No attack reaches up here,", "if the claim is true."), log: bool = True,
) -> str:  # fmt: skip
    """The picture: `lines` over the diagonal of blind guessing, on logarithmic or on plain axes.

    Without `legend` the page says which line is which. `note` says what lies above a ceiling.
    """
    span = (LOWEST if log else 0.0, 1.0)
    frame = Frame(across=span, up=span, width=size[0], height=size[1], left=66, top=14, log=log)
    drawn = list(lines)
    ceilings = [item for item in drawn if item.role == "ceiling"]
    parts = [
        *(_region(frame, item) for item in ceilings),
        *(_band(frame, item) for item in drawn if item.band),
        frame.axes(across="false positives: says “inside”, was not", up="true positives: says “inside”, was"),
        *(_note(frame, item, note) for item in ceilings),
        *(_curve(frame, item) for item in [CHANCE, *drawn]),
        _legend(frame, [*drawn, CHANCE]) if legend else "",
    ]
    return picture(
        "".join(parts), kind="tradeoff" if log else "tradeoff plain", size=size, title=title, description=description
    )


def _region(frame: Frame, item: Line) -> str:
    """What the claim allows: all that lies under its ceiling."""
    path = " L".join(frame.at(point) for point in [*item.visible(), (1.0, LOWEST), (LOWEST, LOWEST)])
    return f'<path class="region" d="M{path} Z" fill="{item.colour}" fill-opacity="0.09"/>' if item.visible() else ""


def _band(frame: Frame, item: Line) -> str:
    upper = [frame.at((x, high)) for x, _, high in item.band]
    lower = [frame.at((x, low)) for x, low, _ in reversed(item.band)]
    path = " L".join([*upper, *lower])
    return f'<path class="band {item.kind}" d="M{path} Z" fill="{item.colour}" fill-opacity="0.22"/>'


def _note(frame: Frame, item: Line, note: tuple[str, str]) -> str:
    """The note in the empty corner above the ceiling, where there is room for it."""
    if any(y > 0.05 for x, y in item.points if x <= 0.002):
        return ""
    place = f'x="{frame.left + 12}" fill="{CEILING}" font-style="italic"'
    texts = (f'<text {place} y="{frame.top + 24 + 17 * row}">{escape(text)}</text>' for row, text in enumerate(note))
    return f'<g class="note">{"".join(texts)}</g>'


def _curve(frame: Frame, item: Line) -> str:
    width = {"ceiling": 2.6, "chance": 1.2}.get(item.role, 2.0)
    faint = [point for point in item.visible() if point[0] <= item.resolved]
    firm = [point for point in item.visible() if point[0] >= item.resolved]
    faint += firm[:1] if faint else []
    paths = [
        line("M" + " L".join(frame.at(point) for point in points), item.kind, item.colour, width, dash)
        for points, dash in ((faint, "1 5"), (firm, item.dashes))
        if len(points) > 1
    ]
    head = f'<g class="line {item.kind}" data-role="{item.role}" data-label="{escape(item.label)}">'
    return f"{head}<title>{escape(item.label)}</title>{''.join(paths)}</g>"


def _legend(frame: Frame, lines: Sequence[Line]) -> str:
    """Nothing is ever drawn below the diagonal, so the legend is there."""
    parts = ['<g class="legend">']
    for place, item in enumerate(reversed(lines)):
        y = frame.bottom - 14 - 19 * place
        parts.append(line(f"M{frame.right - 32} {y - 4} H{frame.right - 8}", item.kind, item.colour, 2.6, item.dashes))
        parts.append(f'<text x="{frame.right - 40}" y="{y}" text-anchor="end">{escape(item.label)}</text>')
    return "".join([*parts, "</g>"])
