"""Many runs with one target each: a threshold is chosen on half of them and both rates are bounded on the other half.

(epsilon, delta)-DP says Pr[S | inside] <= e^epsilon Pr[S | outside] + delta for every event S, and likewise with the
worlds exchanged. With S fixed beforehand, an exact interval on each rate (Clopper and Pearson 1934), each at half of
the error, gives a lower bound on epsilon; this is the bound of Jagielski, Ullman and Oprea (2020).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from discreet.audit.binomial import rate_ceiling, rate_floor
from discreet.audit.bounds.order import one_target_each, shuffled
from discreet.errors import InvalidValue

_CANDIDATES = 256  # thresholds tried on the first half


@dataclass(frozen=True, slots=True)
class Cut:
    """The event `score >= threshold`, believed of members; or `score < threshold`, believed of non-members."""

    threshold: float
    above: bool


Value = Callable[[NDArray[np.float64], NDArray[np.float64], int, int, float], NDArray[np.float64]]


def clopper_pearson(
    score: NDArray[np.float64], inside: NDArray[np.bool_], run: NDArray[np.int64], delta: float, alpha: float
) -> float:
    """A lower bound on epsilon at `delta` from independent runs with one target each.

    >>> inside = np.arange(2000) % 2 == 0
    >>> clopper_pearson(inside.astype(float), inside, np.arange(2000), 0.0, 0.05) > 4
    True
    """

    def value(believed: NDArray[np.float64], mistaken: NDArray[np.float64], ones: int, others: int, level: float) -> (
        NDArray[np.float64]
    ):  # fmt: skip
        low = rate_floor(believed, ones, level / 2.0) - delta
        high = rate_ceiling(mistaken, others, level / 2.0)
        return np.log(np.maximum(low, 1e-300) / high)

    return max(0.0, on_the_other_half(score, inside, run, value, alpha))


def on_the_other_half(
    score: NDArray[np.float64], inside: NDArray[np.bool_], run: NDArray[np.int64], value: Value, alpha: float
) -> float:
    """The value of the best cut, found on one half of the runs and measured on the other."""
    if not one_target_each(run):
        raise InvalidValue(
            f"This bound needs independent runs with one target each; {len(np.unique(run))} runs hold {len(run)} targets. "
            "Use method='betting', which allows many targets per run."
        )
    shuffle, _ = shuffled(len(score))
    learn, test = shuffle[::2], shuffle[1::2]
    if len(test) == 0:
        return 0.0
    cut = _best_cut(score[learn], inside[learn], value, alpha)
    return _measured(cut, score[test], inside[test], value, alpha)


def _best_cut(score: NDArray[np.float64], inside: NDArray[np.bool_], value: Value, alpha: float) -> Cut:
    thresholds = np.unique(np.quantile(score, np.linspace(0.0, 1.0, _CANDIDATES), method="higher"))
    members, others = np.sort(score[inside]), np.sort(score[~inside])
    above_in = len(members) - np.searchsorted(members, thresholds).astype(np.float64)
    above_out = len(others) - np.searchsorted(others, thresholds).astype(np.float64)
    up = value(above_in, above_out, len(members), len(others), alpha)
    down = value(len(others) - above_out, len(members) - above_in, len(others), len(members), alpha)
    above = bool(up.max() >= down.max())
    return Cut(float(thresholds[int(np.argmax(up if above else down))]), above)


def _measured(cut: Cut, score: NDArray[np.float64], inside: NDArray[np.bool_], value: Value, alpha: float) -> float:
    event = (score >= cut.threshold) == cut.above
    believed = inside == cut.above
    found = value(
        np.array([float((event & believed).sum())]), np.array([float((event & ~believed).sum())]),
        int(believed.sum()), int((~believed).sum()), alpha,
    )  # fmt: skip
    return float(found[0])
