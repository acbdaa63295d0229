"""Many mechanisms: choose a grid and a tilt, compose, read off the bound."""

from __future__ import annotations

import math

import numpy as np

from discreet.accounting import basic, fourier, lattice
from discreet.accounting import profile as profiles
from discreet.accounting.compose import LARGEST, OUTSIDE, Tails, Window, rounding, window
from discreet.accounting.fourier import FADED, Wave
from discreet.accounting.fourier import MOST as MOST_WAVES
from discreet.accounting.large import ALIAS, FEWEST, POINTS, SMOOTH, Large, period
from discreet.accounting.lattice import Pair
from discreet.accounting.mesh import fitted
from discreet.accounting.profile import Profile
from discreet.accounting.rounding import total_up
from discreet.accounting.saddle import log_delta as saddle_log_delta
from discreet.accounting.series import Series, series
from discreet.accounting.single import Single

HUGE = 1e11  # losses from here on are beyond every grid
TOLERANCE = 3e-5  # aimed-at relative excess of epsilon; the answer is an upper bound whatever this is
SMALL = 1e-4  # a spread of losses below which e^loss - 1 is not taken as a difference
LOOSE = 3e-4  # a relative excess of epsilon, or a share of delta that is allowance, that asks for another way
MANY = 10**9  # terms from which rounding shows on an even lattice
DIFFERENT = 100  # parts, all on one even lattice, beyond which grids of their own are quicker
WORK = 50_000_000  # points times frequencies of one composition
ROUGHLY = 512  # frequencies while the place is still searched for
STEEPEST = 300.0  # the largest tilt, over the spread of losses
AMPLIFIED = 12.0  # log of how much larger than delta the terms of a series may be
FEW_LOSSES = 30  # up to so many, each that they may have shows by itself
LEAST_LOG = -705.0  # log of the least delta that is searched for


