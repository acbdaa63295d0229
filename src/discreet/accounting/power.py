"""The tightest bound on the power of a test that a composition allows.

Every (epsilon, delta) pair bounds it, and each of the two families of bounds is convex: delta + e^epsilon level in e^epsilon,
1 - e^-epsilon (1 - delta - level) in e^-epsilon. A rough look over all scales finds the place, a closer one the least.
"""

from __future__ import annotations

import math

import numpy as np

from discreet.accounting import profile as profiles
from discreet.accounting.composition import ROUGHLY, Composition

DRAWN = 20  # places for a drawing
SCANNED = 8  # places looked at before the best is searched for


def near(whole: Composition, level: float) -> list[profiles.Deltas]:
    """For tests in either direction, epsilons and their deltas among which the tightest bound at this level lies."""
    told = np.array([whole.told() if level < 1 else 1.0])
    last = np.array([min(whole.most, 1e15)]), told, told
    if level in (0, 1) or whole.tiny or whole.huge:
        return [last]
    seen = [last, *_scan(whole, level)]
    if whole.even():  # then a look over all scales is quick, and no drawing is below what is told of one level
        seen.append(whole.everywhere()[0])
    return [_closer(whole, seen, level, swap) for swap in ((False,) if whole.symmetric else (False, True))]


def everywhere(whole: Composition) -> list[profiles.Deltas]:
    """Epsilons and their deltas over all scales, for tests in either direction: for a drawing of all levels at once."""
    told = np.array([whole.told()])
    last = np.array([min(whole.most, 1e15)]), told, told
    seen = [last] if whole.tiny or whole.huge else [last, *_scan(whole, 1e-7, DRAWN)]
    forward = _joined(seen)
    return [forward] if whole.symmetric else [forward, (forward[0], forward[2], forward[1])]


def _closer(whole: Composition, seen: list[profiles.Deltas], level: float, swap: bool) -> profiles.Deltas:
    """What was seen, and more around the best of it."""
    seen = [(e, two, one) if swap else (e, one, two) for e, one, two in seen]
    middle = _best(seen, level)
    for _ in range(4):
        bounds, spread = whole.bounds(middle)
        width = 3 * min(spread, max(middle, spread / 10))
        grid = np.linspace(max(middle - width, 0.0), min(middle + width, whole.most), 121)
        for _ in range(2):
            one, two = (bound.delta(grid) for bound in (bounds[::-1] if swap else bounds))
            seen.append((grid, one, two))
            centre, gap = _best(seen[-1:], level), float(grid[1] - grid[0])
            grid = np.linspace(max(centre - gap, 0.0), min(centre + gap, whole.most), 61)
        if abs(centre - middle) <= width / 6:
            break
        middle = centre
    return _joined(seen)


def _scan(whole: Composition, level: float, count: int = SCANNED) -> list[profiles.Deltas]:
    """Epsilons and deltas over all scales, roughly: where the tightest bound may lie."""
    like = [whole.where(d, lambda k, t, m, s: k - (t + 1) * m, math.log(level), level)[1] for d in whole.directions]
    spread = math.sqrt(max(losses.tilted(0.0)[3] for losses in whole.look(whole.tail(1e-12))))
    far = min(max(max(like) + 3 * spread, 30 * spread), whole.most)
    first = max(min(spread / 10, far / 2), 1e-290)
    places = np.unique(np.clip([*np.geomspace(first, max(far, 1e-289), count), *like], 0.0, far))
    seen = []
    for before, here, after in zip([0.0, *places], places, [*places[1:], far]):
        grid = np.linspace((before + here) / 2, (here + after) / 2, 17)
        one, two = (bound.delta(grid) for bound in whole.bounds(float(here), ROUGHLY)[0])
        seen.append((grid, one, two))
    return seen


def _joined(seen: list[profiles.Deltas]) -> profiles.Deltas:
    one, two, three = (np.concatenate([pair[i] for pair in seen]) for i in range(3))
    return one, two, three


def _best(seen: list[profiles.Deltas], level: float) -> float:
    """The epsilon whose bound on the power is least."""
    every = _joined(seen)
    return float(every[0][int(np.argmin(profiles.power_bound(*every, level)))])
