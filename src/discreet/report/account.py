"""The ledger's part of a report: what paid for the releases, and what is left."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from discreet.charts import Plot, burn_down
from discreet.report import text

if TYPE_CHECKING:
    from discreet.ledger import Balance, Entry, Ledger
    from discreet.ledger.summary import Share
    from discreet.report.assessment import Assessment

SHOWN = 12  # entries of a source that are listed


@dataclass(frozen=True)
class Line:
    """One entry of the ledger as a report lists it; `paid` names the release it paid for."""

    id: str
    at: str
    kind: str
    told: str
    paid: str | None


@dataclass(frozen=True)
class Account:
    """One source in the ledger: its balance, its recent entries, and how its budget burned down."""

    source: str
    balance: Balance
    sentence: str
    lines: tuple[Line, ...]
    count: int
    plot: Plot | None
    shares: tuple[Share, ...]


def accounts(assessments: Sequence[Assessment], ledger: Ledger | None) -> tuple[tuple[Account, ...], tuple[str, ...]]:
    """What the ledger says of the releases' sources, and what there is to warn of."""
    if ledger is None:
        return (), tuple(_without(assessments))
    warnings: list[str] = []
    paid: dict[str, str] = {}
    sources: dict[str, None] = {}
    known = set(ledger.sources())
    for item in assessments:
        entries = ledger.payment(item.release).entries
        for entry in entries:
            paid[entry.id] = item.title
            sources[entry.source] = None
        if not entries and item.release.source in known:
            sources[item.release.source] = None
        warnings += _warned(item, {entry.id for entry in entries})
    warnings += _shared(assessments)
    return tuple(_account(ledger, source, paid) for source in sources), tuple(warnings)


def budgets(ledger: Ledger | None) -> dict[str, float]:
    """The delta of every source's budget, at which its releases are told."""
    return {} if ledger is None else {source: float(ledger.balance(source).delta) for source in ledger.sources()}


def contradicted(assessments: Sequence[Assessment], ledger: Ledger | None) -> tuple[Assessment, ...]:
    """The releases, each with what the ledger says against it."""
    if ledger is None:
        return tuple(assessments)
    faults = [ledger.payment(item.release).fault for item in assessments]
    return tuple(replace(item, fault=item.fault or fault) for item, fault in zip(assessments, faults, strict=True))


def _shared(assessments: Sequence[Assessment]) -> list[str]:
    """Releases that name one entry: fine where one was made from the other, and no ledger can tell."""
    names = [name for item in assessments for name in item.release.entries]
    return [
        f"Entry {text.short(name, 60)} is named by {count} of these releases. It paid for one answer: the others must have "
        "been made from that answer alone, which no ledger can tell."
        for name, count in Counter(names).items()
        if count > 1
    ]


def _without(assessments: Sequence[Assessment]) -> list[str]:
    charged = [item for item in assessments if item.release.entry]
    sentences = [
        f"{item.title} was paid by entry {text.short(name, 60)} of a ledger that this report was not given."
        for item in charged
        for name in item.release.entries
    ]
    return (
        sentences
        if charged
        else ["No ledger was given, and no entry of one paid for this: nothing counts what was spent before."]
    )


def _warned(item: Assessment, held: set[str]) -> list[str]:
    """Entries that a release names and the ledger does not hold, or that there is none."""
    if item.release.entries:
        missing = [name for name in item.release.entries if name not in held]
        return [f"{item.title} names entry {text.short(name, 60)}, and this ledger has no such entry." for name in missing]
    return [f"No entry of the ledger paid for {item.title}: its loss is counted nowhere."]


def _account(ledger: Ledger, source: str, paid: dict[str, str]) -> Account:
    from discreet.ledger.history import kind_in_words
    from discreet.ledger.summary import RECENT, sentence, shares

    balance = ledger.balance(source)
    history = ledger.history(source)
    recent: list[Any] = list(history[-RECENT:])
    listed = [entry for entry in recent if entry.kind != "settle"][-SHOWN:]
    shown = {entry.number for entry in listed}
    listed = [entry for entry in recent if entry.id in paid and entry.number not in shown][-SHOWN:] + listed  # older ones first
    lines = tuple(
        Line(entry.id, entry.at[:16].replace("T", " "), kind_in_words(entry), _told(entry), paid.get(entry.id))
        for entry in listed
    )
    plot = None if balance.by_period else burn_down(balance, recent)
    return Account(source, balance, sentence(balance), lines, len(history), plot, shares(balance))


def _told(entry: Entry) -> str:
    """What an entry says, without a question's text: a report lists what was paid for, not what was asked."""
    from discreet.ledger.history import cost_in_words

    body = entry.body
    parts = [f"account {body['account']}"] if body.get("account", "default") != "default" else []
    if "claims" in body:
        parts.append(text.listed(sorted({str(claim["event"]["kind"]).replace("_", " ") for claim in body["claims"]})))
    if entry.kind == "reserve":
        parts.append(cost_in_words(entry))
    if "epsilon" in body:
        parts.append(f"ε {body['epsilon']:g} at δ {text.small(body['delta'])}")
    parts += [text.short(body[name], 90) for name in ("by", "reason") if body.get(name)]
    if entry.about is not None:
        parts.append(f"of entry {entry.about}")
    return text.short("; ".join(parts), 160)
