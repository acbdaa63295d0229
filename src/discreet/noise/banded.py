"""The matrix of correlated noise: banded, with columns of norm 1, chosen to minimise the noise in prefix sums.

With this matrix C and independent noise z, C (vectors) + z is released, seen through C^-1 (BandMF, Choquette-Choo et al. 2023).
A unit in at most one of every `bands` steps moves C (vectors) by one column per participation, and columns `bands` apart share
no row: each participation costs as much as one plain Gaussian step. docs/theory/banded-noise.md has the proof.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


def columns(column: Array, steps: int) -> Array:
    """C[t, t - j] at [t, j]: one column repeated down the diagonal, truncated at the end, and normalised."""
    length = np.append(lengths(column, steps) * (1 + 1e-12), np.ones(len(column)))  # never longer than 1
    index = np.arange(steps)[:, None] - np.arange(len(column))
    return np.where(index >= 0, column / length[index], 0.0)


def lengths(column: Array, steps: int) -> Array:
    """The norm of each column before normalisation: the last columns are truncated."""
    whole: Array = np.sqrt(np.cumsum(column**2))
    norms: Array = whole[np.minimum(np.arange(steps, 0, -1), len(column)) - 1]
    return norms


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

    optimum = minimize(error, root[1:], jac=True, method="L-BFGS-B", options={"maxiter": 300})
    return np.append(1.0, optimum.x)


def workload(steps: int, momentum: float) -> Array:
    """The weight of a gradient in the parameters so many steps later, at learning rate 1: 1 for plain descent."""
    return np.cumsum(momentum ** np.arange(steps))


def errors(steps: int, bands: int, momentum: float) -> Array:
    """The standard deviation of the noise in the sums after each step, where plain noise has 1.

    The norm of row t of (workload) x C^-1, for each t; apart from the last `bands` rows it grows with t.
    """
    from scipy.signal import lfilter

    column, weights = first_column(steps, bands, momentum), workload(steps, momentum)
    length = lengths(column, steps)
    variances: Array = np.cumsum(lfilter([1.0], column, weights) ** 2) * length[0] ** 2
    for step in range(steps - bands + 1, steps):
        row = lfilter([1.0], column, weights[: step + 1] * length[step::-1])
        variances[step] = float(row @ row)
    return np.sqrt(variances)
