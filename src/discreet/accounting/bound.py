"""What every ceiling answers, and the ceiling of something that tells all with a small probability."""

from __future__ import annotations

import math
from typing import Protocol

import numpy as np

from discreet.accounting import profile as profiles


class Bound(Protocol):
    most: float  # the largest loss

    def epsilon(self, delta: float) -> float: ...
    def delta(self, epsilon: float) -> float: ...
    def rough_log_delta(self, epsilon: float) -> float: ...
    def near(self, level: float) -> list[profiles.Deltas]: ...
    def everywhere(self) -> list[profiles.Deltas]: ...


class Failing:
    """With probability `told` all is told, else it is the inner mechanism: delta = told + (1 - told) delta_inner, exactly.

    Taken apart, so that no digit of what is left of delta is lost beside `told`.
    """

    def __init__(self, inner: Bound, told: float) -> None:
        self._inner, self._told = inner, told
        self.most = math.inf

    def epsilon(self, delta: float) -> float:
        if delta < self._told:
            return math.inf
        left = (delta - self._told) / (1 - self._told)
        return self._inner.epsilon(math.nextafter(left * (1 - 1e-15), 0.0))

    def delta(self, epsilon: float) -> float:
        inner = self._inner.delta(epsilon)
        return min((self._told + (1 - self._told) * inner) * (1 + 1e-15), 1.0) if inner else self._told

    def rough_log_delta(self, epsilon: float) -> float:
        return math.log(self._told + (1 - self._told) * math.exp(min(self._inner.rough_log_delta(epsilon), 0.0)))

    def near(self, level: float) -> list[profiles.Deltas]:
        return self._raised(self._inner.near(level))

    def everywhere(self) -> list[profiles.Deltas]:
        return self._raised(self._inner.everywhere())

    def _raised(self, given: list[profiles.Deltas]) -> list[profiles.Deltas]:
        def raised(delta: profiles.Array) -> profiles.Array:
            return np.minimum((self._told + (1 - self._told) * delta) * (1 + 1e-15), 1.0)

        return [(epsilon, raised(one), raised(two)) for epsilon, one, two in given]
