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

from discreet.accounting.rounding import quotient_up, total_up
from discreet.core import event as events
from discreet.errors import UnsupportedEvent

Array = NDArray[np.float64]
Delta = Callable[[Array], Array]
FARTHEST = 1e100  # standard deviations beyond which a Gaussian hides nothing
LEAST = 5e-324  # what is positive and too small for a float is rounded up to this
Deltas = tuple[Array, Array, Array]  # epsilons, and the deltas there in one direction and in the other
FEW = 2000  # losses that are kept as they are
WIDE = 1e7  # standard deviations of whole numbers from which they are taken as a normal distribution, a little above
UP, DOWN = 1 + 2e-15, 1 - 2e-15  # above and below the rounding of a few logarithms and exponentials


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
    kinks: Array | None = None  # every finite loss of P against Q, ascending, where there are few
    shift: float | None = None  # the pair is N(0, 1) and N(shift, 1)

    def delta(self, epsilon: Array) -> Array:
        """The worse of the two directions; what is not a number bounds nothing."""
        worse = np.maximum(self.forward(epsilon), self.backward(epsilon))
        return np.where(np.isnan(worse), 1.0, worse)

    @property
    def most(self) -> float:
        return max(self.most_forward, self.most_backward)

    @property
    def symmetric(self) -> bool:
        return self.forward is self.backward


def power_bound(epsilon: Array, forward: Array, backward: Array, level: float) -> Array:
    """The most power at this level that deltas in the two directions allow, for each epsilon (Wasserman & Zhou 2010).

    A test S of P against Q has P(S) <= delta + e^epsilon Q(S) by the forward delta, and by the backward one
    1 - Q(S) <= delta + e^epsilon (1 - P(S)).
    """
    with np.errstate(over="ignore", under="ignore"):
        low = forward + (np.exp(np.minimum(epsilon, 800)) * level if level > 0 else 0.0)
        high = 1 - np.exp(-epsilon) * (1 - backward - level)
    least = np.fmin(low, high)  # what is not a number bounds nothing
    return np.where(np.isnan(least), 1.0, least)


def raised(delta: Array) -> Array:
    """Above the rounding of a closed form; delta is a probability, so never more than 1."""
    return np.minimum(delta * UP, 1.0)


def symmetric(delta: Delta, most: float, spacing: float | None = None, kinks: Array | None = None) -> Profile:
    """A profile that is the same in both directions."""
    return Profile(delta, delta, most, most, spacing, kinks)


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
    return failing(delta, pure(epsilon))


def failing(told: float, inner: Profile) -> Profile:
    """With probability `told` all is told, else it is the inner mechanism: H = told + (1 - told) H_inner, both ways."""
    if not told:
        return inner

    def together(delta: Delta) -> Delta:
        def both(e: Array) -> Array:
            inside = delta(e)
            return np.where(inside == 0, told, np.minimum((told + (1 - told) * inside) * (1 + 1e-15), 1.0))

        return both

    forward = together(inner.forward)
    backward = forward if inner.symmetric else together(inner.backward)
    return Profile(forward, backward, math.inf, math.inf, inner.spacing, inner.kinks)


def randomized_response(epsilon: float, categories: int) -> Profile:
    """k-ary randomised response: losses are +epsilon, -epsilon, and 0 where neither truth was said."""
    norm = 1 + (categories - 1) * math.exp(-epsilon)
    kinks = np.array([-epsilon, 0.0, epsilon])
    return symmetric(lambda e: raised(-np.expm1(np.minimum(e - epsilon, 0)) / norm), epsilon, epsilon or None, kinks)


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
    return symmetric(lambda e: raised(np.expm1(np.minimum(e - epsilon, 0) / 2) ** 2 / norm), epsilon)


def laplace(noise_multiplier: float) -> Profile:
    """1 - e^{(x - epsilon)/2} with epsilon = 1 / noise_multiplier.

    One coordinate that moves by the whole l1 sensitivity is the worst case of a vector: Laplace noise is log-concave,
    so moving in two steps along one axis meets the group bound with equality, which is the most two axes can reach.
    """
    most = quotient_up(1.0, noise_multiplier)
    return symmetric(lambda e: raised(-np.expm1(np.minimum(e - most, 0) / 2)), most)


def gaussian(noise_multiplier: float) -> Profile:
    """Balle & Wang 2018: Phi(mu/2 - x/mu) - e^x Phi(-mu/2 - x/mu) with mu = 1 / noise_multiplier."""
    mu = quotient_up(1.0, noise_multiplier)
    if not mu < FARTHEST:
        return unbounded()

    def delta(e: Array) -> Array:
        return gaussian_delta(mu, e)

    return Profile(delta, delta, math.inf, math.inf, shift=mu)


