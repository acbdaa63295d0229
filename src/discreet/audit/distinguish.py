"""A distinguisher for any mechanism: it learns from some runs how to tell the two worlds apart in the others."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from discreet.audit.bounds.betting import betting
from discreet.audit.bounds.order import shuffled
from discreet.audit.columns import Outputs
from discreet.audit.features import Cells, Feature, features, unbiased
from discreet.audit.floats import Hints
from discreet.core import check
from discreet.errors import InvalidValue

_TRIED = 32  # features that pass the first look and are then tried as distinguishers
_RARE = 4  # runs below which a cell joins the others at the first look


@dataclass(frozen=True, slots=True)
class Witness:
    """An attack: the log-likelihood ratio of the cell that the output falls into, as counted on other runs; the mean of them
    where there are several features.

    Learn it with `learn` and use it on fresh runs only; then any bound on its scores is valid.
    """

    name: str
    view: frozenset[str]
    features: tuple[Feature, ...]
    ratios: dict[int, float]

    def score(self, seen: Any, targets: Sequence[Any]) -> NDArray[np.float64]:
        return np.full(len(targets), self.score_all([seen])[0])

    def score_all(self, outputs: Sequence[Any]) -> NDArray[np.float64]:
        """The score of each output, many at a time."""
        return self.score_flat(Outputs.of(outputs))

    def score_flat(self, outputs: Outputs) -> NDArray[np.float64]:
        scores = [_looked_up(self.ratios, feature(outputs)) for feature in self.features]
        return np.asarray(np.mean(scores, axis=0), dtype=np.float64)


def learn(
    outputs: Sequence[Any], inside: Sequence[bool] | NDArray[np.bool_], *, view: frozenset[str], delta: float = 0.0
) -> Witness:
    """The best witness for these runs: every feature gets a first look, and the most promising are each scored on the half
    they did not learn from.

    >>> witness = learn([0, 1] * 200, [False, True] * 200, view=frozenset({"answers"}))
    >>> bool(witness.score(1, [None]) > witness.score(0, [None]))
    True
    """
    if not isinstance(outputs, (Sequence, np.ndarray)) or isinstance(outputs, (str, bytes)):
        raise InvalidValue(f"outputs must be a list, one item per run; got {type(outputs).__name__}.")
    truth = np.asarray(inside, dtype=np.bool_)
    check.small_fraction("delta", delta)
    if len(outputs) != len(truth) or len(truth) < 2:
        raise InvalidValue(f"learning needs one truth per output and at least 2 runs; got {len(outputs)} and {len(truth)}.")
    return learn_flat(Outputs.of(outputs), truth, view=view, delta=delta, alpha=0.05, hints=Hints())


def learn_flat(
    outputs: Outputs, inside: NDArray[np.bool_], *, view: frozenset[str], delta: float, alpha: float, hints: Hints
) -> Witness:
    """The same for outputs that are already taken apart. `alpha` is the error at which the witness will be judged."""
    promising: list[tuple[float, str, tuple[Feature, ...], Cells]] = []
    for name, found in features(outputs, inside, hints):
        cells = unbiased(found, outputs)
        promising.append((_promise(cells, inside), name, found, cells))
        if len(promising) >= 4 * _TRIED:
            promising = sorted(promising, key=lambda each: -each[0])[:_TRIED]
    promising = sorted(promising, key=lambda each: -each[0])[:_TRIED]
    _, name, found, cells = max(promising, key=lambda each: _worth(each[3], inside, delta, alpha))
    return Witness(f"witness ({name})", view, found, _ratios(cells, inside))


def _promise(cells: Cells, inside: NDArray[np.bool_]) -> float:
    """How far the cells of the two worlds differ, in standard deviations: a likelihood-ratio test (Wilks 1938), its
    chi-square made normal (Wilson and Hilferty 1931). It only ranks features, so an approximation will do.
    """
    _, index = np.unique(cells, return_inverse=True)
    size = np.bincount(index)
    if (size < _RARE).sum() > 1:
        index = np.where(size[index] < _RARE, 0, index + 1)
    counts = np.stack([np.bincount(index, weights=inside), np.bincount(index, weights=~inside)])
    counts = counts[:, counts.sum(axis=0) > 0]
    free = counts.shape[1] - 1
    if free < 1 or not counts.sum(axis=1).all():
        return -np.inf
    expected = counts.sum(axis=1, keepdims=True) * counts.sum(axis=0) / counts.sum()
    ratio = 2.0 * float((counts * np.log(np.where(counts > 0, counts, 1.0) / expected)).sum())
    spread = 2.0 / (9.0 * free)
    return float(((max(ratio, 0.0) / free) ** (1 / 3) - (1.0 - spread)) / np.sqrt(spread))


def _worth(cells: Cells, inside: NDArray[np.bool_], delta: float, alpha: float) -> tuple[float, float]:
    """The bound this feature would give, learned on either half and scored on the other; then how often it is right."""
    half = shuffled(len(cells))[0] % 2 == 0
    score = np.empty(len(cells))
    for learned in (half, ~half):
        score[~learned] = _looked_up(_ratios(cells[learned], inside[learned]), cells[~learned])
    bound = betting(score, inside, np.arange(len(cells)), delta, alpha)
    return bound, float((np.sign(score) * np.where(inside, 1, -1)).mean())


def _ratios(cells: Cells, inside: NDArray[np.bool_]) -> dict[int, float]:
    """The log-likelihood ratio of each cell, with one made-up run in each world so that rare cells promise little."""
    names, index = np.unique(cells, return_inverse=True)
    with_unit = np.bincount(index, weights=inside, minlength=len(names))
    without = np.bincount(index, weights=~inside, minlength=len(names))
    share = np.log((with_unit + 1.0) / (inside.sum() + 1.0)) - np.log((without + 1.0) / ((~inside).sum() + 1.0))
    return dict(zip(names.tolist(), share.tolist()))


def _looked_up(ratios: dict[int, float], cells: Cells) -> NDArray[np.float64]:
    names, index = np.unique(cells, return_inverse=True)
    return np.array([ratios.get(int(name), 0.0) for name in names])[index]
