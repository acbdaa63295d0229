"""The plots of a report: our own small SVGs, each with the same in words and as a table of numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from html import escape
from typing import TYPE_CHECKING, Any

import numpy as np

from discreet.audit.rates import ENOUGH
from discreet.core import Claim, Curve, Evidence, NonPrivate, Release, svg
from discreet.core.card import FEWEST, attack_line, ceiling_line
from discreet.core.card import roc as roc_of
from discreet.core.figures import percent_down, percent_up, rate, up
from discreet.errors import DiscreetError, InvalidValue
from discreet.report import text as words
from discreet.report.chart import TOP, Chart, number

if TYPE_CHECKING:
    from discreet.ledger import Balance, Entry

_LEVELS = (1e-4, 1e-3, 1e-2, 0.1, 0.5)
_POINTS = 81
TOO_FEW = "too few"
_BINS = 32
_MOST_BARS = 30
_CEILING, _FLOOR, _OTHER = "#3b6fd4", "#12906f", "#8a5a00"


@dataclass(frozen=True, slots=True, kw_only=True)
class Plot:
    """A picture: `svg` is drawn, `alt` says the same, `heads` and `rows` are its numbers. `legend` tells its lines apart."""

    name: str
    title: str
    svg: str
    alt: str
    heads: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    legend: tuple[tuple[str, str], ...] = ()  # a swatch as SVG, and what it stands for

    @property
    def table(self) -> tuple[tuple[str, ...], ...]:
        """The numbers of the picture, a line of heads first."""
        return (self.heads, *self.rows)

    def file(self) -> str:
        """The picture as a file of its own, on white paper."""
        head, _, rest = self.svg.partition("</desc>")
        width, height = self.svg.partition('viewBox="0 0 ')[2].partition('"')[0].split()
        paper = f'<rect width="{width}" height="{height}" fill="#ffffff"/>'
        return f'<?xml version="1.0" encoding="UTF-8"?>\n{head}</desc>{paper}{rest}\n'

    def _repr_html_(self) -> str:
        cells = "".join(f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in row)}</tr>" for row in self.rows)
        heads = "".join(f'<th scope="col">{escape(head)}</th>' for head in self.heads)
        return f"<figure>{self.svg}<table><thead><tr>{heads}</tr></thead><tbody>{cells}</tbody></table></figure>"


def roc(
    release: Release[Any], *, title: str | None = None, broken: Sequence[bool] = (), legend: bool = True, curves: Any = None,
    most: int = 20,
) -> Plot:  # fmt: skip
    """The plot: the ceilings of a release and the ROC of every attack on it with its band, log-log from 1e-4.

    `broken` says for each piece of evidence whether it went through a ceiling; `curves` are those of the claims, where they are
    known already. Of many attacks the first `most` are drawn, those that went through a ceiling before all others.
    """
    ceilings = _ceilings(release.claims) if curves is None else [item for item in curves if item is not None]
    lines = [
        replace(
            _thin(ceiling_line(item, f"ceiling {place + 1}" if len(ceilings) > 1 else "ceiling: what is claimed")), place=place
        )
        for place, item in enumerate(ceilings)
    ]
    evidence, names, marks = _chosen(release.evidence, broken, most)
    for place, (item, name) in enumerate(zip(evidence, names)):
        role = "broken" if marks[place] else "floor"
        line = _thin(attack_line(item, name, role))
        lines.append(replace(line, band=band(item), place=sum(mark == marks[place] for mark in marks[:place])))
    heading = title or f"Ceiling and attacks: {words.short(release.source, 80)}"
    told = _roc_told(ceilings, evidence, names, len(release.evidence) - len(evidence))
    drawn = svg.tradeoff_plot(lines, title=heading, description=told, width=440, height=400, legend=legend)
    rows = [
        *((line.label, *(percent_up(item.power(level)) for level in _LEVELS)) for line, item in zip(lines, ceilings)),
        *((f"attack {name}", *_reached(item)) for item, name in zip(evidence, names)),
    ]
    keys = [*lines, svg.Line(label="guessing blindly", role="chance", points=())]
    return Plot(
        name="roc", title=heading, svg=drawn, alt=told, rows=tuple(rows),
        legend=tuple((_swatch(line), line.label) for line in keys),
        heads=("true positives at a false-positive rate of", *(rate(level) for level in _LEVELS)),
    )  # fmt: skip


def band(evidence: Evidence, alpha: float = 0.05) -> list[tuple[float, float, float]]:
    """Where an attack's true curve may lie: Clopper-Pearson intervals on both rates of every threshold.

    Triples of a false-positive rate, the least and the largest true-positive rate.
    """
    from discreet.audit.binomial import rate_ceiling, rate_floor

    false, true = roc_of(evidence.score, evidence.inside)
    members = int(evidence.inside.sum())
    others = len(evidence) - members
    grid = [level for level in svg.levels(_POINTS) if level * others >= FEWEST]
    if not grid or not members:
        return []
    if len(false) > 20_000:  # intervals at a subset of thresholds are as true as at all of them
        chosen = np.unique(np.searchsorted(false, [0.0, *np.geomspace(0.3 * svg.LOWEST, 1.0, 4_000)]).clip(0, len(false) - 1))
        false, true = false[chosen], true[chosen]
    alarms, hits = np.rint(false * others), np.rint(true * members)
    low = np.interp(grid, rate_ceiling(alarms, others, alpha / 2), rate_floor(hits, members, alpha / 2))
    high = np.interp(grid, rate_floor(alarms, others, alpha / 2), rate_ceiling(hits, members, alpha / 2))
    return list(zip(grid, low.tolist(), high.tolist()))


def tradeoff(curve: Curve, *, title: str = "The claim as a trade-off between two errors") -> Plot:
    """The same claim on plain axes: how often an attack must miss members, at least, for how often it accuses others."""
    levels = np.linspace(0, 1, 101).tolist()
    points = [(level, 1 - power) for level, power in ceiling_line(curve, title, levels).points]
    chart = Chart((0, 1), (0, 1), height=300)
    inside = (
        chart.axes(across="accuses wrongly (false positives)", up="misses (1 - true positives)")
        + f'<path class="line chance" d="{chart.path([(0, 1), (1, 0)])}" fill="none" stroke="#8a8a8a" stroke-dasharray="4 4"/>'
        + f'<path class="line ceiling" d="{chart.path(points)}" fill="none" stroke="{_CEILING}" stroke-width="2.4"/>'
    )
    told = "At least so many members are missed: " + ", ".join(
        f"{percent_down(1 - curve.power(level))} at {rate(level)} wrongly accused" for level in (0.01, 0.1, 0.5)
    )
    rows = tuple((rate(level), percent_down(1 - curve.power(level))) for level in (0.001, 0.01, 0.05, 0.1, 0.25, 0.5))
    drawn = chart.drawn(inside, name="tradeoff-errors", title=title, alt=told)
    return Plot(name="tradeoff", title=title, svg=drawn, alt=told, heads=("accuses wrongly", "misses at least"), rows=rows)


def steps(spending: Sequence[Sequence[float]], *, title: str = "Epsilon against steps") -> Plot:
    """How epsilon grew while it was spent: pairs of a step and the epsilon by then."""
    points = sorted((float(step), float(epsilon)) for step, epsilon in spending)
    if not points:
        raise InvalidValue("spending holds no pairs of a step and an epsilon; there is nothing to draw.")
    chart = Chart((points[0][0], points[-1][0]), (0.0, max(epsilon for _, epsilon in points) * 1.05 or 1.0))
    inside = chart.axes(across="steps", up="epsilon") + (
        f'<path class="line ceiling" d="{chart.path(points)}" fill="none" stroke="{_CEILING}" stroke-width="2.4"/>'
    )
    told = f"After {number(points[-1][0])} steps epsilon is {up(points[-1][1])}, at the delta of the run."
    chosen = sorted({round(place) for place in np.linspace(0, len(points) - 1, min(len(points), 8))})
    rows = tuple((number(points[place][0]), up(points[place][1])) for place in chosen)
    drawn = chart.drawn(inside, name="steps", title=title, alt=told)
    return Plot(name="steps", title=title, svg=drawn, alt=told, heads=("steps", "epsilon"), rows=rows)


def burn_down(balance: Balance, entries: Sequence[Entry]) -> Plot:
    """The part of a budget that is left, entry by entry: the ledger's own picture."""
    from discreet.ledger import card

    left = card.left_after(balance, entries)
    told = card.sentence(balance)
    after = [("before them", left[0]), *((entry.id, value) for entry, value in zip(entries, left[1:]))]
    rows = tuple((name, percent_down(value)) for name, value in after[-12:])
    title = f"Budget of {words.short(balance.source, 80)}"
    return Plot(
        name="burn_down", title=title, svg=card.burn_down(balance, left), alt=told, heads=("after entry", "left"), rows=rows
    )


