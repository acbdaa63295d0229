"""Attacks: each gives every target a score, in the same game as the claims. Names here need numpy and scipy only;
training torch models needs torch."""

from discreet.attack import membership
from discreet.attack.guesses import Guesses, guesses, most_right
from discreet.attack.link import Found, Join, Known, Links, Ratings, Scoreboard, Uniqueness, linked, roughly, uniqueness
from discreet.attack.reconstruct import (
    Bounded,
    Counts,
    Differencing,
    Reconstruction,
    SecretBits,
    determined,
    every_subset,
    everyone_but,
    isolating,
    paid,
    random_subsets,
    reconstruct_bits,
    who_left,
)
from discreet.models import Recipe as Recipe

__all__ = [
    "Bounded",
    "Counts",
    "Differencing",
    "Found",
    "Guesses",
    "Join",
    "Known",
    "Links",
    "Ratings",
    "Reconstruction",
    "Scoreboard",
    "SecretBits",
    "Uniqueness",
    "determined",
    "every_subset",
    "everyone_but",
    "guesses",
    "isolating",
    "linked",
    "membership",
    "most_right",
    "paid",
    "random_subsets",
    "reconstruct_bits",
    "roughly",
    "uniqueness",
    "who_left",
]
