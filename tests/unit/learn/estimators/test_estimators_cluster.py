"""Private k-means: conventions, accuracy, whatever is in a row, and an audit with broken twins that are refuted."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from sklearn.utils.estimator_checks import check_estimator

from discreet import record, user
from discreet.accounting import curve
from discreet.audit import verdict
from discreet.core import Evidence, Group
from discreet.errors import InvalidValue
from discreet.learn import KMeans
from discreet.learn.estimators import cluster
from discreet.learn.estimators.cluster import Lloyd
from discreet.noise.source import seeded_for_tests
from unit.learn.estimators.test_estimators_sums import DIFFERENT

PRIVATE: dict[str, Any] = {"epsilon": 1.0, "delta": 1e-6, "unit": record(), "bounds": (0, 10)}
RUNS = 300


def test_the_conventions_of_scikit_learn() -> None:
    estimator = KMeans(3, epsilon=1e6, delta=1e-6, unit=record(), bounds=(-10, 10))
    results = check_estimator(estimator, on_fail=None, on_skip=None, expected_failed_checks=DIFFERENT)
    assert [each["check_name"] for each in results if each["status"] == "failed"] == []
    assert len(results) > 40


def test_it_finds_clusters_and_says_what_they_cost() -> None:
    random = np.random.default_rng(1)
    true = np.array([[1.0, 1.0], [9.0, 1.0], [5.0, 8.0]])
    x = np.repeat(true, 4000, axis=0) + random.normal(0, 0.3, size=(12_000, 2))
    model = KMeans(3, **PRIVATE).fit(x)
    assert np.abs(model.cluster_centers_[:, None] - true[None]).max(axis=2).min(axis=0) == pytest.approx(np.zeros(3), abs=0.3)
    assert 0.99 < curve(model.release_.claims[0].event).epsilon(1e-6) <= 1.0
    assert model.release_.value["centres"] == model.cluster_centers_.tolist()
    assert (model.predict(x) == model.transform(x).argmin(axis=1)).all()
    assert not hasattr(model, "labels_")


def test_every_row_is_taken_and_bad_parameters_are_not() -> None:
    strange = np.array([[np.nan, 1.0], [np.inf, -np.inf], [None, "x"], [1e308, 10**400]], object)
    for x in (strange, strange[:0]):
        centres = KMeans(2, **PRIVATE).fit(x).cluster_centers_
        assert ((centres >= 0) & (centres <= 10)).all()
    for change, says in (
        ({"bounds": None}, "bounds"), ({"epsilon": 0}, "epsilon"), ({"n_clusters": 0}, "n_clusters"),
        ({"unit": user("id", rows=None)}, "no bound"),
    ):  # fmt: skip
        with pytest.raises(InvalidValue, match=says):
            KMeans(**{**PRIVATE, **change}).fit(np.ones((5, 2)))


def test_units_of_several_rows_cost_more() -> None:
    event = Lloyd(2, 2, record("replace"), 1.0, 1e-6).claims()[0].event
    assert isinstance(event, Group)
    assert 0.99 < curve(event).epsilon(1e-6) <= 1.0


def played(mechanism: Lloyd, claim: Any) -> str:
    """A row at a corner against nobody, by all sums in the direction in which it moves the cluster of that corner."""
    row, inside = np.ones((1, 2)), np.arange(RUNS) % 2 == 0
    with seeded_for_tests(b"clusters"):
        found = [mechanism.run(row if is_in else row[:0])[:, 0] for is_in in inside]  # of one cluster: it is always the row's
    score = np.array([each @ np.array([cluster.COUNTED, 2**-0.5, 2**-0.5]) for each in found]).sum(axis=1)
    game = claim.game
    seen = Evidence(game=game, attack="refit", score=score, inside=inside, run=np.arange(RUNS), design="paired")
    return verdict(claim, seen, confidence=1 - 1e-6).outcome


def test_the_claim_holds_and_broken_twins_are_refuted(monkeypatch: pytest.MonkeyPatch) -> None:
    """False alarms: below 1e-6. The twins: noise for a tenth, and rows that are not scaled to length 1."""
    mechanism = Lloyd(1, 2, record(), 0.5, 1e-6)
    claim, noise = mechanism.claims()[0], mechanism.noise()
    assert played(mechanism, claim) == "holds"
    with monkeypatch.context() as patch:
        patch.setattr(Lloyd, "noise", lambda self: noise / 10)
        assert played(mechanism, claim) == "refuted"
    monkeypatch.setattr(cluster.exact, "grained", lambda rows: 12 * np.round(rows * 2**20) / 2**20)
    assert played(mechanism, claim) == "refuted"
