"""The trade-off an event implies: the ceiling on every adversary at once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, runtime_checkable

from discreet.core.event import Event


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


_accountant: Callable[[Event], Curve] | None = None


def register_accountant(accountant: Callable[[Event], Curve]) -> None:
    """`discreet.accounting` puts its `curve` here when it is loaded, so that cards of releases can draw their ceiling."""
    global _accountant
    _accountant = accountant


def curve_of(event: Event) -> Curve | None:
    """The curve of an event, or None while no accountant is loaded."""
    return None if _accountant is None else _accountant(event)
