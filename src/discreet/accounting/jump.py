"""Composition where single large losses rule: what has one of them, and what has none, bounded apart.

Little noise at a small rate leaves nearly every loss near 0 and a few far out. Under every tilt at which the large ones show,
the mass near 0 is larger than delta by many powers of ten, although its share in delta is nothing, and so is its rounding
error. So outcomes are divided by whether some loss exceeds a cut:

- all losses are at most the cut: the series of `fourier` with those losses alone, which allow a much steeper tilt;
- some loss is above it: the series with the moment function M^n - S^n in place of M^n, where M = S + L, and S and L are those
  of one loss below the cut and above it. As S^n expm1(n log1p(L / S)) it is free of cancellation.

Both are parts of one sum over outcomes, so their bounds add up to a bound. Each has its own tilt and its own smoothing: a
Gaussian mechanism more raises (1 - e^{epsilon - y})+ in the mean at every y, so for every set of outcomes.

Where epsilon is small beside many losses the same is done the other way round (`without_far`). With a loss far above epsilon Y
exceeds epsilon too, but for a rare sum of the others below 0. There E[1 - e^{epsilon - Y}] = P - e^epsilon Q in closed form,
P and Q the probabilities of such a loss in either world, and the series is left with the losses below the cut.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from discreet.accounting import fourier
from discreet.accounting.fourier import FADED, MASS, UNIT, Complex, Tilted, Wave, plain_sum, tilted_masses
from discreet.accounting.mesh import Fitted
from discreet.accounting.profile import Array

MOST_JUMPS = 30.0  # the expected number of large losses, under the tilt, from which nothing is won by telling outcomes apart


@dataclass(frozen=True, slots=True)
class Split:
    """Independent losses, each `n` times, with those above the cut apart."""

    small: list[tuple[Fitted, int]]  # the rest counts as infinite in these
    large: list[tuple[Array, Array]]  # losses and masses
    infinite: float

    @classmethod
    def at(cls, parts: Sequence[tuple[Fitted, int]], cut: float) -> Split:
        small, large = [], []
        for atoms, n in parts:
            low = atoms.loss <= cut
            rare = float(atoms.mass[~low].sum())
            small.append((Fitted(atoms.loss[low], atoms.mass[low], atoms.infinite + rare, atoms.raised), n))
            large.append((atoms.loss[~low], atoms.mass[~low]))
        survive = math.fsum(n * math.log1p(-min(atoms.infinite, 1 - 1e-16)) for atoms, n in parts)
        return cls(small, large, -math.expm1(survive) * (1 + 1e-14))

    def any_above(self) -> tuple[float, float]:
        """The probability that some loss is above the cut, with the unit (rounded up) and without it (rounded down)."""
        logs = [0.0, 0.0]
        for (loss, mass), (_, n) in zip(self.large, self.small):
            for world, rare in enumerate((float(mass.sum()), float((mass * np.exp(-loss)).sum()))):
                logs[world] += n * math.log1p(-min(rare, 1 - 1e-16))
        return -math.expm1(logs[0]) * (1 + 8 * MASS * UNIT), -math.expm1(logs[1]) * (1 - 8 * MASS * UNIT)

    def fallen(self, square: float, epsilon: float) -> float:
        """A bound on E[(e^{epsilon - Y} - 1)+; some loss is above the cut], by the best of many tilts below 0.

        (e^x - 1)+ <= e^{(1 + s)x} for every s >= 0. It grows with epsilon.
        """
        best = 0.0
        for power in np.geomspace(1.0, 1e4 / epsilon, 60):
            if (there := self.jumps(square, -float(power))) is not None:
                best = min(best, there.log_moment + there.error + power * epsilon)
        return math.exp(min(best, 0.0)) * (1 + 1e-12)

    def jumps(self, square: float, tilt: float) -> Jumps | None:
        """The tilted distribution of outcomes with a loss above the cut; None where these are no longer few."""
        small = Tilted(self.small, square, tilt)
        ratio, weights, units = [], [], [MASS]
        for (loss, mass), log in zip(self.large, small.logs):
            if not len(loss):
                ratio.append(0.0)
                weights.append(mass)
                continue
            weight, top, off = tilted_masses(loss, mass, tilt)
            if top - log > 600:
                return None
            ratio.append(math.exp(top - log) * float(weight.sum()))
            weights.append(weight / weight.sum())
            units.append(off)
        count = math.fsum(n * math.log1p(x) for (_, n), x in zip(self.small, ratio))
        return Jumps(self, small, ratio, weights, count, max(units)) if 0 < count < MOST_JUMPS else None


@dataclass(frozen=True, slots=True)
class Jumps:
    split: Split
    small: Tilted
    ratio: list[float]  # L / S of each part
    weights: list[Array]  # the tilted large losses of each part
    count: float  # n log1p(L / S), all parts together: about the number of large losses
    units: float  # of relative error of the weights

    @property
    def log_moment(self) -> float:
        return self.small.log_moment + math.log(math.expm1(self.count))

    @property
    def error(self) -> float:
        """A bound on the rounding of the log-moment; that of expm1(x) is x e^x / (e^x - 1) <= 1 + x times that of x."""
        off = max(self.small.units, default=MASS) + self.units  # of L / S
        return self.small.error + 4 * UNIT * off * (1 + self.count)

    def moments(self) -> tuple[float, float]:
        """About mean and variance of the sum: the large losses are nearly Poisson in number."""
        some = -math.expm1(-self.count)
        each, square = self.count / some, (self.count + self.count**2) / some
        shares = [n * x for (_, n), x in zip(self.split.small, self.ratio)]
        whole = math.fsum(shares)
        first = sum(share / whole * float(w @ loss) for share, w, (loss, _) in zip(shares, self.weights, self.split.large))
        second = sum(share / whole * float(w @ loss**2) for share, w, (loss, _) in zip(shares, self.weights, self.split.large))
        wide = max(second - first * first, 0.0)
        return self.small.mean + each * first, self.small.variance + each * wide + max(square - each**2, 0.0) * first**2

    def transform(self, frequency: Array) -> tuple[Complex, Array]:
        """E e^{i w (Y - mean of the small)} over these outcomes, as a share of its value at 0, and a bound on its error."""
        log, error = self.small.transform(frequency)
        known = np.ones(len(frequency), bool)
        total = np.zeros(len(frequency), complex)
        off = np.zeros(len(frequency))
        small = zip(self.split.small, self.small.weights, self.small.units)
        for (loss, _), weight, x, ((atoms, n), low, units) in zip(self.split.large, self.weights, self.ratio, small):
            if not x:
                continue
            centre = float(low @ atoms.loss)
            base, base_off = plain_sum(low, atoms.loss - centre, frequency, units)
            high, high_off = plain_sum(weight, loss - centre, frequency, self.units)
            size = np.maximum(np.abs(1 + base) - base_off, 1e-300)
            inner = x * (1 + high) / (1 + base)
            doubt = x * (high_off + base_off / size) / size + 4 * UNIT * (self.units + units) * np.abs(inner)
            known &= np.abs(inner) + doubt < 0.5
            total += n * log1p(np.where(known, inner, 0.0))
            off += 2 * n * doubt  # |d log1p(z)| <= |dz| / (1 - |z|)
        whole = math.expm1(self.count)
        live = known & (log.real > -math.inf)
        off = np.minimum(off + 8 * UNIT * np.abs(total), 1.0)
        error = np.minimum(error, 1.0)
        with np.errstate(under="ignore", over="ignore"):
            value = np.where(live, np.exp(np.where(live, log, 0.0)) * expm1(total) / whole, 0.0)
            grown = np.exp(np.minimum(log.real, 0.0) + error + np.abs(total) + off) * off / whole
            allowance = np.where(live, grown + np.abs(value) * np.expm1(error), 0.0)
            faded = math.exp(-FADED) * np.expm1(np.minimum(np.abs(total) + off, 700.0)) / whole
            # these outcomes are a part of all, so none of their terms exceeds its value at 0 times the Gaussian factor
            most = np.exp(-self.small.square * frequency**2 / 2)
        allowance[known & ~live] = np.minimum(faded, most)[known & ~live]
        allowance[~known] = most[~known]
        return value, allowance


def log1p(z: Complex) -> Complex:
    """log(1 + z), to full relative precision for small z, which numpy's own does not have."""
    value: Complex = np.log1p(2 * z.real + z.real**2 + z.imag**2) / 2 + 1j * np.arctan2(z.imag, 1 + z.real)
    return value


