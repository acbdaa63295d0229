"""Membership inference: was this row in the training set?

    recipe.py    how a model is built and trained
    shadow/      many models at once, each on its own half
    signals.py   what scores say about one label
    ratios.py    scores for membership from a target and its shadows
    play.py      all of it on one target

`discreet.attack.membership` is this package and also the function: `discreet.attack.membership(target, recipe, …)`.
"""

import sys
from types import ModuleType
from typing import Any

from discreet.attack.membership.play import ATTACKS, membership
from discreet.attack.membership.recipe import Recipe
from discreet.attack.membership.shadow import Shadows, halves, train_shadows

__all__ = ["ATTACKS", "Recipe", "Shadows", "halves", "membership", "train_shadows"]


class _Callable(ModuleType):
    """So that `discreet.attack.membership(…)` attacks."""

    def __call__(self, *args: Any, **named: Any) -> dict[str, Any]:
        return membership(*args, **named)


sys.modules[__name__].__class__ = _Callable
