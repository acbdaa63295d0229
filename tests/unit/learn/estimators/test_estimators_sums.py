"""Regression, components, naive Bayes, scaling and encoders: conventions, accuracy, refusals."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.pipeline import make_pipeline
from sklearn.utils.estimator_checks import check_estimator

from discreet import record
from discreet.accounting import curve
from discreet.errors import InvalidValue
from discreet.learn import (
    PCA,
    GaussianNB,
    KBinsDiscretizer,
    LinearRegression,
    LogisticRegression,
    OneHotEncoder,
    Ridge,
    StandardScaler,
)
from discreet.learn.estimators import choose_hypothesis, excess_risk
from discreet.learn.estimators.finite import FiniteRisk
from discreet.learn.estimators.sums import flat, unflat
from discreet.noise.source import seeded_for_tests

PRIVATE: dict[str, Any] = {"epsilon": 1.0, "delta": 1e-6, "unit": record()}
CHECKED: dict[str, Any] = {**PRIVATE, "epsilon": 1e6}
NOISE = "two fits have different noise"
REFUSES = "an error that depends on a private row tells that somebody has it"
BY_NAME = "the check sets with_mean by the name of the class"
DIFFERENT = {
    "check_fit_idempotent": NOISE, "check_supervised_y_2d": NOISE, "check_classifier_data_not_an_array": NOISE,
    "check_regressor_data_not_an_array": NOISE, "check_regressors_int": NOISE, "check_estimator_sparse_array": BY_NAME,
    "check_estimator_sparse_matrix": BY_NAME, "check_estimators_empty_data_messages": REFUSES, "check_dtype_object": REFUSES,
    "check_supervised_y_no_nan": REFUSES,
}  # fmt: skip


@pytest.mark.parametrize(
    "estimator",
    [
        GaussianNB(bounds=(-10, 10), classes="observed", **CHECKED), StandardScaler(bounds=(-10, 10), **CHECKED),
        Ridge(norm=10.0, bounds=(-100, 100), **CHECKED), LinearRegression(norm=10.0, bounds=(-100, 100), **CHECKED),
        PCA(1, norm=10.0, **CHECKED), KBinsDiscretizer(bounds=(-10, 10), **CHECKED),
    ],
    ids=lambda estimator: type(estimator).__name__,
)  # fmt: skip
def test_the_conventions_of_scikit_learn(estimator: Any) -> None:
    results = check_estimator(estimator, on_fail=None, on_skip=None, expected_failed_checks=DIFFERENT)
    assert [each["check_name"] for each in results if each["status"] == "failed"] == []
    assert len(results) > 40


@pytest.fixture(scope="module")
def line() -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(2)
    x = random.uniform(-1, 1, size=(20_000, 2))
    return x, 3 * x[:, 0] - x[:, 1] + 10 + 0.1 * random.normal(size=20_000)


@pytest.mark.parametrize("kind", [Ridge, LinearRegression])
def test_regression(kind: Any, line: Any) -> None:
    model = kind(**PRIVATE, norm=1.5, bounds=(5, 15)).fit(*line)
    assert model.score(*line) > 0.99
    assert model.intercept_ == pytest.approx(10, abs=0.1)
    assert 0.999 < curve(model.release_.claims[0].event).epsilon(1e-6) <= 1.0
    through = kind(**PRIVATE, norm=1.5, bounds=(-5, 5), fit_intercept=False).fit(line[0], line[1] - 10)
    assert through.intercept_ == pytest.approx(0.0, abs=1e-12)
    assert through.coef_ == pytest.approx([3, -1], abs=0.1)


def test_a_regression_on_noise_alone_stays_small() -> None:
    """What the noise makes of nothing: the penalty follows the noise, so coefficients do not explode."""
    x, y = np.zeros((50, 8)), np.zeros(50)
    found = [LinearRegression(**{**PRIVATE, "epsilon": 0.1}, norm=1.0, bounds=(-1, 1)).fit(x, y).coef_ for _ in range(10)]
    assert np.abs(found).max() < 5


def test_components() -> None:
    random = np.random.default_rng(4)
    x = random.normal(size=(20_000, 1)) * np.array([[0.3, 0.4, 0.0]]) + 0.02 * random.normal(size=(20_000, 3)) + 0.1
    model = PCA(1, **PRIVATE, norm=1.5).fit(x)
    assert abs(model.components_[0] @ [0.6, 0.8, 0.0]) > 0.99
    assert model.inverse_transform(model.transform(x)) == pytest.approx(x, abs=0.3)
    assert model.get_feature_names_out().tolist() == ["pca0"]
    with pytest.raises(InvalidValue, match="n_components"):
        PCA(4, **PRIVATE, norm=1.0).fit(x)


def test_naive_bayes_and_scaling() -> None:
    random = np.random.default_rng(5)
    y = random.integers(0, 2, 10_000)
    x = random.normal(size=(10_000, 2)) + 2 * y[:, None]
    model = GaussianNB(**PRIVATE, bounds=[(-5, 8), (-5, 8)], classes=[0, 1]).fit(x, y)
    assert model.score(x, y) > 0.9
    assert model.predict_proba(x).sum(axis=1) == pytest.approx(np.ones(len(y)))
    scaler = StandardScaler(**PRIVATE, bounds=(-5, 8)).fit(x)
    assert scaler.transform(x).std(axis=0) == pytest.approx([1, 1], abs=0.1)
    assert scaler.inverse_transform(scaler.transform(x)) == pytest.approx(x)
    for bounds, says in ((None, "None"), ((1, 0), "rise"), ([(0, 1)], "each of 2")):
        with pytest.raises(InvalidValue, match=says):
            StandardScaler(**PRIVATE, bounds=bounds).fit(x)


def test_encoders_by_public_knowledge_spend_nothing() -> None:
    frame = pd.DataFrame({"sex": ["f", "m", "?"], "job": ["a", "b", "a"]})
    encoder = OneHotEncoder(categories=[["f", "m"], ["a", "b"]]).fit(frame)
    assert encoder.transform(frame).tolist() == [[1, 0, 1, 0], [0, 1, 0, 1], [0, 0, 1, 0]]
    assert encoder.get_feature_names_out().tolist() == ["sex_f", "sex_m", "job_a", "job_b"]
    assert encoder.norm_ == pytest.approx(2**0.5)
    for wrong in ([["f"]], [["f", "f"], ["a"]], [[], ["a"]]):
        with pytest.raises(InvalidValue):
            OneHotEncoder(categories=wrong).fit(frame)
    bins = KBinsDiscretizer(edges=[[0.0, 1.0]]).fit([[5.0]])
    assert bins.release_ is None
    assert bins.transform([[-1.0], [0.5], [2.0]]).tolist() == [[1, 0, 0], [0, 1, 0], [0, 0, 1]]
    with pytest.raises(InvalidValue, match="rise"):
        KBinsDiscretizer(edges=[[1.0, 0.0]]).fit([[5.0]])
    with pytest.raises(InvalidValue, match="epsilon"):
        KBinsDiscretizer().fit([[5.0]])


def test_private_edges_cut_about_equal_parts() -> None:
    x = np.random.default_rng(6).exponential(size=(20_000, 1))
    bins = KBinsDiscretizer(**PRIVATE, n_bins=4, bounds=(0, 10)).fit(x)
    assert bins.transform(x).mean(axis=0) == pytest.approx([0.25] * 4, abs=0.05)
    assert curve(bins.release_.claims[0].event).epsilon(1e-6) <= 1.0
    y = (x[:, 0] > 0.7).astype(int)
    private = LogisticRegression(**PRIVATE, norm=1.0, classes=[0, 1])
    assert make_pipeline(bins, private).fit(x, y).score(x, y) > 0.9


def test_a_finite_class() -> None:
    """The bound on the excess holds as often as it says."""
    rows = np.random.default_rng(7).random((400, 30))
    best = rows.sum(axis=0).min()
    mechanism = FiniteRisk(30, record(), 0.5)
    with seeded_for_tests(b"finite"):
        worse = [rows[:, mechanism.run(rows)].sum() - best > excess_risk(30, 0.5, 0.1) for _ in range(300)]
    assert np.mean(worse) <= 0.1
    chosen = choose_hypothesis(rows, list(range(30)), epsilon=0.5, unit=record())
    assert curve(chosen.claims[0].event).epsilon(0) <= 0.5
    assert choose_hypothesis(lambda h: np.full(100, h), [0.9, 0.0], epsilon=5.0, unit=record("replace")).value == 0.0
    with pytest.raises(InvalidValue, match="column for each"):
        choose_hypothesis(rows, [1, 2], epsilon=1.0, unit=record())


def test_a_matrix_as_a_vector_keeps_its_length() -> None:
    matrix = np.random.default_rng(8).normal(size=(5, 5))
    matrix = matrix + matrix.T
    assert np.linalg.norm(flat(matrix)) == pytest.approx(np.linalg.norm(matrix))
    assert unflat(flat(matrix)) == pytest.approx(matrix)