class Composition(Large):
    """The privacy loss of several mechanisms together, each `n` times."""

    def __init__(self, parts: tuple[tuple[Profile, int], ...], share: float = 1e-6) -> None:
        super().__init__(parts, share)
        self._pairs: dict[tuple[float, float], list[tuple[Pair, int]]] = {}
        self._windows: list[tuple[int, float, Window]] = []
        self._everywhere: list[profiles.Deltas] | None = None
        self.rest, self.huge = self._apart()

    def _apart(self) -> tuple[Composition | None, list[tuple[Profile, int]]]:
        """Mechanisms whose losses are beyond every grid, such as a whole number with hardly any noise, and the others."""
        end = np.array([HUGE])
        huge = [(item, n) for item, n in self.parts if item.most > HUGE and float(item.delta(end)[0]) > 0.5]
        rest = tuple((item, n) for item, n in self.parts if all(item is not other for other, _ in huge)) if huge else ()
        return Composition(rest, self.share) if rest else None, huge

    def delta(self, epsilon: float) -> float:
        if epsilon >= self.most or self.tiny:
            return max(self.told(), -math.expm1(min(epsilon - self.most, 0.0)))
        epsilon = min(epsilon, 1e15)  # delta falls
        if self.huge:
            return self._delta_by_sum(epsilon)
        found = self._at(0, epsilon)
        if not self.symmetric and not self._surely(epsilon, found):
            found = max(found, self._at(1, epsilon))
        found = max(found, profiles.LEAST)  # too small for a float is not 0
        if self.told() and found < 2 * self.told():
            found = min(found, basic.delta(self.parts, epsilon))
        return min(found, self.told() - math.expm1(epsilon - self.most))  # no loss is above the largest

    def epsilon(self, delta: float) -> float:
        if self.tiny:
            return self.most
        told = self.told()
        if self._variation() <= delta:
            return 0.0
        if delta <= told:
            least = basic.epsilon(self.parts, delta)
            return min(least, self.most) if delta == told else least
        found = self._epsilon_by_sum(delta) if self.huge else self._epsilon(delta)
        if (delta <= 2 * told or 1 < len(self.parts) <= basic.FEW) and basic.may_beat(self.parts, delta, found):
            found = min(found, basic.epsilon(self.parts, delta))
        return min(found, self.most)

    def _epsilon(self, delta: float) -> float:
        """epsilon(delta) in the worse of the two directions."""
        found = max(self.solve(0, delta), 0.0)
        if not self.symmetric and not self._surely(found, delta):
            found = max(found, self.solve(1, delta))
        return found

    def _variation(self) -> float:
        """delta(0) at most: total variations add up."""
        return math.fsum(n * float(item.delta(np.zeros(1))[0]) for item, n in self.parts) * (1 + 1e-12)

    def _epsilon_by_sum(self, delta: float) -> float:
        """By basic composition: half of delta for what is beyond every grid, half for the rest."""
        count = sum(n for _, n in self.huge)
        each = [(Single(item).epsilon(delta / (2 * count)), n) for item, n in self.huge]
        rest = self.rest.epsilon(delta / 2) if self.rest is not None else 0.0
        return min(total_up([*each, (rest, 1)]), self.most)

    def _delta_by_sum(self, epsilon: float) -> float:
        """The same the other way: a thousandth of epsilon for the rest."""
        count = sum(n for _, n in self.huge)
        at = np.array([epsilon * 0.999 / count])
        rest = self.rest.delta(epsilon * 1e-3) if self.rest is not None else 0.0
        return min(math.fsum(n * float(item.delta(at)[0]) for item, n in self.huge) + rest, 1.0)

    def rough_log_delta(self, epsilon: float) -> float:
        """log delta(epsilon) by the saddle point alone: no bound, but near, and quick."""
        if self.huge:
            return math.log(max(self._delta_by_sum(epsilon), 1e-300))
        if epsilon >= self.most or self.tiny:
            return math.log(max(self.told(), 1e-300))
        return max(self.place(d, epsilon)[1] for d in self.directions)

    def near(self, level: float) -> list[profiles.Deltas]:
        """For tests in either direction, epsilons and their deltas among which the tightest bound at this level lies."""
        from discreet.accounting.power import near

        return near(self, level)

    def everywhere(self) -> list[profiles.Deltas]:
        """Epsilons and their deltas over all scales, for tests in either direction."""
        from discreet.accounting.power import everywhere

        if self._everywhere is None:
            self._everywhere = everywhere(self)
        return self._everywhere

    def bounds(self, epsilon: float, most: int = MOST_WAVES) -> tuple[list[Wave | Window], float]:
        """A bound in each of the two directions that is tight near `epsilon`, and the spread of the losses there."""
        found = [self._near_bound(direction, epsilon, most) for direction in self.directions]
        return found * (2 // len(found)), max(one.spread for one in found)

    def _near_bound(self, direction: int, epsilon: float, most: int) -> Wave | Window:
        """On an even lattice where that is near the truth, which takes a hundredth of the time of a Fourier series."""
        slope, log_delta = self.place(direction, epsilon)
        delta = math.exp(min(max(log_delta, -690.0), 0.0))
        if self._even(direction, slope, epsilon, delta):
            there = self._window(direction, epsilon)
            if self._settled(there, epsilon, float(there.delta(np.array([epsilon]))[0])):
                return there
        return self.wave(direction, slope, epsilon, delta, most)

    def even(self) -> bool:
        """Whether an even lattice will do for it, a standard deviation of its losses above 0."""
        spread = math.sqrt(max(losses.tilted(0.0)[3] for losses in self.look(self.tail(1e-12))))
        places = [(direction, *self.place(direction, spread)) for direction in self.directions]
        return all(self._even(d, slope, spread, math.exp(min(max(log, -690.0), 0.0))) for d, slope, log in places)

    # -- reading off -------------------------------------------------------------------------------------------------

    def _at(self, direction: int, epsilon: float) -> float:
        value, settled = self._direct(direction, epsilon)
        return value if settled else self._by_inverse(direction, epsilon, value)

    def _direct(self, direction: int, epsilon: float) -> tuple[float, bool]:
        """delta(epsilon) by the series and windows at hand, and whether it is as near the truth as it should be."""
        slope, log_delta = self.place(direction, epsilon)
        delta = math.exp(min(max(log_delta, -740.0), 0.0))
        even = self._even(direction, slope, epsilon, delta)
        quick = self._series(direction, slope, epsilon, delta) if even and -690 < log_delta < 0 else None
        if quick is not None:
            value = quick.delta(epsilon)
            if quick.doubt(epsilon, value) + (quick.base - self.told()) / value < 1e-5:
                return value, True
        value, settled = self._by_window(direction, epsilon) if even else (1.0, False)
        if settled:
            return value, True
        there = self.wave(direction, slope, epsilon, delta)
        value = min(value, float(there.delta(np.array([epsilon]))[0]))
        value = min(value, self._variation())
        if value >= 1.0 and log_delta > -1e-2:
            return 1.0, True
        lost = there.doubt(epsilon) + (there.base - self.told()) / max(value, 1e-320)
        return value, lost < LOOSE or value <= profiles.LEAST

    def _by_inverse(self, direction: int, epsilon: float, value: float) -> float:
        """delta(epsilon) where no series at hand is tight: any delta whose epsilon is no larger will do.

        The search is a secant between two deltas whose epsilons are known, and a half wherever that is slow.
        """
        low, high = LEAST_LOG, math.log(value)
        below = above = math.nan  # log of their epsilons over this one
        for turn in range(40):
            share = below / (below - above) if turn % 3 < 2 and math.isfinite(below - above) else 0.5
            middle = low + min(max(share, 0.01), 0.99) * (high - low)
            there = self._solve(direction, math.exp(middle))
            both = 0 < there < math.inf and epsilon > 0
            gap = math.log(there) - math.log(epsilon) if both else math.copysign(math.inf, there - epsilon)
            if gap <= 0:
                high, above = middle, gap
            else:
                low, below = middle, gap
            if high - low < 1e-4 or -1e-7 < gap <= 0:
                break
        return min(value, math.exp(high) * (1 + 1e-12))

    def _by_window(self, direction: int, epsilon: float) -> tuple[float, bool]:
        """delta(epsilon) on an even lattice, and whether it is as near the truth as it should be."""
        there = self._window(direction, epsilon)
        value = float(there.delta(np.array([epsilon]))[0])
        if 0 < value < 1 and there.doubt(epsilon) + (there.base - self.told()) / value > 1e-4:
            there = self._window(direction, epsilon, value)
            value = min(value, float(there.delta(np.array([epsilon]))[0]))
        return value, self._settled(there, epsilon, value)

    def _settled(self, there: Window, epsilon: float, delta: float) -> bool:
        """Whether what grid and allowances added is too little to matter."""
        if len(there.loss) < 2:  # all losses but one are too rare to be kept
            return False
        step = float(there.loss[1] - there.loss[0])
        exact = self.spacing is not None and step < 1.01 * self.spacing
        added = 0.0 if exact else self.terms * step * step * (1 + there.tilt) / 12
        size = max(epsilon, there.spread / 100)
        return added < LOOSE * size and there.doubt(epsilon) + (there.base - self.told()) / max(delta, 1e-300) < LOOSE

    def _even(self, direction: int, slope: float, epsilon: float, delta: float) -> bool:
        """Whether an even lattice can be as fine as the tolerance asks."""
        spread = math.sqrt(max(self.look(self.tail(delta))[direction].tilted(0.0)[3], 0.0))
        if spread < SMALL or self.terms > MANY or len(self.parts) > DIFFERENT:
            return False
        step = self._step(slope, epsilon)
        return max(least + most for least, most in self.reach(self.tail(delta))) < step * lattice.LARGEST

    def _surely(self, epsilon: float, delta: float) -> bool:
        """Chernoff alone shows that the backward direction is below delta here, so it need not be composed.

        E[(1 - e^{epsilon - Y})+] <= t^t / (1 + t)^{1 + t} e^{K(t) - t epsilon} for every t > 0.
        """
        if epsilon >= math.fsum(n * item.most_backward for item, n in self.parts) * (1 + 1e-15):
            return True  # no loss is so large
        losses = self.look(self.tail(delta))[1]
        tilt = self.where(1, lambda k, t, m, s: -m, -epsilon, delta)[0]
        if tilt == 0 or losses.infinite >= delta / 2:
            return False
        shape = tilt * math.log(tilt) - (1 + tilt) * math.log1p(tilt)
        return shape + losses.log_moment(tilt) - tilt * epsilon < math.log(delta - losses.infinite) - 1e-6

    def solve(self, direction: int, delta: float) -> float:
        """epsilon(delta), or a hair above."""
        found = self._solve(direction, delta)
        return self._by_delta(direction, found, delta) if self.terms <= FEW_LOSSES and self.most < math.inf else found

    def _by_delta(self, direction: int, found: float, delta: float) -> float:
        """The same where few losses, which end, make steps that a saddle point does not see: a search by delta(epsilon)."""
        high, low = min(found, self.most), 0.0
        if high <= 0 or self._direct(direction, high * (1 - 2e-3))[0] > delta:
            return found
        while high - low > 1e-4 * high:
            middle = (low + high) / 2
            low, high = (low, middle) if self._direct(direction, middle)[0] <= delta else (middle, high)
        return high

    def _solve(self, direction: int, delta: float) -> float:
        """epsilon(delta): guess by the saddle point, compose there, and again where the guess was off."""
        slope, guess, _ = self.where(direction, saddle_log_delta, math.log(delta), delta)
        guess = max(guess, 0.0)
        even = self._even(direction, slope, guess, delta)
        quick = self._series(direction, slope, guess, delta) if even else None
        if quick is not None:
            found = quick.epsilon(delta, guess)
            if quick.tilt * abs(found - guess) < 3 and quick.doubt(found, delta) < 1e-5:
                return found
        found, settled = self._by_windows(direction, guess, delta) if even else (math.inf, False)
        least = found if settled else min(found, self._by_waves(direction, slope, guess, delta))
        return self.by_near(direction, least, delta) if 0 < least < math.inf else least

    def _by_waves(self, direction: int, slope: float, guess: float, delta: float) -> float:
        """epsilon(delta) on grids fitted to each part."""
        least, most = math.inf, ROUGHLY
        for _ in range(10):
            there = self.wave(direction, slope, guess, delta, most)
            here = there.epsilon(delta, guess, self.most)
            worse, least = here > least, min(least, here)
            near = here < math.inf and abs(here - guess) < min(1 / there.tilt, 0.5 * here + 1e-3 * there.spread)
            if (most == MOST_WAVES and (near or worse)) or (near and there.count < ROUGHLY):
                break
            if worse and most < MOST_WAVES and least < math.inf:  # few frequencies need much smoothing here: back, with more
                here = least
            most = MOST_WAVES if near or (worse and here == least < math.inf) else most
            guess = here if here < math.inf else 1.5 * guess + there.spread
            slope = self.where(direction, lambda k, t, m, s: -m, -guess, delta)[0]
        if least == math.inf:
            return least if self.share > 1e-3 else Composition(self.parts, 1e-2).solve(direction, delta)
        if there.doubt(least) < LOOSE * max(1.0, there.tilt * least):  # what raises delta by x raises epsilon by x / tilt
            return least
        return self.by_jumps(direction, least, delta)

    def _by_windows(self, direction: int, guess: float, delta: float) -> tuple[float, bool]:
        """epsilon(delta) on an even lattice, and whether it is as near the truth as it should be."""
        found = math.inf
        for _ in range(8):
            there = self._window(direction, guess, delta)
            here, start = there.epsilon(delta), float(there.loss[0]) + there.centre
            settled, found = here > found * (1 - 1e-6), min(found, here)
            if here == math.inf:  # beyond the window
                guess = guess * 1.5 + 0.1
            elif here <= start:  # below it, unless it begins where losses do
                if start <= 0 or there.whole:
                    break
                guess = start / 4
            elif settled or (there.doubt(found) < 1e-4 and guess < 3 * found):
                break
            else:
                guess = max(found, 0.0)
        return found, found < math.inf and self._settled(there, found, delta)

    def _series(self, direction: int, slope: float, epsilon: float, delta: float) -> Series | None:
        """A composition tilted towards `epsilon` by few frequencies, where that can be had."""
        if slope <= 0:
            return None
        width, tilt = min(self._period(direction, tilt, epsilon, delta) for tilt in (slope, slope / 2))
        pairs = self._discretised(self._step(slope, epsilon), self.tail(delta))
        return series([(p.backward if direction else p.forward, n) for p, n in pairs], tilt, width)

    def wave(self, direction: int, slope: float, epsilon: float, delta: float, most: int = MOST_WAVES) -> Wave:
        """A composition tilted towards `epsilon` by a Fourier series on grids fitted to each part."""
        tail = self.tail(delta)
        losses = self.look(tail)[direction]
        whole = math.sqrt(max(losses.tilted(0.0)[3], 1e-290))
        slope = min(slope, STEEPEST / whole)  # where losses end, no tilt centres them on what lies beyond
        variance = max(losses.tilted(slope)[3], 1e-8 * whole * whole)
        tilt = max(slope, 0.5 / math.sqrt(variance))
        aim = math.log(delta) + AMPLIFIED  # less tilt may need a shorter period, but errors grow with e^{K(t) - t epsilon}
        less = [t for t in (tilt / 2, 0.7 * tilt, 0.85 * tilt) if losses.log_moment(t) - t * epsilon < aim]
        width, tilt = min(self._period(direction, t, epsilon, delta) for t in (tilt, *less))
        square = max(self.square, 2 * SMOOTH * max(epsilon, math.sqrt(variance) / 100) / (1 + tilt))
        width = min(width, 1e140)
        least = 2 * FADED * (width / (2 * math.pi)) ** 2  # smoothing times the square of how many frequencies it takes
        count = math.ceil(math.sqrt(least / square)) if least < square * most**2 else most
        square = max(square, least / count**2, 1e-290)
        rest = [(item, n, ends) for (item, n), ends in zip(self.parts, self.reach(tail)) if item.shift is None]
        points = max(min(POINTS, WORK // count) // max(len(rest), 1), FEWEST)
        return fourier.wave(
            [(fitted(item, direction, tilt, ends, points, first=self.first), n) for item, n, ends in rest], square, tilt, width
        )

    def _window(self, direction: int, epsilon: float, delta: float | None = None) -> Window:
        """A composition tilted towards `epsilon`, made now or found among those made before."""
        for side, made_for, made in self._windows:
            if side == direction and made_for <= 3 * epsilon and made.loss[0] <= epsilon - made.centre <= made.loss[-1]:
                lost = made.base - self.told()
                if made.doubt(epsilon) < 1e-4 and lost <= 1e-5 * float(made.delta(np.array([epsilon]))[0]):
                    return made
        slope, log_delta = self.place(direction, epsilon, delta)
        aim = math.exp(min(max(log_delta, -690.0), 0.0)) if delta is None else delta
        step = self._step(slope, epsilon)
        tilt, width = self._tilt(direction, slope, epsilon, aim, step)
        step = max(step, 1.05 * width / LARGEST)  # a coarser grid costs less than a window too narrow
        pairs = self._discretised(step, self.tail(aim))
        made = window([(p.backward if direction else p.forward, n) for p, n in pairs], tilt)
        self._windows.append((direction, epsilon, made))
        del self._windows[:-3]
        return made

    # -- choosing ----------------------------------------------------------------------------------------------------

    def _period(self, direction: int, tilt: float, epsilon: float, delta: float) -> tuple[float, float]:
        """The period w at which e^{-tw} delta(epsilon - w) and e^{tw} delta(epsilon + w) are small shares of delta; the tilt.

        The first is at most e^{-tw}, the second at most e^{K(t + s) - (t + s) epsilon - s w} for every s > 0.
        """
        return period(self.look(self.tail(delta))[direction], tilt, epsilon, ALIAS + math.log(delta)), tilt

    def _tilt(self, direction: int, slope: float, epsilon: float, delta: float, step: float) -> tuple[float, float]:
        """The tilt that needs the narrowest window while its allowance stays a small share of delta; and that width.

        Mostly that is the saddle point. Where single large losses dominate, tilting to it would drown the answer in
        far losses, and less is better.
        """
        losses = self.look(self.tail(delta))[direction]
        best = (math.inf, math.inf, slope)
        for tilt in (slope, slope / 2, slope / 4, 0.0):
            _, log_moment, _, variance = losses.tilted(tilt)
            spread = math.sqrt(max(variance, step * step))
            lowest, highest = Tails(losses, tilt, log_moment, spread).ends()
            width = min(max((highest - lowest) / step, 1.0), 1e18)
            norm = math.sqrt(step / spread)
            spill = math.exp(OUTSIDE) + rounding(int(width) + 2, self.terms, self.terms * norm, norm) * math.sqrt(width)
            doubt = math.exp(min(log_moment - tilt * epsilon + math.log(spill / delta), 700))
            best = min(best, (max(doubt, 3e-5), width, tilt))
        return best[2], best[1] * step

    def _step(self, tilt: float, epsilon: float) -> float:
        """A grid step whose pessimism, about terms x step^2 x (1 + tilt) / 12 in epsilon, is within the tolerance."""
        if self.spacing is not None:
            return self.spacing
        _, _, _, variance = next(iter(self._looks.values()))[0].tilted(0.0)
        size = max(epsilon, math.sqrt(max(variance, 0)) / 10, 1e-9)
        step = math.sqrt(12 * TOLERANCE * size / (self.terms * (1 + tilt)))
        return float(2.0 ** (math.floor(math.log2(step) * 4) / 4))  # few distinct steps, so that both directions share one

    def _discretised(self, step: float, tail: float) -> list[tuple[Pair, int]]:
        if (step, tail) not in self._pairs:
            ranges = self.reach(tail)
            wide = max(step, max(least + most for least, most in ranges) / lattice.LARGEST)
            pairs = [(lattice.discretise(item, wide, *ends), n) for (item, n), ends in zip(self.parts, ranges)]
            self._pairs = {(step, tail): pairs}
        return self._pairs[step, tail]
