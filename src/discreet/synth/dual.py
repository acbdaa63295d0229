"""Fitting a junction tree to noisy counts, with a bound on the distance from the optimum.

Among all distributions p the one is sought that minimises

    1/2 sum over measured tables k of |n p_k - y_k|^2 / sigma_k^2  +  strength x KL(p || start)

The first part is minus the log-likelihood of the noise; without the second, the noise itself would be fitted. The optimum is
start x exp(a function of each measured table), so it lives on a junction tree; these functions maximise a concave dual whose
value bounds the optimum from below (Fenchel), and the difference to the value above is the gap.
docs/theory/synth-estimation.md derives it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from discreet.synth.junction import Floats, JunctionTree, onto, spread
from discreet.synth.measure import Measurement

WARM = (10.0, 3.0, 1.0)  # times the strength: each optimum is the start of the next
EASE = 0.05  # the gap at which an earlier one is left


@dataclass(frozen=True, slots=True, eq=False)
class Estimate:
    """Conditional tables of a junction tree, their objective, and a bound on its distance from the optimum."""

    conditionals: list[Floats]
    objective: float
    gap: float
    evaluations: int

    @property
    def relative_gap(self) -> float:
        return self.gap / max(self.objective, 1.0)


class Problem:
    """The dual of the objective above, over one variable for each measured cell, in units of that cell's noise."""

    def __init__(self, tree: JunctionTree, start: Sequence[Floats], measurements: Sequence[Measurement], total: float) -> None:
        self.tree, self.start = tree, list(start)
        self.parts = []
        place = 0
        for measurement in measurements:
            home = tree.home(measurement.columns)
            assert home is not None, "every measurement lies in a clique"
            end = place + measurement.counts.size
            wanted, weight = measurement.counts / total, total / measurement.sigma
            self.parts.append((home, measurement.columns, wanted, weight, slice(place, end)))
            place = end
        self.size = place
        self.log_start = tree.conditionals(self.start)[1]
        self.evaluations = 0

    def at(self, z: Floats, strength: float) -> tuple[float, Floats, float, list[Floats]]:
        """Minus the dual value at z, its gradient, the objective of the distribution that z stands for, and that
        distribution.
        """
        self.evaluations += 1
        potentials = [potential.copy() for potential in self.start]
        for home, columns, wanted, weight, cells in self.parts:
            potentials[home] -= spread((weight / strength) * z[cells].reshape(wanted.shape), columns, self.tree.cliques[home])
        conditionals, log_total = self.tree.conditionals(potentials)
        beliefs = self.tree.beliefs(conditionals)
        divergence = self.log_start - log_total
        value = -strength * divergence + 0.5 * float(z @ z)
        gradient, fit = np.empty(self.size), 0.0
        for home, columns, wanted, weight, cells in self.parts:
            marginal = onto(beliefs[home], self.tree.cliques[home], columns)
            residual = weight * (marginal - wanted).reshape(-1)
            value += weight * float(z[cells] @ wanted.reshape(-1))
            divergence -= weight / strength * float(z[cells] @ marginal.reshape(-1))
            fit += 0.5 * float(residual @ residual)
            gradient[cells] = z[cells] - residual
        return value, gradient, fit + strength * divergence, conditionals

    def plain(self, conditionals: Sequence[Any]) -> list[Floats]:
        """Conditional tables, as `at` gives them, as arrays."""
        return list(conditionals)


class _Done(Exception):
    """The gap is small enough."""


def solve(problem: Problem, *, strength: float, tolerance: float, evaluations: int) -> Estimate:
    """The estimate at which the gap is below `tolerance` x the objective, or the best after so many evaluations."""
    z = np.zeros(problem.size)
    best = Estimate(problem.tree.conditionals(problem.start)[0], math.inf, math.inf, 0)
    before = WARM[0] * strength
    for times in WARM:
        now = times * strength
        z, best = _ascend(problem, z * (now / before), now, tolerance if times == 1 else EASE, evaluations)
        before = now
    return replace(best, conditionals=problem.plain(best.conditionals))


def _ascend(problem: Problem, z: Floats, strength: float, tolerance: float, evaluations: int) -> tuple[Floats, Estimate]:
    """Quasi-Newton steps (L-BFGS) on the dual; the best point seen, by its own gap."""
    from scipy.optimize import minimize

    best: list[Any] = [z, Estimate([], math.inf, math.inf, 0)]

    def dual(point: Floats) -> tuple[float, Floats]:
        value, gradient, objective, conditionals = problem.at(point, strength)
        gap = max(objective + value, 0.0)
        if gap < best[1].gap:
            best[:] = [point.copy(), Estimate(conditionals, objective, gap, problem.evaluations)]
        if gap <= tolerance * max(objective, 1.0) or problem.evaluations >= evaluations:
            raise _Done
        return value, gradient

    options = {"maxiter": evaluations, "maxcor": 10, "ftol": 0.0, "gtol": 0.0}
    with suppress(_Done):
        minimize(dual, z, jac=True, method="L-BFGS-B", options=options)  # type: ignore[call-overload]
    return best[0], best[1]
