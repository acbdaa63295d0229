"""Random allocation: in each pass over the steps a unit takes part in just one of them, chosen uniformly.

Let Y be the likelihood ratio of one step, the unit in it against nobody, when nobody is in it. Whoever sees all `bins`
steps of a pass sees the unit in one of them, they do not know which, or in none: the likelihood ratio is the mean

    R = (Y_1 + ... + Y_bins) / bins

of independent copies, and H_a(with || without) = E[(R - a)+] for every a > 0, a convex function of R. So any R' above R
in the convex order gives a pair that dominates in both directions and in every composition. Moving probability from
between two points to the two, its mean kept, goes up in that order, and sums of independent numbers go up with their
terms. Hence the sum is built by doubling, put on a grid after each addition, and is an upper bound however coarse the
grid. All terms are positive, so the error of the arithmetic is relative. docs/theory/random-allocation.md has the proof.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from discreet.accounting import lattice
from discreet.accounting import profile as profiles
from discreet.accounting.profile import Profile

Array = NDArray[np.float64]

FINE = 0.02  # grid spacing over the scale on which the law changes; its square is about the relative excess of epsilon
POINTS = 1500  # about the most of one grid: where losses reach far it is made coarser
TAIL = 1e-25  # how much of one step's loss may be counted as infinite
FARTHEST = 300.0  # losses beyond this are not followed: such a step has no ceiling worth naming, and gains nothing
LOWEST = 46.0  # e^-46 = 1e-20: how rare the small ratios are that still get a fine grid
BLOCK = 1 << 17  # pairs added at a time: what is in flight stays in cache
MOST_BINS = 10**6  # more steps hide a unit better still: their bound is that of this many
SUMS = 2e-9  # above the relative error of positive sums of at most 10^6 terms, at most 40 of them inside one another
STEP = 1e-11  # above the relative error of one step's masses, second differences of a profile good to 1e-15
LOG_ERROR = 1e-15  # above the relative error of a logarithm, an exponential or a gamma function
HIGHEST = 256  # the highest Rényi order for which the expansion is summed


@dataclass(frozen=True, slots=True)
class Law:
    """A number that is never negative: where its probability lies (ascending, from 0), and the part of its mean beyond.

    Masses are right to a relative error of `slack`.
    """

    at: Array
    mass: Array
    beyond: float
    slack: float


@dataclass(frozen=True, slots=True)
class Shape:
    """What the grids need to know of one step's ratio: its standard deviation, its low and its high end, how fine they are."""

    spread: float
    low: float
    high: float
    fine: float

    def grid(self, terms: int, top: float) -> Array:
        """Points from 0 to past `top` or the high end for a sum of `terms`, as dense as its law asks for."""
        spread, low = self.spread * math.sqrt(terms), self.low * terms
        top = min(top, self.high + terms + 15 * spread)
        points, x = [0.0], 0.0
        while x < top:
            x += self.fine * min(math.hypot(spread, x - terms), max(x, low))
            points.append(x)
        return np.array(points)


def allocated(inner: Profile, bins: int) -> Profile:
    """The profile of one pass of `bins` steps, each with the profile `inner` for whoever is in it."""
    if bins == 1 or inner.most == 0:
        return inner
    reach = lattice.reach(inner, TAIL)
    if not 0 < max(reach) < FARTHEST:
        return inner  # a mixture is no worse than its parts
    return _profile(_mean(inner, min(bins, MOST_BINS), reach), inner)


@lru_cache(maxsize=64)
def gaussian_allocated(noise_multiplier: float, bins: int) -> Profile:
    """One pass of Gaussian steps; kept, since a run that goes on asks for it again and again."""
    return allocated(profiles.gaussian(noise_multiplier), bins)


def _profile(ratio: Law, inner: Profile) -> Profile:
    """Both directions, from the law of the likelihood ratio: E[(R - a)+] and E[(1 - aR)+]; never above `inner`.

    The lesser of two bounds on a convex function need not be convex, but a chord between its values is still above.
    """
    at, mass = ratio.at, ratio.mass
    more = 1 + 2 * ratio.slack  # of a difference of two sums, so that it is never too small
    above, count = _from(at * mass) * more, _from(mass)
    below, paid = _upto(mass) * more, _upto(at * mass)

    def forward(e: Array) -> Array:
        a = np.exp(np.minimum(e, 700))
        first = np.searchsorted(at, a, side="right")
        return np.minimum(inner.forward(e), ratio.beyond + np.maximum(above[first] - a * count[first], 0))

    def backward(e: Array) -> Array:
        a = np.exp(np.minimum(e, 700))
        last = np.searchsorted(at, 1 / a, side="left")
        return np.minimum(inner.backward(e), np.maximum(below[last] - a * paid[last], 0))

    return Profile(forward, backward, inner.most_forward, inner.most_backward)


