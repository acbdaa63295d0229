"""Reconstruction from answers: differencing, averaging, linear reconstruction."""

from discreet.attack.reconstruct.differencing import Differencing, determined, everyone_but, isolating, who_left
from discreet.attack.reconstruct.interface import Bounded, Counts, SecretBits, paid
from discreet.attack.reconstruct.linear import Reconstruction, every_subset, random_subsets, reconstruct_bits

__all__ = [
    "Bounded",
    "Counts",
    "Differencing",
    "Reconstruction",
    "SecretBits",
    "determined",
    "every_subset",
    "everyone_but",
    "isolating",
    "paid",
    "random_subsets",
    "reconstruct_bits",
    "who_left",
]
