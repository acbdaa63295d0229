"""The recommender: what it predicts, whose ratings it needs for that, what it refuses.

Noise is real and far below what is asked: false alarms below 1e-9.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from discreet import Ledger, record, user
from discreet.accounting import curve
from discreet.errors import BudgetExceeded, InvalidValue
from discreet.learn import Recommender
from discreet.learn.recommend import Factors
from discreet.learn.recommend.factors import user_factors, user_residuals
from discreet.learn.recommend.summaries import Summaries, cleaned, residuals

ITEMS = [f"film {i}" for i in range(20)]
PERSON = user("user", rows=None)


def ratings(users: int = 3000, seed: int = 0) -> dict[str, Any]:
    """Two tastes: who likes the even films does not like the odd ones."""
    rng = np.random.default_rng(seed)
    user_of = np.repeat(np.arange(users), 8)
    item = np.concatenate([rng.permutation(20)[:8] for _ in range(users)])
    taste = np.where(rng.random(users) < 0.5, 1, -1)[user_of] * np.where(item % 2 == 0, 1, -1)
    stars = np.clip(np.round(3 + taste + 0.05 * (item - 10) + rng.normal(0, 0.3, len(item))), 1, 5)
    return {"user": user_of, "item": np.array(ITEMS)[item], "rating": stars}


def model(**changed: Any) -> Recommender:
    given = {"epsilon": 20.0, "delta": 1e-6, "items": ITEMS, "bounds": (1, 5), "unit": record()} | changed
    return Recommender(**given)


LEARNERS = [(method, unit) for method in ("knn", "svd") for unit in (record(), PERSON, record("replace"))]
LEARNERS += [("als", PERSON), ("als", user("user", rows=None, relation="replace"))]


@pytest.mark.parametrize(("method", "unit"), LEARNERS, ids=lambda part: getattr(part, "relation", part))
def test_it_learns_who_likes_what(unit: Any, method: str) -> None:
    fitted = model(unit=unit, method=method, epsilon=200.0).fit(ratings())
    likes_even = {ITEMS[i]: 5 if i % 2 == 0 else 1 for i in range(8)}
    even, odd = fitted.predict(likes_even, [ITEMS[10], ITEMS[11]])
    assert even > odd + 1
    assert all(int(film.split()[1]) % 2 == 0 for film in fitted.recommend(likes_even, 5))
    assert not set(fitted.recommend(likes_even, 5)) & set(likes_even)
    assert curve(fitted.release_.claims[0].event).epsilon(1e-6) <= 200.0


def test_one_user_at_a_time_is_all_users_at_once() -> None:
    """Predictions take the code that the fit takes, so factors and residuals are those of the fit."""
    rng = np.random.default_rng(0)
    who, item, value = cleaned(rng.integers(0, 50, 600), rng.integers(0, 20, 600), rng.uniform(-1, 1, 600), 20)
    effects, factors = rng.uniform(-0.5, 0.5, 20), rng.normal(size=(20, 4))
    left = user_residuals(who, item, value, effects, 0.1)
    together = user_factors(who, item, left, factors, 50)
    for one in range(50):
        rows = who == one
        np.testing.assert_allclose(left[rows], residuals(value[rows], effects[item[rows]], 0.1)[0], rtol=1e-12, atol=1e-15)
        alone = user_factors(np.zeros(int(rows.sum()), np.int64), item[rows], left[rows], factors, 1)[0]
        np.testing.assert_allclose(alone, together[one], rtol=1e-12, atol=1e-15)
    assert (np.linalg.norm(together, axis=1) <= 1).all()


def test_factors_beat_levels_where_there_are_tastes() -> None:
    """At epsilon 4 for a user, on ratings that were held out."""
    table = ratings(4000)
    held = np.random.default_rng(1).random(len(table["user"])) < 0.1
    train = {name: column[~held] for name, column in table.items()}
    off: dict[str, list[float]] = {"effects": [], "als": []}
    for method, errors in off.items():
        fitted = model(unit=PERSON, method=method, epsilon=4.0).fit(train)
        for person in range(300):
            own, asked = ((table["user"] == person) & part for part in (~held, held))
            said = fitted.predict(dict(zip(table["item"][own], table["rating"][own])), table["item"][asked].tolist())
            errors += list(said - table["rating"][asked])
    assert np.std(off["als"]) < 0.7 * np.std(off["effects"])


def test_effects_and_levels() -> None:
    fitted = model(epsilon=5.0).fit(ratings())
    low, high = fitted.predict({}, [ITEMS[0], ITEMS[19]])
    assert high > low + 0.5
    assert fitted.predict(dict.fromkeys(ITEMS[:8], 5), [ITEMS[9]]) > fitted.predict(dict.fromkeys(ITEMS[:8], 1), [ITEMS[9]])
    assert ((fitted.predict({}, ITEMS) >= 1) & (fitted.predict({}, ITEMS) <= 5)).all()


def test_frames_and_arrow_and_what_no_list_knows() -> None:
    import pandas as pd
    import pyarrow as pa

    table = ratings(500)
    for whole in (pd.DataFrame(table), pa.table(table)):
        assert len(model().fit(whole).effects_) == 20
    table["item"] = np.where(np.arange(len(table["item"])) % 2 == 0, table["item"], "unheard of")
    table["rating"] = np.where(np.arange(len(table["rating"])) % 3 == 0, np.nan, table["rating"])
    assert np.isfinite(model(method="svd").fit(table).effects_).all()


def test_a_pair_that_occurs_twice_contributes_nothing() -> None:
    who, item, value = cleaned([5, 5, 5, 9, 9], [0, 0, 1, 1, 7], [1.0, -1.0, 0.5, np.nan, 1.0], 3)
    assert (who.tolist(), item.tolist(), value.tolist()) == ([0], [1], [0.5])


def test_nobody_at_all() -> None:
    none = (np.empty(0, int), np.empty(0, int), np.empty(0))
    for unit in (record(), PERSON):
        assert np.isfinite(Summaries(3, unit, 1.0, 1e-6, True).run(none)).all()
    assert np.isfinite(Factors(3, PERSON, 1.0, 1e-6, 2).run(none)).all()


@pytest.mark.parametrize(
    ("method", "unit"), [("effects", record()), ("effects", PERSON), ("knn", record()), ("knn", PERSON), ("als", PERSON)]
)
@pytest.mark.parametrize(
    "table",
    [
        {"user": [], "item": [], "rating": []},
        {"user": [1, [2], None], "item": ["item 0", ["x"], {}], "rating": [1.0, [2], "x"]},
        {"user": [[1], [2]], "item": [["a"], ["b"]], "rating": [[1.0], [2.0]]},
    ],
    ids=["nobody", "cells that are lists", "lists alone"],
)
def test_no_rating_makes_a_fit_fail(table: Any, unit: Any, method: str) -> None:
    """An error would tell that somebody is there, or that nobody is."""
    key = {"user": unit.key} if unit.key else {}
    named = {key.get(name, name): column for name, column in table.items()}
    assert np.isfinite(model(unit=unit, method=method).fit(named).effects_).all()


def test_it_is_paid_for(tmp_path: Path) -> None:
    place = str(tmp_path / "ledger.db")
    with Ledger(place) as ledger:
        ledger.open("films", unit=PERSON, epsilon=2.0, delta=1e-5)
    paid = model(unit=PERSON, epsilon=1.5, ledger=place, source="films").fit(ratings(200))
    assert paid.release_.entry is not None
    with pytest.raises(BudgetExceeded):
        paid.fit(ratings(200))


@pytest.mark.parametrize(
    ("how", "says"),
    [
        ({"items": ["a", "a"]}, "each item once"),
        ({"bounds": None}, "bounds"),
        ({"bounds": (5, 1)}, "rise"),
        ({"method": "magic"}, "method"),
        ({"unit": None}, "unit"),
        ({"epsilon": 0}, "epsilon"),
        ({"method": "als"}, "whole users"),
        ({"method": "als", "unit": PERSON, "factors": 0}, "factors"),
    ],
)
def test_what_is_refused(how: dict[str, Any], says: str) -> None:
    with pytest.raises((InvalidValue, AttributeError), match=says):
        model(**how).fit(ratings(10))


def test_an_unknown_item_cannot_be_asked_for() -> None:
    with pytest.raises(InvalidValue, match="none of the items"):
        model().fit(ratings(50)).predict({}, ["film 99"])
