"""Privacy-loss distributions on a lattice: one mechanism, discretised so that its divergence never shrinks.

Connect the dots (Doroshenko, Ghazi, Kamath, Kumar, Manurangsi 2022): between grid points the hockey-stick, convex in
e^epsilon, is replaced by the chord above it. The pair so made dominates the true one at every a > 0, hence in both
directions and in every composition.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from discreet.accounting.profile import LEAST, Delta, Profile

Array = NDArray[np.float64]
LARGEST = 1 << 19  # grid points of one mechanism: 4 MB an array
SCALES = np.concatenate([np.geomspace(1e-60, 1e-12, 60)[:-1], np.geomspace(1e-12, 1e12, 97)])


@dataclass(frozen=True, slots=True)
class Lattice:
    """P-mass on losses step x (start, start+1, ...), and the mass at infinite loss."""

    step: float
    start: int
    mass: Array
    infinite: float

    @property
    def loss(self) -> Array:
        return np.arange(self.start, self.start + len(self.mass), dtype=np.float64) * self.step


@dataclass(frozen=True, slots=True)
class Pair:
    """One discretised mechanism, seen from either world."""

    forward: Lattice
    backward: Lattice


def reach(profile: Profile, tail: float) -> tuple[float, float]:
    """How far losses must be followed, backward and forward, before at most `tail` of the mass is left beyond."""
    forward = _reach(profile.forward, profile.most_forward, tail)
    if profile.symmetric:
        return forward, forward
    return _reach(profile.backward, profile.most_backward, tail), forward


def _reach(delta: Delta, most: float, tail: float) -> float:
    """The least epsilon (up to a few percent) beyond which at most `tail` of the finite losses lie."""
    grid = SCALES
    allowed = tail + float(delta(np.array([1e15]))[0])  # what remains there is infinite loss
    for _ in range(2):
        first = int(np.argmax(delta(grid) <= allowed))
        grid = np.linspace(grid[first - 1] if first else 0.0, grid[first], 17)[1:]
    return min(float(grid[int(np.argmax(delta(grid) <= allowed))]), most)


def discretise(profile: Profile, step: float, least: float, most: float) -> Pair:
    """The lattice of `profile` with losses from -least to most; what lies beyond goes to the nearest worse place."""
    lo, hi = max(math.ceil(least / step * (1 - 1e-12)), 1), max(math.ceil(most / step * (1 - 1e-12)), 1)
    forward, backward, *infinite = connect(profile, _multiples(step, lo), _multiples(step, hi))
    return Pair(Lattice(step, -lo, forward, infinite[0]), Lattice(step, -hi, backward, infinite[1]))


def _multiples(step: float, count: int) -> Array:
    return np.arange(count + 1, dtype=np.float64) * step


def connect(profile: Profile, down: Array, up: Array) -> tuple[Array, Array, float, float]:
    """Masses at losses (-down reversed, up) with the unit, at (-up reversed, down) without it, and what is infinite.

    With S_i the Q-mass at or above point i, the chord between points i and i+1 has slope -S_{i+1} in e^epsilon, and the
    P-mass at i is e^{x_i} (S_i - S_{i+1}). Below zero the same is done with the parity-transformed profile, whose values
    are small there, so that neither tail suffers cancellation.
    """
    forward, backward, *infinite = second_differences(profile, down, up)
    for mass in (forward, backward):  # rounding can leave a mass a hair below zero; more mass is never less loss
        np.maximum(mass, 0, out=mass)
        mass[-1] = max(mass[-1], LEAST)
    return forward, backward, infinite[0], infinite[1]


def second_differences(profile: Profile, down: Array, up: Array) -> tuple[Array, Array, float, float]:
    """The masses of `connect` before those that rounding left below zero are raised to it."""
    rises = profile.forward(up)
    same = profile.symmetric and np.array_equal(up, down)
    falls = rises.copy() if same else profile.backward(down)
    if up[-1] >= profile.most_forward:
        rises[-1] = 0.0  # no loss is above the largest, whatever rounding says
    if down[-1] >= profile.most_backward:
        falls[-1] = 0.0
    forward = np.concatenate([_lower(falls, down)[::-1], [_middle(rises, up, falls, down)], _upper(rises, up)])
    backward = np.concatenate([_lower(rises, up)[::-1], [_middle(falls, down, rises, up)], _upper(falls, down)])
    return forward, backward, float(rises[-1]), float(falls[-1])


def _upper(delta: Array, grid: Array) -> Array:
    """The masses above zero."""
    drop, gap = delta[:-1] - delta[1:], np.diff(grid)
    with np.errstate(over="ignore"):
        mass = -drop / np.expm1(-gap)
        mass[:-1] -= drop[1:] / np.expm1(gap[1:])
    return mass


def _lower(delta: Array, grid: Array) -> Array:
    """The masses below zero, from the profile of the other direction."""
    with np.errstate(over="ignore", under="ignore"):
        put, gap = delta * np.exp(-grid), np.diff(grid)
        drop = put[:-1] - put[1:]
        mass = drop / np.expm1(gap)
        mass[:-1] += drop[1:] / np.expm1(-gap[1:])
        mass[-1] -= put[-1]
    return mass


def _middle(delta: Array, grid: Array, other: Array, other_grid: Array) -> float:
    """The mass at zero."""
    put = float(other[1]) * math.exp(-min(float(other_grid[1]), 700))
    fall = (float(other[0]) - put) / -math.expm1(-float(other_grid[1]))
    return 1 - fall - float(delta[0] - delta[1]) / math.expm1(min(float(grid[1]), 700))
