"""Critical points of a piecewise linear function, and the hyperplanes that they lie on (Carlini et al. 2020)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import count

import numpy as np
from numpy.typing import NDArray

from discreet.errors import InvalidValue

Floats = NDArray[np.float64]
Function = Callable[[Floats], Floats]  # [rows, inputs] to [rows]
BEND = 1e-7  # the least change of slope that counts as one
STEP = 1e-4  # over which slopes are taken
SAME = 1e-6  # along a line: a bend that a known hyperplane explains
MOST_PIECES = 6000  # that a line is divided into
ALIKE = 1e-5  # between hyperplanes that are the same


@dataclass(frozen=True)
class Facet:
    """A piece of a hyperplane on which the slope changes: the unit normal, the offset, and how far it was measured."""

    normal: Floats
    offset: float


@dataclass(frozen=True)
class Hyperplanes:
    """Hyperplanes normals @ x + offsets = 0, one in each row; normals have length 1 and no sign."""

    normals: Floats
    offsets: Floats

    @classmethod
    def none(cls, inputs: int) -> Hyperplanes:
        return cls(np.zeros((0, inputs)), np.zeros(0))

    def __len__(self) -> int:
        return len(self.offsets)

    def has(self, facet: Facet, weight: float = 1.0) -> bool:
        if not len(self):
            return False
        sign = np.sign(self.normals @ facet.normal)
        off = np.abs(self.normals * sign[:, None] - facet.normal).max(axis=1)
        return bool((off + weight * np.abs(self.offsets * sign - facet.offset)).min() < ALIKE)

    def cross(self, start: Floats, direction: Floats, place: float) -> bool:
        """Does one of them cross the line at this place?"""
        if not len(self):
            return False
        with np.errstate(divide="ignore", invalid="ignore"):
            return bool((np.abs(-(self.normals @ start + self.offsets) / (self.normals @ direction) - place) < SAME).any())

    def plus(self, facet: Facet) -> Hyperplanes:
        return Hyperplanes(np.vstack([self.normals, facet.normal]), np.append(self.offsets, facet.offset))

    def only(self, keep: NDArray[np.bool_]) -> Hyperplanes:
        return Hyperplanes(self.normals[keep], self.offsets[keep])

    def turned(self, signs: Floats) -> Hyperplanes:
        return Hyperplanes(self.normals * signs[:, None], self.offsets * signs)

    def __call__(self, rows: Floats) -> Floats:
        return np.asarray(rows @ self.normals.T + self.offsets)


def bends(f: Function, start: Floats, direction: Floats, reach: float) -> Floats:
    """Where the slope of f changes on start + t direction, |t| <= reach.

    An interval whose ends continue each other is straight. Where the lines through both ends meet on the graph, the one bend is
    where they meet; else the interval is divided.
    """

    def on(*places: float) -> Floats:
        return f(start + np.array(places)[:, None] * direction)

    value = on(-reach, -reach + STEP, reach - STEP, reach)
    found: list[float] = []
    stack = [(-reach, reach, value[0], value[3], (value[1] - value[0]) / STEP, (value[3] - value[2]) / STEP)]
    for divided in count():
        if not stack:
            break
        if divided > MOST_PIECES:
            raise InvalidValue(
                "The model bends everywhere on a line: it is not piecewise linear. steal_approximate copies any classifier."
            )
        left, right, at_left, at_right, rise, fall = stack.pop()
        size = 1 + abs(at_left) + abs(at_right)
        bent = abs(rise - fall) >= BEND * max(1.0, abs(rise) * 1e-4)
        if not bent and abs(at_left + rise * (right - left) - at_right) < BEND * size:
            continue
        if right - left < 20 * STEP:
            continue
        if bent:
            meet = (at_right - at_left + rise * left - fall * right) / (rise - fall)
            if left < meet < right and abs(on(meet)[0] - at_left - rise * (meet - left)) < 0.1 * BEND * size:
                found.append(meet)
                continue
        middle = (left + right) / 2 + (right - left) * 0.0137
        near = on(middle - STEP, middle, middle + STEP)
        before, after = (near[1] - near[0]) / STEP, (near[2] - near[1]) / STEP
        stack += [(left, middle, at_left, near[1], rise, before), (middle, right, near[1], at_right, after, fall)]
    return np.sort(np.array(found))


def facet(f: Function, start: Floats, direction: Floats, places: Floats, which: int, exact: float = 1e-12) -> Facet | None:
    """The hyperplane through a bend: the difference of the gradients on both of its sides is its normal."""
    place = float(places[which])
    gap = min([abs(place - other) for number, other in enumerate(places) if number != which] + [1.0])
    step = min(0.3 * gap, 0.1)
    finer = refined(f, start, direction, place, step)
    if finer is None or abs(finer - place) > 1e-4:
        return None
    point = start + finer * direction
    for _ in range(9):  # nearer and nearer, until no other bend lies within the differences
        (after, rough_after), (before, rough_before) = (
            _gradient(f, point + side * step * direction, 0.2 * step) for side in (1, -1)
        )
        if max(rough_after, rough_before) < exact * (1 + np.abs(after).max()):
            break
        step /= 3
    else:
        return None
    jump = after - before
    length = float(np.linalg.norm(jump))
    if length < 1e-7:
        return None
    normal = jump / length
    return Facet(normal, float(-normal @ point))


def refined(f: Function, start: Floats, direction: Floats, place: float, step: float) -> float | None:
    """The bend once more, where the lines on both of its sides meet, from nearer by."""
    at = np.array([place - step, place - step / 2, place + step / 2, place + step])
    value = f(start + at[:, None] * direction)
    rise, fall = (value[1] - value[0]) / (at[1] - at[0]), (value[3] - value[2]) / (at[3] - at[2])
    if abs(rise - fall) < 1e-9:
        return None
    return float((value[2] - value[1] + rise * at[1] - fall * at[2]) / (rise - fall))


def _gradient(f: Function, point: Floats, step: float) -> tuple[Floats, float]:
    """Central differences, and how far they are from a straight line."""
    moves = np.eye(len(point)) * step
    value = f(np.concatenate([point + moves, point - moves, point[None]]))
    up, down, middle = value[: len(point)], value[len(point) : -1], value[-1]
    return (up - down) / (2 * step), float(np.abs(up + down - 2 * middle).max())


def unit(random: np.random.Generator, inputs: int) -> Floats:
    """A direction at random."""
    found = random.normal(size=inputs)
    return np.asarray(found / np.linalg.norm(found))


def ball(random: np.random.Generator, points: int, inputs: int, radius: float) -> Floats:
    """Points uniform in a ball."""
    found = random.normal(size=(points, inputs))
    return np.asarray(found * (random.random(points) ** (1 / inputs) * radius / np.linalg.norm(found, axis=1))[:, None])
