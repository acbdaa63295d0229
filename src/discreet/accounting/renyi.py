"""Rényi divergences of events: what a filter may add up between adaptively chosen steps.

`renyi(event, order)` bounds D_a(P||Q) and D_a(Q||P) for a neighbouring pair; it adds up over composition (Mironov 2017).
`concentrated(event)` is the least known rho with D_a <= rho a for all a > 1: zero-concentrated DP (Bun & Steinke 2016).
"""

from __future__ import annotations

import math
from fractions import Fraction
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from discreet.accounting import allocation, moments, objective, replaced, shuffle, student
from discreet.accounting.plan import grouped, plan, pure_epsilon, tells_one_of_two
from discreet.accounting.rounding import float_up
from discreet.core import check
from discreet.core import event as events
from discreet.errors import InvalidValue, UnsupportedEvent

ORDERS = (
    *(1 + i / 20 for i in range(1, 20)), *(2 + i / 4 for i in range(24)), *range(8, 65), 80, 96, 128, 192, 256, 512, 1024,
)  # fmt: skip

UP = 1 + 2e-15  # above the rounding of a few functions
STEPS = 60  # of Newton's method; mostly four are enough
HIGHEST = 4096.0  # a group's order doubles with its size; beyond this it has no bound worth naming


def renyi(event: events.Event, order: float) -> float:
    """An upper bound on the Rényi divergence of this order, in both directions; infinity where there is none.

    >>> from discreet.core import Gaussian
    >>> round(renyi(Gaussian(2.0), 8.0), 9)
    1.0
    """
    order = check.real("order", order)
    if order <= 1:
        raise InvalidValue(f"order must be above 1; got {order:g}.")
    try:
        bound = _renyi(event, order, 1) * (1 + 1e-14)
    except OverflowError:  # so many, or so large, that no float holds them
        return math.inf
    return math.inf if math.isnan(bound) else bound  # what is not a number bounds nothing


def _renyi(event: events.Event, order: float, size: int) -> float:
    match event:
        case events.StudentT():
            return _renyi(student.as_gaussian(event), order, size)
        case events.Repeat(inner, times):
            return times * _renyi(inner, order, size)
        case events.Sequence(items):
            return math.fsum(_renyi(item, order, size) for item in items)
        case events.Group(inner, n):
            return _renyi(inner, order, size * n)
    return _single(grouped(event, size), order)


def _single(event: events.Event, order: float) -> float:
    match event:
        case events.Zero():
            return 0.0
        case events.NonPrivate():
            return math.inf
        case events.Gaussian(noise_multiplier):
            return max(order / 2 / noise_multiplier / noise_multiplier, moments.LEAST)
        case events.DiscreteGaussian(sigma, sensitivity):  # Canonne, Kamath, Steinke 2020, Theorem 14
            return max(order / 2 * (sensitivity / sigma) * (sensitivity / sigma), moments.LEAST)
        case events.Concentrated(rho):
            return order * rho
        case events.Exponential(epsilon):
            return _bounded_range(epsilon, order)
        case events.Approximate(epsilon, delta):
            return _single(events.Pure(epsilon), order) if delta == 0 else math.inf
        case events.Pure(0.0) | events.NoisyMax(0.0) | events.RandomizedResponse(0.0):
            return 0.0
        case _ if isinstance(event, moments.Symmetric):
            at = max(order, moments.NEAREST)
            return max(float(moments.log_moment(event, np.array([at]))[0]) / (at - 1), moments.LEAST)
        case events.ObjectivePerturbation():
            gaussian = _single(events.Gaussian(event.noise_multiplier), order)  # a case of the event
            return max(objective.perturbed_renyi(event, order), gaussian)
        case events.Poisson(rate, events.StudentT() as inner):
            return _poisson(rate, student.as_gaussian(inner), order)
        case events.PoissonReplace(rate, events.StudentT() as inner):
            return _poisson_replace(events.PoissonReplace(rate, student.as_gaussian(inner)), order)
        case events.RandomAllocation(events.StudentT() as inner, bins):
            return _allocated(student.as_gaussian(inner), bins, order)
        case events.Poisson(rate, inner):
            return _poisson(rate, inner, order)
        case events.PoissonReplace():
            return _poisson_replace(event, order)
        case events.WithoutReplacement(rate, inner):
            return _mixture_bound(rate, inner, order)
        case events.RandomAllocation(inner, bins):
            return _allocated(inner, bins, order)
        case events.Shuffled(inner, users):
            return _shuffled(inner, users, order)
        case events.Group(inner, size):
            return _group(inner, size, order)
    raise UnsupportedEvent(f"discreet has no Rényi bound for the event {type(event).__name__}.")


