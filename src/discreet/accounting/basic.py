"""Basic composition: epsilons add up and deltas add up, whatever the mechanisms are.

Composing distributions is nearly always better. Not so where delta is hardly more than the probability that something tells
all, where all but one mechanism are so small that a grid costs more than they do, or at deltas near the smallest float.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from fractions import Fraction

import numpy as np

from discreet.accounting.profile import Profile
from discreet.accounting.rounding import float_up, total_up
from discreet.accounting.single import Single

Parts = tuple[tuple[Profile, int], ...]
FEW = 4  # mechanisms, each of which is given all that is left of delta


def epsilon(parts: Parts, delta: float) -> float:
    """The least sum of epsilons over some ways to divide delta: each has what it tells anyway, and a share of the rest."""
    told = [_told(item) for item, _ in parts]
    left = Fraction(delta) - sum(n * Fraction(one) for (_, n), one in zip(parts, told))
    if left < 0:
        return math.inf
    singles = [Single(item) for item, _ in parts]
    anyway = [one.epsilon(least) for one, least in zip(singles, told)]

    def divided(shares: dict[int, Fraction]) -> float:
        each = dict(enumerate(anyway))
        each.update({i: singles[i].epsilon(_down(Fraction(told[i]) + share)) for i, share in shares.items() if share})
        return total_up((each[i], n) for i, (_, n) in enumerate(parts))

    return min(divided(shares) for shares in _ways(parts, left))


def may_beat(parts: Parts, delta: float, epsilon: float) -> bool:
    """Whether epsilons that add up to less than this one may have deltas that add up to `delta`.

    Each of them is then below epsilon / n, and delta falls, so that what each has there adds up to no more than `delta`.
    """
    if epsilon in (0.0, math.inf):
        return epsilon > 0
    each = (n * float(item.delta(np.array([min(epsilon / n * (1 + 1e-9), 1e15)]))[0]) for item, n in parts)
    return math.fsum(each) <= delta * (1 + 1e-9)


def _ways(parts: Parts, left: Fraction) -> Iterator[dict[int, Fraction]]:
    terms = sum(n for _, n in parts)
    yield dict.fromkeys(range(len(parts)), left / terms)
    if len(parts) <= FEW:
        for i, (_, n) in enumerate(parts):
            yield {i: left / n}


def delta(parts: Parts, epsilon: float) -> float:
    """What all of them tell anyway, where epsilon is enough for that; else 1."""
    told = [_told(item) for item, _ in parts]
    enough = total_up((Single(item).epsilon(least), n) for (item, n), least in zip(parts, told))
    return (
        min(float_up(sum((n * Fraction(one) for (_, n), one in zip(parts, told)), Fraction(0))), 1.0)
        if epsilon >= enough
        else 1.0
    )


def _told(item: Profile) -> float:
    return float(item.delta(np.array([1e15]))[0])


def _down(value: Fraction) -> float:
    nearest = float(value)
    return nearest if Fraction(nearest) <= value else math.nextafter(nearest, 0.0)
