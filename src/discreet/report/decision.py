"""The page that somebody signs: which release is worst, how bad it is in one number, what to do now, and who signs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from discreet.figures import percent_up
from discreet.report import text
from discreet.report.assessment import is_reversed
from discreet.report.controls import blind
from discreet.report.sentences import STATUSES, indicative, leaks

if TYPE_CHECKING:
    from discreet.audit import Appraisal
    from discreet.report.assessment import Assessment
    from discreet.report.model import Report

MOST_ALERTS = 6
SIGNERS = ("Prepared by", "Owner of the data", "Privacy officer")
CONFIDENTIAL = "Confidential: this report names rows of the data by their number."
_ACTIONS = {
    "contradicted": "Do not use or publish {it}. Ask who made it for the document that the ledger paid for, signed.",
    "refuted": "Withdraw {it}. What ran is not what was proven: have it mended and audited before it is made again.",
    "warning": "Hold {it} back. Have its claim audited with coins (discreet audit) before anybody relies on it.",
    "leaks": "Do not give {it} to anyone who may not see the data. Train it privately, or keep it where the data is.",
    "no ceiling": "Treat {it} as the data itself until something is promised about it.",
    "inconclusive": "Have {it} attacked with more targets before it goes out; the evidence does not tell yet.",
    "untested": "Sign only if its proof alone is enough for you; otherwise have {it} attacked first.",
    "withheld": "Ask an owner or an officer whether {it} may be used: they see what attacks reached.",
    "good sign": "It may be signed. An audit with coins would make the evidence a test.",
    "blind": "Sign only if its proof alone is enough for you: attacks that found nothing in their own control tell nothing.",
    "holds": "It may be signed: the promise stood under attacks that could have broken it.",
}


@dataclass(frozen=True)
class Decision:
    """What the first page says. `number` is how bad the worst release is, in one number, and `meaning` what it counts."""

    worst: Assessment
    number: str
    meaning: str
    alerts: tuple[str, ...]
    actions: tuple[str, ...]
    signers: tuple[tuple[str, str], ...]  # a role, and who it is where a release says so
    confidential: bool


def ordered(assessments: Sequence[Assessment]) -> list[Assessment]:
    """The worst first; among equals those whose attacks reached more, then those that claim less."""
    return sorted(assessments, key=rank)


def rank(item: Assessment) -> tuple[float, ...]:
    """The less the worse."""
    return (STATUSES.index(item.status), -_reach(item), -_belief(item))


def decide(report: Report) -> Decision:
    """The first page of a report."""
    worst = ordered(report.assessments)[0]
    number, meaning = _number(worst)
    return Decision(
        worst=worst, number=number, meaning=meaning, alerts=tuple(alerts(report)), actions=tuple(_actions(report)),
        signers=tuple((role, _named(report, role)) for role in SIGNERS),
        confidential=any(item.facts.get("exposed") for item in report.assessments),
    )  # fmt: skip


def alerts(report: Report) -> list[str]:
    """What must be known before anything else is read: forged or unsigned documents, attacks above a claim, blind attacks."""
    from discreet.report.tables import control_notes

    found: list[str] = [] if not report.unsigned else [report.unsigned]
    for item in ordered(report.assessments):
        name = "" if len(report.assessments) == 1 else f"{item.title}: "
        if item.fault is not None:
            found.append(f"{name}not what it says it is: {text.short(item.fault, 200)}.")
        for floor in item.floors:
            if floor.above or any(floor.excesses):
                found.append(f"{name}{_reason(floor)}")
        found += [f"{name}{note}" for note in control_notes(item)]
        turned = [text.short(floor.evidence.attack, 60) for floor in item.floors if is_reversed(floor)]
        if turned:
            found.append(f"{name}scores of {text.listed(_few(turned))} are lower for those inside, and are read reversed.")
    missing = [warning for warning in report.warnings if "no such entry" in warning or "counted nowhere" in warning]
    found += [text.short(each, 200) for each in missing]
    rest = len(found) - MOST_ALERTS
    return found if rest <= 0 else [*found[:MOST_ALERTS], f"and {rest} more, in the appendix."]


def _reason(floor: Appraisal) -> str:
    return text.short(next(each.reason for each in floor.verdicts if each.outcome == floor.outcome), 240)


def _actions(report: Report) -> list[str]:
    """One line for every status that occurs, the worst first, naming the releases it is about."""
    lines = []
    for advice in _ACTIONS:
        titles = [item.title for item in report.assessments if _advice(item) == advice]
        if titles:
            it = "it" if len(report.assessments) == 1 else text.listed([f"“{title}”" for title in _few(titles)])
            line = _ACTIONS[advice].format(it=it)
            alone = len(report.assessments) == 1 or "{it}" in _ACTIONS[advice]
            lines.append(line if alone else f"{it[0].upper()}{it[1:]}: {line[0].lower()}{line[1:]}")
    return lines


def _advice(item: Assessment) -> str:
    """What to do: by the status, and where it holds by whether an attack could have refuted it."""
    tested = {floor.evidence.attack for floor in item.floors if any(each.outcome == "holds" for each in floor.verdicts)}
    if item.status == "holds" and tested and tested <= blind(item.release):
        return "blind"
    return "good sign" if item.status == "holds" and indicative(item) else item.status


def _few(titles: list[str]) -> list[str]:
    return titles if len(titles) <= 3 else [*titles[:2], f"{len(titles) - 2} more"]


def _number(item: Assessment) -> tuple[str, str]:
    """What an attack recognises where one is above the claim or there is none; else what the claim allows."""
    if item.fault is not None:
        return "", ""  # no number of such a document counts
    best = item.strongest
    if best is not None and item.status not in ("holds", "inconclusive") and leaks(best):
        measured = best.at(0.01)
        number, _, across = measured.told.partition(" (")
        return number, f"of those inside are recognised ({across or measured.told} at 1 % false positives"
    if item.bounded:
        weakest = max(item.bounded, key=lambda each: each.beliefs[-1][1])
        chance = "" if weakest.rare == 1e-6 else f", except with probability {text.small(weakest.rare)}"
        return percent_up(weakest.beliefs[-1][1]), f"sure is the most that anybody can become who gave even odds{chance}"
    return "100 %", f"sure is what anybody may become: there is no ceiling{' on what was decrypted' if item.machine else ''}"


def _reach(item: Assessment) -> float:
    return 0.0 if item.strongest is None else item.strongest.at(0.01).low


def _belief(item: Assessment) -> float:
    """The most that the claims let somebody become sure of who gave even odds."""
    return max((ceiling.beliefs[-1][1] for ceiling in item.bounded), default=1.0)


def _named(report: Report, role: str) -> str:
    """Who owns the data or answers for it, where the releases say so and agree."""
    fact = {"Owner of the data": "owner", "Privacy officer": "officer", "Prepared by": "contact"}[role]
    names = {text.short(item.facts[fact], 80) for item in report.assessments if isinstance(item.facts.get(fact), str)}
    return names.pop() if len(names) == 1 else ""