def _bounded_range(epsilon: float, order: float) -> float:
    """Losses t and t - epsilon, at the worst t; never above a epsilon^2 / 8 (Cesar & Rogers 2021)."""
    if epsilon == 0:
        return 0.0
    return max(min(order * epsilon * epsilon / 8, epsilon), moments.LEAST)


def _poisson(rate: float, inner: events.Event, order: float) -> float:
    """Exact at whole orders where noise is symmetric (see `moments`); otherwise, and never above, what convexity allows."""
    if rate == 0:
        return 0.0
    if rate == 1:
        return _renyi(inner, order, 1)
    bound = _mixture_bound(rate, inner, order)
    if bound == math.inf or order >= moments.HIGHEST or not isinstance(inner, moments.Symmetric):
        return bound
    return max(min(moments.sampled_log_moment(rate, inner, order) / (order - 1), bound), moments.LEAST)


@lru_cache(maxsize=4096)
def _poisson_replace(event: events.PoissonReplace, order: float) -> float:
    """By the profile of the pair (see `replaced`); never above what convexity allows where both versions are in the sample."""
    pair, rate, inner = plan(event), event.rate, event.event
    if not pair.parts:
        return 0.0 if pair.bounded else math.inf
    bound = _mixture_bound(rate, events.Group(inner, 2), order)
    profile, at = pair.parts[0][0], max(order, moments.NEAREST)
    if rate == 1 or bound == math.inf or at >= replaced.HIGHEST:
        return bound
    sampled = events.Poisson(rate, inner)

    def added(n: float) -> float:
        return (n - 1) * _single(sampled, n)

    if isinstance(inner, events.Gaussian):
        log = replaced.gaussian_log_moment(rate, inner.noise_multiplier, at, added)
    else:
        log = replaced.log_moment(rate, _replaced_table(event), profile.most, at, added)
    return max(min(log / (at - 1), bound), moments.LEAST)


@lru_cache(maxsize=64)
def _replaced_table(event: events.PoissonReplace) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    return replaced.table(plan(event).parts[0][0])


def _mixture_bound(rate: float, inner: events.Event, order: float) -> float:
    """Any sampled mechanism: D_a is jointly quasi-convex, so sampling never raises it; and e^{(a-1) D_a} is convex.

    Forward, e^{(a-1) D_a((1-q)Q + qP || Q)} <= 1 - q + q e^{(a-1) D_a(P||Q)}; backward the same holds in the second
    argument because x^(1-a) is convex.
    """
    inside = 0.0 if rate == 0 else _renyi(inner, order, 1)
    if inside in (0.0, math.inf):
        return inside
    exponent = (order - 1) * inside
    if exponent < 500:
        return max(math.log1p(rate * math.expm1(exponent)) / (order - 1), moments.LEAST)
    return (exponent + math.log(rate + (1 - rate) * math.exp(-exponent))) / (order - 1)


def _allocated(inner: events.Event, bins: int, order: float) -> float:
    """Amplified where a step is Gaussian; else no more than for a unit known to be in its step: D_a is quasi-convex.

    A unit that a chosen step takes with probability q is, with probability q, in a step chosen evenly: sampling comes first.
    """
    if isinstance(inner, events.Poisson):
        first = _poisson(inner.rate, events.RandomAllocation(inner.event, bins), order)
        return min(first, _renyi(inner, order, 1))
    alone = _renyi(inner, order, 1)
    if bins == 1 or alone == math.inf or not isinstance(inner, events.Gaussian):
        return alone
    return allocation.allocated_renyi(inner.noise_multiplier, bins, order, alone)


def _shuffled(inner: events.Event, users: int, order: float) -> float:
    """That of the clones' pair, and never more than what one report costs by itself: shuffling is post-processing."""
    alone, epsilon = _renyi(inner, order, 1), pure_epsilon(inner)
    if epsilon == math.inf or users == 1:
        return alone
    return min(alone, shuffle.shuffled_renyi(epsilon, users, order, two_answers=tells_one_of_two(inner)))


