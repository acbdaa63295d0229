"""The ROC curve of scores: the one source of every measured rate that a sentence, a table or a picture shows."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class Roc:
    """Every threshold's false- and true-positive rate, from the strictest on; ties move both at once.

    >>> curve = Roc.of(np.array([3.0, 2.0, 1.0, 0.0]), np.array([True, True, False, False]))
    >>> curve.area(), curve.at(0.25)
    (1.0, 1.0)
    """

    false: NDArray[np.float64]
    true: NDArray[np.float64]

    @classmethod
    def of(cls, score: NDArray[np.float64], inside: NDArray[np.bool_]) -> Roc:
        """The curve of "the score is at least t" for every t, from (0, 0) to (1, 1)."""
        order = np.argsort(-score, kind="stable")
        ranked = score[order]
        ends = np.append(np.flatnonzero(ranked[1:] != ranked[:-1]), len(score) - 1)
        hits, alarms = np.cumsum(inside[order])[ends], np.cumsum(~inside[order])[ends]
        members, others = max(int(inside.sum()), 1), max(int((~inside).sum()), 1)
        return cls(np.append(0.0, alarms / others), np.append(0.0, hits / members))

    def at(self, level: float) -> float:
        """The largest true-positive rate of a threshold whose false-positive rate is at most `level`.

        Only thresholds that exist are counted. Nothing is interpolated: a coin toss between two thresholds is another attack.
        """
        return float(self.true[np.searchsorted(self.false, level, side="right") - 1])

    def area(self) -> float:
        """The area under the curve: how often a member outscores a non-member, ties counting half."""
        return float(np.trapezoid(self.true, self.false))
