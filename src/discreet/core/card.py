"""Small static cards for notebooks: inline SVG, no script, everything escaped."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from discreet.core import check, svg
from discreet.core.curve import Curve, curve_of
from discreet.core.event import NonPrivate
from discreet.core.figures import percent_down, percent_up, rate, up
from discreet.errors import DiscreetError

if TYPE_CHECKING:
    from discreet.core.claim import Claim
    from discreet.core.evidence import Evidence
    from discreet.core.release import Release

FEWEST, FAINTEST = 20, 4  # non-members above a threshold before a curve is drawn firmly, and before it is drawn at all
_RATES = (0.001, 0.01)


def curve_card(curve: Curve, title: str) -> str:
    """The card of a trade-off curve: its plot and the numbers most often read off it."""
    plot = svg.tradeoff_plot([ceiling_line(curve, "the ceiling")], title=title, description=_told(curve))
    return _card(title, _curve_facts(curve), plot)


def evidence_card(evidence: Evidence) -> str:
    """The card of one attack: its ROC curve and how the worlds were drawn."""
    line = attack_line(evidence, evidence.attack)
    title = f"Attack {evidence.attack}"
    return _card(
        title, _evidence_facts(evidence), svg.tradeoff_plot([line], title=title, description=f"The ROC curve of {evidence!r}.")
    )


def release_card(release: Release[Any]) -> str:
    """The card of a release: what was released, its ceilings and its floors, on one plot."""
    from discreet.core.release import Elsewhere

    value = (
        f"a {release.value.type}, beside this document" if isinstance(release.value, Elsewhere) else check.shown(release.value)
    )
    facts: list[tuple[str, str]] = [("made from", release.source), ("value", value)]
    if release.entry:
        facts.append(("paid by", ", ".join(release.entries)))
    lines = []
    for claim in release.claims:
        facts.append(("claim", f"{_event_text(claim)}; {claim.game.unit}; seen: {', '.join(sorted(claim.game.view))}"))
        curve = _curve_or_none(claim)
        if curve is not None:
            facts += _curve_facts(curve)
            lines.append(ceiling_line(curve, f"ceiling of {claim.event.kind}"))
    for evidence in release.evidence:
        facts += _evidence_facts(evidence)
        lines.append(attack_line(evidence, evidence.attack))
    title = f"Release from {release.source}"
    told = "; ".join(f"{name}: {text}" for name, text in facts)
    return _card(title, facts, svg.tradeoff_plot(lines, title=title, description=told) if lines else "")


def ceiling_line(curve: Curve, label: str, levels: list[float] | None = None) -> svg.Line:
    """The most any test can reach, at every false-positive rate."""
    levels = svg.levels() if levels is None else levels
    many = getattr(curve, "powers", None)
    powers = many(levels) if many is not None else [curve.power(level) for level in levels]
    return svg.Line(label=label, role="ceiling", points=list(zip(levels, powers, strict=True)))


def attack_line(evidence: Evidence, label: str, role: str = "floor") -> svg.Line:
    """The ROC curve of an attack, between its points as a coin toss between two thresholds would reach it."""
    false, true = roc(evidence.score, evidence.inside)
    outside = int((~evidence.inside).sum())
    grid = [level for level in svg.levels() if level * outside >= FAINTEST]
    points = list(zip(grid, np.interp(grid, false, true).tolist()))
    return svg.Line(label=label, role=role, points=points, resolved=FEWEST / outside if outside else 0.0)


def roc(score: NDArray[np.float64], inside: NDArray[np.bool_]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """False- and true-positive rates of "the score is at least t", for every t, from (0, 0) to (1, 1).

    >>> roc(np.array([3.0, 2.0, 1.0]), np.array([True, False, True]))[1].tolist()
    [0.0, 0.5, 0.5, 1.0]
    """
    order = np.argsort(-score, kind="stable")
    ranked = score[order]
    last = np.flatnonzero(np.append(ranked[1:] != ranked[:-1], True))
    true = np.cumsum(inside[order])[last]
    false = last + 1 - true
    return (
        np.concatenate(([0.0], false / max(int((~inside).sum()), 1))),
        np.concatenate(([0.0], true / max(int(inside.sum()), 1))),
    )


def _curve_facts(curve: Curve) -> list[tuple[str, str]]:
    epsilons = ", ".join(f"{up(curve.epsilon(delta))} at δ = {delta:g}" for delta in (1e-5, 1e-9))
    powers = ", ".join(f"{percent_up(curve.power(level))} at {rate(level)} false positives" for level in _RATES)
    belief = f"50 % becomes at most {percent_up(curve.posterior(0.5, 1e-6))}, except with probability 1e-6"
    return [("epsilon", epsilons), ("true positives", f"at most {powers}"), ("belief", belief)]


def _told(curve: Curve) -> str:
    return "; ".join(f"{name}: {text}" for name, text in _curve_facts(curve))


def _evidence_facts(evidence: Evidence) -> list[tuple[str, str]]:
    members = int(evidence.inside.sum())
    outside = len(evidence) - members
    false, true = roc(evidence.score, evidence.inside)
    reached = [
        f"{percent_down(float(np.interp(level, false, true)))} at {rate(level)} false positives"
        for level in _RATES
        if outside * level >= FEWEST and members
    ]
    runs = len(np.unique(evidence.run))
    drawn = f"{members} inside, {outside} outside, {runs} run{'s' if runs > 1 else ''}, {evidence.design}"
    reach = f"measured {', '.join(reached)}" if reached else "too few targets to tell, at 1 % false positives"
    return [(f"attack {evidence.attack}", drawn), ("true positives", reach)]


def _event_text(claim: Claim) -> str:
    text = repr(claim.event)
    return text if len(text) <= 160 else f"{text[:157]}..."


def _curve_or_none(claim: Claim) -> Curve | None:
    """The claim's curve, where one is known: a card never fails for the want of a theorem."""
    if isinstance(claim.event, NonPrivate):
        return None
    try:
        return curve_of(claim.event)
    except DiscreetError:
        return None


def _card(title: str, facts: Iterable[tuple[str, str]], plot: str) -> str:
    rows = "".join(
        f'<tr><th scope="row" style="text-align:left;font-weight:600;padding:2px 12px 2px 0;vertical-align:top;'
        f'white-space:nowrap">{escape(name)}</th><td style="text-align:left;padding:2px 0">{escape(text)}</td></tr>'
        for name, text in facts
    )
    return (
        '<div class="discreet-card" style="border:1px solid rgba(128,128,128,.35);border-radius:8px;padding:12px 16px;'
        'max-width:560px;font-family:system-ui,sans-serif;font-size:13px;line-height:1.4">'
        f'<div style="font-size:15px;font-weight:600;margin-bottom:6px">{escape(title)}</div>'
        f'<table style="border-collapse:collapse;margin:0 0 8px"><tbody>{rows}</tbody></table>{plot}</div>'
    )
