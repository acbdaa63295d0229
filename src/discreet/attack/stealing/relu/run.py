"""The attack on a ReLU network of one or two hidden layers."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from discreet.attack.stealing.oracle import Oracle, logits_of, step_of
from discreet.attack.stealing.relu import layers as parts
from discreet.attack.stealing.relu.network import StolenRelu
from discreet.attack.stealing.relu.search import Hyperplanes, ball
from discreet.core import check
from discreet.errors import InvalidValue

Floats = NDArray[np.float64]
CHECKS = 500
ROUNDS = 8  # of looking for units that were missed
POLISH = 1e-10  # an error of the fit that is worth more queries
MOST_UNKNOWN = 3000  # weights that are corrected together
EXACT = 1e-5  # of the spread of the answers: what is further off was not extracted


def steal_relu(
    model: Any, inputs: int, *, layers: int = 1, width: int | None = None, radius: float = 1.0, reach: float = 20.0,
    most_lines: int | None = None, seed: int = 0,
) -> StolenRelu:  # fmt: skip
    """The weights of a network with one or two hidden ReLU layers, from its answers as 64-bit floats (logits or numbers).

    Widths need not be known; `width` of the first of two layers saves queries. Two layers need a first one that is no wider
    than the input and a second one whose units all bend the answer. The answers are asked for within `reach` of 0, and
    checked in the ball of `radius`.

    >>> first, last = np.array([[2.0, -1.0], [0.5, 1.0]]), np.array([1.0, -3.0])
    >>> found = steal_relu(lambda X: np.maximum(X @ first.T + [0.3, -0.2], 0) @ last + 1, 2)
    >>> found.widths, found.error < 1e-9
    ((2,), True)
    """
    check.whole("inputs", inputs)
    if check.whole("layers", layers) > 2:
        raise InvalidValue(f"{layers} hidden layers are asked for; networks of one or two are extracted.")
    oracle = model if isinstance(model, Oracle) else Oracle(model)
    before, random = oracle.queries, np.random.default_rng(check.whole("seed", seed, least=0))
    spread = _precise(oracle, inputs, check.positive("radius", radius), random)
    mix = random.normal(size=logits_of(oracle(np.zeros((1, inputs)))).shape[1])

    def f(rows: Floats) -> Floats:
        return np.asarray(logits_of(oracle(rows)) @ mix / np.linalg.norm(mix))

    found = _one if layers == 1 else _two
    hidden, fit = found(f, oracle, inputs, width, radius, check.positive("reach", reach), most_lines, random)
    fit = _polished(oracle, hidden, fit, radius, random)
    fresh = ball(random, CHECKS, inputs, radius)
    stolen = _network(hidden, fit, fresh, logits_of(oracle(fresh)), oracle.queries - before, radius)
    if stolen.error > EXACT * spread:
        raise InvalidValue(
            f"No network of {layers} hidden layer{'s' * (layers > 1)} was found that answers as the model does: off by "
            f"{stolen.error:.2g} after {stolen.queries} queries. It has other layers (layers=…), is wider than "
            "its input, or is no "
            "ReLU network; steal_approximate copies any."
        )
    return stolen


def _precise(oracle: Oracle, inputs: int, radius: float, random: np.random.Generator) -> float:
    """How far answers spread; refused where they are too coarse to see bends."""
    answers = oracle(ball(random, 64, inputs, radius))
    step, spread = step_of(answers), float(np.ptp(answers, axis=0).max())
    if spread == 0:
        raise InvalidValue(f"The model answers the same everywhere within {radius:g} of 0: there is nothing to extract.")
    if step:
        what = "labels" if step == 1.0 else f"numbers in steps of {step:.2g}"
        raise InvalidValue(
            f"The model answers with {what}. Weights are read out of changes of slope near 1e-7, which only "
            "64-bit floats show; "
            "from coarser answers steal_approximate learns a copy that agrees on most rows."
        )
    return spread


def _one(
    f: Any, oracle: Oracle, inputs: int, width: int | None, radius: float, reach: float, lines: int | None,
    random: np.random.Generator,
) -> tuple[list[Hyperplanes], parts.Fit]:  # fmt: skip
    rows = ball(random, 2 * (inputs + (width or 64)) + 200, inputs, 3 * radius)
    return [], parts.single_layer(f, rows, logits_of(oracle(rows)), reach, lines or 60, random)


def _two(
    f: Any, oracle: Oracle, inputs: int, width: int | None, radius: float, reach: float, lines: int | None,
    random: np.random.Generator,
) -> tuple[list[Hyperplanes], parts.Fit]:  # fmt: skip
    first = parts.first_layer(f, inputs, width, reach, lines or 200, random)
    if not len(first) or len(first) > inputs or (width is not None and len(first) < width):
        raise InvalidValue(
            f"{len(first)} units of the first layer were found for {inputs} inputs"
            + (f" and a width of {width}" if width else "")
            + "; two layers need a first layer that is no wider than its input and is seen whole. Raise reach or most_lines."
        )
    first = first.turned(parts.first_signs(f, first))
    rows = ball(random, 6 * len(first) + 200, inputs, 2 * radius)
    answers, planes = logits_of(oracle(rows)), Hyperplanes.none(len(first))
    for again in range(ROUNDS):  # units that are active almost nowhere show on few rows: look where they do, less strictly
        fit = parts.second_layer(f, first, planes, rows, answers, lines or 400, random, 1e-11 * 5**again)
        fresh = ball(random, 5000, inputs, 2 * radius)
        told = logits_of(oracle(fresh))
        off = parts.left_by(fit, np.maximum(first(fresh), 0.0), told)
        if off.max() < 1e-8 * (1 + np.abs(told).max()):
            break
        worst = np.argsort(off)[-40:]
        rows, answers, planes = np.concatenate([rows, fresh[worst]]), np.concatenate([answers, told[worst]]), fit.planes
    return [first], fit


def _polished(
    oracle: Oracle, hidden: list[Hyperplanes], fit: parts.Fit, radius: float, random: np.random.Generator
) -> parts.Fit:
    """The last layer corrected on fresh answers, where it was not measured to the last digits and is small enough."""
    inputs, scale = (hidden[0] if hidden else fit.planes).normals.shape[1], 1 + float(np.abs(fit.offset).max())
    unknown = len(fit.planes) * (fit.planes.normals.shape[1] + 2)
    if fit.error < POLISH * scale or unknown > MOST_UNKNOWN or not len(fit.planes):
        return fit
    rows = ball(random, 4 * unknown // 3 + 100, inputs, 2 * radius)
    answers = logits_of(oracle(rows))
    for below in hidden:
        rows = np.maximum(below(rows), 0.0)
    return parts.polished(parts.fitted(fit.planes, rows, answers), rows, answers, POLISH * scale)


def _network(
    hidden: list[Hyperplanes], fit: parts.Fit, fresh: Floats, answers: Floats, queries: int, radius: float
) -> StolenRelu:
    """The network of the fit, with signs where they can be told."""
    found = parts.signs(fit)
    told = np.ones(len(fit.planes)) if found is None else found
    # b |z| = 2 b max(s z, 0) - b s z for either sign s
    skip = fit.slope - fit.planes.normals.T @ (told[:, None] * fit.bends)
    offset = fit.offset - fit.planes.offsets @ (told[:, None] * fit.bends)
    last = fit.planes.turned(told)
    layers = tuple((each.normals, each.offsets) for each in (*hidden, last))
    made = [
        StolenRelu(layers, 2 * fit.bends, offset, part, queries, 0.0, radius, len(fresh))
        for part in ((None, skip) if found is not None else (skip,))
    ]
    errors = [float(np.abs(each.predict(fresh) - answers).max()) for each in made]
    best = 0 if found is not None and errors[0] <= max(2 * errors[-1], 1e-11) else len(made) - 1
    return StolenRelu(layers, 2 * fit.bends, offset, made[best].skip, queries, errors[best], radius, len(fresh))
