"""A recipe: how a model is built and trained, so that many like it can be."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from discreet.core import check
from discreet.errors import DiscreetError, InvalidValue
from discreet.models.predict import SMALLEST_PROBABILITY, Model, adapt, as_logits, names_classes

Array = NDArray[Any]
Predict = Callable[[Array], Array]  # inputs to one row of scores per example, one column per class

OPTIMIZERS = ("sgd", "adam", "adamw")
SCHEDULES = ("constant", "cosine")
PRECISIONS = ("float32", "bfloat16")


@dataclass(frozen=True)
class Recipe:
    """How a model is built and trained.

    `build` is one of four things, told apart by themselves unless `kind` says which:

    - "torch": a function that makes a fresh torch module, trained by cross-entropy of its logits, many at a time. The fields
      after `build` are for these alone. With `precision="bfloat16"` products are taken in bfloat16 and weights kept in float32,
      which on a GPU is more than twice as fast.
    - "estimator": a scikit-learn classifier, cloned for each model.
    - "trainer": any object with `fit((X, y))` that gives a model, such as a private training plan.
    - "fit": a function `fit(X, y)` that gives a model. Only this one must be named.

    A model is whatever `discreet.models.predict` can query: a function from rows to scores (logits, or probabilities), a torch
    module, a classifier, or a finished training run that holds its `model`.

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
    kind: Literal["torch", "estimator", "trainer", "fit"] | None = None

    def __post_init__(self) -> None:
        if self.kind is None:
            object.__setattr__(self, "kind", _kind(self.build))
        if self.kind == "torch" and hasattr(self.build, "forward") and not isinstance(self.build, type):
            name = type(self.build).__name__
            raise InvalidValue(f"build is a {name} itself; every model needs a fresh one: Recipe(lambda: {name}(…)).")
        if self.kind in ("torch", "fit") and not callable(self.build):
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
        """The autocast context of torch's forward passes."""
        if self.precision == "float32":
            return nullcontext()
        import torch

        return torch.autocast(device, torch.bfloat16, cache_enabled=False)  # a graph must not keep casts of older weights

    def fit_one(self, X: Array, y: Array, seed: int, classes: int | None = None) -> Predict:
        """One model of an estimator, a trainer or a function, that answers with a column for each of so many classes."""
        if self.kind == "estimator":
            from sklearn.base import clone

            model = clone(self.build)
            if "random_state" in model.get_params():
                model.set_params(random_state=seed)
            with _users_errors(len(X)):
                model.fit(X, y)
        else:
            with _users_errors(len(X)):
                model = self.build.fit((X, y)) if self.kind == "trainer" else self.build(X, y)
        queried = _queried(model)
        if names_classes(model):
            return lambda inputs: _columns(model.classes_, queried.scores(inputs), classes)
        return lambda inputs: as_logits(_complete(queried.scores(inputs), len(inputs), classes))

    def tried(self, X: Array, classes: int, counts: Iterable[int]) -> None:
        """Refuse a torch recipe that cannot learn such rows and classes, by building and querying a module before training.
        `counts` are the numbers of rows that models will be trained on."""
        import torch

        with torch.random.fork_rng(devices=[]), torch.no_grad():
            model, again = _built(self.build), _built(self.build)
            if {id(p) for p in model.parameters() if p.requires_grad} & {id(p) for p in again.parameters()}:
                raise InvalidValue("build gives the same weights each time; every model needs fresh ones: lambda: Module(…).")
            if any(hasattr(p, "materialize") for p in model.parameters()):
                raise InvalidValue("The recipe builds a module of lazy layers, which have no weights yet; say their widths.")
            rows = X[:2].cpu() if isinstance(X, torch.Tensor) else np.array(X[:2])
            try:
                scores = model.eval()(torch.as_tensor(rows, dtype=torch.float32))
            except Exception as error:
                raise InvalidValue(
                    f"The module that the recipe builds cannot be asked about rows of shape {X.shape[1:]}, as 32-bit floats: "
                    f"{' '.join(str(error).split())[:200]}. Where it takes whole numbers (tokens), say x.long() in its forward."
                ) from error
            self._batches(model, torch.as_tensor(rows[:1], dtype=torch.float32), counts)
        shape = tuple(getattr(scores, "shape", ()))
        if len(shape) != 2 or shape[1] < max(2, classes):
            more = (
                " One output for two classes is a second column: torch.cat([0 * z, z], 1)." if shape[1:] in ((), (1,)) else ""
            )
            raise InvalidValue(
                f"The module that the recipe builds must give a logit for each of {max(2, classes)} classes (labels from 0 to "
                f"{classes - 1}), [rows, classes]; for 2 rows it gave {shape or type(scores).__name__}.{more}"
            )
        if as_logits(table := scores.float().numpy()) is not table:
            warnings.warn(
                "The module that the recipe builds gives probabilities; it is trained by cross-entropy of logits, and learns "
                "less than it could. Leave its last softmax out.",
                stacklevel=3,
            )

    def _batches(self, model: Any, row: Any, counts: Iterable[int]) -> None:
        """Refuse a last batch of one row where the module cannot train on one, as batch normalisation cannot."""
        lone = [count for count in counts if count % self.batch_size == 1]
        if not lone:
            return
        try:
            model.train()(row)
        except ValueError as error:
            raise InvalidValue(
                f"{lone[0]} rows in batches of {self.batch_size} leave a last batch of one row, which the module of the recipe "
                f"cannot be trained on ({error}). Give the recipe another batch_size."
            ) from error


