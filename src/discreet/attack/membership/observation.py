"""What a membership attack may look at: a target and the rows in question, and for some attacks models like the target."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from discreet.models import Shadows

Array = NDArray[Any]


@dataclass(frozen=True)
class Observation:
    """The target, the rows in question and the target's scores [rows, classes].

    `inside` is the truth. Attacks that learn from rows whose membership is known read it; none scores a row by what its
    own truth taught.
    """

    model: Any
    X: Array
    y: Array
    scores: Array
    inside: NDArray[np.bool_]
    seed: int = 0

    def __len__(self) -> int:
        return len(self.y)

    def target(self, signal: Callable[..., Array], **options: Any) -> Array:
        """A signal of the target's scores, one number for each row."""
        return signal(self.scores, self.y, **options)


@dataclass(frozen=True)
class Population:
    """The rows that shadows were trained on: their labels, and the shadows' scores of them."""

    y: Array
    shadows: Shadows


@dataclass(frozen=True)
class Comparison(Observation):
    """An observation with shadows beside it: their scores of the rows in question, and of the rows they were trained on."""

    shadows: Shadows = field(kw_only=True)
    population: Population = field(kw_only=True)
    _signals: dict[Any, Array] = field(default_factory=dict, init=False, repr=False, compare=False)

    def reference(self, signal: Callable[..., Array], **options: Any) -> Array:
        """The signal of every shadow [models, rows]; model by model, which stays in cache, and once for all attacks."""
        key = signal, *sorted(options.items())
        if key not in self._signals:
            self._signals[key] = np.stack([signal(scores, self.y, **options) for scores in self.shadows.scores])
        return self._signals[key]


def compare(observation: Observation, shadows: Shadows, population: Population | None = None) -> Comparison:
    """An observation beside shadows of the same rows, by default those that they were trained on."""
    parts = {name: getattr(observation, name) for name in ("model", "X", "y", "scores", "inside", "seed")}
    return Comparison(**parts, shadows=shadows, population=population or Population(observation.y, shadows))
