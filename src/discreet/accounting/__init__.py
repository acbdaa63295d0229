"""What ran, as a ceiling: event in, trade-off curve out.

`curve(event)` is the whole trade-off; `calibrate` finds the least noise for a budget; `Filter` keeps a budget under
adaptively chosen events; `closed` has the lectures' formulas.
"""

from discreet.accounting.calibrate import calibrate
from discreet.accounting.curve import TradeOff, curve
from discreet.accounting.filter import Filter
from discreet.accounting.renyi import concentrated, epsilon_by_renyi, epsilon_from_concentrated, epsilon_from_renyi, renyi
from discreet.core import (
    Approximate,
    Concentrated,
    DiscreteGaussian,
    DiscreteLaplace,
    Exponential,
    Gaussian,
    Group,
    Laplace,
    NoisyMax,
    NonPrivate,
    ObjectivePerturbation,
    Poisson,
    PoissonReplace,
    Pure,
    RandomAllocation,
    RandomizedResponse,
    Repeat,
    Sequence,
    Shuffled,
    StudentT,
    WithoutReplacement,
    Zero,
)

__all__ = [
    "Approximate",
    "Concentrated",
    "DiscreteGaussian",
    "DiscreteLaplace",
    "Exponential",
    "Filter",
    "Gaussian",
    "Group",
    "Laplace",
    "NoisyMax",
    "NonPrivate",
    "ObjectivePerturbation",
    "Poisson",
    "PoissonReplace",
    "Pure",
    "RandomAllocation",
    "RandomizedResponse",
    "Repeat",
    "Sequence",
    "Shuffled",
    "StudentT",
    "TradeOff",
    "WithoutReplacement",
    "Zero",
    "calibrate",
    "concentrated",
    "curve",
    "epsilon_by_renyi",
    "epsilon_from_concentrated",
    "epsilon_from_renyi",
    "renyi",
]
