"""Privacy amplification by shuffling: many local reports, their order forgotten.

Feldman, McMillan & Talwar 2021 ("Hiding among the clones"): whatever the other users hold, each of their reports is with
some probability a *clone*, drawn as the first user's own would be. Given c clones, what the shuffled reports say about the
first user is no more than how many of c + 1 reports are of the first kind:

    with one value      a + 1 with probability e^epsilon / (e^epsilon + 1), else a
    with the other      a with probability e^epsilon / (e^epsilon + 1), else a + 1          a ~ Binomial(c, 1/2)

That pair dominates every epsilon-DP local randomiser; docs/theory/shuffle.md has the proof and what a later paper got
wrong. The sums are rounded outward, so delta is never below that of the pair.
"""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from discreet.accounting import profile as profiles
from discreet.accounting.profile import Profile
from discreet.core import check
from discreet.errors import InvalidValue

Array = NDArray[np.float64]

MOST_USERS = 10**8  # more users hide one better still: their bound is that of this many
LARGEST = 30.0  # an epsilon beyond which even so many users hardly hide each other
REACH = 14.0  # standard deviations of the number of clones that are looked at; what lies beyond is bounded
BLOCKS = 600  # numbers of clones are put together in this many blocks, each counted as its smallest
ROUNDING = 1e-10  # above the relative error of the binomial terms, which is below 3e-11 up to MOST_USERS (see the tests)
FEW = 60  # so many epsilons at once are computed one by one; more are read off a table
NODES = 320  # of that table
LEAST = 1e-30  # the table ends where delta is this; beyond, up to where losses end, a chord bounds it


def shuffled(epsilon: float, users: int, two_answers: bool = False) -> Profile:
    """The profile of `users` shuffled reports, each from an epsilon-DP local randomiser, when one user's value is replaced.

    For randomised response with two answers clones are more common: 2 / (e^epsilon + 1) instead of e^-epsilon.
    """
    if epsilon == 0 or users == 1 or epsilon > LARGEST:
        return profiles.pure(epsilon)
    rate = 2 / (math.exp(epsilon) + 1) if two_answers else math.exp(-epsilon)
    pair = _clones(epsilon, min(users, MOST_USERS), rate * (1 - 1e-15))  # fewer clones hide less
    return profiles.symmetric(pair.delta, epsilon)


def shuffled_renyi(epsilon: float, users: int, order: float, two_answers: bool = False) -> float:
    """The Rényi divergence of the same pair, from above; infinity where its sum overflows.

    For a pair that may be swapped, e^{(a-1) D} = 1 + a (a - 1) times the integral over t > 1 of
    (t^{a-2} + t^{-a-1}) H_t (Sason & Verdu 2016, with f = t^a). H falls, so each step of the table counts as its left end.
    """
    grid, delta = _table(epsilon, users, two_answers)
    if (order - 1) * epsilon > 600:
        return math.inf
    with np.errstate(under="ignore"):
        start, step = grid[:-1], np.diff(grid)
        rising = np.exp((order - 1) * start) * np.expm1((order - 1) * step) / (order - 1)
        weight = rising - np.exp(-order * start) * np.expm1(-order * step) / order
    total = order * (order - 1) * math.fsum((weight * delta[:-1]).tolist())
    return math.log1p(max(total, 0.0) * (1 + 1e-9)) / (order - 1)


def _table(epsilon: float, users: int, two_answers: bool) -> tuple[Array, Array]:
    found = shuffled(epsilon, users, two_answers)
    pair = getattr(found.forward, "__self__", None)
    if isinstance(pair, _Clones):
        return pair.table
    grid = np.linspace(0.0, epsilon, NODES)
    return grid, found.delta(grid)


