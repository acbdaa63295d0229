"""An exact test of weighted guesses: the surer a guess, the more it counts, as the best test for Gaussian noise has it.

Weights fixed beforehand and falling along the order make the weighted sum of right guesses grow with each of them, so
under epsilon-DP its tail is at most that of independent guesses, each right with probability e^epsilon / (1 + e^epsilon).
Any weights are valid. These are the log-likelihood ratios, rounded to a few steps, of the Gaussian mechanism that so many
targets can just tell from epsilon: docs/theory/audit-betting.md.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from discreet.audit.bounds.search import STEP

SPAN = 16  # grid points of epsilon that share one set of weights
_STEPS = 8  # the heaviest weight; the lightest is 1
_HEAVIEST = 0.1  # this share of the guesses that count have that weight: beyond, delta would cost too much
_NEAR = 2.0  # standard deviations between what is told apart and epsilon
_ROUNDING = 1e-12  # more than the Fourier transform and the cut tails are wrong by


def refuted(
    hits: NDArray[np.int64], grid: NDArray[np.int64], spared: NDArray[np.float64], level: NDArray[np.float64]
) -> NDArray[np.bool_]:
    """Which epsilons, as multiples of 1/256 in rising order, the weighted sum refutes at these levels.

    `hits` counts the right guesses among the first 0, 1, 2, …. Within a span the test errs on the safe side, most spared
    at the lowest level, so that refuting an epsilon refutes all smaller ones of the span.
    """
    refuted = np.zeros(len(grid), dtype=np.bool_)
    for span in np.unique(grid // SPAN):
        mine = np.flatnonzero(grid // SPAN == span)
        depth = depths(len(hits) - 1, int(span))
        if len(depth) == 0:
            continue
        total = int(hits[list(depth)].sum()) - _STEPS * int(spared[mine].max())
        least = float(level[mine].min())
        low, high = -1, len(mine)  # low is refuted, or before the first; high is not, or after the last
        probe = len(mine) - 1
        while high - low > 1:
            rare = tail(total, len(hits) - 1, int(span), int(grid[mine[probe]])) <= least
            low, high = (probe, high) if rare else (low, probe)
            probe = (low + high) // 2
        refuted[mine[: low + 1]] = True
    return refuted


@lru_cache(maxsize=4096)
def depths(count: int, span: int) -> tuple[int, ...]:
    """The weighted sum is the sum of right guesses among this many first ones, over `_STEPS` depths; few come up empty.

    >>> depths(10_000, 16)[0] > depths(10_000, 16)[-1] > 0
    True
    """
    epsilon = (span + 0.5) * SPAN * STEP
    mu = just_told_apart(count, epsilon)
    heaviest = _cut(mu, _HEAVIEST * _share(mu, epsilon / mu)) * mu - epsilon
    cuts = (epsilon + (np.arange(_STEPS) + 0.5) / _STEPS * heaviest) / mu
    guesses = np.rint(count * _share(mu, cuts)).astype(np.int64)
    return tuple(int(number) for number in guesses) if guesses[0] > 0 else ()


def just_told_apart(count: int, epsilon: float) -> float:
    """The mu at which the best weighted sum of `count` guesses is `_NEAR` standard deviations above what epsilon allows."""
    from scipy.special import expit

    allowed = float(expit(epsilon))
    low, high = 1e-6, 1e3
    for _ in range(40):
        mu = math.sqrt(low * high)
        edges = np.linspace(epsilon / mu, epsilon / mu + mu + 9.0, 200)
        mass = -np.diff(_share(mu, edges))
        odds = mu * (edges[:-1] + edges[1:]) / 2.0
        weight = odds - epsilon
        shift = count * float((mass * weight * (expit(odds) - allowed)).sum())
        spread = math.sqrt(count * float((mass * weight**2).sum()) * allowed * (1.0 - allowed))
        low, high = (mu, high) if shift <= _NEAR * spread else (low, mu)
    return high


def tail(total: int, count: int, span: int, epsilon: int) -> float:
    """The probability that independent guesses, each right with probability q at epsilon / 256, weigh `total` or more."""
    q = 1.0 / (1.0 + math.exp(-epsilon * STEP))
    return above(total, depths(count, span), (q,) * _STEPS)


def detects(
    sure: Callable[[float], float], count: int, epsilon: int, spared: NDArray[np.float64], level: NDArray[np.float64]
) -> float:
    """How likely the test refutes epsilon / 256 when the surest share s of guesses is right at the rate `sure(s)`.

    `spared` and `level` are those of the whole span.
    """
    depth = depths(count, epsilon // SPAN)
    if len(depth) == 0:
        return 0.0
    low, high = 0, sum(depth) + 1
    while high - low > 1:
        middle = (low + high) // 2
        rare = tail(middle, count, epsilon // SPAN, epsilon) <= float(level.min())
        low, high = (low, middle) if rare else (middle, high)
    hits = [each * sure(each / count) if each else 0.0 for each in (*depth, 0)]
    made = [max(a - b, 1) for a, b in zip(depth, (*depth[1:], 0))]
    rates = tuple(min(1.0, max(0.0, (a - b) / n)) for a, b, n in zip(hits, hits[1:], made))
    return max(0.0, above(high + _STEPS * int(spared.max()), depth, rates) - 2.0 * _ROUNDING)


def above(total: int, depth: tuple[int, ...], rates: tuple[float, ...]) -> float:
    """The probability, never rounded down, that the guesses of each weight, right at these rates, weigh `total` or more."""
    first, chance = _tails(depth, rates)
    if total <= first:
        return 1.0
    return float(chance[total - first]) + _ROUNDING if total - first < len(chance) else _ROUNDING


@lru_cache(maxsize=2048)
def _tails(depth: tuple[int, ...], rates: tuple[float, ...]) -> tuple[int, NDArray[np.float64]]:
    """Pr[sum >= first + i] for i = 0, 1, …, by a Fourier transform over a window that the sum leaves with chance < 1e-14."""
    sizes = -np.diff(np.append(np.array(depth), 0))  # how many guesses weigh 1, 2, …
    weight = np.arange(1, len(depth) + 1)
    mean, most = float((sizes * weight * np.array(rates)).sum()), int((sizes * weight).sum())
    reach = math.sqrt(0.5 * math.log(2e15) * float((sizes * weight**2).sum()))  # Hoeffding
    first, last = max(0, math.floor(mean - reach)), min(most, math.ceil(mean + reach))
    width = 1 << (last - first + 1).bit_length()
    angle = -2j * np.pi * np.arange(width // 2 + 1) / width
    transform = np.exp(-angle * first)
    for each, size, rate in zip(weight.tolist(), sizes.tolist(), rates):
        transform = transform * (1.0 - rate + rate * np.exp(angle * each)) ** size
    mass = np.maximum(np.fft.irfft(transform, width), 0.0)[: last - first + 1]
    return first, np.cumsum(mass[::-1])[::-1]


def _share(mu: float, cut: NDArray[np.float64] | float) -> NDArray[np.float64]:
    """The share of targets whose score is at least `cut` from the middle between N(-mu/2, 1) and N(mu/2, 1)."""
    from scipy.special import ndtr

    return np.asarray(ndtr(mu / 2.0 - cut) + ndtr(-mu / 2.0 - cut), dtype=np.float64)


def _cut(mu: float, share: NDArray[np.float64] | float) -> float:
    low, high = 0.0, mu / 2.0 + 40.0
    for _ in range(60):
        middle = (low + high) / 2.0
        low, high = (middle, high) if _share(mu, middle) > share else (low, middle)
    return low
