"""The curve of a single mechanism, read off its profile."""

from __future__ import annotations

import math

import numpy as np

from discreet.accounting import profile as profiles
from discreet.accounting.profile import Profile

EVERYWHERE = np.concatenate([[0.0], 10.0 ** np.arange(-322, -9, 8), np.geomspace(1e-9, 1e15, 200)])
EVENLY = np.linspace(0, 1, 17)
CLOSE = np.concatenate([-(10.0 ** -np.arange(2, 16)), [0.0], 10.0 ** -np.arange(2, 16)])


class Single:
    """A single mechanism: its profile is exact."""

    def __init__(self, profile: Profile) -> None:
        self._profile = profile
        self.most = profile.most

    def _at(self, epsilon: float) -> float:
        return float(self._profile.delta(np.array([min(epsilon, 1e15)]))[0])

    def delta(self, epsilon: float) -> float:
        return self._at(epsilon)

    def rough_log_delta(self, epsilon: float) -> float:
        return math.log(max(self._at(epsilon), 1e-300))

    def epsilon(self, delta: float) -> float:
        """Bracketed everywhere at once, then around where a secant points, to the last bit."""
        top = min(self.most, 1e15)
        grid = np.append(EVERYWHERE[top > EVERYWHERE], top)
        found = self._profile.delta(grid)
        if found[0] <= delta:
            return 0.0
        if found[-1] > delta or delta == 0:
            return self.most
        low, high = 0.0, top
        for _ in range(30):
            first = max(int(np.argmax(found <= delta)), 1)
            before = (low, high)
            low, high = float(grid[first - 1]), float(grid[first])
            if (low, high) == before or not low < (low + high) / 2 < high or found[first] > delta:
                break
            fall = math.log(found[first - 1]) - math.log(found[first]) if found[first] > 0 else math.inf
            share = (math.log(found[first - 1]) - math.log(delta)) / fall if 0 < fall < math.inf else 0.5
            grid = np.sort(np.clip(low + (high - low) * np.append(share + CLOSE, EVENLY), low, high))
            found = self._profile.delta(grid)
        return high if self._at(high) > 0 else self.most  # below the largest loss delta is 0 by rounding alone

    def everywhere(self) -> list[profiles.Deltas]:
        return []  # one mechanism is quick at every level

    def near(self, level: float) -> list[profiles.Deltas]:
        """For tests in either direction, epsilons and their deltas among which the tightest bound at this level lies."""
        one = self._profile
        if one.symmetric:
            return [self._near(level, one.forward, one.forward)]
        return [self._near(level, one.forward, one.backward), self._near(level, one.backward, one.forward)]

    def _near(self, level: float, forward: profiles.Delta, backward: profiles.Delta) -> profiles.Deltas:
        top = min(self.most, 1e15)
        grid = np.concatenate([[0.0], np.geomspace(1e-9, 1e6, 400), [top]])
        grid = np.unique(np.minimum(grid, top))
        for _ in range(3):
            best = int(np.argmin(profiles.power_bound(grid, forward(grid), backward(grid), level)))
            fine = np.linspace(grid[max(best - 1, 0)], grid[min(best + 1, len(grid) - 1)], 200)
            grid = np.unique(np.append(fine, grid[best]))
        return grid, forward(grid), backward(grid)
