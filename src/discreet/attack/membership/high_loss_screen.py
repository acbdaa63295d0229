"""A screen without shadows: the share of non-members whose loss is above that of nearly all members (arXiv:2510.19773).

A model that memorised its rows has no members left with a high loss. How many non-members have a loss that (nearly) no
member has, the true-negative rate of the loss attack, tells without a single shadow whether attacks with shadows will find
members at low false-positive rates.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from discreet.attack.membership import signals
from discreet.audit import rate_at
from discreet.audit.intervals import tpr_ends
from discreet.core import check
from discreet.models import predict

Array = NDArray[Any]
FALSE_ALARMS = 0.01  # at most, of models that memorised nothing


@dataclass(frozen=True)
class Screen:
    """The share of non-members that the loss alone rules out, and where it lies at the confidence asked."""

    rate: float
    low: float
    high: float
    level: float  # members wrongly ruled out, at most
    confidence: float
    resolvable: bool
    memorised: (
        bool  # more non-members are ruled out than chance would; said of a model without memory at most once in 100 times
    )

    def __str__(self) -> str:
        if not self.resolvable and not self.memorised:
            return f"too few members for a level of {self.level:.2%}: {10 / self.level:,.0f} are needed"
        verdict = (
            "members were memorised: attacks with shadows will find some"
            if self.memorised
            else "members were not memorised: they have losses as high as others"
        )
        return (
            f"{self.rate:.1%} ({self.low:.1%} to {self.high:.1%}) of non-members have a loss above all but {self.level:.2%} of "
            f"members; {verdict}. It screens the model as a whole, names no record and bounds nothing."
        )


def high_loss_screen(
    target: Any, members: tuple[Array, Array], nonmembers: tuple[Array, Array], *, level: float = 0.01, confidence: float = 0.95
) -> Screen:
    """The true-negative rate of the loss attack at a false-negative rate of at most `level`, with an exact interval.

    >>> X, y = np.arange(2000.0)[:, None], np.zeros(2000, int)
    >>> sure = lambda rows: np.concatenate([np.where(rows < 1000, 9.0, rows % 7), 0 * rows], 1)
    >>> str(high_loss_screen(sure, (X[:1000], y[:1000]), (X[1000:], y[1000:])))[:12]
    '100.0% (99.6'
    """
    check.open_fraction("level", level)
    if predict.names_classes(target):
        members, nonmembers = ((X, predict.class_numbers(y, target.classes_, "rows")) for X, y in (members, nonmembers))
    loss = [-signals.log_probability(predict.logits(target, X), np.asarray(y)) for X, y in (members, nonmembers)]
    outside = np.arange(len(loss[0]) + len(loss[1])) >= len(loss[0])
    score = np.concatenate(loss)
    rate = rate_at(score, outside, level, confidence)
    sides = np.sort(score[outside]), np.sort(score[~outside])
    memorised = tpr_ends(*sides, level, 1.0 - 2.0 * FALSE_ALARMS)[0] > level  # one end of an interval, of high losses alone
    return Screen(rate.rate, rate.low, rate.high, level, confidence, rate.resolvable, memorised)
