"""Vectors of bounded length as whole numbers, and exact Gaussian noise for their sums.

A sum of clipped vectors in floating point moves by more than the clip norm when one unit leaves, and noise in floating point
has holes that tell where it started (Mironov 2012; Casacuberta et al. 2022). Here each vector is rounded to a grid by itself,
its length is checked in whole numbers, the sum is one of int64, and the noise is an exact discrete Gaussian.

The event is that of the continuous Gaussian. Discrete Gaussian noise of scale sigma is, up to a factor exp(+-1e-76) a number,
what rounding at random makes of Gaussian noise of scale sqrt(sigma^2 - 9): post-processing of a mechanism whose composition and
sampling are known, so no theorem is needed again (docs/theory/learn-noise.md).
"""

from __future__ import annotations

import hmac
import math
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from discreet.core import check
from discreet.core.event import Gaussian
from discreet.errors import InvalidValue
from discreet.noise.digits import GaussianDistribution
from discreet.noise.samplers import draw
from discreet.noise.source import Source

Ints = NDArray[np.int64]
Floats = NDArray[np.floating]

RADIUS = 1 << 20  # steps in the clip norm
WIDEST = 1 << 24  # so that squares of coordinates are exact in float64, and 2^38 units fit int64
ROUNDING = 3  # the scale of the rounding that the event takes off, in steps
TILE = 1 << 16  # numbers of noise that are drawn together, from a key of their own
TRIES = 8


class VectorGrid:
    """Vectors of `size` numbers as whole numbers of steps, `radius` of which make the clip norm.

    >>> grid = VectorGrid(clip_norm=1.0, noise_multiplier=2.0, size=3)
    >>> grid.rounded(np.array([0.0, 3.0, -4.0])).tolist()  # clipped to length 1
    [0, 629145, -838860]
    >>> grid.event()
    Gaussian(noise_multiplier=2.0)
    """

    def __init__(self, *, clip_norm: float, noise_multiplier: float, size: int, radius: int = RADIUS) -> None:
        self.clip_norm = check.positive("clip_norm", clip_norm)
        self.noise_multiplier = check.positive("noise_multiplier", noise_multiplier)
        self.size, self.radius = check.whole("size", size), check.whole("radius", radius, most=WIDEST)
        if self.radius**2 < 256 * self.size:
            raise InvalidValue(
                f"radius must be at least {math.isqrt(256 * self.size - 1) + 1} for {self.size} numbers, or most of a gradient "
                f"would be rounded away; got {self.radius}."
            )
        self.sigma = least_sigma(Fraction(self.noise_multiplier) * self.radius)

    def event(self) -> Gaussian:
        """What releasing one noisy sum is, where one unit more or less is in it."""
        return Gaussian(self.noise_multiplier)

    def rounded(self, vector: Floats) -> Ints:
        """One unit's vector on the grid: at most `radius` steps long, as a statement about whole numbers.

        Each coordinate goes to its nearest step. Where that makes the vector too long, it is shortened and rounded again.
        A vector that is not finite counts as nothing.
        """
        flat = np.asarray(vector, np.float64).reshape(-1)
        if flat.size != self.size:
            raise InvalidValue(f"gradient must hold {self.size} numbers, as announced; got {flat.size}.")
        with np.errstate(over="ignore", invalid="ignore"):
            length = float(np.sqrt(np.dot(flat, flat)))
        if not math.isfinite(length):
            return np.zeros(self.size, np.int64)
        wanted = self.radius * min(length / self.clip_norm, 1.0)  # the length in steps before rounding
        for number in range(TRIES):
            steps = np.rint(flat * (wanted / length)).astype(np.int64) if length else np.zeros(self.size, np.int64)
            square = int(np.dot(steps, steps))  # about (radius + sqrt(size) / 2)^2 at most, so far from overflow
            if square <= self.radius**2:
                return steps
            # shorten in proportion to the accumulated rounding error; with few coordinates, by half a step or more
            wanted = max(wanted * self.radius / math.sqrt(square) - (number + 1) / 2, 0.0)
        return np.zeros(self.size, np.int64)

    def noise(self, key: bytes, *, step: int, offset: int = 0, count: int | None = None) -> Ints:
        """Discrete Gaussian noise of scale `sigma` at positions of a step, by default at all of them.

        It is exact: no floating-point number decides a value. It depends on (key, step, position) alone, so a resumed run
        repeats it and any split into shards gives the same numbers.
        """
        step, offset = check.whole("step", step, least=0), check.whole("offset", offset, least=0)
        count = self.size - offset if count is None else check.whole("count", count, least=0)
        if offset + count > self.size:
            raise InvalidValue(f"offset + count must be at most {self.size}, the numbers there are; got {offset + count}.")
        return gaussian(key, self.sigma, self.size, step=step, offset=offset, count=count)


def least_sigma(scale: Fraction) -> int:
    """The least whole sigma whose discrete Gaussian is post-processing of Gaussian noise of this scale, in steps."""
    return math.isqrt(math.ceil(scale**2 + ROUNDING**2) - 1) + 1


def gaussian(key: bytes, sigma: int, size: int, *, step: int, offset: int = 0, count: int | None = None) -> Ints:
    """Numbers `offset` to `offset + count` of `size` discrete Gaussian numbers, which depend on key, step and place alone."""
    count = size - offset if count is None else count
    distribution, parts = GaussianDistribution(Fraction(sigma)), [np.empty(0, np.int64)]
    for tile in range(offset // TILE, -(-(offset + count) // TILE)):
        start, end = max(offset - tile * TILE, 0), min(offset + count - tile * TILE, TILE)
        whole = min(size - tile * TILE, TILE)  # a tile is always drawn whole: its numbers depend on its size
        parts.append(draw(distribution, whole, Keyed(key, step, tile))[start:end])
    return np.concatenate(parts)


class Keyed(Source):
    """Random digits for one tile of one step of a run, under a key of their own."""

    __slots__ = ()
    repeatable = True  # by whoever holds the key of the run: steps that are taken again draw what they drew

    def __init__(self, key: bytes, step: int, tile: int) -> None:
        place = step.to_bytes(8, "big") + tile.to_bytes(8, "big")
        self._restart(hmac.digest(key, b"discreet noise: grid" + place, "sha256"))
