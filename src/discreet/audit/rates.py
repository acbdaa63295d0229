"""What an attack reached: the ROC, and rates at low false-positive rates with intervals that hold for every attack."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from discreet.audit.intervals import either_way
from discreet.core import Evidence, Roc, check
from discreet.core.evidence import trials
from discreet.figures import percent_down, percent_up

Scores = NDArray[np.float64]
LEVELS = (0.01, 0.001, 0.0001)
ENOUGH = 10  # false positives expected at a level before it counts as resolvable


@dataclass(frozen=True, slots=True)
class RateAt:
    """The true-positive rate at a false-positive rate of at most `level`, of the scores or, where they show more, reversed.

    `low` and `high` enclose it at the confidence asked, however few targets there are: docs/theory/gate.md. `resolvable` is
    false when fewer than ten false positives are to be expected at `level`, or there is no member: the interval is wide then,
    and `needs` says how many non-members would narrow it.
    """

    level: float
    rate: float
    low: float
    high: float
    resolvable: bool
    needs: str = ""  # what would resolve it

    @property
    def told(self) -> str:
        """The rate, rounded down, with its interval, rounded outwards; where that is everything, what would narrow it."""
        if self.low <= 0.0 and self.high >= 1.0:
            return f"cannot tell: needs {self.needs or 'more members'}"
        return f"{percent_down(self.rate)} ({percent_down(self.low)} to {percent_up(self.high)})"

    def __str__(self) -> str:
        few = "" if self.resolvable else f"; {self.needs} would narrow this"
        return f"TPR at {self.level:.2%} FPR: {self.rate:.2%} ({self.low:.2%} to {self.high:.2%}{few})"


def roc(score: ArrayLike, inside: ArrayLike) -> Roc:
    """The ROC of scores against the truth.

    >>> roc([3, 2, 1, 0], [True, True, False, False]).area()
    1.0
    """
    scores, truth, _ = trials(score, inside, np.zeros(np.shape(score), dtype=np.int64))
    return Roc.of(scores, truth)


def rate_at(score: ArrayLike, inside: ArrayLike, level: float, confidence: float = 0.95) -> RateAt:
    """The true-positive rate at a false-positive rate, with its interval.

    >>> str(rate_at([3, 2, 1, 0], [True, True, False, False], 0.01))
    'TPR at 1.00% FPR: 100.00% (0.13% to 100.00%; 1,000 non-members would narrow this)'
    """
    return rates(score, inside, confidence, (level,))[0]


def rates(
    score: ArrayLike, inside: ArrayLike, confidence: float = 0.95, levels: Sequence[float] = LEVELS
) -> tuple[RateAt, ...]:
    """The true-positive rates at false-positive rates of 1 %, 0.1 % and 0.01 %, or at other levels.

    Every rate that the project shows, in words, tables and pictures, is one of these.
    """
    check.open_fraction("confidence", confidence)
    scores, truth, _ = trials(score, inside, np.zeros(np.shape(score), dtype=np.int64))
    curve = Roc.of(scores, truth)
    return tuple(_rate_at(curve, scores, truth, check.open_fraction("level", level), confidence) for level in levels)


def _rate_at(curve: Roc, scores: Scores, truth: NDArray[np.bool_], level: float, confidence: float) -> RateAt:
    members, others = np.sort(scores[truth]), np.sort(scores[~truth])
    needs = f"{ENOUGH / level:,.0f} non-members" if len(others) * level < ENOUGH else "" if len(members) else "members"
    is_reversed, low, high = either_way(members, others, level, confidence)
    measured = Roc.of(-scores, truth).at(level) if is_reversed else curve.at(level)
    return RateAt(level, measured, low, high, resolvable=not needs, needs=needs)


def tpr_interval(evidence: Evidence, fpr: float, confidence: float = 0.95) -> tuple[float, float]:
    """Where, at this confidence, the true-positive rate of an attack at a false-positive rate of at most `fpr` lies.

    >>> from discreet.core import Game, record
    >>> seen = Evidence(game=Game(record(), {"scores"}), attack="loss", score=[3, 2, 1, 0], inside=[True, True, False, False],
    ...                 run=[0, 0, 0, 0], design="canary")
    >>> low, high = tpr_interval(seen, 0.5)
    >>> round(low, 3), high
    (0.063, 1.0)
    """
    measured = rate_at(evidence.score, evidence.inside, fpr, confidence)
    return measured.low, measured.high
