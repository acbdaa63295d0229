"""Model inversion: a picture that a classifier takes for one class, and what it shows of the people of that class.

Fredrikson et al. 2015 climbed the confidence of a face recogniser and saw faces. A picture is sought here among those that a
prior draws: the one that tells the class apart by the widest margin. White-box attacks climb the gradient, black-box ones
estimate it from confidences by antithetic draws, and where only labels are answered a point moves away from the directions in
which the label is lost.

What is found is about a class. Where a class is a person it is about that person; where it is a disease it is about nobody.
There is no neighbouring data set in this game, so no ε bounds it; `compared` sets it beside what is said without the model.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from discreet.attack.inversion.prior import LEAST, Prior
from discreet.attack.stealing.oracle import Oracle
from discreet.attack.tables.risks import Risk, compared
from discreet.core import check
from discreet.errors import InvalidValue

if TYPE_CHECKING:
    from torch import nn

Floats = NDArray[np.float64]
Ask = Callable[[Floats], Any]
Progress = Callable[[int, int], None]


@dataclass(frozen=True, eq=False)
class Recreated:
    """One picture a class, [classes, height, width, channels] within 0 and 1, and how many answers of the model it took."""

    pictures: Floats
    classes: NDArray[np.int64]
    method: str
    queries: int

    def compared(
        self, recognise: Callable[[Floats], Any], truth: ArrayLike, blind: ArrayLike, *, confidence: float = 0.95
    ) -> tuple[Risk, NDArray[np.int64]]:
        """How often a recogniser that never saw the training pictures says the right person, and the right person's rank.

        `recognise` gives scores [pictures, people], `truth` the place of each class among these people. `blind` are pictures
        that were made without the model, such as the mean of the public ones: what they reach is the baseline.
        """
        place = np.asarray(truth, np.int64)
        scores, without = np.asarray(recognise(self.pictures)), np.asarray(recognise(np.asarray(blind, np.float64)))
        if scores.ndim != 2 or len(scores) != len(place) or len(without) != len(place):
            raise InvalidValue(
                f"There are {len(self.pictures)} pictures; give the place of each, and one blind picture for each."
            )
        rank, blind_rank = (_beside(each, place) for each in (scores, without))
        return compared("a person recognised", rank == 0, blind_rank == 0, 1 / scores.shape[1], confidence), rank


@dataclass(frozen=True)
class ClassInversion:
    """Recreate a picture of each class under a prior. `draws`: answers a step, where there are no gradients."""

    prior: Prior
    steps: int = 200
    draws: int = 60
    seed: int = 0
    name: str = "model inversion"
    view: frozenset[str] = frozenset({"scores"})

    def __post_init__(self) -> None:
        check.whole("steps", self.steps)
        check.whole("draws", self.draws, least=2)

    def from_gradients(self, model: nn.Module, classes: Sequence[int], *, progress: Progress | None = None) -> Recreated:
        """White-box: `model` takes [rows, channels, height, width] or flat rows and gives logits. It stays as it is."""
        import torch

        wanted, random = _classes(classes), np.random.default_rng(self.seed)
        place = torch.tensor(wanted)
        points = torch.tensor(random.normal(size=(len(wanted), self.prior.size)) * 1e-2, requires_grad=True)
        search = torch.optim.Adam([points], 0.05)
        training, kind = model.training, next((each.dtype for each in model.parameters()), torch.float32)
        model.eval()
        try:
            for step in range(self.steps):
                logits = model(_laid(self.prior.drawn(points).to(kind), self.prior.shape, model)).double()
                _asked_for(wanted, logits.shape)
                own = logits.gather(1, place[:, None])[:, 0]
                rest = logits.scatter(1, place[:, None], -torch.inf).logsumexp(dim=1)
                (points.grad,) = torch.autograd.grad((rest - own).sum(), [points])
                search.step()
                if progress is not None:
                    progress(step + 1, self.steps)
        finally:
            model.train(training)
        return self._made(points.detach().numpy(), wanted, "white-box", 2 * self.steps * len(wanted))

    def from_scores(self, ask: Ask, classes: Sequence[int], *, progress: Progress | None = None) -> Recreated:
        """Black-box: `ask` takes pictures [rows, height, width, channels] and gives the confidence of each class.

        An interface that fails or limits its rate is waited for. An `Oracle`, which is asked about flat rows, also bounds the
        queries and keeps a journal, from which the same attack goes on.
        """
        oracle = self._oracle(ask)

        def margin(pictures: Floats, wanted: NDArray[np.int64]) -> Floats:
            given = oracle(pictures.reshape(len(pictures), -1))
            _asked_for(wanted, given.shape)
            own = np.clip(given[np.arange(len(wanted)), wanted], LEAST, 1 - LEAST)
            return np.asarray(np.log(own) - np.log1p(-own))

        return self._climbed(margin, classes, "black-box", progress)

    def from_labels(self, ask: Ask, classes: Sequence[int], *, progress: Progress | None = None) -> Recreated:
        """Label-only: `ask` gives a class for each picture. Directions that keep the class outweigh those that lose it."""
        oracle = self._oracle(ask)

        def kept(pictures: Floats, wanted: NDArray[np.int64]) -> Floats:
            given = oracle(pictures.reshape(len(pictures), -1))
            if given.shape[1] != 1:
                raise InvalidValue(f"The model gave {given.shape[1]} numbers for each picture, not a label: use from_scores.")
            return np.asarray(given[:, 0] == wanted, np.float64)

        return self._climbed(kept, classes, "label-only", progress, wide=3.0)

    def _oracle(self, ask: Ask) -> Oracle:
        return ask if isinstance(ask, Oracle) else Oracle(lambda rows: ask(rows.reshape(-1, *self.prior.shape)))

    def _climbed(
        self, worth: Callable[[Floats, NDArray[np.int64]], Floats], classes: Sequence[int], method: str,
        progress: Progress | None, wide: float = 0.5,
    ) -> Recreated:  # fmt: skip
        """Gradients estimated from pairs of opposite draws, ranked, and Adam; all classes at once.

        With labels alone draws are wide, so that a class is met at all, and points with no answer yet take the whole draw.
        """
        wanted, random = _classes(classes), np.random.default_rng(self.seed)
        half, size = self.draws // 2, self.prior.size
        points = random.normal(size=(len(wanted), size)) * 0.1
        first, second = np.zeros_like(points), np.zeros_like(points)
        for step in range(self.steps):
            spread = wide * max(1.0, float(np.sqrt((points**2).mean()))) / np.sqrt(1 + step / 20)
            draws = random.normal(size=(len(wanted), half, size))
            tried = np.concatenate([points[:, None] + spread * draws, points[:, None] - spread * draws], axis=1)
            pictures = np.clip(self.prior.pictures(tried), 0, 1).reshape(-1, *self.prior.shape)
            value = worth(pictures, np.repeat(wanted, 2 * half)).reshape(len(wanted), 2 * half)
            value = value - value.mean(axis=1, keepdims=True)
            value /= value.std(axis=1, keepdims=True) + LEAST
            slope = np.einsum("cd,cdw->cw", value[:, :half] - value[:, half:], draws) / half
            first, second = 0.9 * first + 0.1 * slope, 0.99 * second + 0.01 * slope**2
            points = points + 0.1 * (first / (1 - 0.9 ** (step + 1))) / (np.sqrt(second / (1 - 0.99 ** (step + 1))) + 1e-8)
            if progress is not None:
                progress(step + 1, self.steps)
        return self._made(points, wanted, method, len(wanted) * 2 * half * self.steps)

    def _made(self, points: Floats, wanted: NDArray[np.int64], method: str, queries: int) -> Recreated:
        pictures = np.clip(self.prior.pictures(points), 0, 1).reshape(-1, *self.prior.shape)
        if not np.isfinite(pictures).all():
            raise InvalidValue("The model answers NaN or infinity on the way; nothing can be recreated from it.")
        return Recreated(pictures, wanted, method, queries)


def _beside(scores: Floats, place: NDArray[np.int64]) -> NDArray[np.int64]:
    """How many others a recogniser finds at least as likely as the right one: a tie recognises nobody."""
    if not np.isfinite(scores).all():
        raise InvalidValue("The recogniser gives NaN or infinity for a picture.")
    return np.asarray((scores >= scores[np.arange(len(place)), place][:, None]).sum(axis=1) - 1, np.int64)


def _laid(rows: Any, shape: tuple[int, int, int], model: Any) -> Any:
    """Rows as the model takes them: pictures where its first layer is a convolution, flat otherwise."""
    from torch import nn

    first = next((each for each in model.modules() if isinstance(each, (nn.Linear, nn.Conv2d))), None)
    return rows.reshape(-1, *shape).permute(0, 3, 1, 2) if isinstance(first, nn.Conv2d) else rows


def _classes(classes: Sequence[int]) -> NDArray[np.int64]:
    found = np.asarray(list(classes))
    if found.ndim != 1 or not len(found) or found.dtype.kind not in "iu" or (found < 0).any():
        raise InvalidValue("classes must be whole numbers from 0, the places of the classes to recreate.")
    return found.astype(np.int64)


def _asked_for(wanted: NDArray[np.int64], shape: tuple[int, ...]) -> None:
    if len(shape) != 2 or shape[0] != len(wanted) or shape[1] < 2 or wanted.max() >= shape[1]:
        raise InvalidValue(
            f"The model gave {tuple(shape)} for {len(wanted)} pictures; needed is a score for each of two or more classes, "
            f"class {int(wanted.max())} among them. For a model that answers labels only use from_labels."
        )
