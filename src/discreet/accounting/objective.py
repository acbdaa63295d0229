"""Objective perturbation: the privacy loss of the minimum of a sum of losses with a Gaussian linear term.

Let w be the minimum with the row, Z the noise along the row's own direction (a standard normal number), a in [0, 1] the row's
share of the largest gradient at w, and m the noise multiplier. The loss of the output is at most

    psi(Z) = max over a of  log(1 + c(a)) + a^2 / 2m^2 + a Z / m,

where 1 + c(a) bounds the ratio of the two Hessians' determinants: c(a) = curvature, or 4 curvature a (1 - a) where the
curvature is tapered. So delta(epsilon) <= E (1 - e^{epsilon - psi(Z)})+. Without the row the loss is at most that of the
Gaussian mechanism. docs/theory/objective-perturbation.md has the proof; here are the integrals, in closed form.
"""

from __future__ import annotations

import math

import numpy as np

from discreet.accounting.profile import FARTHEST, Array, Delta, Profile, gaussian_delta, symmetric, unbounded
from discreet.accounting.rounding import quotient_up
from discreet.core.event import Gaussian, ObjectivePerturbation

SLACK = 1e-12  # relative, above the rounding of the few normal tails that are added here
CELLS = 4096
TINY = 1e-300


def as_gaussian(event: ObjectivePerturbation) -> Gaussian | None:
    """The Gaussian mechanism that it costs no more than, where the curvature tapers off and is small enough for that."""
    mu = quotient_up(1.0, event.noise_multiplier)
    small = event.tapered and mu < FARTHEST and 4 * event.curvature * (1 + 1e-15) <= mu * mu / 2
    return Gaussian(event.noise_multiplier) if small else None


def perturbed(event: ObjectivePerturbation) -> Profile:
    """The profile, the same in both directions: that with the row is the larger."""
    mu = quotient_up(1.0, event.noise_multiplier)
    if not mu < FARTHEST or not event.curvature < FARTHEST:
        return unbounded()
    rate = 4 * event.curvature * (1 + 1e-15)
    if event.tapered and rate <= mu * mu / 2:
        delta = _gaussian(mu)
    else:
        delta = _tapered(mu, rate) if event.tapered else _shifted(mu, math.log1p(event.curvature) * (1 + 1e-15))
    return symmetric(_composable(delta), math.inf)


def _gaussian(mu: float) -> Delta:
    return lambda e: gaussian_delta(mu, e)


def _shifted(mu: float, shift: float) -> Delta:
    """psi = shift + max(0, G), where G is the loss of the Gaussian mechanism."""
    from scipy.special import ndtr

    both = 2 * float(ndtr(-mu / 2))  # E e^{-max(0, G)}

    def delta(e: Array) -> Array:
        above = gaussian_delta(mu, np.maximum(e - shift, 0.0))
        below = -np.expm1(np.minimum(e - shift, 0.0) + math.log(max(both, TINY))) * (1 + SLACK) + SLACK
        return np.minimum(np.where(e >= shift, above, below), 1.0)

    return delta


def _tapered(mu: float, rate: float) -> Delta:
    """log(1 + x) <= x makes the exponent a parabola in a. Its maximum is at a = 1, where psi = G, for every Z >= last."""
    from scipy.special import log_ndtr, ndtr

    fall = rate - mu * mu / 2  # psi at `last`: from this epsilon on the profile is the Gaussian one
    last = fall / mu - mu / 2
    square = 1 + mu * mu / (2 * fall)
    middle = rate * mu / (2 * fall * square)
    log_factor = -rate * rate / (4 * fall) + square * middle * middle / 2 - math.log(square) / 2

    def delta(e: Array) -> Array:
        small = np.minimum(e, fall)
        with np.errstate(over="ignore", invalid="ignore"):
            first = (2 * np.sqrt(fall * small) - rate) / mu  # where psi passes epsilon, on the parabola
        within = ndtr(-first) - ndtr(-last)
        wide = ndtr(-math.sqrt(square) * (first + middle)) - ndtr(-math.sqrt(square) * (last + middle))
        with np.errstate(under="ignore", over="ignore", invalid="ignore"):  # what is not a number bounds nothing
            beyond = ndtr(-last) - np.exp(small + log_ndtr(-last - mu))
            inside = within - np.exp(small + log_factor) * wide + beyond
        size = ndtr(-first) + ndtr(-last)
        return np.where(e >= fall, gaussian_delta(mu, e), np.clip(inside + SLACK * size + TINY, 0.0, 1.0))

    return delta


def _composable(delta: Delta) -> Delta:
    """The least profile above `delta` that belongs to a pair: near epsilon = 0 that of randomised response.

    A symmetric profile is one of a pair only where its slope in e^epsilon at 0 is at least that of randomised response with
    the same value there; the larger of two convex functions is convex.
    """
    at_zero = float(delta(np.zeros(1))[0])

    def least(e: Array) -> Array:
        with np.errstate(over="ignore"):
            line = at_zero - (1 - at_zero) / 2 * np.expm1(np.minimum(e, 700.0))
        return np.maximum(delta(e), line)

    return least


def perturbed_renyi(event: ObjectivePerturbation, order: float) -> float:
    """log E e^{(order - 1) psi(Z)} / (order - 1), from above: a sum over cells of Z, each counted at its upper end."""
    from scipy.special import log_ndtr, logsumexp

    mu, above = quotient_up(1.0, event.noise_multiplier), order - 1
    if not mu < 1e6 or not event.curvature < 1e6:
        return math.inf
    rate = 4 * event.curvature * (1 + 1e-15)
    whole = order * above * mu * mu / 2  # log E e^{(order - 1) G}
    if event.tapered and rate <= mu * mu / 2:
        return whole / above * (1 + SLACK)
    fall = rate - mu * mu / 2
    last, first = fall / mu - mu / 2, -rate / mu
    if not (event.tapered and math.isfinite(last) and math.isfinite(first)):  # the curvature is a bound where it is tapered too
        shift = math.log1p(event.curvature)
        parts = [float(log_ndtr(-mu / 2)), whole + float(log_ndtr(above * mu + mu / 2))]
        return (shift + float(logsumexp(parts)) / above) * (1 + SLACK)
    ends = np.linspace(first, last, CELLS + 1)
    flat = math.log1p(event.curvature) + np.maximum(0, mu * mu / 2 + ends[1:] * mu)
    psi = np.minimum((rate + ends[1:] * mu) ** 2 / (4 * fall), flat)
    low = np.where(
        ends[:-1] > 0, -ends[1:], ends[:-1]
    )  # the tail in which the cell lies: differences of small numbers, not of 1s
    high = np.where(ends[:-1] > 0, -ends[:-1], ends[1:])
    with np.errstate(divide="ignore", invalid="ignore"):
        tail = log_ndtr(high)
        mass = tail + np.log(-np.expm1(np.minimum(log_ndtr(low) - tail, -1e-300)))
        mass = np.where(np.isnan(mass), tail, mass)
    parts = [float(log_ndtr(first)), *(mass + above * psi).tolist(), whole + float(log_ndtr(above * mu - last))]
    bound = max(float(logsumexp(parts)), whole, 0.0)  # never below the Gaussian mechanism, which is a case of the event
    return math.inf if math.isnan(bound) else bound / above * (1 + SLACK) + SLACK
