"""Private estimators keep to scikit-learn's conventions, refuse what they cannot do, and spend once."""

from __future__ import annotations

import logging
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest
from scipy import sparse
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MaxAbsScaler
from sklearn.utils.estimator_checks import check_estimator

from discreet import Ledger, Release, record, user
from discreet.accounting import curve
from discreet.core import Group
from discreet.errors import BudgetExceeded, InvalidValue, RunFailed
from discreet.learn import LinearSVC, LogisticRegression
from discreet.learn.estimators import exact, linear

PRIVATE: dict[str, Any] = {"epsilon": 1.0, "delta": 1e-6, "norm": 2.0, "unit": record(), "classes": [0, 1]}
NOISE_DIFFERS = dict.fromkeys(
    ("check_fit_idempotent", "check_supervised_y_2d", "check_classifier_data_not_an_array"), "two fits have different noise"
)
TOTAL = dict.fromkeys(
    ("check_estimators_empty_data_messages", "check_dtype_object", "check_supervised_y_no_nan"),
    "an error that depends on a private row tells that somebody has it",
)


@pytest.fixture(scope="module")
def table() -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(3)
    y = random.integers(0, 2, 6000)
    return random.normal(size=(6000, 3)) * 0.3 + np.array([0.8, -0.4, 0.0]) * (2 * y - 1)[:, None], y


@pytest.mark.parametrize("kind", [LogisticRegression, LinearSVC])
def test_the_conventions_of_scikit_learn(kind: Any) -> None:
    estimator = kind(epsilon=100.0, delta=1e-6, norm=10.0, unit=record(), classes="observed")
    results = check_estimator(estimator, on_fail=None, on_skip=None, expected_failed_checks=NOISE_DIFFERS | TOTAL)
    assert [each["check_name"] for each in results if each["status"] == "failed"] == []
    assert len(results) > 40


@pytest.mark.parametrize("solver", ["auto", "objective", "output", "descent"])
@pytest.mark.parametrize("kind", [LogisticRegression, LinearSVC])
def test_it_learns(kind: Any, solver: str, table: Any) -> None:
    model = kind(**PRIVATE, solver=solver).fit(*table)
    assert model.score(*table) > 0.95
    claim = model.release_.claims[0]
    assert claim.game.unit == record()
    assert 0.97 < curve(claim.event).epsilon(1e-6) <= 1.0
    assert model.release_.value["coef"] == model.coef_.tolist()


def test_probabilities_undo_the_margin() -> None:
    """With margin 0 and with margin 1 the probabilities are those of the data."""
    y = np.repeat([0, 1], [14_000, 6000])
    for margin in (0.0, 1.0, 2.0):
        model = LogisticRegression(**{**PRIVATE, "epsilon": 50.0}, margin=margin).fit(np.zeros((len(y), 1)), y)
        assert model.predict_proba([[0.0]])[0] == pytest.approx([0.7, 0.3], abs=0.01)
        assert np.exp(model.predict_log_proba([[0.0]])) == pytest.approx(model.predict_proba([[0.0]]))


def test_more_than_two_classes() -> None:
    random = np.random.default_rng(5)
    y = random.integers(0, 3, 9000)
    x = np.eye(3)[y] + 0.1 * random.normal(size=(9000, 3))
    model = LogisticRegression(**{**PRIVATE, "classes": ["a", "b", "c"]}).fit(x, np.array(["a", "b", "c"])[y])
    assert model.predict([[1, 0, 0], [0, 1, 0], [0, 0, 1]]).tolist() == ["a", "b", "c"]
    assert model.predict_proba(x).sum(axis=1) == pytest.approx(np.ones(9000))
    assert model.release_.claims[0].event.times == 3
    assert curve(model.release_.claims[0].event).epsilon(1e-6) <= 1.0


def test_frames_pipelines_clones_and_pickles(table: Any) -> None:
    x, y = table
    frame = pd.DataFrame(x, columns=["a", "b", "c"])
    model = LogisticRegression(**PRIVATE).fit(frame, pd.Series(y))
    assert model.feature_names_in_.tolist() == ["a", "b", "c"]
    again = pickle.loads(pickle.dumps(model))  # noqa: S301
    assert (again.predict(frame) == model.predict(frame)).all()
    assert again.release_ == model.release_
    assert not hasattr(clone(model), "release_")
    assert LogisticRegression(**PRIVATE).fit(pl.DataFrame(frame), pl.Series(y)).feature_names_in_.tolist() == ["a", "b", "c"]
    assert make_pipeline(MaxAbsScaler(), LogisticRegression(**PRIVATE)).fit(frame, y).score(frame, y) > 0.9


def test_the_ledger_pays_before_a_row_is_used(table: Any, tmp_path: Path) -> None:
    place = str(tmp_path / "ledger.db")
    with Ledger(place) as ledger:
        ledger.open("people", unit=record(), epsilon=2.5, delta=1e-5)
    model = LogisticRegression(**PRIVATE, ledger=place, source="people").fit(*table)
    assert model.release_.entry is not None
    model.release_.save(tmp_path / "release.json")
    assert Release.load(tmp_path / "release.json").value["coef"] == model.coef_.tolist()
    clone(model).fit(*table)
    with pytest.raises(BudgetExceeded):
        clone(model).set_params(epsilon=2.0).fit(*table)
    with Ledger(place) as ledger:
        assert ledger.left("people") < 1.0