def closed_form(epsilon: float, users: int, delta: float) -> float:
    """Feldman, McMillan & Talwar 2021, Theorem 3.1: the epsilon of shuffled reports in closed form. `curve` is tighter.

    Valid for epsilon up to ln(users / (16 ln(2 / delta))).

    >>> round(closed_form(1.0, 10_000, 1e-6), 3)
    0.214
    """
    epsilon, delta = check.positive("epsilon", epsilon), check.open_fraction("delta", delta)
    users = check.whole("users", users)
    most = math.log(users / (16 * math.log(2 / delta)))
    if epsilon > most:
        raise InvalidValue(
            f"The closed form is proven for epsilon up to {most:.3g} with {users} users at delta {delta:g}; got {epsilon:g}. "
            "Use curve(Shuffled(event, users)), which holds for every epsilon."
        )
    grown = math.exp(epsilon)
    clones = 8 * math.sqrt(grown * math.log(4 / delta) / users) + 8 * grown / users
    return math.log1p(math.tanh(epsilon / 2) * clones)


class _Clones:
    """The pair: how many clones, with what probability, and the hockey-stick given each number."""

    def __init__(self, epsilon: float, users: int, rate: float) -> None:
        self.epsilon = epsilon
        self.count, self.mass = _numbers(users - 1, rate)
        self._table: tuple[Array, Array] | None = None

    def delta(self, epsilon: Array) -> Array:
        epsilon = np.asarray(epsilon, dtype=np.float64)
        if epsilon.size <= FEW:
            return self.exactly(epsilon)
        grid, value = self.table
        rest = np.interp(np.expm1(np.minimum(epsilon, self.epsilon)), np.expm1(grid), value)  # a chord lies above
        return np.where(epsilon < self.epsilon, rest * (1 + 1e-12), 0.0)

    def exactly(self, epsilon: Array) -> Array:
        """The sum over the numbers of clones, for each epsilon."""
        out = np.zeros_like(epsilon)
        for i, x in enumerate(epsilon.tolist()):
            if x < self.epsilon:
                out[i] = min(float(self.mass @ self._given(x)), 1.0)
        return out

    def _given(self, x: float) -> Array:
        """H at e^x given each number of clones: (e^e0 - e^x)/(e^e0 + 1) Pr[a = k - 1] - (e^x - 1) Pr[a >= k].

        k is the least count that speaks for the first world: k > (c + 1)(e^x - e^-e0) / ((1 - e^-e0)(1 + e^x)). A wrong k
        at a tie leaves out a term as small as rounding.
        """
        from scipy.special import betainc

        c, low = self.count, math.exp(-self.epsilon)
        share = (math.expm1(x) - math.expm1(-self.epsilon)) / (-math.expm1(-self.epsilon) * (1 + math.exp(x)))
        k = np.minimum(np.floor((c + 1) * min(share, 1.0)) + 1, c + 1)
        weight = -math.expm1(x - self.epsilon) / (1 + low)
        exactly = np.exp(_log_binomial(c, k - 1, 0.5)) * (1 + ROUNDING)
        inside = k <= c
        tail = np.where(inside, betainc(np.maximum(k, 1), np.maximum(c - k, 0) + 1, 0.5), 0.0) * (1 - ROUNDING)
        given: Array = np.clip(weight * exactly - math.expm1(x) * tail, 0.0, weight)
        return given * (1 + ROUNDING)

    @property
    def table(self) -> tuple[Array, Array]:
        if self._table is None:
            end = self._end()
            grid = self._nodes(end)
            value = np.minimum.accumulate(self.exactly(grid))
            if end < self.epsilon:
                grid, value = np.append(grid, self.epsilon), np.append(value, 0.0)
            self._table = grid, value
        return self._table

    def _nodes(self, end: float) -> Array:
        """Where a chord between neighbours is about as near everywhere: log delta falls evenly, and no gap is wide."""
        rough = np.linspace(0.0, end, 40)
        fall = -np.log(np.maximum(np.minimum.accumulate(self.exactly(rough)), 1e-3 * LEAST))
        level = fall / max(float(fall[-1] - fall[0]), 1e-9) + np.linspace(0.0, 1.0, len(rough))
        nodes: Array = np.interp(np.linspace(level[0], level[-1], NODES), level, rough)
        nodes[0], nodes[-1] = 0.0, end
        return np.unique(nodes)

    def _end(self) -> float:
        """Where delta falls to LEAST, or losses end."""
        low, high = 0.0, self.epsilon
        for _ in range(30):
            middle = (low + high) / 2
            if float(self.exactly(np.array([middle]))[0]) > LEAST:
                low = middle
            else:
                high = middle
        return high


