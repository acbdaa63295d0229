"""A ledger in a notebook: how each budget burns down, as inline SVG with the same in words, and no script."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from discreet.core.figures import down, percent_down, percent_up, up
from discreet.ledger.amount import NOTHING, Amount
from discreet.ledger.balance import Balance, part_of
from discreet.ledger.chain import Entry
from discreet.ledger.history import cost_in_words

RECENT = 500  # entries that a picture goes back
LISTED = 5  # charges that stand below it
_WIDTH, _HEIGHT, _LEFT, _TOP, _RIGHT, _BOTTOM = 520, 150, 52, 10, 12, 28
_LINE = "#3b6fd4"


def ledger_card(name: str, sources: Sequence[tuple[Balance, Sequence[Entry]]]) -> str:
    """The card of a ledger: a picture and a sentence for each source, with its most recent entries."""
    parts = [_source(found, entries) for found, entries in sources] or ["<p>No sources yet.</p>"]
    return (
        '<div class="discreet-card" style="font-family:system-ui,sans-serif;max-width:560px">'
        f"<h3>Ledger {escape(name)}</h3>{''.join(parts)}</div>"
    )


def _source(found: Balance, entries: Sequence[Entry]) -> str:
    told = sentence(found)
    picture = "" if found.by_period else burn_down(found, left_after(found, entries))
    title = f'<h4 style="margin:12px 0 2px">{escape(found.source)}</h4>'
    return f"<section>{title}<p>{escape(told)}</p>{picture}{_charges(entries)}</section>"


def _charges(entries: Sequence[Entry]) -> str:
    """The last charges, each in the terms in which it was asked for."""
    cancelled = {entry.about for entry in entries if entry.kind == "cancel"}
    last = [entry for entry in entries if entry.kind == "reserve" and entry.number not in cancelled][-LISTED:]
    lines = "".join(f"<li>{escape(entry.id)}: {escape(cost_in_words(entry))}</li>" for entry in reversed(last))
    return f'<ul style="margin:4px 0">{lines}</ul>' if lines else ""


def sentence(found: Balance) -> str:
    """A balance in words."""
    if found.by_period:
        return f"ε = {found.epsilon:g} at δ = {up(found.delta, 6)} for each of its periods."
    total = f" All answers together: ε = {up(found.epsilon_spent)} {found.total_in_words()}." if found.spent.divergence else ""
    return (
        f"Budget ε = {found.epsilon:g} at δ = {up(found.delta, 6)}. Spent: {percent_up(found.part_spent)} of it "
        f"({found.spent_in_words()}). Left: {percent_down(1 - found.part_spent)}, which is one more answer of "
        f"ε = {down(found.epsilon_left)}, or smaller ones.{total}{_failures(found)}"
    )


def _failures(found: Balance) -> str:
    """How much of delta is used by charges that may fail with a small probability, such as the release of group names."""
    if not found.spent.failure:
        return ""
    reserved = "delta" if found.basic else "the part of delta that is reserved for charges with a failure probability"
    return f" Of {reserved}, {percent_up(found.failure_part)} is used."


def left_after(found: Balance, entries: Sequence[Entry]) -> list[float]:
    """The part of today's budget that was left before the first and after each of these entries, oldest first.

    Of divergences or of epsilons, whichever had more left. Worked out backwards from what is spent now, so that a long history
    need not be read from its beginning. A cancellation of what was reserved before these entries changes nothing here.
    """
    amounts = {e.number: Amount.from_json(e.body["amount"]) for e in entries if e.kind == "reserve"}
    spent, points = found.spent, [found.spent]
    for entry in reversed(entries):
        spent = spent.minus(amounts.get(entry.number, NOTHING))
        if entry.kind == "cancel":
            spent = spent.minus(NOTHING.minus(amounts.get(entry.about or 0, NOTHING)))
        points.append(spent)
    return [1 - part_of(Amount(*(max(each, 0) for each in point)), found.limit) for point in reversed(points)]


def burn_down(found: Balance, left: Sequence[float]) -> str:
    """The picture: the part of the budget that is left, entry by entry, as steps."""
    right, bottom = _WIDTH - _RIGHT, _HEIGHT - _BOTTOM

    def at(place: float, value: float) -> str:
        return f"{_LEFT + (right - _LEFT) * place:.1f} {bottom - (bottom - _TOP) * min(max(value, 0.0), 1.0):.1f}"

    count = max(len(left) - 1, 1)
    path = f"M{at(0, left[0])}"
    for place, value in enumerate(left[1:], 1):
        path += f" L{at(place / count, left[place - 1])} L{at(place / count, value)}"
    title = f"Budget of {found.source}"
    grid = "".join(
        f'<path d="M{at(0, value)} H{right}" stroke="currentColor" stroke-opacity="0.14"/>'
        f'<text x="{_LEFT - 6}" y="{at(0, value).split()[1]}" dy="4" text-anchor="end">{value:.0%}</text>'
        for value in (0.0, 0.5, 1.0)
    )
    label = f"left of the budget over the last {len(left) - 1} entries" if len(left) > 1 else "left of the budget"
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" class="burn-down" viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" '
        f'aria-label="{escape(title)}" font-family="system-ui, sans-serif" font-size="12" fill="currentColor" '
        f'style="max-width:{_WIDTH}px;width:100%;height:auto"><title>{escape(title)}</title><desc>{escape(sentence(found))}</desc>'
        f'{grid}<path class="left" d="{path}" fill="none" stroke="{_LINE}" stroke-width="2"/>'
        f'<text x="{(_LEFT + right) / 2:.0f}" y="{_HEIGHT - 8}" text-anchor="middle" fill-opacity="0.75">{label}</text></svg>'
    )
