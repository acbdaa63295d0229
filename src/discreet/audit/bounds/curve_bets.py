"""Independent runs against the whole trade-off curve: bets on every line of the claim, in the order of the runs.

A claim's curve is a family of lines: Pr[S | inside] <= e^epsilon Pr[S | outside] + delta for every event S, and the same
with the worlds exchanged. For each line a gambler bets, run by run, that the next run breaks it. Which event S he bets on
may depend on all earlier runs, because the next run is independent of them; so no threshold is fixed beforehand and no run
is set aside for learning. Under the claim his capital is a supermartingale, and it ever reaches K / alpha with
probability at most alpha / K (Ville 1939), so that K lines are tested at once with error alpha. The capital's record can
only grow as runs are added: more data never weaken a refutation. Proof: docs/theory/audit-curve.md.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

# The shares of the largest stake that keeps the capital positive; equal parts of the capital bet each of them throughout.
STAKES = np.array([1 / 64, 1 / 32, 1 / 16, 1 / 8, 1 / 4, 1 / 2, 3 / 4, 15 / 16])
FIRST = 16  # runs that are looked at before the first bet
_LOOKS = 16  # of the capital, while the same events are bet on
_CANDIDATES = 40  # thresholds from either end
_CONVINCED = 1.0  # log-capital that an event would have won on the earlier runs before it is bet on


class Bets(NamedTuple):
    """For each line and stake: the log-factors of a right guess, a wrong guess and none, when one side is bet on, or both."""

    right: Floats
    wrong: Floats
    none: Floats


def log_capital(score: Floats, inside: NDArray[np.bool_], epsilon: Floats, delta: Floats) -> Floats:
    """For each line (epsilon, delta), the log of the largest capital that bets against it ever reached.

    Runs must be independent, with one target each that is inside by a fair coin. If the mechanism keeps to the line,
    the answer exceeds log(1 / alpha) with probability at most alpha.

    >>> inside = np.random.default_rng(1).random(2000) < 0.5
    >>> bool(log_capital(inside.astype(float), inside, np.array([1.0]), np.array([1e-6]))[0] > 100)
    True
    """
    lines = len(epsilon)
    grown = np.repeat(epsilon, len(STAKES)), np.repeat(delta, len(STAKES)), np.tile(STAKES, lines)
    one, both = _bets(*grown, sides=1), _bets(*grown, sides=2)
    capital = np.zeros((lines, len(STAKES)))
    best = np.zeros(lines)
    for start, looks in blocks(len(score)):
        high, low = thresholds(score[:start])
        chosen = _Chosen(one, both, _counts(score[:start], inside[:start], high, low, np.array([start])), high, low)
        gains = chosen.gains(_counts(score[start : looks[-1]], inside[start : looks[-1]], high, low, looks - start))
        path = capital[None] + gains.reshape(len(looks), lines, len(STAKES))
        best = np.maximum(best, np.logaddexp.reduce(path, axis=2).max(axis=0) - np.log(len(STAKES)))
        capital = path[-1]
    return best


def blocks(count: int) -> Iterator[tuple[int, NDArray[np.int64]]]:
    """Where bets are chosen anew, and where the capital is looked at until then: the same places however many runs follow."""
    start = FIRST
    while True:
        length = max(_LOOKS, start // 4)
        looks = start + (length * np.arange(1, _LOOKS + 1)) // _LOOKS
        looks = looks[looks <= count]
        if not len(looks):
            return
        yield start, looks
        start += length


def thresholds(score: Floats) -> tuple[Floats, Floats]:
    """Scores from which on, and up to which, a run may be bet on: ranks from either end, dense at the ends."""
    ranks, ordered = _ranks(len(score)), np.sort(score)
    high, low = ordered[len(score) - 1 - ranks[::-1]], ordered[ranks]
    return high[np.append(True, high[1:] != high[:-1])], low[np.append(True, low[1:] != low[:-1])]


@lru_cache(maxsize=256)
def _ranks(count: int) -> NDArray[np.int64]:
    ranks: NDArray[np.int64] = np.unique(np.geomspace(1, count, _CANDIDATES).astype(np.int64)) - 1
    return ranks


def _bets(epsilon: Floats, delta: Floats, stake: Floats, *, sides: int) -> Bets:
    """1 + x (1[right] - e^epsilon 1[wrong] - sides delta / 2), where x is the stake's share of the most it may be."""
    charge = sides * delta / 2.0
    x = stake / (np.exp(epsilon) + charge)
    return Bets(np.log1p(x * (1.0 - charge)), np.log1p(-stake), np.log1p(-x * charge))


