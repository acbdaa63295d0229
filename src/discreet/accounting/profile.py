"""Privacy profiles: for each event, the exact delta at every epsilon, in both directions.

Write P for the output with the unit, Q for the output without it. The hockey-stick divergence

    H_a(P || Q) = sup over events S of P(S) - a Q(S)

at a = e^epsilon is the least delta for which (epsilon, delta)-DP holds in that direction. A `Profile` gives it for
epsilon >= 0 forward (P against Q) and backward (Q against P); parity, H_a(P||Q) = 1 - a + a H_{1/a}(Q||P), gives the
rest, so the two halves together determine the pair. Every function here is a closed form; docs/theory/accounting-profiles.md
derives them.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from discreet.core import event as events
from discreet.errors import UnsupportedEvent

Array = NDArray[np.float64]
Delta = Callable[[Array], Array]


@dataclass(frozen=True, slots=True)
class Atoms:
    """Mass at each loss (ascending), and at infinite loss."""

    loss: Array
    mass: Array
    infinite: float


@dataclass(frozen=True, slots=True)
class Profile:
    """Delta at epsilon >= 0 in both directions, and the largest loss in each (infinity where there is none)."""

    forward: Delta
    backward: Delta
    most_forward: float
    most_backward: float
    spacing: float | None = None  # every finite loss is a multiple of this

    def delta(self, epsilon: Array) -> Array:
        """The worse of the two directions."""
        return np.maximum(self.forward(epsilon), self.backward(epsilon))

    @property
    def most(self) -> float:
        return max(self.most_forward, self.most_backward)

    @property
    def symmetric(self) -> bool:
        return self.forward is self.backward


def power_bound(epsilon: Array, delta: Array, level: float) -> Array:
    """The most power at this level that (epsilon, delta)-DP allows, for each pair (Wasserman & Zhou 2010)."""
    with np.errstate(over="ignore", under="ignore"):
        low = delta + (np.exp(np.minimum(epsilon, 800)) * level if level > 0 else 0.0)
        high = 1 - np.exp(-epsilon) * (1 - delta - level)
    return np.minimum(low, high)


def symmetric(delta: Delta, most: float, spacing: float | None = None) -> Profile:
    """A profile that is the same in both directions."""
    return Profile(delta, delta, most, most, spacing)


def unbounded() -> Profile:
    """No ceiling: everything may be told."""
    return symmetric(np.ones_like, math.inf)


def tells_all(profile: Profile) -> bool:
    """No epsilon worth the name bounds it: even at 1e15 delta is as good as 1."""
    return float(profile.delta(np.array([1e15]))[0]) > 1 - 1e-9


def pure(epsilon: float) -> Profile:
    """The worst epsilon-DP mechanism: randomised response between two answers (Kairouz, Oh, Viswanath 2015)."""
    return randomized_response(epsilon, 2)


def approximate(epsilon: float, delta: float) -> Profile:
    """The worst (epsilon, delta)-DP mechanism: with probability delta it tells all, else it is the worst epsilon-DP one."""
    inner = pure(epsilon).forward
    return symmetric(lambda e: delta + (1 - delta) * inner(e), math.inf if delta else epsilon, spacing=epsilon or None)


def randomized_response(epsilon: float, categories: int) -> Profile:
    """k-ary randomised response: losses are +epsilon, -epsilon, and 0 where neither truth was said."""
    norm = 1 + (categories - 1) * math.exp(-epsilon)
    return symmetric(lambda e: -np.expm1(np.minimum(e - epsilon, 0)) / norm, epsilon, spacing=epsilon or None)


def exponential(epsilon: float) -> Profile:
    """The upper envelope of every mechanism whose loss has range at most epsilon.

    Such a mechanism is dominated by two answers with losses t and t - epsilon for some t (Dong, Durfee, Rogers 2020);
    the maximum over t of its hockey-stick is (1 - e^{(x - epsilon)/2})^2 / (1 - e^{-epsilon}). A maximum of convex
    functions is convex, so it is the profile of some pair, and that pair dominates all of them in any composition
    (Zhu, Dong, Wang 2022).
    """
    if epsilon == 0:
        return symmetric(np.zeros_like, 0.0)
    norm = -math.expm1(-epsilon)
    return symmetric(lambda e: np.expm1(np.minimum(e - epsilon, 0) / 2) ** 2 / norm, epsilon)


def laplace(noise_multiplier: float) -> Profile:
    """1 - e^{(x - epsilon)/2} with epsilon = 1 / noise_multiplier.

    One coordinate that moves by the whole l1 sensitivity is the worst case of a vector: Laplace noise is log-concave,
    so moving in two steps along one axis meets the group bound with equality, which is the most two axes can reach.
    """
    most = 1 / noise_multiplier
    return symmetric(lambda e: -np.expm1(np.minimum(e - most, 0) / 2), most)


def gaussian(noise_multiplier: float) -> Profile:
    """Balle & Wang 2018: Phi(mu/2 - x/mu) - e^x Phi(-mu/2 - x/mu) with mu = 1 / noise_multiplier."""
    return symmetric(lambda e: gaussian_delta(1 / noise_multiplier, e), math.inf)


def gaussian_delta(mu: float, epsilon: Array) -> Array:
    """The profile of a shift by `mu` standard deviations, to nearly full relative precision in the tail.

    Both terms share the factor phi(a), so the difference is one of Mills ratios: phi(a) (R(a) - R(b)).
    """
    from scipy.special import erfcx, log_ndtr, ndtr

    if mu < 1e-140:
        return np.full_like(epsilon, 0.4 * mu)  # delta <= mu / sqrt(2 pi) everywhere
    a = epsilon / mu - mu / 2
    b = a + mu
    tail = a > -4
    out = np.empty_like(epsilon)
    x, y = a[tail], b[tail]
    with np.errstate(under="ignore"):
        out[tail] = np.exp(-x * x / 2) * (erfcx(x / math.sqrt(2)) - erfcx(y / math.sqrt(2))) / 2
        out[~tail] = ndtr(-a[~tail]) - np.exp(epsilon[~tail] + log_ndtr(-b[~tail]))
    return np.clip(out, 0, 1)


def discrete_laplace(scale: float, sensitivity: int) -> Profile:
    """Two-sided geometric noise moved by `sensitivity` whole steps; the best test is a threshold (log-concavity)."""
    most = sensitivity / scale
    t = math.exp(-1 / scale)

    def delta(e: Array) -> Array:
        least = np.floor(np.minimum((e * scale + sensitivity) / 2, sensitivity - 0.5)) + 1
        both = -np.expm1(np.minimum(e - least / scale, 0)) - t * np.expm1(-(sensitivity - least) / scale)
        return np.where(e < most, np.maximum(both, 0), 0) / (1 + t)

    return symmetric(delta, most, spacing=1 / scale)


def discrete_gaussian(sigma: float, sensitivity: int) -> Profile:
    """Canonne, Kamath, Steinke 2020, Theorem 7: a threshold test on the integers."""
    tail = _lattice_tail(sigma)

    def delta(e: Array) -> Array:
        least = np.floor(np.minimum(e * (sigma / sensitivity) * sigma + sensitivity / 2, 1e300)) + 1
        with_unit, without = tail(least - sensitivity), tail(least)
        with np.errstate(over="ignore", under="ignore", invalid="ignore"):
            difference = with_unit - np.where(without > 0, np.exp(e + np.log(np.maximum(without, 1e-320))), 0)
        slack = 4e-15 * with_unit  # the two tails are each good to a few units in the last place
        return np.clip(difference + slack, 0, 1)

    return symmetric(delta, math.inf)


def _lattice_tail(sigma: float) -> Delta:
    """Pr[X >= k] for a discrete Gaussian X. Summed for small sigma; Euler-Maclaurin, exact to rounding, for large."""
    if sigma < 64:
        reach = int(40 * sigma) + 8
        with np.errstate(under="ignore"):
            weight = np.exp(-((np.arange(-reach, reach + 1) / sigma) ** 2) / 2)
        upper = np.cumsum(weight[::-1])[::-1] / weight.sum()
        table = np.append(upper, 0.0)

        def lookup(k: Array) -> Array:
            return table[np.clip(k + reach, 0, 2 * reach + 1).astype(np.int64)]

        return lookup

    from scipy.special import ndtr

    def expand(k: Array) -> Array:
        u = np.clip(k / sigma, -60, 60)  # nothing is left beyond
        with np.errstate(under="ignore"):
            density = np.exp(-u * u / 2) / (math.sqrt(2 * math.pi) * sigma)
            # sum_{x>=k} f(x) = integral + f/2 - f'/12 + f'''/720 - ...; f' = -(u/sigma) f, f''' = (3u - u^3)/sigma^3 f
            first, third = -u / sigma, (3 * u - u**3) / sigma**3
            fifth = -(u**5 - 10 * u**3 + 15 * u) / sigma**5
            series = density * (0.5 - first / 12 + third / 720 - fifth / 30240)
            return np.clip(ndtr(-u) + series, 0, 1)

    return expand


def poisson(rate: float, inner: Profile) -> Profile:
    """Each unit is taken on its own with probability `rate` (Zhu, Dong, Wang 2022, Theorem 11; Balle et al. 2018).

    With the unit the output is (1-q)Q + qP, without it Q:
        H_a((1-q)Q + qP || Q) = q H_{1 + (a-1)/q}(P || Q),
        H_a(Q || (1-q)Q + qP) = (1 - a(1-q)) H_{aq / (1 - a(1-q))}(Q || P)    while a(1-q) < 1, else 0.
    """
    if rate == 0:
        return symmetric(np.zeros_like, 0.0)
    if rate == 1:
        return inner

    def forward(e: Array) -> Array:
        return rate * inner.forward(_inside(e, rate))

    least = -math.log1p(-rate)

    def backward(e: Array) -> Array:
        out = np.zeros_like(e)
        live = e < least
        x = e[live]
        if rate < 0.5:  # 1 - a(1-q), in the form that does not cancel
            left = np.exp(x) * (rate + np.expm1(-x))
        else:
            left = 1 - (1 - rate) * np.exp(x)
        left = np.maximum(left, 1e-300)
        out[live] = left * inner.backward(np.maximum(x + np.log(rate / left), 0))
        return out

    # the largest losses: log(1 - q + q e^most) forward, -log(1 - q + q e^-most) backward
    most_forward = _outside(inner.most_forward, rate)
    most_backward = -math.log1p(rate * math.expm1(-inner.most_backward)) if inner.most_backward < math.inf else least
    return Profile(forward, backward, most_forward, most_backward)


def without_replacement(rate: float, inner: Profile) -> Profile:
    """A sample of fixed size, relation replace (Balle, Barthe, Gaboardi 2018, Theorem 10): symmetric by construction."""
    if rate == 0:
        return symmetric(np.zeros_like, 0.0)
    if rate == 1:
        return symmetric(inner.delta, inner.most)

    def delta(e: Array) -> Array:
        return rate * inner.delta(_inside(e, rate))

    return symmetric(delta, _outside(inner.most, rate))


def _inside(epsilon: Array, rate: float) -> Array:
    """log(1 + (e^epsilon - 1) / rate): the epsilon the inner mechanism must be held to."""
    with np.errstate(over="ignore"):
        return np.where(epsilon < 30, np.log1p(np.expm1(np.minimum(epsilon, 30)) / rate), epsilon - math.log(rate))


def _outside(epsilon: float, rate: float) -> float:
    """log(1 + rate (e^epsilon - 1)): the loss of the sampled mechanism where the inner one has epsilon."""
    if epsilon > 30:
        return epsilon + math.log(rate + (1 - rate) * math.exp(-min(epsilon, 700)))
    return math.log1p(rate * math.expm1(epsilon))


def group(size: int, inner: Profile) -> Profile:
    """`size` units at once: H_{ab}(P||R) <= H_a(P||Q) + a H_b(Q||R), with the same epsilon on each step of the path."""
    if size == 1:
        return inner
    forward = _widen(inner.forward, inner.most_forward, size)
    backward = forward if inner.symmetric else _widen(inner.backward, inner.most_backward, size)
    return Profile(forward, backward, size * inner.most_forward, size * inner.most_backward)


def _widen(delta: Delta, most: float, size: int) -> Delta:
    def direct(e: Array) -> Array:
        step = e / size
        with np.errstate(divide="ignore", over="ignore", invalid="ignore", under="ignore"):
            log_steps = np.where(step > 1e-12, e - step + np.log1p(-np.exp(-e)) - np.log1p(-np.exp(-step)), math.log(size))
            return np.where(step >= most, -np.inf, np.log(np.maximum(delta(step), 5e-324)) + log_steps)

    # far out delta(step) is lost to rounding while the number of steps grows; a bound at one epsilon holds at all above
    grid = np.geomspace(1e-9, 1e9, 4000)
    last = float(grid[int(np.argmin(direct(grid)))])
    return lambda e: np.exp(np.minimum(direct(np.minimum(e, last) if most == math.inf else e), 0.0))


def atoms(forward: Atoms, backward: Atoms) -> Profile:
    """The profile of a pair known by its atoms, from either world."""
    return Profile(_from_atoms(forward), _from_atoms(backward), _top(forward), _top(backward))


def _top(side: Atoms) -> float:
    return math.inf if side.infinite or not len(side.loss) else max(float(side.loss[-1]), 0.0)


def _from_atoms(side: Atoms) -> Delta:
    """The hockey-stick at e^x, x >= 0: only losses above x count, so none below 0 is kept."""
    loss, mass = side.loss[side.loss > 0], side.mass[side.loss > 0]
    with np.errstate(under="ignore"):
        other = mass * np.exp(-loss)
    above = np.append(np.cumsum(mass[::-1])[::-1], 0.0)
    paid = np.append(np.cumsum(other[::-1])[::-1], 0.0)

    def delta(e: Array) -> Array:
        first = np.searchsorted(loss, e, side="right")
        with np.errstate(under="ignore"):
            rest = above[first] - np.exp(np.minimum(e, 700)) * paid[first]
        found: Array = np.clip(side.infinite + rest, side.infinite, 1)
        return found

    return delta


def basic(event: events.Event) -> Profile:
    """The profile of an event that is a single mechanism."""
    match event:
        case events.Gaussian(noise_multiplier):
            return gaussian(noise_multiplier)
        case events.Laplace(noise_multiplier):
            return laplace(noise_multiplier)
        case events.DiscreteGaussian(sigma, sensitivity):
            return discrete_gaussian(sigma, sensitivity)
        case events.DiscreteLaplace(scale, sensitivity):
            return discrete_laplace(scale, sensitivity)
        case events.Pure(epsilon) | events.NoisyMax(epsilon):
            return pure(epsilon)
        case events.Approximate(epsilon, delta):
            return approximate(epsilon, delta)
        case events.Exponential(epsilon):
            return exponential(epsilon)
        case events.RandomizedResponse(epsilon, categories):
            return randomized_response(epsilon, categories)
    raise UnsupportedEvent(f"discreet has no privacy profile for the event {type(event).__name__}.")
