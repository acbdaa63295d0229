"""Exact coins and whole numbers, many at a time, and probabilities that never say more than epsilon allows.

Every probability here is a whole number of 2^-64, rounded to the side that tells less; a coin compares 64 random bits with
it, of which the last 48 are drawn only where the first 16 do not decide. So the distribution of every report is known as a
fraction, and the tests add such fractions up.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from discreet.errors import InvalidValue
from discreet.noise.digits import exp_bounds
from discreet.noise.samplers import Number, rational
from discreet.noise.source import Source

BITS = 64
ONE = 1 << BITS
_PRECISION = 192  # digits of exp(-epsilon)
LARGEST_EPSILON = 40  # the largest epsilon: beyond it a wrong answer would be rarer than a coin can say to a digit


def budget(epsilon: Number) -> Fraction:
    """Epsilon as a fraction, where coins of 64 bits can keep it."""
    exact = rational("epsilon", epsilon)
    if not Fraction(1, 1 << 32) <= exact <= LARGEST_EPSILON:
        raise InvalidValue(f"epsilon must be from 2^-32 to {LARGEST_EPSILON} for a local report; got {float(exact):g}.")
    return exact


def decay(epsilon: Fraction) -> Fraction:
    """A fraction just above exp(-epsilon)."""
    return Fraction(exp_bounds(epsilon, _PRECISION)[1], 1 << _PRECISION)


def rounded_up(probability: Fraction) -> Fraction:
    """The next whole number of 2^-64."""
    return Fraction(-(-probability.numerator * ONE // probability.denominator), ONE)


def rounded_down(probability: Fraction) -> Fraction:
    return Fraction(probability.numerator * ONE // probability.denominator, ONE)


def kept(epsilon: Fraction, inside: int, outside: int) -> Fraction:
    """How often to answer from a set of size `inside` that depends on the truth, and else from all of `outside` alike.

    An answer of that set is then at most e^epsilon times as likely as another: 1 + t outside / ((1 - t) inside) <= e^epsilon.
    Rounded down, since telling the truth less often tells less.

    >>> round(float(kept(Fraction(1), 1, 2)), 9)     # (e - 1) / (e + 1)
    0.462117157
    """
    s = decay(epsilon)
    return rounded_down((1 - s) * inside / (s * outside + (1 - s) * inside))


def flipped(epsilon: Fraction) -> Fraction:
    """The probability 1 / (e^epsilon + 1) of a lie, rounded up."""
    s = decay(epsilon)
    return rounded_up(s / (1 + s))


def coins(probability: Fraction, count: int, source: Source) -> NDArray[np.bool_]:
    """`count` coins, each true with exactly this probability, a whole number of 2^-64."""
    bar = probability.numerator * (ONE // probability.denominator)
    first, rest = bar >> 48, bar & ((1 << 48) - 1)
    digits = source.words(np.uint16, count)
    if first >= 1 << 16:
        return np.ones(count, np.bool_)
    out: NDArray[np.bool_] = digits < np.uint16(first)
    if rest:
        for i in np.flatnonzero(digits == np.uint16(first)):
            out[i] = source.bits(48) < rest
    return out


def below(bound: int, count: int, source: Source) -> NDArray[Any]:
    """`count` whole numbers from 0 to bound - 1, all equally likely (Lemire 2019: multiply, and reject the surplus)."""
    if bound > 1 << 31:
        return source.many_below(bound, count)
    small: Any = np.uint16 if bound <= 1 << 8 else np.uint32
    wide: Any = np.uint32 if bound <= 1 << 8 else np.uint64
    bits = 16 if bound <= 1 << 8 else 32
    spread = source.words(small, count).astype(wide) * wide(bound)
    surplus = (1 << bits) % bound
    if surplus:
        bad = np.flatnonzero((spread & wide((1 << bits) - 1)) < surplus)
        while bad.size:
            spread[bad] = source.words(small, bad.size).astype(wide) * wide(bound)
            bad = bad[(spread[bad] & wide((1 << bits) - 1)) < surplus]
    drawn: NDArray[Any] = spread >> wide(bits)
    return drawn
