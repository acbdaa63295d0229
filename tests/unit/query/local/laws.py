"""The exact law of each oracle's report, as fractions: what its parameters say, added up."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction
from typing import Any

from discreet.noise.digits import exp_bounds
from discreet.query import local

Law = dict[Any, Fraction]


def grown(epsilon: Fraction) -> tuple[Fraction, Fraction]:
    """Fractions just below and just above e^epsilon."""
    low, high = exp_bounds(epsilon, 600)
    return Fraction(1 << 600, high), Fraction(1 << 600, low)


def response(truth: int, keep: Fraction, size: int) -> Law:
    return {y: (1 - keep) / size + (keep if y == truth else 0) for y in range(size)}


def law(oracle: Any, truth: int) -> Law:
    """Of a report from `truth`: the index of a category, or a step of the grid."""
    match oracle:
        case local.Coin():
            return response(truth, Fraction(1, 2), 2)
        case local.KaryResponse():
            return response(truth, oracle.keep, oracle.size)
        case local.SymmetricUnary() | local.OptimalUnary():
            chance = [oracle.p if j == truth else oracle.q for j in range(oracle.size)]
            return {
                bits: math.prod((c if bit else 1 - c for c, bit in zip(chance, bits)), start=Fraction(1))
                for bits in itertools.product((0, 1), repeat=oracle.size)
            }
        case local.HadamardResponse():
            rows = list(itertools.product(range(1 << oracle.width), repeat=oracle.parities))
            return {
                (seed, y): chance / len(rows)
                for seed in rows
                for y, chance in response(parities(seed, truth), oracle.keep, oracle.answers).items()
            }
        case local.OneBitMean():
            up = oracle.lie + (1 - 2 * oracle.lie) * Fraction(truth, oracle.steps)
            return {1: up, 0: 1 - up}
        case local.PiecewiseMean():
            base, n = (1 - oracle.keep) / oracle.answers, oracle.window
            return {y: base + (oracle.keep / n if truth <= y < truth + n else 0) for y in range(oracle.answers)}
    raise AssertionError(oracle)


def parities(seed: tuple[int, ...], value: int) -> int:
    return sum(((row & value).bit_count() % 2) << t for t, row in enumerate(seed))


def worst_ratio(laws: list[Law]) -> Fraction:
    """The largest ratio of probabilities of one report under two truths."""
    return max(one[y] / two[y] for one, two in itertools.permutations(laws, 2) for y in one)