def expm1(z: Complex) -> Complex:
    """e^z - 1, likewise."""
    value: Complex = np.expm1(z.real) * np.cos(z.imag) - 2 * np.sin(z.imag / 2) ** 2 + 1j * np.exp(z.real) * np.sin(z.imag)
    return value


def tilt_to(split: Split, square: float, epsilon: float, first: float) -> Jumps | None:
    """The tilt that centres outcomes with a large loss on `epsilon`; `first` is where to begin."""
    low, high, best = 0.0, first, None
    for _ in range(30):
        there = split.jumps(square, high)
        if there is None or there.moments()[0] >= epsilon:
            break
        low, high, best = high, 2 * high, there
    for _ in range(25):
        middle = (low + high) / 2
        there = split.jumps(square, middle)
        if there is None or there.moments()[0] > epsilon:
            high = middle
        else:
            low, best = middle, there
        if high - low < 1e-3 * high:
            break
    if best is None or best.moments()[1] * best.small.tilt**2 >= 0.25:
        return best
    return split.jumps(square, 0.5 / math.sqrt(best.moments()[1]))


def period(jumps: Jumps, epsilon: float, aim: float) -> float:
    """The period at which what wraps around is below e^aim at either end."""
    tilt, square = jumps.small.tilt, jumps.small.square
    still = jumps.split.jumps(square, 0.0)
    most = min(still.log_moment, 0.0) if still else 0.0
    spread = math.sqrt(jumps.moments()[1])
    ups = []
    for shift in (0.3 / spread, 1 / spread, 3 / spread, 10 / spread):
        if (there := jumps.split.jumps(square, tilt + shift)) is not None:
            ups.append((there.log_moment - (tilt + shift) * epsilon - aim) / shift)
    return max((most - aim) / tilt, min(ups, default=8 * spread), spread)


