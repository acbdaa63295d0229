"""The rules of a policy. Each judges a release by intervals, never by point estimates."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from typing import Any, Protocol

from discreet.audit import appraise, epsilon_at_least, intervals
from discreet.audit.intervals import Interval
from discreet.audit.judge import SURE, ceiling_of
from discreet.core import Claim, Evidence, Game, Release, Verdict
from discreet.errors import DiscreetError
from discreet.figures import down, percent_down, percent_up, rate, up
from discreet.report.controls import BLIND, blind
from discreet.report.gate.finding import Finding
from discreet.report.gate.parts import Part, hint
from discreet.report.gate.proofs import NOTHING, Proofs
from discreet.report.gate.proofs import PARTS as PROVEN

_OF_VERDICT = {"refuted": "refuted", "warning": "failed", "inconclusive": "inconclusive", "holds": "holds"}
_POST_HOC = " Who was inside was not decided by coins (post_hoc), so this is indicative."


class Rule(Protocol):
    """One question to a release, from one place in a policy."""

    @property
    def name(self) -> str: ...

    @property
    def line(self) -> int: ...

    def judge(self, release: Release[Any], proofs: Proofs = NOTHING) -> Iterator[Finding]: ...

    def __str__(self) -> str: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class OnAttacks:
    """A rule on every attack whose name matches `attack`; that none matches is a failure, since nothing was measured."""

    name: str
    line: int
    attack: str
    limit: float
    confidence: float

    def judge(self, release: Release[Any], proofs: Proofs = NOTHING) -> Iterator[Finding]:
        matching = [each for each in release.evidence if fnmatchcase(each.attack, self.attack)]
        silent = blind(release)
        alone = {each.attack for each in matching} <= silent
        for each in matching:
            yield _told_blind(self.measure(each), alone) if each.attack in silent else self.measure(each)
        if not matching:
            names = sorted({each.attack for each in release.evidence})
            there = f"it has {', '.join(names[:10])}{hint(self.attack, names)}" if names else "it has no evidence at all"
            message = f"no attack of the release matches {self.attack}: {there}. What was not measured is not below a limit."
            yield Finding(rule=self.name, where=f"attack.{self.attack}", outcome="failed", message=message, line=self.line)

    def measure(self, evidence: Evidence) -> Finding:
        raise NotImplementedError

    def shown(self, low: float, high: float, limit: float) -> tuple[str, str, str]:
        """Numbers of this rule as people read them, rounded outwards."""
        return percent_down(low), percent_up(high), rate(limit)

    def compared(self, evidence: Evidence, what: str, interval: Interval, advice: str, needed: int | None) -> Finding:
        """Three outcomes, and an error of at most 1 - confidence in either of the first two."""
        if interval.high < self.limit:
            outcome, ending = "holds", "."
        elif interval.low > self.limit:
            outcome, ending = "failed", "."
        else:
            outcome, ending = "inconclusive", f": too few targets to tell. {advice}"
        least, most, limit = self.shown(interval.low, interval.high, self.limit)
        across = f"{least} to {most} at {rate(self.confidence)} confidence"
        message = f"{what} is {self.shown(interval.value, 0, 0)[0]} ({across}), the limit {limit}{ending}"
        return Finding(
            rule=self.name, where=f"attack.{evidence.attack}", outcome=outcome, message=message, line=self.line,
            needed=needed if outcome == "inconclusive" else None, value=interval.value, low=interval.low, high=interval.high,
            limit=self.limit,
        )  # fmt: skip


def _told_blind(finding: Finding, alone: bool) -> Finding:
    """A limit that a blind attack stayed below is told so; where all attacks are blind, nothing was measured."""
    if finding.outcome != "holds":
        return finding
    return replace(finding, message=f"{finding.message} But the attack {BLIND}.", outcome="inconclusive" if alone else "holds")


@dataclass(frozen=True, slots=True, kw_only=True)
class Rate(OnAttacks):
    """The true-positive rate at a false-positive rate stays below a limit."""

    fpr: float

    def measure(self, evidence: Evidence) -> Finding:
        interval = intervals.tpr(evidence, self.fpr, self.confidence)
        if interval.high < self.limit or interval.low > self.limit:
            advice, needed = "", None
        else:
            sides = intervals.tpr_needed(evidence, self.fpr, self.limit, self.confidence)
            ones, zeros = int(evidence.inside.sum()), int((~evidence.inside).sum())
            have = f"there are {ones:,} and {zeros:,}"
            needed = None if sides is None else sum(sides)
            advice = (
                f"No number of targets would decide, if the true rate is the measured one; {have}."
                if sides is None
                else f"If the true rate is the measured one, about {sides[0]:,} members and {sides[1]:,} non-members "
                f"would decide; {have}."
            )
        return self.compared(evidence, f"TPR at {rate(self.fpr)} FPR", interval, advice, needed)

    def __str__(self) -> str:
        return f"TPR at {rate(self.fpr)} FPR below {rate(self.limit)}, for attack.{self.attack}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Area(OnAttacks):
    """The area under the curve stays below a limit."""

    def shown(self, low: float, high: float, limit: float) -> tuple[str, str, str]:
        return down(low, 3), up(high, 3), f"{limit:g}"

    def measure(self, evidence: Evidence) -> Finding:
        interval = intervals.auc_either_way(evidence, self.confidence)
        each = intervals.auc_needed(evidence, self.limit, self.confidence)
        advice = (
            "No number of targets would decide, if the true area is the measured one."
            if each is None
            else f"If the true area is the measured one, about {each:,} members and as many non-members would decide; "
            f"there are {int(evidence.inside.sum()):,} and {int((~evidence.inside).sum()):,}."
        )
        what = "AUC" if evidence.auc() >= 0.5 else "AUC of the reversed scores"
        return self.compared(evidence, what, interval, advice, None if each is None else 2 * each)

    def __str__(self) -> str:
        return f"AUC below {self.limit:g}, for attack.{self.attack}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownEpsilon(OnAttacks):
    """The lower bound (floor) on epsilon that an attack shows stays within a limit. This proves nothing: only a claim does."""

    delta: float

    def measure(self, evidence: Evidence) -> Finding:
        floor = epsilon_at_least(evidence, self.delta, self.confidence)
        shown = f"shows epsilon >= {down(floor)} at delta {up(self.delta, 6)} ({rate(self.confidence)} confidence)"
        message, outcome, needed = f"{evidence.attack} {shown}, the limit {up(self.limit)}.", "holds", None
        if floor > self.limit:
            outcome = "failed"
            message += _POST_HOC if evidence.design == "post_hoc" else ""
        elif intervals.reach(evidence, self.delta, self.confidence) <= self.limit:
            outcome, needed = "inconclusive", intervals.floor_needed(evidence, self.delta, self.limit, self.confidence)
            message = f"{message[:-1]}: {len(evidence):,} targets cannot show more than that, however much leaks. " + (
                f"At least {needed:,} can." if needed else "No number of targets in one run can, at this delta."
            )
        return Finding(
            rule=self.name, where=f"attack.{evidence.attack}", outcome=outcome, message=message, line=self.line, needed=needed,
            value=floor, low=floor, limit=self.limit,
        )  # fmt: skip

    def __str__(self) -> str:
        return f"shown epsilon at delta {up(self.delta, 6)} within {up(self.limit)}, for attack.{self.attack}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimedEpsilon:
    """The claimed upper bound (ceiling) on epsilon stays within a limit: of all claims, or of those on some unit or view."""

    name: str
    line: int
    delta: float
    limit: float
    unit: str | None = None
    relation: str | None = None
    view: frozenset[str] = frozenset()

    def judge(self, release: Release[Any], proofs: Proofs = NOTHING) -> Iterator[Finding]:
        asked = release.claims if "ciphertexts" in self.view else release.claims_on_value
        matching = [claim for claim in asked if self._about(claim)]
        for game in dict.fromkeys(Game(claim.game.unit, self.view or claim.game.view) for claim in matching):
            yield self._compared(game, min(proven(claim, self.delta) for claim in matching if game.within(claim.game)))
        if not matching:
            there = "; ".join(dict.fromkeys(_about(claim.game) for claim in release.claims[:5])) or "no claim at all"
            message = f"there is no claim about {self._asked()}; the release has {there}. What is not claimed is not proven."
            if release.claims and not release.claims_on_value:
                message += " A claim about ciphertexts is about the machine that computed, and not about the decrypted value."
            yield Finding(rule=self.name, where="claim", outcome="failed", message=message, line=self.line)

    def _about(self, claim: Claim) -> bool:
        game = claim.game
        return self.unit in (None, game.unit.name) and self.relation in (None, game.unit.relation) and self.view <= game.sees()

    def _compared(self, game: Game, epsilon: float) -> Finding:
        holds = epsilon <= self.limit
        claimed = f"claimed epsilon is {up(epsilon)}" if math.isfinite(epsilon) else "there is no ceiling (epsilon ∞)"
        message = f"{claimed} at delta {up(self.delta, 6)} for {_about(game)}; the limit is {up(self.limit)}."
        return Finding(
            rule=self.name, where=f"claim.{game.unit.name}", outcome="holds" if holds else "failed", message=message,
            line=self.line, value=epsilon, high=epsilon, limit=self.limit,
        )  # fmt: skip

    def _asked(self) -> str:
        seen = f"an adversary who sees {', '.join(sorted(self.view))}" if self.view else None
        return ", ".join(each for each in (self.unit, self.relation, seen) if each) or "anything"

    def __str__(self) -> str:
        about = "" if self._asked() == "anything" else f", for {self._asked()}"
        return f"claimed epsilon at delta {up(self.delta, 6)} within {up(self.limit)}{about}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Require:
    """One part that a release must have."""

    name: str
    line: int
    part: Part

    def judge(self, release: Release[Any], proofs: Proofs = NOTHING) -> Iterator[Finding]:
        there, message = proofs.find(self.part.name) if self.part.name in PROVEN else self.part.find(release)
        outcome = "holds" if there else "failed"
        yield Finding(rule=self.name, where=str(self.part), outcome=outcome, message=message, line=self.line)

    def __str__(self) -> str:
        return f"required: {self.part}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Unrefuted:
    """No claim is refuted by evidence beside it. Every policy asks this, whether it says so or not."""

    name: str
    line: int
    confidence: float = SURE

    def judge(self, release: Release[Any], proofs: Proofs = NOTHING) -> Iterator[Finding]:
        compared = [
            (claim, item.evidence.attack, verdict, excess, note)
            for item in (appraise(each, release.claims, sure=self.confidence) for each in release.evidence)
            for claim, verdict, excess, note in zip(release.claims, item.verdicts, item.excesses, item.notes)
            if verdict.outcome in _OF_VERDICT
        ]
        above = [each for each in compared if each[2].outcome in ("refuted", "warning") or each[3] is not None]
        for claim, attack, verdict, *_ in above:
            about = f"The claim is about {_about(claim.game)}; {rate(self.confidence)} confidence."
            yield self._finding(f"attack.{attack}", _OF_VERDICT[verdict.outcome], f"{verdict.reason} {about}", verdict)
        if compared and not above:
            count = "1 comparison" if len(compared) == 1 else f"{len(compared)} comparisons"
            few = sum(verdict.outcome == "inconclusive" for _, _, verdict, *_ in compared)
            unable = f"; {few} of them with too few targets to refute it, however much leaks" if few else ""
            noted = sum(note is not None for *_, note in compared)
            unable += f"; in {noted} of them an interval at 95 % alone lies above the claim" if noted else ""
            silent = len(blind(release).intersection(attack for _, attack, *_ in compared))
            unable += (
                f"; {silent} of the attacks found nothing even in their control, so their silence means nothing"
                if silent
                else ""
            )
            sure = f"{count}, each at {rate(self.confidence)} confidence{unable}"
            yield self._finding("claim", "holds", f"no claim is refuted by its evidence ({sure}).")

    def _finding(self, where: str, outcome: str, message: str, verdict: Verdict | None = None) -> Finding:
        floor, ceiling = (None, None) if verdict is None else (verdict.floor, verdict.ceiling)
        return Finding(
            rule=self.name, where=where, outcome=outcome, message=message, line=self.line, value=floor, low=floor, limit=ceiling
        )  # fmt: skip

    def __str__(self) -> str:
        return f"no claim refuted by its evidence, at {rate(self.confidence)} confidence"


def proven(claim: Claim, delta: float) -> float:
    """The epsilon of a claim; infinite where no theorem here covers what ran."""
    try:
        return ceiling_of(claim.event).epsilon(delta)
    except DiscreetError:
        return math.inf


def _about(game: Game) -> str:
    return f"{game.unit}, seen: {', '.join(sorted(game.view))}"