class Counts(NamedTuple):
    """At each look: right and wrong guesses of "inside" from each high score on and of "outside" up to each low one."""

    right: Floats
    wrong: Floats
    right_low: Floats
    wrong_low: Floats
    runs: Floats


def _counts(score: Floats, inside: NDArray[np.bool_], high: Floats, low: Floats, looks: NDArray[np.int64]) -> Counts:
    part = np.searchsorted(looks, np.arange(len(score)), side="right")
    above = np.searchsorted(high, score, side="right")  # how many of the high thresholds the score reaches
    below = len(low) - np.searchsorted(low, score, side="left")  # how many of the low ones it stays under

    def reaching(reached: NDArray[np.int64], size: int, mine: NDArray[np.bool_]) -> Floats:
        cells = np.bincount(part[mine] * (size + 1) + reached[mine], minlength=len(looks) * (size + 1))
        table = cells.reshape(len(looks), size + 1).cumsum(axis=0)
        return np.asarray(table[:, ::-1].cumsum(axis=1)[:, ::-1][:, 1:], dtype=np.float64)

    return Counts(
        reaching(above, len(high), inside), reaching(above, len(high), ~inside),
        reaching(below, len(low), ~inside)[:, ::-1], reaching(below, len(low), inside)[:, ::-1], looks.astype(np.float64),
    )  # fmt: skip


class _Chosen:
    """What each line and stake bets on next: the events that would have won most on the runs so far, if any convinces."""

    def __init__(self, one: Bets, both: Bets, past: Counts, high: Floats, low: Floats) -> None:
        self.one, self.both = one, both
        right, wrong, right_low, wrong_low = (table[0] for table in past[:4])
        up, down = _won(one, right, wrong), _won(one, right_low, wrong_low)
        ups, downs = _won(both, right, wrong), _won(both, right_low, wrong_low)
        self.up, self.down, self.ups, self.downs = (table.argmax(axis=1) for table in (up, down, ups, downs))
        apart = low[self.downs] < high[self.ups]  # a run must not be bet on from both sides
        worth = np.stack([
            np.full(len(one.right), _CONVINCED),
            up.max(axis=1) + one.none * past.runs[0],
            down.max(axis=1) + one.none * past.runs[0],
            np.where(apart, ups.max(axis=1) + downs.max(axis=1) + both.none * past.runs[0], -np.inf),
        ])  # fmt: skip
        self.mode = worth.argmax(axis=0)

    def gains(self, new: Counts) -> Floats:
        """What the bets have won at each look, for every line and stake."""
        up = _gain(self.one, new.right[:, self.up], new.wrong[:, self.up], new.runs)
        down = _gain(self.one, new.right_low[:, self.down], new.wrong_low[:, self.down], new.runs)
        right = new.right[:, self.ups] + new.right_low[:, self.downs]
        wrong = new.wrong[:, self.ups] + new.wrong_low[:, self.downs]
        won: Floats = np.choose(self.mode[None, :], [np.zeros_like(up), up, down, _gain(self.both, right, wrong, new.runs)])
        return won


def _won(bets: Bets, right: Floats, wrong: Floats) -> Floats:
    """What each bet (row) would have won on each event (column), beside what it pays for every run."""
    return (bets.right - bets.none)[:, None] * right + (bets.wrong - bets.none)[:, None] * wrong


def _gain(bets: Bets, right: Floats, wrong: Floats, runs: Floats) -> Floats:
    return (bets.right - bets.none) * right + (bets.wrong - bets.none) * wrong + bets.none * runs[:, None]
