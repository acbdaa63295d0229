"""One run with many canaries, tested against a whole trade-off curve instead of one epsilon.

Mahloujifar, Melis and Chaudhuri (2024), "Auditing f-differential privacy in one run": if r of m canaries are guessed
and p_i is the chance that i guesses are right, then f-DP ties the right and the wrong guesses of every tail together,
sum_{i >= c} i p_i / m <= B(sum_{i >= c-1} (r - i) p_i / m), where B(x) is the largest power at level x. If a tail of
probability alpha forces the total over r/m, it had less than alpha. The derivation is in docs/theory/audit-fdp.md.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from functools import lru_cache

import numpy as np
from numpy.typing import ArrayLike, NDArray

from discreet.audit.bounds.gaussian import epsilon_of
from discreet.audit.bounds.one_run import guesses as shares_of_guesses
from discreet.audit.bounds.order import surest_first
from discreet.core import Curve, check
from discreet.core.evidence import trials
from discreet.errors import InvalidValue

Inverse = Callable[[NDArray[np.float64]], NDArray[np.float64]]

_GRID = 33
_ROUNDS = 4
_EPSILONS = np.concatenate([np.linspace(0.0, 2.0, 41), np.linspace(2.1, 12.0, 100)])


def fdp(score: NDArray[np.float64], inside: NDArray[np.bool_], run: NDArray[np.int64], delta: float, alpha: float) -> float:
    """A lower bound on epsilon at `delta`, provided the mechanism's trade-off is Gaussian.

    >>> inside = np.arange(400) % 2 == 0
    >>> fdp(inside.astype(float), inside, np.zeros(400, int), 1e-5, 0.05) > 4
    True
    """
    check.positive("delta", delta)
    tests = shares_of_guesses(surest_first(score, inside))
    return epsilon_of(max(_mu_floor(len(score), made, right, alpha / len(tests)) for made, right in tests), delta)


def curve_refuted(curve: Curve, score: ArrayLike, inside: ArrayLike, confidence: float) -> bool:
    """Do these guesses refute this very curve? Wrong with probability at most 1 - confidence; no family is assumed.

    The curve is replaced by the best (epsilon, delta) lines above it, which only makes it harder to refute. Every target
    must have been inside by its own fair coin, as for `epsilon_lower_bound`.

    >>> from discreet.accounting import Pure, curve
    >>> inside = np.arange(400) % 2 == 0
    >>> curve_refuted(curve(Pure(1.0)), inside, inside, confidence=0.95)
    True
    """
    if not isinstance(curve, Curve):
        raise InvalidValue(f"curve must be a trade-off, such as discreet.accounting.curve(event); got {type(curve).__name__}.")
    scores, truth, _ = trials(score, inside, np.zeros(np.shape(score), dtype=np.int64))
    alpha = 1.0 - check.open_fraction("confidence", confidence)
    deltas = _kept_deltas(curve) if isinstance(curve, Hashable) else _deltas(curve)
    grow = np.exp(_EPSILONS)

    def inverse(power: NDArray[np.float64]) -> NDArray[np.float64]:
        lines = np.maximum((power - deltas) / grow, 1.0 - deltas - grow * (1.0 - power))
        return np.array([max(0.0, float(lines.max()))])

    tests = shares_of_guesses(surest_first(scores, truth))
    return any(bool(impossible(inverse, len(scores), made, right, alpha / len(tests), 1)[0]) for made, right in tests)


def _deltas(curve: Curve) -> NDArray[np.float64]:
    return np.array([curve.delta(float(epsilon)) for epsilon in _EPSILONS])


_kept_deltas = lru_cache(maxsize=64)(_deltas)


def impossible(inverse: Inverse, canaries: int, made: int, right: int, alpha: float, width: int) -> NDArray[np.bool_]:
    """Is Pr[at least `right` of `made` guesses right] >= alpha impossible under the curve with this inverse power?"""
    heard = np.full(width, alpha * right / canaries)
    missed = np.full(width, alpha * (made - right) / canaries)
    total = made / canaries
    for i in range(right - 1, -1, -1):
        lower = np.maximum(missed, inverse(heard))
        heard = np.minimum(heard + i / (made - i) * (lower - missed), 1.0)
        missed = lower
        if bool((heard + missed > total).all()):
            break
    return np.asarray(heard + missed > total)


@lru_cache(maxsize=4096)
def _mu_floor(canaries: int, made: int, right: int, alpha: float) -> float:
    """The largest mu on a fine grid at which so many right guesses are impossible; a larger mu only allows more."""
    from scipy.special import ndtr, ndtri

    if 2 * right <= made:
        return 0.0
    low, high = 0.0, 16.0
    for _ in range(_ROUNDS):
        grid = np.linspace(low, high, _GRID)
        refuted = impossible(lambda power: ndtr(ndtri(power) - grid), canaries, made, right, alpha, _GRID)  # noqa: B023
        if not refuted[0]:
            return float(low)
        last = int(np.flatnonzero(refuted)[-1])
        low, high = float(grid[last]), float(grid[min(last + 1, _GRID - 1)])
    return low
