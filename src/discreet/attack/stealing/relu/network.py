"""The network that was stolen."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class StolenRelu:
    """A ReLU network that answers as the model does.

    `layers` are pairs of weights [units, inputs] and offsets. The answer is the last layer @ `output` + `offset`, and where the
    signs of the last units could not be told, also what the last layer is given @ `skip`: the same function with a linear part
    beside it. Units are found up to order and size, which change nothing. `error` is the largest difference from the model on
    `checked` fresh points of the ball of radius `radius`.
    """

    layers: tuple[tuple[Floats, Floats], ...]
    output: Floats
    offset: Floats
    skip: Floats | None
    queries: int
    error: float
    radius: float
    checked: int

    @property
    def widths(self) -> tuple[int, ...]:
        return tuple(len(offset) for _, offset in self.layers)

    @property
    def parameters(self) -> int:
        """How many numbers a network of this shape has."""
        sizes = [self.layers[0][0].shape[1], *self.widths, self.output.shape[1]]
        return sum(one * two + two for one, two in pairwise(sizes))

    def predict(self, rows: Any) -> Floats:
        """What the model answers; of a classifier logits, less that of the last class where it gave probabilities."""
        given = below = np.atleast_2d(np.asarray(rows, np.float64))
        for weights, offsets in self.layers:
            given, below = np.maximum(given @ weights.T + offsets, 0.0), given
        found = given @ self.output + self.offset
        return np.asarray(found if self.skip is None else found + below @ self.skip)
