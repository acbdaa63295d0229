"""The parts of a composition, and where their losses concentrate under a tilt: what every way to compose begins with."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from discreet.accounting import lattice, mesh
from discreet.accounting.compose import Losses
from discreet.accounting.profile import Profile
from discreet.accounting.rounding import total_up

TINY = 1e-200  # losses that add up to less than this are not worth composing: their sum is bound enough


class Saddle:
    """Several mechanisms, each `n` times."""

    def __init__(self, parts: tuple[tuple[Profile, int], ...], share: float = 1e-6) -> None:
        self.parts = parts
        self.share = share  # of delta that may be counted as infinite loss
        self.terms = sum(n for _, n in parts)
        self.first = mesh.points_for(len(parts))
        self.most = total_up((item.most, n) for item, n in parts)
        spacings = {item.spacing for item, _ in parts}
        self.spacing = spacings.pop() if len(spacings) == 1 else None
        self.tiny = self.most < TINY
        self.square = math.fsum(n * item.shift * item.shift for item, n in parts if item.shift is not None) * (1 + 1e-15)
        self.symmetric = all(item.symmetric for item, _ in parts)
        self._looks: dict[float, list[Losses]] = {}
        self._reaches: dict[float, list[tuple[float, float]]] = {}

    @property
    def directions(self) -> range:
        return range(1 if self.symmetric else 2)

    def told(self) -> float:
        """The probability that some mechanism tells all, whatever epsilon is."""
        log = math.fsum(n * math.log1p(-min(float(item.delta(np.array([1e15]))[0]), 1 - 1e-16)) for item, n in self.parts)
        return -math.expm1(log) * (1 + 1e-15)

    def place(self, direction: int, epsilon: float, delta: float | None = None) -> tuple[float, float]:
        """The tilt that centres losses on `epsilon`, and about log delta there: losses are followed far enough for it."""
        for aim in (1e-12, 1e-40, 1e-120, 1e-306) if delta is None else (delta,):
            slope, mean, log = self.where(direction, lambda k, t, m, s: -m, -epsilon, aim)
            if mean >= 0.999 * epsilon and log > math.log(aim):
                break
        return slope, log

    def where(
        self, direction: int, measure: Callable[[float, float, float, float], float], target: float, delta: float
    ) -> tuple[float, float, float]:
        """The tilt t >= 0 at which measure(K, t, K', sqrt K'') falls to `target`; with it, the loss it centres on
        and the log of delta there, all from a coarse look for deltas near `delta`."""
        losses = self.look(self.tail(delta))[direction]
        low, high = 0.0, 1 / math.sqrt(max(losses.tilted(0.0)[3], 1e-290))
        highest = 1e12 * high

        def at(tilt: float) -> tuple[float, float, float]:
            _, log_moment, mean, variance = losses.tilted(tilt)
            spread = math.sqrt(max(variance, 1e-300))
            return measure(log_moment, tilt, mean, spread), mean, log_delta(log_moment, tilt, mean, spread)

        found = at(low)
        if found[0] <= target:
            return low, found[1], found[2]
        below = whole = found[0] - target  # the excess at `low`; it falls as the tilt grows
        while (excess := (found := at(high))[0] - target) > 0 and high < highest:
            low, high, below = high, high * 8, excess
        if excess > 0:  # it never falls so far
            return high, found[1], found[2]
        for turn in range(40):
            if high - low < 2e-3 * high or abs(excess) < 2e-4 * whole:
                break
            share = below / (below - excess)
            share = min(max(share, 0.02), 0.98) if turn % 3 < 2 else 0.5  # a secant, now and then a half
            middle = low ** (1 - share) * high**share if low > 0 and high > 2 * low else low + share * (high - low)
            here = at(middle)
            if here[0] > target:
                low, below = middle, here[0] - target
            else:
                high, excess, found = middle, here[0] - target, here
        return high, found[1], found[2]

    def look(self, tail: float) -> list[Losses]:
        """The parts by a few atoms each, forward and backward: good enough to know where to look."""
        if tail not in self._looks:
            if len(self._looks) > 3:
                self._looks.clear()
            ranges = zip(self.parts, self.reach(tail))
            looks = [(mesh.look(item, *ends, self.first), n) for (item, n), ends in ranges if item.shift is None]
            self._looks[tail] = [Losses([(sides[d], n) for sides, n in looks], self.square) for d in (0, 1)]
        return self._looks[tail]

    def tail(self, delta: float) -> float:
        """How much of each mechanism may go to infinity when deltas like this one are asked for."""
        return float(
            10.0 ** max(math.floor(math.log10(max(delta, 1e-306)) - math.log10(self.terms) + math.log10(self.share)), -318)
        )

    def reach(self, tail: float) -> list[tuple[float, float]]:
        """How far the losses of each part are followed, backward and forward."""
        if tail not in self._reaches:
            if len(self._reaches) > 3:
                self._reaches.clear()
            self._reaches[tail] = [lattice.reach(item, tail) for item, _ in self.parts]
        return self._reaches[tail]


def log_delta(log_moment: float, tilt: float, mean: float, spread: float) -> float:
    """The saddle-point approximation of log delta at epsilon = mean."""
    return log_moment - tilt * mean - math.log(1 + tilt * (1 + tilt) * spread * math.sqrt(2 * math.pi))
