"""A recipe under a defence, with what can be claimed for it: nothing."""

from __future__ import annotations

import zlib
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from discreet.core import Claim, Game, NonPrivate, Unit, record
from discreet.errors import InvalidValue
from discreet.models import Recipe, Trainer

Array = NDArray[Any]


@dataclass(frozen=True)
class Defended:
    """A recipe that trains with a defence. It may lower what attacks reach (the floor); it proves no ceiling, and says so.

    `recipe` goes wherever the undefended one went: to be attacked, or to train.
    """

    name: str
    recipe: Recipe
    view: frozenset[str] = frozenset({"weights"})
    unit: Unit = field(default_factory=record)

    def claims(self) -> tuple[Claim, ...]:
        return (Claim(game=Game(self.unit, self.view), event=NonPrivate()),)


def of_torch(recipe: Recipe) -> Recipe:
    """The recipe, if it is one whose training can be changed."""
    kind = getattr(recipe, "kind", None)
    if not isinstance(recipe, Recipe) or kind != "torch":
        twice = " One that a defence has changed already takes no other; l2 and label_smoothing may come first."
        raise InvalidValue(
            "This defence changes how a torch module is trained; it needs a Recipe that builds one, not one of kind "
            f"{kind or type(recipe).__name__!r}." + (twice if kind == "fit" else "")
        )
    return recipe


def fitted_by(recipe: Recipe, fit: Any) -> Recipe:
    """The same recipe, trained by a function of its own, one model at a time."""
    return replace(recipe, build=fit, kind="fit")


def train(recipe: Recipe, X: Array, y: Array, *, loss: Any = None, after_epoch: Any = None, device: str = "cpu") -> Any:
    """A module of the recipe, trained by `loss` (by default the recipe's own) in batches of nearly equal size.

    Its first weights and its order follow from the rows, so that the same rows give the same model.
    """
    import torch.nn.functional as F

    def task(forward: Any, rows: Any, labels: Any, epoch: int) -> Any:
        return F.cross_entropy(forward(rows), labels, label_smoothing=recipe.label_smoothing)

    return Trainer(recipe, device).one(X, y, seed=seed_of(X, y), loss=loss or task, after_epoch=after_epoch)


def seed_of(X: Array, y: Array) -> int:
    """A seed that follows from the rows."""
    return zlib.crc32(np.ascontiguousarray(X).tobytes() + np.ascontiguousarray(y).tobytes())


def set_aside(rows: int, share: float) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Places to train on, and a share of them kept out of training; the same for as many rows."""
    order = np.random.default_rng(rows).permutation(rows)
    count = max(1, int(share * rows))
    if count >= rows:
        raise InvalidValue(f"{rows} rows leave none to train on where a share of {share:g} is set aside; give more.")
    return order[count:], order[:count]
