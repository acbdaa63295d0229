"""Private sums in fixed point (whole numbers), for claims that hold despite floating-point rounding.

Every unit's clipped gradient is computed and rounded to a grid separately (`noise/vectors.py`), and the release is a function
of whole numbers alone. It costs one backward pass per unit.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import numpy as np
import torch
from torch import Tensor

from discreet.errors import InvalidValue
from discreet.learn.sgd.clipping import Clipping
from discreet.learn.sgd.engine import Engine
from discreet.learn.sgd.engine.tape import Record, Tape
from discreet.noise.vectors import Ints, VectorGrid


class Grid(VectorGrid):
    """Gradients as whole numbers of steps, and steps as numbers of the size of gradients."""

    def of(self, gradient: Tensor) -> Ints:
        """One unit's gradient on the grid."""
        return self.rounded(gradient.detach().to("cpu", torch.float64).numpy())

    def values(self, steps: Ints, divisor: float = 1.0) -> Tensor:
        """Steps as numbers, float32: post-processing of what was released."""
        return torch.from_numpy((steps * (self.clip_norm / self.radius / divisor)).astype(np.float32))


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
        self.total += self.grid.of(gradient)
        into.copy_(self.grid.values(self.total, 1 / scale))


class GridStream:
    """The noise of a run on the grid, filled like a stream: a step begins with it, as whole numbers."""

    def __init__(self, key: bytes, engine: GridEngine) -> None:
        self._key, self._engine = key, engine

    def fill(self, out: Tensor, *, step: int, offset: int = 0, scale: float = 1.0) -> Tensor:
        grid = self._engine.grid
        self._engine.total = grid.noise(self._key, step=step)
        return out.copy_(grid.values(self._engine.total, grid.noise_multiplier * grid.clip_norm / scale))
