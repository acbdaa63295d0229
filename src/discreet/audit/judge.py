"""The verdict: does the floor that was measured reach over the ceiling that was claimed?"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache

import numpy as np

from discreet.audit.bounds import epsilon_at_least
from discreet.audit.bounds.betting import best_possible
from discreet.audit.bounds.order import counted, one_target_each, shuffled
from discreet.audit.lines import joint_violation, lines_of, own_delta, reachable, violation
from discreet.core import Claim, Curve, Event, Evidence, Verdict, check
from discreet.errors import InvalidValue
from discreet.figures import down, up

SURE = 0.999  # how sure a refutation is where nobody says
_COUNTED = 0.75  # of the error is for guesses counted at a few deltas, the rest for the curve's lines


def verdict(claim: Claim, evidence: Evidence, *, confidence: float, delta: float | Sequence[float] | None = None) -> Verdict:
    """What the evidence says of the claim: holds, refuted, warning, no ceiling, incomparable or inconclusive.

    `refuted` is wrong with probability at most 1 - confidence. `warning` is the same finding where who was inside was not
    decided by coins: there every target counts as a sample of its own. A claim is a whole curve and false if it fails at any
    delta. By default the whole curve is tested, at lines chosen from the claim, never from the scores, and the verdict
    names the (epsilon, delta) at which it fails: docs/theory/audit-curve.md. Name one delta, or several, to test there
    alone, the error split evenly over them. `holds` means that this attack did not break the claim.

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
    ceiling = ceiling_of(claim.event)  # events are frozen
    if delta is None:
        return _whole(ceiling, evidence, confidence)
    deltas = _deltas(delta)
    if all(math.isinf(ceiling.epsilon(tested)) for tested in deltas):
        return _without_ceiling(evidence, confidence, deltas[0])
    return _best(_at_deltas(ceiling, evidence, deltas, 1.0 - confidence, confidence))


@lru_cache(maxsize=64)
def ceiling_of(event: Event) -> Curve:
    """The curve of an event; kept, since a report judges much evidence against few claims."""
    from discreet.accounting import curve

    return curve(event)


def worth_testing(ceiling: Curve, targets: int, alpha: float, *, independent: bool) -> tuple[float, ...]:
    """The deltas at which guesses are counted when none is named: a function of the claim, the number of targets and how sure.

    Delta 0, or the claim's own, or a tenth of a target where that promises more. Targets of one run may all be given away at
    once with the probability of delta for each, so there it is no more than the chance of a false alarm, unless the claim's
    own delta is larger. Independent runs also resolve large deltas, where curves of many small losses are easiest to refute.
    """
    least = 0.0
    if math.isinf(ceiling.epsilon(0.0)):
        own = own_delta(ceiling)
        least = max(own, (0.1 if independent else min(0.1, alpha)) / max(targets, 10))
        least = own if ceiling.epsilon(own) <= 1.05 * ceiling.epsilon(least) else least
    if not independent:
        return (least,)
    gain = [larger for larger in (0.01, 0.1) if larger > least and ceiling.epsilon(larger) < 0.8 * ceiling.epsilon(least)]
    return (least, *gain)


def _whole(ceiling: Curve, evidence: Evidence, confidence: float) -> Verdict:
    """The verdict on the whole curve: guesses counted at a few deltas, and every line of the claim at once.

    The first are sharper where the claim is pure; the second see what the first do not, and never weaken as runs are added.
    """
    alpha = 1.0 - confidence
    kept = counted(evidence)
    score, inside, run = evidence.score[kept], evidence.inside[kept], evidence.run[kept]
    apart = one_target_each(evidence.run)
    deltas = worth_testing(ceiling, len(kept), alpha, independent=apart)
    if all(math.isinf(ceiling.epsilon(tested)) for tested in deltas):
        return _without_ceiling(evidence, confidence, deltas[0])
    tested = _best(_at_deltas(ceiling, evidence, deltas, _COUNTED * alpha, confidence))
    if tested.floor > tested.ceiling:
        return tested
    lines, rest = lines_of(ceiling), (1.0 - _COUNTED) * alpha
    each_counts = apart or not evidence.randomised  # without coins nothing is refuted, and every target is a sample of its own
    if not each_counts:
        broken = joint_violation(ceiling, lines, score, inside, rest)
    else:
        # In the order of the runs; where no coin was tossed, members may come first, so there in an order that knows nothing.
        order = shuffled(len(run))[0] if not evidence.randomised else np.argsort(run, kind="stable")
        broken = violation(lines, score[order], inside[order], rest)
    if broken is not None:
        return _judged(evidence, confidence, broken.delta, broken.epsilon, broken.floor)
    if tested.outcome == "inconclusive" and each_counts and (line := reachable(lines, len(kept), rest)) is not None:
        claimed, delta = lines[line].tolist()
        return _judged(evidence, confidence, delta, claimed, min(epsilon_at_least(evidence, delta, confidence), claimed))
    return tested


