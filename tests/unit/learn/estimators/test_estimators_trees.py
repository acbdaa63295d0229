"""Boosted trees: conventions, accuracy, probabilities, bins, refusals."""

from __future__ import annotations

import json
import pickle
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.utils.estimator_checks import check_estimator

from discreet import Release, record, user
from discreet.accounting import curve
from discreet.core import Group
from discreet.errors import InvalidValue
from discreet.learn import HistGradientBoostingClassifier, HistGradientBoostingRegressor
from discreet.learn.estimators import boosting
from discreet.learn.estimators.boosting import Boosting, Logistic
from unit.learn.estimators.test_estimators_sums import DIFFERENT

PRIVATE: dict[str, Any] = {"epsilon": 1.0, "delta": 1e-6, "unit": record()}
CLASSES: dict[str, Any] = {**PRIVATE, "bounds": (-1, 1), "classes": [0, 1]}


@pytest.mark.parametrize(
    "estimator",
    [
        HistGradientBoostingClassifier(**{**PRIVATE, "epsilon": 1e6}, bounds=(-10, 10), n_bins=64, classes="observed"),
        HistGradientBoostingRegressor(**{**PRIVATE, "epsilon": 1e6}, bounds=(-10, 10), n_bins=64, target_bounds=(-100, 100)),
    ],
    ids=lambda estimator: type(estimator).__name__,
)
def test_the_conventions_of_scikit_learn(
    estimator: Any, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    monkeypatch.setattr(boosting, "TREES", 20)  # it fits some hundred times
    boosting.plan.cache_clear()
    boosting._noise.cache_clear()
    request.addfinalizer(boosting._noise.cache_clear)
    request.addfinalizer(boosting.plan.cache_clear)
    results = check_estimator(estimator, on_fail=None, on_skip=None, expected_failed_checks=DIFFERENT)
    assert [each["check_name"] for each in results if each["status"] == "failed"] == []
    assert len(results) > 40


@pytest.fixture(scope="module")
def checkers() -> tuple[np.ndarray, np.ndarray]:
    """Neither column alone says anything of the label."""
    x = np.random.default_rng(1).uniform(-1, 1, size=(20_000, 2))
    return x, ((x[:, 0] > 0) ^ (x[:, 1] > 0)).astype(int)


def test_it_learns_what_goes_together(checkers: Any) -> None:
    x, y = checkers
    model = HistGradientBoostingClassifier(**CLASSES, n_bins=4).fit(x, y)
    assert model.score(x, y) > 0.9
    claim = model.release_.claims[0]
    assert 0.99 < curve(claim.event).epsilon(1e-6) <= 1.0
    again = pickle.loads(pickle.dumps(model))  # noqa: S301
    assert (again.predict_proba(x) == model.predict_proba(x)).all()
    assert model.predict_proba(x).sum(axis=1) == pytest.approx(np.ones(len(y)))


def test_the_release_is_the_model(checkers: Any, tmp_path: Any) -> None:
    """What is released, read again from its file, gives the same scores."""
    x, y = checkers
    model = HistGradientBoostingClassifier(**CLASSES, n_bins=4).fit(x, y)
    model.release_.save(tmp_path / "release.json")
    told = json.loads(json.dumps(Release.load(tmp_path / "release.json").value))
    score = np.full(len(x), told["start"][0][0])
    bins = [np.digitize(x[:, j], told["edges"][j]) for j in range(2)]
    for place, values in zip(bins, told["columns"]):
        score += np.array(values[0])[place]
    for tree in told["trees"]:
        leaf = np.zeros(len(x), int)
        for column, side in zip(tree["columns"], tree["sides"]):
            leaf = 2 * leaf + np.array(side)[bins[column]]
        score += np.array(tree["values"][0])[leaf]
    assert score == pytest.approx(model.decision_function(x))


@pytest.mark.parametrize("share", [0.05, 0.3, 0.8])
def test_probabilities_undo_the_cut_of_gradients(share: float) -> None:
    y = np.repeat([0, 1], [int(40_000 * (1 - share)), int(40_000 * share)])
    model = HistGradientBoostingClassifier(**{**CLASSES, "epsilon": 20.0}).fit(np.zeros((len(y), 1)), y)
    assert model.predict_proba([[0.0]])[0, 1] == pytest.approx(share, abs=0.01)


def test_more_than_two_classes_and_categories_without_order() -> None:
    random = np.random.default_rng(5)
    code = random.integers(0, 6, 12_000)
    y = np.array(["b", "a", "c", "a", "c", "b"])[code]
    model = HistGradientBoostingClassifier(
        **PRIVATE, bounds=(0, 5), classes=["a", "b", "c"], categorical_features=[0]
    ).fit(code[:, None], y)  # fmt: skip
    assert model.predict(np.arange(6)[:, None]).tolist() == ["b", "a", "c", "a", "c", "b"]
    assert model.predict_proba(code[:50, None]).shape == (50, 3)


def test_regression() -> None:
    x = np.random.default_rng(4).uniform(0, 1, size=(20_000, 2))
    y = np.sin(6 * x[:, 0]) + (x[:, 1] > 0.5) * (x[:, 0] > 0.5)
    model = HistGradientBoostingRegressor(**PRIVATE, bounds=(0, 1), target_bounds=(-1, 2)).fit(x, y)
    assert model.score(x, y) > 0.85
    assert model.predict(x).max() <= 2


def test_what_is_missing_has_a_bin_of_its_own() -> None:
    frame = pd.DataFrame({"a": [np.nan, 0.0] * 4000})
    y = np.tile([1, 0], 4000)
    model = HistGradientBoostingClassifier(**CLASSES).fit(frame, y)
    assert model.predict(frame[:2]).tolist() == [1, 0]
    odd = HistGradientBoostingClassifier(**CLASSES).fit(
        np.array([[np.nan], [np.inf], [-np.inf], ["x"], [1e308]], object), [0, 1, None, 7, 1]
    )
    assert np.isfinite(odd.predict_proba([[None], [5.0]])).all()
    assert np.isfinite(odd.fit(np.empty((0, 1)), []).predict_proba([[0.0]])).all()


def test_units_cost_more() -> None:
    for unit, size in ((record("replace"), 2), (user("id", rows=4), 4)):
        event = Boosting((3, 3), frozenset(), Logistic(1), unit, 1.0, 1e-6).claims()[0].event
        assert isinstance(event, Group)
        assert event.size == size
        assert 0.99 < curve(event).epsilon(1e-6) <= 1.0


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"epsilon": 0}, "epsilon"), ({"bounds": None}, "bounds"), ({"classes": None}, "private"), ({"n_bins": 1}, "n_bins"),
        ({"edges": [[0.0]]}, "edges"), ({"edges": [[1, 0], None]}, "rise"), ({"categorical_features": [2]}, "from 0 to 1"),
        ({"unit": user("id", rows=None)}, "no bound"),
    ],
)  # fmt: skip
def test_bad_parameters_are_refused_before_anything_is_spent(change: dict[str, Any], says: str, checkers: Any) -> None:
    with pytest.raises(InvalidValue, match=says):
        HistGradientBoostingClassifier(**{**CLASSES, **change}).fit(*checkers)
