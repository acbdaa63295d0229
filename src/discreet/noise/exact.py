"""The reference samplers of Canonne, Kamath & Steinke (2020): exact, in Python integers, one value at a time.

They are what single values are drawn with, and what the fast samplers are tested against. Every decision compares a
uniform integer with an integer; no floating-point number occurs.
"""

from __future__ import annotations

from fractions import Fraction

from discreet.noise.source import Source


def bernoulli(probability: Fraction, source: Source) -> bool:
    """True with this rational probability."""
    return source.below(probability.denominator) < probability.numerator


def bernoulli_exp(exponent: Fraction, source: Source) -> bool:
    """True with probability exp(-exponent), for a rational exponent >= 0 (CKS 2020, algorithm 1).

    >>> bernoulli_exp(Fraction(0), Source())
    True
    """
    above, below = exponent.numerator, exponent.denominator
    while above > below:  # exp(-x) = exp(-1) exp(-(x - 1)): one failure decides
        if not _bernoulli_exp_of_fraction(1, 1, source):
            return False
        above -= below
    return _bernoulli_exp_of_fraction(above, below, source)


def _bernoulli_exp_of_fraction(above: int, below: int, source: Source) -> bool:
    # Draw Bernoulli(x/1), Bernoulli(x/2), ... until one fails; the first failure is at k > n with probability x^n/n!,
    # so it is at an odd k with probability 1 - x + x^2/2! - ... = exp(-x).
    k = 1
    while source.below(below * k) < above:
        k += 1
    return k % 2 == 1


def laplace(scale: Fraction, source: Source) -> int:
    """Pr[x] ~ exp(-|x| / scale) (CKS 2020, algorithm 2).

    >>> isinstance(laplace(Fraction(7, 3), Source()), int)
    True
    """
    t, s = scale.numerator, scale.denominator
    while True:
        u = source.below(t)
        if not _bernoulli_exp_of_fraction(u, t, source):
            continue
        v = 0
        while _bernoulli_exp_of_fraction(1, 1, source):
            v += 1
        magnitude = (u + t * v) // s  # geometric with ratio exp(-1/scale)
        negative = source.bits(1)
        if magnitude or not negative:  # zero has one sign only
            return -magnitude if negative else magnitude


def gaussian(sigma: Fraction, source: Source) -> int:
    """Pr[x] ~ exp(-x^2 / 2 sigma^2), by rejection from discrete Laplace (CKS 2020, algorithm 3).

    >>> isinstance(gaussian(Fraction(10), Source()), int)
    True
    """
    t = sigma.numerator // sigma.denominator + 1
    variance = sigma * sigma
    while True:
        y = laplace(Fraction(t), source)
        if bernoulli_exp((abs(y) - variance / t) ** 2 / (2 * variance), source):
            return y