def _mean(inner: Profile, bins: int, reach: tuple[float, float]) -> Law:
    """The law of R, or one above it in the convex order."""
    shape, one = _first(inner, bins, reach)
    total, terms = one, 1
    for bit in bin(bins)[3:]:
        total, terms = _add(total, total, shape, 2 * terms), 2 * terms
        if bit == "1":
            total, terms = _add(total, one, shape, terms + 1), terms + 1
    return Law(total.at / bins, total.mass, total.beyond / bins, total.slack + SUMS)


def _first(inner: Profile, bins: int, reach: tuple[float, float]) -> tuple[Shape, Law]:
    """The ratio of one step on a grid of its own: a coarse look first, to know the scales."""
    ends = [max(end, 1e-9) for end in reach]
    rough = _ratio(inner, *(np.linspace(0, end, 400) for end in ends))
    spread = math.sqrt(max(float(rough.mass @ (rough.at - 1) ** 2), 1e-20))
    # in every sum small numbers matter only if all terms may be small together
    rare = int(np.searchsorted(np.cumsum(rough.mass), math.exp(-LOWEST / bins)))
    low = float(rough.at[min(max(rare, 1), len(rough.at) - 1)])
    shape = Shape(spread, min(low, 1.0), math.exp(ends[1]), max(FINE, sum(ends) / POINTS))
    points = shape.grid(1, shape.high)
    near = shape.fine / 4 * min(spread, 1.0)
    loss = np.log(points[(points > 0) & (abs(points - 1) > near)])
    return shape, _ratio(inner, *(_ending(side, end) for side, end in zip((-loss[loss < 0][::-1], loss[loss > 0]), ends)))


def _ending(losses: Array, end: float) -> Array:
    """Grid points from 0 to just `end`."""
    return np.concatenate([[0.0], losses[losses < 0.999 * end], [end]])


def _ratio(inner: Profile, down: Array, up: Array) -> Law:
    """The likelihood ratio of a profile where nobody is in the step, on the points e^-down and e^up, and 0."""
    forward, _, beyond, nothing = lattice.connect(inner, down, up)
    loss = np.concatenate([-down[:0:-1], up])
    with np.errstate(under="ignore"):
        mass = np.append(nothing, forward * np.exp(-loss))
    return Law(np.append(0.0, np.exp(loss)), mass / mass.sum(), beyond, STEP)