def wave(jumps: Jumps, period: float) -> Wave:
    """The share in delta of outcomes with a large loss, and of infinite losses."""
    tilt, square = jumps.small.tilt, jumps.small.square
    count = math.ceil(math.sqrt(2 * FADED / square) * period / (2 * math.pi)) + 1
    frequency: Array = np.arange(count, dtype=np.float64) * (2 * math.pi / period)
    value, off = jumps.transform(frequency)
    weight = 1 / ((tilt + 1j * frequency) * (tilt + 1 + 1j * frequency)) / period
    weight[1:] *= 2
    terms = (weight * value).astype(np.complex128)
    spill = float((np.abs(weight) * off).sum()) + fourier.beyond(square, period, frequency)
    spill += 64 * UNIT * float((np.abs(terms) * (1 + frequency * period)).sum())
    centre = jumps.small.mean
    scale = jumps.log_moment - tilt * centre + jumps.error + 16 * UNIT * abs(tilt * centre)
    return Wave(jumps.split.infinite, scale, tilt, centre, frequency, terms, spill, math.sqrt(jumps.moments()[1]), count)


def without_far(split: Split, there: Wave, square: float, stop: float) -> Wave:
    """A series over outcomes without a loss above the cut, and all others in closed form: for every epsilon up to `stop`."""
    return replace(there, base=split.infinite + split.fallen(square, stop), far=split.any_above())
