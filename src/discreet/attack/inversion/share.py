"""Property inference: what share of a model's training rows has a property, such as being of one sex (Ateniese et al. 2015).

Shadow models are trained on rows whose share is known. How they answer on the same probes tells the share; ridge regression
learns it on half of them, and errors on the other half give the interval: where shadows were made as the model was, it holds
the share with at least the stated probability, whatever the regression is worth (split conformal prediction). This is about the
training data as a whole, which no claim about one person bounds.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from discreet.core import check
from discreet.errors import InvalidValue
from discreet.models import Trainer, predict

Floats = NDArray[np.float64]
Fit = Callable[[Any, Any, np.random.Generator], Callable[[Any], Any]]
Progress = Callable[[int, int], None]
STEPS = np.logspace(-4, 4, 17)  # penalties tried


@dataclass(frozen=True)
class Share:
    """The estimate, its interval; `blind` is the half width of such an interval without the model."""

    estimate: float
    low: float
    high: float
    confidence: float
    blind: float

    def to_json(self, name: str) -> dict[str, Any]:
        """One line of the fact `shares` of a release."""
        return {"property": name, **asdict(self)}

    def __str__(self) -> str:
        return f"{self.estimate:.1%} of the training rows ({self.low:.1%} to {self.high:.1%}, {self.confidence:.0%} confidence)"


@dataclass(frozen=True)
class PropertyInference:
    """`shadows` models of `rows` rows each, with shares drawn evenly between `least` and `most`."""

    rows: int
    shadows: int = 200
    least: float = 0.05
    most: float = 0.95
    seed: int = 0
    name: str = "property inference"
    view: frozenset[str] = frozenset({"scores"})

    def __post_init__(self) -> None:
        check.whole("rows", self.rows, least=2)
        check.whole("shadows", self.shadows, least=40)
        if not 0 <= check.fraction("least", self.least) < check.fraction("most", self.most) <= 1:
            raise InvalidValue(f"least={self.least:g} must lie below most={self.most:g}, both within 0 and 1.")

    def infer(
        self, model: Any, fit: Fit | Trainer, X: ArrayLike, y: ArrayLike, has: ArrayLike, probes: ArrayLike, *,
        confidence: float = 0.95, progress: Progress | None = None,
    ) -> Share:  # fmt: skip
        """The share in the training rows of `model`, a function from rows to scores.

        `fit` is a `Trainer`, which trains all shadows as one job, or a function `fit(X, y, rng)` that trains one as the model
        was trained. `X`, `y` and `has` are rows of the attacker's own, with labels and whether each has the property; `probes`
        are rows to ask about. A `Trainer` draws no row twice, so it needs enough of either kind for the largest shares.
        """
        rows, labels, marked = np.asarray(X), np.asarray(y), np.asarray(has, np.bool_)
        check.open_fraction("confidence", confidence)
        calibration = self.shadows // 2
        place = math.ceil((calibration + 1) * confidence)
        if not (len(rows) == len(labels) == len(marked)) or not marked.any() or marked.all():
            raise InvalidValue("X, y and has must be of one length, with rows that have the property and rows that have not.")
        if place > calibration:
            needed = 2 * math.ceil(confidence / (1 - confidence))
            raise InvalidValue(f"{self.shadows} shadows do not give an interval of {confidence:g}; {needed} or more do.")
        rng = np.random.default_rng(self.seed)
        shares = rng.uniform(self.least, self.most, self.shadows)
        if isinstance(fit, Trainer):
            answers = self._together(fit, rows, labels, marked, shares, np.asarray(probes), rng, progress)
            ask = predict.adapt(model).scores
            asked = _seen(lambda each: predict.as_logits(ask(each)), probes)
        else:
            answers, asked = [], _seen(model, probes)
            for done, share in enumerate(shares):
                held = _drawn(marked, share, self.rows, rng)
                answers.append(_seen(fit(rows[held], labels[held], rng), probes))
                if progress is not None:
                    progress(done + 1, self.shadows)
        known = np.array(answers)
        if asked.shape != known[0].shape:
            raise InvalidValue(
                f"The model gave {asked.size} scores for the probes, shadows {known[0].size}; both must answer alike."
            )
        learn = slice(calibration, None)
        line = _ridge(known[learn], shares[learn])
        wrong = np.sort(np.abs(line(known[:calibration]) - shares[:calibration]))
        middle, width = float(line(asked[None])[0]), float(wrong[place - 1])
        blind = np.sort(np.abs(shares[:calibration] - shares[learn].mean()))[place - 1]
        if middle + width < 0 or middle - width > 1:
            raise InvalidValue(
                "Shadows of every share answer otherwise than this model: it was not trained as they were. Say how it was "
                "(rows, epochs, penalties), or nothing follows."
            )
        low, high = max(0.0, middle - width), min(1.0, middle + width)
        return Share(min(max(middle, 0.0), 1.0), low, high, confidence, float(blind))

    def _together(
        self, trainer: Trainer, rows: Any, labels: Any, marked: NDArray[np.bool_], shares: Floats, probes: Any,
        rng: np.random.Generator, progress: Progress | None,
    ) -> list[Floats]:  # fmt: skip
        """What shadows answer that are trained as one job, on rows of which none is drawn twice."""
        most, least = shares.max(), shares.min()
        if round(most * self.rows) > marked.sum() or self.rows - round(least * self.rows) > (~marked).sum():
            raise InvalidValue(
                f"Shares from {least:.0%} to {most:.0%} of {self.rows} rows need as many rows with the property, and as many "
                f"without; there are {int(marked.sum())} and {int((~marked).sum())}. Narrow them (least, most)."
            )
        inside = np.zeros((len(shares), len(rows)), np.bool_)
        for each, share in zip(inside, shares):
            each[_drawn(marked, share, self.rows, rng)] = True
        found = trainer.many(rows, labels, inside, seed=self.seed, query=probes, progress=progress).scores
        return [np.asarray(scores, np.float64).ravel() for scores in found]


def _drawn(marked: NDArray[np.bool_], share: float, count: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """Rows of which `share` have the property, without repeats where there are enough."""
    inside = round(share * count)
    parts = [(np.flatnonzero(marked), inside), (np.flatnonzero(~marked), count - inside)]
    return np.concatenate([rng.choice(rows, number, replace=number > len(rows)) for rows, number in parts])


def _seen(model: Callable[[Any], Any], probes: ArrayLike) -> Floats:
    answers = np.asarray(model(np.asarray(probes)), np.float64).ravel()
    if not np.isfinite(answers).all():
        raise InvalidValue("The model answered with numbers that are not finite. Probabilities or clipped logits are needed.")
    return answers


def _ridge(seen: Floats, truth: Floats) -> Callable[[Floats], Floats]:
    """Ridge regression, with the penalty of the least error when each row is left out in turn."""
    middle, spread = seen.mean(axis=0), seen.std(axis=0) + 1e-12
    left, sizes, right = np.linalg.svd((seen - middle) / spread, full_matrices=False)
    centred = truth - truth.mean()
    best = None
    for penalty in STEPS * len(seen):
        kept = sizes**2 / (sizes**2 + penalty)
        leverage = (left**2 @ kept) + 1 / len(seen)
        error = float((((centred - left @ (kept * (left.T @ centred))) / (1 - leverage)) ** 2).mean())
        if best is None or error < best[0]:
            best = error, right.T @ (sizes / (sizes**2 + penalty) * (left.T @ centred))
    assert best is not None
    slope = best[1]
    return lambda rows: np.asarray(truth.mean() + (rows - middle) / spread @ slope)
