"""What no valid bound can exceed, for canaries whose noise is known: docs/theory/audit-ceiling.md has the proof.

Cut each canary's posterior off at epsilon0: the result is epsilon0-DP, so a valid bound is above epsilon0 on it with
probability at most alpha. On the real mechanism it is so no more often than the best test of level alpha between the two
(Neyman and Pearson 1933). Where that test has less than half of a chance, epsilon0 is over the median of every valid bound.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from scipy.special import expit, ndtr

from discreet.audit.bounds.gaussian import mu_of

# log-odds -> Pr[right guess, and surer than that], Pr[wrong guess, and surer than that]
Sureness = Callable[[np.ndarray], tuple[np.ndarray, np.ndarray]]

_CELL = 2.0**-12
_CELLS = 1 << 18
_DEEPEST = 30.0  # a wrong guess that costs more than this in log-likelihood is counted as costing this
_CERTAIN = 8.0  # a mean log-likelihood ratio at which the test has power over 0.98, called 1
_ROUNDING = 1e-9  # more than the Fourier transform is wrong by


def sureness(law: str, epsilon: float, delta: float) -> Sureness:
    """How sure the best guess is under this noise, whose epsilon at this delta is given."""
    if law == "gaussian":
        mu = mu_of(epsilon, delta)
        return lambda odds: (ndtr(mu / 2.0 - odds / mu), ndtr(-mu / 2.0 - odds / mu))

    def laplace(odds: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        out = np.minimum(odds, epsilon) / 2.0
        right, wrong = 1.0 - np.exp(out - epsilon / 2.0) / 2.0, np.exp(-out - epsilon / 2.0) / 2.0
        return np.where(odds < epsilon, right, 0.0), np.where(odds < epsilon, wrong, 0.0)

    return laplace


def power(surer: Sureness, null: float, targets: int, alpha: float) -> float:
    """The power, never rounded down, of the best level-alpha test of the mechanism cut off at `null` against the whole one.

    That test rejects where the likelihood ratio is largest, and by a coin where it is just at the edge.
    """
    mass = _losses(surer, null)
    index = np.arange(_CELLS)
    centred = np.where(index < _CELLS // 2, index, index - _CELLS)
    mean = targets * float((mass * centred).sum()) * _CELL
    if mean > _CERTAIN:
        return 1.0
    total = np.maximum(np.fft.irfft(np.fft.rfft(mass) ** targets, _CELLS), 0.0)
    middle = round(mean / _CELL)
    loss = np.arange(middle + _CELLS // 2 - 1, middle - _CELLS // 2 - 1, -1)  # from the likeliest to be the mechanism on
    here = total[loss % _CELLS]
    under = np.append(0.0, np.cumsum(here * np.exp(-loss * _CELL)))
    return min(1.0, float(np.interp(alpha, under, np.append(0.0, np.cumsum(here)))) + _ROUNDING)


def median_ceiling(surer: Sureness, epsilon: float, targets: int, alpha: float) -> float:
    """No valid bound at confidence 1 - alpha has a median above this."""
    low, high = 0.0, epsilon  # at the truth the power is alpha
    for _ in range(12):
        middle = (low + high) / 2.0
        low, high = (middle, high) if power(surer, middle, targets, alpha) >= 0.5 else (low, middle)
    return high


def mean_ceiling(surer: Sureness, epsilon: float, targets: int, alpha: float, points: int = 100) -> float:
    """No valid bound, what it claims above the truth left out, has a mean above this: the upper sum of the power."""
    grid = np.linspace(0.0, epsilon, points + 1)
    powers = np.minimum.accumulate([power(surer, float(null), targets, alpha) for null in grid[:-1]])
    return float((powers * np.diff(grid)).sum())


def _losses(surer: Sureness, null: float) -> np.ndarray:
    """The law, on the mechanism, of one canary's log-likelihood ratio against the cut-off one; index i is i cells, modulo.

    What falls between two multiples of a cell is spread over both so that neither mechanism's probability changes. That
    is undone by forgetting which of the two it was, so the spread pair is no harder to tell apart (connect the dots).
    """
    q = float(expit(null))
    mass = np.zeros(_CELLS)
    up = np.arange(int(np.ceil(-np.log(q) / _CELL)) + 1)
    rate = q * np.exp(up * _CELL)
    odds = np.where(rate < 1.0, np.log(rate) - np.log1p(-np.minimum(rate, 1.0 - 1e-16)), np.inf)
    _spread(mass, surer, np.append(null, odds[1:]), up[:-1], q, right=True)
    down = np.arange(int(_DEEPEST / _CELL) + 1)
    rate = (1.0 - q) * np.exp(-down * _CELL)
    odds = np.append(null, (np.log1p(-rate) - np.log(rate))[1:])
    odds[-1] = np.inf
    _spread(mass, surer, odds, -down[1:], q, right=False)
    mass[0] += 1.0 - sum(float(each[0]) for each in surer(np.array([null])))  # less sure than `null`: nothing was cut
    return mass


def _spread(mass: np.ndarray, surer: Sureness, odds: np.ndarray, cell: np.ndarray, q: float, *, right: bool) -> None:
    """Add guesses between consecutive `odds` to the two ends of each cell [cell, cell + 1]."""
    hits, misses = (each[:-1] - each[1:] for each in surer(odds))
    real = hits if right else misses
    cut = (hits + misses) * (q if right else 1.0 - q)
    low, high = np.exp(-cell * _CELL), np.exp(-(cell + 1) * _CELL)
    above = np.clip((real * low - cut) / (low - high), 0.0, real)
    np.add.at(mass, cell % _CELLS, real - above)
    np.add.at(mass, (cell + 1) % _CELLS, above)
