"""The whole trade-off curve of a claim as a few (epsilon, delta) lines, and the test of all of them at once."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from functools import lru_cache, wraps
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from discreet.audit.bounds.curve_bets import log_capital
from discreet.audit.bounds.fdp import curve_refuted
from discreet.audit.bounds.order import shuffled, surest_first
from discreet.core import Curve

# Deltas at which claims are stated and reported, and large ones, where many small losses are easiest to refute.
STATED = (0.0, 1e-9, 1e-6, 1e-5, 1e-3, 0.01, 0.03, 0.1, 0.3)
_NEGLIGIBLE = 1e-12  # a delta that remains at any epsilon counts as the claim's own from here on
_APART = 0.95  # lines whose epsilons differ by less than this factor test nearly the same thing
STEEPEST = 40.0  # no number of runs refutes a larger epsilon
_HIGHER = np.array([1 / 64, 1 / 32, 1 / 16, 1 / 8, 1 / 4, 1 / 2, 3 / 4, 1, 1.5, 2, 3, 4, 6, 8, 12])
_CANARIES = 20_000  # of one run that are tested against the curve as a whole; the recursion takes a step for each


@dataclass(frozen=True, slots=True)
class Violation:
    """A line of the claim that is refuted: (`epsilon`, `delta`) is claimed, and epsilon is at least `floor` at `delta`."""

    epsilon: float
    delta: float
    floor: float


T = TypeVar("T")


def _kept(work: Callable[[Curve], T]) -> Callable[[Curve], T]:
    """Work on a curve once, since a report judges much evidence against few claims."""
    once = lru_cache(maxsize=64)(work)

    @wraps(work)
    def answer(curve: Curve) -> T:
        return once(curve) if isinstance(curve, Hashable) else work(curve)

    return answer


@_kept
def own_delta(curve: Curve) -> float:
    """The least delta, or little more, at which the claim has an epsilon at all: 0 for pure claims and for most others.

    >>> from discreet.accounting import Approximate, curve
    >>> own_delta(curve(Approximate(1.0, 1e-6)))
    1e-06
    """
    rest = curve.delta(1e15)
    if rest <= _NEGLIGIBLE or rest >= 1:
        return 0.0
    return rest if math.isfinite(curve.epsilon(rest)) else min(1.25 * rest, (1.0 + rest) / 2.0)


@_kept
def lines_of(curve: Curve) -> NDArray[np.float64]:
    """Rows (epsilon, delta) on the curve, chosen from the claim alone: its own delta, those stated, and epsilon 0.

    >>> from discreet.accounting import Approximate, curve
    >>> lines_of(curve(Approximate(1.0, 1e-3)))[0].tolist()
    [1.0, 0.001]
    """
    own = own_delta(curve)
    deltas = {own, 3.0 * own, curve.delta(0.0), *(stated for stated in STATED if stated >= own)}
    chosen: list[tuple[float, float]] = []
    for delta in sorted(delta for delta in deltas if 0.0 <= delta < 1.0):
        epsilon = curve.epsilon(delta)
        if epsilon <= STEEPEST and (not chosen or epsilon < _APART * chosen[-1][0]):
            chosen.append((epsilon, delta))
    lines = np.array(chosen, dtype=np.float64).reshape(len(chosen), 2)
    lines.flags.writeable = False
    return lines


def shares_of(curve: Curve, lines: NDArray[np.float64]) -> NDArray[np.float64]:
    """The share of the error for each line, from the claim alone: half for the first where it is the claim's own, and half as
    much again where the claim is pure, since whatever breaks a pure claim breaks that line.

    >>> from discreet.accounting import Pure, curve
    >>> float(shares_of(curve(Pure(1.0)), lines_of(curve(Pure(1.0))))[0])
    0.75
    """
    if len(lines) < 2:
        return np.ones(len(lines))
    own = own_delta(curve)
    first = 0.75 if is_pure(curve) else 0.5 if own and math.isfinite(curve.epsilon(own)) else 1.0 / len(lines)
    return np.append(first, np.full(len(lines) - 1, (1.0 - first) / (len(lines) - 1)))


@_kept
def is_pure(curve: Curve) -> bool:
    """Is the claim nearly as weak as epsilon at delta 0 allows, and no sequence of many small losses?

    >>> from discreet.accounting import Laplace, Repeat, curve
    >>> is_pure(curve(Laplace(1.0))), is_pure(curve(Repeat(Laplace(10.0), 100)))
    (True, False)
    """
    most = curve.epsilon(0.0)
    if not most <= STEEPEST:
        return False
    return curve.delta(most / 2.0) >= 0.5 * (math.exp(most) - math.exp(most / 2.0)) / (1.0 + math.exp(most))


def violation(
    lines: NDArray[np.float64], score: NDArray[np.float64], inside: NDArray[np.bool_], error: NDArray[np.float64]
) -> Violation | None:
    """The line that independent runs, in this order, refute most clearly, if any. A true curve has one with probability at
    most the sum of `error`, which has a share for each line.
    """
    if not len(lines):
        return None
    enough = -np.log(error)
    beyond = log_capital(score, inside, lines[:, 0], lines[:, 1]) - enough
    worst = int(np.argmax(beyond))
    if beyond[worst] < 0:
        return None
    epsilon, delta = lines[worst].tolist()
    higher = log_capital(score, inside, epsilon + _HIGHER, np.full(len(_HIGHER), delta)) >= enough[worst]
    steps = len(higher) if higher.all() else int(np.argmin(higher))
    floor = epsilon + float(_HIGHER[steps - 1]) if steps else math.nextafter(epsilon, math.inf)
    return Violation(epsilon, delta, floor)


def reachable(lines: NDArray[np.float64], count: int, error: NDArray[np.float64]) -> int | None:
    """The first line that `count` independent runs refute when every guess is right; None if they refute none."""
    perfect = shuffled(count)[1]
    if not len(lines):
        return None
    capital = log_capital(perfect.astype(np.float64), perfect, lines[:, 0], lines[:, 1])
    within = np.flatnonzero(capital >= -np.log(error))
    return int(within[0]) if len(within) else None


def joint_violation(
    curve: Curve, lines: NDArray[np.float64], score: NDArray[np.float64], inside: NDArray[np.bool_], alpha: float
) -> Violation | None:
    """The same for targets of one run, which depend on each other: the curve is refuted as a whole or not at all.

    What is named is the line that the guesses exceed most; its floor is just above the claim.
    """
    kept = np.sort(shuffled(len(score))[0][:_CANARIES])
    if not len(lines) or not curve_refuted(curve, score[kept], inside[kept], 1.0 - alpha):
        return None
    right = np.cumsum(surest_first(score, inside))
    wrong = np.arange(1, len(right) + 1) - right
    excess = [float(np.max(right - math.exp(e) * wrong) / len(right) - d) for e, d in lines.tolist()]
    epsilon, delta = lines[int(np.argmax(excess))].tolist()
    return Violation(epsilon, delta, math.nextafter(epsilon, math.inf))