@contextmanager
def _users_errors(rows: int) -> Iterator[None]:
    """Report an error in the user's own training code as theirs."""
    try:
        yield
    except DiscreetError:
        raise
    except Exception as error:
        raise InvalidValue(
            f"The training of the recipe stopped on {rows} rows with {type(error).__name__}: "
            f"{' '.join(str(error).split())[:200]}. It must train on random halves of the rows, also without a rare class."
        ) from error


def _built(build: Callable[[], Any]) -> Any:
    """A module of a recipe; refused where there is none."""
    try:
        model = build()
    except TypeError as error:
        raise InvalidValue(
            f"build() stopped: {error}. It must make a torch module and is given nothing; a function fit(X, y) is kind='fit'."
        ) from error
    if not hasattr(model, "state_dict") or not hasattr(model, "forward"):
        raise InvalidValue(f"build() must make a torch module; it made a {type(model).__name__}.")
    return model


def _kind(build: Any) -> Literal["torch", "estimator", "trainer"]:
    if not hasattr(build, "fit"):
        return "torch"
    return "estimator" if hasattr(build, "get_params") else "trainer"


def _queried(model: Any) -> Model:
    try:
        return adapt(model)
    except InvalidValue:
        raise InvalidValue(
            f"fit must give a function from rows to scores, or a model; it gave a {type(model).__name__}."
        ) from None


def _complete(scores: Any, rows: int, classes: int | None) -> Array:
    """The scores of a user's model, if there is a column for every class."""
    table = np.asarray(scores)
    if table.ndim != 2 or len(table) != rows or (classes is not None and table.shape[1] < classes):
        wanted = f"[{rows}, {classes or 'classes'}]"
        raise InvalidValue(
            f"predict(X) must give a score for each row and class, {wanted}; got shape {table.shape}. A class that is not "
            "among the rows a model was fitted on needs a column too."
        )
    return table


def _columns(names: Any, scores: Array, classes: int | None) -> Array:
    """Put score columns at their class numbers: classes missing from the training rows get probability 0."""
    if classes is None or len(names) == classes:
        return scores
    table = np.repeat(scores.min(1, keepdims=True) + np.log(SMALLEST_PROBABILITY), classes, 1)
    table[:, np.asarray(names, np.int64)] = scores
    return table
