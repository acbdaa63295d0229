"""What an attack reached: the ROC, and rates at low false-positive rates with exact intervals."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from discreet.audit.binomial import rate_ceiling, rate_floor
from discreet.core import Evidence, Roc, check
from discreet.core.evidence import trials

LEVELS = (0.01, 0.001, 0.0001)
ENOUGH = 10  # false positives expected at a level before it counts as resolvable


@dataclass(frozen=True, slots=True)
class RateAt:
    """The true-positive rate at a false-positive rate of at most `level`.

    `low` and `high` enclose, at the confidence asked, the true-positive rate of the threshold used. `resolvable` is false
    when there are too few non-members (fewer than 10 / level) to know what a false-positive rate of `level` is, or no member.
    """

    level: float
    rate: float
    low: float
    high: float
    resolvable: bool
    needs: str = ""  # what would resolve it

    def __str__(self) -> str:
        if not self.resolvable:
            return f"TPR at {self.level:.2%} FPR: not resolvable (needs {self.needs})"
        return f"TPR at {self.level:.2%} FPR: {self.rate:.2%} ({self.low:.2%} to {self.high:.2%})"


def roc(score: ArrayLike, inside: ArrayLike) -> Roc:
    """The ROC of scores against the truth.

    >>> roc([3, 2, 1, 0], [True, True, False, False]).area()
    1.0
    """
    scores, truth, _ = trials(score, inside, np.zeros(np.shape(score), dtype=np.int64))
    return Roc.of(scores, truth)


def rate_at(score: ArrayLike, inside: ArrayLike, level: float, confidence: float = 0.95) -> RateAt:
    """The true-positive rate at a false-positive rate, with an exact interval (Clopper and Pearson 1934).

    >>> str(rate_at([3, 2, 1, 0], [True, True, False, False], 0.01))
    'TPR at 1.00% FPR: not resolvable (needs 1,000 non-members)'
    """
    return rates(score, inside, confidence, (level,))[0]


def rates(
    score: ArrayLike, inside: ArrayLike, confidence: float = 0.95, levels: Sequence[float] = LEVELS
) -> tuple[RateAt, ...]:
    """The true-positive rates at false-positive rates of 1 %, 0.1 % and 0.01 %, or at other levels.

    Every rate that the project shows, in words, tables and pictures, is one of these.
    """
    alpha = 1.0 - check.open_fraction("confidence", confidence)
    curve = roc(score, inside)
    truth = np.asarray(inside, dtype=np.bool_)
    members, others = int(truth.sum()), int((~truth).sum())
    return tuple(_rate_at(curve, members, others, check.open_fraction("level", level), alpha) for level in levels)


def _rate_at(curve: Roc, members: int, others: int, level: float, alpha: float) -> RateAt:
    rate = curve.at(level)
    hits = round(rate * members)
    low, high = rate_floor(hits, members, alpha / 2.0), rate_ceiling(hits, members, alpha / 2.0)
    needs = f"{ENOUGH / level:,.0f} non-members" if others * level < ENOUGH else "" if members else "members"
    return RateAt(level, rate, float(low), float(high), resolvable=not needs, needs=needs)


def tpr_interval(evidence: Evidence, fpr: float, confidence: float = 0.95) -> tuple[float, float]:
    """Where, at this confidence, the true-positive rate of an attack at a false-positive rate of at most `fpr` lies.

    >>> from discreet.core import Game, record
    >>> seen = Evidence(game=Game(record(), {"scores"}), attack="loss", score=[3, 2, 1, 0], inside=[True, True, False, False],
    ...                 run=[0, 0, 0, 0], design="canary")
    >>> low, high = tpr_interval(seen, 0.5)
    >>> round(low, 3), high
    (0.158, 1.0)
    """
    measured = rate_at(evidence.score, evidence.inside, fpr, confidence)
    return measured.low, measured.high