def gaussian_delta(mu: float, epsilon: Array) -> Array:
    """The profile of a shift by `mu` standard deviations, to nearly full relative precision in the tail, rounded up.

    Both terms share the factor phi(a), so the difference is one of Mills ratios: phi(a) (R(a) - R(b)). Where the shift is
    small the two agree in most of their digits; the difference is then the integral of -R' = 1 - u R(u) from a to b.
    """
    from scipy.special import erfcx, log_ndtr, ndtr

    if mu < 1e-305:
        return np.full_like(epsilon, 0.4 * mu + LEAST)  # delta <= mu / sqrt(2 pi) everywhere
    with np.errstate(over="ignore"):
        a = np.minimum(epsilon / mu - mu / 2, 1e150)
    tail = a > -4
    out = np.empty_like(epsilon)
    x = a[tail] - 4e-16 * (np.abs(a[tail]) + mu)  # e / mu and mu / 2 are rounded, and may cancel
    with np.errstate(under="ignore", invalid="ignore"):
        if mu < 0.1:
            inner = mu * _falling(x, mu)
        else:
            inner = math.sqrt(math.pi / 2) * (erfcx(x / math.sqrt(2)) - erfcx((x + mu) / math.sqrt(2)))
        # R(x) is about 1 / (1 + x) and good to a few units; what the difference leaves of it is about mu / (1 + x^2)
        slack = 1 + 2.0**-52 * (12 + 3 * x * x if mu < 0.1 else 12 + x * x + 4 * (2 + np.abs(x)) / mu)
        out[tail] = np.exp(-x * x / 2) / math.sqrt(2 * math.pi) * np.maximum(inner, 0.0) * np.minimum(slack, 2.0) + LEAST
        e = epsilon[~tail]
        out[~tail] = ndtr(-a[~tail]) * UP - np.exp(e + log_ndtr(-(a[~tail] + mu)) - 4e-15 * (1 + e))
    return np.clip(out, 0, 1)


def _falling(a: Array, width: float) -> Array:
    """The mean of 1 - u R(u) over [a, a + width], by Gauss-Legendre: exact to rounding for a width below 0.1."""
    from scipy.special import erfcx

    nodes, weights = np.polynomial.legendre.leggauss(2 if width < 3e-4 else 4)
    total = np.zeros_like(a)
    for node, weight in zip(nodes, weights):
        u = a + width * (1 + node) / 2
        total += weight / 2 * np.where(u < 1e4, 1 - u * math.sqrt(math.pi / 2) * erfcx(u / math.sqrt(2)), 0.0)
    return total


def discrete_laplace(scale: float, sensitivity: int) -> Profile:
    """Two-sided geometric noise moved by `sensitivity` whole steps; the best test is a threshold (log-concavity)."""
    most = quotient_up(sensitivity, scale)
    t = math.exp(-1 / scale)

    def delta(e: Array) -> Array:
        with np.errstate(over="ignore", invalid="ignore"):  # 1 / scale may be infinite; what is not a number bounds nothing
            least = np.floor(np.minimum((e * scale + sensitivity) / 2, sensitivity - 0.5)) + 1
            top, rest = least / scale * (1 + 2.0**-51), (sensitivity - least) / scale * (1 + 2.0**-51)
            both = -np.expm1(np.minimum(e - top, 0)) - t * np.expm1(-rest)
            both = np.where(np.isnan(both), 1.0, both)
        return raised(np.where(e < most, np.maximum(both, 0), 0) / (1 + t))

    spacing = UP / scale
    kinks: Array | None = None
    if sensitivity < FEW and spacing < math.inf:
        kinks = np.arange(-sensitivity, sensitivity + 1, 2, dtype=np.float64) * spacing
    return symmetric(delta, most, spacing, kinks)


