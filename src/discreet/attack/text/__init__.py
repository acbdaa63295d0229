"""Membership of text in a language model's training set: by text, and by author.

models.py    what a language model must answer; counts of n tokens, and torch modules
signals.py   numbers that say how well a model knows a text
attacks.py   the attacks, each an object
run.py       all of them on members and others
"""

from discreet.attack.text.attacks import ATTACKS, TextAttack, TextObservation
from discreet.attack.text.models import Causal, LanguageModel, NGram, utf8
from discreet.attack.text.run import by_author, text_membership
from discreet.attack.text.signals import loss, min_k, min_k_plus, reference_ratio, zlib_ratio

__all__ = [
    "ATTACKS",
    "Causal",
    "LanguageModel",
    "NGram",
    "TextAttack",
    "TextObservation",
    "by_author",
    "loss",
    "min_k",
    "min_k_plus",
    "reference_ratio",
    "text_membership",
    "utf8",
    "zlib_ratio",
]
