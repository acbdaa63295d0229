"""A recipe: how a model is built and trained, so that many like it can be."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from discreet.core import check
from discreet.errors import InvalidValue

Array = NDArray[Any]
Predict = Callable[[Array], Array]  # inputs to one row of scores per example, one column per class
Fit = Callable[[Array, Array], Predict]

OPTIMIZERS = ("sgd", "adam", "adamw")
SCHEDULES = ("constant", "cosine")
PRECISIONS = ("float32", "bfloat16")


@dataclass(frozen=True)
class Recipe:
    """How a model is built and trained.

    `build` makes a fresh torch module (for as many classes as there are), or is a scikit-learn estimator, or, with
    `kind="fit"`, a function `fit(X, y) -> predict` where `predict(X)` gives a score per class. Only torch modules are trained
    many at a time; what stands after `build` is for them alone. With `precision="bfloat16"` products are taken in bfloat16 and
    weights kept in float32, which on a GPU is more than twice as fast.

    >>> from torch import nn
    >>> Recipe(lambda: nn.Linear(3, 2), epochs=5).kind
    'torch'
    """

    build: Any
    epochs: int = 40
    batch_size: int = 64
    optimizer: str = "adam"
    learning_rate: float = 1e-3
    momentum: float = 0.0
    weight_decay: float = 0.0
    schedule: str = "constant"
    label_smoothing: float = 0.0
    augment: Callable[[Any], Any] | None = None
    precision: str = "float32"
    kind: Literal["torch", "estimator", "fit"] | None = None

    def __post_init__(self) -> None:
        if self.kind is None:
            object.__setattr__(self, "kind", "estimator" if hasattr(self.build, "fit") else "torch")
        if self.kind != "estimator" and not callable(self.build):
            raise InvalidValue(
                f"build must be a function that makes a torch module, or an estimator; got {type(self.build).__name__}."
            )
        check.whole("epochs", self.epochs)
        check.whole("batch_size", self.batch_size)
        check.word("optimizer", self.optimizer, OPTIMIZERS)
        check.word("schedule", self.schedule, SCHEDULES)
        check.word("precision", self.precision, PRECISIONS)
        check.positive("learning_rate", self.learning_rate)
        check.nonnegative("weight_decay", self.weight_decay)
        check.fraction("label_smoothing", self.label_smoothing)
        check.fraction("momentum", self.momentum)

    def rate(self, epoch: int) -> float:
        """The learning rate of an epoch."""
        if self.schedule == "constant":
            return self.learning_rate
        return float(self.learning_rate * 0.5 * (1.0 + np.cos(np.pi * epoch / self.epochs)))

    def mixed(self, device: str) -> AbstractContextManager[Any]:
        """In which torch's forward passes run."""
        if self.precision == "float32":
            return nullcontext()
        import torch

        return torch.autocast(device, torch.bfloat16, cache_enabled=False)  # a graph must not keep casts of older weights

    def many(self, X: Array, y: Array, inside: NDArray[np.bool_], *, seed: int = 0, device: str = "cpu") -> NDArray[np.float32]:
        """The scores [models, rows, classes] of a model for each row of `inside`, trained on the rows of X it marks."""
        from discreet.attack.membership.shadow import train_shadows

        return train_shadows(self, X, y, inside, seed=seed, device=device).scores

    def one(self, X: Array, y: Array, *, seed: int = 0, device: str = "cpu") -> Any:
        """A torch module trained on all rows. `y` are labels, or a law over the classes for each row."""
        import torch

        from discreet.attack.membership.shadow.singly import Loop
        from discreet.attack.membership.shadow.train import one_thread

        rows = torch.as_tensor(X, dtype=torch.float32).to(device)
        wanted = torch.as_tensor(y, dtype=torch.long if np.ndim(y) == 1 else torch.float32).to(device)
        with torch.random.fork_rng(devices=[rows.device] if rows.is_cuda else []), one_thread(device):
            torch.manual_seed(seed)
            loop = Loop(self, rows, wanted)
            loop.train(torch.arange(len(rows), device=rows.device), seed)
        loop.model.zero_grad(set_to_none=True)
        return loop.model.eval()

    def fit_one(self, X: Array, y: Array, seed: int) -> Predict:
        """One model of an estimator or of a function."""
        if self.kind == "fit":
            made: Predict = self.build(X, y)
            return made
        from sklearn.base import clone

        model = clone(self.build)
        if "random_state" in model.get_params():
            model.set_params(random_state=seed)
        model.fit(X, y)
        return lambda inputs: scores_of(model, inputs)


def scores_of(model: Any, X: Array) -> Array:
    """Log-probabilities (or decision values) of a scikit-learn classifier, a column per class in the order of its classes."""
    if hasattr(model, "predict_proba"):
        return np.log(np.clip(np.asarray(model.predict_proba(X), np.float64), 1e-12, 1.0))
    if hasattr(model, "decision_function"):
        found = np.asarray(model.decision_function(X), np.float64)
        return np.stack([-found, found], 1) if found.ndim == 1 else found
    raise InvalidValue(f"{type(model).__name__} gives neither probabilities nor decision values; membership needs one of them.")