def discrete_gaussian(sigma: float, sensitivity: int) -> Profile:
    """Canonne, Kamath, Steinke 2020, Theorem 7: a threshold test on the integers.

    From `WIDE` on neighbouring integers have the same probability to many digits, and a difference of tails loses them. There
    delta is the sum over integers of g = (f(x - s) - e^epsilon f(x))+, f a normal density. g is log-concave, so the sum is at
    most its integral, the delta of the Gaussian mechanism, and its largest value, which is at most 100 / sigma of that integral
    up to 39 standard deviations. Beyond these nothing is left that a float holds.
    """
    if sigma >= WIDE:
        mu, more = quotient_up(sensitivity, sigma), 1 + 100 / sigma
        return symmetric(lambda e: np.minimum(gaussian_delta(mu, e) * more, 1.0), math.inf)
    tail = _lattice_tail(sigma)

    def delta(e: Array) -> Array:
        with np.errstate(over="ignore"):
            least = np.floor(np.minimum(e * (sigma / sensitivity) * sigma + sensitivity / 2, 1e300)) + 1
        with_unit, without = tail(least - sensitivity), tail(least)
        known = without > 1e-305  # below, digits are lost, and nothing is taken off
        with np.errstate(over="ignore", under="ignore", invalid="ignore"):
            difference = with_unit - np.where(known, np.exp(e + np.log(np.where(known, without, 1.0))), 0.0)
            # tails and exponential are each good to some units in the last place, and a place to one: a tail falls by u there
            slack = (4e-15 + 3e-16 * np.abs(e) + 1e-15 * np.minimum(least / sigma, 60.0) ** 2) * with_unit
        return np.clip(difference + slack + LEAST, 0, 1)

    return symmetric(delta, math.inf)


def _lattice_tail(sigma: float) -> Delta:
    """Pr[X >= k] for a discrete Gaussian X. Summed for small sigma; Euler-Maclaurin, exact to rounding, for large."""
    if sigma < 64:
        reach = int(40 * sigma) + 8
        with np.errstate(under="ignore", over="ignore"):
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

    # the largest losses: log(1 - q + q e^most) forward, -log(1 - q + q e^-most) backward
    most_forward, most_backward = _outside(inner.most_forward, rate), fallen(inner.most_backward, rate)
    least = -math.log1p(-rate)

    def forward(e: Array) -> Array:
        return _share(rate, inner.forward(_inside(e, rate)), e < most_forward)

    def backward(e: Array) -> Array:
        out = np.zeros_like(e)
        live = e < least
        x = e[live]
        # 1 - a(1-q) = a q (1 + z) and the inner epsilon is -log(1 + z), in the forms that do not cancel
        z = np.expm1(-x) / rate
        near = np.exp(-x) * UP - (1 - rate) if rate > 0.5 else rate * (1 + z + 2.0**-51)  # rate (1 + z) for z near -1
        left = np.where(z < -0.5, np.maximum(near / rate, 2.0**-52), 1 + z)
        inside = np.maximum(np.where(z < -0.5, -np.log(left), -np.log1p(np.maximum(z, -0.5))), 0) * DOWN
        out[live] = _share(rate, np.exp(x) * left * inner.backward(inside) * UP, x < most_backward)
        return out

    kinks = None if inner.kinks is None else _outsides(inner.kinks, rate)
    return Profile(forward, backward, most_forward, most_backward, kinks=kinks)


def without_replacement(rate: float, inner: Profile) -> Profile:
    """A sample of fixed size, relation replace (Balle, Barthe, Gaboardi 2018, Theorem 10): symmetric by construction."""
    if rate == 0:
        return symmetric(np.zeros_like, 0.0)
    if rate == 1:
        return symmetric(inner.delta, inner.most)

    most = _outside(inner.most, rate)

    def delta(e: Array) -> Array:
        return _share(rate, inner.delta(_inside(e, rate)), e < most)

    if inner.kinks is None:
        return symmetric(delta, most)
    above = _outsides(np.unique(np.abs(inner.kinks)), rate)
    return symmetric(delta, most, kinks=np.concatenate([-above[::-1], above]))


def _share(rate: float, delta: Array, below: NDArray[np.bool_]) -> Array:
    """rate x delta, up where that is rounded (Dekker 1971); 0 from the largest loss on, which was rounded up as well."""
    with np.errstate(under="ignore", invalid="ignore"):
        product = rate * delta
        (high, low), (top, rest) = _halves(np.float64(rate)), _halves(delta)
        lost = ((high * top - product) + high * rest + low * top) + low * rest
        up = np.where((lost > 0) | (product < 1e-280), np.nextafter(product, np.inf), product)
        return np.where(below & ~(delta <= 0), np.minimum(np.minimum(up, delta), 1.0), 0.0)


def _halves(number: Array | np.float64) -> tuple[Array | np.float64, Array | np.float64]:
    """A number as the sum of two of 26 digits, whose products are exact."""
    spread = 134217729.0 * number
    high = spread - (spread - number)
    return high, number - high


