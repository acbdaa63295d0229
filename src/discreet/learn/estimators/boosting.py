"""Gradient boosting from noisy histograms of gradients, as a mechanism.

Columns and cuts of every step are drawn beforehand from public numbers alone, so only leaves are learned: a step sums
gradient and curvature of the rows in each leaf. docs/theory/boosting.md has the proof.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from discreet.accounting import calibrate
from discreet.core import Claim, Event, Game, Gaussian, Repeat, Sequence, Unit, check
from discreet.learn.estimators import exact
from discreet.learn.estimators.exact import GRAIN, TOLERANCE, Floats
from discreet.learn.estimators.mechanisms import for_unit, group_size

Bins = NDArray[np.uint16]  # [columns, rows]

PASSES, TREES, DEPTH = 6, 100, 4  # passes over single columns, then trees of so many cuts
SINGLE = 0.7  # the share of the variance's inverse that buys the steps of single columns
RATE = 0.5  # the learning rate of every step but the first
LARGEST = 0.5  # gradient of a row; the curvature is at most a quarter
LENGTH = math.hypot(LARGEST, 0.25)  # of both
SPREAD = {1: 0.5, DEPTH: 0.2}  # the prior standard deviation of a leaf's true value, by depth
FARTHEST = 2.0  # that one step moves a score
MOST_BINS = 1 << 12


@dataclass(frozen=True, slots=True, eq=False)
class Step:
    """The columns of a step and, for each bin of them, its side of a cut; a single column has a leaf for each bin."""

    columns: tuple[int, ...]
    sides: tuple[NDArray[np.uint16], ...]
    leaves: int

    def leaf(self, bins: Bins) -> NDArray[np.intp]:
        """The leaf of every row."""
        result = np.zeros(bins.shape[1], np.intp)
        for column, side in zip(self.columns, self.sides):
            result = result * (int(side.max()) + 1 if len(self.columns) == 1 else 2) + side[bins[column]]
        return result


@lru_cache(maxsize=32)
def plan(sizes: tuple[int, ...], unordered: frozenset[int]) -> tuple[Step, ...]:
    """The steps for columns of so many bins, drawn from nothing but that: it is the same plan every time."""
    draw = np.random.default_rng(len(sizes))
    steps = [Step((), (), 1)]
    for _ in range(PASSES):
        for column in draw.permutation(len(sizes)).tolist():
            steps.append(Step((column,), (np.arange(sizes[column], dtype=np.uint16),), sizes[column]))
    for _ in range(TREES):
        columns = tuple(draw.integers(len(sizes), size=DEPTH).tolist())
        sides = tuple(_cut(draw, sizes[column], column in unordered) for column in columns)
        steps.append(Step(columns, sides, 1 << DEPTH))
    return tuple(steps)


def _cut(draw: np.random.Generator, size: int, unordered: bool) -> NDArray[np.uint16]:
    """The side of every bin; the last bin, of what is missing, has a side of its own choice."""
    place = draw.permutation(size - 1) if unordered else np.arange(size - 1)
    side = place >= draw.integers(1, size - 1) if size > 2 else place > 0
    return np.append(side, draw.random() < 0.5).astype(np.uint16)


@dataclass(frozen=True, slots=True)
class Logistic:
    """One against the rest: gradients of the logistic loss, clipped to a half for a better signal-to-noise ratio."""

    outputs: int
    spread: ClassVar[float] = 1.0

    def slopes(self, scores: Floats, target: NDArray[Any]) -> tuple[Floats, Floats]:
        """Gradient and curvature of every output and row; `target` is the place of a row's class."""
        places = np.arange(self.outputs) if self.outputs > 1 else np.array([1])
        share = _sigmoid(scores)
        return np.clip((target == places[:, None]) - share, -LARGEST, LARGEST), np.clip(share * (1 - share), 0.0, 0.25)

    @staticmethod
    def probability(scores: Floats) -> Floats:
        """Undo the bias of clipping on the share q of ones: q / 2 = p (1 - q) where p is below a half."""
        share = _sigmoid(np.abs(scores))
        least = (1 - share) / (LARGEST + 1 - share)
        return np.where(scores > 0, 1 - least, least)


def _sigmoid(scores: Floats) -> Floats:
    from scipy.special import expit

    return np.asarray(expit(scores))


@dataclass(frozen=True, slots=True)
class Squared:
    """An eighth of the squared error between values in [-1, 1]: gradients are within a half by themselves."""

    outputs: int = 1
    spread: ClassVar[float] = 0.2  # values in [-1, 1] differ less than scores of a logistic loss do

    def slopes(self, scores: Floats, target: NDArray[Any]) -> tuple[Floats, Floats]:
        residual = np.clip(target - np.clip(scores, -1.0, 1.0), -2.0, 2.0)
        return residual / 4, np.full_like(residual, 0.25)


