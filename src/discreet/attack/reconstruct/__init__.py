"""Reconstruction from answers: differencing, averaging, linear reconstruction."""

from discreet.attack.reconstruct.differencing import (
    Differencing,
    determined,
    differencing_attack,
    isolating_queries,
    leave_one_out_queries,
)
from discreet.attack.reconstruct.interface import Bounded, Counts, SecretBits, ledger_queries
from discreet.attack.reconstruct.linear import Reconstruction, every_subset, random_subsets, reconstruct_bits

__all__ = [
    "Bounded",
    "Counts",
    "Differencing",
    "Reconstruction",
    "SecretBits",
    "determined",
    "differencing_attack",
    "every_subset",
    "isolating_queries",
    "leave_one_out_queries",
    "ledger_queries",
    "random_subsets",
    "reconstruct_bits",
]
