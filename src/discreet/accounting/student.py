"""Noise of Student's t on a vector that one unit moves by a word of a code, or by any vector of bounded length.

On one number moved by `shift` scales the best test of P against Q is an interval, whose ends are the roots of a quadratic, so
its profile is a closed form; it grows with the shift. Numbers have independent noise, so a word of a code is a composition of
them. For any vector of bounded l2 norm there is one constant instead: the pair is dominated by a Gaussian one (`dominance`).
docs/theory/encoded-gradients.md has the proofs.
"""

from __future__ import annotations

import math
import sys
from functools import lru_cache

import numpy as np

from discreet.accounting.profile import FARTHEST, LEAST, UP, Array, Profile, symmetric, unbounded
from discreet.accounting.rounding import quotient_down, quotient_up
from discreet.core.event import Gaussian, StudentT

SLACK = 2e-13  # relative, above the error of the distribution function (1e-14) and of the quadrature, for each term
NARROW = 0.5  # a shift below which differences of the distribution function are integrals of the density
NODES = 12
CELLS = 20_000


def numbers(event: StudentT) -> list[tuple[StudentT, int]]:
    """The event as several on one number each, with how many there are of each: their noise is independent."""
    pairs = zip(event.sizes, event.counts, strict=True)
    return [(StudentT(event.noise_multiplier, event.degrees, (size,), (1,)), count) for size, count in pairs if size > 0]


def one_number(event: StudentT) -> bool:
    """Whether a unit moves one number only."""
    return event.counts == (1,)


def shifted(event: StudentT) -> Profile:
    """The profile of noise on one number, the same in both directions."""
    degrees, shift = event.degrees, quotient_up(event.sizes[0], event.noise_multiplier) if event.sizes[0] else 0.0
    if not shift < FARTHEST:
        return unbounded()
    most = (degrees + 1) * math.asinh(shift / (2 * math.sqrt(degrees))) * (1 + 4e-15)

    def delta(e: Array) -> Array:
        low, high, inside = _interval(degrees, shift, np.minimum(e, most))
        gained, lost = _moved(degrees, shift, low), _moved(degrees, shift, high)
        with np.errstate(over="ignore", invalid="ignore", under="ignore"):
            paid = np.expm1(np.minimum(e, most)) * inside
            found = gained - lost - paid + SLACK * (gained + lost + paid) + LEAST
        return np.where(e < most, np.clip(np.where(np.isnan(found), 1.0, found), 0.0, 1.0), 0.0)

    return symmetric(delta, most)


def _interval(degrees: float, shift: float, e: Array) -> tuple[Array, Array, Array]:
    """Where the moved density is more than e^epsilon times the other: the ends of that interval, and its mass unmoved.

    With r = e^{2 epsilon / (degrees + 1)} and g = r - 1 they are the roots of -g x^2 + 2 r shift x - degrees g - r shift^2.
    """
    from scipy.special import stdtr

    g = np.expm1(2 * e / (degrees + 1))
    r = 1 + g
    root = np.sqrt(np.maximum(r * shift * shift - degrees * g * g, 0.0))
    with np.errstate(divide="ignore", over="ignore"):
        high = (r * shift + root) / g
    low = (degrees * g + r * shift * shift) / (r * shift + root)
    return low, high, np.maximum(stdtr(degrees, -low) - stdtr(degrees, -high), 0.0)


def _moved(degrees: float, shift: float, x: Array) -> Array:
    """How much more of the moved distribution lies above x than of the other: F(x) - F(x - shift), without cancellation."""
    from scipy.special import stdtr

    if shift > NARROW:
        return np.asarray(stdtr(degrees, -(x - shift)) - stdtr(degrees, -x))
    nodes, weights = np.polynomial.legendre.leggauss(NODES)
    total = np.zeros_like(x)
    with np.errstate(over="ignore"):
        for node, weight in zip(nodes, weights):
            total += weight / 2 * density(degrees, x - shift * (1 + node) / 2)
    return shift * total


def density(degrees: float, x: Array) -> Array:
    """Of Student's t."""
    log = math.lgamma((degrees + 1) / 2) - math.lgamma(degrees / 2) - math.log(degrees * math.pi) / 2
    with np.errstate(over="ignore"):
        return np.asarray(np.exp(log - (degrees + 1) / 2 * np.log1p(x * x / degrees)))


def as_gaussian(event: StudentT) -> Gaussian:
    """A Gaussian mechanism that dominates it, whatever the vector of this length (`dominance`). Rounded towards less noise."""
    largest = max(event.sizes)  # squares of the sizes themselves may be beyond the range of a float
    square = math.fsum(count * (size / largest) ** 2 for size, count in zip(event.sizes, event.counts, strict=True))
    length = largest * math.sqrt(square) * (1 + 2e-15)
    if length == math.inf:
        return Gaussian(5e-324)
    try:
        return Gaussian(quotient_down(event.noise_multiplier, max(dominance(event.degrees) * length * (1 + 4e-16), 5e-324)))
    except OverflowError:
        return Gaussian(sys.float_info.max)


@lru_cache(maxsize=256)
def dominance(degrees: float) -> float:
    """The least known k for which noise of Student's t at scale s, moved by a vector of l2 norm D, is (k D / s)-Gaussian DP.

    k is the supremum over p of J(p) / phi(z_p): J(p) is the integral of the score over the fraction p of values where it is
    largest, an interval (u, degrees / u), and phi(z_p) is the same for the normal distribution. p and J fall with u, and
    phi(z_p) grows with p up to 1/2. So k is bounded from above cell by cell; in the last cell J is at most p times the largest
    score, and p / phi(z_p) grows with p.

    >>> dominance(3.0) < 0.9225
    True
    """
    from scipy.special import ndtri, stdtr

    u = np.sqrt(degrees) * np.linspace(0, 1, CELLS + 1)[:-1]
    with np.errstate(divide="ignore"):
        far = degrees / u
    p = np.minimum(stdtr(degrees, -u) - stdtr(degrees, -far), 0.5)
    gained = density(degrees, u) - density(degrees, far)
    normal = np.exp(-(ndtri(p) ** 2) / 2) / math.sqrt(2 * math.pi)
    kept = int(np.searchsorted(-p, -1e-4))  # cells up to here one by one, what lies beyond at once
    cells = gained[: kept - 1] / normal[1:kept]
    steepest = (degrees + 1) / (2 * math.sqrt(degrees))
    last = steepest * p[kept - 1] / normal[kept - 1]
    return float(max(cells.max(), last, 1e-300)) * (1 + 1e-9) * UP
