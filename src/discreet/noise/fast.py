"""The exact samplers, many values at a time.

One uniform number U in [0, 1) decides a cell: the cell whose two cuts enclose U. U is revealed lazily: 16 bits settle
nearly every value by one table look-up, 32 more nearly all others, and what is still undecided asks for further
digits of U and of the cuts until they differ. Wide laws use cells of 2^k values: the value inside its cell is uniform
and kept with probability exp(-(its exponent - the least exponent in its cell)), decided in the same lazy way.
docs/theory/noise-exact-samplers.md has the proof that the distribution is exact.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable
from functools import lru_cache, partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from discreet.errors import InvalidValue
from discreet.noise.digits import Bounds, GaussianDistribution, LaplaceDistribution, exp_bounds, nearest, thresholds
from discreet.noise.source import Source, smallest_word

Ints = NDArray[np.int64]

WIDEST = 1 << 50  # the largest spread drawn into int64; past it a value might not fit
CHUNK = 1 << 15  # values at a time: everything in flight stays in cache
FINEST = 6  # a cell is at least spread / 2^FINEST wide
UNSURE = np.iinfo(np.int32).min
DEEPEST = 2048  # digits of U that are ever looked at; more would be needed with probability below 2^-1900
ERROR = 2.0**-40  # far above the rounding error of a float64 acceptance probability, which is below 2^-48


class Cells:
    """A sampler for one distribution; building it takes milliseconds, so it is cached."""

    def __init__(self, distribution: LaplaceDistribution | GaussianDistribution, finest: int = FINEST) -> None:
        self.distribution = distribution
        self.shift = max(0, int(distribution.spread).bit_length() - finest - 1)
        self.width = 1 << self.shift
        cuts = thresholds(distribution, self.width, 48)
        self.cells = np.array([*cuts.cells, UNSURE], np.int64)
        self.lo = np.array(cuts.lo, np.int64)
        self.hi_before = np.array([0, *cuts.hi], np.int64)
        self.table = self._first_digit(cuts.lo, cuts.hi)
        self.safe = self._surely_kept() if self.shift else None

    def _first_digit(self, lo: list[int], hi: list[int]) -> NDArray[np.int32]:
        """The cell that the first 16 bits of U settle, or UNSURE."""
        lo16 = np.array([cut >> 32 for cut in lo])
        hi16 = np.array([0, *(-(-cut >> 32) for cut in hi)])
        digit = np.arange(1 << 16)
        index = np.searchsorted(lo16, digit, side="right")
        settled = digit >= hi16[index]
        return np.where(settled, self.cells[index], UNSURE).astype(np.int32)

    def _surely_kept(self) -> NDArray[np.uint16]:
        """For each first digit of U: any first digit of V below this keeps every value of the cell."""
        limits = {UNSURE: 0}
        for cell in set(self.table.tolist()) - {UNSURE}:
            near = nearest(cell, self.width)
            gap = self.distribution.exponent(abs(near) + self.width - 1) - self.distribution.exponent(near)
            limits[cell] = max(0, exp_bounds(gap, 16)[0])
        keys = np.array(sorted(limits))
        values = np.array([limits[key] for key in keys.tolist()], np.uint16)
        return values[np.searchsorted(keys, self.table)]

    def draw(self, count: int, source: Source) -> Ints:
        """`count` independent values."""
        out = np.empty(count, np.int64)
        for start in range(0, count, CHUNK):
            self._fill(out[start : start + CHUNK], source)
        return out

    def _fill(self, out: Ints, source: Source) -> None:
        digits = source.words(np.uint16, out.size)
        cells = self._settle(digits, source)
        if not self.shift:
            out[:] = cells
            return
        self._spread(cells, out, source)
        dropped = self._dropped(digits, cells, out, source)
        if dropped.size:
            again = np.empty(dropped.size, np.int64)
            self._fill(again, source)
            out[dropped] = again

    def _settle(self, digits: NDArray[Any], source: Source) -> NDArray[Any]:
        cells = self.table.take(digits, mode="clip")
        unsure = np.flatnonzero(cells == UNSURE)
        if unsure.size:
            cells[unsure] = self._refine(digits[unsure], source)
        return cells

    def _refine(self, digits: NDArray[Any], source: Source) -> Ints:
        """The cells of values U that agree with a cut in 16 bits: 32 more bits decide, then as many as needed."""
        u = digits.astype(np.int64) << 32 | source.words(np.uint32, digits.size)
        index = np.searchsorted(self.lo, u, side="right")
        cells: Ints = self.cells[index]
        for i in np.flatnonzero((u < self.hi_before[index]) | (cells == UNSURE)):
            cells[i] = self._locate(int(u[i]), 48, source)
        return cells

    def _locate(self, u: int, bits: int, source: Source) -> int:
        while bits < DEEPEST:
            u, bits = u << 48 | source.bits(48), bits + 48
            cuts = thresholds(self.distribution, self.width, bits)
            j = bisect_right(cuts.lo, u)
            if j < len(cuts.lo) and (j == 0 or u >= cuts.hi[j - 1]):
                return cuts.cells[j]
        raise InvalidValue("A noise value beyond int64 was drawn, which happens with probability below 2^-1900. Draw again.")

    def _spread(self, cells: NDArray[Any], out: Ints, source: Source) -> None:
        """A uniform value in each cell."""
        dtype, size = smallest_word(self.shift)
        np.left_shift(cells, self.shift, out=out, dtype=np.int64)
        out += (source.words(dtype, out.size) >> dtype(size - self.shift)).astype(np.int64)

    def _dropped(self, digits: NDArray[Any], cells: NDArray[Any], values: Ints, source: Source) -> NDArray[np.intp]:
        """Which values are not kept: those with V >= exp(-(exponent - least exponent in the cell)), V uniform."""
        assert self.safe is not None
        first = source.words(np.uint16, values.size)
        close = np.flatnonzero(first >= self.safe.take(digits, mode="clip"))
        v = first[close].astype(np.int64) << 32 | source.words(np.uint32, close.size)
        x, cell = values[close], cells[close].astype(np.int64)
        near = np.where(cell >= 0, cell << self.shift, (cell << self.shift) + (self.width - 1))
        distance = v * 2.0**-48 - self._acceptance(np.abs(x), np.abs(near))
        dropped: NDArray[np.bool_] = distance > 0
        for i in np.flatnonzero(np.abs(distance) <= ERROR):
            gap = self.distribution.exponent(int(x[i])) - self.distribution.exponent(int(near[i]))
            dropped[i] = not below(int(v[i]), 48, partial(exp_bounds, gap), source)
        return close[dropped]

    def _acceptance(self, x: Ints, near: Ints) -> NDArray[np.float64]:
        """exp(-(exponent(x) - exponent(near))) in float64, to within ERROR."""
        if isinstance(self.distribution, LaplaceDistribution):
            return np.exp((near - x) / float(self.distribution.scale))
        return np.exp((near - x) / float(self.distribution.sigma) * ((x + near) / float(2 * self.distribution.sigma)))


def below(v: int, bits: int, bounds: Callable[[int], Bounds], source: Source) -> bool:
    """Whether V is below a number: v holds V's first `bits` digits, `bounds(n)` encloses the number to n digits."""
    while True:
        lo, hi = bounds(bits)
        if v < lo:
            return True
        if v >= hi:
            return False
        v, bits = v << 48 | source.bits(48), bits + 48


def flips(bounds: Callable[[int], Bounds], count: int, source: Source) -> NDArray[np.bool_]:
    """`count` coins, each true with the probability that `bounds(n)` encloses to n digits."""
    lo, hi = bounds(48)
    v = source.words(np.uint16, count).astype(np.int64) << 32 | source.words(np.uint32, count)
    out: NDArray[np.bool_] = v < lo
    for i in np.flatnonzero((v >= lo) & (v < hi)):
        out[i] = below(int(v[i]), 48, bounds, source)
    return out


@lru_cache(maxsize=64)
def cells(distribution: LaplaceDistribution | GaussianDistribution) -> Cells:
    """The sampler for a distribution, built once."""
    return Cells(distribution)