def _add(one: Law, two: Law, shape: Shape, terms: int) -> Law:
    """The sum of two independent numbers, put on a grid: each sum goes to the two points around it, its mean kept."""
    grid = shape.grid(terms, float(one.at[-1] + two.at[-1]))
    mass = np.zeros(len(grid))
    beyond = one.beyond + two.beyond
    rows = max(BLOCK // len(two.at), 1)
    for start in range(0, len(one.at), rows):
        total = np.add.outer(one.at[start : start + rows], two.at).ravel()
        weight = np.multiply.outer(one.mass[start : start + rows], two.mass).ravel()
        upper = np.minimum(np.searchsorted(grid, total, side="right"), len(grid) - 1)
        gap = grid[upper] - grid[upper - 1]  # 0 where points so far out are one float
        share = np.divide(total - grid[upper - 1], gap, out=np.ones_like(total), where=gap > 0)
        if total[-1] > grid[-1]:  # all of it to the last point, what is missing of the mean counted as infinite
            past = total > grid[-1]
            beyond += float(weight[past] @ (total[past] - grid[-1])) * 1.01
            share = np.minimum(share, 1.0)
        up = weight * share
        mass += np.bincount(upper, up, len(grid)) + np.bincount(upper - 1, weight - up, len(grid))
    return Law(grid, mass, beyond, one.slack + two.slack)


def allocated_renyi(noise_multiplier: float, bins: int, order: float, alone: float) -> float:
    """The Rényi divergence of one pass of Gaussian steps, from above, in both directions.

    `alone` is the divergence of this order for a unit known to be in its step, which a mixture never exceeds.
    """
    bins = min(bins, MOST_BINS)
    if order > HIGHEST or not lattice.reach(profiles.gaussian(noise_multiplier), TAIL)[0] < FARTHEST:
        return alone
    low = math.floor(order)
    moments = _power_moments(noise_multiplier, bins)
    # between whole orders log E[R^a] is convex, so the chord bounds it
    forward = (order - low) * float(moments[low + 1]) + (low + 1 - order) * float(moments[low])
    return min(max(forward, _inverse_moment(noise_multiplier, bins, order - 1)) / (order - 1), alone)


@lru_cache(maxsize=64)
def _power_moments(noise_multiplier: float, bins: int) -> Array:
    """log E[R^a] for whole a: a! / bins^a times the coefficient of x^a in (sum of E[Y^k] x^k / k!)^bins.

    Feldman & Shenfeld 2025. All terms are positive, and the power is taken by squaring, in logarithms. A squaring doubles
    the errors of both factors, so they are followed along: what is returned is the value plus all of its error.
    """
    from scipy.special import gammaln

    orders = np.arange(HIGHEST + 2, dtype=np.float64)
    rising, factorial = orders * (orders - 1) / 2 / noise_multiplier**2, gammaln(orders + 1)
    one = rising - factorial, LOG_ERROR * (rising + factorial)
    total = one
    for bit in bin(bins)[3:]:
        total = _multiply(total, total)
        if bit == "1":
            total = _multiply(total, one)
    log, error = total[0], total[1] + LOG_ERROR * (np.abs(total[0]) + factorial + orders * math.log(bins))
    return np.maximum(log + factorial - orders * math.log(bins) + error, 0.0)


def _multiply(one: tuple[Array, Array], two: tuple[Array, Array]) -> tuple[Array, Array]:
    """The product of two power series with positive coefficients, each as logarithms and the errors of those.

    The error of a logarithm of a sum is the mean of its terms' errors, weighted by the terms, and that of its own rounding.
    """
    logs, errors = np.empty_like(one[0]), np.empty_like(one[0])
    for k in range(len(logs)):
        terms = one[0][: k + 1] + two[0][k::-1]
        top = terms.max()
        weight = np.exp(terms - top)
        whole = weight.sum()
        logs[k] = top + math.log(whole)
        rounding = LOG_ERROR * (np.abs(one[0][: k + 1]) + np.abs(two[0][k::-1]) + abs(top) + (k + 1))
        errors[k] = weight @ (one[1][: k + 1] + two[1][k::-1] + rounding) / whole
    return logs, errors


@lru_cache(maxsize=64)
def _gaussian_mean(noise_multiplier: float, bins: int) -> Law:
    inner = profiles.gaussian(noise_multiplier)
    return _mean(inner, bins, lattice.reach(inner, TAIL))


def _inverse_moment(noise_multiplier: float, bins: int, power: float) -> float:
    """log E[R^-power], from above, for Gaussian steps.

    Below a point t the curve x^-power is replaced by its tangent, which keeps it convex and finite at 0; what that leaves
    out is at most E[G^-power; G < t] with G the geometric mean of the Y, which is log-normal and below R.
    """
    from scipy.special import log_ndtr

    law = _gaussian_mean(noise_multiplier, bins)
    centre, width = -0.5 / noise_multiplier**2, 1 / (noise_multiplier * math.sqrt(bins))
    edge = centre - 12 * width - power * width**2
    with np.errstate(divide="ignore"):
        log = np.log(law.at)
        curve = np.where(log > edge, -power * log, -power * edge + np.log1p(power * -np.expm1(np.minimum(log - edge, 0))))
        found = float(np.logaddexp.reduce(curve + np.log(law.mass)))
    rest = -power * centre + (power * width) ** 2 / 2 + float(log_ndtr((edge - centre) / width + power * width))
    return max(float(np.logaddexp(found, rest)), 0.0) + 2 * law.slack


def _from(values: Array) -> Array:
    """At each place the sum of all values from there on; 0 after the last."""
    return np.append(np.cumsum(values[::-1])[::-1], 0.0)


def _upto(values: Array) -> Array:
    """At each place the sum of all values before it."""
    return np.append(0.0, np.cumsum(values))
