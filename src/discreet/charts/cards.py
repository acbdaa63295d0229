"""Cards for notebooks: what a value says, as a small table beside its picture. Inline SVG, no script, everything escaped."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from typing import TYPE_CHECKING, Any

from discreet.audit import Appraisal, appraise
from discreet.charts.curves import attack_line, ceiling_line, tradeoff_plot
from discreet.charts.plots import burn_down, curves_of
from discreet.core import Claim, Curve, Evidence, ExternalValue, Release, check
from discreet.core.curve import belief_exception
from discreet.errors import InvalidValue
from discreet.figures import percent_up, rate, up

if TYPE_CHECKING:
    from discreet.ledger import Balance, Entry, Ledger

_RATES = (0.001, 0.01)
_LISTED = 5  # charges below the picture of a budget
Rows = list[tuple[str, str]]


def card(value: Release[Any] | Evidence | Curve | Ledger, *, deltas: Sequence[float] = (1e-5, 1e-9)) -> str:
    """The HTML that a notebook shows for a release, an attack's evidence, a trade-off curve or a ledger.

    Epsilon is told at these `deltas`: name that of the budget first, where there is one.

    >>> from discreet.accounting import Gaussian, curve
    >>> "<svg" in card(curve(Gaussian(1.0)))
    True
    """
    if isinstance(value, Release):
        return _release(value, deltas)
    if isinstance(value, Evidence):
        title = f"Attack {value.attack}"
        return _card(title, _evidence_rows(appraise(value)), [attack_line(value, value.attack)], f"The ROC curve of {value!r}.")
    if isinstance(value, Curve):
        return _curve(value, type(getattr(value, "event", value)).__name__, deltas)
    from discreet.ledger import Ledger

    if isinstance(value, Ledger):
        return _ledger(value)
    raise InvalidValue(f"There is a card for a release, evidence, a curve and a ledger; got a {type(value).__name__}.")


def _release(release: Release[Any], deltas: Sequence[float]) -> str:
    outside = isinstance(release.value, ExternalValue)
    value = f"a {release.value.type}, beside this document" if outside else check.shown(release.value)
    rows: Rows = [("made from", release.source), ("value", value)]
    rows += [("paid by", ", ".join(release.entries))] if release.entry else []
    lines = []
    for claim in release.claims:
        rows.append(("claim", f"{_event(claim)}; {claim.game.unit}; seen: {', '.join(sorted(claim.game.view))}"))
        for curve in curves_of([claim]):
            told = _curve_rows(curve, deltas)
            if claim in release.claims_on_value:
                rows += told
                lines.append(ceiling_line(curve, f"ceiling of {claim.event.kind}"))
            else:
                rows += [(f"{name} (machine that computed)", text) for name, text in told]
    if release.claims and not release.claims_on_value:
        rows.append(("value", "no claim is about what was decrypted: there is no ceiling on what it gives away"))
    for evidence in release.evidence:
        appraisal = appraise(evidence, release.claims)
        rows += _evidence_rows(appraisal)
        lines.append(attack_line(evidence, evidence.attack, "broken" if appraisal.above else "floor"))
    return _card(f"Release from {release.source}", rows, lines, _in_words(rows))


def _curve(curve: Curve, title: str, deltas: Sequence[float]) -> str:
    rows = _curve_rows(curve, deltas)
    return _card(title, rows, [ceiling_line(curve, "the ceiling")], _in_words(rows))


def _curve_rows(curve: Curve, deltas: Sequence[float]) -> Rows:
    epsilons = ", ".join(f"{up(curve.epsilon(delta))} at δ = {delta:g}" for delta in deltas)
    powers = ", ".join(f"{percent_up(curve.power(level))} at {rate(level)} false positives" for level in _RATES)
    rare = belief_exception(curve)
    belief = f"50 % becomes at most {percent_up(curve.posterior(0.5, rare))}, except with probability {up(rare)}"
    return [("epsilon", epsilons), ("true positives", f"at most {powers}"), ("belief", belief)]


def _evidence_rows(appraisal: Appraisal) -> Rows:
    design, attack = appraisal.evidence.design, appraisal.evidence.attack
    runs = f"{appraisal.runs} run{'s' if appraisal.runs > 1 else ''}"
    drawn = f"{appraisal.members} inside, {appraisal.others} outside, {runs}, {design}"
    reached = ", ".join(f"{appraisal.at(level).told} at {rate(level)} false positives" for level in _RATES)
    rows = [(f"attack {attack}", drawn), ("true positives", f"measured {reached}")]
    return [*rows, ("verdict", f"{appraisal.outcome}: {_worst_reason(appraisal)}")] if appraisal.verdicts else rows


def _worst_reason(appraisal: Appraisal) -> str:
    return next(verdict.reason for verdict in appraisal.verdicts if verdict.outcome == appraisal.outcome)


def _event(claim: Claim) -> str:
    text = repr(claim.event)
    return text if len(text) <= 160 else f"{text[:157]}..."


def _in_words(rows: Iterable[tuple[str, str]]) -> str:
    return "; ".join(f"{name}: {text}" for name, text in rows)


def _card(title: str, rows: Rows, lines: Sequence[Any], description: str) -> str:
    plot = tradeoff_plot(lines, title=title, description=description) if lines else ""
    cells = "".join(
        f'<tr><th scope="row" style="text-align:left;font-weight:600;padding:2px 12px 2px 0;vertical-align:top;'
        f'white-space:nowrap">{escape(name)}</th><td style="text-align:left;padding:2px 0">{escape(text)}</td></tr>'
        for name, text in rows
    )
    return _box(title, f'<table style="border-collapse:collapse;margin:0 0 8px"><tbody>{cells}</tbody></table>{plot}')


def _ledger(ledger: Ledger) -> str:
    from discreet.ledger.summary import RECENT

    parts = [_source(ledger.balance(name), ledger.history(name)[-RECENT:]) for name in ledger.sources()]
    return _box(f"Ledger {ledger.name}", "".join(parts) or "<p>No sources yet.</p>")


def _source(balance: Balance, entries: Sequence[Entry]) -> str:
    """A budget as a picture and in words, with its last charges in the terms in which they were asked for."""
    from discreet.ledger.history import cost_in_words
    from discreet.ledger.summary import sentence

    picture = "" if balance.by_period else burn_down(balance, entries).svg
    cancelled = {entry.about for entry in entries if entry.kind == "cancel"}
    charges = [entry for entry in entries if entry.kind == "reserve" and entry.number not in cancelled][-_LISTED:]
    items = "".join(f"<li>{escape(entry.id)}: {escape(cost_in_words(entry))}</li>" for entry in reversed(charges))
    listing = f'<ul style="margin:4px 0">{items}</ul>' if items else ""
    title = f'<h4 style="margin:12px 0 2px">{escape(balance.source)}</h4>'
    return f"<section>{title}<p>{escape(sentence(balance))}</p>{picture}{listing}</section>"


def _box(title: str, inside: str) -> str:
    return (
        '<div class="discreet-card" style="border:1px solid rgba(128,128,128,.35);border-radius:8px;padding:12px 16px;'
        'max-width:560px;font-family:system-ui,sans-serif;font-size:13px;line-height:1.4">'
        f'<div style="font-size:15px;font-weight:600;margin-bottom:6px">{escape(title)}</div>{inside}</div>'
    )