@lru_cache(maxsize=256)
def _clones(epsilon: float, users: int, rate: float) -> _Clones:
    return _Clones(epsilon, users, rate)


def _numbers(others: int, rate: float) -> tuple[Array, Array]:
    """Numbers of clones and their probabilities, from below: whatever is moved or put together is moved to fewer clones."""
    spread = math.sqrt(others * rate * (1 - rate))
    low = max(math.floor(others * rate - REACH * spread - 40), 0)
    high = min(math.ceil(others * rate + REACH * spread + 40), others)
    every = np.arange(low, high + 1, dtype=np.float64)
    mass = np.exp(_log_binomial(np.full_like(every, others), every, rate)) * (1 + 1e-9)
    size = -(-len(every) // BLOCKS)
    starts = np.arange(0, len(every), size)
    count, mass = every[starts], np.add.reduceat(mass, starts)
    beyond = 1.0 if high < others else 0.0
    below = _tail_below(others, low, rate)
    # above `high` there are more clones than in the last block; below `low` there may be none at all
    count, mass = np.append(count, 0.0), np.append(mass, below)
    mass[-2] += beyond * math.exp(-(REACH**2) / 4)
    return count, mass


def _tail_below(others: int, low: int, rate: float) -> float:
    """Pr[fewer than `low` clones], by Chernoff's bound."""
    if low == 0:
        return 0.0
    x = low / others
    return math.exp(-others * (x * math.log(x / rate) + (1 - x) * math.log((1 - x) / (1 - rate))) * (1 - 1e-6))


def _log_binomial(n: Array, k: Array, p: float) -> Array:
    """log of the binomial probability by Loader's saddle-point form (2000), which keeps its precision for large n."""
    with np.errstate(divide="ignore", invalid="ignore"):
        inner = (
            _stirling(n) - _stirling(k) - _stirling(n - k) - _deviance(k, n * p) - _deviance(n - k, n * (1 - p))
            + 0.5 * np.log(n / (2 * math.pi * k * (n - k)))
        )  # fmt: skip
        ends = np.where(k == 0, n * math.log1p(-p), n * math.log(p))
    out: Array = np.where((k == 0) | (k == n), ends, inner)
    return out


def _deviance(x: Array, mean: Array) -> Array:
    """x log(x / mean) + mean - x, without cancellation where they are near."""
    u = (x - mean) / mean
    return mean * np.where(np.abs(u) < 0.01, _near(u), (1 + u) * np.log1p(u) - u)


def _near(u: Array) -> Array:
    total = np.zeros_like(u)
    for j in range(12, 1, -1):  # (1+u) log(1+u) - u = sum (-1)^j u^j / (j (j-1))
        total = total * u + (-1) ** j / (j * (j - 1))
    return total * u * u


def _stirling(n: Array) -> Array:
    """log n! - log(sqrt(2 pi n) (n/e)^n)."""
    from scipy.special import gammaln

    small = n < 16
    m = np.where(small, 16.0, n)
    series = (1 / 12 - (1 / 360 - (1 / 1260 - (1 / 1680 - 1 / (1188 * m * m)) / (m * m)) / (m * m)) / (m * m)) / m
    least = np.where(small, np.maximum(n, 0.5), 1.0)
    direct = gammaln(least + 1) - (least + 0.5) * np.log(least) + least - 0.5 * math.log(2 * math.pi)
    out: Array = np.where(small, direct, series)
    return out
