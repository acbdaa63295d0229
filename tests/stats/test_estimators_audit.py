"""Private linear models, refitted on the worst neighbours we know; and the bugs of published libraries, each refuted.

Noise is seeded, so this is the same every time. Every verdict is asked at confidence 1 - 1e-6.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from discreet.audit import verdict
from discreet.core import Evidence, Verdict, record
from discreet.learn.estimators import mechanisms, sums
from discreet.learn.estimators.bayes import Powers
from discreet.learn.estimators.exact import TOLERANCE, clipped, hidden_noise, off_normal
from discreet.learn.estimators.linear import Huber, Logistic, Problem, minimum
from discreet.learn.estimators.mechanisms import GAP, METHODS, Descent, LinearFit, Objective, Output, exact_each
from discreet.learn.estimators.preprocessing import Cells
from discreet.learn.estimators.regression import Augmented
from discreet.learn.estimators.sums import Moments, Totals, flat, unflat
from discreet.noise.source import seeded_for_tests

CONFIDENCE, RUNS = 1 - 1e-6, 3000


@pytest.fixture(autouse=True)
def few_steps(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Two steps of descent instead of sixty: the claim is the same, and each fit takes a millisecond."""
    mechanisms._calibrated.cache_clear()
    monkeypatch.setattr(mechanisms, "STEPS", 2)
    yield
    mechanisms._calibrated.cache_clear()


def played(mechanism: Any, there: Any, gone: Any, score: Any, runs: int = RUNS) -> Verdict:
    """The verdict on the mechanism's claim, by a score of its weights."""
    inside = np.arange(runs) % 2 == 0
    with seeded_for_tests(b"estimators"):
        scores = [float(score(mechanism.run(there if is_in else gone))) for is_in in inside]
    claim = mechanism.claims()[0]
    seen = Evidence(
        game=claim.game, attack="refit", score=np.array(scores), inside=inside, run=np.arange(runs), design="paired"
    )
    return verdict(claim, seen, confidence=CONFIDENCE)


def test_second_moments_hold_and_a_diagonal_without_noise_is_refuted(monkeypatch: pytest.MonkeyPatch) -> None:
    """diffprivlib 0.6.6 gives the diagonal of the Gram matrix no noise where a lower bound is 0."""
    mechanism = Moments(Augmented(1.0, (-1.0, 1.0)), record(), 0.5, 1e-6)
    there = np.array([[1.0], [0.0]]), np.array([1.0, 0.0])
    gone = there[0][1:], there[1][1:]
    largest = lambda total: total.sum()  # noqa: E731
    assert played(mechanism, there, gone, largest, 1000).outcome == "holds"
    right = sums.exact.noisy

    def bare_diagonal(values: Any, **how: Any) -> Any:
        noisy = unflat(right(values, **how))
        np.fill_diagonal(noisy, np.diag(unflat(values)))
        return flat(noisy)

    monkeypatch.setattr(sums.exact, "noisy", bare_diagonal)
    assert played(mechanism, there, gone, lambda total: total[0], 200).outcome == "refuted"