def histogram(evidence: Evidence, *, title: str | None = None, legend: bool = True) -> Plot:
    """The scores of those inside and of the others: where they overlap, the attack guesses.

    Without `legend` the page says which is which.
    """
    heading = title or f"Scores of the attack {words.short(evidence.attack, 60)}"
    scores = np.clip(evidence.score, -1e300, 1e300)  # beyond, the width of a picture is no float any more
    low, high = (float(value) for value in np.quantile(scores, [0.005, 0.995]))
    if not high > low:
        spread = max(abs(low) * 1e-6, 0.5)
        low, high = low - spread, high + spread
    edges = np.linspace(low, high, _BINS + 1)
    if not np.all(np.diff(edges) > 0):  # scores so close together, or so large, that floats cannot part them
        low, high = (float(value) for value in (scores.min() - 1, scores.max() + 1))
        edges = np.linspace(low, high, 3)
    parts = [("inside", scores[evidence.inside]), ("not inside", scores[~evidence.inside])]
    shares = [np.histogram(np.clip(score, low, high), edges)[0] / max(len(score), 1) for _, score in parts]
    chart = Chart((low, high), (0.0, max(float(share.max()) for share in shares) * 1.05 or 1.0))
    inside = chart.axes(across="score: higher means “was inside”", up="share")
    keys = []
    for (name, _), share, paint, dash in zip(parts, shares, (_FLOOR, _OTHER), ("", "5 3")):
        steps_ = [point for k, value in enumerate(share) for point in ((edges[k], value), (edges[k + 1], value))]
        path = chart.path([(low, 0.0), *((float(x), float(y)) for x, y in steps_), (high, 0.0)])
        role = "floor" if name == "inside" else "other"
        inside += (
            f'<path class="band {role}" d="{path} Z" fill="{paint}" fill-opacity="0.16"/>'
            f'<path class="line {role}" d="{path}" fill="none" stroke="{paint}" stroke-width="1.6" stroke-dasharray="{dash}"/>'
        )
        keys.append((_key(role, paint, dash), name))
        y = TOP + 6 + 17 * (len(keys) - 1)
        inside += (
            f'<path class="line {role}" d="M{chart.right - 28} {y} H{chart.right - 4}" stroke="{paint}" stroke-width="2.4" '
            f'stroke-dasharray="{dash}"/><text x="{chart.right - 36}" y="{y + 4}" text-anchor="end">{name}</text>'
            if legend
            else ""
        )
    medians = [float(np.median(score)) if len(score) else float("nan") for _, score in parts]
    told = f"Half of those inside score at least {_short(medians[0])}, half of the others at least {_short(medians[1])}."
    quantiles = (0.05, 0.25, 0.5, 0.75, 0.95)
    rows = tuple(
        (name, *(_short(float(value)) for value in np.quantile(score, quantiles))) for name, score in parts if len(score)
    )
    return Plot(
        name="histogram", title=heading, svg=chart.drawn(inside, name="histogram", title=heading, alt=told), alt=told,
        heads=("score at the quantile", *(rate(each) for each in quantiles)), rows=rows, legend=tuple(keys),
    )  # fmt: skip


