"""What one attack says of the claims beside it: the one source of every verdict, rate and bound that a surface shows.

Reports, plots, cards, tables, `discreet audit`, the gate with JUnit and SARIF, and JSON all take their numbers from `appraise`.
Verdicts are at `SURE`, so that few true claims are called false; intervals are at a lower confidence, so that they are narrow
enough to read. An interval at 95 % lies above a claim that is true in up to one audit in twenty. Where one does and the verdict
says `holds`, its reason says so: no number beside a verdict contradicts it. Where rates and floor lie above the claim at the
confidence of the verdict, all together, the appraisal says `inconclusive` instead: these targets alone would refute it, and are
too few for a test that more runs never take back.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np

from discreet.audit.bounds import epsilon_at_least
from discreet.audit.intervals import Interval, auc
from discreet.audit.judge import SURE, ceiling_of, reads_above, verdict
from discreet.audit.rates import RateAt, rates
from discreet.core import Claim, Curve, Evidence, Verdict
from discreet.errors import DiscreetError
from discreet.figures import down, percent_down, percent_up, rate, short, up

SHOWN = (0.0001, 0.001, 0.01, 0.1, 0.5)  # false-positive rates at which rates are shown, and compared with the ceiling
CONFIDENCE = 0.95  # of intervals and of floors
DELTA = 1e-5  # of floors, where nothing names another
WORST = ("refuted", "warning", "inconclusive", "holds", "no ceiling", "incomparable")
_FEW = ("inconclusive", "holds")
_BROKEN = ("refuted", "warning")


@dataclass(frozen=True, kw_only=True)
class Appraisal:
    """One attack and what it reached. `verdicts` has one for every claim, in order; `epsilon` is the floor at `delta`."""

    evidence: Evidence
    members: int
    others: int
    runs: int
    auc: Interval
    rates: tuple[RateAt, ...]
    epsilon: float
    delta: float
    confidence: float
    verdicts: tuple[Verdict, ...] = ()
    excesses: tuple[str | None, ...] = ()  # for every claim, what lies above it as surely as a verdict asks, unrefuted
    notes: tuple[str | None, ...] = ()  # for every claim, the interval above it that is no surer than intervals are

    @property
    def indicative(self) -> bool:
        """Whether who was inside was not decided by coins: then nothing is refuted."""
        return not self.evidence.randomised

    @property
    def outcome(self) -> str:
        """The worst that this attack says of any claim; "nothing claimed" where there is none."""
        return min((each.outcome for each in self.verdicts), key=WORST.index, default="nothing claimed")

    @property
    def above(self) -> bool:
        """Whether it went through a ceiling."""
        return self.outcome in ("refuted", "warning")

    def at(self, level: float) -> RateAt:
        """The rate at a false-positive rate that is shown."""
        return next(each for each in self.rates if each.level == level)


def appraise(
    evidence: Evidence,
    claims: Sequence[Claim] = (),
    *,
    confidence: float = CONFIDENCE,
    sure: float = SURE,
    delta: float = DELTA,
) -> Appraisal:
    """What an attack reached, and what it says of each claim.

    >>> from discreet.core import Game, Pure, record
    >>> game, inside = Game(record(), {"answers"}), np.arange(1000) % 2 == 0
    >>> seen = Evidence(game=game, attack="peek", score=inside, inside=inside, run=np.arange(1000), design="post_hoc")
    >>> appraise(seen, [Claim(game=game, event=Pure(1.0))]).outcome
    'warning'
    """
    return _appraise(evidence, tuple(claims), confidence, sure, delta)


@lru_cache(maxsize=16)  # one report asks for the same several times over: page, plot, gate
def _appraise(evidence: Evidence, claims: tuple[Claim, ...], confidence: float, sure: float, delta: float) -> Appraisal:
    measured = rates(evidence.score, evidence.inside, confidence, SHOWN)
    floor = epsilon_at_least(evidence, delta, _shared(confidence, sure, len(set(claims))))
    members = int(evidence.inside.sum())
    alone = Appraisal(
        evidence=evidence, members=members, others=len(evidence) - members, runs=len(np.unique(evidence.run)),
        auc=auc(evidence, confidence), rates=measured, epsilon=floor, delta=delta, confidence=confidence,
    )  # fmt: skip
    by_claim = {claim: _judge(alone, claim, sure) for claim in dict.fromkeys(claims)}
    judged = [by_claim[claim] for claim in claims]
    verdicts = tuple(each for each, _, _ in judged)
    floor = max([floor, *(each.floor for each in verdicts if each.outcome in _BROKEN and each.delta >= delta)])
    excesses, notes = tuple(surely for _, surely, _ in judged), tuple(note for _, _, note in judged)
    return replace(alone, epsilon=floor, verdicts=verdicts, excesses=excesses, notes=notes)


def _shared(confidence: float, sure: float, claims: int) -> float:
    """What is left of the confidence of a floor, since it may be taken from a verdict instead: the errors of both add up.

    A claim that runs refuted stays refuted, so its floor may be above that of a bound for all runs together.
    """
    error, spent = 1.0 - confidence, claims * (1.0 - sure)
    return 1.0 - (error - spent if spent < error / 2.0 else error)


def _judge(measured: Appraisal, claim: Claim, sure: float) -> tuple[Verdict, str | None, str | None]:
    """The verdict, what lies above the claim as surely as a verdict asks though it is not refuted, and what does less surely.

    A claim that no theorem here covers bounds nothing, so nothing refutes it.
    """
    try:
        judged = verdict(claim, measured.evidence, confidence=sure)
        ceiling = ceiling_of(claim.event)
        excess = _excess(measured, ceiling) if judged.outcome in _FEW else None
        least = min(sure, SURE)  # whoever asks for more, what a verdict usually asks for is not passed over
        surely = _excess(_as_sure(measured, least), ceiling) if excess is not None else None
    except DiscreetError as error:
        reason = f"no bound could be worked out: {short(str(error), 200)}"
        nothing = Verdict(outcome="no ceiling", reason=reason, confidence=sure, delta=0.0, ceiling=float("inf"), floor=0.0)
        return nothing, None, None
    if excess is None:
        return judged, None, None
    if surely is not None:
        reason = f"{surely}, by these targets alone. A test that more runs never take back needs more of them."
        return replace(judged, outcome="inconclusive", reason=reason), surely, None
    often = 1.0 - measured.confidence
    reason = (
        f"{judged.reason} At {rate(measured.confidence)} confidence {excess}; up to {rate(often)} of audits of a claim that is "
        f"true show as much, and at {rate(sure)} confidence nothing lies above it."
    )
    return replace(judged, reason=reason), None, excess


def _as_sure(measured: Appraisal, sure: float) -> Appraisal:
    """The same rates and floor with lower ends that are all right together, but with the error of a verdict."""
    error = (1.0 - sure) / (len(measured.rates) + 1)
    evidence = measured.evidence
    lower = rates(evidence.score, evidence.inside, 1.0 - 2.0 * error, [each.level for each in measured.rates])
    return replace(measured, rates=lower, epsilon=epsilon_at_least(evidence, measured.delta, 1.0 - error))


def _excess(measured: Appraisal, ceiling: Curve) -> str | None:
    """Where an interval that is shown lies above what the claim allows."""
    name = measured.evidence.attack
    for each in measured.rates:
        allowed = ceiling.power(each.level)
        if each.low > allowed:
            found = f"{percent_down(each.rate)} of members at {rate(each.level)} false positives"
            return f"{name} finds {found}, at least {percent_down(each.low)}, where the claim allows {percent_up(allowed)}"
    if measured.epsilon > (claimed := ceiling.epsilon(measured.delta)):
        shown = f"epsilon >= {down(measured.epsilon)}" if reads_above(measured.epsilon, claimed) else "that epsilon is larger"
        return f"{name} shows {shown} at delta {measured.delta:.2g}, above the claimed {up(claimed)}"
    return None
