"""The lesser of two upper bounds: a composition of distributions, and Rényi composition.

The first is nearly always the lower. Not so where a mechanism is known by an envelope only (`exponential`), which composes a
little worse than the mechanisms under it, or where the terms are so many that rounding shows.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from discreet.accounting import profile as profiles
from discreet.accounting.composition import Composition
from discreet.accounting.gather import COSTLY
from discreet.accounting.profile import Array
from discreet.accounting.renyi import ORDERS, epsilon_from_renyi, renyi
from discreet.core.event import Event

# of more than `SEVERAL` parts: about 1 % above the best of all
FEW_ORDERS = (1.5, 2.0, 3.0, 4.0, 6.0, 8.0, 11.0, 16.0, 23.0, 32.0, 45.0, 64.0, 128.0, 256.0, 512.0, 1024.0)
SEVERAL = 100
FEW_COSTLY = 4  # of so many parts; with more whose divergence takes long none is asked, unless rounding shows
MANY = 10**12  # terms from which Rényi composition is asked as well: rounding begins to show


class Least:
    """Both bounds of a composition. Every order is a bound by itself, so one that is not asked can only leave it higher.

    (a - 1) D_a is convex in a, so log delta of order a at an epsilon is convex too, and epsilon of order a at a delta is such a
    function over a - 1: either falls and then rises. The best of the orders is found by halving.
    """

    def __init__(self, parts: tuple[tuple[Event, int], ...], composed: Composition) -> None:
        self._orders: tuple[float, ...] = ORDERS
        if len(parts) > SEVERAL:
            costly = sum(type(item) in COSTLY for item, _ in parts)
            self._orders = () if costly > FEW_COSTLY and composed.terms < MANY else FEW_ORDERS
        self._parts, self._composed = parts, composed
        self._divergences: dict[int, float] = {}
        self.most = composed.most

    def _divergence(self, place: int) -> float:
        """The Rényi divergence of one of the orders, rounded up."""
        if place not in self._divergences:
            total = math.fsum(n * renyi(item, self._orders[place]) for item, n in self._parts)
            self._divergences[place] = total * (1 + 1e-14)
        return self._divergences[place]

    def _best(self, bound: Callable[[float, float], float]) -> float:
        """The least bound(divergence, order) over the orders; infinity where there are none."""
        if not self._orders:
            return math.inf
        low, high = 0, len(self._orders) - 1
        while low < high:
            middle = (low + high) // 2
            here, there = (bound(self._divergence(place), self._orders[place]) for place in (middle, middle + 1))
            low, high = (low, middle) if here <= there else (middle + 1, high)
        self._divergence(low)
        return min(bound(divergence, self._orders[place]) for place, divergence in self._divergences.items())

    def epsilon(self, delta: float) -> float:
        by_renyi = self._best(lambda divergence, order: epsilon_from_renyi(divergence, order, delta))
        return min(self._composed.epsilon(delta), by_renyi)

    def delta(self, epsilon: float) -> float:
        at = np.array([min(epsilon, 1e15)])
        log = self._best(lambda divergence, order: float(_log_delta(divergence, order, at)[0]))
        return min(self._composed.delta(epsilon), math.exp(min(log, 0.0)))

    def rough_log_delta(self, epsilon: float) -> float:
        return self._composed.rough_log_delta(epsilon)

    def near(self, level: float) -> list[profiles.Deltas]:
        return self._lesser(self._composed.near(level))

    def everywhere(self) -> list[profiles.Deltas]:
        return self._lesser(self._composed.everywhere())

    def _lesser(self, given: list[profiles.Deltas]) -> list[profiles.Deltas]:
        sides = []
        for epsilon, *deltas in given:
            least = np.zeros_like(epsilon)  # of 1, log delta
            for place, order in enumerate(self._orders):
                least = np.minimum(least, _log_delta(self._divergence(place), order, epsilon))
            least = np.exp(least)
            sides.append((epsilon, np.minimum(deltas[0], least), np.minimum(deltas[1], least)))
        return sides


def _log_delta(divergence: float, order: float, epsilon: Array) -> Array:
    """log of the delta that a divergence bounds (Canonne, Kamath, Steinke 2020, Proposition 12)."""
    return (order - 1) * (divergence - epsilon + math.log1p(-1 / order)) - math.log(order)
