"""Joins, uniqueness, and the scoreboard of sparse ratings."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from discreet.attack import Join, Known, Ratings, Scoreboard, approximate_knowledge, linked, uniqueness
from discreet.audit import Canaries, audit, verdict
from discreet.core import Claim, Game, NonPrivate, record
from discreet.errors import InvalidValue

TABLE = st.lists(st.tuples(st.integers(0, 3), st.sampled_from("ab")), min_size=1, max_size=20)


def as_table(rows):
    return {"zip": [row[0] for row in rows], "sex": [row[1] for row in rows]}


# Joins.


@given(TABLE, TABLE)
def test_the_join_is_the_obvious_one(released, people):
    found = linked(as_table(released), as_table(people), ["zip", "sex"])
    for place, row in enumerate(released):
        fitting = [number for number, person in enumerate(people) if person == row]
        assert found.candidates[place] == len(fitting)
        alone = len(fitting) == 1 and released.count(row) == 1
        assert found.match[place] == (fitting[0] if alone else -1)


def test_the_governor():
    """As the lectures tell it: six shared his birth date, three of them men, one in his ZIP code."""
    voters = {
        "born": ["1945-07-31"] * 6 + ["1950-01-01"],
        "sex": ["m", "m", "m", "f", "f", "f", "m"],
        "zip": ["02138", "02139", "02140", "02138", "02139", "02138", "02138"],
    }
    patients = {"born": ["1945-07-31"], "sex": ["m"], "zip": ["02138"]}
    counts = [int(linked(patients, voters, on).candidates[0]) for on in (["born"], ["born", "sex"], ["born", "sex", "zip"])]
    assert counts == [6, 3, 1]
    assert linked(patients, voters, ["born", "sex", "zip"]).right(["W"], list("Wabcdef")) == 1


def test_numbers_never_match_text():
    with pytest.raises(InvalidValue, match="numbers in one table and text in the other"):
        linked({"zip": [2138]}, {"zip": ["2138"]}, ["zip"])


class Publish:
    """The rows as they are."""

    def claims(self):
        return (Claim(game=Game(record(), {"table"}), event=NonPrivate()),)

    def run(self, data):
        return data


def test_a_join_is_evidence_without_a_ceiling():
    random = np.random.default_rng(1)
    people = {"age": random.integers(18, 90, 400), "zip": random.integers(0, 40, 400)}

    def released(base, chosen):
        return {name: column[chosen] for name, column in base.items()}

    evidence = audit(Publish(), Join(people, ["age", "zip"]), Canaries(people, range(400), released, seed=2), runs=1)
    found = verdict(Publish().claims()[0], evidence, confidence=1 - 1e-9, delta=0.0)
    assert found.outcome == "no ceiling"
    assert found.floor > 2.5


# Uniqueness.


@given(TABLE)
def test_uniqueness_counts(rows):
    found = uniqueness(as_table(rows), ["zip", "sex"])
    counts = [rows.count(row) for row in set(rows)]
    assert (found.rows, found.classes, found.k) == (len(rows), len(set(rows)), min(counts))
    assert found.unique == counts.count(1)
    assert found.population(1.0) == found.share


@pytest.mark.parametrize("method", ["pitman", "zayatz"])
def test_the_population_is_estimated_from_a_sample(method):
    """A population of 40 000 with Zipf-like classes; a tenth of it is seen. Seeded, so the same every time."""
    random = np.random.default_rng(5)
    people = np.minimum(random.zipf(1.6, 40_000), 10**6)
    truth = uniqueness({"x": people}, ["x"]).share
    sample = uniqueness({"x": random.choice(people, 4000, replace=False)}, ["x"])
    found = sample.population(0.1, method)
    assert sample.share > 2 * truth
    assert abs(found - truth) < 0.5 * abs(sample.share - truth), "nearer the truth than the sample itself"


def test_the_chance_that_a_match_is_right():
    sample = uniqueness({"x": [1, 2, 3, 4, 4, 5, 5]}, ["x"])  # three alone, two pairs
    assert sample.match_is_right(0.1) == pytest.approx(0.1 * 3 / (0.1 * 3 + 2 * 0.9 * 2))
    assert sample.match_is_right(1.0) == 1.0
    assert uniqueness({"x": [1, 1]}, ["x"]).match_is_right(0.5) == 0.0


@pytest.mark.parametrize("values", [range(200), [0, 0, *range(1, 50)], [0] * 50 + [1]])
@pytest.mark.parametrize("fraction", [1e-6, 0.01, 0.9])
def test_estimates_stay_shares_at_the_edges(values, fraction):
    sample = uniqueness({"x": list(values)}, ["x"])
    for method in ("pitman", "zayatz"):
        assert 0 <= sample.population(fraction, method) <= 1


def test_a_wrong_fraction_is_told():
    with pytest.raises(InvalidValue, match="fraction must be"):
        uniqueness({"x": [1]}, ["x"]).population(0.0)


# The scoreboard.


def slow(ratings, known):
    """The formula of the paper, one user at a time."""
    users = max(r[0] for r in ratings) + 1
    support = {i: sum(r[1] == i for r in ratings) for i in {r[1] for r in ratings}}
    found = []
    for user in range(users):
        total = 0.0
        for item, stars, day in zip(known.items, known.ratings, known.days):
            for who, what, other, when in ratings:
                if who == user and what == item:
                    close = math.exp(-abs(stars - other) / 1.5) + math.exp(-abs(day - when) / 30)
                    total += close / math.log(max(support[item], 2))
        found.append(total)
    return found


@given(
    st.dictionaries(
        st.tuples(st.integers(0, 4), st.integers(0, 5)), st.tuples(st.integers(1, 5), st.integers(0, 90)), min_size=1
    ),
    st.lists(st.tuples(st.integers(0, 7), st.integers(1, 5), st.integers(0, 90)), min_size=1, max_size=5),
)
@settings(max_examples=60)
def test_the_scoreboard_is_the_formula(cells, known):
    ratings = [(user, item, stars, day) for (user, item), (stars, day) in cells.items()]
    user, item, stars, day = zip(*ratings)
    told = Known(*zip(*known))
    assert Ratings(user=user, item=item, rating=stars, day=day).scores(told) == pytest.approx(slow(ratings, told))


def crowd(seed, users=400, items=300, each=25):
    """Ratings of people with tastes: popular items are popular, days are spread over two years."""
    random = np.random.default_rng(seed)
    popularity = 1.0 / np.arange(1, items + 1)
    popularity /= popularity.sum()
    user = np.repeat(np.arange(users), each)
    item = np.concatenate([random.choice(items, each, replace=False, p=popularity) for _ in range(users)])
    return user, item, random.integers(1, 6, users * each), random.uniform(0, 700, users * each)


def test_eight_rough_ratings_find_nearly_everybody():
    data = crowd(1)
    seen = Ratings(user=data[0], item=data[1], rating=data[2], day=data[3])
    random = np.random.default_rng(2)
    found = [seen.find(approximate_knowledge(*data, who, count=8, random=random, wrong=2)) for who in range(200)]
    assert np.mean([each.user == who for who, each in enumerate(found)]) > 0.95
    sure = [each.user == who for who, each in enumerate(found) if each.sure]
    assert len(sure) > 100
    assert np.mean(sure) > 0.97


def test_who_is_not_there_is_seldom_found():
    data = crowd(1)
    left = data[0] >= 200  # the first two hundred are not released
    seen = Ratings(user=data[0][left] - 200, item=data[1][left], rating=data[2][left], day=data[3][left])
    random = np.random.default_rng(2)
    here = np.array([approximate_knowledge(*data, who, count=8, random=random) for who in range(400)], dtype=object)
    score = Scoreboard().score(seen, [Known(*each) for each in here])
    assert np.mean(score[:200] >= 1.5) < 0.25 < 0.75 < np.mean(score[200:] >= 1.5)


@pytest.mark.parametrize(
    ("wrong", "told"), [({"user": [0], "item": [0, 1]}, "equally long"), ({"user": [-1], "item": [0]}, "from 0")]
)
def test_bad_ratings_are_told(wrong, told):
    with pytest.raises(InvalidValue, match=told):
        Ratings(**wrong, rating=[5])
    with pytest.raises(InvalidValue, match="for each item"):
        Ratings(user=[0], item=[0], rating=[5]).find(Known([0], [1, 2]))
    with pytest.raises(InvalidValue, match="9 known ratings were asked"):
        approximate_knowledge([0], [0], [5], [1], 0, count=9, random=np.random.default_rng(0))
