"""Many runs with one target each: exact binomial bounds on how often guesses are right, at cuts fixed beforehand.

(epsilon, delta)-DP says Pr[S | inside] <= e^epsilon Pr[S | outside] + delta for every event S, and likewise with the
worlds exchanged. Jagielski, Ullman and Oprea (2020) bound both rates by exact intervals (Clopper and Pearson 1934), each
at half of the error. With fair coins one interval does: among the runs in S at most e^epsilon / (1 + e^epsilon) were inside,
but for what delta explains. The cuts are ranks of the pooled scores, so all runs are tested, the error split over the
cuts: docs/theory/audit-clopper-pearson.md.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from discreet.audit.binomial import rate_floor
from discreet.audit.bounds.betting import forgiven, tail
from discreet.audit.bounds.order import one_target_each, shuffled
from discreet.audit.bounds.search import climb
from discreet.errors import InvalidValue

_CANDIDATES = 256  # thresholds tried on the first half


@dataclass(frozen=True, slots=True)
class Cut:
    """The event `score >= threshold`, believed of members; or `score < threshold`, believed of non-members."""

    threshold: float
    above: bool


Value = Callable[[NDArray[np.float64], NDArray[np.float64], int, int, float], NDArray[np.float64]]

# Shares of the runs that are guessed: half of them from either end of the scores, or all from one end.
_BOTH_ENDS = (1 / 32, 1 / 8, 1 / 4, 1 / 2, 1)
_ONE_END = (1 / 64, 1 / 16, 1 / 4, 1 / 2)
_EVERY_RUN = 0.25  # of the error is for the cut that guesses every run; the others share the rest evenly


def clopper_pearson(
    score: NDArray[np.float64], inside: NDArray[np.bool_], run: NDArray[np.int64], delta: float, alpha: float
) -> float:
    """A lower bound on epsilon at `delta` from independent runs with one target each.

    >>> inside = np.arange(2000) % 2 == 0
    >>> clopper_pearson(inside.astype(float), inside, np.arange(2000), 0.0, 0.05) > 5
    True
    """
    _check_runs(run)
    if inside.all() or not inside.any():
        return 0.0  # nobody of the other world was seen
    tests = cuts(score, inside)
    if delta == 0:
        rate = max(float(rate_floor(hits, size, part * alpha)) for size, hits, part, _ in tests)
        return math.log(rate / (1.0 - rate)) if rate > 0.5 else 0.0
    made, right, share, ends = (np.array(column) for column in zip(*tests))

    def refuted(epsilon: NDArray[np.float64]) -> NDArray[np.bool_]:
        # One end of the scores can be given away with half the probability of both.
        allowed = {number: forgiven(epsilon, len(score), delta * number / 2.0, alpha, independent=True) for number in (1, 2)}
        spared = np.stack([allowed[number][0] for number in ends.tolist()])
        level = np.stack([allowed[number][1] for number in ends.tolist()])
        rare = tail(right[:, None] - spared, made[:, None], epsilon) <= share[:, None] * level
        return np.asarray(rare.any(axis=0))

    return climb(refuted)


def cuts(score: NDArray[np.float64], inside: NDArray[np.bool_]) -> list[tuple[int, int, float, int]]:
    """For each cut: how many guesses, how many right, its share of the error, and how many ends of the scores it takes.

    The highest scores are guessed to be inside and the lowest outside; ties are broken by a shuffle that knows nothing.

    >>> cuts(np.arange(64.0), np.arange(64) >= 32)[4]
    (64, 64, 0.25, 2)
    """
    count = len(score)
    shuffle, _ = shuffled(count)
    ranked = inside[shuffle][np.argsort(-score[shuffle], kind="stable")]
    top, bottom = np.append(0, np.cumsum(ranked)), np.append(0, np.cumsum(~ranked[::-1]))
    share = (1.0 - _EVERY_RUN) / (len(_BOTH_ENDS) - 1 + 2 * len(_ONE_END))
    tests: list[tuple[int, int, float, int]] = []
    for part in _BOTH_ENDS:
        high, low = math.ceil(count * part / 2.0), min(math.ceil(count * part / 2.0), count // 2)
        tests.append((high + low, int(top[high] + bottom[low]), _EVERY_RUN if part == 1 else share, 2))
    for part in _ONE_END:
        size = math.ceil(count * part)
        tests += [(size, int(top[size]), share, 1), (size, int(bottom[size]), share, 1)]
    return tests


def on_the_other_half(
    score: NDArray[np.float64], inside: NDArray[np.bool_], run: NDArray[np.int64], value: Value, alpha: float
) -> float:
    """The value of the best cut, found on one half of the runs and measured on the other."""
    _check_runs(run)
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


def _check_runs(run: NDArray[np.int64]) -> None:
    if not one_target_each(run):
        raise InvalidValue(
            f"This bound needs independent runs with one target each; {len(np.unique(run))} runs hold {len(run)} targets. "
            "Use method='betting', which allows many targets per run."
        )
