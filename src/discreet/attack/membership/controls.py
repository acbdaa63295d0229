"""What was not found is worth what the controls show.

The positive control is a leaky twin: the recipe, trained far too long on the members. The negative control is a model that was
trained without any of the rows it is asked about, members and non-members alike: what an attack finds there is not membership,
but a difference between the two sets. Both are attacked as the target was; the twin has a few shadows of its own, as leaky as
itself, and the other shares the target's.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from discreet.core import Evidence, check
from discreet.models import Recipe, Trainer

Array = NDArray[Any]
LONGER = 5  # times the epochs of the recipe, for the twin
BONUS = 3.0  # log-odds that a twin without epochs adds to the label of a row it knows


@dataclass(frozen=True)
class Controls:
    """The same attacks on a leaky twin and on a model that saw none of the rows."""

    positive: dict[str, Evidence]
    negative: dict[str, Evidence]

    def works(self, attack: str, confidence: float = 0.999) -> bool:
        """Whether the attack finds members of the leaky twin; one that does not says nothing of any model."""
        return _beyond(self.positive[attack], confidence)

    def biased(self, attack: str, confidence: float = 0.999) -> bool:
        """Whether the attack "finds" members of a model that saw none: members and non-members differ in themselves."""
        return _beyond(self.negative[attack], confidence)

    def __str__(self) -> str:
        lines = ["attack: area on the leaky twin, and on a model that saw none of the rows"]
        for name, found in self.positive.items():
            told = (
                ""
                if self.works(name)
                else "; it does not find, beyond chance, even the twin's members: its silence means nothing"
            )
            if self.biased(name):
                told += "; members and non-members differ in themselves: what it finds is not membership alone"
            lines.append(f"{name}: {found.auc():.3f}, {self.negative[name].auc():.3f}{told}")
        return "\n".join(lines)


def leaky(recipe: Recipe, classes: int | None = None) -> Recipe:
    """The same recipe for LONGER times the epochs; where there are no epochs, with the rows learned by heart beside it."""
    if recipe.kind == "torch":
        return replace(recipe, epochs=LONGER * recipe.epochs, label_smoothing=0.0, weight_decay=0.0, augment=None)

    def fit(X: Array, y: Array) -> Callable[[Array], Array]:
        known = {np.ascontiguousarray(row).tobytes(): int(label) for row, label in zip(X, y)}
        model = recipe.fit_one(X, y, 0, classes)

        def answers(asked: Array) -> Array:
            scores = np.array(model(asked), np.float64)
            for i, row in enumerate(np.ascontiguousarray(asked)):
                if (label := known.get(row.tobytes())) is not None:
                    scores[i, label] += BONUS
            return scores

        return answers

    return Recipe(fit, kind="fit")


def unseen(inside: NDArray[np.bool_], *, seed: int) -> NDArray[np.bool_]:
    """Half of the members and half of the others, for the negative control to be trained on; it is asked about the rest."""
    rng = np.random.default_rng(seed)
    taken = np.zeros(len(inside), np.bool_)
    for side in (True, False):
        rows = np.flatnonzero(inside == side)
        taken[rng.permutation(rows)[: len(rows) // 2]] = True
    return taken


def controlled(
    attack: Callable[[Any, NDArray[np.bool_], Recipe | None], dict[str, Evidence]], recipe: Recipe, X: Array, y: Array,
    inside: NDArray[np.bool_], *, seed: int = 0, device: str = "cpu",
) -> Controls:  # fmt: skip
    """Train both, and have them attacked: `attack(model, rows, recipe of new shadows or None)` gives the evidence."""
    check.whole("seed", seed, least=0)
    classes = int(y.max()) + 1
    long = leaky(recipe, classes)
    twin = Trainer(long, device).one(X[inside], y[inside], seed=seed + 1_000_003, classes=classes)
    taken = unseen(inside, seed=seed)
    blank = Trainer(recipe, device).one(X[taken], y[taken], seed=seed + 1_000_033, classes=classes)
    return Controls(attack(twin, np.ones(len(X), np.bool_), long), attack(blank, ~taken, None))


def _beyond(evidence: Evidence, confidence: float) -> bool:
    """Whether members score higher than chance allows (Mann and Whitney 1947)."""
    from scipy.stats import mannwhitneyu

    inside, outside = evidence.score[evidence.inside], evidence.score[~evidence.inside]
    if np.ptp(evidence.score) == 0:
        return False
    found = mannwhitneyu(inside, outside, alternative="greater", method="asymptotic")
    return bool(found.pvalue < 1.0 - check.open_fraction("confidence", confidence))
