"""Composition by a Fourier series over losses that lie anywhere: the path for very many steps and very uneven losses.

Let w(y) = e^{-t(y - epsilon)} (1 - e^{epsilon - y})+ for a tilt t > 0. Wrapped around a period W it only grows, and what it
grows to is a sum over the frequencies 2 pi k / W:

    E[w(Y)] <= E[sum_m w(Y + m W)] = 1/W sum_k F(2 pi k / W) e^{-2 pi i k epsilon / W} / ((t + i w_k) (t + 1 + i w_k)),

F the characteristic function of the tilted sum Y. No lattice is needed, so each mechanism has a grid fitted to it (`mesh`),
and a Gaussian mechanism none at all. The sum ends because a Gaussian mechanism takes part: one more, so weak that it costs a
10^-4 part of epsilon, where none is there. More composition is never less loss. docs/theory/accounting-composition.md has the
bounds on what is left out and on rounding.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from discreet.accounting.compose import grown
from discreet.accounting.mesh import Fitted
from discreet.accounting.profile import Array

Complex = NDArray[np.complex128]
UNIT = 2.0**-53
FADED = 45.0  # frequencies of which less than e^-45 is left are bounded, not added
MOST = 1 << 16  # frequencies; more smoothing keeps their number below this
MASS = 256.0  # units of relative error of one mass: of the profile's slopes, of logarithms and exponentials
ANGLE = 16.0  # units of relative error of a frequency times a loss, in either table
PRECISE = 1e-6  # an allowance for the rounding of a plain sum from which it is worth while to sum with more care


class Tilted:
    """Independent losses, each `n` times, under a tilt, with a Gaussian mechanism of squared shift `square`."""

    def __init__(self, parts: Sequence[tuple[Fitted, int]], square: float, tilt: float) -> None:
        self.tilt, self.square, self.parts = tilt, square, parts
        self.weights: list[Array] = []
        self.units: list[float] = []  # of relative error of the weights of each part
        self.logs: list[float] = []  # the log-moment of one loss of each part
        self.log_moment = square * tilt * (1 + tilt) / 2
        self.mean, self.variance = square * (0.5 + tilt), square
        self.error = 8 * UNIT * abs(self.log_moment)
        for atoms, n in parts:
            self._add(atoms, n)
        survive = math.fsum(n * math.log1p(-min(atoms.infinite, 1 - 1e-16)) for atoms, n in parts)
        self.infinite = -math.expm1(survive) * (1 + 1e-14)

    def _add(self, atoms: Fitted, n: int) -> None:
        weight, top, units = tilted_masses(atoms.loss, atoms.mass, self.tilt)
        whole = float(weight.sum())
        weight /= whole
        log, error = top + math.log(whole), units * UNIT * (1 + abs(top))
        self.units.append(units)
        if abs(log) < 0.5:  # the masses add up to 1 less what is infinite: only what exceeds that is summed
            excess = grown(atoms, self.tilt)
            log = math.log1p(float(excess.sum()) + atoms.raised - atoms.infinite)
            error = units * UNIT * (float(np.abs(excess).sum()) + atoms.infinite) * 2
        self.logs.append(log)
        self.log_moment += n * log
        self.error += n * error
        centre = float(weight @ atoms.loss)
        self.mean += n * centre
        self.variance += n * float(weight @ (atoms.loss - centre) ** 2)
        self.weights.append(weight)

    def transform(self, frequency: Array) -> tuple[Complex, Array]:
        """log E[e^{i w (Y - mean)}] at each frequency, and a bound on its error."""
        log = (-self.square * frequency**2 / 2).astype(np.complex128)
        error: Array = 8 * UNIT * np.abs(log.real)
        end = len(frequency)  # none is left after the last that matters
        for (atoms, n), weight, units in zip(self.parts, self.weights, self.units):
            loss = atoms.loss - float(weight @ atoms.loss)
            value, off = plain_sum(weight, loss, frequency[:end], units)
            near = np.flatnonzero(n * _log_size(value) > -2 * FADED)
            if len(near) and n * float(off[near].max()) > PRECISE:
                value[near], off[near] = _careful(weight, loss, frequency[near], units)
            part = _log_size(value)
            log[:end] += n * (np.minimum(part, 0.0) + 1j * np.angle(1 + value))
            error[:end] += n * (np.log1p(off * np.exp(np.minimum(-part, 700.0))) + 4 * UNIT * np.abs(part))
            live = np.flatnonzero(log.real[:end] + error[:end] > -FADED)
            log[:end][log.real[:end] + error[:end] <= -FADED] = -math.inf
            end = int(live[-1]) + 1 if len(live) else 1
            log[end:] = -math.inf
        return log, error


def tilted_masses(loss: Array, mass: Array, tilt: float) -> tuple[Array, float, float]:
    """mass e^{tilt loss} / e^top, the log of the largest, and how many units of relative error each may have.

    An exponent log p + ty is off by a few units of |log p| + |ty|, which may be many hundreds where delta is tiny.
    """
    log = np.log(mass)
    exponent = log + tilt * loss
    top = float(exponent.max())
    heavy = exponent >= top - 40
    return np.exp(exponent - top), top, MASS + 4 * float((np.abs(log[heavy]) + np.abs(tilt * loss[heavy])).max(initial=0.0))


def _log_size(value: Complex) -> Array:
    """log |1 + value|."""
    size: Array = np.log1p(np.maximum(2 * value.real + value.real**2 + value.imag**2, -1 + UNIT)) / 2
    return size


def plain_sum(weight: Array, loss: Array, frequency: Array, units: float) -> tuple[Complex, Array]:
    """E[e^{i w y}] - 1 at even frequencies from 0, as a product of two short tables; and how far off each may be.

    With w = u + v, e^{iwy} - 1 = A B + A + B for A = e^{iuy} - 1 and B = e^{ivy} - 1. Each of these is known to a few units of
    its own size, and a sum of m products errs by at most 2 m units of the sum of their sizes (Higham 2002, section 3.6). So the
    error is in proportion to E|A| + E|B|, which is small where the steps are many. An angle is off by a unit of its own size.
    """
    block = math.isqrt(len(frequency)) + 1
    rows = -(-len(frequency) // block)
    gap = float(frequency[1] - frequency[0]) if len(frequency) > 1 else 0.0
    fine = _turned(np.multiply.outer(loss, gap * np.arange(block)))
    coarse = _turned(np.multiply.outer(gap * block * np.arange(rows), loss)) * weight
    of_coarse, of_fine = coarse.sum(axis=1)[:, None], (weight @ fine)[None, :]
    value = (coarse @ fine + of_coarse + of_fine).ravel()[: len(frequency)]
    size_coarse, size_fine = np.abs(coarse).sum(axis=1)[:, None], (weight @ np.abs(fine))[None, :]
    size = (size_coarse + size_fine + 2 * np.minimum(size_coarse, size_fine)).ravel()[: len(frequency)]
    return value, UNIT * ((2 * len(loss) + units) * size + ANGLE * np.abs(frequency) * float(weight @ np.abs(loss)))


def _turned(angle: Array) -> Complex:
    """e^{i angle} - 1, to a few units of its size."""
    value: Complex = -2 * np.sin(angle / 2) ** 2 + 1j * np.sin(angle)
    return value


def _careful(weight: Array, loss: Array, frequency: Array, units: float) -> tuple[Complex, Array]:
    """The same, term by term, with an error in proportion to the mean of |w y|, which is small where the steps are many."""
    value = np.empty(len(frequency), complex)
    for start in range(0, len(frequency), 64):
        angle = np.multiply.outer(frequency[start : start + 64], loss)
        half = np.sin(angle / 2)
        value[start : start + 64] = (-2 * half * half * weight).sum(axis=1) + 1j * (np.sin(angle) * weight).sum(axis=1)
    reach = np.abs(frequency) * float(weight @ np.abs(loss))
    return value, UNIT * (2 * units * np.minimum(2.0, reach) + ANGLE * reach)


@dataclass(frozen=True, slots=True)
class Wave:
    """delta as a function of epsilon near the place a tilt was chosen for; every value is an upper bound."""

    base: float  # mass at infinity
    scale: float  # log of the factor the sum is to be multiplied by
    tilt: float
    centre: float  # losses are counted from here
    frequency: Array
    sum: Complex  # the terms of the series at `centre`
    spill: float  # what rounding and the frequencies left out may add up to
    spread: float  # of the tilted losses
    count: int  # of frequencies, with those left out
    far: tuple[float, float] = (0.0, 0.0)  # probabilities, with the unit and without it, of outcomes counted apart (`jump`)
    others: Wave | None = None  # a series over all other outcomes, whose delta is added

    def _base(self, epsilon: float) -> float:
        return self.base + max(self.far[0] - math.exp(min(epsilon, 700.0)) * self.far[1], 0.0)

    def log_delta(self, epsilon: Array) -> Array:
        """log of delta - base."""
        x = np.atleast_1d(np.asarray(epsilon, float)) - self.centre
        inner = np.array([float((self.sum * np.exp(-1j * self.frequency * at)).real.sum()) for at in x])
        with np.errstate(over="ignore", invalid="ignore"):
            value: Array = self.scale - self.tilt * x + np.log(np.maximum(inner, 0.0) + self.spill)
        value = np.where(np.isnan(value), np.inf, value)  # what is not a number bounds nothing
        return value if self.others is None else np.logaddexp(value, self.others.log_delta(epsilon))

    def delta(self, epsilon: Array) -> Array:
        """delta at each epsilon, rounded up."""
        with np.errstate(over="ignore", under="ignore"):
            grown = np.exp(np.minimum(self.log_delta(epsilon), 0.0)) * (1 + 1e-13)
        base = np.array([self._base(float(at)) for at in np.atleast_1d(epsilon)])
        least: Array = np.minimum(base + np.maximum(grown, 5e-324), 1.0)
        return least

    def doubt(self, epsilon: float) -> float:
        """The share of delta(epsilon) that is allowance for error."""
        log = self.scale + math.log(self.spill) - self.tilt * (epsilon - self.centre)
        there = float(self.log_delta(np.array([epsilon]))[0])
        return math.exp(min(log - there, 0.0)) if math.isfinite(log) and math.isfinite(there) else 1.0

    def epsilon(self, delta: float, near: float, far: float) -> float:
        """The least epsilon from 0 to `far` with delta(epsilon) <= delta; infinity where there is none."""

        def excess(epsilon: float) -> float:
            base = self._base(epsilon)
            value = np.logaddexp(self.log_delta(np.array([epsilon]))[0] + 1e-13, math.log(base) if base else -math.inf)
            return float(value) - math.log(delta)

        if excess(0.0) <= 0:
            return 0.0
        low, high, at = 0.0, math.inf, max(near, 1e-300)
        for _ in range(200):
            gap = excess(at)
            low, high = (at, high) if gap > 0 else (low, at)
            if high < math.inf and high - low <= 1e-13 * high:
                break
            step = gap / self.tilt  # log delta falls at least as fast as the tilt, or nearly
            at = at + step + math.copysign(1e-9 * (high if high < math.inf else at), gap)
            if not low < at < high:
                at = (low + high) / 2 if high < math.inf else 2 * low
            if low > far:
                return math.inf
        return high


def wave(parts: Sequence[tuple[Fitted, int]], square: float, tilt: float, period: float) -> Wave:
    """Compose under a tilt above 0, with a period that keeps what wraps around small; `square` > 0 is the smoothing."""
    tilted = Tilted(parts, square, tilt)
    count = math.ceil(math.sqrt(2 * FADED / square) * period / (2 * math.pi)) + 1
    frequency: Array = np.arange(count, dtype=np.float64) * (2 * math.pi / period)
    log, error = tilted.transform(frequency)
    weight = 1 / ((tilt + 1j * frequency) * (tilt + 1 + 1j * frequency)) / period
    weight[1:] *= 2
    live = log.real > -math.inf
    with np.errstate(under="ignore", over="ignore"):
        terms = (weight[live] * np.exp(log[live])).astype(np.complex128)
        off = np.abs(weight[live]) * np.exp(np.minimum(log.real + error, 1.0)[live]) * -np.expm1(-error[live])
    rest = math.exp(-FADED) * float(np.abs(weight[~live]).sum())
    rest += beyond(square, period, frequency)
    phases = 64 * UNIT * float((np.abs(terms) * (1 + frequency[live] * period)).sum())
    spill = float(off.sum()) + rest + phases
    scale = tilted.log_moment - tilt * tilted.mean + tilted.error + 16 * UNIT * abs(tilt * tilted.mean)
    return Wave(tilted.infinite, scale, tilt, tilted.mean, frequency[live], terms, spill, math.sqrt(tilted.variance), count)


def chernoff(parts: Sequence[tuple[Fitted, int]], square: float, tilt: float) -> Wave:
    """The bound (1 - e^{epsilon - y})+ <= e^{t (y - epsilon)} alone, in the mean: no series, for what hardly counts."""
    tilted = Tilted(parts, square, tilt)
    scale = tilted.log_moment - tilt * tilted.mean + tilted.error + 16 * UNIT * abs(tilt * tilted.mean)
    none = np.zeros(1)
    return Wave(tilted.infinite, scale, tilt, tilted.mean, none, none.astype(np.complex128), 1.0, math.sqrt(tilted.variance), 1)


def beyond(square: float, period: float, frequency: Array) -> float:
    """What the frequencies after the last may add up to: at most e^{-square w^2 / 2} / w^2 each."""
    first = float(frequency[-1]) + 2 * math.pi / period
    return math.exp(-square * first**2 / 2) * 2 / period * (1 / first**2 + period / (2 * math.pi) / first)
