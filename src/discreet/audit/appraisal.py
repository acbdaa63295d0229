"""What one attack says of the claims beside it: the one source of every verdict, rate and bound that a surface shows.

Reports, plots, cards, tables, `discreet audit`, the gate with JUnit and SARIF, and JSON all take their numbers from `appraise`.
Verdicts are at `SURE`, so that few true claims are called false; intervals are at a lower confidence, so that they are narrow
enough to read. Where an interval lies above what a claim allows and the verdict alone would say `holds`, there are too few
targets to be sure: the appraisal says `inconclusive`, so that no number beside a verdict contradicts it.
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
    excesses: tuple[str | None, ...] = ()  # for every claim, where an interval lies above it and its verdict cannot be sure

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
    verdicts = tuple(each for each, _ in judged)
    floor = max([floor, *(each.floor for each in verdicts if each.outcome in _BROKEN and each.delta >= delta)])
    return replace(alone, epsilon=floor, verdicts=verdicts, excesses=tuple(excess for _, excess in judged))


def _shared(confidence: float, sure: float, claims: int) -> float:
    """What is left of the confidence of a floor, since it may be taken from a verdict instead: the errors of both add up.

    A claim that runs refuted stays refuted, so its floor may be above that of a bound for all runs together.
    """
    error, spent = 1.0 - confidence, claims * (1.0 - sure)
    return 1.0 - (error - spent if spent < error / 2.0 else error)


def _judge(measured: Appraisal, claim: Claim, sure: float) -> tuple[Verdict, str | None]:
    """The verdict, kept from saying `holds` under an interval that lies above the claim.

    A claim that no theorem here covers bounds nothing, so nothing refutes it.
    """
    try:
        judged = verdict(claim, measured.evidence, confidence=sure)
        excess = _excess(measured, ceiling_of(claim.event)) if judged.outcome in _FEW else None
    except DiscreetError as error:
        reason = f"no bound could be worked out: {short(str(error), 200)}"
        nothing = Verdict(outcome="no ceiling", reason=reason, confidence=sure, delta=0.0, ceiling=float("inf"), floor=0.0)
        return nothing, None
    if excess is None:
        return judged, None
    reason = f"{excess}; that is {rate(measured.confidence)} sure and not {rate(sure)}: more targets or runs would decide."
    return replace(judged, outcome="inconclusive", reason=reason), excess


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