def marginals(errors: Mapping[str, float], *, title: str = "How far each marginal is off") -> Plot:
    """The error of each column, worst first."""
    ordered = sorted(errors.items(), key=lambda item: (-item[1], item[0]))
    if not ordered:
        raise InvalidValue("errors holds no columns; there is nothing to draw.")
    shown = ordered[:_MOST_BARS]
    most = max(shown[0][1], 1e-12)
    chart = Chart((0.0, most * 1.02), (0.0, float(len(shown))), height=TOP + 18 * len(shown) + 44, left=150)
    bars = []
    for place, (name, error) in enumerate(shown):
        y, wide = chart.y(len(shown) - place), max(chart.x(error) - chart.left, 0.5)
        bars.append(
            f'<rect class="bar" x="{chart.left}" y="{y + 3:.1f}" width="{wide:.1f}" height="12" fill="{_FLOOR}"/>'
            f'<text x="{chart.left - 8}" y="{y + 13:.1f}" text-anchor="end">{escape(words.short(name, 22))}</text>'
        )
    below = [(value, number(value)) for value in (0.0, most / 2, most)]
    marks = "".join(
        f'<text x="{chart.x(value):.1f}" y="{chart.bottom + 17}" text-anchor="middle">{number(float(f"{value:.2g}"))}</text>'
        for value, _ in below
    )
    name_of = (
        f'<text class="name" x="{(chart.left + chart.right) / 2:.0f}" y="{chart.height - 8}" text-anchor="middle">error</text>'
    )
    told = f"The largest error is {up(shown[0][1])}, of {words.short(shown[0][0], 60)}; the median is " + (
        f"{up(float(np.median([error for _, error in ordered])))}, over {len(ordered)} columns."
    )
    rows = tuple((words.short(name, 60), up(error)) for name, error in shown)
    drawn = chart.drawn("".join(bars) + marks + name_of, name="marginals", title=title, alt=told)
    return Plot(name="marginals", title=title, svg=drawn, alt=told, heads=("column", "error"), rows=rows)


