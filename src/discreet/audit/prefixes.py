"""Prefixes of the runs at which a test of fixed size is repeated, and the share of the error that each may spend.

A test that is sharp for a fixed number of runs may call a claim refuted early on and lose sight of it as noise follows. Here it
is made at prefixes that do not depend on how many runs follow, each at a share of the error that depends on its place alone.
The shares add up to at most one, however many runs there are, so the claim is refuted once any prefix refutes it, and stays so.
Proof: docs/theory/audit-curve.md.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

_ROUND = (10, 12, 16, 20, 25, 32, 40, 50, 64, 80)  # ten to a decade, and the numbers of runs that people choose
_SLOW = 20  # the shares of single runs fall slowly: those between 100 and 10,000 differ by a factor of three


def of_targets(count: int) -> Iterator[tuple[int, float]]:
    """Numbers of runs with one target each, up to `count`, and the share of each.

    >>> [size for size, _ in of_targets(30)]
    [10, 12, 16, 20, 25]
    >>> sum(share for _, share in of_targets(10**15)) < 1
    True
    """
    place, decade = 0, 1
    while True:
        for digits in _ROUND:
            if digits * decade > count:
                return
            yield digits * decade, _SLOW / ((place + _SLOW) * (place + _SLOW + 1))
            place += 1
        decade *= 10


def of_runs(count: int) -> Iterator[tuple[int, float]]:
    """The same for runs with many targets, of which there are few: one run alone has half of the error.

    >>> [(runs, round(share, 3)) for runs, share in of_runs(9)]
    [(1, 0.5), (2, 0.167), (3, 0.083), (4, 0.05), (6, 0.033), (8, 0.024)]
    """
    place, power = 0, 1
    while True:
        for runs in (power, power * 3 // 2) if power > 1 else (power,):
            if runs > count:
                return
            yield runs, 1.0 / ((place + 1) * (place + 2))
            place += 1
        power *= 2


def first_runs(run: NDArray[np.int64], count: int) -> NDArray[np.int64]:
    """The targets of the first `count` runs, by number; which they are does not depend on the runs behind them."""
    return np.flatnonzero(run <= np.unique(run)[count - 1])


def one_of_each(run: NDArray[np.int64]) -> NDArray[np.int64]:
    """One target of each run, in the order of the runs: the first that is listed."""
    return np.unique(run, return_index=True)[1].astype(np.int64)


def begins_single(run: NDArray[np.int64]) -> bool:
    """Has the first run one target? It decides how evidence is tested, so that runs behind it change nothing."""
    return int((run == run.min()).sum()) == 1


def in_pairs(run: NDArray[np.int64], inside: NDArray[np.bool_]) -> NDArray[np.int64]:
    """An order for evidence without coins, where members may be listed first: one target inside and one outside at a time.

    Runs are taken by number and the targets of a run in a blind order, so runs behind only add pairs at the end. What is left
    of the larger side is not used.

    >>> in_pairs(np.arange(5), np.array([True, True, True, False, False])).tolist()
    [0, 3, 1, 4]
    """
    blind = np.concatenate([
        np.random.default_rng(len(mine)).permutation(mine) for mine in np.split(
            np.argsort(run, kind="stable"), np.cumsum(np.unique(run, return_counts=True)[1])[:-1]
        )
    ])  # fmt: skip
    members, others = blind[inside[blind]], blind[~inside[blind]]
    least = min(len(members), len(others))
    pairs = np.stack([members[:least], others[:least]], axis=1)
    first = np.random.default_rng(1).random(least) < 0.5
    pairs[first] = pairs[first][:, ::-1]
    return pairs.ravel().astype(np.int64)
