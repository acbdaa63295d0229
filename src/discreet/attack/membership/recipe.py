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

Array = NDArray[Any]
Predict = Callable[[Array], Array]  # inputs to one row of scores per example, one column per class
Fit = Callable[[Array, Array], Predict]

OPTIMIZERS = ("sgd", "adam", "adamw")
SCHEDULES = ("constant", "cosine")
PRECISIONS = ("float32", "bfloat16")
LEAST = 1e-12  # probability


@dataclass(frozen=True)
class Recipe:
    """How a model is built and trained.

    `build` makes a fresh torch module (for as many classes as there are), or is a scikit-learn estimator, or, with
    `kind="fit"`, a function `fit(X, y) -> predict` where `predict(X)` gives a score per class: logits, or probabilities, of
    which the logarithm is taken. Only torch modules are trained many at a time, by cross-entropy of their logits; what stands
    after `build` is for them alone. With `precision="bfloat16"` products are taken in bfloat16 and weights kept in float32,
    which on a GPU is more than twice as fast.

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
        if self.kind == "torch" and hasattr(self.build, "forward") and not isinstance(self.build, type):
            name = type(self.build).__name__
            raise InvalidValue(f"build is a {name} itself; every model needs a fresh one: Recipe(lambda: {name}(…)).")
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

        self.tried(X, 2, [len(X)])
        rows = torch.as_tensor(X, dtype=torch.float32).to(device)
        wanted = torch.as_tensor(y, dtype=torch.long if np.ndim(y) == 1 else torch.float32).to(device)
        with torch.random.fork_rng(devices=[rows.device] if rows.is_cuda else []), one_thread(device):
            torch.manual_seed(seed)
            loop = Loop(self, rows, wanted)
            loop.train(torch.arange(len(rows), device=rows.device), seed)
        loop.model.zero_grad(set_to_none=True)
        return loop.model.eval()

    def fit_one(self, X: Array, y: Array, seed: int, classes: int | None = None) -> Predict:
        """One model of an estimator or of a function, that answers with a column for each of so many classes."""
        if self.kind == "fit":
            with _told(len(X)):
                made: Predict = self.build(X, y)
            if not callable(made):
                raise InvalidValue(f"fit(X, y) must give a function from rows to scores; it gave a {type(made).__name__}.")
            return lambda inputs: as_logits(_complete(made(inputs), len(inputs), classes))
        from sklearn.base import clone

        model = clone(self.build)
        if "random_state" in model.get_params():
            model.set_params(random_state=seed)
        with _told(len(X)):
            model.fit(X, y)
        return lambda inputs: _placed(model, scores_of(model, inputs), classes)

    def tried(self, X: Array, classes: int, counts: Iterable[int]) -> None:
        """Refuse a torch recipe that cannot learn such rows and classes, before anything is trained: it is built and asked.
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
        if as_logits(found := scores.float().numpy()) is not found:
            warnings.warn(
                "The module that the recipe builds gives probabilities; it is trained by cross-entropy of logits, and learns "
                "less than it could. Leave its last softmax out.",
                stacklevel=3,
            )

    def _batches(self, model: Any, row: Any, counts: Iterable[int]) -> None:
        """Refuse a last batch of one row where the module cannot be trained on one: by itself it has no spread to divide by."""
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
def _told(rows: int) -> Iterator[None]:
    """What a user's own training stops with is told as theirs."""
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


def scores_of(model: Any, X: Array) -> Array:
    """Log-probabilities (or decision values) of a scikit-learn classifier, a column per class in the order of its classes."""
    with warnings.catch_warnings():  # columns are in the order of those it was fitted on, whatever they were called
        warnings.filterwarnings("ignore", "X does not have valid feature names")
        if hasattr(model, "predict_proba"):
            return logarithms(np.asarray(model.predict_proba(X), np.float64))
        if hasattr(model, "decision_function"):
            found = np.asarray(model.decision_function(X), np.float64)
            return np.stack([-found, found], 1) if found.ndim == 1 else found
    raise InvalidValue(f"{type(model).__name__} gives neither probabilities nor decision values; membership needs one of them.")


def logarithms(law: Array) -> Array:
    """Of probabilities. What is 0 counts as half of the least that was said: a forest of 20 trees means less than 1/20 by it,
    and at a millionth of a millionth its rows would lie so far from all others that nothing could be told of them.

    >>> np.exp(logarithms(np.array([[1.0, 0.0], [0.9, 0.1]]))).round(3).tolist()
    [[1.0, 0.05], [0.9, 0.1]]
    """
    said = law[law > 0]
    return np.log(np.clip(law, max(LEAST, 0.5 * float(said.min(initial=1.0))), 1.0))


def as_logits(scores: Array) -> Array:
    """Scores as they are; probabilities (none below 0, every row summing to 1) by their logarithm."""
    scores = np.asarray(scores)
    if scores.ndim < 2 or not scores.size or not (scores.min() >= 0) or not np.allclose(scores.sum(-1), 1.0, atol=1e-3):
        return scores
    return logarithms(scores.astype(np.float64))


def _complete(scores: Any, rows: int, classes: int | None) -> Array:
    """The scores of a user's function, if there is a column for every class."""
    found = np.asarray(scores)
    if found.ndim != 2 or len(found) != rows or (classes is not None and found.shape[1] < classes):
        wanted = f"[{rows}, {classes or 'classes'}]"
        raise InvalidValue(
            f"predict(X) must give a score for each row and class, {wanted}; got shape {found.shape}. A class that is not "
            "among the rows a model was fitted on needs a column too."
        )
    return found


def _placed(model: Any, scores: Array, classes: int | None) -> Array:
    """Columns at the numbers of their classes: a model may be fitted on rows that lack some. Those it holds impossible."""
    if classes is None or len(model.classes_) == classes:
        return scores
    made = np.repeat(scores.min(1, keepdims=True) + np.log(LEAST), classes, 1)
    made[:, np.asarray(model.classes_, np.int64)] = scores
    return made
