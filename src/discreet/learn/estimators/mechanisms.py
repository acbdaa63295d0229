"""Three private ways to fit a linear model, as mechanisms: noise in the objective, on the minimum, or in every step.

Each says its event before it sees a row. docs/theory/objective-perturbation.md has the proofs.
"""

from __future__ import annotations

import math
from collections.abc import Hashable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, cast

import numpy as np

from discreet.accounting import calibrate
from discreet.core import Claim, Event, Game, Gaussian, Group, ObjectivePerturbation, Repeat, Sequence, Unit, check
from discreet.errors import InvalidValue
from discreet.learn.estimators import exact
from discreet.learn.estimators.exact import GRAIN, TOLERANCE, Floats
from discreet.learn.estimators.linear import Problem, minimum

GAP = 50.0  # noise for the solver's gap, over the noise of the objective: it costs one part in 2500 of the variance
STEPS = 60  # of noisy gradient descent
MOMENTUM = 0.9  # of its steps: what they do with noisy gradients is post-processing
COUNTING = 10.0  # noise of the count of rows, over that of all steps together


def group_size(unit: Unit) -> int:
    """How many rows differ between two worlds: one unit's rows, or, where they are replaced, those and the new ones."""
    if not isinstance(unit, Unit):
        raise InvalidValue(f"unit must be a Unit, such as discreet.record(); got {check.shown(unit)}.")
    if unit.rows is None:
        raise InvalidValue("This unit has no bound on its rows, so it moves a fit without bound. Set rows=... on the unit.")
    return unit.rows * (1 if unit.relation == "add_remove" else 2)


def for_unit(event: Event, unit: Unit) -> Event:
    """The event for this unit, from `event` for one row added or removed."""
    size = group_size(unit)
    return event if size == 1 else Group(event, size)


def repeated(event: Event, times: int) -> Event:
    return event if times == 1 else Repeat(event, times)


@dataclass(frozen=True, slots=True)
class LinearFit:
    """The base of all three. `alpha` is the strength of the regularisation, for rows scaled to length 1."""

    problem: Problem
    unit: Unit
    epsilon: float
    delta: float
    alpha: float
    public: tuple[str, ...] = ()  # further sentences about what was public

    def __post_init__(self) -> None:
        check.positive("epsilon", self.epsilon)
        check.open_fraction("delta", self.delta)
        check.positive("alpha", self.alpha)
        group_size(self.unit)

    def noise(self) -> float:
        """The noise multiplier that keeps (epsilon, delta), from public numbers alone."""
        try:
            return _calibrated(cast(Hashable, type(self)), self.problem, self.unit, self.alpha, self.epsilon, self.delta)
        except InvalidValue as error:
            raise InvalidValue(
                f"No noise keeps epsilon {self.epsilon:g} with alpha {self.alpha:g}: the curvature of the objective alone "
                f"tells more. Raise alpha (1 / epsilon = {1 / self.epsilon:g} is enough), or epsilon. ({error})"
            ) from None

    def event(self, noise: float) -> Event:
        raise NotImplementedError

    def weights(self, rows: Floats, signs: Floats, noise: float) -> Floats:
        raise NotImplementedError

    def claims(self) -> tuple[Claim, ...]:
        owner = "each unit owns one row" if self.unit.rows == 1 else f"no unit owns more than {self.unit.rows} rows"
        says = (owner, "norm, alpha and the list of columns were not chosen by looking at the data", *self.public)
        return (Claim(game=Game(self.unit, {"weights"}), event=self.event(self.noise()), assumptions=says),)

    def run(self, data: Any) -> Floats:
        """The weights, [models, size], for rows of length 1; `data` is the features and the places of the labels."""
        features, labels = data
        return self.weights(self.problem.rows(features), self.problem.signs(labels), self.noise())


@lru_cache(maxsize=256)
def _calibrated(kind: Hashable, problem: Problem, unit: Unit, alpha: float, epsilon: float, delta: float) -> float:
    return calibrate(cast(type[LinearFit], kind)(problem, unit, epsilon, delta, alpha).event, epsilon, delta)


