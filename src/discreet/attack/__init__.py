"""Attacks: each gives every target a score, in the same game as the claims. Names here need numpy and scipy only;
training torch models needs torch."""

from typing import Any

from discreet.attack import membership
from discreet.attack.guesses import Guesses, best_guess, guesses
from discreet.attack.inversion import AttributeInference, Inference, infer
from discreet.attack.link import (
    BestMatch,
    Join,
    Known,
    Links,
    Ratings,
    Scoreboard,
    Uniqueness,
    approximate_knowledge,
    linked,
    uniqueness,
)
from discreet.attack.reconstruct import (
    Bounded,
    Counts,
    Differencing,
    Reconstruction,
    SecretBits,
    determined,
    differencing_attack,
    every_subset,
    isolating_queries,
    leave_one_out_queries,
    ledger_queries,
    random_subsets,
    reconstruct_bits,
)
from discreet.models import Recipe as Recipe

__all__ = [
    "AttributeInference",
    "BestMatch",
    "Bounded",
    "Counts",
    "Differencing",
    "Guesses",
    "Inference",
    "Join",
    "Known",
    "Links",
    "Ratings",
    "Reconstruction",
    "Scoreboard",
    "SecretBits",
    "Uniqueness",
    "approximate_knowledge",
    "best_guess",
    "determined",
    "differencing_attack",
    "every_subset",
    "guesses",
    "infer",
    "isolating_queries",
    "leave_one_out_queries",
    "ledger_queries",
    "linked",
    "membership",
    "random_subsets",
    "reconstruct_bits",
    "uniqueness",
]


_LATER = {"gradients": "Reading rows out of gradients", **dict.fromkeys(("encodings", "everything", "exposure", "extraction",
          "inversion", "stealing"), "This attack")}  # fmt: skip


def __getattr__(name: str) -> Any:
    """Packages that are loaded when they are used; `gradients` needs torch."""
    if name not in _LATER:
        raise AttributeError(f"discreet.attack has no {name!r}; it has {', '.join([*__all__, *_LATER])}.")
    from importlib import import_module

    from discreet.errors import MissingExtra

    try:
        return import_module(f"discreet.attack.{name}")
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise
        raise MissingExtra("torch", "torch", _LATER[name]) from None
