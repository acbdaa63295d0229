"""Covariance matrices of columns of arrays.

docs/theory/query-statistics.md derives the sensitivities and the intervals.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import numpy as np

from discreet.core import check
from discreet.errors import InvalidValue
from discreet.noise.samplers import Number, rational
from discreet.query.array_mechanisms import ArrayMechanism, Estimate, NoisySum, bounds_pair
from discreet.query.rows import Contribution, Rows, clipped_table
from discreet.query.statistics.statistic import each

MOST_COLUMNS = 100


def covariance(*, unit: Any, epsilon: Number, bounds: Any, confidence: float) -> ArrayMechanism:
    """A noisy count, a noisy sum per column and a noisy sum of products per pair, all centred within their bounds."""
    contribution = Contribution(unit)
    limits = [bounds_pair(item) for item in check.items("bounds", bounds, "a list of (lower, upper), one per column")]
    if not 0 < len(limits) <= MOST_COLUMNS:
        raise InvalidValue(f"bounds must be given for 1 to {MOST_COLUMNS} columns; got {len(limits)}.")
    check.confidence(confidence)
    third, d = rational("epsilon", epsilon) / 3, len(limits)
    centres = [_centre(item) for item in limits]
    pairs = [(i, j) for i in range(d) for j in range(i + 1)]
    people = NoisySum(contribution, third)
    sums = [NoisySum(contribution, third / d, half) for _, half in centres]
    products = {(i, j): NoisySum(contribution, third / len(pairs), _reach(centres, i, j)) for i, j in pairs}
    noises = 1 + d + len(pairs)

    def work(rows: Rows) -> Estimate:
        table, weights = clipped_table(rows, contribution, limits)
        share = each(noises, confidence)  # the count's error is in the rounding too, and holds at once with the others
        centred = [values - float(middle) for values, (middle, _) in zip(table, centres)]
        n, t = people.noisy(None, weights), people.error(share)
        most = max(0.0, n + t)
        first = [(noisy_sum.noisy(values, weights), noisy_sum.error(share) + most * noisy_sum.rounding)
                 for noisy_sum, values in zip(sums, centred)]  # fmt: skip
        out = np.zeros((3, d, d))
        for (i, j), noisy_sum in products.items():
            shift = float(_shift(centres, i, j))
            error = noisy_sum.error(share) + most * noisy_sum.rounding
            second = noisy_sum.noisy(centred[i] * centred[j] - shift, weights), error
            ends = _covariance(second, first[i], first[j], (n, t), shift, float(centres[i][1]), float(centres[j][1]))
            out[:, i, j] = out[:, j, i] = ends
        value, low, high = (part.tolist() for part in out)
        return Estimate(value, low, high, confidence)

    return ArrayMechanism(contribution, (people.event, *(p.event for p in sums), *(p.event for p in products.values())), work)


def _centre(limits: tuple[Fraction, Fraction]) -> tuple[Fraction, Fraction]:
    """The middle as a float has it, and the farthest that a number within the bounds is from it."""
    middle = Fraction(float(sum(limits) / 2))
    return middle, max(limits[1] - middle, middle - limits[0])


def _reach(centres: Sequence[tuple[Fraction, Fraction]], i: int, j: int) -> Fraction:
    """The farthest that a product of two centred numbers is from its own centre."""
    most = centres[i][1] * centres[j][1]
    shift = _shift(centres, i, j)
    return max(most - shift, shift)


def _shift(centres: Sequence[tuple[Fraction, Fraction]], i: int, j: int) -> Fraction:
    """Squares are between 0 and their bound, so their centre is half of it; other products are centred as they are."""
    return Fraction(float(centres[i][1] ** 2 / 2)) if i == j else Fraction(0)


def _ratio(s: float, s_error: float, n: float, n_error: float, most: float) -> tuple[float, float]:
    """All values of (s +- error) / (n +- error) that are within +-most."""
    if n - n_error <= 0:
        return -most, most
    ends = [(s + a) / (n + b) for a in (-s_error, s_error) for b in (-n_error, n_error)]
    return max(-most, min(ends)), min(most, max(ends))


def _covariance(
    product: tuple[float, float], one: tuple[float, float], other: tuple[float, float], people: tuple[float, float],
    shift: float, one_most: float, other_most: float,
) -> tuple[float, float, float]:  # fmt: skip
    """E[xy] - E[x] E[y] of centred columns, and all that it may be when every noise is within its error."""
    n, most = people[0], one_most * other_most
    a, b = _ratio(*one, *people, one_most), _ratio(*other, *people, other_most)
    c = _ratio(*product, *people, most - shift)
    crossed = [x * y for x in a for y in b]
    if shift:  # the same column: a square is not below 0
        crossed = [0.0 if a[0] <= 0 <= a[1] else min(crossed), max(crossed)]
    low, high = max(-most, c[0] + shift - max(crossed)), min(most, c[1] + shift - min(crossed))
    if n <= 0:
        return 0.0, low, high
    value = product[0] / n + shift - one[0] / n * other[0] / n
    return min(max(value, low), high), low, high