@dataclass(frozen=True, slots=True)
class Objective(LinearFit):
    """Objective perturbation: the minimum of the sum of losses + alpha/2 |w|^2 + b.w, with Gaussian b.

    The solver stops at a gradient of at most TOLERANCE, so it is within TOLERANCE / alpha of the minimum; noise for twice that
    is added, as the second event says (Iyengar et al. 2019).
    """

    def event(self, noise: float) -> Event:
        loss = self.problem.loss
        exact_minimum = ObjectivePerturbation(noise, loss.curvature / self.alpha, loss.tapered)
        return for_unit(repeated(Sequence([exact_minimum, Gaussian(GAP * noise)]), self.problem.models), self.unit)

    def weights(self, rows: Floats, signs: Floats, noise: float) -> Floats:
        size, loss = self.problem.size, self.problem.loss
        minima = []
        for sign in signs:
            linear = exact.hidden_noise(noise, size)
            minima.append(minimum(rows * sign[:, None], loss, self.alpha, linear, exact.off_normal(noise, size)))
        return exact_each(minima, 2 * TOLERANCE / self.alpha, GAP * noise)


@dataclass(frozen=True, slots=True)
class Output(LinearFit):
    """Output perturbation: one row moves the minimum by at most 1 / alpha, and the noise is for that (and the solver's gap).

    With a mean of losses instead of a sum, and a row replaced, that is the 2 / (n lambda) of Chaudhuri et al. 2011.
    """

    def event(self, noise: float) -> Event:
        return for_unit(repeated(Gaussian(noise), self.problem.models), self.unit)

    def weights(self, rows: Floats, signs: Floats, noise: float) -> Floats:
        still = np.zeros(self.problem.size)
        minima = [minimum(rows * sign[:, None], self.problem.loss, self.alpha, still) for sign in signs]
        return exact_each(minima, (1 + 2 * TOLERANCE) / self.alpha, noise)


@dataclass(frozen=True, slots=True)
class Descent(LinearFit):
    """Noisy gradient descent: STEPS full gradients, one row moves each by at most 1, and together they are one Gaussian.

    The length of a step needs the number of rows, which is private when rows are added or removed: a noisy count is part of
    the cost.
    """

    def event(self, noise: float) -> Event:
        step = Repeat(Gaussian(noise * math.sqrt(STEPS)), STEPS * self.problem.models)
        return for_unit(Sequence([step, Gaussian(COUNTING * noise)]), self.unit)

    def weights(self, rows: Floats, signs: Floats, noise: float) -> Floats:
        size, loss = self.problem.size, self.problem.loss
        counted = exact.noisy(np.array([float(len(rows))]), sensitivity=1.0, noise_multiplier=COUNTING * noise)
        pace = 1 / (loss.curvature * max(float(counted[0]), 1.0) + self.alpha)
        result = []
        for sign in signs:
            signed, w, speed = rows * sign[:, None], np.zeros(size), np.zeros(size)
            for _ in range(STEPS):
                share = np.rint(loss.share(exact.margins(signed, w)) / GRAIN) * GRAIN  # row by row
                pull = exact.added(signed, share)
                pull = exact.noisy(pull, sensitivity=1 + 2 * TOLERANCE, noise_multiplier=noise * math.sqrt(STEPS))
                speed = MOMENTUM * speed + pace * (pull - self.alpha * w)
                w = w + speed
            result.append(w)
        return np.array(result)


def exact_each(vectors: list[Floats], sensitivity: float, noise_multiplier: float) -> Floats:
    """Every vector with noise of its own."""
    return np.array([exact.noisy(w, sensitivity=sensitivity, noise_multiplier=noise_multiplier) for w in vectors])


METHODS: dict[str, type[LinearFit]] = {"objective": Objective, "output": Output, "descent": Descent}
