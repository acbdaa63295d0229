"""The exact delta of a Poisson-sampled Gaussian run, by a contour integral that shares nothing with the code it tests.

E[(1 - e^{epsilon - Y})+] is the inverse Laplace transform of E[e^{sY}] / (s (s + 1)); on the line Re s = t > 0 through the
saddle point the integrand falls like a Gaussian, and the trapezoid rule is accurate to rounding.
"""

from __future__ import annotations

import numpy as np
from scipy.optimize import brentq


def sampled_gaussian_epsilon(sigma: float, rate: float, times: int, delta: float, near: float) -> float:
    """epsilon at delta, in the direction that removes a unit; `near` is where to look."""
    x = np.linspace(-14 * sigma, 1 + 14 * sigma + 10, 40_001)
    loss = np.log1p(rate * np.expm1((2 * x - 1) / (2 * sigma**2)))
    density = (1 - rate) * np.exp(-((x / sigma) ** 2) / 2) + rate * np.exp(-(((x - 1) / sigma) ** 2) / 2)
    with np.errstate(divide="ignore"):
        log_mass = np.log(density / density.sum())

    def tilted(t: float) -> tuple[float, np.ndarray, float]:
        exponent = log_mass + t * loss
        top = exponent.max()
        weight = np.exp(exponent - top)
        total = weight.sum()
        return float(top + np.log(total)), weight / total, float((weight * loss).sum() / total)

    t = brentq(lambda t: times * tilted(t)[2] - near, 1e-9, 200.0)
    log_moment, weight, mean = tilted(t)
    spread = np.sqrt(times * (weight * (loss - mean) ** 2).sum())
    turn = np.linspace(0, 12 / spread, 1501)
    transform = np.array([(weight * np.exp(1j * w * (loss - mean))).sum() for w in turn])
    assert abs(transform[-1]) ** times < 1e-12, "the integrand must have died away"
    s = t + 1j * turn
    kernel = np.exp(times * np.log(transform)) / (s * (s + 1))

    def log_delta(epsilon: float) -> float:
        integral = np.trapezoid((kernel * np.exp(1j * turn * (times * mean - epsilon))).real, turn) / np.pi
        return float(times * log_moment - t * epsilon + np.log(integral))

    width = 0.05 * near + spread
    return float(brentq(lambda e: log_delta(e) - np.log(delta), near - width / 4, near + width / 4, xtol=1e-12))
