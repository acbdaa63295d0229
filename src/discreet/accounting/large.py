"""Compositions in which single large losses matter: outcomes with such a loss are told from those without."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from discreet.accounting import fourier, jump
from discreet.accounting.compose import Losses
from discreet.accounting.fourier import FADED, Wave
from discreet.accounting.fourier import MOST as MOST_WAVES
from discreet.accounting.mesh import fitted
from discreet.accounting.saddle import Saddle

SMOOTH = 3e-5  # the share of epsilon that smoothing may cost
POINTS = 2000  # of the fitted grids of all parts together
FEWEST = 60  # and of each
CUTS = (0.9, 0.8, 0.65, 0.5, 0.35, 0.2)  # shares of epsilon above which a loss is called large
TOPS = (6.0, 3.0)  # multiples of it above which a loss is counted apart
FAR = 3e-3  # the least share of delta that such losses must have
ALIAS = math.log(1e-7)  # log of the share of delta that the period of a series may add, at either end


class Large(Saddle):
    """The bounds of a composition that count large losses apart: docs/theory/accounting-composition.md."""

    def by_near(self, direction: int, least: float, delta: float) -> float:
        """epsilon(delta) where it is small beside many losses, which are counted apart: a bound at or below `least`."""
        for top in TOPS:
            for _ in range(4):
                far = np.array([top * least])
                if (
                    math.fsum(n * float((item.backward if direction else item.forward)(far)[0]) for item, n in self.parts)
                    < FAR * delta
                ):
                    break  # so large a loss is too rare to matter
                there = self._near(direction, least, delta, top * least)
                here = there.epsilon(delta, least, self.most) if there is not None else math.inf
                moved, least = here < least * (1 - 1e-3), min(least, here)
                if not moved:
                    break
        return least

    def _near(self, direction: int, epsilon: float, delta: float, cut: float) -> Wave | None:
        """A composition tilted towards `epsilon` with losses above the cut in closed form: for every epsilon up to this one."""
        rest = [(item, n, ends) for (item, n), ends in zip(self.parts, self.reach(self.tail(delta))) if item.shift is None]
        points, tilt = max(POINTS // max(len(rest), 1), FEWEST), 1 / epsilon
        for _ in range(2):
            atoms = [(fitted(item, direction, tilt, ends, points, cut, self.first), n) for item, n, ends in rest]
            split = jump.Split.at(atoms, cut)
            losses = Losses(split.small, self.square)
            tilt = centred(losses, epsilon, ALIAS + math.log(delta))
        if not tilt < math.inf:
            return None
        width = period(losses, tilt, epsilon, ALIAS + math.log(delta))
        square = self._smoothing(epsilon, tilt, width)
        return jump.without_far(split, fourier.wave(split.small, square, tilt, width), self.square, epsilon)

    def by_jumps(self, direction: int, least: float, delta: float) -> float:
        """epsilon(delta) where single large losses matter: a bound at or below `least`, which is one."""
        for _ in range(12):
            there = self._jump(direction, least, delta) if least > 0 else None
            here = there.epsilon(delta, least, self.most) if there is not None else math.inf
            if here >= least * (1 - 1e-5):
                break
            least = here
        return least

    def _jump(self, direction: int, epsilon: float, delta: float) -> Wave | None:
        """A composition that tells outcomes with a large loss from those without, each tilted towards `epsilon` on its own."""
        slope = max(self.where(direction, lambda k, t, m, s: -m, -epsilon, delta)[0], 1e-3 / epsilon)
        rest = [(item, n, ends) for (item, n), ends in zip(self.parts, self.reach(self.tail(delta))) if item.shift is None]
        points = max(POINTS // max(len(rest), 1), FEWEST)

        def split(cut: float, tilt: float) -> jump.Split:
            return jump.Split.at(
                [(fitted(item, direction, tilt, ends, points, cut, self.first), n) for item, n, ends in rest], cut
            )

        aim = ALIAS + math.log(delta)
        best: tuple[float, float, float, float] | None = None
        for share in CUTS:
            cut = share * epsilon
            parted = split(cut, slope)
            tilt = centred(losses := Losses(parted.small, self.square), epsilon, aim)
            large = jump.tilt_to(parted, self._smoothing(epsilon, tilt, 0.0), epsilon, slope / 4)
            if not tilt < math.inf or (large is None and any(len(loss) for loss, _ in parted.large)):
                continue
            steep = large.small.tilt if large else 0.0
            grown = max(losses.log_moment(tilt) - tilt * epsilon, large.log_moment - steep * epsilon if large else -math.inf)
            best = min(best or (math.inf, 0.0, 0.0, 0.0), (grown, cut, tilt, steep))  # errors grow with the terms
        if best is None:
            return None
        _, cut, tilt, steep = best
        without, having = split(cut, tilt), split(cut, steep)
        small = fourier.chernoff(without.small, self.square, tilt)
        if small.log_delta(np.array([epsilon]))[0] > aim + 1:
            width = period(Losses(without.small, self.square), tilt, epsilon, aim)
            small = fourier.wave(without.small, self._smoothing(epsilon, tilt, width), tilt, width)
        if not steep:  # there are no large losses
            return replace(small, base=without.infinite)
        large = having.jumps(self._smoothing(epsilon, steep, 0.0), steep)
        width = jump.period(large, epsilon, aim) if large else 0.0
        large = having.jumps(self._smoothing(epsilon, steep, width), steep)
        return replace(jump.wave(large, width), others=small) if large else None

    def _smoothing(self, epsilon: float, tilt: float, width: float) -> float:
        """The squared shift of a Gaussian mechanism that costs little of epsilon, and keeps the frequencies few."""
        return max(self.square, 2 * SMOOTH * epsilon / (1 + tilt), 2 * FADED * (width / (2 * math.pi * MOST_WAVES)) ** 2)


def period(losses: Losses, tilt: float, epsilon: float, aim: float) -> float:
    """The period at which what wraps around is below e^aim at either end."""
    spread = math.sqrt(max(losses.tilted(tilt)[3], 1e-300))
    shifts = [c / spread for c in (1.0, 3.0, 6.0)]
    up = min((losses.log_moment(tilt + s) - (tilt + s) * epsilon - aim) / s for s in shifts)
    return max(-aim / tilt, up)


def centred(losses: Losses, epsilon: float, aim: float) -> float:
    """The tilt that centres losses on `epsilon`, or one over twice their spread where that is larger.

    Where losses end below epsilon none does, and one is enough at which Chernoff leaves less than e^aim of delta.
    """
    low, high = 0.0, 1 / math.sqrt(max(losses.tilted(0.0)[3], 1e-290))
    for _ in range(40):
        _, log_moment, mean, _ = losses.tilted(high)
        if log_moment - high * epsilon < aim:
            return high
        if mean >= epsilon:
            break
        low, high = high, 2 * high
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if losses.tilted(middle)[2] < epsilon else (low, middle)
        if high - low < 1e-3 * high:
            break
    return max(high, 0.5 / math.sqrt(max(losses.tilted(high)[3], 1e-290)))
