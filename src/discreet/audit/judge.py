"""The verdict: does the floor that was measured reach over the ceiling that was claimed?"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from discreet.audit.bounds import epsilon_at_least
from discreet.audit.bounds.betting import best_possible, from_guesses
from discreet.audit.bounds.order import FORWARD, counted, one_target_each, reversed_scores, surest_first
from discreet.audit.lines import (
    STEEPEST,
    Violation,
    is_pure,
    joint_violation,
    lines_of,
    own_delta,
    reachable,
    shares_of,
    violation,
)
from discreet.audit.prefixes import begins_single, first_runs, in_pairs, of_runs, of_targets, one_of_each
from discreet.core import Claim, Curve, Event, Evidence, Verdict, check
from discreet.errors import InvalidValue, UnsupportedEvent
from discreet.figures import down, up

MOST_EFFORT = 20_000  # of the claim of a document, which may be hostile: 500 mechanisms, all different
SURE = 0.999  # how sure a refutation is where nobody says
_COUNTED = 0.75  # of the error of a prefix of many targets is for guesses counted at a few deltas, the rest for the curve
_SINGLE = 0.5  # of the error of single runs, where delta 0 is tested, is for guesses counted there, the rest for bets


def verdict(claim: Claim, evidence: Evidence, *, confidence: float, delta: float | Sequence[float] | None = None) -> Verdict:
    """What the evidence says of the claim: holds, refuted, warning, no ceiling, incomparable or inconclusive.

    `refuted` is wrong with probability at most 1 - confidence, and more runs never take it back: what the first runs refute
    stays refuted whatever follows. `warning` is the same finding where who was inside was not decided by coins: there every
    target counts as a sample of its own. A claim is a whole curve and false if it fails at any
    delta. Scores are tested as they are and, with a hundredth of the error, reversed: who attacks may turn them round.
    By default the whole curve is tested, at lines chosen from the claim, never from the scores, and the verdict
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
    alpha = 1.0 - confidence
    targets, apart = len(counted(evidence)), one_target_each(evidence.run)
    deltas = worth_testing(ceiling, targets, FORWARD * alpha, independent=apart) if delta is None else _deltas(delta)
    if all(math.isinf(ceiling.epsilon(tested)) for tested in deltas):
        return _without_ceiling(evidence, confidence, deltas[0])
    named = None if delta is None else deltas
    broken, able = _tested(ceiling, evidence, FORWARD * alpha, named)
    if broken is None:
        broken, _ = _tested(ceiling, reversed_scores(evidence), (1.0 - FORWARD) * alpha, named)
    if broken is not None:
        return _judged(evidence, confidence, broken.delta, broken.epsilon, broken.floor)
    return _unbroken(ceiling, evidence, confidence, deltas, able)


@lru_cache(maxsize=64)
def ceiling_of(event: Event) -> Curve:
    """The curve of an event, one for all: what verdict, plot, report and gate read off it is computed once, and the same."""
    from discreet.accounting import curve
    from discreet.accounting.effort import effort

    if effort([event]) > MOST_EFFORT:
        raise UnsupportedEvent(
            "This claim composes so many different mechanisms, or samples compositions of so many, that its curve is not "
            "worked out for a document. Compose it from fewer."
        )
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


Found = tuple[Violation | None, tuple[float, float] | None]  # what is broken; (epsilon, delta) that perfect guesses break


def _tested(ceiling: Curve, evidence: Evidence, alpha: float, named: Sequence[float] | None) -> Found:
    """The claim against these scores, taken as higher for members."""
    if evidence.randomised and not begins_single(evidence.run):
        return _by_prefixes(ceiling, evidence, alpha, named)
    order = one_of_each(evidence.run) if evidence.randomised else in_pairs(evidence.run, evidence.inside)
    return _one_by_one(ceiling, evidence.score[order], evidence.inside[order], alpha, named)


def _one_by_one(
    ceiling: Curve, score: NDArray[np.float64], inside: NDArray[np.bool_], alpha: float, named: Sequence[float] | None
) -> Found:
    """Independent targets in their order: bets on every line, and at delta 0 guesses counted at prefixes."""
    if named is None:
        lines = lines_of(ceiling)
        share = shares_of(ceiling, lines)
    else:
        pairs = [(ceiling.epsilon(delta), delta) for delta in sorted(set(named))]
        lines = np.array([pair for pair in pairs if pair[0] <= STEEPEST], dtype=np.float64).reshape(-1, 2)
        share = np.full(len(lines), 1.0 / len(pairs))
    error = alpha * share
    broken: list[Violation] = []
    able: tuple[float, float] | None = None
    if len(lines) and lines[0, 1] == 0 and (named or is_pure(ceiling)):
        part = alpha * _SINGLE if named is None else error[0] * _SINGLE
        error = np.append(error[:1] * _SINGLE, error[1:] * (1.0 if named else _SINGLE))
        claimed = float(lines[0, 0])
        for size, spent in of_targets(len(score)):
            floor = from_guesses(surest_first(score[:size], inside[:size]), 0.0, spent * part, independent=True)
            if floor > claimed:
                broken.append(Violation(claimed, 0.0, floor))
            if able is None and best_possible(size, 0.0, spent * part, independent=True) > claimed:
                able = claimed, 0.0
    if (line := violation(lines, score, inside, error)) is not None:
        broken.append(line)
    if broken:  # where delta 0 is refuted by counting, that is named: it is how a pure claim is stated
        return max(broken, key=lambda each: (each.delta == 0, each.floor - each.epsilon)), None
    if able is None and (reached := reachable(lines, len(score), error)) is not None:
        able = float(lines[reached, 0]), float(lines[reached, 1])
    return None, able


