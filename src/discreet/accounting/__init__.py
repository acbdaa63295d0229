"""Event in, trade-off out."""

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
    "NonPrivate", "Poisson", "Pure", "RandomizedResponse", "Repeat", "Sequence", "WithoutReplacement", "Zero",
]  # fmt: skip
