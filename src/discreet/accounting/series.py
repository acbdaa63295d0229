"""Composition by a short Fourier series: where many losses add up, a few dozen frequencies say all there is to say.

Write w(y) = e^{-t(y - c)} (1 - e^{epsilon - y})+ for the weight of `compose` under a tilt t > 0. Wrapped around a period of N
lattice points it only grows, for w >= 0, and what it grows to is a sum over frequencies:

    E[w(Y)] <= E[sum_m w(Y + m N h)] = 1/N sum_k F(2 pi k / N) g_k,

F the characteristic function of the tilted sum and g_k a geometric series in closed form. F falls so fast that the terms
after the first dozen or so are bounded instead of computed. The bound exceeds the truth by e^{-t N h m} delta(epsilon - m N h)
for each m other than 0, which the choice of N makes small. docs/theory/accounting-composition.md has the bounds.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from discreet.accounting.compose import ROUNDING, Array, Losses, rounded_scale
from discreet.accounting.lattice import Lattice

Complex = NDArray[np.complex128]
FADED = 40.0  # a frequency of which less than e^-40 is left is bounded, not computed
MOST = 400  # frequencies beyond which the transform of `compose` is the better way
FINEST = 1 << 15  # points of the look at a whole spectrum


@dataclass(frozen=True, slots=True)
class Series:
    """delta as a function of epsilon near the place a tilt was chosen for; every value is an upper bound."""

    base: float  # mass at infinity
    scale: float  # log of the factor the sums are to be multiplied by
    tilt: float
    centre: float  # losses in exponents are counted from here
    step: float
    period: int  # in steps
    origin: int  # the lattice point from which phases are counted
    above: Complex  # F_k / N times the sum over j >= 0 of e^{-(tilt h + i w_k) j}; twice that for k > 0
    paid: Complex  # the same with e^{-((tilt + 1) h + i w_k) j}
    spill: float  # what rounding and the frequencies left out may add up to

    def delta(self, epsilon: float) -> float:
        first = math.floor(epsilon / self.step) + 1
        return self._delta(epsilon, first, *self._sums(first))

    def doubt(self, epsilon: float, delta: float) -> float:
        """The share of `delta`, found at epsilon, that is allowance for rounding."""
        if self.spill == 0:
            return 0.0
        log = self.scale + math.log(self.spill) - self.tilt * (epsilon - self.centre) - math.log(delta)
        return math.exp(min(log, 0.0))

    def epsilon(self, delta: float, near: float) -> float:
        """The least epsilon with delta(epsilon) <= delta; infinity where it is far above `near`."""
        start = max(math.floor(near / self.step), 0)
        low, high, at = -1, start + 2 * self.period, start
        for turn in range(200):  # the lattice cell in which delta is crossed: by its slope, then by halves
            here = self._sums(at + 1)
            gap = math.log(self._delta(at * self.step, at + 1, *here)) - math.log(delta)
            low, high = (at, high) if gap > 0 else (low, at)
            if high - low <= 1:
                break
            move = min(abs(gap) / (self.tilt * self.step), float(self.period))
            at = at + math.ceil(move) if gap > 0 else at - max(math.floor(move), 1)
            if turn > 20 or not low < at < high:
                at = (low + high) // 2
        if high == 0 or high == start + 2 * self.period:
            return 0.0 if high == 0 else math.inf
        sums = self._sums(high)
        left, right = low * self.step, high * self.step
        for _ in range(50):  # and the place in it: no atom lies inside
            half = (left + right) / 2
            if self._delta(half, high, *sums) <= delta:
                right = half
            else:
                left = half
        return right

    def _sums(self, first: int) -> tuple[float, float]:
        """The series at lattice point `first`, with either decay."""
        turn = np.arange(len(self.above)) * ((first - self.origin) % self.period) % self.period
        phase = np.exp(-2j * math.pi / self.period * turn)
        return float((self.above * phase).sum().real), float((self.paid * phase).sum().real)

    def _delta(self, epsilon: float, first: int, above: float, paid: float) -> float:
        """delta at epsilon, where `first` is the first lattice point above it (or at it: no mass there counts)."""
        start = first * self.step
        inner = max(above - math.exp(min(epsilon - start, 0.0)) * paid, 0.0) * math.exp(min(self.tilt * (epsilon - start), 0.0))
        if inner + self.spill == 0:
            return max(self.base, 1e-300)
        log = self.scale - self.tilt * (epsilon - self.centre) + math.log(inner + self.spill)
        return max(self.base + math.exp(min(log, 0.0)), 1e-300)


def series(parts: Sequence[tuple[Lattice, int]], tilt: float, width: float) -> Series | None:
    """Compose with a period of at least `width`, where few frequencies are enough; else None."""
    losses = Losses(parts)
    weights, log_moment, mean, _ = losses.tilted(tilt)
    step = parts[0][0].step
    period = math.ceil(min(width / step, 1e15))
    count = _frequencies(weights, losses.counts, period) if 64 <= period < 1e12 and tilt * step > 1e-12 else 0
    if not 0 < count <= min(MOST, (period - 1) // 2):
        return None
    log = np.zeros(count, complex)
    error = np.zeros(count)
    origin = 0
    for (part, n), weight in zip(parts, weights):
        middle = int(np.einsum("i,i->", weight, np.arange(len(weight), dtype=np.float64)))
        transform, units = _transform(weight, middle, count, period)
        size = np.maximum(np.abs(transform), 1e-300)
        log += n * (np.log(size) + 1j * np.angle(transform))
        error += n * np.log1p(units * ROUNDING / size)
        origin += n * (part.start + middle)
    error += 32 * (sum(losses.counts) + 16) * ROUNDING  # n log F itself is rounded to a few units of n
    with np.errstate(under="ignore"):
        value = np.exp(np.minimum(log.real, 0) + 1j * log.imag)  # |F| <= 1 but for rounding
        off = np.exp(np.minimum(log.real + error, 1.0)) * -np.expm1(-error)  # product of (|F| + e) less product of |F|
    turn = 2j * math.pi / period * np.arange(count)
    above, paid = (1 / (-np.expm1(-(rate * step) - turn) * period) for rate in (tilt, 1 + tilt))
    twice = np.where(np.arange(count) > 0, 2.0, 1.0)
    spill = float((twice * off * (np.abs(above) + np.abs(paid))).sum())
    spill += math.exp(-FADED) * period * float(abs(above[-1]) + abs(paid[-1]))
    scale = rounded_scale(log_moment - tilt * mean, losses)
    return Series(losses.infinite, scale, tilt, mean, step, period, origin, above * value * twice, paid * value * twice, spill)


def _frequencies(weights: list[Array], counts: list[int], period: int) -> int:
    """How many frequencies 2 pi k / period must be computed for the rest to be below e^-FADED; 0 where it cannot be shown.

    |F|^2 is the characteristic function of D, the difference of two independent losses. So 1 - |F(w)|^2 is at least
    w^2 E[D^2] / 2 - w^4 E[D^4] / 24, which grows up to w^2 = 6 E[D^2] / E[D^4]; and between two points of a spectrum, d apart,
    |F|^2 is at most the larger end plus d^2 E[D^2] / 8.
    """
    looks = [_Spectrum(weight) for weight in weights]
    spread = math.sqrt(sum(n * look.variance for look, n in zip(looks, counts)))
    if spread == 0:
        return 0
    for stretch in (1.02, 1.1, 1.3, 1.7, 2.5, 4.0, 8.0):
        at = math.sqrt(2 * FADED) / spread * stretch
        if at >= math.pi:
            return 0
        if sum(-n / 2 * math.log1p(-look.lost_from(at)) for look, n in zip(looks, counts)) >= FADED:
            return math.ceil(at * period / (2 * math.pi)) + 1
    return 0


class _Spectrum:
    """The size of the characteristic function of one tilted loss, in steps of its lattice, bounded everywhere."""

    def __init__(self, weight: Array) -> None:
        place = np.arange(len(weight), dtype=np.float64)
        place -= np.einsum("i,i->", weight, place)
        square = place * place
        self.variance = float(np.einsum("i,i->", weight, square))
        self.fourth = 2 * float(np.einsum("i,i,i->", weight, square, square)) + 6 * self.variance**2  # E[D^4]
        self._weight = weight
        self._largest: Array | None = None
        self._gap = 0.0

    def lost_from(self, at: float) -> float:
        """A lower bound on 1 - |F(w)|^2 for all w from `at` to pi."""
        if self.variance == 0:
            return 0.0
        peak = math.sqrt(12 * self.variance / self.fourth)
        if at >= peak:
            return 1 - self._largest_from(at)
        return max(min(at * at * self.variance - at**4 * self.fourth / 24, 1 - self._largest_from(peak)), 0.0)

    def _largest_from(self, at: float) -> float:
        if self._largest is None:
            self._look()
        assert self._largest is not None
        first = math.floor(at / self._gap)
        return min(float(self._largest[first]) + self._gap**2 * self.variance / 4 + 1e-12, 1.0)

    def _look(self) -> None:
        from scipy.fft import rfft

        from discreet.accounting.compose import wrap

        size = min(max(1 << math.ceil(math.log2(64 * math.sqrt(self.variance) + 64)), 256), FINEST)
        spectrum = rfft(wrap(self._weight, size), size)
        power = spectrum.real**2 + spectrum.imag**2
        self._largest = np.maximum.accumulate(power[::-1])[::-1]
        self._gap = 2 * math.pi / size


def _transform(weight: Array, middle: int, count: int, period: int) -> tuple[Complex, float]:
    """sum_j weight_j e^{i w_k (j - middle)} for k < count, by blocks so that few exponentials are needed; and how many
    units of rounding each may be off: those of sums and products, phases good to 2 pi x 4 units, and weights to 128."""
    block = math.isqrt(len(weight) - 1) + 1
    rows = -(-len(weight) // block)
    padded = np.zeros(rows * block)
    padded[: len(weight)] = weight
    frequency = np.arange(count)
    fine = np.exp(2j * math.pi / period * (np.multiply.outer(np.arange(block), frequency) % period))
    coarse = np.exp(2j * math.pi / period * (np.multiply.outer(np.arange(rows) * block - middle, frequency) % period))
    table = padded.reshape(rows, block)
    inner = table @ fine.real + 1j * (table @ fine.imag)
    return np.einsum("ak,ak->k", coarse, inner), 2.0 * (rows + block) + 256
