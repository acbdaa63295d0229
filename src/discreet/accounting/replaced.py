"""Poisson samples when a unit is replaced: the pair of two mixtures that share the worlds in which nobody looked.

Let M0 be the output where the unit is not in the sample, M1 where it is, M2 where its other version is. Each of M1 and M2
differs from M0 by one unit added. The two worlds are (1-q) M0 + q M1 and (1-q) M0 + q M2, and for A = e^epsilon >= 1

    H_A = q integral (M1 - c M0 - A M2)+,        c = (A - 1)(1 - q) / q.

Let a test reject with probability p under M1, u under M0, w under M2. With (P, Q) the pair of the inner event,
p <= H_a(P||Q) + a u and u <= H_b(Q||P) + b w for all a, b > 0; the choice a = c + A / b cancels u and w:

    H_A <= q (H_{c + A/b}(P||Q) + A/b H_b(Q||P))        for every b > 0.

The least over b is what is used. Every b is a bound, so an inexact search is never too low; both terms are positive, so nothing
cancels. Exchanging M1 and M2 gives the same bound: the profile is symmetric. For noise whose best tests are thresholds (one
number, log-concave noise) the least over b is reached by the versions at +1 and -1: the bound is exact.
docs/theory/adjacency.md has the proofs.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from discreet.accounting import lattice
from discreet.accounting import profile as profiles
from discreet.accounting.profile import LEAST, Delta, Profile

Array = NDArray[np.float64]

SLACK = 1e-12  # above the relative error of the terms
RAREST = 1e-100  # lower rates count as this one: a world where the unit is sampled more rarely is a mixture with equal worlds
FEW = 512  # so many epsilons are searched one by one; for more, the b between them is interpolated
GOLDEN = (math.sqrt(5) - 1) / 2
TURNS = 44  # of the golden-section search
FAR = 60.0  # b is searched up to e^(epsilon + FAR), where its term is gone
MARGIN = 1 + 1e-11  # above the relative error of the sum of cells
ROUNDS = 40  # how often cells are halved
CELLS = 30_000  # and how many there may be
HIGHEST = 2.0**18  # the highest order whose moment is computed
FINE = 1e-4  # a cell whose halving changes the sum by less than this share, over the number of cells, is left


def gaussian_replaced(rate: float, noise_multiplier: float) -> Profile:
    """Gaussian noise on a Poisson sample, one unit replaced."""
    if noise_multiplier < 1 / profiles.FARTHEST:
        return profiles.unbounded()
    return profiles.symmetric(lambda e: np.maximum(np.exp(log_gaussian_replaced(rate, noise_multiplier, e)), LEAST), math.inf)


def log_gaussian_replaced(rate: float, noise_multiplier: float, e: Array) -> Array:
    """log delta of Gaussian noise on a Poisson sample, one unit replaced: exact, with the best b in closed form.

    The best test is a threshold t, where b = e^{t mu^2 + mu^2/2} and a = e^{t mu^2 - mu^2/2} are the likelihood ratios of
    neighbours there; a = c + A/b is a quadratic equation in e^{t mu^2}.
    """
    rate, mu = max(rate, RAREST), 1 / noise_multiplier
    half = min(mu * mu / 2, 1e300)
    linear = _log_more(e, rate) + half  # log of c e^{mu^2/2}
    root = np.logaddexp(2 * linear, e + math.log(4)) / 2
    log_b = np.maximum(np.logaddexp(linear, root) - math.log(2) + half, 0.0)
    return _log_bound(e, log_b, rate, lambda x: _log_gaussian(mu, x), lambda x: _log_gaussian(mu, x))


def replaced(rate: float, inner: Profile) -> Profile:
    """Any mechanism on a Poisson sample, one unit replaced; `inner` is its profile for one unit added or removed."""
    if rate == 0 or inner.most == 0:
        return profiles.symmetric(np.zeros_like, 0.0)
    if profiles.tells_all(inner):
        return profiles.unbounded()
    rate = max(rate, RAREST)
    most = _largest(rate, inner.most_forward, inner.most_backward)
    forward, backward = _logarithm(inner.forward, inner.most_forward), _logarithm(inner.backward, inner.most_backward)

    def at(e: Array, log_b: Array) -> Array:
        return np.exp(_log_bound(e, log_b, rate, forward, backward))

    def delta(e: Array) -> Array:
        e = np.asarray(e, dtype=np.float64)
        if e.size <= FEW:
            log_b = _search(at, e, inner.most_backward)
        else:  # the epsilons of a grid, in ascending order
            nodes = e[np.linspace(0, e.size - 1, FEW).astype(np.int64)]
            log_b = np.interp(e, nodes, _search(at, nodes, inner.most_backward))
        return np.where(e < most, np.maximum(at(e, log_b), LEAST), 0.0)

    return profiles.symmetric(delta, most)


def _largest(rate: float, up: float, down: float) -> float:
    """log(1 - q + q e^up) - log(1 - q + q e^-down), rounded up: the largest loss."""
    if max(up, down) == math.inf:
        return math.inf
    if rate == 1:
        return up + down
    rise = math.log1p(rate * math.expm1(up)) if up < 600 else up + math.log(rate) + math.log1p(math.exp(-up) / rate)
    return (rise + profiles.fallen(down, rate)) * profiles.UP + LEAST


def _logarithm(delta: Delta, most: float) -> Delta:
    """log delta, from above where it is too small for a float."""

    def log(x: Array) -> Array:
        with np.errstate(divide="ignore"):
            return np.where(x >= most, -np.inf, np.log(np.maximum(delta(x), LEAST)))

    return log


def _log_bound(e: Array, log_b: Array, rate: float, forward: Delta, backward: Delta) -> Array:
    """log of q (H_a(P||Q) + A/b H_b(Q||P)) with a = c + A/b, from the logarithms of H."""
    log_a = _log_a(e, log_b, rate)
    first, under = forward(np.abs(log_a) * (1 - 4e-15)), log_a < 0  # rounded down: delta falls
    if under.any():  # parity: H_a(P||Q) = 1 - a + a H_{1/a}(Q||P)
        below = np.minimum(log_a, -1e-300)
        first = np.where(under, np.logaddexp(np.log(-np.expm1(below)), below + backward(-below)), first)
    both = np.logaddexp(first, e - log_b + backward(log_b))
    return np.minimum(both + math.log(rate) + SLACK, 0.0)


def _log_more(e: Array, rate: float) -> Array:
    """log c = log((e^epsilon - 1)(1 - q) / q)."""
    with np.errstate(divide="ignore"):
        share = math.log1p(-rate) - math.log(rate) if rate < 1 else -math.inf
        return e + np.log(-np.expm1(-e)) + share


def _log_a(e: Array, log_b: Array, rate: float) -> Array:
    """log(c + A/b); near a = 1 it is the excess over 1 that is computed."""
    small = np.minimum(e, 30.0)
    excess = np.expm1(small) * ((1 - rate) / rate) + np.expm1(np.minimum(small - log_b, 30.0))
    with np.errstate(divide="ignore", invalid="ignore"):
        near = np.log1p(np.maximum(excess, -1.0))
        far = np.logaddexp(_log_more(e, rate), e - log_b)
    return np.where((e < 30) & (excess > -0.5), near, far)


def _search(at: Callable[[Array, Array], Array], e: Array, most: float) -> Array:
    """The log b >= 0 of the least bound at each epsilon. In 1/b the bound is convex, so it falls and then rises."""
    low, high = np.zeros_like(e), np.minimum(most, e + FAR)
    one, two = high - GOLDEN * (high - low), low + GOLDEN * (high - low)
    first, second = at(e, one), at(e, two)
    for _ in range(TURNS):
        left = first <= second
        high, low = np.where(left, two, high), np.where(left, low, one)
        new = np.where(left, high - GOLDEN * (high - low), low + GOLDEN * (high - low))
        value = at(e, new)
        one, two, first, second = (
            np.where(left, new, two), np.where(left, one, new),
            np.where(left, value, second), np.where(left, first, value),
        )  # fmt: skip
    ends = np.stack([low, high, one, np.zeros_like(e), np.minimum(most, e + FAR)])
    best = np.argmin(np.stack([at(e, each) for each in ends]), axis=0)
    chosen: Array = np.take_along_axis(ends, best[None, :], axis=0)[0]
    return chosen


def _log_gaussian(mu: float, epsilon: Array) -> Array:
    """log of `profile.gaussian_delta`, which is followed below the smallest float."""
    from scipy.special import erfcx

    if mu < 1e-140:
        return np.full_like(epsilon, math.log(0.4) + math.log(mu))
    x = epsilon / mu * (1 - 4e-16) - mu / 2 * (1 + 4e-16)  # both are rounded, and may cancel
    if mu < 1e-6:  # a difference of two Mills ratios so close is at most their distance times the slope of the convex one
        y = x / math.sqrt(2)
        with np.errstate(under="ignore", over="ignore", invalid="ignore", divide="ignore"):
            slope = 2 / math.sqrt(math.pi) - 2 * y * erfcx(y)
            slope = np.where(y < 1e4, slope * (1 + 1e-15 * (1 + y * y)), 1 / math.sqrt(math.pi) / y**2)
            return -y * y + np.log(slope) + math.log(mu) - math.log(2 * math.sqrt(2))
    with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
        mills, less = erfcx(x / math.sqrt(2)), erfcx((x + mu) / math.sqrt(2))
        tail = -x * x / 2 + np.log(mills - less + 8e-16 * mills) - math.log(2)  # and what their rounding may hide
        near = np.log(profiles.gaussian_delta(mu, epsilon))
    return np.where(x > -4, tail, near)


def log_excess(log_delta: Delta, order: float, end: float) -> float:
    """log of a (a - 1) times the integral over 0 < x < end of (e^{(a-1)x} + e^{-ax}) delta(x), from above.

    Without end that is E[r^a] - 1 of any pair whose profile is at most `delta` in both directions (Sason & Verdu 2016, with
    f = t^a). The profile of a pair is convex in e^x, so on each cell it lies below its chord. Cells are halved where it helps.
    """
    edges = _edges(end, 97, 65)
    height = log_delta(edges)
    sums = _cells(edges[:-1], edges[1:], height[:-1], height[1:], order)
    cells = (edges[:-1], edges[1:], height[:-1], height[1:], sums)
    settled: list[Array] = []
    for _ in range(ROUNDS):
        start, stop, first, last, whole = cells
        if not start.size or sum(map(len, settled)) + 2 * start.size > CELLS:
            break
        middle = (start + stop) / 2
        value = np.minimum(log_delta(middle), first)
        left, right = _cells(start, middle, first, value, order), _cells(middle, stop, value, last, order)
        halved = np.minimum(np.logaddexp(left, right), whole)
        total = np.logaddexp.reduce(np.concatenate([*settled, halved]))
        with np.errstate(invalid="ignore", divide="ignore"):
            gain = whole - total + np.log(-np.expm1(np.minimum(halved - whole, 0.0)))
        go_on = (gain > math.log(FINE / 500)) & (middle > start) & (middle < stop)
        settled.append(halved[~go_on])
        parts = ((start, middle, first, value, left), (middle, stop, value, last, right))
        ordered = np.argsort(np.concatenate([start[go_on], middle[go_on]]), kind="stable")
        cells = tuple(np.concatenate([one[go_on], two[go_on]])[ordered] for one, two in zip(*parts))  # type: ignore[assignment]
    return _rounded_up(float(np.logaddexp.reduce(np.concatenate([*settled, cells[4]]))), order, end)


def _cells(start: Array, stop: Array, first: Array, last: Array, order: float) -> Array:
    """log of the integral over each cell, the profile replaced by its chord; `first` and `last` are its logarithms.

    The chord in e^x has on average at least 1/2 - h/12 of its fall behind it under an even weight, more under a rising one, and
    under e^{-ax} at least e^{-ah} of that.
    """
    h = stop - start
    fallen = np.maximum(0.5 - h / 12, 0.0)
    with np.errstate(divide="ignore", under="ignore", over="ignore"):
        rising = (order - 1) * start + _log_expm1((order - 1) * h) - math.log(order - 1)
        falling = -order * start + np.log(-np.expm1(-order * h)) - math.log(order)
        up = rising + np.logaddexp(first + np.log1p(-fallen), last + np.log(fallen))
        fallen = fallen * np.exp(-order * h)
        down = falling + np.logaddexp(first + np.log1p(-fallen), last + np.log(fallen))
        both: Array = np.logaddexp(up, down)
    return both


def _log_expm1(x: Array) -> Array:
    with np.errstate(divide="ignore"):
        return x + np.log(-np.expm1(-x))


def gaussian_log_moment(rate: float, noise_multiplier: float, order: float, sampled: Callable[[float], float]) -> float:
    """log E[r^a] of Gaussian noise on a Poisson sample, one unit replaced, from above.

    `sampled(n)` is log E[x^n] for x = 1 - q + q M1/M0, the ratio when the unit is added.
    """
    end, tail = _tail(rate, order, sampled, 0.0)
    if end == math.inf:
        return math.inf
    excess = log_excess(lambda e: log_gaussian_replaced(rate, noise_multiplier, e), order, end)
    return float(np.logaddexp(0.0, np.logaddexp(excess, tail)))


def table(profile: Profile) -> tuple[Array, Array]:
    """Epsilons up to the largest loss, or to where delta is too small for a float; and log delta at each."""
    end = max(profile.most if profile.most < math.inf else lattice.reach(profile, 1e-305)[1], 1e-280)
    edges = _edges(end, 2000, 2000)
    return edges, _logarithm(profile.forward, profile.most)(edges)


def log_moment(
    rate: float, table: tuple[Array, Array], most: float, order: float, sampled: Callable[[float], float]
) -> float:  # fmt: skip
    """log E[r^a] of any event on a Poisson sample, one unit replaced, from above: by the table of its profile."""
    edges, height = table
    tail = -math.inf
    if most == math.inf:
        end, tail = _tail(rate, order, sampled, float(edges[-1]))
        if end == math.inf:
            return math.inf
        edges, height = np.append(edges, end), np.append(height, height[-1])  # beyond the table delta is no larger
    total = float(np.logaddexp.reduce(_cells(edges[:-1], edges[1:], height[:-1], height[1:], order)))
    return float(np.logaddexp(0.0, np.logaddexp(_rounded_up(total, order, float(edges[-1])), tail)))


def _tail(rate: float, order: float, sampled: Callable[[float], float], least_end: float) -> tuple[float, float]:
    """Where losses may be cut off, and the logarithm of what the moment has beyond.

    Beyond e^end the ratio of the two mixtures is at most x / (1 - q), so what lies there is at most
    (1-q)^{1-a} E[x^a; x > (1-q) e^end], and Markov's inequality bounds that by the moments of x of higher orders.
    """
    least = float(_log_expm1(np.array([max(sampled(order), 1e-300)]))[0])
    lost = math.log1p(-rate)
    higher = [(more, sampled(order + more) + (1 - order - more) * lost) for more in _steps(order)]
    end = max(min((log - least + 30.0) / more for more, log in higher), least_end)
    tail = min(log - more * end for more, log in higher) if end < math.inf else math.inf
    return end, tail + math.log(2) + 1e-12 * abs(tail)  # twice: the other direction has the smaller weight e^{-ax}


def _edges(end: float, geometric: int, even: int) -> Array:
    return np.unique(np.concatenate([[0.0], np.geomspace(end * 1e-12, end, geometric), np.linspace(0, end, even)[1:]]))


def _rounded_up(total: float, order: float, end: float) -> float:
    """log of a (a - 1) times the sum of cells whose logarithm is `total`, plus all rounding."""
    return total + math.log(order) + math.log(order - 1) + math.log(MARGIN) + 4e-16 * (order * end + abs(total) + 64)


def _steps(order: float) -> list[float]:
    """By how much higher orders are tried."""
    return [float(2**k) for k in range(17) if order + 2**k < 2**19]
