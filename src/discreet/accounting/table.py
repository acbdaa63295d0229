"""A composed pair as a table of its deltas, for sampling around several steps."""

from __future__ import annotations

import math

import numpy as np

from discreet.accounting import profile as profiles
from discreet.accounting.composition import Composition
from discreet.accounting.profile import Array, Profile

FAINTEST = 1e-290  # the least delta to which a composed profile is followed
TOLD = 1e-6  # a share by which the least delta lies above the probability that all is told, below which no epsilon is
FREQUENCIES = 8192  # of each of these compositions
TABLE, ANCHORS = 600, 15  # points of a composed profile on each side, and places where it is composed


def composed(whole: Composition) -> Profile:
    """The composed pair by its deltas on a grid, for sampling around it: chords in e^epsilon lie above."""
    told = whole.told()
    least = max(FAINTEST, told * (1 + TOLD))
    top = [min(whole.solve(d, least), whole.most) for d in whole.directions]
    if max(top) == math.inf:
        top = [min(whole.solve(d, max(1e-30, least)), whole.most) for d in whole.directions]
    if max(top) == math.inf:
        return profiles.unbounded() if told > 0.5 else profiles.approximate(1e15, told)
    tables = [_table(whole, d, max(end, 1e-290)) for d, end in enumerate(top)]
    tables *= 2 // len(tables)  # the same in both directions
    start = max(float(values[0]) for _, values in tables)
    for _, values in tables:
        values[0] = start  # both directions have the same total variation
    return profiles.from_table(tables[0], tables[1])


def _table(whole: Composition, direction: int, top: float) -> tuple[Array, Array]:
    spread = math.sqrt(max(whole.look(whole.tail(1e-12))[direction].tilted(0.0)[3], 0.0))
    grid = np.concatenate([[0.0], np.geomspace(min(max(spread, 1e-290) * 1e-3, top / 2), top, TABLE)])
    best = np.full(len(grid), 1.0)
    anchors = [0, *range(TABLE // ANCHORS, TABLE + 1, TABLE // ANCHORS)]
    for before, here, after in zip([0, *anchors], anchors, [*anchors[1:], TABLE]):
        slope, log_delta = whole.place(direction, float(grid[here]))
        made = whole.wave(direction, slope, float(grid[here]), math.exp(min(max(log_delta, -690.0), 0.0)), FREQUENCIES)
        best[before : after + 1] = np.minimum(best[before : after + 1], made.delta(grid[before : after + 1]))
    if top >= whole.most:
        best[-1] = whole.told()
    elif whole.told() > FAINTEST:
        best[-1] = min(best[-1], whole.delta(top))  # it stands for all beyond
    return grid, np.minimum.accumulate(best)
