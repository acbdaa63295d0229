"""Defences that are numbers in the recipe; models under them are still trained many at a time."""

from __future__ import annotations

from dataclasses import replace

from discreet.core import check
from discreet.heuristic.defences.defended import Defended, of_torch
from discreet.models import Recipe


def l2(recipe: Recipe, weight_decay: float) -> Defended:
    """Weight decay: less overfitting leaks less on average, though not for every row."""
    check.positive("weight_decay", weight_decay)
    return Defended("L2", replace(of_torch(recipe), weight_decay=weight_decay))


def label_smoothing(recipe: Recipe, amount: float) -> Defended:
    """Targets are mixed with the uniform distribution, so no row is learned with certainty.

    It can help the attacker: rows trained on are drawn to the smoothed target, others are not (Kaya and Dumitras 2021).
    """
    check.open_fraction("amount", amount)
    return Defended("label smoothing", replace(of_torch(recipe), label_smoothing=amount))
