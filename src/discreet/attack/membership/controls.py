"""Controls: an attack that found nothing says something only if it finds what is there, and nothing where nothing is.

The positive control is overfit: the recipe, trained far too long on the members. The negative control is a model that was
trained without any of the rows it is queried about, members and non-members alike: what an attack finds there is not
membership, but a difference between the two sets. Both are attacked as the target was; the overfit control has a few shadows of
its own, as overfit as itself, and the other shares the target's.
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
LONGER = 5  # times the epochs of the recipe, for the overfit control
BONUS = 3.0  # log-odds that an overfit control without epochs adds to the label of a row it knows


@dataclass(frozen=True)
class Controls:
    """The same attacks on an overfit control and on a model that saw none of the rows, by the name of the attack."""

    positive: dict[str, Evidence]
    negative: dict[str, Evidence]

    def works(self, attack: str, confidence: float = 0.999) -> bool:
        """Whether the attack finds members of the overfit control; one that does not says nothing of any model."""
        return _beyond(self.positive[attack], confidence)

    def biased(self, attack: str, confidence: float = 0.999) -> bool:
        """Whether the attack "finds" members of a model that saw none: members and non-members differ in themselves."""
        return _beyond(self.negative[attack], confidence)

    def __str__(self) -> str:
        lines = ["attack: area on the overfit control, and on a model that saw none of the rows"]
        for name, evidence in self.positive.items():
            remark = "" if self.works(name) else "; it does not find, beyond chance, even the members of the overfit control"
            if self.biased(name):
                remark += "; members and non-members differ in themselves: what it finds is not membership alone"
            lines.append(f"{name}: {evidence.auc():.3f}, {self.negative[name].auc():.3f}{remark}")
        return "\n".join(lines)


def overfit_recipe(recipe: Recipe, classes: int | None = None) -> Recipe:
    """The same recipe for LONGER times the epochs; where there are no epochs, with its rows memorised beside it."""
    if recipe.kind == "torch":
        return replace(recipe, epochs=LONGER * recipe.epochs, label_smoothing=0.0, weight_decay=0.0, augment=None)

    def fit(X: Array, y: Array) -> Callable[[Array], Array]:
        known = {np.ascontiguousarray(row).tobytes(): int(label) for row, label in zip(X, y)}
        model = recipe.fit_one(X, y, 0, classes)

        def predict(query: Array) -> Array:
            scores = np.array(model(query), np.float64)
            for i, row in enumerate(np.ascontiguousarray(query)):
                if (label := known.get(row.tobytes())) is not None:
                    scores[i, label] += BONUS
            return scores

        return predict

    return Recipe(fit, kind="fit")


def overfit_control(
    trainer: Trainer, X: Array, y: Array, inside: NDArray[np.bool_], *, seed: int
) -> tuple[Any, Recipe]:  # fmt: skip
    """The positive control, trained on the members; and the recipe of its shadows."""
    classes = int(y.max()) + 1
    recipe = overfit_recipe(trainer.recipe, classes)
    return replace(trainer, recipe=recipe).one(X[inside], y[inside], seed=stream(seed, "overfit"), classes=classes), recipe


def unseen_control(
    trainer: Trainer, X: Array, y: Array, inside: NDArray[np.bool_], *, seed: int
) -> tuple[Any, NDArray[np.bool_]]:  # fmt: skip
    """The negative control, and the rows that it was not trained on: those it is queried about."""
    taken = unseen(inside, seed=check.whole("seed", seed, least=0))
    model = trainer.one(X[taken], y[taken], seed=stream(seed, "unseen"), classes=int(y.max()) + 1)
    return model, ~taken


def unseen(inside: NDArray[np.bool_], *, seed: int) -> NDArray[np.bool_]:
    """Half of the members and half of the others, for the negative control to be trained on; it is queried about the rest."""
    rng = np.random.default_rng(stream(seed, "unseen rows"))
    taken = np.zeros(len(inside), np.bool_)
    for side in (True, False):
        rows = np.flatnonzero(inside == side)
        taken[rng.permutation(rows)[: len(rows) // 2]] = True
    return taken


def stream(seed: int, name: str) -> int:
    """A seed of its own for each use of one seed: what is drawn for a control is independent of what shadows are drawn with.

    The halves of a control that were drawn with the numbers of the shadows' halves would lie closer to some shadows than to
    others, and an attack would take that for membership.
    """
    return int(np.random.SeedSequence([seed, *name.encode()]).generate_state(1)[0])


def _beyond(evidence: Evidence, confidence: float) -> bool:
    """Whether members score higher than chance allows (Mann and Whitney 1947)."""
    from scipy.stats import mannwhitneyu

    inside, outside = evidence.score[evidence.inside], evidence.score[~evidence.inside]
    if np.ptp(evidence.score) == 0:
        return False
    test = mannwhitneyu(inside, outside, alternative="greater", method="asymptotic")
    return bool(test.pvalue < 1.0 - check.open_fraction("confidence", confidence))
