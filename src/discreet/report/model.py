"""A report before it has a form: releases measured, the ledger read, everything in the order in which it is told."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from discreet.audit import Appraisal
from discreet.audit.appraisal import CONFIDENCE
from discreet.audit.judge import SURE
from discreet.core import check
from discreet.report import text
from discreet.report.account import Account, accounts, budgets, contradicted
from discreet.report.assessment import LEVELS, Assessment, Ceiling, ReleaseLike, assess
from discreet.report.sentences import STATUSES, overall

if TYPE_CHECKING:
    from discreet.ledger import LedgerLike
    from discreet.report.section import SectionKind

FORMAT, VERSION = "discreet-report", 1
SYNTHETIC = ("synthetic", "fidelity", "owner_fidelity", "risks", "usefulness")  # facts of a synthetic table


@dataclass(frozen=True)
class Report:
    """All that a report tells. `warnings` are about the ledger."""

    title: str
    when: str
    confidence: float
    assessments: tuple[Assessment, ...]
    accounts: tuple[Account, ...]
    warnings: tuple[str, ...]
    sections: tuple[SectionKind, ...] = ()  # beside those that every report has

    @property
    def sentence(self) -> str:
        return overall(self.assessments)

    @property
    def status(self) -> str:
        """The worst of all releases."""
        return min((item.status for item in self.assessments), key=STATUSES.index)

    @property
    def unsigned(self) -> str:
        """Which of the releases that came from files nobody signed; empty where all are."""
        bare = [item.title for item in self.assessments if item.signed == ""]
        if not bare:
            return ""
        alone = "This release is" if len(self.assessments) == 1 else f"{len(bare)} of {len(self.assessments)} releases are"
        return f"{alone} not signed: nobody vouches for the document (discreet keys sign)."

    @property
    def sources(self) -> list[str]:
        return sorted({text.short(item.release.source, 80) for item in self.assessments})


def build(
    releases: ReleaseLike | Iterable[ReleaseLike],
    *,
    ledger: LedgerLike | None = None,
    title: str | None = None,
    confidence: float = CONFIDENCE,
    withheld: bool = False,
    sections: Iterable[SectionKind] = (),
    deltas: Mapping[str, float] | None = None,
) -> Report:
    """Measure the releases and read the ledger. `withheld`: there is evidence that the reader may not see.

    `deltas` has the delta of each source's budget, for a reader who is not shown its ledger: epsilon is told at one delta.
    """
    from discreet.ledger import opened

    with opened(ledger) as held:
        assessments = contradicted(assess(releases, confidence=confidence, budgets={**(deltas or {}), **budgets(held)}), held)
        told, warnings = accounts(assessments, held)
    if withheld:
        nothing = ("What was not tried is withheld, as is what was.",)
        assessments = tuple(replace(item, withheld=True, not_tried=nothing) for item in assessments)
    if title is not None:
        check.word("title", title)
    heading = title or (
        assessments[0].title if len(assessments) == 1 else f"Releases from {text.listed(_sources(assessments))}"
    )
    when = datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC")
    return Report(text.short(heading, 160), when, confidence, assessments, told, warnings, tuple(sections))


def _sources(assessments: tuple[Assessment, ...]) -> list[str]:
    names = sorted({text.short(item.release.source, 60) for item in assessments})
    return names if len(names) <= 3 else [*names[:2], f"{len(names) - 2} other sources"]


def document(report: Report) -> dict[str, Any]:
    """The report as JSON data; what is infinite or was not computed is null."""
    return {
        "format": FORMAT,
        "version": VERSION,
        "title": report.title,
        "when": report.when,
        "verdict": {"status": report.status, "sentence": report.sentence},
        "decision": _decision(report),
        "confidence": report.confidence,
        "releases": [_release(item, report.confidence) for item in report.assessments],
        "ledger": [_account(item) for item in report.accounts],
        "ledger_notes": list(report.warnings),
    }


def _decision(report: Report) -> dict[str, Any]:
    """What the first page says."""
    from discreet.report.decision import decide

    first = decide(report)
    return {
        "worst": first.worst.title, "number": first.number, "meaning": first.meaning, "alerts": list(first.alerts),
        "actions": list(first.actions),
    }  # fmt: skip


def _release(assessment: Assessment, confidence: float) -> dict[str, Any]:
    release, facts = assessment.release, assessment.facts.to_json()
    synthetic = {name: facts[name] for name in SYNTHETIC if name in facts}
    return {
        "title": assessment.title,
        "source": release.source,
        "entry": list(release.entries) if release.also else release.entry,
        "value": assessment.value,
        "verdict": {"status": assessment.status, "sentence": assessment.sentence},
        "claims": [_claim(item) for item in assessment.ceilings],
        "evidence": [_evidence(item) for item in assessment.floors],
        "exposed": {"groups": facts.get("groups", []), "records": facts.get("exposed", [])},
        "controls": facts.get("controls", []),
        "quality": facts.get("quality", {}),
        **({"synthetic": synthetic} if synthetic else {}),
        "tried": facts.get("tried", [item.evidence.attack for item in assessment.floors]),
        "not_tried": list(assessment.not_tried),
        "reproduce": {
            "document": assessment.hash,
            **{name: facts[name] for name in ("made", "seeds", "hashes") if name in facts},
        },
    }


def _claim(item: Ceiling) -> dict[str, Any]:
    claim = item.claim.to_json()
    return {
        "unit": claim["game"]["unit"],
        "view": claim["game"]["view"],
        "event": claim["event"],
        "mechanism": item.mechanism,
        "sampling": text.sampling(item.claim.event),
        "ceiling": item.curve is not None,
        "guarantee": item.guarantee,
        "epsilon": [{"delta": delta, "epsilon": _finite(epsilon)} for delta, epsilon in item.epsilons],
        "belief": [{"prior": prior, "at_most": belief, "except": item.rare} for prior, belief in item.beliefs],
        "power": [{"fpr": level, "tpr": power} for level, power in item.powers],
        "assumptions": list(item.claim.assumptions),
    }


def _evidence(item: Appraisal) -> dict[str, Any]:
    seen = item.evidence
    return {
        "attack": seen.attack,
        "view": sorted(seen.game.view),
        "design": seen.design,
        "indicative": item.indicative,
        "inside": item.members,
        "outside": item.others,
        "runs": item.runs,
        "auc": item.auc.value,
        "auc_interval": {"low": item.auc.low, "high": item.auc.high},
        "verdict": item.outcome,
        "rates": [
            {"fpr": each.level, "tpr": each.rate, "low": each.low, "high": each.high, "resolvable": each.resolvable}
            for each in map(item.at, LEVELS)
        ],
        "epsilon": {"at_least": item.epsilon, "delta": item.delta, "confidence": item.confidence},
        "verdicts": [each.to_json() for each in item.verdicts],
        "verdict_confidence": SURE,
    }


def _account(item: Account) -> dict[str, Any]:
    balance = item.balance
    return {
        "source": item.source,
        "sentence": item.sentence,
        "by_period": balance.by_period,
        "budget": {"epsilon": balance.epsilon, "delta": balance.delta},
        "spent": None if balance.by_period else {"epsilon": balance.epsilon_spent, "part": balance.part_spent},
        "left": None if balance.by_period else {"epsilon": balance.epsilon_left},
        "shares": [each.to_json() for each in item.shares],
        "entries": [
            {"id": line.id, "at": line.at, "kind": line.kind, "told": line.told, "paid": line.paid} for line in item.lines
        ],
        "count": item.count,
    }


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