def _group(inner: events.Event, size: int, order: float) -> float:
    """Doubling: D_a(P||R) <= (a - 1/2)/(a - 1) D_{2a}(P||Q) + D_{2a-1}(Q||R), and D grows with its order (Mironov 2017)."""
    if size == 1:
        return _single(inner, order)
    if order > HIGHEST:
        return math.inf
    return ((order - 0.5) / (order - 1) + 1) * _group(inner, (size + 1) // 2, 2 * order)


def concentrated(event: events.Event) -> float:
    """The least rho discreet can prove with D_a <= rho a for every a > 1; infinity where there is none.

    >>> from discreet.core import Gaussian, Repeat
    >>> concentrated(Repeat(Gaussian(10.0), 100))
    0.5
    """
    try:
        return float_up(_concentrated(event, 1))
    except OverflowError:  # there is none, or no float holds it
        return math.inf


def _concentrated(event: events.Event, size: int) -> Fraction:
    match event:
        case events.Repeat(inner, times):
            return times * _concentrated(inner, size)
        case events.Sequence(items):
            return sum((_concentrated(item, size) for item in items), Fraction(0))
        case events.Group(inner, n):
            return _concentrated(inner, size * n)
        case events.Zero():
            return Fraction(0)
        case events.Gaussian(noise_multiplier):
            return (size / Fraction(noise_multiplier)) ** 2 / 2
        case events.DiscreteGaussian(sigma, sensitivity):
            return (size * sensitivity / Fraction(sigma)) ** 2 / 2
        case events.Concentrated(rho):
            return Fraction(rho) * size * size
        case events.StudentT():
            return _concentrated(student.as_gaussian(event), size)
        case events.Exponential(epsilon):
            return (Fraction(epsilon) * size) ** 2 / 8  # bounded range: Cesar & Rogers 2021
        case events.Pure(epsilon) | events.NoisyMax(epsilon) | events.RandomizedResponse(epsilon):
            return _pure_rho(Fraction(epsilon) * size)
        case events.Laplace(noise_multiplier):
            return _pure_rho(size / Fraction(noise_multiplier))
        case events.DiscreteLaplace(scale, sensitivity):
            return _pure_rho(size * sensitivity / Fraction(scale))
        case events.Approximate(epsilon, delta) if delta == 0:
            return _pure_rho(Fraction(epsilon) * size)
        case events.Shuffled(inner) | events.RandomAllocation(inner):
            return _concentrated(inner, size)
    raise OverflowError(f"{type(event).__name__} has no bound of this kind")


def _pure_rho(epsilon: Fraction) -> Fraction:
    """epsilon tanh(epsilon/2), at most epsilon^2/2: the loss is +-epsilon with mean epsilon tanh(epsilon/2), and its
    sub-Gaussian factor (Kearns & Saul 1998) is twice that, so K(t) <= epsilon tanh(epsilon/2) t (1 + t)."""
    up = float_up(epsilon)
    return Fraction(up) * Fraction(math.tanh(up / 2) * UP)


def epsilon_from_renyi(divergence: float, order: float, delta: float) -> float:
    """(order, divergence)-RDP as (epsilon, delta)-DP: Canonne, Kamath, Steinke 2020, Proposition 12."""
    if divergence == math.inf:
        return math.inf
    if delta == 0:
        return math.inf if divergence > 0 else 0.0
    a = order
    parts = divergence, math.log1p(-1 / a), -math.log(delta) / (a - 1), -math.log(a) / (a - 1)
    return max(math.fsum((*parts, *(8e-16 * abs(part) for part in parts))), 0.0)


def epsilon_by_renyi(event: events.Event, delta: float) -> float:
    """epsilon at delta from Rényi composition alone, at the best of the orders tried. `curve(event)` is tighter.

    >>> from discreet.core import Gaussian, Poisson, Repeat
    >>> round(epsilon_by_renyi(Repeat(Poisson(0.01, Gaussian(1.0)), 10_000), 1e-5), 2)
    6.72
    """
    delta = check.open_fraction("delta", delta)
    return min(epsilon_from_renyi(renyi(event, order), order, delta) for order in ORDERS)


def epsilon_from_concentrated(rho: float, delta: float) -> float:
    """rho-zCDP as (epsilon, delta)-DP, at the best of all orders (not rho + 2 sqrt(rho ln(1/delta)), which is looser).

    >>> round(epsilon_from_concentrated(0.5, 1e-5), 2)
    4.73
    """
    rho, delta = check.nonnegative("rho", rho), check.open_fraction("delta", delta)
    if rho == 0:
        return 0.0
    order = best_order(rho, delta)
    return epsilon_from_renyi(rho * order, order, delta)


def best_order(rho: float, delta: float) -> float:
    """The order a at which rho-zCDP gives the least epsilon at delta; every other gives a bound too.

    The slope of rho a + log(1 - 1/a) + (log(1/delta) - log a) / (a - 1) is rho - (log(1/delta) - log a) / (a - 1)^2. With
    a = e^u it is 0 where rho (e^u - 1)^2 + u = log(1/delta): rising and convex in u, so Newton's steps from above stay above.
    """
    whole = -math.log(delta)
    u = min(math.log1p(math.sqrt(whole / rho)), whole)
    for _ in range(STEPS):
        above = math.expm1(u)
        step = (rho * above * above + u - whole) / (2 * rho * above * (1 + above) + 1)
        u = max(u - step, 0.0)
        if not step > 1e-9 * u:
            break
    return max(math.exp(u), 1 + 1e-6)  # nearer 1 its logarithms lose their digits