def _ceilings(claims: Sequence[Claim]) -> list[Curve]:
    from discreet.accounting import curve

    found: list[Curve] = []
    for event in dict.fromkeys(claim.event for claim in claims if not isinstance(claim.event, NonPrivate)):
        with suppress(DiscreetError):
            found.append(curve(event))
    return found


def _thin(line: svg.Line) -> svg.Line:
    """Every other point is enough for the eye."""
    return replace(line, points=[*line.points[::2], *line.points[-1:]])


def _names(evidence: Sequence[Evidence]) -> list[str]:
    plain = [words.short(item.attack, 40) for item in evidence]
    return [name if plain.count(name) == 1 else f"{name} ({plain[:place].count(name) + 1})" for place, name in enumerate(plain)]


def _reached(evidence: Evidence) -> list[str]:
    false, true = roc_of(evidence.score, evidence.inside)
    others = int((~evidence.inside).sum())
    return [
        percent_down(float(np.interp(level, false, true))) if others * level >= ENOUGH and others < len(evidence) else TOO_FEW
        for level in _LEVELS
    ]


def _chosen(evidence: Sequence[Evidence], broken: Sequence[bool], most: int) -> tuple[list[Evidence], list[str], list[bool]]:
    """Which attacks are drawn, under which names, and whether each went through a ceiling."""
    marks = [*broken, *(False,) * (len(evidence) - len(broken))]
    names = _names(evidence)
    places = sorted(sorted(range(len(evidence)), key=lambda place: not marks[place])[:most])
    return [evidence[place] for place in places], [names[place] for place in places], [marks[place] for place in places]


def _roc_told(ceilings: Sequence[Curve], evidence: Sequence[Evidence], names: Sequence[str], others: int) -> str:
    told = [
        f"the claim allows at most {percent_up(item.power(0.001))} true positives at 0.1 % false positives and "
        f"{percent_up(item.power(0.01))} at 1 %"
        for item in ceilings[:3]
    ] or ["there is no ceiling"]
    for item, name in list(zip(evidence, names))[:8]:
        reached = [f"{hit} at {rate(level)}" for level, hit in zip(_LEVELS, _reached(item)) if level <= 0.01 and hit != TOO_FEW]
        told.append(f"attack {name} {'reaches ' + words.listed(reached) if reached else 'has too few samples to tell'}")
    left = len(evidence) + others - min(len(evidence), 8)
    more = f"; and {left} more attacks" if left else "" if evidence else "; no attack was run"
    return f"On log scales: {'; '.join(told)}{more}."


def _short(value: float) -> str:
    return number(float(f"{value:.3g}"))


def _swatch(line: svg.Line) -> str:
    kind = f"{line.role} n{line.place % 6}" if line.place else line.role
    return _key(kind, svg.colour(line), svg.dashes(line))


def _key(kind: str, paint: str, dash: str) -> str:
    pattern = f' stroke-dasharray="{dash}"' if dash else ""
    return (
        f'<svg class="key" width="30" height="8" viewBox="0 0 30 8" aria-hidden="true"><path class="line {kind}" d="M1 4 H29" '
        f'stroke="{paint}" stroke-width="2.6"{pattern}/></svg>'
    )


def all_plots(release: Release[Any], **roc_options: Any) -> list[Plot]:
    """Every plot that a release has something for; without its budget, which the ledger knows."""
    facts = release.facts
    made = [roc(release, **roc_options)]
    made += [tradeoff(item) for item in _ceilings(release.claims)[:1]]
    made += [steps(facts["spending"])] if facts.get("spending") else []
    made += [replace(histogram(item), name=f"histogram-{place + 1}") for place, item in enumerate(release.evidence[:20])]
    made += [marginals(facts["marginal_errors"])] if facts.get("marginal_errors") else []
    return made


__all__ = ["Plot", "all_plots", "band", "burn_down", "histogram", "marginals", "roc", "steps", "tradeoff"]
