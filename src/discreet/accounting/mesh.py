"""Atoms of one mechanism on a grid fitted to it: few points, placed where they lower the bound most.

Connecting the dots holds on any grid, so it need not be even. A loss between two grid points g apart is split between them,
which adds about g^2 / 6 to its variance. Of all grids with N points, one whose density is the cube root of the mass's density
adds least (Panter & Dite 1951): for losses of every scale a few hundred points are as good as millions evenly spaced.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from discreet.accounting import lattice
from discreet.accounting.profile import Array, Atoms, Profile

Points = tuple[int, int]  # of the first look, on each side: in proportion to their size, and evenly spaced
ROUGH: Points = 160, 400  # losses may span many decades, and under a steep tilt a wide cell would weigh as its far end does
OF_MANY: Points = 60, 100  # where the parts are so many that no single one counts for much
MANY = 100


def points_for(parts: int) -> Points:
    """How close a look one of so many parts deserves."""
    return ROUGH if parts <= MANY else OF_MANY


@dataclass(frozen=True, slots=True)
class Fitted(Atoms):
    """Atoms whose masses add up to 1 less what is infinite, and `raised` more: masses that rounding had left below 0."""

    raised: float

    @classmethod
    def on(cls, profile: Profile, direction: int, down: Array, up: Array) -> Fitted:
        """The losses seen from world `direction`, on the points -down and up."""
        masses = lattice.second_differences(profile, down, up)
        loss = np.concatenate([-down[:0:-1], up])
        loss, mass, infinite = (-loss[::-1], masses[1], masses[3]) if direction else (loss, masses[0], masses[2])
        keep = mass > 0
        return cls(loss[keep], mass[keep], infinite, float(-np.minimum(mass, 0.0).sum()))


def look(profile: Profile, least: float, most: float, first: Points = ROUGH) -> tuple[Fitted, Fitted]:
    """A few atoms, forward and backward: enough to know the moments, whatever the scale."""
    rough = _exact(profile) if profile.kinks is not None else _rough(profile, (least, most), first)
    return Fitted.on(profile, 0, *rough), Fitted.on(profile, 1, *rough)


def fitted(
    profile: Profile,
    direction: int,
    tilt: float,
    ends: tuple[float, float],
    points: int,
    cut: float = math.inf,
    first: Points = ROUGH,
) -> Fitted:
    """The losses seen from world `direction`, on a grid between `ends` that is densest where `tilt` puts their mass.

    Losses above `cut` get as many points as those below, however rare they are.
    """
    if profile.kinks is not None:
        return Fitted.on(profile, direction, *_exact(profile))
    return Fitted.on(profile, direction, *_dense(profile, direction, tilt, ends, points, cut, first))


def _exact(profile: Profile) -> tuple[Array, Array]:
    """The losses themselves, and the largest in either direction in the place of that loss, since it was rounded up."""
    assert profile.kinks is not None
    down, up = -profile.kinks[profile.kinks < 0][::-1], profile.kinks[profile.kinks > 0]
    ends = [end if end < math.inf else 0.0 for end in (profile.most_backward, profile.most_forward)]
    sides = [
        np.unique(np.concatenate([[0.0], side[(side < end * (1 - 1e-12)) | (end == 0)], [end]]))
        for side, end in zip((down, up), ends)
    ]
    return _two(sides[0]), _two(sides[1])


def _two(grid: Array) -> Array:
    return grid if len(grid) > 1 else np.array([0.0, 1e-290])


def _rough(profile: Profile, ends: tuple[float, float], first: Points) -> tuple[Array, Array]:
    """Points in proportion to their distance from 0; losses far below the mean one are as good as 0."""
    least = 1e-3 * max(float(profile.delta(np.zeros(1))[0]), 1e-270)
    far = (max(end, 1e-270) for end in ends)
    down, up = (
        np.unique(np.concatenate([np.geomspace(min(least, end / 2), end, first[0]), np.linspace(0.0, end, first[1])]))
        for end in far
    )
    return down, up


def _dense(
    profile: Profile, direction: int, tilt: float, ends: tuple[float, float], points: int, cut: float, first: Points
) -> tuple[Array, Array]:
    down, up = _rough(profile, ends, first)
    rough = Fitted.on(profile, direction, down, up)
    exponent = np.log(rough.mass) + tilt * rough.loss
    large = rough.loss > cut
    if large.any() and not large.all():
        exponent[large] += exponent[~large].max() - exponent[large].max()
    weight = np.exp(exponent - exponent.max())
    sides = []
    for grid, sign in ((down, -1), (up, 1)):
        at = sign * grid if not direction else -sign * grid
        width = np.diff(grid)
        ends_of = (
            np.searchsorted(rough.loss, np.minimum(at[:-1], at[1:])),
            np.searchsorted(rough.loss, np.maximum(at[:-1], at[1:])),
        )
        mass = sum(weight[np.minimum(end, len(weight) - 1)] for end in ends_of) / 2
        sides.append((grid, np.cbrt(mass * width * width)))
    total = sum(float(share.sum()) for _, share in sides)
    return tuple(_divided(grid, share * (points / max(total, 1e-300))) for grid, share in sides)  # type: ignore[return-value]


def _divided(grid: Array, pieces: Array) -> Array:
    """The grid with each cell cut into as many equal pieces as asked, rounded up."""
    count = np.maximum(np.ceil(pieces), 1).astype(np.int64)
    cell = np.repeat(np.arange(len(count)), count)
    place = np.arange(len(cell)) - np.repeat(np.cumsum(count) - count, count)
    return np.append(grid[cell] + np.diff(grid)[cell] * (place / count[cell]), grid[-1])
