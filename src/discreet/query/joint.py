"""Several sums of the same rows under one noise: cheaper than a part of epsilon for each.

docs/theory/query-joint.md proves what is claimed here.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import Any

import numpy as np

from discreet.core import Pure, check
from discreet.errors import InvalidValue
from discreet.noise.additive import Ints, fix
from discreet.noise.digits import Bounds, LaplaceDistribution, exp_bounds
from discreet.noise.fast import WIDEST
from discreet.noise.samplers import Number, draw, float_above, rational
from discreet.noise.source import Source, open_source

FINER = 1 << 8  # a common step is so much finer than the finest number's where the others are no multiples of it
MOST_NUMBERS = 16  # numbers under one noise
WIDE = 1 << 10  # of a scale: of narrower noise few of the boxes that are drawn would be kept


def common_steps(sensitivities: tuple[int, ...]) -> tuple[tuple[int, ...], int]:
    """Whole multiples that bring numbers of these sensitivities to about the same one, and the largest of the products.

    >>> common_steps((1, 146))
    ((146, 1), 146)
    """
    most = max(sensitivities)
    others = [sensitivity for sensitivity in sensitivities if most % sensitivity]
    if others:
        most *= -(-FINER * max(others) // most)  # a number with few steps has whole multiples that are near enough
    times = tuple(-(-most // sensitivity) for sensitivity in sensitivities)
    return times, max(a * b for a, b in zip(times, sensitivities))


@dataclass(frozen=True, slots=True)
class Joint:
    """Noise on vectors of whole numbers, one vector per group, Pr[z] ~ exp(-epsilon max_i |z_i| / sensitivity).

    One unit moves the vector of group g by at most f_g `sensitivities`[i] in number i, with all f_g together at most 1. Numbers
    are multiplied by `times` first, so that they have one `sensitivity`: what comes out is in those finer steps.

    >>> noise = Joint((1, 146), epsilon=1)
    >>> noise.times, noise.sensitivity, noise.event
    ((1168, 8), 1168, Pure(epsilon=1.0))
    >>> noise.run([[10_000], [1_000_000]]).shape
    (2, 1)
    """

    sensitivities: tuple[int, ...]
    epsilon: Fraction
    times: tuple[int, ...]
    sensitivity: int

    def __init__(self, sensitivities: tuple[int, ...], epsilon: Number) -> None:
        wholes = tuple(
            check.whole("sensitivities", item) for item in check.items("sensitivities", sensitivities, "whole numbers")
        )
        if not 0 < len(wholes) <= MOST_NUMBERS:
            raise InvalidValue(f"sensitivities must be 1 to {MOST_NUMBERS} whole numbers; got {len(wholes)}.")
        fix(self, sensitivities=wholes, epsilon=rational("epsilon", epsilon))
        times, most = common_steps(wholes)
        finer = max(1, math.ceil(WIDE * self.epsilon / most))
        fix(self, times=tuple(finer * factor for factor in times), sensitivity=finer * most)
        if self.scale > WIDEST:
            raise InvalidValue("The noise would be larger than int64 holds; choose a larger epsilon, or coarser whole numbers.")

    @property
    def scale(self) -> Fraction:
        return self.sensitivity / self.epsilon

    @property
    def event(self) -> Pure:
        return Pure(float_above("epsilon", self.epsilon))

    def run(self, columns: Any) -> Any:
        """Columns of whole numbers, one column per number, in finer steps and with noise; whole numbers of any size."""
        noise = box(self.scale, len(self.times), len(columns[0]), open_source())
        noisy = [[int(a) * t + b for a, b in zip(column, noise[:, i].tolist())]
                for i, (column, t) in enumerate(zip(columns, self.times))]  # fmt: skip
        return np.array(noisy, object)

    def error(self, confidence: float) -> int:
        """A t such that the noise of one number is within t of its finer steps with this probability."""
        return _error(float(self.scale), len(self.times), check.open_fraction("confidence", confidence))


@lru_cache(1024)
def _error(scale: float, size: int, confidence: float) -> int:
    beta = (1 - confidence) * (1 - 1e-9)
    return least(lambda t: 2 * float(above(t, scale, size)) <= beta)


def least(enough: Callable[[int], bool], low: int = 0) -> int:
    """The least whole number from `low` on that is enough, where all larger ones are too."""
    if enough(low):
        return low
    step = 1
    while not enough(low + step):
        low, step = low + step, 2 * step
    while step > 1:
        step //= 2
        low = low if enough(low + step) else low + step
    return low + 1


def box(scale: Fraction, size: int, count: int, source: Source) -> Ints:
    """`count` vectors of `size` whole numbers, Pr[z] ~ exp(-max |z_i| / scale), exactly.

    A box [-K, K]^size with Pr[K = k] ~ (2k + 1)^size exp(-k / scale), and a point in it, each alike. K is a sum of size + 1
    geometric numbers, kept with probability (2k + 1) / (2k + 2) x ... x (2k + 1) / (2k + 2 size).
    """
    half = np.empty(count, np.int64)
    todo = np.arange(count)
    while todo.size:
        k = _geometric(scale, size + 1, todo.size, source)
        kept = np.ones(todo.size, bool)
        for i in range(1, size + 1):
            here = np.flatnonzero(kept)
            kept[here] = _below(2 * (k[here] + i), source) < 2 * k[here] + 1
        half[todo[kept]] = k[kept]
        todo = todo[~kept]
    wide = np.repeat(half, size)
    return (_below(2 * wide + 1, source) - wide).reshape(count, size)


def _geometric(scale: Fraction, terms: int, count: int, source: Source) -> Ints:
    """Sums of `terms` geometric numbers, Pr[n] ~ exp(-n / scale): discrete Laplace noise x, or -1 - x where it is below 0."""
    noise = draw(LaplaceDistribution(scale), terms * count, source)
    total: Ints = np.where(noise >= 0, noise, -1 - noise).reshape(terms, count).sum(axis=0)
    return total


def _below(bounds: Ints, source: Source) -> Ints:
    """A uniform whole number below each bound, by rejection of the digits it does not need."""
    width = np.frexp(bounds.astype(np.float64))[1].astype(np.uint64)  # at least as many digits as bound - 1 has
    shift = np.uint64(64) - np.minimum(width, np.uint64(63))
    out = np.empty(bounds.size, np.int64)
    todo = np.arange(bounds.size)
    while todo.size:
        drawn = (source.words(np.uint64, todo.size) >> shift[todo]).astype(np.int64)
        fits = drawn < bounds[todo]
        out[todo[fits]] = drawn[fits]
        todo = todo[~fits]
    return out


def above(noise: Any, scale: float, size: int) -> Any:
    """Pr[Z > noise] of one number of a vector of `size`, for noise >= -1, in float64 to about twelve digits.

    It is the sum over k > t of (k - t) (2k + 1)^(size - 1) q^k, over that of all (2k + 1)^size q^k; both in binomials of k.
    """
    t = np.asarray(noise, np.float64)
    large, terms = _polynomial(scale, size)
    x = (2 * t + 3) / large
    part = np.full_like(x, terms[-1])
    for term in terms[-2::-1]:
        part = part * x + term
    return np.exp(-(t + 1) / scale) * part


@lru_cache(256)
def _polynomial(scale: float, size: int) -> tuple[float, tuple[float, ...]]:
    """The tail without its exponential factor: a polynomial in (2t + 3) / the first number, whose terms have one sign."""
    r = 1 / math.expm1(1 / scale)  # q / (1 - q)
    large = max(r, 1.0)
    whole = sum(a * (r / large) ** j * large ** (j - size) for j, a in enumerate(binomials(size)))
    terms = [0.0] * size
    for j, power, times in above_terms(size):
        terms[power] += times * (r / large) ** j * large ** (power + j - size) / whole
    return large, tuple(terms)


def above_bounds(noise: int, scale: Fraction, size: int, bits: int) -> Bounds:
    """Integers around 2^bits Pr[Z > noise], for noise >= 0."""
    digits = bits + (size + 1) * (64 + int(scale).bit_length())
    one = 1 << digits
    q, edge = exp_bounds(1 / scale, digits), exp_bounds((noise + 1) / scale, digits)
    rest = one - q[1], one - q[0]
    c = 2 * noise + 3
    whole, part = [0, 0], [0, 0]
    for end in (0, 1):
        powers = [q[end] ** j * rest[end] ** (size - j) for j in range(size + 1)]
        whole[end] = sum(a * powers[j] for j, a in enumerate(binomials(size)))
        part[end] = sum(times * c**power * powers[j] for j, power, times in above_terms(size))
    low = (edge[0] * part[0] << bits) // (whole[1] << digits)
    high = -(-(edge[1] * part[1] << bits) // (whole[0] << digits))
    return low, high


@lru_cache(64)
def binomials(size: int) -> tuple[int, ...]:
    """(2k + 1)^size = sum over j of a_j binomial(k, j)."""
    return tuple(sum(math.comb(size, i) * 2**i * stirling(i, j) for i in range(j, size + 1)) for j in range(size + 1))


@lru_cache(64)
def above_terms(size: int) -> tuple[tuple[int, int, int], ...]:
    """(n + 1) (2n + c)^(size - 1) = sum of times c^power binomial(n, j), as (j, power, times)."""
    m = size - 1
    terms: dict[tuple[int, int], int] = {}
    for i in range(m + 1):
        for j in range(i + 1):
            times = math.comb(m, i) * 2**i * stirling(i, j)
            for place, more in ((j, j + 1), (j + 1, j + 1)):  # (n + 1) binomial(n, j)
                terms[place, m - i] = terms.get((place, m - i), 0) + more * times
    return tuple((j, power, times) for (j, power), times in sorted(terms.items()) if times)


@lru_cache(1024)
def stirling(i: int, j: int) -> int:
    """n^i = sum over j of this times binomial(n, j)."""
    return sum((-1) ** (j - k) * math.comb(j, k) * k**i for k in range(j + 1))
