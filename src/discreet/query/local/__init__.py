"""Local privacy: each person noises their own value, and the collector never sees the truth.

One small class per oracle, with three verbs: `encode` on the client, `estimate` on the collector, `claims` for both.
`frequency` and `mean` choose the oracle.
"""

from discreet.query.local.choose import frequency, mean
from discreet.query.local.hashing import HadamardResponse, LocalHashing
from discreet.query.local.intervals import Average, Frequencies
from discreet.query.local.numbers import OneBitMean, PiecewiseMean
from discreet.query.local.response import Coin, KaryResponse
from discreet.query.local.unary import OptimalUnary, SymmetricUnary

__all__ = [
    "Average",
    "Coin",
    "Frequencies",
    "HadamardResponse",
    "KaryResponse",
    "LocalHashing",
    "OneBitMean",
    "OptimalUnary",
    "PiecewiseMean",
    "SymmetricUnary",
    "frequency",
    "mean",
]
