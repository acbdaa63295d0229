"""Textbook samplers, as published attacks break them. Kept to show that the attacks work; never to be used."""

from __future__ import annotations

import numpy as np

RNG = np.random.Generator(np.random.PCG64(2012))
STEP = 2.0**-53  # the grid that numpy's uniform floats lie on


def laplace_of(u: np.ndarray, sign: np.ndarray, scale: float) -> np.ndarray:
    return -scale * sign * np.log(u)


def naive_laplace(value: float, scale: float, size: int) -> np.ndarray:
    """value + Laplace noise by inverting the distribution function in float64."""
    u = (RNG.integers(0, 1 << 53, size) + 1) * STEP
    return value + laplace_of(u, RNG.choice([-1.0, 1.0], size), scale)


def box_muller_of(u: np.ndarray, v: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    radius = np.sqrt(-2.0 * np.log(u))
    return radius * np.cos(2 * np.pi * v), radius * np.sin(2 * np.pi * v)


def naive_gaussian(value: float, sigma: float, size: int) -> tuple[np.ndarray, np.ndarray]:
    """Pairs of value + Gaussian noise by Box & Muller's method in float64."""
    u = (RNG.integers(0, 1 << 53, size) + 1) * STEP
    x, y = box_muller_of(u, RNG.integers(0, 1 << 53, size) * STEP)
    return value + sigma * x, value + sigma * y


def naive_sum(rows: np.ndarray, scale: float, size: int) -> np.ndarray:
    """A float32 sum, row after row, plus Laplace noise scaled to the formula's sensitivity."""
    total = float(np.cumsum(rows.astype(np.float32), dtype=np.float32)[-1])
    return naive_laplace(total, scale, size)