def _inside(epsilon: Array, rate: float) -> Array:
    """log(1 + (e^epsilon - 1) / rate): the epsilon the inner mechanism must be held to. Rounded down, since delta falls."""
    with np.errstate(over="ignore", under="ignore", divide="ignore"):
        far = epsilon - math.log(rate) + np.log1p((rate - 1) * np.exp(-np.maximum(epsilon, 1.0)))
        grown = np.expm1(np.minimum(epsilon, 30))
        near = np.where(grown / rate < math.inf, np.log1p(grown / rate), np.log(grown) - math.log(rate))
        return np.where(epsilon < 30, near, far) * DOWN


def _outside(epsilon: float, rate: float) -> float:
    """log(1 + rate (e^epsilon - 1)): the loss of the sampled mechanism where the inner one has epsilon. Rounded up."""
    return float(_outsides(np.array([epsilon]), rate)[0])


def fallen(epsilon: float, rate: float) -> float:
    """-log(1 - rate + rate e^-epsilon): how far the loss can fall. Rounded up."""
    return float(-_outsides(np.array([-epsilon]), rate)[0])


def _outsides(losses: Array, rate: float) -> Array:
    """The same for losses of either sign, each rounded away from 0. Next to a rate of 1 it is the sum that does not cancel."""
    if rate == 0:
        return np.zeros_like(losses)
    with np.errstate(over="ignore", under="ignore", divide="ignore"):
        grown = rate * np.expm1(np.minimum(losses, 700.0))
        near = np.where(grown > -0.5, np.log1p(grown), np.log((1 - rate) + rate * np.exp(np.minimum(losses, 0.0))))
        far = losses + math.log(rate)
        far = np.where(far < 700, np.log1p(np.exp(np.minimum(far, 700.0)) * (1 + 1e-12)), far)
    return np.where(losses > 700, far, near) * UP + np.sign(losses) * LEAST


def group(size: int, inner: Profile) -> Profile:
    """`size` units at once: H_{ab}(P||R) <= H_a(P||Q) + a H_b(Q||R), with the same epsilon on each step of the path."""
    if size == 1:
        return inner
    forward = _widen(inner.forward, inner.most_forward, size)
    backward = forward if inner.symmetric else _widen(inner.backward, inner.most_backward, size)
    return Profile(forward, backward, total_up([(inner.most_forward, size)]), total_up([(inner.most_backward, size)]))


def _widen(delta: Delta, most: float, size: int) -> Delta:
    def direct(e: Array) -> Array:
        step = e / size * DOWN
        with np.errstate(divide="ignore", over="ignore", invalid="ignore", under="ignore"):
            log_steps = np.where(step > 0, e - step + np.log(-np.expm1(-e)) - np.log(-np.expm1(-step)), math.log(size))
            log_steps += 1e-15 * (1 + np.abs(log_steps))  # past the rounding of these functions
            return np.where(step >= most, -np.inf, np.log(np.maximum(delta(step), 5e-324)) + log_steps)

    # far out delta(step) is lost to rounding while the number of steps grows; a bound at one epsilon holds at all above
    grid = np.geomspace(1e-9, 1e9, 4000)
    last = float(grid[int(np.argmin(direct(grid)))])
    return lambda e: np.exp(np.minimum(direct(np.minimum(e, last) if most == math.inf else e), 0.0))


def from_table(forward: tuple[Array, Array], backward: tuple[Array, Array]) -> Profile:
    """The profile of a pair known by bounds on its deltas at epsilons from 0 up: chords in e^epsilon lie above."""
    tops = [float(grid[-1]) if values[-1] == 0 else math.inf for grid, values in (forward, backward)]
    kinks = np.concatenate([-backward[0][:0:-1], forward[0]])
    return Profile(_chords(*forward), _chords(*backward), tops[0], tops[1], kinks=kinks)


def _chords(grid: Array, values: Array) -> Delta:
    def delta(e: Array) -> Array:
        after = np.clip(np.searchsorted(grid, e, side="right"), 1, len(grid) - 1)
        at, width = np.minimum(e, grid[-1]) - grid[after - 1], grid[after] - grid[after - 1]
        with np.errstate(over="ignore", under="ignore"):
            share = np.where(width < 30, np.expm1(np.minimum(at, 30)) / np.expm1(np.minimum(width, 30)), np.exp(at - width))
        between: Array = values[after - 1] + (values[after] - values[after - 1]) * np.clip(share, 0.0, 1.0)
        return between

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
        case events.ObjectivePerturbation():
            from discreet.accounting.objective import perturbed

            return perturbed(event)
    raise UnsupportedEvent(f"discreet has no privacy profile for the event {type(event).__name__}.")
