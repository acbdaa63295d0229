"""Moments of likelihood ratios, computed without cancellation.

Let r = P/Q be the likelihood ratio of a neighbouring pair. The Rényi divergence of order a is D_a = log E_Q[r^a] / (a - 1).
Where a step reveals little, E_Q[r^a] exceeds 1 by less than the rounding of a float, and the logarithm of a sum that is
nearly 1 loses every digit. Here only the excess is computed. Since E_Q[r] = 1,

    E_Q[r^a] - 1 = E_Q[phi_a(log r)],   phi_a(L) = e^{aL} - 1 - a (e^L - 1) >= 0,

a sum of terms that are never negative, so its relative error is that of its terms. Everything is kept as a logarithm, so
neither a huge moment nor a tiny excess leaves the range of a float.

    Lemma. I(a) = (E_Q[r^a] - 1) / (a (a - 1)) is log-convex in a > 0, with I(1) = KL(P||Q).

Because r^a - 1 - a (r - 1) = a (a - 1) times the integral of |r - u| u^{a-2} du between 1 and r, and each u^{a-2} is
log-linear in a. So between two whole orders I lies below the geometric interpolation of its values there, which is close to
the truth where little is revealed, as the chord of log E_Q[r^a] is where much is.
"""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from discreet.core import event as events

Array = NDArray[np.float64]

MARGIN = 1 + 4e-12  # above the relative error of every sum below; orders near 1 are raised to NEAREST for it
NEAREST = 1.001  # divergences grow with their order, so that of this order bounds those of lower ones
LEAST = 5e-324  # what is positive and too small for a float is rounded up to this
LARGEST = 1e150  # losses from here on are as good as infinite, and products with orders stay in the range of a float
HIGHEST = 2**20  # the highest whole order whose binomial sum is computed
ATOMS = 128  # the most parts into which the inner losses of a discrete Laplace are divided
H_SERIES = [1 / math.factorial(k) for k in range(17, 1, -1)]
ULP = 1e-15  # above the relative error of one logarithm, gamma function or product

Symmetric = (
    events.Gaussian
    | events.Laplace
    | events.DiscreteGaussian
    | events.DiscreteLaplace
    | events.Pure
    | events.NoisyMax
    | events.RandomizedResponse
)  # mechanisms whose dominating pair can be swapped by a measure-preserving involution


def log_moment(event: Symmetric, orders: Array) -> Array:
    """log E_Q[r^a] of a mechanism at each of the orders above 1, from above, and never 0."""
    if not _most(event) < LARGEST:
        return np.full_like(orders, math.inf)
    match event:
        case events.Gaussian(noise_multiplier):
            value = orders * (orders - 1) / 2 / noise_multiplier / noise_multiplier * (1 + ULP)
        case events.DiscreteGaussian(sigma, sensitivity):  # Canonne, Kamath, Steinke 2020, Theorem 14
            value = orders * (orders - 1) / 2 * (sensitivity / sigma) * (sensitivity / sigma) * (1 + ULP)
        case events.Laplace(noise_multiplier):
            value = _bounded(_laplace(1 / noise_multiplier, orders), 1 / noise_multiplier, orders)
        case events.DiscreteLaplace(scale, sensitivity):
            value = _bounded(_discrete_laplace(1 / scale, sensitivity, orders), sensitivity / scale, orders)
        case events.RandomizedResponse(epsilon, categories):
            value = _bounded(_response(epsilon, categories, orders), epsilon, orders)
        case events.Pure(epsilon) | events.NoisyMax(epsilon):
            value = _bounded(_response(epsilon, 2, orders), epsilon, orders)
    return np.maximum(value, LEAST)


def _most(event: Symmetric) -> float:
    """About the largest loss, or the squared shift of a Gaussian mechanism."""
    match event:
        case events.Gaussian(noise_multiplier):
            return 1 / noise_multiplier / noise_multiplier
        case events.DiscreteGaussian(sigma, sensitivity):
            return (sensitivity / sigma) * (sensitivity / sigma)
        case events.Laplace(noise_multiplier):
            return 1 / noise_multiplier
        case events.DiscreteLaplace(scale, sensitivity):
            return max(sensitivity / scale, 1 / scale)
        case _:
            return event.epsilon


def _bounded(log_excess: Array, epsilon: float, orders: Array) -> Array:
    """log(1 + excess), never above what a pure epsilon allows."""
    if epsilon == 0:
        return np.zeros_like(orders)
    return np.minimum(np.logaddexp(0.0, log_excess) * MARGIN, (orders - 1) * epsilon * (1 + ULP))


def _response(epsilon: float, categories: int, orders: Array) -> Array:
    """Randomised response: the losses are epsilon, -epsilon and 0. With two answers it is the worst epsilon-DP mechanism."""
    norm = epsilon + math.log1p((categories - 1) * math.exp(-epsilon))
    return _log_mean(orders, np.array([epsilon, -epsilon]), np.array([-norm, epsilon - norm]))


def _log_mean(orders: Array, losses: Array, log_mass: Array) -> Array:
    """log of the mean of phi_a over losses, each with the logarithm of its probability under Q."""
    mean: Array = np.logaddexp.reduce(log_phi(orders[:, None], losses) + log_mass, axis=1)
    return mean


def _laplace(epsilon: float, orders: Array) -> Array:
    """Mironov 2017, Table II; the worst vector moves in one coordinate. The linear terms of the exponentials cancel exactly."""
    a = orders
    up, down = _log_h((a - 1) * epsilon) + np.log(a), _log_h(-a * epsilon) + np.log(a - 1)
    return np.logaddexp(up, down) - np.log(2 * a - 1)


