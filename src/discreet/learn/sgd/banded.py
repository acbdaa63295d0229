"""Correlated noise: later steps cancel part of what earlier steps added (BandMF, Choquette-Choo et al. 2023).

Weights are sums of many noisy gradients, so noise that cancels in sums harms them less. For independent noise z, this is
C^-1 z for a lower-triangular matrix C with `bands` diagonals and columns of norm 1, chosen to minimise the noise of the sums.
The release then equals C (gradients) + z seen through C^-1. A unit that takes part at most once in every `bands` steps moves
C (gradients) by one column per participation, and columns `bands` apart share no row: each participation costs as much as
one plain Gaussian step. docs/theory/banded-noise.md has the proof.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING

import numpy as np

from discreet.core import check
from discreet.core import event as events
from discreet.errors import InvalidValue
from discreet.noise.banded import Array, columns, errors, first_column
from discreet.noise.sampling import MOST_UNITS, Ints, placed, thinned

if TYPE_CHECKING:
    from torch import Tensor

    from discreet.learn.sgd.stream import Stream

MOST_STEPS = 10**6


class Banded:
    """Noise that cancels in sums over `steps` steps, and the sampling under which it costs what it claims.

    Units are put into `bands` groups at random; group i may take part in steps i, i + bands, i + 2 bands, ..., each unit of
    it on its own with probability `rate` x `bands`, so that a step has the share `rate` of all units. With one band this is
    plain private gradient descent, draw for draw and bit for bit.

    >>> Banded(0.01, steps=1000, bands=10).event(events.Gaussian(1.0), 1000)
    Repeat(event=Poisson(rate=0.1, event=Gaussian(noise_multiplier=1.0)), times=100)
    """

    def __init__(self, rate: float, *, steps: int, bands: int, momentum: float = 0.0) -> None:
        self.rate = check.fraction("rate", rate)
        self.steps, self.bands = check.whole("steps", steps, most=MOST_STEPS), check.whole("bands", bands)
        self.momentum = check.small_fraction("momentum", momentum)
        self._share = self.rate * self.bands  # of its group that a step takes
        if not 0 < self._share <= 1:
            raise InvalidValue(
                f"rate x bands must be above 0 and at most 1, since a unit takes part at most once in {self.bands} steps; "
                f"got {self.rate:g} x {self.bands}. Use at most {math.floor(1 / self.rate) if self.rate else 0} bands."
            )
        if self.bands > self.steps:
            raise InvalidValue(f"bands must be at most the number of steps, {self.steps}; got {self.bands}.")
        self.matrix = columns(first_column(self.steps, self.bands, self.momentum), self.steps)
        self._most = int(Fraction(self._share) * 2**64)
        self._groups: tuple[bytes, int, Ints] | None = None
        self._pasts: dict[tuple[int, int], _Past] = {}  # by the part of the weights: offset and size

    # ---- sampling ----------------------------------------------------------------------------------------------------

    def draw(self, key: bytes, step: int, units: int) -> Ints:
        """The units of this step, ascending; there may be none."""
        units = check.whole("units", units, least=0, most=MOST_UNITS)
        drawn = thinned(key, b"poisson", step, units, self._most)
        return drawn if self.bands == 1 else drawn[self._group(key, units)[drawn] == step % self.bands]

    def _group(self, key: bytes, units: int) -> Ints:
        """The group of each unit, the same for the whole run; drawn at random, so that it says nothing about others."""
        if self._groups is None or self._groups[:2] != (key, units):
            self._groups = (key, units, placed(key, b"bands", 0, units, self.bands))
        return self._groups[2]

    def event(self, noise: events.Event, steps: int) -> events.Event:
        """What `steps` such steps are; relation add/remove. Holds for Gaussian noise only, and for no other sampling."""
        return self.repeated(noise, self.rounds(0, check.whole("steps", steps, most=self.steps)))

    def rounds(self, start: int, stop: int) -> int:
        """The blocks of one unit in steps `start` to `stop`, whose groups and noise are of a key of their own."""
        return -(-max(stop - start, 0) // self.bands)

    def repeated(self, noise: events.Event, rounds: int) -> events.Event:
        """What so many blocks are, whatever the keys they were drawn with."""
        if self.bands > 1 and not isinstance(noise, events.Gaussian):
            raise InvalidValue(f"Correlated noise is accounted for Gaussian noise only; got {type(noise).__name__}.")
        return events.Repeat(events.Poisson(self._share, noise), check.whole("rounds", rounds))

    # ---- noise -------------------------------------------------------------------------------------------------------

    def fill(
        self, stream: Stream, out: Tensor, *, step: int, offset: int = 0, scale: float = 1.0, start: int = 0
    ) -> Tensor:  # fmt: skip
        """`out[i] = scale * (number offset + i of this step's row of C^-1 z)`, in place; z is what `stream` holds.

        Keeps the last `bands` - 1 rows for every requested part of the weights. For a step out of order, as after a restart, it
        recomputes all earlier steps. Where the key of the stream serves steps from `start` on only, C is the block of the whole
        matrix below and right of there: it has the same diagonals, and its columns are no longer.
        """
        step = check.whole("step", step, least=0, most=self.steps - 1)
        if self.bands == 1:
            return stream.fill(out, step=step, offset=offset, scale=scale)
        past = self._pasts.get((offset, out.numel()))
        if past is None or not past.fits(stream, out) or past.step > step:
            past = self._pasts[offset, out.numel()] = _Past(stream, out, offset, self.bands - 1, start)
        while past.step < step:
            past.advance(self.matrix, out)
        return out.copy_(past.row(step)).mul_(scale)

    def noise(self, stream: Stream, out: Tensor, *, step: int, offset: int = 0, scale: float = 1.0) -> Tensor:
        """Add the noise of this step to `out`."""
        import torch

        return out.add_(self.fill(stream, torch.empty_like(out), step=step, offset=offset, scale=scale))

    def errors(self) -> Array:
        """The standard deviation of the noise in the weights after each step, at noise multiplier 1 and learning rate 1."""
        return errors(self.steps, self.bands, self.momentum)

    def error(self) -> float:
        """The root of the mean of the squares of all `errors`: what the matrix was chosen to make small."""
        return float(np.sqrt(np.mean(self.errors() ** 2)))

    def __repr__(self) -> str:
        return f"Banded(rate={self.rate:g}, steps={self.steps}, bands={self.bands})"


@dataclass(frozen=True)
class BandMF:
    """Noise that later steps cancel, over `bands` steps, and batches with a share `rate` of the units (see `Banded`)."""

    rate: float
    bands: int

    def over(self, steps: int, momentum: float) -> Banded:
        """For so many steps of an optimizer with this momentum."""
        return Banded(self.rate, steps=steps, bands=self.bands, momentum=momentum)


class Correlated:
    """The noise of a run: what `stream` holds, seen through the matrix of `banded`; filled like a stream."""

    def __init__(self, banded: Banded, stream: Stream, start: int = 0) -> None:
        self._banded, self._stream, self._start = banded, stream, start

    def fill(self, out: Tensor, *, step: int, offset: int = 0, scale: float = 1.0) -> Tensor:
        return self._banded.fill(self._stream, out, step=step, offset=offset, scale=scale, start=self._start)


class _Past:
    """The last rows of C^-1 z for one part of the weights."""

    def __init__(self, stream: Stream, out: Tensor, offset: int, rows: int, start: int = 0) -> None:
        self.start, self.step = start, start - 1  # the first row of the key, and the last row that was made
        self._stream, self._offset = stream, offset
        self._rows = [out.new_zeros(out.numel()) for _ in range(rows)]

    def fits(self, stream: Stream, out: Tensor) -> bool:
        return stream is self._stream and out.device == self._rows[0].device

    def row(self, step: int) -> Tensor:
        return self._rows[step % len(self._rows)]

    def advance(self, matrix: Array, room: Tensor) -> None:
        """The next row: (z - C's row times the earlier rows) / C's diagonal. `room` is overwritten."""
        step = self.step + 1
        self._stream.fill(room, step=step, offset=self._offset)
        for back in range(1, min(len(self._rows), step - self.start) + 1):
            room.sub_(self.row(step - back), alpha=float(matrix[step, back]))
        self.row(step).copy_(room).div_(float(matrix[step, 0]))
        self.step = step


def best(rate: float, steps: int, calibrate: Callable[[Banded], float], momentum: float = 0.0) -> Banded:
    """The number of bands (a power of two) with the least noise in the weights, where `calibrate` gives each its multiplier.

    More bands cancel more noise but are sampled less thinly. One band, plain descent, is among them: never worse than that.

    >>> from discreet.accounting import calibrate, Gaussian
    >>> def least(banded):
    ...     return calibrate(lambda noise: banded.event(Gaussian(noise), 500), epsilon=8.0, delta=1e-6)
    >>> best(0.01, 500, least).bands
    32
    """
    widest = min(math.floor(1 / check.fraction("rate", rate)), steps)
    tried = [Banded(rate, steps=steps, bands=2**i, momentum=momentum) for i in range(widest.bit_length())]
    return min(tried, key=lambda banded: calibrate(banded) * banded.error())
