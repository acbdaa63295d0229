"""Event in, trade-off out."""

from discreet.accounting.curve import TradeOff, curve
from discreet.core import (
    Approximate,
    DiscreteGaussian,
    DiscreteLaplace,
    Exponential,
    Gaussian,
    Group,
    Laplace,
    NoisyMax,
    NonPrivate,
    Poisson,
    Pure,
    RandomizedResponse,
    Repeat,
    Sequence,
    WithoutReplacement,
    Zero,
)

__all__ = [
    "Approximate", "DiscreteGaussian", "DiscreteLaplace", "Exponential", "Gaussian", "Group", "Laplace", "NoisyMax",
    "NonPrivate", "Poisson", "Pure", "RandomizedResponse", "Repeat", "Sequence", "WithoutReplacement", "TradeOff", "Zero", "curve",
]  # fmt: skip