def _discrete_laplace(rate: float, sensitivity: int, orders: Array) -> Array:
    """The losses are (2x - n) rate for 0 < x < n, and n rate and -n rate beyond; the inner ones are taken in parts.

    A part counts with the largest phi of its two ends, which bounds phi inside it because phi is convex in e^L.
    """
    n, edge = sensitivity, -math.log1p(math.exp(-rate))
    total = _log_mean(orders, np.array([n * rate, -n * rate]), np.array([edge - n * rate, edge]))
    if n == 1:
        return total
    size = -(-(n - 1) // max(16, min(ATOMS, 4_000_000 // len(orders))))
    first = np.arange(1, n, size, dtype=np.float64)
    last = np.minimum(first + size, n) - 1
    mass = edge - first * rate + np.log(-np.expm1(-(last - first + 1) * rate))
    ends = [log_phi(orders[:, None], (2 * x - n) * rate) for x in (first, last)]
    return np.logaddexp(total, np.logaddexp.reduce(np.maximum(*ends) + mass, axis=1))


def log_phi(orders: Array, losses: Array) -> Array:
    """log(e^{aL} - 1 - a (e^L - 1)), its argument to a relative error of about 1e-13 for orders from NEAREST on."""
    a, x = orders, orders * losses
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        small = np.log(a) + 2 * np.log(np.abs(losses)) + np.log(a * _h_ratio(x) - _h_ratio(losses))
        middle = np.log(np.expm1(np.minimum(x, 40.0)) - a * np.expm1(np.minimum(losses, 40.0)))
        large = x + np.log1p(-np.exp(-x) - a * np.exp(-(a - 1) * losses) * -np.expm1(-np.abs(losses)))
    return np.where(np.abs(x) <= 0.5, small, np.where(x <= 40.0, middle, large))


def _log_h(x: Array) -> Array:
    """log(e^x - 1 - x)."""
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        small = 2 * np.log(np.abs(x)) + np.log(_h_ratio(x))
        middle = np.log(np.expm1(np.minimum(x, 40.0)) - x)
        large = x + np.log1p(-(1 + x) * np.exp(-x))
    return np.where(np.abs(x) <= 0.5, small, np.where(x <= 40.0, middle, large))


def _h_ratio(x: Array) -> Array:
    """(e^x - 1 - x) / x^2 by its series, for |x| up to 1/2."""
    total: Array = np.full_like(x, H_SERIES[0])
    for coefficient in H_SERIES[1:]:
        total = total * x + coefficient
    return total


def log_excess(log_moments: Array) -> Array:
    """log(e^K - 1)."""
    return np.maximum(log_moments, 0.0) + np.log(-np.expm1(-log_moments))


@lru_cache(maxsize=4096)
def sampled_log_moment(rate: float, inner: Symmetric, order: float) -> float:
    """log E_Q[(1 - q + q r)^a] of a mechanism on a Poisson sample, from above; order up to HIGHEST - 1.

    Mironov, Talwar, Zhang 2019, Section 3.3: the pair is symmetric, so adding a unit is no worse than removing one, at any
    order. At whole orders the binomial expansion is exact; between them both interpolations of
    the module's lemma hold, and the lesser is taken.
    """
    low = math.floor(order)
    below, above = _binomial(rate, inner, low), _binomial(rate, inner, low + 1)
    if low == order:
        return _rounded_up(below)
    share = order - low
    if low == 1:
        interpolated = min(above + math.log(_entropy_ratio(rate)), math.log(_rounded_up(above)))
        chord = share * _rounded_up(above)
    else:
        interpolated = below - math.log(low * (low - 1))
        chord = share * _rounded_up(above) + (1 - share) * _rounded_up(below)
    interpolated = (1 - share) * interpolated + share * (above - math.log(low * (low + 1)))
    geometric = _rounded_up(interpolated + math.log(order) + math.log(order - 1))
    return min(geometric, chord) * MARGIN


def _entropy_ratio(rate: float) -> float:
    """c with KL <= c E[(r - 1)^2] for r >= 1 - q: x log x - x + 1 over (x - 1)^2 falls in x, so c is its value at 1 - q."""
    if rate < 0.01:
        return (0.5 + rate / 6 + rate * rate) * MARGIN
    return (math.log1p(-rate) * (1 - rate) + rate) / rate / rate * MARGIN


def _rounded_up(log_excess_: float) -> float:
    """log(1 + excess), and never 0."""
    return max(float(np.logaddexp(0.0, log_excess_)) * MARGIN, LEAST)


@lru_cache(maxsize=4096)
def _binomial(rate: float, inner: Symmetric, order: int) -> float:
    """log(E_Q[(1 - q + q r)^n] - 1) for whole n: the terms of r^0 and r^1 have no excess. -infinity for n = 1."""
    from scipy.special import gammaln

    if order == 1:
        return -math.inf
    k = np.arange(2, order + 1, dtype=np.float64)
    moments = log_moment(inner, k)
    choose = [gammaln(order + 1.0) + 0 * k, -gammaln(k + 1), -gammaln(order - k + 1)]
    parts = [*choose, k * math.log(rate), (order - k) * math.log1p(-rate)]
    slack = ULP * (np.sum(np.abs(parts), axis=0) + moments)
    return float(np.logaddexp.reduce(np.sum(parts, axis=0) + log_excess(moments) + slack))
