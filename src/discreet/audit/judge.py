"""The verdict: does the floor that was measured reach over the ceiling that was claimed?"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from discreet.audit.bounds.betting import best_possible
from discreet.audit.bounds.order import one_target_each
from discreet.core import Claim, Curve, Evidence, Release, Verdict, check
from discreet.core.evidence import counted
from discreet.core.figures import down, up
from discreet.errors import InvalidValue

SURE = 0.999  # how sure a refutation is where nobody says


def verdict(claim: Claim, evidence: Evidence, *, confidence: float, delta: float | Sequence[float] | None = None) -> Verdict:
    """What the evidence says of the claim: holds, refuted, no ceiling, incomparable or inconclusive.

    `refuted` is wrong with probability at most 1 - confidence. A claim is a whole curve and false if it fails at any
    delta: name one delta, or several, over which the error is then split evenly. By default those are chosen from the
    claim and the number of targets, never from the scores. `holds` means that this attack did not break the claim.

    >>> import numpy as np
    >>> from discreet.core import Game, Pure, record
    >>> game = Game(record(), {"answers"})
    >>> inside = np.arange(1000) % 2 == 0
    >>> seen = Evidence(game=game, attack="peek", score=inside, inside=inside, run=np.arange(1000), design="paired")
    >>> verdict(Claim(game=game, event=Pure(1.0)), seen, confidence=0.95).outcome
    'refuted'
    """
    check.open_fraction("confidence", confidence)
    if not evidence.game.within(claim.game):
        return _unmeasured(claim, evidence, confidence)
    from discreet.accounting import curve

    ceiling = curve(claim.event)
    apart = one_target_each(evidence.run)
    targets = len(counted(evidence))
    deltas = _deltas(delta) if delta is not None else worth_testing(ceiling, targets, 1.0 - confidence, independent=apart)
    if all(math.isinf(ceiling.epsilon(each)) for each in deltas):
        return _without_ceiling(evidence, confidence, deltas[0])
    share = 1.0 - (1.0 - confidence) / len(deltas)
    tested = [_compared(ceiling, evidence, each, share, confidence, independent=apart) for each in deltas]
    for outcome in ("refuted", "holds"):
        found = [each for each in tested if each.outcome == outcome]
        if found:
            return max(found, key=lambda each: each.floor - each.ceiling) if outcome == "refuted" else found[0]
    return tested[0]


def verdicts(
    release: Release[Any], *, confidence: float = SURE, delta: float | None = None
) -> list[tuple[Claim, Evidence, Verdict]]:
    """Every claim of a release against every piece of its evidence, each at this confidence."""
    return [
        (claim, evidence, verdict(claim, evidence, confidence=confidence, delta=delta))
        for claim in release.claims
        for evidence in release.evidence
    ]


def worth_testing(ceiling: Curve, targets: int, alpha: float, *, independent: bool) -> tuple[float, ...]:
    """The deltas at which a claim is tested when none is named: a function of the claim, the number of targets and how sure.

    Delta 0, or a tenth of a target where the claim has no epsilon at 0. Targets of one run may all be given away at once with
    the probability of delta for each, so there it is no more than the chance of a false alarm. Independent runs also resolve
    large deltas, where curves of many small losses (Gaussian noise, long sequences) are easiest to refute.
    """
    least = 0.0 if math.isfinite(ceiling.epsilon(0.0)) else (0.1 if independent else min(0.1, alpha)) / max(targets, 10)
    if not independent:
        return (least,)
    gain = [each for each in (0.01, 0.1) if ceiling.epsilon(each) < 0.8 * ceiling.epsilon(least)]
    return (least, *gain)


def _compared(
    ceiling: Curve, evidence: Evidence, delta: float, confidence: float, asked: float, *, independent: bool
) -> Verdict:
    """The verdict at one delta."""
    claimed = ceiling.epsilon(delta)
    floor = evidence.epsilon(delta, confidence)
    targets = len(counted(evidence))
    reach = best_possible(targets, delta, 1.0 - confidence, independent=independent)
    measured = f"{evidence.attack} shows epsilon >= {down(floor)} at delta {delta:.2g}"
    if floor > claimed and evidence.design == "post_hoc":
        outcome = "inconclusive"
        reason = (
            f"{measured}, above the claimed {up(claimed)}; but who was inside was not decided by coins, so this is a warning."
        )
    elif floor > claimed:
        outcome, reason = "refuted", f"{measured}, above the claimed {up(claimed)}."
    elif reach <= claimed:
        outcome = "inconclusive"
        reason = f"{targets} targets can show at most epsilon {down(reach)} at delta {delta:.2g}; the claim is {up(claimed)}."
    else:
        outcome, reason = "holds", f"{measured}, within the claimed {up(claimed)}."
    return Verdict(outcome=outcome, reason=reason, confidence=asked, delta=delta, ceiling=claimed, floor=floor)


def _unmeasured(claim: Claim, evidence: Evidence, confidence: float) -> Verdict:
    ours, theirs = evidence.game, claim.game
    what = (
        f"the evidence is about {ours.unit}, the claim about {theirs.unit}"
        if ours.unit != theirs.unit
        else f"the attack sees {', '.join(sorted(ours.view))}, the claim covers {', '.join(sorted(theirs.view))}"
    )
    return Verdict(
        outcome="incomparable", reason=f"{what}.", confidence=confidence, delta=0.0, ceiling=math.inf, floor=0.0
    )  # fmt: skip


def _without_ceiling(evidence: Evidence, confidence: float, delta: float) -> Verdict:
    floor = evidence.epsilon(delta, confidence)
    reason = f"nothing is claimed at delta {delta:.2g}; {evidence.attack} shows epsilon >= {down(floor)}."
    return Verdict(
        outcome="no ceiling", reason=reason, confidence=confidence, delta=delta, ceiling=math.inf, floor=floor
    )  # fmt: skip


def _deltas(delta: float | Sequence[float]) -> tuple[float, ...]:
    several = (delta,) if isinstance(delta, (int, float)) else tuple(delta)
    if not several:
        raise InvalidValue("delta must name at least one delta; got none.")
    return tuple(check.small_fraction("delta", each) for each in several)
