"""Losses rounded up: a bound that is a float is never below the number it stands for."""

from __future__ import annotations

import math
from collections.abc import Iterable
from fractions import Fraction


def float_up(value: Fraction) -> float:
    """The least float that is not below `value`; infinity beyond the largest.

    >>> float_up(Fraction(1, 3)) > Fraction(1, 3), float_up(Fraction(1, 4))
    (True, 0.25)
    """
    try:
        nearest = float(value)
    except OverflowError:
        return math.inf
    return nearest if Fraction(nearest) >= value else math.nextafter(nearest, math.inf)


def quotient_up(numerator: float, denominator: float) -> float:
    """numerator / denominator, both positive; infinity beyond the largest float, and above 0 however small."""
    return float_up(Fraction(numerator) / Fraction(denominator))


def quotient_down(numerator: float, denominator: float) -> float:
    """numerator / denominator, both positive; above 0 however small."""
    exact = Fraction(numerator) / Fraction(denominator)
    nearest = float(exact)
    return max(nearest if Fraction(nearest) <= exact else math.nextafter(nearest, 0.0), 5e-324)


def total_up(terms: Iterable[tuple[float, int]]) -> float:
    """The sum of each number times how often it occurs; infinity where one is infinite."""
    total = Fraction(0)
    for value, times in terms:
        if value == math.inf:
            return math.inf
        total += Fraction(value) * times
    return float_up(total)
