"""The trade-off an event implies: the ceiling on every adversary at once."""

from __future__ import annotations

import math
from typing import Protocol, runtime_checkable


@runtime_checkable
class Curve(Protocol):
    """A ceiling on what any adversary reaches. Nothing here is ever rounded in the adversary's disfavour."""

    def epsilon(self, delta: float) -> float:
        """The least epsilon for which (epsilon, delta)-DP is proven; infinity where none is."""
        ...

    def delta(self, epsilon: float) -> float:
        """The least delta for which (epsilon, delta)-DP is proven."""
        ...

    def power(self, level: float) -> float:
        """The largest true-positive rate any test can have at false-positive rate `level`."""
        ...

    def posterior(self, prior: float, delta: float = 1e-6) -> float:
        """What someone who believed with probability `prior` that the unit is inside can at most believe afterwards.

        With probability `delta` the answer may tell more than that.
        """
        ...


def belief_exception(curve: Curve) -> float:
    """The exception probability for a bound on beliefs: 1e-6, or ten times that of revealing everything, if larger.

    An (epsilon, delta)-DP mechanism may reveal everything with probability delta, and almost everything with a little more, so
    a bound on beliefs follows only for an exception well above delta.
    """
    certain = curve.delta(math.inf)
    return next((rare for rare in (1e-6, 1e-5, 1e-4, 1e-3) if certain <= rare / 10 * (1 + 1e-9)), 1e-6)
