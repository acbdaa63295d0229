"""Decision trees by path finding (after Tramèr et al. 2016): between two rows with different answers lies a split of the tree.

Two rows of a region that get different answers are joined by changing one coordinate after another: some coordinate changes
the answer, and bisection of it finds the threshold, since a tree splits on one coordinate at a time. Every threshold found is
one of the tree, so the copy only needs labels; a region in which all probes answer alike is taken for a leaf, so a leaf
thinner than the probes see can be missed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from discreet.attack.stealing.oracle import Oracle
from discreet.core import check
from discreet.errors import InvalidValue

Floats = NDArray[np.float64]
STEPS = 40  # of a bisection: 1e-12 of the range
MARGIN = 1e-6  # of a side: probes keep so far from a threshold, which answers in 32 bits blur
CROSSINGS = 32  # of a threshold, to tell how much depends on it
PAIRS = 8  # splits that are found in a region, of which the best is taken


@dataclass(frozen=True)
class StolenTree:
    """A tree as arrays: `feature` (-1 at a leaf), `threshold`, the places of both children, and the `answer` of leaves."""

    feature: NDArray[np.int64]
    threshold: Floats
    left: NDArray[np.int64]
    right: NDArray[np.int64]
    answer: Floats
    queries: int

    @property
    def leaves(self) -> int:
        return int((self.feature < 0).sum())

    def predict(self, rows: Any) -> Floats:
        """What the tree answers: the row of its leaf."""
        rows = np.atleast_2d(np.asarray(rows, np.float64))
        at, open_rows = np.zeros(len(rows), np.int64), np.arange(len(rows))
        while len(open_rows := open_rows[self.feature[at[open_rows]] >= 0]):
            node = at[open_rows]
            below = rows[open_rows, self.feature[node]] <= self.threshold[node]
            at[open_rows] = np.where(below, self.left[node], self.right[node])
        return self.answer[at]


def steal_tree(
    model: Any, low: ArrayLike, high: ArrayLike, *, probes: int = 64, rows: ArrayLike | None = None, most_leaves: int = 10_000,
    seed: int = 0,
) -> StolenTree:  # fmt: skip
    """A decision tree over numbers between `low` and `high`, one each for every input, from its answers of any kind.

    Each region is probed at `probes` random places, at the ends of each of its sides, and at those of `rows` (public data)
    that lie in it.

    >>> model = lambda X: np.where(X[:, 0] <= 0.3, 0, np.where(X[:, 1] <= 0.6, 1, 2))
    >>> found = steal_tree(model, [0, 0], [1, 1])
    >>> found.leaves, sorted(found.threshold[found.feature >= 0].round(9).tolist())
    (3, [0.3, 0.6])
    """
    low, high = (np.asarray(each, np.float64) for each in (low, high))
    if low.ndim != 1 or low.shape != high.shape or not (low < high).all():
        raise InvalidValue("low and high must be lists of one number for each input, low below high.")
    public = np.zeros((0, len(low))) if rows is None else np.asarray(rows, np.float64)
    if public.ndim != 2 or public.shape[1] != len(low):
        raise InvalidValue(f"rows must have {len(low)} columns, as low and high do; got the shape {public.shape}.")
    oracle = model if isinstance(model, Oracle) else Oracle(model)
    search = _Search(oracle, check.whole("probes", probes), np.random.default_rng(check.whole("seed", seed, least=0)))
    before, nodes = oracle.queries, [_Node()]
    open_regions = [(0, low, high, public, oracle(public) if len(public) else None)]
    while open_regions:
        place, bottom, top, inside, known = open_regions.pop()
        node = nodes[place]
        split, node.answer = search.split(bottom, top, inside, known)
        if split is None:
            continue
        if len(nodes) + 2 > 2 * most_leaves:
            raise InvalidValue(f"More than {most_leaves} leaves were found: this is no tree, or a larger one (most_leaves=…).")
        node.feature, node.threshold = split
        node.left, node.right = len(nodes), len(nodes) + 1
        nodes += [_Node(), _Node()]
        below = inside[:, node.feature] <= node.threshold
        for child, side, part in ((node.left, top, below), (node.right, bottom, ~below)):
            changed = side.copy()
            changed[node.feature] = node.threshold if side is top else np.nextafter(node.threshold, np.inf)
            box = (bottom, changed) if side is top else (changed, top)
            open_regions.append((child, *box, inside[part], None if known is None else known[part]))
    return StolenTree(
        np.array([each.feature for each in nodes]), np.array([each.threshold for each in nodes]),
        np.array([each.left for each in nodes]), np.array([each.right for each in nodes]),
        np.array([each.answer for each in nodes]), oracle.queries - before,
    )  # fmt: skip


@dataclass
class _Node:
    feature: int = -1
    threshold: float = 0.0
    left: int = -1
    right: int = -1
    answer: Any = None


@dataclass
class _Search:
    oracle: Oracle
    probes: int
    random: np.random.Generator

    def split(self, low: Floats, high: Floats, inside: Floats, known: Floats | None) -> tuple[tuple[int, float] | None, Floats]:
        """A coordinate and a threshold at which the tree splits in this box, or None; and the answer at its centre."""
        low, high = low + MARGIN * (high - low), high - MARGIN * (high - low)
        centre = (low + high) / 2
        ends = np.concatenate([np.where(np.eye(len(low), dtype=bool), side, centre) for side in (low, high)])
        cloud = low + (high - low) * self.random.random((self.probes, len(low)))
        rows = np.concatenate([centre[None], ends, cloud])
        answers = self.oracle(rows)
        if known is not None:
            keep = ((inside > low) & (inside < high)).all(axis=1)
            rows, answers = np.concatenate([rows, inside[keep]]), np.concatenate([answers, known[keep]])
        kinds = np.unique(answers, axis=0, return_inverse=True)[1].reshape(-1)
        if kinds.max() == 0:
            return None, answers[0]
        found = [self._between(rows[i], answers[i], rows[j]) for i, j in self._pairs(kinds)]
        return max(found, key=lambda split: self._flips(split, low, high)), answers[0]

    def _pairs(self, kinds: NDArray[np.int64]) -> list[tuple[int, int]]:
        """Rows with different answers, drawn at random."""
        ones = self.random.permutation(len(kinds))[:PAIRS]
        return [(int(i), int(self.random.choice(np.flatnonzero(kinds != kinds[i])))) for i in ones]

    def _between(self, one: Floats, answer: Floats, two: Floats) -> tuple[int, float]:
        """Bisection over how many coordinates are taken from the other row, then over the one that changes the answer."""
        same, changed = 0, len(one)
        while changed - same > 1:
            middle = (same + changed) // 2
            mixed = np.concatenate([two[:middle], one[middle:]])
            same, changed = (middle, changed) if (self.oracle(mixed)[0] == answer).all() else (same, middle)
        start = np.concatenate([two[:same], one[same:]])
        near, far = float(one[same]), float(two[same])
        for _ in range(STEPS):
            start[same] = half = (near + far) / 2
            near, far = (half, far) if (self.oracle(start)[0] == answer).all() else (near, half)
        return same, min(near, far)

    def _flips(self, split: tuple[int, float], low: Floats, high: Floats) -> int:
        """For how many random rows crossing the threshold changes the answer: of all splits in a region, most for its first."""
        rows = low + (high - low) * self.random.random((CROSSINGS, len(low)))
        step = MARGIN * (high - low)[split[0]]
        sides = [np.where(np.arange(len(low)) == split[0], split[1] + side * step, rows) for side in (-1, 1)]
        answers = self.oracle(np.concatenate(sides))
        return int((answers[:CROSSINGS] != answers[CROSSINGS:]).any(axis=1).sum())
