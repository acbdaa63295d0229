"""A private search: one claim for all fits and the choice; what a grid search will cost is said beforehand."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression as Plain
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import Pipeline

from discreet import Ledger, record
from discreet.accounting import curve
from discreet.errors import InvalidValue
from discreet.learn import KBinsDiscretizer, LogisticRegression, PrivateSearchCV, StandardScaler
from discreet.learn.estimators import search_cost

ONE = LogisticRegression(epsilon=1.0, delta=1e-6, norm=2.0, unit=record(), classes=[0, 1])


@pytest.fixture(scope="module")
def table() -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(3)
    y = random.integers(0, 2, 6000)
    return random.normal(size=(6000, 2)) * 0.3 + np.array([0.8, -0.4]) * (2 * y - 1)[:, None], y


def test_one_charge_for_all_fits_and_the_choice(table: Any, tmp_path: Path) -> None:
    place = str(tmp_path / "ledger.db")
    with Ledger(place) as ledger:
        ledger.open("people", unit=record(), epsilon=1.0, delta=1e-6)
    grid = {"margin": [0.0, 1.0], "fit_intercept": [True, False]}
    found = PrivateSearchCV(ONE, grid, epsilon=1.0, delta=1e-6, ledger=place, source="people").fit(*table)
    assert found.score(*table) > 0.95
    assert 0.9 < curve(found.release_.claims[0].event).epsilon(1e-6) <= 1.0
    assert found.best_params_.keys() == grid.keys()
    assert found.best_estimator_.release_.entry == found.release_.entry is not None
    assert (found.decision_function(table[0]) > 0).astype(int).tolist() == found.predict(table[0]).tolist()


def test_a_bad_candidate_is_not_chosen(table: Any) -> None:
    """Every label is 1 and the features tell nothing: without an intercept half of the rows are wrong."""
    x, y = np.sign(table[0]), np.ones(6000, np.int64)
    x[::2] *= -1
    for _ in range(3):
        found = PrivateSearchCV(ONE, {"fit_intercept": [True, False]}, epsilon=2.0, delta=1e-6).fit(x, y)
        assert found.best_params_ == {"fit_intercept": True}


def test_what_is_refused(table: Any) -> None:
    for estimator, change, says in (
        (Plain(), {}, "LogisticRegression or LinearSVC"),
        (ONE, {"epsilon": 0}, "epsilon"),
        (ONE, {"delta": 0}, "delta"),
        (clone(ONE).set_params(ledger="l.db", source="people"), {}, "Give ledger and source to the search"),
    ):
        with pytest.raises(InvalidValue, match=says):
            PrivateSearchCV(estimator, {"margin": [1.0]}, **{"epsilon": 1.0, "delta": 1e-6, **change}).fit(*table)
    with pytest.raises(InvalidValue, match="Give ledger and source to the search"):
        PrivateSearchCV(ONE, {"ledger": ["l.db"]}, epsilon=1.0, delta=1e-6).fit(*table)
    with pytest.raises(InvalidValue, match="alpha"):
        PrivateSearchCV(ONE, {"alpha": [1e-6]}, epsilon=1.0, delta=1e-6).fit(*table)


def test_the_cost_of_a_grid_search_is_said_beforehand() -> None:
    asked = GridSearchCV(ONE, {"margin": [0.0, 1.0, 2.0]}, cv=4, refit=False)
    assert search_cost(asked) == {"fits": 12, "epsilon": 12.0, "delta": pytest.approx(1.2e-5)}
    with pytest.raises(InvalidValue, match="not over a private"):
        search_cost(GridSearchCV(Plain(), {}))


def test_the_cost_of_a_search_over_a_pipeline_counts_every_private_step(table: Any, tmp_path: Path) -> None:
    place = str(tmp_path / "ledger.db")
    with Ledger(place) as ledger:
        ledger.open("people", unit=record(), epsilon=100.0, delta=1e-3)
    paying: dict[str, Any] = {"ledger": place, "source": "people", "unit": record(), "delta": 1e-6}
    scaler = StandardScaler(epsilon=0.5, bounds=(-3, 3), **paying)
    free = KBinsDiscretizer(edges=[[0.0], [0.0]])
    chain = Pipeline([("scale", scaler), ("bins", free), ("fit", clone(ONE).set_params(**paying))])
    search = GridSearchCV(chain, {"fit__epsilon": [1.0, 2.0], "scale__epsilon": [0.25, 0.5]}, cv=2)
    found = search_cost(search)
    assert found == {"fits": 9, "epsilon": pytest.approx(2 * (6.0 + 1.5) + 2.5), "delta": pytest.approx(18e-6)}
    search.fit(*table)
    with Ledger(place) as ledger:
        assert len([each for each in ledger.history("people") if each.kind == "reserve"]) == 2 * found["fits"]
