"""Plots: small SVGs, each with the same in words and as a table of numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from html import escape
from typing import TYPE_CHECKING, Any

import numpy as np

from discreet.audit.appraisal import SHOWN, Appraisal, appraise
from discreet.audit.judge import ceiling_of
from discreet.charts.curves import CHANCE, PLAIN, attack_line, ceiling_line, powers, tradeoff_plot
from discreet.charts.frame import CEILING, FLOOR, OTHER, Frame, line, number, on_paper, picture, rule, swatch
from discreet.core import Claim, Curve, Evidence, NonPrivate, Release
from discreet.errors import DiscreetError, InvalidValue
from discreet.figures import listed, percent_down, percent_up, rate, short, up

if TYPE_CHECKING:
    from discreet.ledger import Balance, Entry

_BINS = 32
_MOST_BARS = 30


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
        return f'<?xml version="1.0" encoding="UTF-8"?>\n{on_paper(self.svg)}\n'

    def _repr_html_(self) -> str:
        cells = "".join(f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in row)}</tr>" for row in self.rows)
        heads = "".join(f'<th scope="col">{escape(head)}</th>' for head in self.heads)
        return f"<figure>{self.svg}<table><thead><tr>{heads}</tr></thead><tbody>{cells}</tbody></table></figure>"


def roc(
    release: Release[Any], *, title: str | None = None, floors: Sequence[Appraisal] | None = None, legend: bool = True,
    curves: Any = None, most: int = 20, log: bool = True,
) -> Plot:  # fmt: skip
    """The plot: the ceilings of a release and the ROC of every attack on it with its band, log-log from 1e-4.

    With `log=False` both axes are linear: they show an attack's average success, and hide its success on a few records.

    `floors` are the appraisals of the evidence and `curves` those of the claims, where they are known already. Of many attacks
    the first `most` are drawn, those that went through a ceiling before all others.
    """
    ceilings = curves_of(release.claims_on_value) if curves is None else [item for item in curves if item is not None]
    several, at = len(ceilings) > 1, () if log else PLAIN
    lines = [
        ceiling_line(item, f"ceiling {place + 1}" if several else "ceiling: what is claimed", place, at)
        for place, item in enumerate(ceilings)
    ]
    judged = [appraise(item, release.claims) for item in release.evidence] if floors is None else floors
    chosen, names = _chosen(judged, most)
    for place, (item, name) in enumerate(zip(chosen, names)):
        same_role = sum(other.above == item.above for other in chosen[:place])
        lines.append(attack_line(item.evidence, name, "broken" if item.above else "floor", same_role, at))
    measured = [[attack_rate.told for attack_rate in item.rates] for item in chosen]
    heading = title or f"Ceiling and attacks: {short(release.source, 80)}"
    alt = f"On {'log scales' if log else 'plain axes'}: {_roc_in_words(ceilings, chosen, names, len(judged) - len(chosen))}"
    drawn = tradeoff_plot(lines, title=heading, description=alt, size=(440, 400), legend=legend, log=log)
    rows = [
        *((drawn_line.label, *(percent_up(item.power(level)) for level in SHOWN)) for drawn_line, item in zip(lines, ceilings)),
        *((f"attack {name}", *cells) for name, cells in zip(names, measured)),
    ]
    return Plot(
        name="roc" if log else "roc-plain", title=heading, svg=drawn, alt=alt, rows=tuple(rows),
        legend=tuple((swatch(item.kind, item.colour, item.dashes), item.label) for item in [*lines, CHANCE]),
        heads=("true positives at a false-positive rate of", *map(rate, SHOWN)),
    )  # fmt: skip


def tradeoff(curve: Curve, *, title: str = "The claim as a trade-off between two errors") -> Plot:
    """The same claim on plain axes: how often an attack must miss members, at least, for how often it accuses others."""
    levels = np.linspace(0, 1, 101).tolist()
    frame = Frame((0, 1), (0, 1), height=300)
    body = (
        frame.axes(across="accuses wrongly (false positives)", up="misses (1 - true positives)")
        + line(frame.path([(0, 1), (1, 0)]), "chance", CHANCE.colour, 1, CHANCE.dashes)
        + line(frame.path([(level, 1 - power) for level, power in zip(levels, powers(curve, levels))]), "ceiling", CEILING)
    )

    def missed(at: Sequence[float]) -> list[tuple[str, str]]:
        return [(rate(level), percent_down(1 - power)) for level, power in zip(at, powers(curve, at))]

    examples = ", ".join(f"{least} at {level} wrongly accused" for level, least in missed((0.01, 0.1, 0.5)))
    rows = tuple(missed((0.001, 0.01, 0.05, 0.1, 0.25, 0.5)))
    alt = f"At least so many members are missed: {examples}"
    return _plot("tradeoff", frame, body, title, alt, ("accuses wrongly", "misses at least"), rows, kind="tradeoff-errors")


def steps(spending: Sequence[Sequence[float]], *, title: str = "Epsilon against steps") -> Plot:
    """How epsilon grew while it was spent: pairs of a step and the epsilon by then."""
    points = sorted((float(step), float(epsilon)) for step, epsilon in spending)
    if not points:
        raise InvalidValue("spending holds no pairs of a step and an epsilon; there is nothing to draw.")
    frame = Frame((points[0][0], points[-1][0]), (0.0, max(epsilon for _, epsilon in points) * 1.05 or 1.0))
    body = frame.axes(across="steps", up="epsilon") + line(frame.path(points), "ceiling", CEILING)
    alt = f"After {number(points[-1][0])} steps epsilon is {up(points[-1][1])}, at the delta of the run."
    chosen = sorted({round(place) for place in np.linspace(0, len(points) - 1, min(len(points), 8))})
    rows = tuple((number(points[place][0]), up(points[place][1])) for place in chosen)
    return _plot("steps", frame, body, title, alt, ("steps", "epsilon"), rows)


def burn_down(balance: Balance, entries: Sequence[Entry], *, compact: bool = False) -> Plot:
    """The part of a budget that is not used yet, entry by entry. `compact` has neither axes nor inline style, for web pages."""
    from discreet.ledger.summary import sentence, unused_after

    unused = unused_after(balance, entries)
    count = max(len(unused) - 1, 1)
    corners = [(place + end, 100 * value) for place, value in enumerate(unused) for end in (0, 1) if place + end <= count]
    frame = Frame((0, count), (0, 100), width=560, height=130, left=14) if compact else Frame((0, count), (0, 100), 520, 160)
    path, below = frame.path(corners), f" L{frame.at((count, 0))} L{frame.at((0, 0))} Z"
    over = f" over the last {len(unused) - 1} entries" if len(unused) > 1 else ""
    rules = "".join(rule(f"M{frame.at((0, part))} H{frame.right}") for part in (0, 50, 100))
    body = rules if compact else frame.axes(across=f"unused part of the budget{over}", up="% unused")
    body += f'<path class="area" d="{path}{below}" fill="{CEILING}" fill-opacity="0.1"/>'
    body += f'<path class="left" d="{path}" fill="none" stroke="{CEILING}" stroke-width="2"/>'
    title, alt, widest = f"Budget of {short(balance.source, 80)}", sentence(balance), None if compact else 1.0
    size = frame.width, frame.bottom + 10 if compact else frame.height
    drawn = picture(body, kind="burn-down", size=size, title=title, description=alt, widest=widest)
    after = [("before them", unused[0]), *((entry.id, value) for entry, value in zip(entries, unused[1:]))]
    rows = tuple((name, percent_down(value)) for name, value in after[-12:])
    return Plot(name="burn_down", title=title, svg=drawn, alt=alt, heads=("after entry", "unused"), rows=rows)


def histogram(evidence: Evidence, *, title: str | None = None, legend: bool = True) -> Plot:
    """The scores of those inside and of the others: where they overlap, the attack guesses.

    Without `legend` the page says which is which.
    """
    heading = title or f"Scores of the attack {short(evidence.attack, 60)}"
    scores = np.clip(evidence.score, -1e300, 1e300)  # the range of larger scores overflows
    edges = _edges(scores)
    low, high = float(edges[0]), float(edges[-1])
    parts = [("inside", scores[evidence.inside]), ("not inside", scores[~evidence.inside])]
    shares = [np.histogram(np.clip(score, low, high), edges)[0] / max(len(score), 1) for _, score in parts]
    frame = Frame((low, high), (0.0, max(float(share.max()) for share in shares) * 1.05 or 1.0))
    body, keys = frame.axes(across="score: higher means “was inside”", up="share"), []
    looks = (("floor", FLOOR, ""), ("other", OTHER, "5 3"))
    for place, ((name, _), share, (kind, paint, dash)) in enumerate(zip(parts, shares, looks)):
        corners = [(float(edges[k + end]), float(value)) for k, value in enumerate(share) for end in (0, 1)]
        path = frame.path([(low, 0.0), *corners, (high, 0.0)])
        body += f'<path class="band {kind}" d="{path} Z" fill="{paint}" fill-opacity="0.16"/>'
        body += line(path, kind, paint, 1.6, dash)
        keys.append((swatch(kind, paint, dash), name))
        if legend:
            y = frame.top + 6 + 17 * place
            body += line(f"M{frame.right - 28} {y} H{frame.right - 4}", kind, paint, 2.4, dash)
            body += f'<text x="{frame.right - 36}" y="{y + 4}" text-anchor="end">{name}</text>'
    medians = [_three_digits(float(np.median(score)) if len(score) else float("nan")) for _, score in parts]
    alt = f"Half of those inside score at least {medians[0]}, half of the others at least {medians[1]}."
    quantiles = (0.05, 0.25, 0.5, 0.75, 0.95)
    rows = tuple(
        (name, *(_three_digits(float(value)) for value in np.quantile(score, quantiles))) for name, score in parts if len(score)
    )
    heads = ("score at the quantile", *map(rate, quantiles))
    return replace(_plot("histogram", frame, body, heading, alt, heads, rows), legend=tuple(keys))


def _edges(scores: Any) -> Any:
    """Where the bins of a histogram end; the outermost hold what lies beyond."""
    low, high = (float(value) for value in np.quantile(scores, [0.005, 0.995]))
    if not high > low:
        spread = max(abs(low) * 1e-6, 0.5)
        low, high = low - spread, high + spread
    edges = np.linspace(low, high, _BINS + 1)
    if np.all(np.diff(edges) > 0):
        return edges
    return np.linspace(float(scores.min() - 1), float(scores.max() + 1), 3)  # too close or too large for floats to separate


def marginals(errors: Mapping[str, float], *, title: str = "How far each marginal is off") -> Plot:
    """The error of each column as a bar, worst first."""
    ordered = sorted(errors.items(), key=lambda item: (-item[1], item[0]))
    if not ordered:
        raise InvalidValue("errors holds no columns; there is nothing to draw.")
    drawn = ordered[:_MOST_BARS]
    most = max(drawn[0][1], 1e-12)
    frame = Frame((0.0, most * 1.02), (0.0, float(len(drawn))), height=56 + 18 * len(drawn), left=150)
    body = ""
    for place, (name, error) in enumerate(drawn):
        y, wide = frame.y(len(drawn) - place), max(frame.x(error) - frame.left, 0.5)
        body += (
            f'<rect class="bar" x="{frame.left}" y="{y + 3:.1f}" width="{wide:.1f}" height="12" fill="{FLOOR}"/>'
            f'<text x="{frame.left - 8}" y="{y + 13:.1f}" text-anchor="end">{escape(short(name, 22))}</text>'
        )
    marks = [(frame.x(value), frame.bottom + 17, number(float(f"{value:.2g}"))) for value in (0.0, most / 2, most)]
    for x, height, text in [*marks, ((frame.left + frame.right) / 2, frame.height - 8, "error")]:
        body += f'<text x="{x:.1f}" y="{height}" text-anchor="middle">{text}</text>'
    median = up(float(np.median([error for _, error in ordered])))
    largest = f"The largest error is {up(drawn[0][1])}, of {short(drawn[0][0], 60)}"
    alt = f"{largest}; the median is {median}, over {len(ordered)} columns."
    rows = tuple((short(name, 60), up(error)) for name, error in drawn)
    return _plot("marginals", frame, body, title, alt, ("column", "error"), rows)


def all_plots(release: Release[Any], **roc_options: Any) -> list[Plot]:
    """Every plot that a release has something for; without its budget, which the ledger knows."""
    facts = release.facts
    drawn = [roc(release, **roc_options)]
    drawn += [tradeoff(item) for item in curves_of(release.claims)[:1]]
    drawn += [steps(facts["spending"])] if facts.get("spending") else []
    drawn += [replace(histogram(item), name=f"histogram-{place + 1}") for place, item in enumerate(release.evidence[:20])]
    drawn += [marginals(facts["marginal_errors"])] if facts.get("marginal_errors") else []
    return drawn


def curves_of(claims: Sequence[Claim]) -> list[Curve]:
    """The curves of claims, each event once; those that no theorem covers are left out."""
    curves: list[Curve] = []
    for event in dict.fromkeys(claim.event for claim in claims if not isinstance(claim.event, NonPrivate)):
        with suppress(DiscreetError):
            curves.append(ceiling_of(event))
    return curves


def _plot(
    name: str, frame: Frame, body: str, title: str, alt: str, heads: tuple[str, ...], rows: tuple[tuple[str, ...], ...],
    kind: str | None = None,
) -> Plot:  # fmt: skip
    size = frame.width, frame.height
    drawn = picture(body, kind=f"chart {kind or name}", size=size, title=title, description=alt, widest=1.25)
    return Plot(name=name, title=title, svg=drawn, alt=alt, heads=heads, rows=rows)


def _chosen(floors: Sequence[Appraisal], most: int) -> tuple[list[Appraisal], list[str]]:
    """Which attacks are drawn, and under which names."""
    plain = [short(item.evidence.attack, 40) for item in floors]
    names = [name if plain.count(name) == 1 else f"{name} ({plain[:k].count(name) + 1})" for k, name in enumerate(plain)]
    places = sorted(sorted(range(len(floors)), key=lambda place: not floors[place].above)[:most])
    return [floors[place] for place in places], [names[place] for place in places]


def _roc_in_words(ceilings: Sequence[Curve], floors: Sequence[Appraisal], names: Sequence[str], others: int) -> str:
    parts = [
        f"the claim allows at most {percent_up(item.power(0.001))} true positives at 0.1 % false positives and "
        f"{percent_up(item.power(0.01))} at 1 %"
        for item in ceilings[:3]
    ] or ["there is no ceiling"]
    for name, item in list(zip(names, floors))[:8]:
        parts.append(f"attack {name} reaches {listed(f'{item.at(level).told} at {rate(level)}' for level in (0.001, 0.01))}")
    omitted = len(names) + others - min(len(names), 8)
    more = f"; and {omitted} more attacks" if omitted else "" if names else "; no attack is drawn"
    return f"{'; '.join(parts)}{more}."


def _three_digits(value: float) -> str:
    return number(float(f"{value:.3g}"))
