"""Query synthesis: rows made by hill climbing on the target's confidence in a class (Shokri et al. 2017, algorithm 1).

Many rows climb at once, so that one batch of queries moves all of them. Each row keeps its own count of rejections and its own
number of features to change, which is halved after too many rejections; a finished row makes room for the next.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from discreet.core import check
from discreet.errors import InvalidValue
from discreet.models import predict

Array = NDArray[Any]


@dataclass(frozen=True)
class Synthesised:
    """Rows that the target is sure of, and what they cost."""

    X: NDArray[np.float32]
    y: NDArray[np.int64]
    wanted: int  # rows asked for; those that were given up are left out of X
    queries: int

    def __repr__(self) -> str:
        return f"Synthesised({len(self.X)} of {self.wanted} rows, {self.queries} queries)"


def query_synthesis(
    target: Any, classes: ArrayLike, values: ArrayLike, *, confidence: float = 0.8, most: int | None = None, least: int = 1,
    patience: int = 10, steps: int = 1000, batch: int = 2048, seed: int = 0,
) -> Synthesised:  # fmt: skip
    """A row for each of `classes` that the target gives a probability above `confidence`.

    `values` says how many values each feature has: 2 for a bit, n for whole numbers from 0 to n - 1. At each step a row has
    up to `most` features changed (half of all to begin with), after `patience` rejections half as many, never fewer than
    `least`. A row is given up after `steps`.

    >>> surely = query_synthesis(lambda X: np.stack([X.sum(1), 8.0 - X.sum(1)], 1), [0, 1, 1], np.full(8, 2), confidence=0.95)
    >>> surely.y.tolist(), (surely.X.sum(1) > 4).tolist()
    ([0, 1, 1], [True, False, False])
    """
    sizes = np.asarray(values)
    if sizes.ndim != 1 or sizes.dtype.kind not in "iu" or not len(sizes) or int(sizes.min()) < 2:
        raise InvalidValue("values must say for each feature how many values it has, at least 2.")
    goals = np.asarray(classes)
    if goals.ndim != 1 or goals.dtype.kind not in "iu" or not len(goals) or int(goals.min()) < 0:
        raise InvalidValue("classes must be a list of labels, whole numbers from 0, one for each row wanted.")
    most = max(1, len(sizes) // 2) if most is None else check.whole("most", most, most=len(sizes))
    climbers = _Climbers(
        target, goals.astype(np.int64), sizes, check.open_fraction("confidence", confidence), most,
        check.whole("least", least, most=most), check.whole("patience", patience), check.whole("steps", steps),
        np.random.default_rng(seed),
    )  # fmt: skip
    return climbers.run(check.whole("batch", batch))


class _Climbers:
    """The rows that climb now, and where each stands."""

    def __init__(
        self, target: Any, goals: Array, sizes: Array, confidence: float, most: int, least: int, patience: int, steps: int,
        rng: np.random.Generator,
    ) -> None:  # fmt: skip
        self.target, self.goals, self.sizes, self.rng = target, goals, sizes, rng
        self.confidence, self.most, self.least, self.patience, self.steps = confidence, most, least, patience, steps
        self.binary = bool((sizes == 2).all())

    def run(self, batch: int) -> Synthesised:
        count = min(batch, len(self.goals))
        self.begin(count)
        kept: list[tuple[Array, Array]] = []
        queries = waiting = 0
        waiting = count
        while len(self.X):
            places, before = self.move()
            sure, right = self.query()
            queries += len(self.X)
            done = self.judge(sure, right, places, before)
            over = done | (self.taken >= self.steps)
            if over.any():
                kept.append((self.which[done], self.X[done].copy()))
                waiting = self.replace(np.flatnonzero(over), waiting)
        which = np.concatenate([part for part, _ in kept]) if kept else np.zeros(0, np.int64)
        rows = np.concatenate([part for _, part in kept]) if kept else np.zeros((0, len(self.sizes)), np.float32)
        order = np.argsort(which)
        return Synthesised(rows[order], self.goals[which[order]], len(self.goals), queries)

    def begin(self, count: int) -> None:
        self.which = np.arange(count)
        self.X = self.drawn(count)
        self.best = np.full(count, -1.0)  # below any probability: the first answer is always kept
        self.change = np.full(count, self.most)
        self.rejected = np.zeros(count, np.int64)
        self.taken = np.zeros(count, np.int64)

    def drawn(self, count: int) -> NDArray[np.float32]:
        if self.binary:
            return self.rng.integers(0, 2, (count, len(self.sizes)), dtype=np.uint8).astype(np.float32)
        return self.rng.integers(0, self.sizes, (count, len(self.sizes))).astype(np.float32)

    def move(self) -> tuple[Array, Array]:
        """Change some features of every row that has an answer; the places (in X laid flat) and what stood there."""
        width, flat = len(self.sizes), self.X.reshape(-1)
        change = np.where(self.best < 0, 0, self.change)
        self.changed = change
        places = np.repeat(np.arange(0, flat.size, width), change)
        features = self.rng.integers(0, width, len(places), dtype=np.uint16 if width < 1 << 16 else np.int64)
        places += features  # one drawn twice is changed once
        before = flat.take(places)
        if self.binary:
            flat[places] = 1.0 - before
        else:
            size = self.sizes[features]
            flat[places] = (before + 1 + self.rng.integers(0, size - 1)) % size
        self.taken += 1
        return places, before

    def query(self) -> tuple[Array, Array]:
        """The probability of each row's goal, and whether it is the target's first choice."""
        scores = np.asarray(predict.scores(self.target, self.X))
        if scores.ndim != 2 or len(scores) != len(self.X) or int(self.goals.max()) >= scores.shape[1]:
            raise InvalidValue(
                f"The target must give a score for each row and class, up to class {int(self.goals.max())}; got {scores.shape}."
            )
        top = scores.max(1)
        if not np.isfinite(top).all():
            raise InvalidValue("The target gives NaN or infinite scores; log-probabilities of 0 must be clipped.")
        goal, rows = self.goals[self.which], np.arange(len(self.X))
        own = scores[rows, goal]
        sure = np.exp(own - top) / np.exp(scores - top[:, None]).sum(1)
        return sure, own >= top

    def judge(self, sure: Array, right: Array, places: Array, before: Array) -> NDArray[np.bool_]:
        """Keep what is no worse, take back the rest; which rows are finished."""
        better = sure >= self.best
        back = np.flatnonzero(np.repeat(~better, self.changed))
        self.X.reshape(-1)[places.take(back)] = before.take(back)
        self.best = np.where(better, sure, self.best)
        self.rejected = np.where(better, 0, self.rejected + 1)
        tired = self.rejected > self.patience
        self.change[tired] = np.maximum(self.least, -(-self.change[tired] // 2))
        self.rejected[tired] = 0
        return better & right & (sure > self.confidence) & (self.rng.random(len(sure)) < sure)

    def replace(self, places: Array, waiting: int) -> int:
        """The next rows take the places of those that are over; where none wait, the places go."""
        fresh = places[: len(self.goals) - waiting]
        self.which[fresh] = np.arange(waiting, waiting + len(fresh))
        self.X[fresh] = self.drawn(len(fresh))
        self.best[fresh], self.change[fresh], self.rejected[fresh], self.taken[fresh] = -1.0, self.most, 0, 0
        stay = np.ones(len(self.X), np.bool_)
        stay[places[len(fresh) :]] = False
        if not stay.all():
            self.which, self.X, self.best = self.which[stay], self.X[stay], self.best[stay]
            self.change, self.rejected, self.taken = self.change[stay], self.rejected[stay], self.taken[stay]
        return waiting + len(fresh)
