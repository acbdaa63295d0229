"""How many canaries an audit needs, before it is run."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from discreet.audit.bounds.betting import alike, forgiven, shares, tail, wealth
from discreet.audit.bounds.gaussian import mu_of
from discreet.audit.bounds.order import FORWARD
from discreet.audit.bounds.search import STEP
from discreet.audit.bounds.weighted import SPAN, detects
from discreet.core import check
from discreet.errors import InvalidValue

FAMILIES = ("pure", "gaussian")
MOST = 1 << 34
_DEPTHS = 2.0 ** -np.arange(0, 11)  # shares of the canaries, surest first, at which the bets are looked at


def canaries_needed(
    epsilon: float, *, claimed: float, confidence: float, power: float, delta: float = 0.0, family: str = "pure"
) -> int:
    """How many canaries refute `claimed`, with probability `power`, when the mechanism truly leaks `epsilon`?

    For the best attack on the mechanism of its `family` that leaks most: `pure` is randomised response, whose guesses
    are all equally sure; `gaussian` has `epsilon` at `delta` and few sure guesses, so it needs more. Enough, not least:
    the bets are looked at a few depths only. `claimed=0` asks for any leak at all.

    >>> canaries_needed(4.0, claimed=2.0, confidence=0.95, power=0.9) < 200
    True
    """
    for name, value in (("epsilon", epsilon), ("claimed", claimed)):
        check.nonnegative(name, value)
    check.open_fraction("confidence", confidence)
    check.open_fraction("power", power)
    check.small_fraction("delta", delta)
    check.word("family", family, FAMILIES)
    if epsilon <= claimed:
        raise InvalidValue(f"epsilon must be above what is claimed to be detected; got {epsilon:g} against {claimed:g}.")
    if family == "gaussian" and delta == 0:
        raise InvalidValue("A Gaussian mechanism has no epsilon at delta 0; pass delta=1e-5, say.")
    return _least(lambda count: detection(count, epsilon, claimed, 1.0 - confidence, delta, family) >= power)


def detection(count: int, epsilon: float, claimed: float, alpha: float, delta: float, family: str) -> float:
    """The probability, at least, that `count` canaries in independent runs refute `claimed`."""
    null, alpha = np.array([claimed], dtype=np.float64), FORWARD * alpha  # the rest is for reversed scores
    spared, level = forgiven(null, count, delta, alpha, independent=True)
    along, same, weighted = shares(null)
    flat = int(alike(count, null)[0])

    def sure(share: float) -> float:
        return _sure(share, epsilon, delta, family)

    def rich(hits: float, made: int) -> bool:
        return bool(wealth(np.array([hits]), np.array([made - hits]), spared, null)[0] >= -np.log(along[0] * level[0]))

    def rare(hits: float, made: int) -> bool:
        return bool(tail(hits - spared, np.array([made]), null)[0] <= same[0] * level[0])

    grid = int(claimed / STEP) + 1
    span = STEP * np.arange(grid // SPAN * SPAN, (grid // SPAN + 1) * SPAN, dtype=np.float64)
    most, least = forgiven(span, count, delta, alpha, independent=True)
    chances = [_chance(flat, sure(flat / count), rare), detects(sure, count, grid, most, weighted[0] * least)]
    for depth in _DEPTHS:
        made = max(1, round(count * float(depth)))
        chances.append(_chance(made, sure(float(depth)), rich))
    return max(chances)


def _chance(made: int, sure: float, enough: Callable[[float, int], bool]) -> float:
    """Pr[Binomial(made, sure) right guesses are enough]."""
    from scipy.stats import binom

    if not enough(float(made), made):
        return 0.0
    low, high = 0, made  # `high` is enough, `low` is not
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if enough(float(middle), made) else (middle, high)
    return float(binom.sf(high - 1, made, sure))


def _sure(depth: float, epsilon: float, delta: float, family: str) -> float:
    """How often the surest share `depth` of guesses is right."""
    from scipy.optimize import brentq
    from scipy.special import expit, ndtr

    if family == "pure":
        return float(expit(epsilon))
    half = mu_of(epsilon, delta) / 2.0
    cut = brentq(lambda c: ndtr(half - c) + ndtr(-half - c) - depth, 0.0, half + 40.0) if depth < 1 else 0.0
    return float(ndtr(half - cut) / depth)


def _least(enough: Callable[[int], bool]) -> int:
    """The least count that is enough, by doubling and halving."""
    high = 1
    while not enough(high):
        high *= 2
        if high > MOST:
            raise InvalidValue("More than 2^34 canaries would be needed; the two are too close to tell apart.")
    low = high // 2
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if enough(middle) else (middle, high)
    return high
