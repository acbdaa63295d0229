"""Statistics of arrays and data frames: right when there is plenty of budget, refused without bounds, charged first."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest

from discreet.core import DiscreteLaplace, Exponential, Mechanism, Release, Repeat, record, user
from discreet.errors import BudgetExceeded, InvalidValue
from discreet.ledger import Ledger
from discreet.noise.source import seeded_for_tests
from discreet.query import array_mechanisms as mechanisms
from discreet.query import arrays
from discreet.query.rows import Contribution
from discreet.query.statistics import Count, Mean, Sum, Variance

R, U = record(), user("id", rows=2)
PLENTY = 1e6
RNG = np.random.default_rng(11)
X = RNG.normal(40, 10, 3000).clip(0, 100)
Y = 0.5 * X + RNG.normal(0, 3, 3000)


def one(release):
    return release.value


def test_every_statistic_is_right_when_budget_is_plenty():
    common = {"unit": R, "epsilon": PLENTY}
    assert one(arrays.count(X, **common)).value == 3000
    assert one(arrays.sum(X, bounds=(0, 100), **common)).value == pytest.approx(X.sum(), abs=0.01)
    assert one(arrays.mean(X, bounds=(0, 100), **common)).value == pytest.approx(X.mean(), abs=1e-4)
    assert one(arrays.variance(X, bounds=(0, 100), **common)).value == pytest.approx(X.var(), abs=1e-2)
    found = one(arrays.covariance(np.stack([X, Y], axis=1), bounds=[(0, 100), (-50, 100)], **common))
    assert np.allclose(found.value, np.cov(X, Y, bias=True), atol=0.05)
    assert one(arrays.quantile(X, [0.1, 0.5], bounds=(0, 100), **common)).value == pytest.approx(
        np.quantile(X, [0.1, 0.5]), abs=0.2
    )
    edges = [0, 30, 40, 50, 100]
    assert one(arrays.histogram(X, edges=edges, **common)).value == np.histogram(X, edges)[0].tolist()
    letters = ["a"] * 5 + ["b"] * 9 + ["c"] * 2 + ["?"] * 50
    top = one(arrays.top_k(letters, k=2, categories=["c", "b", "a", "z"], **common))
    assert [(row["category"], row["value"]) for row in top] == [("b", 9.0), ("a", 5.0)]
    score = lambda values, c: -abs(np.sum(values < c) - len(values) / 2)  # noqa: E731
    assert one(arrays.select(X, candidates=[10, 40, 80], score=score, sensitivity=1, **common)) == 40


def test_intervals_hold_the_truth_about_as_often_as_they_say():
    """Each is at 95% or more; below 85% of 400 has probability under 1e-10."""
    plans = {
        "count": (mechanisms.statistic(Count, unit=R, epsilon=0.5, confidence=0.95), 3000),
        "sum": (mechanisms.statistic(Sum, unit=R, epsilon=0.5, bounds=(0, 100), confidence=0.95), X.sum()),
        "mean": (mechanisms.statistic(Mean, unit=R, epsilon=0.5, bounds=(0, 100), confidence=0.95), X.mean()),
        "variance": (mechanisms.statistic(Variance, unit=R, epsilon=0.5, bounds=(0, 100), confidence=0.95), X.var()),
        "median": (
            mechanisms.quantile(unit=R, epsilon=0.5, bounds=(0, 100), targets=0.5, bins=256, confidence=0.95),
            np.median(X),
        ),
    }
    with seeded_for_tests(b"intervals"):
        for name, (plan, truth) in plans.items():
            found = [plan.run(X) for _ in range(400)]
            assert np.mean([e.low <= truth <= e.high for e in found]) > 0.85, name
            assert all(e.low <= e.value <= e.high for e in found), name


def test_few_people_give_wide_intervals_within_the_bounds():
    found = one(arrays.mean([50.0], bounds=(0, 100), unit=R, epsilon=0.1))
    assert 0 <= found.low <= found.value <= found.high <= 100
    empty = one(arrays.mean([], bounds=(0, 100), unit=R, epsilon=0.1))
    assert 0 <= empty.low <= empty.high <= 100
    assert one(arrays.variance([], bounds=(0, 1), unit=R, epsilon=1)).low >= 0


def test_users_weigh_at_most_their_rows():
    """One with 1000 rows counts as two, spread over all of theirs."""
    values, ids = [0.0] * 10 + [100.0] * 1000, [*range(10), *["heavy"] * 1000]
    common = {"ids": ids, "unit": U, "epsilon": PLENTY}
    assert one(arrays.count(values, **common)).value == pytest.approx(12, abs=0.01)
    assert one(arrays.mean(values, bounds=(0, 100), **common)).value == pytest.approx(200 / 12, abs=0.05)
    assert one(arrays.quantile(values, 0.5, bounds=(0, 100), **common)).value < 1
    cells = one(arrays.histogram(values, categories=[0.0, 100.0], **common)).value
    assert cells == pytest.approx([10, 2], abs=0.01)


def test_missing_and_infinite_values():
    values = [1.0, None, math.nan, math.inf, -math.inf, "x"]
    common = {"unit": R, "epsilon": PLENTY}
    assert one(arrays.count(values, **common)).value == 6
    assert one(arrays.sum(values, bounds=(-2, 10), **common)).value == pytest.approx(9, abs=1e-3)
    assert one(arrays.mean(values, bounds=(-2, 10), **common)).value == pytest.approx(3, abs=1e-3)
    pair = [[1.0, 2.0, 3.0, None], [1.0, None, 3.0, 4.0]]
    found = one(arrays.covariance(pair, bounds=[(0, 4), (0, 4)], **common)).value
    assert found[0][1] == pytest.approx(1, abs=1e-2)


def test_data_frames_and_their_columns():
    values, ids = [1.0, 2.0, None, 4.0], ["a", "a", "b", None]
    frames = []
    for name in ("pandas", "polars", "pyarrow"):
        module = pytest.importorskip(name)
        table = {"x": values, "id": ids}
        frames.append(module.table(table) if name == "pyarrow" else module.DataFrame(table))
    for frame in frames:
        found = arrays.sum(frame["x"], ids=frame["id"], bounds=(0, 5), unit=user("id", rows=2), epsilon=PLENTY)
        assert found.value.value == pytest.approx(3, abs=0.01)  # b's is missing, and the last row is nobody's
    pandas = frames[0].assign(y=[1.0, 2.0, 3.0, 4.0])[["x", "y"]]
    assert len(arrays.covariance(pandas, bounds=[(0, 5), (0, 5)], unit=R, epsilon=1).value.value) == 2


def test_what_is_claimed():
    plan = mechanisms.statistic(Sum, unit=R, epsilon=0.5, bounds=(-3, 2), confidence=0.95)
    assert isinstance(plan, Mechanism)
    event = plan.claims()[0].event
    assert isinstance(event, DiscreteLaplace)
    assert event.scale / event.sensitivity == pytest.approx(2)
    assert mechanisms.statistic(Count, unit=U, epsilon=1, confidence=0.9).events == (DiscreteLaplace(2.0**21, 2**21),)
    swap = mechanisms.statistic(Count, unit=record("replace"), epsilon=1, confidence=0.9)
    assert swap.events == (DiscreteLaplace(2.0, 2),)
    chosen, counts = mechanisms.top_k(unit=R, epsilon=1, categories=list("abc"), k=2, confidence=0.9).events
    assert chosen == Repeat(Exponential(0.25), 2)
    assert counts == DiscreteLaplace(2.0, 1)
    assert "ids" in mechanisms.statistic(Count, unit=U, epsilon=1, confidence=0.9).claims()[0].assumptions[0]


@pytest.mark.parametrize("bounds", [(0, 1), (0, 2**40), (-1e-30, 1e-30), (1, 1.0000001)])
@pytest.mark.parametrize("rows", [1, 1000, 2**16])
def test_sensitivities_fit_whatever_thebounds_pair(bounds, rows):
    plan = mechanisms.statistic(Sum, unit=user("id", rows=rows), epsilon=1, bounds=bounds, confidence=0.95)
    assert plan.events[0].sensitivity <= 2**53 - 1


def test_an_estimate_is_plain_json(tmp_path):
    release = arrays.mean(X, bounds=(0, 100), unit=R, epsilon=1, source="people")
    again = Release.load(release.save(tmp_path / "release.json"))
    assert again.value == dict(release.value)
    assert json.loads(json.dumps(dict(release.value)))["confidence"] == 0.95
    with pytest.raises(KeyError):
        release.value["other"]
    top = arrays.top_k(["a"], k=1, categories=["a", "b"], unit=R, epsilon=1)
    assert Release.load(top.save(tmp_path / "top.json")).value == top.value


class Untouchable:
    """A column that must not be looked at."""

    def __getattr__(self, name):
        raise AssertionError("the values were read")

    def __len__(self):
        raise AssertionError("the values were read")


def test_the_ledger_is_charged_before_the_values_are_read(tmp_path):
    with Ledger(tmp_path / "ledger.db") as ledger:
        ledger.open("people", unit=R, epsilon=1.0, delta=1e-6)
        release = arrays.count(X, unit=R, epsilon=0.1, ledger=ledger, source="people")
        assert release.entry is not None
        spent = ledger.spent("people")
        assert spent > 0
        with pytest.raises(BudgetExceeded):
            arrays.sum(Untouchable(), bounds=(0, 1), unit=R, epsilon=50, ledger=ledger, source="people")
        assert ledger.spent("people") == spent
        with pytest.raises(InvalidValue):
            arrays.sum("not a column", bounds=(0, 1), unit=R, epsilon=0.1, ledger=ledger, source="people")
        assert ledger.spent("people") > spent, "what failed after the charge is spent"


def test_seeds_are_refused():
    with seeded_for_tests(b"never"), pytest.raises(InvalidValue, match="seed"):
        arrays.count(X, unit=R, epsilon=1)


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: arrays.sum(X, bounds=None, unit=R, epsilon=1), "bounds"),
        (lambda: arrays.sum(X, bounds=(1, 0), unit=R, epsilon=1), "below"),
        (lambda: arrays.sum(X, bounds=(0, math.inf), unit=R, epsilon=1), "finite"),
        (lambda: arrays.sum(X, bounds=(0, 1, 2), unit=R, epsilon=1), "two finite"),
        (lambda: arrays.count(X, unit=R, epsilon=0), "epsilon"),
        (lambda: arrays.count(X, unit="record", epsilon=1), "unit"),
        (lambda: arrays.count(X, unit=user("id", rows=None), epsilon=1), "rows"),
        (lambda: arrays.count(X, unit=record("zero_out"), epsilon=1), "blanked"),
        (lambda: arrays.count(X, unit=U, epsilon=1), "ids"),
        (lambda: arrays.count(X, unit=U, epsilon=1, ids=[1, 2]), "one entry per row"),
        (lambda: arrays.count(X, unit=R, epsilon=1, ids=X), "record"),
        (lambda: arrays.count(X, unit=R, epsilon=1, confidence=1), "confidence"),
        (lambda: arrays.count(np.zeros((2, 2)), unit=R, epsilon=1), "column"),
        (lambda: arrays.count(X, unit=R, epsilon=1, ledger=3), "ledger"),
        (lambda: arrays.histogram(X, unit=R, epsilon=1), "either edges"),
        (lambda: arrays.histogram(X, unit=R, epsilon=1, edges=[1, 1]), "rising"),
        (lambda: arrays.histogram(X, unit=R, epsilon=1, categories="ab"), "list"),
        (lambda: arrays.top_k(X, unit=R, epsilon=1, categories=[1, 1], k=1), "different"),
        (lambda: arrays.top_k(X, unit=R, epsilon=1, categories=[1, 2], k=3), "at most 2"),
        (lambda: arrays.quantile(X, 1.5, bounds=(0, 1), unit=R, epsilon=1), "between 0 and 1"),
        (lambda: arrays.covariance(X, bounds=[(0, 1), (0, 1)], unit=R, epsilon=1), "column"),
        (lambda: arrays.select(X, candidates=[1], score=None, sensitivity=1, unit=R, epsilon=1), "function"),
        (lambda: arrays.count([1], unit=U, epsilon=1, ids=[[1]]), "hashable"),
    ],
)  # fmt: skip
def test_refusals_say_what_to_do(call, says):
    with pytest.raises(InvalidValue, match=says):
        call()


def test_no_bounds_no_sum():
    with pytest.raises(TypeError, match="bounds"):
        arrays.sum(X, unit=R, epsilon=1)


def test_contributions():
    assert Contribution(R).weights(3, None).tolist() == [1, 1, 1]
    assert Contribution(U).weights(0, []).tolist() == []
    found = Contribution(U).weights(5, ["a", None, "a", "a", math.nan])
    assert found.tolist() == [2**21 // 3, 0, 2**21 // 3, 2**21 // 3, 0]
