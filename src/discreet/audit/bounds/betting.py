"""The default bound: bets on the attack's guesses, surest first, valid at every threshold at once.

Under epsilon-DP with independent fair coins, each guess, given the output and the truth of all earlier guesses, is
right with probability at most q = e^epsilon / (1 + e^epsilon). A gambler who bets on right guesses at odds fair for q
cannot multiply a stake by 1/alpha, at any time, with probability above alpha (Ville 1939); when the gambler does, this
epsilon is refuted. A part of the stake is bet by likelihood ratios along the whole order; the rest on two exact tests, one
where surer guesses weigh more and one where the first half or so weigh the same. The proof, with delta > 0, is in
docs/theory/audit-betting.md.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from discreet.audit.bounds.order import one_target_each, surest_first
from discreet.audit.bounds.search import STEP, climb
from discreet.audit.bounds.weighted import refuted as outweighed

# The alternatives that are bet on: log-odds of a right guess this much above epsilon, in equal shares.
_LEADS = np.geomspace(0.3, 6.0, 5)
# The shares of the error: of the bets along the order, of the guesses that weigh the same, of those that do not; below the
# epsilon of _TURN and above. Where epsilon is small, a little level costs equal guesses little and weighted ones much.
_TURN = 2.5
_BELOW, _ABOVE = (0.15, 0.25, 0.6), (0.1, 0.55, 0.35)


def betting(score: NDArray[np.float64], inside: NDArray[np.bool_], run: NDArray[np.int64], delta: float, alpha: float) -> float:
    """The largest epsilon refuted at `delta`, with all smaller ones; above the truth with probability at most `alpha`.

    >>> inside = np.arange(2000) % 2 == 0
    >>> betting(inside.astype(float), inside, np.arange(2000), 0.0, 0.05) > 5
    True
    """
    right = surest_first(score, inside)
    return from_guesses(right, delta, alpha, independent=one_target_each(run))


def from_guesses(right: NDArray[np.bool_], delta: float, alpha: float, *, independent: bool) -> float:
    """The bound from the sequence of right and wrong guesses, surest first."""
    hits, misses = frontier(right)
    counts = np.append(0, np.cumsum(right))

    def refuted(epsilon: NDArray[np.float64]) -> NDArray[np.bool_]:
        spared, level = forgiven(epsilon, len(right), delta, alpha, independent=independent)
        made = alike(len(right), epsilon)
        along, same, weighted = shares(epsilon)
        found = wealth(hits, misses, spared, epsilon) >= -np.log(along * level)
        found |= tail(counts[made] - spared, made, epsilon) <= same * level
        left = np.flatnonzero(~found)
        grid = np.rint(epsilon[left] / STEP).astype(np.int64)
        found[left] = outweighed(counts, grid, spared[left], (weighted * level)[left])
        return found

    return climb(refuted)


def shares(epsilon: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    """How the error is split over the three tests of each epsilon; the data have no say in it."""
    along, same, weighted = np.where(epsilon < _TURN, np.array(_BELOW)[:, None], np.array(_ABOVE)[:, None])
    return along, same, weighted


def alike(count: int, epsilon: NDArray[np.float64]) -> NDArray[np.int64]:
    """How many guesses Laplace noise makes with its full epsilon: half of them, and more where epsilon is small."""
    made: NDArray[np.int64] = np.ceil(count * (1.0 + np.exp(-epsilon)) / 2.0).astype(np.int64)
    return made


def frontier(right: NDArray[np.bool_]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The prefixes at which the wealth can be largest, as counts of right and wrong guesses.

    Log-wealth is convex in the two counts, grows with right guesses and falls with wrong ones; so its maximum over all
    prefixes is at a corner of their upper-left hull, a few dozen points out of thousands.
    """
    wrong_at = np.flatnonzero(~right)
    wrong = np.arange(len(wrong_at) + 1)
    before = np.append(wrong_at, len(right)) - wrong  # right guesses before the next wrong one
    corners: list[tuple[int, int]] = []
    for x, y in zip(wrong.tolist(), before.tolist()):
        while len(corners) > 1 and _bends_up(corners[-2], corners[-1], (x, y)):
            corners.pop()
        corners.append((x, y))
    points = np.array(corners, dtype=np.float64)
    return points[:, 1], points[:, 0]


def wealth(
    hits: NDArray[np.float64], misses: NDArray[np.float64], spared: NDArray[np.float64], epsilon: NDArray[np.float64]
) -> NDArray[np.float64]:
    """The largest log-wealth over the prefixes, for each epsilon, when `spared` right guesses count as wrong."""
    e = epsilon[:, None, None]
    lead = _LEADS[None, :, None]
    price = np.logaddexp(0.0, e + lead) - np.logaddexp(0.0, e)
    kept = np.maximum(hits - spared[:, None], 0.0)[:, None, :]
    gain = lead * kept - price * (hits + misses)
    top = gain.max(axis=1, keepdims=True)
    mixed = top[:, 0, :] + np.log(np.exp(gain - top).mean(axis=1))
    best: NDArray[np.float64] = mixed.max(axis=1)
    return best


def tail(hits: NDArray[np.float64], trials: NDArray[np.int64], epsilon: NDArray[np.float64]) -> NDArray[np.float64]:
    """Pr[Binomial(trials, e^epsilon / (1 + e^epsilon)) >= hits]."""
    from scipy.special import betainc, expit

    k = np.maximum(hits, 1.0)
    return np.where(hits > 0, betainc(k, trials - k + 1.0, expit(epsilon)), 1.0)


def forgiven(
    epsilon: NDArray[np.float64], count: int, delta: float, alpha: float, *, independent: bool
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """How many right guesses delta may explain away, and the error level left once that is paid for.

    At most count x delta / (1 + e^epsilon) guesses are right thanks to delta on average. More than `spared` of them are
    as unlikely as Markov's inequality says or, where runs have one target each and so are independent, the binomial tail.
    """
    from scipy.special import expit

    if delta == 0:
        return np.zeros_like(epsilon), np.full_like(epsilon, alpha)
    rate = delta * expit(-epsilon)
    if independent:
        from scipy.stats import binom  # slow to load, and of no use to a single run

        spared = np.maximum(binom.isf(alpha / 2.0, count, rate), 0.0)
        lost = binom.sf(spared, count, rate)
    else:
        spared = np.maximum(np.ceil(2.0 * count * rate / alpha) - 1.0, 0.0)
        lost = count * rate / (spared + 1.0)
    return np.asarray(spared, dtype=np.float64), np.asarray(alpha - lost, dtype=np.float64)


@lru_cache(maxsize=4096)
def best_possible(count: int, delta: float, alpha: float, *, independent: bool) -> float:
    """The bound when every one of `count` guesses is right: no attack can show more."""
    return from_guesses(np.ones(max(count, 1), dtype=np.bool_), delta, alpha, independent=independent) if count else 0.0


def _bends_up(a: tuple[int, int], b: tuple[int, int], c: tuple[int, int]) -> bool:
    return (b[1] - a[1]) * (c[0] - b[0]) <= (c[1] - b[1]) * (b[0] - a[0])