def _by_prefixes(ceiling: Curve, evidence: Evidence, alpha: float, named: Sequence[float] | None) -> Found:
    """Runs of many targets, which depend on each other: a test of fixed size at prefixes of whole runs."""
    able: tuple[float, float] | None = None
    for runs, share in of_runs(len(np.unique(evidence.run))):
        kept = first_runs(evidence.run, runs)
        broken, reached = _of_fixed_size(ceiling, evidence, kept, share * alpha, named)
        if broken is not None:
            return broken, None
        able = able or reached
    return None, able


def _of_fixed_size(
    ceiling: Curve, evidence: Evidence, kept: NDArray[np.int64], alpha: float, named: Sequence[float] | None
) -> Found:
    """These targets alone: guesses counted at a few deltas, and the curve as a whole."""
    score, inside, run = evidence.score[kept], evidence.inside[kept], evidence.run[kept]
    apart, right = one_target_each(run), surest_first(score, inside)
    deltas = worth_testing(ceiling, len(kept), alpha, independent=apart) if named is None else tuple(named)
    each = (_COUNTED if named is None else 1.0) * alpha / len(deltas)
    broken: list[Violation] = []
    able: tuple[float, float] | None = None
    for delta in deltas:
        claimed = ceiling.epsilon(delta)
        floor = from_guesses(right, delta, each, independent=apart)
        if floor > claimed:
            broken.append(Violation(claimed, delta, floor))
        if able is None and best_possible(len(kept), delta, each, independent=apart) > claimed:
            able = claimed, delta
    if broken:
        return max(broken, key=lambda found: found.floor - found.epsilon), None
    if named is not None:
        return None, able
    lines, rest = lines_of(ceiling), (1.0 - _COUNTED) * alpha
    return joint_violation(ceiling, lines, score, inside, rest), able


def _unbroken(
    ceiling: Curve, evidence: Evidence, confidence: float, deltas: Sequence[float], able: tuple[float, float] | None
) -> Verdict:
    """It holds where perfect guesses would have refuted it, and no bound for this number of runs is above it."""
    share = 1.0 - (1.0 - confidence) / len(deltas)
    measured = [(epsilon_at_least(evidence, delta, share), ceiling.epsilon(delta), delta) for delta in deltas]
    floor, claimed, delta = max(measured, key=lambda each: each[0] - each[1])
    targets = len(counted(evidence))
    if floor > claimed:
        told = f"{evidence.attack} shows epsilon >= {down(floor)} at delta {delta:.2g}"
        if not reads_above(floor, claimed):
            told = f"{evidence.attack} shows that epsilon is larger at delta {delta:.2g}"
        reason = (
            f"{told}, above the claimed {up(claimed)}, as a test of these {targets} targets alone. That is too few for a test "
            "which more runs never take back: more runs would decide."
        )
        return _said("inconclusive", reason, confidence, delta, claimed, claimed)
    floor, claimed, delta = measured[0]
    if able is not None and able not in [(claim, at) for _, claim, at in measured]:
        claimed, delta = able
        floor = min(epsilon_at_least(evidence, delta, confidence), claimed)
    if able is not None:
        return _judged(evidence, confidence, delta, claimed, floor)
    reach = best_possible(targets, delta, FORWARD * (1.0 - share), independent=one_target_each(evidence.run))
    if reach > claimed:
        reason = f"{targets} targets are too few to refute epsilon {up(claimed)} at delta {delta:.2g}, however much leaks."
    else:
        reason = f"{targets} targets can show at most epsilon {down(reach)} at delta {delta:.2g}; the claim is {up(claimed)}."
    return _said("inconclusive", reason, confidence, delta, claimed, floor)


def _said(outcome: str, reason: str, confidence: float, delta: float, claimed: float, floor: float) -> Verdict:
    return Verdict(outcome=outcome, reason=reason, confidence=confidence, delta=delta, ceiling=claimed, floor=floor)


def _judged(evidence: Evidence, confidence: float, delta: float, claimed: float, floor: float) -> Verdict:
    """Refuted where the floor is above what is claimed, unless nobody tossed coins; holds otherwise."""
    measured = f"{evidence.attack} shows epsilon >= {down(floor)} at delta {delta:.2g}"
    if floor <= claimed:
        outcome, reason = "holds", f"{measured}, within the claimed {up(claimed)}."
    else:
        outcome = "refuted"
        if not reads_above(floor, claimed):
            measured = f"{evidence.attack} shows that epsilon is larger at delta {delta:.2g}"
        reason = f"{measured}, above the claimed {up(claimed)}."
        if not evidence.randomised:
            outcome = "warning"
            reason = f"{reason[:-1]}; but who was inside was not decided by coins, so this is a warning."
    return Verdict(outcome=outcome, reason=reason, confidence=confidence, delta=delta, ceiling=claimed, floor=floor)


def reads_above(floor: float, claimed: float) -> bool:
    """Rounded, do the two still read the right way round?"""
    return math.isfinite(claimed) and float(down(floor)) > float(up(claimed))


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
