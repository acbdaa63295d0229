"""Composition of privacy-loss distributions by a tilted Fourier transform, always an upper bound.

The loss Y of a composition is a sum of independent losses, and

    delta(epsilon) = Pr[Y infinite] + E[(1 - e^{epsilon - Y})+].

Summing by FFT alone has an absolute error near 1e-16 x the number of terms, which drowns small deltas. So each
distribution is first tilted, p(y) -> p(y) e^{t y} / M(t), with t chosen so that the tilted sum is centred where we look
(the saddle point). Then errors are relative to the answer, at any delta, and a window of a few tilted standard
deviations is enough: what lies outside is bounded by Chernoff's inequality and added, as is the rounding error of the
transform. docs/theory/accounting-composition.md has the bounds.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from discreet.accounting.lattice import Lattice
from discreet.accounting.mesh import Fitted

Array = NDArray[np.float64]
LARGEST = 1 << 19  # points of the window: 4 MB an array
OUTSIDE = math.log(1e-11)  # log of the tilted mass left outside the window, on each side
ROUNDING = 2.0**-53


class Losses:
    """Independent losses, each `n` times, a Gaussian mechanism of squared shift `square`, and the moments of their sum."""

    def __init__(self, parts: Sequence[tuple[Lattice | Fitted, int]], square: float = 0.0) -> None:
        self.square = square
        self.counts = [n for _, n in parts]
        self.infinite = -math.expm1(sum(n * math.log1p(-min(p.infinite, 1 - 1e-16)) for p, n in parts))
        self._loss = [p.loss for p, _ in parts]
        self._fitted = [p if isinstance(p, Fitted) else None for p, _ in parts]
        with np.errstate(divide="ignore"):
            self._log = [np.log(p.mass) for p, _ in parts]

    def tilted(self, tilt: float) -> tuple[list[Array], float, float, float]:
        """The tilted distributions, and log-moment, mean and variance of the tilted sum."""
        out: list[Array] = []
        log_moment, mean, variance = self.square * tilt * (1 + tilt) / 2, self.square * (0.5 + tilt), self.square
        for n, loss, log, fitted in zip(self.counts, self._loss, self._log, self._fitted):
            exponent = log + tilt * loss
            top = float(exponent.max())
            weight = np.exp(exponent - top)
            total = float(weight.sum())
            weight /= total
            centre = _dot(weight, loss)
            out.append(weight)
            log_moment += n * _log_total(fitted, tilt, top + math.log(total))
            mean += n * centre
            variance += n * _dot(weight, (loss - centre) ** 2)
        return out, log_moment, mean, variance

    def log_moment(self, tilt: float) -> float:
        """The log-moment alone."""
        total = self.square * tilt * (1 + tilt) / 2
        for n, loss, log, fitted in zip(self.counts, self._loss, self._log, self._fitted):
            exponent = log + tilt * loss
            top = float(exponent.max())
            total += n * _log_total(fitted, tilt, top + math.log(float(np.exp(exponent - top).sum())))
        return total


def _log_total(fitted: Fitted | None, tilt: float, log: float) -> float:
    """The log-moment of one loss; where it is near 0 only what exceeds it is summed, so that many terms do not add up noise."""
    if fitted is None or abs(log) > 0.5:
        return log
    return math.log1p(float(grown(fitted, tilt).sum()) + fitted.raised - fitted.infinite)


def grown(fitted: Fitted, tilt: float) -> Array:
    """mass (e^{tilt loss} - 1) of each atom, where that overflows for the factor alone as well."""
    x = tilt * fitted.loss
    with np.errstate(over="ignore", under="ignore"):
        return np.where(x < 30, fitted.mass * np.expm1(np.minimum(x, 30.0)), np.exp(np.log(fitted.mass) + x))


@dataclass(frozen=True, slots=True)
class Window:
    """delta as a function of epsilon near the place a tilt was chosen for; every value is an upper bound."""

    base: float  # mass at infinity
    scale: float  # log of the factor the sums are to be multiplied by
    tilt: float
    centre: float  # losses below are counted from here
    loss: Array  # y - centre, ascending
    above: Array  # sum over y' >= y of mass e^{-tilt (y' - centre)}
    paid: Array  # the same with e^{-(tilt + 1)(y' - centre)}
    spill: float  # tilted mass that may be missing or misplaced
    whole: bool  # it reaches down to the least loss there is
    spread: float  # of the tilted losses

    def log_delta(self, epsilon: Array) -> Array:
        """log of delta - base."""
        x = np.asarray(epsilon, float) - self.centre
        first = np.searchsorted(self.loss, x, side="right")
        with np.errstate(over="ignore", under="ignore", divide="ignore", invalid="ignore"):
            inner = np.maximum(self.above[first] - np.exp(np.minimum(x, 700)) * self.paid[first], 0)
            spill = self.spill * np.exp(-self.tilt * x)
            return np.where(x < self.loss[0], np.inf, self.scale + np.log(inner + spill))

    def delta(self, epsilon: Array) -> Array:
        """delta at each epsilon; 1 below the window."""
        with np.errstate(over="ignore", under="ignore"):
            return np.minimum(self.base + np.exp(self.log_delta(epsilon)), 1.0)

    def doubt(self, epsilon: float) -> float:
        """The share of delta(epsilon) that is allowance for error."""
        x = epsilon - self.centre
        allowance = self.scale + math.log(self.spill) - self.tilt * x if self.spill else -math.inf
        return math.exp(min(allowance - float(self.log_delta(np.array([epsilon]))[0]), 0))

    def epsilon(self, delta: float) -> float:
        """The least epsilon in the window with delta(epsilon) <= delta; infinity where there is none."""
        low, high = 0, len(self.loss) - 1
        if self._delta(float(self.loss[-1]), len(self.loss)) > delta:
            return math.inf
        if self._delta(float(self.loss[0]), 1) <= delta:
            return float(self.loss[0]) + self.centre
        while high - low > 1:  # the lattice cell in which delta is crossed
            middle = (low + high) // 2
            if self._delta(float(self.loss[middle]), middle + 1) <= delta:
                high = middle
            else:
                low = middle
        left, right = float(self.loss[low]), float(self.loss[high])
        for _ in range(50):  # and the place in it: no atom lies inside
            half = (left + right) / 2
            if self._delta(half, high) <= delta:
                right = half
            else:
                left = half
        return right + self.centre

    def _delta(self, x: float, first: int) -> float:
        """delta at centre + x, where `first` is the first lattice point above it."""
        inner = max(float(self.above[first]) - math.exp(min(x, 700)) * float(self.paid[first]), 0.0)
        value = inner + self.spill * math.exp(min(-self.tilt * x, 700))
        return self.base + (math.exp(min(self.scale + math.log(value), 0.0)) if value > 0 else 0.0)


def window(parts: Sequence[tuple[Lattice, int]], tilt: float) -> Window:
    """Compose: the tilted sum on a window of the lattice (all of one step), with an allowance for all that is left out."""
    losses = Losses(parts)
    weights, log_moment, mean, variance = losses.tilted(tilt)
    step = parts[0][0].step
    spread = math.sqrt(max(variance, step * step))
    bottom = step * sum(n * p.start for p, n in parts)
    top = step * sum(n * (p.start + len(p.mass) - 1) for p, n in parts)
    tails = Tails(losses, tilt, log_moment, spread)
    lowest, highest = tails.ends()
    lowest, highest = max(lowest, bottom), min(highest, top)
    highest = max(highest, lowest)
    size = max(math.ceil((highest - lowest) / step) + 2, 16)
    if size > LARGEST:
        size = LARGEST
        lowest = max(lowest, min(mean - size * step / 2, highest - (size - 2) * step))
        highest = lowest + (size - 2) * step
    outside = tails.above(highest) * (highest < top) + tails.below(lowest) * (lowest > bottom)
    first = math.floor(lowest / step)
    mass, error = _convolve(parts, weights, first, size)
    spill = outside + error * math.sqrt(min(len(mass), -1 / math.expm1(-2 * tilt * step) if tilt else len(mass)))
    loss = np.arange(first, first + len(mass), dtype=np.float64) * step - mean
    # e^-loss would overflow far below the centre; delta is taken as 1 there
    far = min(int(np.searchsorted(loss, -600 / (1 + tilt))), len(loss) - 1)
    loss, mass = loss[far:], mass[far:]
    above = _sums_from(mass * _decay(tilt, float(loss[0]), step, len(loss)))
    paid = _sums_from(mass * _decay(1 + tilt, float(loss[0]), step, len(loss)))
    scale = rounded_scale(log_moment - tilt * mean, losses)
    return Window(losses.infinite, scale, tilt, mean, loss, above, paid, spill, lowest <= bottom and not far, spread)


def rounded_scale(scale: float, losses: Losses) -> float:
    """The log of a factor that is a product over all losses, up by what its rounding may have taken."""
    return scale + 16 * ROUNDING * (sum(losses.counts) + 1) + 1e-12


def rounding(size: int, terms: int, norms: float, norm: float) -> float:
    """A bound on the l2 error of a composition by FFT.

    A transform errs by at most 7 log2(size) roundings of its norm (Higham 2002, Theorem 24.2). A product of `terms`
    factors, none above 1 in size, errs by the sum of their errors; n log F is itself rounded to a few units of n.
    """
    return ROUNDING * (7 * math.log2(size) * (norms + norm) + 8 * (terms + 1) * norm)


def _convolve(parts: Sequence[tuple[Lattice, int]], weights: list[Array], first: int, size: int) -> tuple[Array, float]:
    """The sum of the tilted losses on lattice points first, first + 1, ..., wrapped around; and its l2 rounding error."""
    from scipy.fft import irfft, next_fast_len, rfft

    size = next_fast_len(size, real=True)
    powered = np.zeros(size // 2 + 1, complex)
    live = np.arange(size // 2 + 1)  # frequencies that still matter: one below e^-60 of the whole does not
    log = np.zeros(len(live), complex)
    terms, origin, norms = 0, 0, 0.0
    for (part, n), weight in zip(parts, weights):
        transformed = rfft(wrap(weight, size), size)[live]
        with np.errstate(divide="ignore"):
            size_of = log.real + n / 2 * np.log(transformed.real**2 + transformed.imag**2)
        keep = size_of > -60
        live, log = live[keep], log[keep] + n * np.log(transformed[keep])
        terms += n
        origin += n * part.start
        norms += n * math.sqrt(_dot(weight, weight))
    turn = 2 * math.pi / size * (((first - origin) % size) * live % size)  # so that the window begins at `first`
    powered[live] = np.exp(np.minimum(log.real, 0) + 1j * (log.imag + turn))  # |F| <= 1 but for rounding
    mass = irfft(powered, size)
    return mass, rounding(size, terms, norms, math.sqrt(_dot(mass, mass)))


class Tails:
    """Chernoff bounds on the tilted sum: Pr[Y >= y] <= exp(K(t + s) - K(t) - s y) for every s > 0, and likewise below."""

    def __init__(self, losses: Losses, tilt: float, log_moment: float, spread: float) -> None:
        shifts = [c / spread for c in (0.2, 1.0, 3.0, 5.0, 7.0)]
        self._up = [(s, losses.log_moment(tilt + s) - log_moment) for s in shifts]
        self._down = [(s, losses.log_moment(tilt - s) - log_moment) for s in shifts]

    def ends(self) -> tuple[float, float]:
        """An interval outside which at most e^OUTSIDE of the mass lies on each side."""
        return -min((k - OUTSIDE) / s for s, k in self._down), min((k - OUTSIDE) / s for s, k in self._up)

    def above(self, end: float) -> float:
        return math.exp(min(0.0, *(k - s * end for s, k in self._up)))

    def below(self, end: float) -> float:
        return math.exp(min(0.0, *(k + s * end for s, k in self._down)))


def _decay(rate: float, start: float, step: float, count: int) -> Array:
    """e^{-rate x} at x = start, start + step, ...: products of two short tables, since exp is dear."""
    width = 512
    with np.errstate(under="ignore"):
        coarse = np.exp(np.minimum(-rate * (start + step * width * np.arange(-(-count // width))), 600.0))
        fine = np.exp(-rate * step * np.arange(width))
        table: Array = np.multiply.outer(coarse, fine).ravel()[:count]
    return table


def _sums_from(values: Array) -> Array:
    """At each place the sum of all values from there on; 0 after the last."""
    sums = np.zeros(len(values) + 1)
    np.cumsum(values[::-1], out=sums[-2::-1])
    return sums


def wrap(weight: Array, size: int) -> Array:
    if len(weight) <= size:
        return weight
    padded = np.zeros(-(-len(weight) // size) * size)
    padded[: len(weight)] = weight
    wrapped: Array = padded.reshape(-1, size).sum(axis=0)
    return wrapped


def _dot(one: Array, two: Array) -> float:
    """An inner product on one thread: waking a pool of them costs more than the work."""
    return float(np.einsum("i,i->", one, two))
