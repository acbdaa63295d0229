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

from discreet.accounting.profile import Delta, Profile

Array = NDArray[np.float64]
LARGEST = 1 << 20  # grid points of one mechanism: 8 MB an array


@dataclass(frozen=True, slots=True)
class Lattice:
    """P-mass on losses step x (start, start+1, ...), and the mass at infinite loss."""

    step: float
    start: int
    mass: Array
    infinite: float

    @property
    def loss(self) -> Array:
        return self.step * np.arange(self.start, self.start + len(self.mass))


@dataclass(frozen=True, slots=True)
class Atoms:
    """P-mass on any losses: for moments, not for composing."""

    loss: Array
    mass: Array
    infinite: float = 0.0


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
    grid = np.geomspace(1e-12, 1e12, 97)
    allowed = tail + float(delta(np.array([1e15]))[0])  # what remains there is infinite loss
    for _ in range(2):
        first = int(np.argmax(delta(grid) <= allowed))
        grid = np.linspace(grid[first - 1] if first else 0.0, grid[first], 17)[1:]
    return min(float(grid[int(np.argmax(delta(grid) <= allowed))]), most)


def discretise(profile: Profile, step: float, least: float, most: float) -> Pair:
    """The lattice of `profile` with losses from -least to most; what lies beyond goes to the nearest worse place."""
    lo, hi = -max(math.ceil(least / step * (1 - 1e-12)), 1), max(math.ceil(most / step * (1 - 1e-12)), 1)
    up = profile.forward(step * np.arange(0, hi + 1))
    down = profile.backward(step * np.arange(0, -lo + 1))
    growth = math.expm1(step)
    keep, give = 1 + 1 / growth, 1 / growth  # e^h/(e^h - 1) and 1/(e^h - 1)
    with np.errstate(under="ignore"):
        put = down * np.exp(-step * np.arange(0, -lo + 1))  # parity: e^x H(Q||P) at loss x = -step * i
    mass = np.empty(hi - lo + 1)
    rise, fall = up[:-1] - up[1:], put[:-1] - put[1:]  # both are >= 0; the second counts from 0 downwards
    zero = -lo
    mass[zero + 1 : -1] = keep * rise[:-1] - give * rise[1:]
    mass[-1] = keep * rise[-1]
    # at i < 0: keep (r_{i-1} - r_i) - give (r_i - r_{i+1}) with r falling away from 0
    below = give * fall[:-1] - keep * fall[1:]
    mass[1:zero] = below[::-1]
    mass[0] = give * fall[-1] - put[-1]
    mass[zero] = 1 - keep * fall[0] - give * rise[0]
    mass = np.maximum(mass, 0)  # rounding only: more mass is never less loss
    infinite_forward, infinite_backward = float(up[-1]), float(down[-1])
    with np.errstate(under="ignore"):
        other = (mass * np.exp(-step * np.arange(lo, hi + 1)))[::-1]
    return Pair(Lattice(step, lo, mass, infinite_forward), Lattice(step, -hi, other, infinite_backward))


def look(profile: Profile, tail: float, points: int) -> tuple[Atoms, Atoms]:
    """A few atoms on a geometric grid, forward and backward: enough to know the moments, whatever the scale."""
    least, most = (max(end, 1e-290) for end in reach(profile, tail))
    grid = [np.concatenate([[0.0], np.geomspace(end * 1e-7, end, points)]) for end in (least, most)]
    up, down = profile.forward(grid[1]), profile.backward(grid[0])
    with np.errstate(under="ignore"):
        put = down * np.exp(-grid[0])
        above = (up[:-1] - up[1:]) * np.exp(-grid[1][:-1]) / np.expm1(np.diff(grid[1]))
        below = (put[:-1] - put[1:]) * np.exp(np.minimum(grid[0][1:], 600)) / np.expm1(np.diff(grid[0]))
    # Q-mass beyond each cell: `above` past 0 upwards; 1 - below ... downwards
    loss = np.concatenate([-grid[0][:0:-1], grid[1]])
    slope = np.concatenate([[1 - down[-1]], (1 - below)[::-1], above, [0.0]])
    other = np.maximum(slope[:-1] - slope[1:], 0)
    with np.errstate(under="ignore", over="ignore"):
        mass = other * np.exp(np.minimum(loss, 600))
    return Atoms(loss, mass), Atoms(-loss[::-1], other[::-1])