@dataclass(frozen=True, slots=True)
class Boosting:
    """Sums of gradients and curvatures by leaf, step after step, each with Gaussian noise.

    `run` takes bins [columns, rows] and the target of each row, and gives all noisy sums; `values` makes leaves of them.

    >>> from discreet.core import record
    >>> Boosting((3, 3), frozenset(), Logistic(1), record(), 1.0, 1e-6).claims()[0].event.kind
    'sequence'
    """

    sizes: tuple[int, ...]  # bins of each column; the last one is of what is missing
    unordered: frozenset[int]
    loss: Logistic | Squared
    unit: Unit
    epsilon: float
    delta: float
    public: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        check.positive("epsilon", self.epsilon)
        check.open_fraction("delta", self.delta)
        for size in self.sizes:
            check.whole("bins", size, least=2, most=MOST_BINS)
        group_size(self.unit)

    def multipliers(self) -> tuple[float, float]:
        """The noise multiplier of a step of one column, or none, and of a tree."""
        noise = _noise(len(self.sizes), self.unit, self.epsilon, self.delta)
        return _shares(noise, len(self.sizes))

    def claims(self) -> tuple[Claim, ...]:
        owner = "each unit owns one row" if self.unit.rows == 1 else f"no unit owns more than {self.unit.rows} rows"
        says = (owner, "bounds, edges and the list of columns were not chosen by looking at the data", *self.public)
        noise = _noise(len(self.sizes), self.unit, self.epsilon, self.delta)
        return (Claim(game=Game(self.unit, {"weights"}), event=_event(noise, len(self.sizes), self.unit), assumptions=says),)

    def run(self, data: Any) -> Floats:
        bins, target = data
        scores = np.zeros((self.loss.outputs, bins.shape[1]))
        released = []
        for step in self._plan():
            leaf = step.leaf(bins)
            total = self._summed(leaf, step.leaves, *self.loss.slopes(scores, target))
            single, tree = self.multipliers()
            multiplier = tree if len(step.columns) > 1 else single
            sums = exact.noisy(total, sensitivity=self.sensitivity() * (1 + TOLERANCE), noise_multiplier=multiplier)
            scores += self._leaves(step, sums)[:, leaf]
            released.append(sums.ravel())
        return np.concatenate(released)

    def sensitivity(self) -> float:
        """One row is in one leaf, and its gradient and curvature in each output are at most LENGTH."""
        return LENGTH * math.sqrt(self.loss.outputs)

    def values(self, released: Floats) -> Iterator[tuple[Step, Floats]]:
        """Every step and what its leaves add to a score, [outputs, leaves]."""
        start = 0
        for step in self._plan():
            end = start + self.loss.outputs * 2 * step.leaves
            yield step, self._leaves(step, released[start:end].reshape(self.loss.outputs, 2, step.leaves))
            start = end

    def _plan(self) -> tuple[Step, ...]:
        return plan(self.sizes, self.unordered)

    def _summed(self, leaf: NDArray[np.intp], leaves: int, slope: Floats, curve: Floats) -> Floats:
        """The exact sums [outputs, 2, leaves]: each row is truncated to multiples of GRAIN, which makes none longer."""
        parts = np.trunc(np.stack([slope, curve], 1) / GRAIN)
        sums = [[np.bincount(leaf, numbers, leaves) for numbers in pair] for pair in parts]
        return np.array(sums, np.float64) * GRAIN

    def _leaves(self, step: Step, sums: Floats) -> Floats:
        """Newton steps, shrunk by their signal-to-noise ratio; the first one, over all rows together, is not shrunk."""
        slope, curve = sums[:, 0], sums[:, 1]
        if not step.columns:
            return np.clip(slope / np.maximum(curve, 10.0), -FARTHEST, FARTHEST)
        single, tree = self.multipliers()
        noise = self.sensitivity() * (single if len(step.columns) == 1 else tree)
        curve = np.maximum(curve, 1e-3 * noise)
        weighed = slope / (curve + (noise / self.loss.spread / SPREAD[len(step.columns)]) ** 2 / curve)
        return RATE * np.clip(weighed, -FARTHEST, FARTHEST)


def _shares(noise: float, columns: int) -> tuple[float, float]:
    return noise * math.sqrt((PASSES * columns + 1) / SINGLE), noise * math.sqrt(TREES / (1 - SINGLE))


def _event(noise: float, columns: int, unit: Unit) -> Event:
    single, tree = _shares(noise, columns)
    return for_unit(Sequence([Repeat(Gaussian(single), PASSES * columns + 1), Repeat(Gaussian(tree), TREES)]), unit)


@lru_cache(maxsize=256)
def _noise(columns: int, unit: Unit, epsilon: float, delta: float) -> float:
    return calibrate(lambda noise: _event(noise, columns, unit), epsilon, delta)