def test_a_grid_search_spends_for_every_fit(table: Any, tmp_path: Path) -> None:
    place = str(tmp_path / "ledger.db")
    with Ledger(place) as ledger:
        ledger.open("people", unit=record(), epsilon=50.0, delta=1e-5)
    private = LogisticRegression(**PRIVATE, ledger=place, source="people")
    GridSearchCV(private, {"margin": [0.0, 1.0]}, cv=2, n_jobs=2).fit(*table)
    with Ledger(place) as ledger:
        assert len([each for each in ledger.history("people") if each.kind == "reserve"]) == 2 * 2 + 1


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"epsilon": 0}, "epsilon"), ({"delta": 0}, "delta"), ({"norm": -1}, "norm"), ({"classes": None}, "private"),
        ({"classes": [1]}, "two or more"), ({"unit": "row"}, "unit"),
        ({"unit": user("id", rows=None)}, "no bound"), ({"alpha": 0}, "alpha"), ({"alpha": 1e-6}, "alpha"),
        ({"margin": -1}, "margin"),        ({"solver": "lbfgs"}, "solver"),
        ({"source": "people"}, "ledger"), ({"ledger": "ledger.db"}, "source"),
    ],
)  # fmt: skip
def test_bad_parameters_are_refused_before_anything_is_spent(change: dict[str, Any], says: str, table: Any) -> None:
    with pytest.raises(InvalidValue, match=says):
        LogisticRegression(**{**PRIVATE, **change}).fit(*table)


def test_what_decides_privacy_has_no_default() -> None:
    for name in ("epsilon", "delta", "norm", "unit"):
        with pytest.raises(TypeError, match=name):
            LogisticRegression(**{key: value for key, value in PRIVATE.items() if key != name})


def test_bad_rows(table: Any, caplog: pytest.LogCaptureFixture) -> None:
    x, y = table
    model = LogisticRegression(**PRIVATE)
    with pytest.raises(TypeError, match=r"[Ss]parse"):
        model.fit(sparse.csr_matrix(x), y)
    with pytest.raises(InvalidValue, match="sample_weight"):
        model.fit(x, y, sample_weight=np.ones(len(y)))
    model.fit(x, np.zeros(len(y), int))  # one class among two that are known: a fit like any other
    assert (model.predict(x) == 0).all()
    with pytest.raises(InvalidValue, match="one class"):
        LogisticRegression(**{**PRIVATE, "classes": "observed"}).fit(x, np.zeros(len(y), int))
    with caplog.at_level(logging.WARNING, "discreet.learn"):
        model.fit(x * 1e300, y)
    assert "longer than norm" in caplog.text
    constant = LogisticRegression(**PRIVATE).fit(np.hstack([x, np.ones((len(y), 1))]), y)
    assert constant.score(np.hstack([x, np.ones((len(y), 1))]), y) > 0.9


def test_a_solver_that_does_not_converge_releases_nothing(table: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(linear, "MOST_STEPS", 1)
    model = LogisticRegression(**PRIVATE)
    with pytest.raises(RunFailed, match="nothing was released"):
        model.fit(*table)
    assert not hasattr(model, "coef_")


def test_units_of_several_rows_and_replaced_ones_cost_more(table: Any) -> None:
    for unit, size in ((record("replace"), 2), (user("id", rows=4), 4)):
        model = LogisticRegression(**{**PRIVATE, "unit": unit}).fit(*table)
        event = model.release_.claims[0].event
        assert isinstance(event, Group)
        assert event.size == size
        assert curve(event).epsilon(1e-6) <= 1.0


def test_clipping_bounds_every_row() -> None:
    rows = np.array([[3.0, 4.0], [1e308, 1e308], [np.nan, 1.0], [0.0, 0.0], [1e-320, 0.0], [0.6, 0.8]])
    cut = exact.clipped(rows, 1.0)
    assert (np.linalg.norm(cut, axis=1) <= 1.0).all()
    assert cut[0] == pytest.approx([0.6, 0.8])
    assert cut[1] == pytest.approx([0.5**0.5] * 2)
    assert cut[2].tolist() == [0.0, pytest.approx(1.0)]
    assert cut[5] == pytest.approx([0.6, 0.8])
    problem = linear.Problem(2, 2, 1.0, 1.0, linear.Logistic())
    assert (np.linalg.norm(problem.rows(rows), axis=1) <= 1.0).all()


def test_wide_rows_and_the_bound_on_the_gradient() -> None:
    """The minimum by conjugate gradients, whose gradient an exact sum confirms."""
    from fractions import Fraction

    random = np.random.default_rng(1)
    rows = exact.grained(random.normal(size=(40, linear.WIDE + 5)))
    b = random.normal(size=linear.WIDE + 5)
    w = linear.minimum(rows, linear.Logistic(1.0), 0.5, b)
    share = linear.Logistic(1.0).share(rows @ w)
    total = sum(
        (float(0.5 * w[j] + b[j] - sum(Fraction(r) * Fraction(s) for r, s in zip(rows[:, j], share)))) ** 2
        for j in range(len(w))
    )
    assert total**0.5 <= exact.TOLERANCE
