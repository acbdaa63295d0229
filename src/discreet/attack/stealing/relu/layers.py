"""Layers of a ReLU network from its answers: all units of a single layer, the first of two, and the second behind it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from discreet.attack.stealing.relu.search import Facet, Floats, Function, Hyperplanes, bends, facet, refined, unit

QUIET = 12  # lines without a new unit after which a layer of unknown width is taken to be complete
TRIES = 24  # points of a hyperplane at which its bend is looked for


@dataclass(frozen=True)
class Fit:
    """Answers as |hyperplanes| @ bends + inputs @ slope + offset, exact to `error` on the rows of the fit."""

    planes: Hyperplanes
    bends: Floats  # [units, outputs]
    slope: Floats  # [inputs, outputs]
    offset: Floats
    error: float
    left: Floats  # what is left unexplained of each row


def fitted(planes: Hyperplanes, rows: Floats, answers: Floats) -> Fit:
    """Least squares over the absolute values: |z| = 2 max(z, 0) - z needs no signs."""
    table = np.column_stack([np.abs(planes(rows)), rows, np.ones(len(rows))])
    solution = np.linalg.lstsq(table, answers, rcond=1e-14)[0]
    count, inputs = len(planes), rows.shape[1]
    left = np.abs(table @ solution - answers).max(axis=1)
    return Fit(planes, solution[:count], solution[count : count + inputs], solution[-1], float(left.max()), left)


def left_by(fit: Fit, rows: Floats, answers: Floats) -> Floats:
    """How far the fit is from these answers, row by row."""
    told = np.abs(fit.planes(rows)) @ fit.bends + rows @ fit.slope + fit.offset
    return np.asarray(np.abs(told - answers).max(axis=1))


def single_layer(f: Function, rows: Floats, answers: Floats, reach: float, most_lines: int, random: np.random.Generator) -> Fit:
    """Every unit of a network with one hidden layer. `rows` and `answers` say when all have been found."""
    inputs, scale = rows.shape[1], float(np.abs(answers).max()) + 1
    planes = Hyperplanes.none(inputs)
    fit = fitted(planes, rows, answers)
    for line in range(most_lines):
        start, direction = random.normal(size=inputs) / np.sqrt(inputs) * 0.5, unit(random, inputs)
        before = len(planes)
        planes = _found_on(f, planes, start, direction, bends(f, start, direction, reach))
        if (len(planes) == before or line % 4 == 3) and len(planes) + inputs < 0.8 * len(rows):
            fit = fitted(planes, rows, answers)
            if fit.error < 1e-9 * scale:
                break
    return _pruned(fit, rows, answers)


def polished(fit: Fit, rows: Floats, answers: Floats, enough: float) -> Fit:
    """Hyperplanes that were measured badly, corrected: Gauss-Newton steps on answers, where no sign changes.

    Needs more rows than the units have weights.
    """
    from scipy.linalg import lstsq

    mix = np.linalg.norm(fit.bends, axis=0) + 1e-12
    for _ in range(2):
        planes, values = fit.planes, fit.planes(rows)
        bends = fit.bends @ mix
        moved = (np.sign(values) * bends)[:, :, None] * np.column_stack([rows, np.ones(len(rows))])[:, None, :]
        table = np.column_stack([moved.reshape(len(rows), -1), np.abs(values), rows, np.ones(len(rows))])
        told = np.abs(values) @ bends + rows @ (fit.slope @ mix) + fit.offset @ mix
        step = lstsq(table, answers @ mix - told, cond=1e-12, lapack_driver="gelsy")[0]
        change = step[: moved[0].size].reshape(len(planes), -1)
        normals, offsets = planes.normals + change[:, :-1], planes.offsets + change[:, -1]
        size = np.linalg.norm(normals, axis=1)
        better = fitted(Hyperplanes(normals / size[:, None], offsets / size), rows, answers)
        if better.error >= fit.error:
            break
        fit = better
        if fit.error < enough:
            break
    return fit


def _found_on(f: Function, planes: Hyperplanes, start: Floats, direction: Floats, places: Floats) -> Hyperplanes:
    for which, place in enumerate(places):
        if not planes.cross(start, direction, float(place)):
            new = facet(f, start, direction, places, which)
            if new is not None and not planes.has(new):
                planes = planes.plus(new)
    return planes


def _pruned(fit: Fit, rows: Floats, answers: Floats) -> Fit:
    """Without hyperplanes that were measured badly, as long as the fit stays exact."""
    while len(fit.planes):
        keep = np.arange(len(fit.planes)) != np.abs(fit.bends).max(axis=1).argmin()
        less = fitted(fit.planes.only(keep), rows, answers)
        if less.error > max(10 * fit.error, 1e-9):
            break
        fit = less
    return fit


def first_layer(
    f: Function, inputs: int, width: int | None, reach: float, most_lines: int, random: np.random.Generator
) -> Hyperplanes:
    """Units of the first of several layers: those whose hyperplanes are not bent by others.

    A unit further up has a hyperplane that units below it bend, so the straight continuation of its facet is mostly no bend.
    """
    planes, quiet = Hyperplanes.none(inputs), 0
    for line in range(most_lines):
        if len(planes) == width or (width is None and quiet >= QUIET and len(planes)):
            break
        start, direction = random.normal(size=inputs) / np.sqrt(inputs) * (2.0 if line % 2 else 0.5), unit(random, inputs)
        places = bends(f, start, direction, reach)
        before = len(planes)
        for which, place in enumerate(places):
            if planes.cross(start, direction, float(place)):
                continue
            new = facet(f, start, direction, places, which)
            if new is not None and not planes.has(new, 0.01) and _straight(f, new, random):
                planes = planes.plus(_centred(f, new, random))
        quiet = quiet + 1 if len(planes) == before else 0
    return planes


def _straight(f: Function, new: Facet, random: np.random.Generator, step: float = 1e-4) -> bool:
    """Does f bend on most of the whole hyperplane?"""
    sizes = np.array([0.5, 1.5, 4.0])[np.arange(TRIES) % 3]
    points = random.normal(size=(TRIES, len(new.normal))) * sizes[:, None]
    points -= (points @ new.normal + new.offset)[:, None] * new.normal
    value = f(np.concatenate([points + step * new.normal, points - step * new.normal, points]))
    return bool((np.abs(value[:TRIES] + value[TRIES : 2 * TRIES] - 2 * value[2 * TRIES :]) > 1e-9).mean() > 0.4)


def _centred(f: Function, new: Facet, random: np.random.Generator, step: float = 1e-3) -> Facet:
    """The hyperplane with the offset that most of several places show: where it was found, another bend may lie close by."""
    points = random.normal(size=(9, len(new.normal))) * 0.5
    points -= (points @ new.normal + new.offset)[:, None] * new.normal
    moved = [refined(f, point, new.normal, 0.0, step) for point in points]
    near = [each for each in moved if each is not None and abs(each) < step / 2]
    return Facet(new.normal, new.offset - float(np.median(near))) if len(near) > 2 else new


def first_signs(f: Function, planes: Hyperplanes, step: float = 1e-3) -> Floats:
    """On which side each unit of the first layer is active; needs no more units than inputs.

    From a point where all are zero, one is moved at a time: only on its active side does the answer change.
    """
    inverse, count = np.linalg.pinv(planes.normals), len(planes)
    moves = np.concatenate([np.zeros((1, count)), np.eye(count) * step, -np.eye(count) * step])
    value = f((moves - planes.offsets) @ inverse.T)
    up, down = np.abs(value[1 : 1 + count] - value[0]), np.abs(value[1 + count :] - value[0])
    return np.where(up > down, 1.0, -1.0)


def second_layer(
    f: Function, first: Hyperplanes, planes: Hyperplanes, rows: Floats, answers: Floats, most_lines: int,
    random: np.random.Generator, exact: float,
) -> Fit:  # fmt: skip
    """Units of the second and last hidden layer beside those that are known, asked about values of the first."""
    inverse, width = np.linalg.pinv(first.normals), len(first)

    def behind(hidden: Floats) -> Floats:
        return f((hidden - first.offsets) @ inverse.T)

    hidden, scale = np.maximum(first(rows), 0.0), float(np.abs(answers).max()) + 1
    fit = fitted(planes, hidden, answers)
    for line in range(most_lines):
        one, two = _ends(hidden, line, random, fit.left)
        length = float(np.linalg.norm(two - one))
        start, direction = (one + two) / 2, (two - one) / length
        places = bends(behind, start, direction, length / 2)
        for which, place in enumerate(places):
            if planes.cross(start, direction, float(place)) or (start + place * direction).min() < 0.01:
                continue
            near = np.append(places, place + 0.02)  # steps stay small, so that no unit of the first layer goes out
            new = facet(behind, start, direction, near, which, exact)
            if new is not None and not planes.has(new):
                planes = planes.plus(new)
        if line % 10 == 9 and len(planes) + width < 0.8 * len(rows):
            fit = fitted(planes, hidden, answers)
            if fit.error < 3e-9 * scale:
                break
    return _pruned(fit, hidden, answers) if fit.error < 1e-6 * scale else fitted(planes, hidden, answers)


def _ends(hidden: Floats, line: int, random: np.random.Generator, left: Floats) -> tuple[Floats, Floats]:
    """Two positive values of the first layer: of widely different size, or near those that inputs have.

    One is in turn where the fit so far is worst: there a unit is active that rarely is.
    """
    size, width = np.exp(random.normal()), hidden.shape[1]
    if line % 3 == 2:
        worst = random.choice(np.argsort(left)[-5:])
        return hidden[worst] + 0.02, hidden[(worst + random.integers(1, len(hidden))) % len(hidden)] + 0.02
    if line % 2:
        one, two = hidden[random.choice(len(hidden), 2, replace=False)] * size + 0.02
    else:
        one, two = np.exp(random.normal(size=(2, width)) * 1.2) * size + 0.02
    return one, two


def signs(fit: Fit, seconds: float = 10.0) -> Floats | None:
    """Signs of the units with which the linear part of the fit is explained by them alone, or None.

    bends |z| + slope x = sum of max(±z, 0) and nothing else where slope = sum of signs bends normals: one equation for each
    input and output. With more units than equations it is a mixed-integer program.
    """
    table = np.concatenate([(column[:, None] * fit.planes.normals).T for column in fit.bends.T])
    wanted = fit.slope.T.reshape(-1)
    if np.linalg.matrix_rank(table) == table.shape[1]:
        found = np.linalg.lstsq(table, wanted, rcond=None)[0]
    else:
        found = _enumerated(table, wanted, seconds)
        if found is None:
            return None
    found_signs = np.where(found > 0, 1.0, -1.0)
    return found_signs if np.abs(table @ found_signs - wanted).max() < 1e-6 * (1 + np.abs(wanted).max()) else None


def _enumerated(table: Floats, wanted: Floats, seconds: float) -> NDArray[np.float64] | None:
    from scipy.optimize import Bounds, LinearConstraint, milp

    count, size = table.shape[1], 1e4
    right, slack = (wanted + table.sum(axis=1)) * size, 2e-5
    rows = LinearConstraint(2 * size * table, right - slack, right + slack)
    found = milp(np.zeros(count), integrality=np.ones(count, np.int64), bounds=Bounds(0, 1), constraints=rows,
                 options={"time_limit": seconds})  # fmt: skip
    return None if found.x is None else 2 * np.round(found.x) - 1