def _at_deltas(
    ceiling: Curve, evidence: Evidence, deltas: Sequence[float], alpha: float, confidence: float
) -> list[Verdict]:  # fmt: skip
    """A verdict at each delta, the error split evenly over them."""
    share = 1.0 - alpha / len(deltas)
    targets = len(counted(evidence))
    apart = one_target_each(evidence.run)
    return [_compared(ceiling, evidence, delta, share, confidence, targets=targets, independent=apart) for delta in deltas]


def _best(tested: list[Verdict]) -> Verdict:
    """A refutation, the clearest; or else a warning, or a delta at which the claim could have been refuted and was not."""
    broken = [verdict for verdict in tested if verdict.floor > verdict.ceiling]
    if broken:
        return max(broken, key=lambda verdict: verdict.floor - verdict.ceiling)
    return next((verdict for verdict in tested if verdict.outcome == "holds"), tested[0])


def _compared(
    ceiling: Curve, evidence: Evidence, delta: float, confidence: float, asked: float, *, targets: int, independent: bool
) -> Verdict:
    """The verdict at one delta."""
    claimed = ceiling.epsilon(delta)
    floor = epsilon_at_least(evidence, delta, confidence)
    reach = best_possible(targets, delta, 1.0 - confidence, independent=independent)
    if floor > claimed or reach > claimed:
        return _judged(evidence, asked, delta, claimed, floor)
    reason = f"{targets} targets can show at most epsilon {down(reach)} at delta {delta:.2g}; the claim is {up(claimed)}."
    return Verdict(outcome="inconclusive", reason=reason, confidence=asked, delta=delta, ceiling=claimed, floor=floor)


def _judged(evidence: Evidence, confidence: float, delta: float, claimed: float, floor: float) -> Verdict:
    """Refuted where the floor is above what is claimed, unless nobody tossed coins; holds otherwise."""
    measured = f"{evidence.attack} shows epsilon >= {down(floor)} at delta {delta:.2g}"
    if floor <= claimed:
        outcome, reason = "holds", f"{measured}, within the claimed {up(claimed)}."
    else:
        outcome = "refuted"
        if floor - claimed < 1e-9:  # rounded, the two would read the wrong way round
            measured = f"{evidence.attack} shows that epsilon is larger at delta {delta:.2g}"
        reason = f"{measured}, above the claimed {up(claimed)}."
        if not evidence.randomised:
            outcome = "warning"
            reason = f"{reason[:-1]}; but who was inside was not decided by coins, so this is a warning."
    return Verdict(outcome=outcome, reason=reason, confidence=confidence, delta=delta, ceiling=claimed, floor=floor)


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
    floor = epsilon_at_least(evidence, delta, confidence)
    reason = f"nothing is claimed at delta {delta:.2g}; {evidence.attack} shows epsilon >= {down(floor)}."
    return Verdict(
        outcome="no ceiling", reason=reason, confidence=confidence, delta=delta, ceiling=math.inf, floor=floor
    )  # fmt: skip


def _deltas(delta: float | Sequence[float]) -> tuple[float, ...]:
    several = (delta,) if isinstance(delta, (int, float)) else tuple(delta)
    if not several:
        raise InvalidValue("delta must name at least one delta; got none.")
    return tuple(check.small_fraction("delta", each) for each in several)
