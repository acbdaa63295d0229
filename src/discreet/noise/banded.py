"""The matrix of correlated noise: banded, with columns of length 1, chosen so that sums of what is released have little noise.

Where C is this matrix and z plain noise, C (vectors) + z is released, seen through C^-1 (BandMF, Choquette-Choo et al. 2023). A
unit in at most one of every `bands` steps moves C (vectors) by at most one column at a time, and columns `bands` apart have no
row in common: each time it takes part costs as much as one plain Gaussian step. docs/theory/banded-noise.md has the proof.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


def columns(column: Array, steps: int) -> Array:
    """C[t, t - j] at [t, j]: one column repeated down the diagonal, cut off at the end, each then made of length 1."""
    length = np.append(lengths(column, steps) * (1 + 1e-12), np.ones(len(column)))  # never longer than 1
    index = np.arange(steps)[:, None] - np.arange(len(column))
    return np.where(index >= 0, column / length[index], 0.0)


def lengths(column: Array, steps: int) -> Array:
    """The length of each column before it is made 1: the last ones are cut off."""
    whole: Array = np.sqrt(np.cumsum(column**2))
    found: Array = whole[np.minimum(np.arange(steps, 0, -1), len(column)) - 1]
    return found


def first_column(steps: int, bands: int, momentum: float) -> Array:
    """The column, beginning with 1, whose matrix gives sums over `steps` steps the least mean square error.

    Repeating one column costs about 1 % against the best banded matrix (McKenna 2024) and makes the search one over
    `bands` - 1 numbers. It starts at the square root of the matrix of sums (Fichtenberger, Henzinger, Upadhyay 2023).
    """
    from scipy.optimize import minimize
    from scipy.signal import lfilter

    if bands == 1:
        return np.ones(1)
    weights, times = workload(steps, momentum), np.arange(steps, 0, -1.0)
    back = np.arange(1, bands)
    root = np.cumprod(np.append(1.0, (2 * back - 1) / (2 * back)))

    def error(rest: Array) -> tuple[float, Array]:
        """log of (mean square error x length of the column squared), and its gradient."""
        column = np.append(1.0, rest)
        with np.errstate(over="ignore", invalid="ignore"):
            noise = lfilter([1.0], column, weights)
            total = float(times @ noise**2)
        if not math.isfinite(total):
            return 1e3, np.zeros_like(rest)
        twice, square = lfilter([1.0], column, noise), float(column @ column)
        heavy = times * noise
        slope = np.array([-2 * (heavy[j:] @ twice[: steps - j]) for j in back])
        return math.log(total) + math.log(square), slope / total + 2 * rest / square

    found = minimize(error, root[1:], jac=True, method="L-BFGS-B", options={"maxiter": 300})
    return np.append(1.0, found.x)


def workload(steps: int, momentum: float) -> Array:
    """How much of a gradient is in the weights so many steps later, at learning rate 1: 1 for plain descent."""
    return np.cumsum(momentum ** np.arange(steps))


def errors(steps: int, bands: int, momentum: float) -> Array:
    """The standard deviation of the noise in the sums after each step, where plain noise has 1.

    Row t of (what a step adds to later sums) x C^-1, for each t; but for the last `bands` rows they only grow longer.
    """
    from scipy.signal import lfilter

    column, weights = first_column(steps, bands, momentum), workload(steps, momentum)
    length = lengths(column, steps)
    found: Array = np.cumsum(lfilter([1.0], column, weights) ** 2) * length[0] ** 2
    for step in range(steps - bands + 1, steps):
        row = lfilter([1.0], column, weights[: step + 1] * length[step::-1])
        found[step] = float(row @ row)
    return np.sqrt(found)