@pytest.mark.parametrize(
    ("encode", "row"),
    [(Powers(((-1.0, 1.0),), 2), (np.array([[1.0]]), np.array([1]))), (Cells(((0.0, 1.0),)), np.array([[1.0]]))],
    ids=["naive Bayes", "cells"],
)
def test_totals_hold_and_too_little_noise_is_refuted(encode: Any, row: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the best score there is: how far the total lies in the direction of the row."""
    gone = (row[0][:0], row[1][:0]) if isinstance(row, tuple) else row[:0]
    mechanism, direction = Totals(encode, record(), 0.5, 1e-6), encode(row)[0]
    assert played(mechanism, row, gone, lambda total: total @ direction, 300).outcome == "holds"
    claims, noise = mechanism.claims(), mechanism.noise()
    monkeypatch.setattr(Totals, "claims", lambda self: claims)
    monkeypatch.setattr(Totals, "noise", lambda self: noise / 10)
    assert played(mechanism, row, gone, lambda total: total @ direction, 300).outcome == "refuted"


def row_in_zeros(features: int = 1) -> tuple[Any, Any]:
    """One row of full length among rows that are nothing, and the same without it."""
    x = np.zeros((3, features))
    x[2, 0] = 1.0
    y = np.array([0, 1, 1])
    return (x, y), (x[:2], y[:2])


def made(kind: type[LinearFit], *, epsilon: float, alpha: float, intercept: float = 0.0, loss: Any = None) -> LinearFit:
    problem = Problem(1, 2, 1.0, intercept, Logistic() if loss is None else loss)
    return kind(problem, record(), epsilon, 1e-6, alpha)


@pytest.mark.parametrize("loss", [Logistic(), Logistic(1.0), Huber(0.5)], ids=["logistic", "margin", "huber"])
@pytest.mark.parametrize("method", sorted(METHODS))
def test_the_claim_holds(method: str, loss: Any) -> None:
    """By the coefficient, which the row pulls up, and by its size, which the row's curvature keeps small."""
    mechanism = made(METHODS[method], epsilon=0.5, alpha=10.0, loss=loss)
    there, gone = row_in_zeros()
    for score in (lambda w: w[0, 0], lambda w: -abs(w[0, 0])):
        assert played(mechanism, there, gone, score, 1000).outcome == "holds"


@pytest.mark.parametrize("kind", [Objective, Output, Descent])
def test_a_sixth_of_the_noise_is_refuted(kind: type[LinearFit], monkeypatch: pytest.MonkeyPatch) -> None:
    mechanism = made(kind, epsilon=0.5, alpha=2.0, loss=Logistic(4.0))
    right = kind.noise
    claims = mechanism.claims()
    monkeypatch.setattr(kind, "claims", lambda self: claims)
    monkeypatch.setattr(kind, "noise", lambda self: right(self) / 6)
    there, gone = row_in_zeros()
    assert played(mechanism, there, gone, lambda w: w[0, 0]).outcome == "refuted"


@dataclass(frozen=True, slots=True)
class WrongCurvature(Objective):
    """diffprivlib 0.6.6: rows are up to q long and the curvature is taken as q / 4 where it is q^2 / 4."""

    longest: float = 1000.0

    def weights(self, rows: Any, signs: Any, noise: float) -> Any:
        linear = hidden_noise(noise, self.problem.size)
        # in the scale of rows of length 1 the penalty that was claimed is alpha, the one that acts is alpha / longest
        w = minimum(rows * signs[0][:, None], self.problem.loss, self.alpha / self.longest, linear, off_normal(noise, 1))
        return exact_each([w], 2 * TOLERANCE / self.alpha, GAP * noise)


def test_the_wrong_curvature_is_refuted() -> None:
    there, gone = row_in_zeros()
    small = lambda w: -abs(w[0, 0])  # noqa: E731
    assert played(made(WrongCurvature, epsilon=1.0, alpha=1.0), there, gone, small).outcome == "refuted"
    assert played(made(Objective, epsilon=1.0, alpha=1.0), there, gone, small).outcome == "holds"


@dataclass(frozen=True, slots=True)
class FreeIntercept(Objective):
    """The penalty is on the coefficients alone, as in scikit-learn's own objective and in diffprivlib."""

    def weights(self, rows: Any, signs: Any, noise: float) -> Any:
        penalty = np.full(self.problem.size, self.alpha)
        penalty[-1] = 1e-4 * self.alpha
        linear = hidden_noise(noise, self.problem.size)
        w = minimum(rows * signs[0][:, None], self.problem.loss, penalty, linear, off_normal(noise, 2))  # type: ignore[arg-type]
        return exact_each([w], 2 * TOLERANCE / self.alpha, GAP * noise)


def test_an_unregularised_intercept_is_refuted() -> None:
    there, gone = (np.zeros((1, 1)), np.array([1])), (np.zeros((0, 1)), np.array([], np.int64))
    small = lambda w: -abs(w[0, 1])  # noqa: E731
    assert played(made(FreeIntercept, epsilon=1.0, alpha=1.0, intercept=1.0), there, gone, small).outcome == "refuted"
    assert played(made(Objective, epsilon=1.0, alpha=1.0, intercept=1.0), there, gone, small).outcome == "holds"


class ShortRows(Problem):
    """Rows are clipped and scaled without their intercept column, so that they are longer than the noise is for."""

    def rows(self, features: Any) -> Any:
        return np.hstack([clipped(features, self.norm), np.full((len(features), 1), self.intercept)]) / self.norm


@pytest.mark.parametrize("kind", [Objective, Output, Descent])
def test_an_intercept_column_outside_the_sensitivity_is_refuted(kind: type[LinearFit]) -> None:
    there, gone = (np.zeros((1, 1)), np.array([1])), (np.zeros((0, 1)), np.array([], np.int64))
    for problem, expected in ((ShortRows, "refuted"), (Problem, "holds")):
        mechanism = kind(problem(1, 2, 1.0, 8.0, Logistic(3.0)), record(), 0.5, 1e-6, 100.0)
        assert played(mechanism, there, gone, lambda w: w[0, 1], 1000).outcome == expected
