"""Private sums in fixed point, that is of whole numbers, for claims that must survive floating point.

A sum of clipped gradients in floating point moves by more than the clip norm when one unit leaves, and noise in floating
point has holes that tell where it started (Mironov 2012; Casacuberta et al. 2022). Here every unit's clipped gradient is
computed and rounded to a grid by itself, its length is checked in whole numbers, the sum is one of int64, and the noise is
an exact discrete Gaussian: what is released is a function of whole numbers alone. It costs a backward for each unit.

The event is that of the continuous Gaussian. Discrete Gaussian noise of scale sigma is, up to a factor exp(+-1e-76) a
number, what rounding at random makes of Gaussian noise of scale sqrt(sigma^2 - 9): post-processing of a mechanism whose
composition and sampling are known, so no theorem is needed again (docs/theory/learn-noise.md).
"""

from __future__ import annotations

import hmac
import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from fractions import Fraction

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from discreet.core import check
from discreet.core.event import Gaussian
from discreet.errors import InvalidValue
from discreet.learn.sgd.clipping import Clipping
from discreet.learn.sgd.engine import Engine
from discreet.learn.sgd.engine.tape import Record, Tape
from discreet.noise.digits import GaussianLaw
from discreet.noise.samplers import draw
from discreet.noise.source import Source

Ints = NDArray[np.int64]

RADIUS = 1 << 20  # steps in the clip norm
WIDEST = 1 << 24  # so that squares of coordinates are exact in float64, and 2^38 units fit int64
ROUNDING = 3  # the scale of the rounding that the event takes off, in steps
TILE = 1 << 16  # numbers of noise that are drawn together, from a key of their own
TRIES = 8


class Grid:
    """Gradients of `size` numbers as whole numbers of steps, `radius` of which make the clip norm.

    >>> grid = Grid(clip_norm=1.0, noise_multiplier=2.0, size=3)
    >>> grid.rounded(torch.tensor([0.0, 3.0, -4.0])).tolist()  # clipped to length 1
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
        # the least whole sigma with sigma^2 - ROUNDING^2 >= (noise_multiplier radius)^2
        least = (Fraction(self.noise_multiplier) * self.radius) ** 2 + ROUNDING**2
        self.sigma = math.isqrt(math.ceil(least) - 1) + 1

    def event(self) -> Gaussian:
        """What releasing one noisy sum is, where one unit more or less is in it."""
        return Gaussian(self.noise_multiplier)

    def rounded(self, gradient: Tensor) -> Ints:
        """One unit's gradient on the grid: at most `radius` steps long, as a statement about whole numbers.

        Each coordinate goes to its nearest step. Where that makes the vector too long, it is shortened and rounded again.
        A gradient that is not finite counts as nothing.
        """
        flat = gradient.detach().reshape(-1).to("cpu", torch.float64).numpy()
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
            # what many roundings add up to is taken off in proportion; few coordinates need half a step, or more of them
            wanted = max(wanted * self.radius / math.sqrt(square) - (number + 1) / 2, 0.0)
        return np.zeros(self.size, np.int64)

    def noise(self, key: bytes, *, step: int, offset: int = 0, count: int | None = None) -> Ints:
        """Discrete Gaussian noise of scale `sigma` at positions of a step, all of them unless told.

        It is exact: no floating-point number decides a value. It depends on (key, step, position) alone, so a resumed run
        repeats it and any split into shards gives the same numbers.
        """
        step, offset = check.whole("step", step, least=0), check.whole("offset", offset, least=0)
        count = self.size - offset if count is None else check.whole("count", count, least=0)
        if offset + count > self.size:
            raise InvalidValue(f"offset + count must be at most {self.size}, the numbers there are; got {offset + count}.")
        law, parts = GaussianLaw(Fraction(self.sigma)), [np.empty(0, np.int64)]
        for tile in range(offset // TILE, -(-(offset + count) // TILE)):
            start, end = max(offset - tile * TILE, 0), min(offset + count - tile * TILE, TILE)
            whole = min(self.size - tile * TILE, TILE)  # a tile is drawn as a whole: what it holds depends on how much it is
            parts.append(draw(law, whole, Keyed(key, step, tile))[start:end])
        return np.concatenate(parts)

    def values(self, steps: Ints, divisor: float = 1.0) -> Tensor:
        """Steps as numbers of the size of gradients, float32: post-processing of what was released."""
        return torch.from_numpy((steps * (self.clip_norm / self.radius / divisor)).astype(np.float32))


class Keyed(Source):
    """Random digits for one tile of one step of a run, under a key of their own."""

    __slots__ = ()
    repeatable = True  # by whoever holds the key of the run: steps that are taken again draw what they drew

    def __init__(self, key: bytes, step: int, tile: int) -> None:
        place = step.to_bytes(8, "big") + tile.to_bytes(8, "big")
        self._restart(hmac.digest(key, b"discreet noise: grid" + place, "sha256"))


class GridEngine(Engine):
    """The engine of a run on the grid: one unit at a time, its gradient by an ordinary backward, sums in `total`.

    Units are not batched because a kernel may round one example's numbers differently when others share its batch: then
    more than one contribution would change when one unit leaves.
    """

    def __init__(self, engine: Engine, grid: Grid) -> None:
        super().__init__(engine.model, engine.rows)
        self.grid = grid
        self.total = np.zeros(grid.size, np.int64)

    @contextmanager
    def recording(self, examples: int) -> Iterator[Tape]:
        """The model runs as it is."""
        self.tape.clear()
        self.tape.examples = examples
        yield self.tape

    def add(self, losses: Tensor, clipping: Clipping, into: Tensor, scale: float = 1.0) -> None:
        """Add one unit's gradient to the whole numbers, and show them in `into`, times `scale`."""
        if losses.numel() != self.rows:
            raise InvalidValue(f"On the grid a batch is one unit of {self.rows} rows; got {losses.numel()} losses.")
        self._put(self.gradient(losses.sum()), into, scale)

    def _add(self, records: Sequence[Record], clipping: Clipping, into: Tensor, scale: float) -> None:
        """The same of one unit's gradient that is written out."""
        known = {p: g for record in records for p, g in record.instantiate().items()}
        self._put(torch.cat([known[p].flatten() for p in self.parameters]), into, scale)

    def _put(self, gradient: Tensor, into: Tensor, scale: float) -> None:
        self.total += self.grid.rounded(gradient)
        into.copy_(self.grid.values(self.total, 1 / scale))


class GridStream:
    """The noise of a run on the grid, filled like a stream: a step begins with it, as whole numbers."""

    def __init__(self, key: bytes, engine: GridEngine) -> None:
        self._key, self._engine = key, engine

    def fill(self, out: Tensor, *, step: int, offset: int = 0, scale: float = 1.0) -> Tensor:
        grid = self._engine.grid
        self._engine.total = grid.noise(self._key, step=step)
        return out.copy_(grid.values(self._engine.total, grid.noise_multiplier * grid.clip_norm / scale))
