"""Which oracle: the one of least variance; between nearly equal ones, the one that costs least."""

from __future__ import annotations

from typing import Any

from discreet.noise.samplers import Number
from discreet.query.local.hashing import HadamardResponse, LocalHashing
from discreet.query.local.numbers import STEPS, OneBitMean, PiecewiseMean
from discreet.query.local.oracle import Oracle
from discreet.query.local.response import KaryResponse
from discreet.query.local.unary import OptimalUnary

NEARLY = 1.02  # variances this close count as equal


def frequency(epsilon: Number, categories: Any) -> Oracle:
    """The oracle for shares of these categories at this epsilon.

    For a category that nobody has, n times the variance is (k - 2 + e^epsilon) / (e^epsilon - 1)^2 for KaryResponse and
    4 e^epsilon / (e^epsilon - 1)^2 for OptimalUnary, and for the hashing oracles up to rounding (Wang, Blocki, Li & Jha
    2017), so that KaryResponse is best while k < 3 e^epsilon + 2. Beyond, whichever of the others is within 2 % of the
    least and has the least cost: bits sent and steps of the collector per report.

    >>> type(frequency(1.0, 10)).__name__, type(frequency(1.0, 11)).__name__
    ('KaryResponse', 'HadamardResponse')
    """
    kary, unary = KaryResponse(epsilon, categories), OptimalUnary(epsilon, categories)
    if kary.variance(1) < unary.variance(1):
        return kary
    others: list[Oracle] = [unary, LocalHashing(epsilon, categories), HadamardResponse(epsilon, categories)]
    least = min(oracle.variance(1) for oracle in others)
    return min((oracle for oracle in others if oracle.variance(1) <= NEARLY * least), key=lambda oracle: oracle.cost())


def mean(epsilon: Number, lower: float, upper: float, steps: int = STEPS) -> OneBitMean | PiecewiseMean:
    """The mechanism for a mean between two public bounds: the one whose largest variance is least.

    >>> type(mean(1.0, 0, 1)).__name__, type(mean(2.0, 0, 1)).__name__
    ('OneBitMean', 'PiecewiseMean')
    """
    one, piecewise = OneBitMean(epsilon, lower, upper, steps), PiecewiseMean(epsilon, lower, upper, steps)
    return one if one.worst_variance(1) <= piecewise.worst_variance(1) else piecewise
