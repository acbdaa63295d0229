"""Activations as polynomials, since ciphertexts can only be added and multiplied; with the error this costs, stated.

`fit` takes the polynomial of degree 3 that is nearest in least squares at the Chebyshev nodes of [-radius, radius]. Its error
is bounded, not sampled: on a grid of width h it is at most the largest error at a grid point plus h/2 times the largest
slopes of both functions.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from discreet.core import check
from discreet.errors import InvalidValue

__all__ = ["ACTIVATIONS", "Polynomial", "fit"]

Array = NDArray[np.float64]
POINTS = 20_001
LEAST_RADIUS = 1e-3


def _sigmoid(x: Array) -> Array:
    return np.asarray(1 / (1 + np.exp(-x)))


def _gelu(x: Array) -> Array:
    from scipy.special import ndtr

    return np.asarray(x * ndtr(x))


ACTIVATIONS: dict[str, tuple[Callable[[Array], Array], float]] = {  # with the largest slope
    "relu": (lambda x: np.maximum(x, 0), 1.0),
    "sigmoid": (_sigmoid, 0.25),
    "tanh": (np.tanh, 1.0),
    "gelu": (_gelu, 1.13),
    "silu": (lambda x: np.asarray(x * _sigmoid(x)), 1.1),
}


@dataclass(frozen=True, slots=True)
class Polynomial:
    """c0 + c1 x + c2 x^2 + c3 x^3 in place of an activation on [-radius, radius], at most `error` away from it there."""

    activation: str
    radius: float
    coefficients: tuple[float, float, float, float]
    error: float

    def __call__(self, x: Any) -> Array:
        c0, c1, c2, c3 = self.coefficients
        z = np.asarray(x, np.float64)
        return np.asarray(((c3 * z + c2) * z + c1) * z + c0)

    def slope(self, radius: float) -> float:
        """No slope within [-radius, radius] is larger."""
        _, c1, c2, c3 = map(abs, self.coefficients)
        return c1 + 2 * c2 * radius + 3 * c3 * radius**2

    def largest(self, radius: float) -> float:
        """No value within [-radius, radius] is larger in magnitude."""
        return sum(abs(c) * radius**power for power, c in enumerate(self.coefficients))


def fit(activation: str, radius: float) -> Polynomial:
    """The polynomial in place of an activation, for arguments within [-radius, radius].

    >>> fit("sigmoid", 5.0).error < 0.07
    True
    """
    function, steepest = ACTIVATIONS[check.word("activation", activation, tuple(ACTIVATIONS))]
    if not isinstance(radius, (int, float)) or isinstance(radius, bool) or not LEAST_RADIUS <= radius <= 64:
        raise InvalidValue(
            f"radius must be from {LEAST_RADIUS:g}, below which an activation is a constant to ciphertexts, to 64, "
            f"where degree 3 still says something; got {radius!r}. Take the largest argument of an activation."
        )
    nodes = radius * np.cos(np.pi * (np.arange(64) + 0.5) / 64)
    powers = np.vander(nodes / radius, 4, increasing=True)
    scaled = np.linalg.lstsq(powers, function(nodes), rcond=None)[0]
    coefficients = [float(c) / radius**power for power, c in enumerate(scaled)]
    c0, c1, c2, c3 = [0.0 if abs(c) * radius**power < 1e-9 else c for power, c in enumerate(coefficients)]
    found = Polynomial(activation, float(radius), (c0, c1, c2, c3), 0.0)
    grid = np.linspace(-radius, radius, POINTS)
    worst = float(np.abs(found(grid) - function(grid)).max())
    error = worst + (steepest + found.slope(radius)) * radius / (POINTS - 1)
    return Polynomial(activation, float(radius), found.coefficients, error)
