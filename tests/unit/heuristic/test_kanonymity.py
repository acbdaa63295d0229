"""The anonymiser, the checks, the breaks."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from discreet.attack import guesses
from discreet.audit import audit, verdict
from discreet.errors import InvalidValue
from discreet.heuristic import (
    ClassReading,
    Composed,
    Hierarchy,
    KAnonymous,
    SecretColumn,
    anonymise,
    background,
    homogeneity,
    intersection,
    is_k_anonymous,
    is_l_diverse,
    is_t_close,
    k_anonymity,
    l_diversity,
    repeat_rows,
    t_closeness,
)

MARITAL = Hierarchy({"married": ["civil", "church"], "not married": ["never", "widowed", "divorced"]})
QUASI = ["age", "zip", "marital"]


def people(seed, rows=300):
    random = np.random.default_rng(seed)
    return {
        "age": random.integers(18, 90, rows),
        "zip": random.choice(["02138", "02139", "02140", "02141"], rows).astype(object),
        "marital": random.choice(MARITAL.values, rows).astype(object),
        "illness": random.choice(["flu", "cold", "rare", "none"], rows, p=[0.4, 0.3, 0.05, 0.25]).astype(object),
        "income": random.integers(0, 8, rows) * 10,
    }


# The anonymiser.


@given(st.integers(0, 10_000), st.integers(1, 12), st.booleans())
@settings(max_examples=40)
def test_every_class_is_as_large_as_asked(seed, k, strict):
    table = people(seed, 80)
    made = anonymise(table, QUASI, k=k, sensitive="illness", strict=strict, hierarchies={"marital": MARITAL})
    assert made.k >= k
    assert is_k_anonymous(made.table, QUASI, k)
    assert made.table["illness"].tolist() == table["illness"].tolist()
    assert set(made.table) == {*QUASI, "illness"}
    assert made.fits(table)[np.arange(80), made.group].all(), "every row lies in the box of its class"
    assert 0 <= made.penalty() <= 1
    assert made.discernibility() == (made.sizes**2).sum() >= 80 * k
    assert made.average_class(k) >= 1


@given(st.integers(0, 10_000))
@settings(max_examples=20)
def test_strict_never_parts_equal_rows_and_relaxed_parts_further(seed):
    table = people(seed, 120)
    made = anonymise(table, QUASI, k=5)
    rows = list(zip(*(table[name] for name in QUASI)))
    assert all(len({made.group[i] for i, other in enumerate(rows) if other == row}) == 1 for row in rows)
    assert made.fits(table).sum() == 120, "strict boxes do not overlap on the people who are there"


def test_relaxed_halves_even_a_column_of_one_value_apart():
    table = {"age": [30] * 9 + [40]}
    assert len(anonymise(table, ["age"], k=5, strict=True).low) == 1
    assert len(anonymise(table, ["age"], k=5, strict=False).low) == 2


@pytest.mark.parametrize(("diversity", "closeness"), [(3, None), (None, 0.3), (2, 0.4)])
def test_diversity_and_closeness_are_kept(diversity, closeness):
    made = anonymise(people(1), QUASI, k=4, sensitive="illness", diversity=diversity, closeness=closeness)
    loose = anonymise(people(1), QUASI, k=4, sensitive="illness")
    assert is_l_diverse(made.table, QUASI, "illness", diversity or 1)
    assert is_t_close(made.table, QUASI, "illness", closeness or 1)
    assert len(made.low) < len(loose.low), "it costs something"


def test_labels_follow_the_hierarchy():
    table = {"marital": ["civil", "church", "never", "widowed"]}
    assert anonymise(table, ["marital"], k=2, hierarchies={"marital": MARITAL}).table["marital"].tolist() == [
        "married", "married", "not married", "not married",
    ]  # fmt: skip
    assert anonymise(table, ["marital"], k=4, hierarchies={"marital": MARITAL}).table["marital"].tolist() == ["*"] * 4
    assert anonymise(table, ["marital"], k=1, hierarchies={"marital": MARITAL}).penalty() == 0
    assert anonymise(table, ["marital"], k=2, hierarchies={"marital": MARITAL}).penalty() == pytest.approx((2 / 5 + 3 / 5) / 2)


def test_labels_without_one():
    made = anonymise({"x": ["a", "b", "c", None], "y": [0.5, 0.5, 1.5, 2.5]}, ["x", "y"], k=2)
    assert made.table["x"].tolist() == ["{a, b}", "{a, b}", "{c, (missing)}", "{c, (missing)}"]
    assert made.table["y"].tolist() == ["0.5", "0.5", "1.5..2.5", "1.5..2.5"]


def test_frames_come_back_as_frames():
    pandas, pyarrow = pytest.importorskip("pandas"), pytest.importorskip("pyarrow")
    for kind in (pandas.DataFrame, pyarrow.table):
        made = anonymise(kind(people(2)), QUASI, k=3, sensitive="income")
        assert type(made.table) is type(kind(people(2)))
        assert is_k_anonymous(made.table, QUASI, 3)


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ({"k": 500}, "whole table of 300 rows"),
        ({"k": 0}, "k must be at least 1"),
        ({"k": 2, "diversity": 2}, "name the column"),
        ({"k": 2, "sensitive": "illness", "diversity": 9}, "l = 9"),
        ({"k": 2, "hierarchies": {"zip": MARITAL}}, "its hierarchy does not"),
    ],
)
def test_what_cannot_be_met_is_told(wrong, told):
    with pytest.raises(InvalidValue, match=told):
        anonymise(people(1), QUASI, **wrong)


def test_missing_numbers_and_bad_trees_are_told():
    with pytest.raises(InvalidValue, match="missing or infinite"):
        anonymise({"age": [1.0, float("nan")]}, ["age"], k=1)
    for tree in ({}, {"a": ["x", "x"]}, {"a": 3}):
        with pytest.raises(InvalidValue, match="ierarchy"):
            Hierarchy(tree)


# The checks.


@given(st.lists(st.tuples(st.integers(0, 2), st.sampled_from("abc")), min_size=1, max_size=25))
def test_checks_agree_with_the_obvious_computation(rows):
    table = {"zip": [row[0] for row in rows], "ill": [row[1] for row in rows]}
    parts = [[ill for zip_, ill in rows if zip_ == place] for place in {row[0] for row in rows}]
    shares = [{v: part.count(v) / len(part) for v in part} for part in parts]
    assert k_anonymity(table, ["zip"]) == min(map(len, parts))
    assert l_diversity(table, ["zip"], "ill") == min(len(set(part)) for part in parts)
    entropy = min(-sum(p * math.log(p) for p in share.values()) for share in shares)
    assert l_diversity(table, ["zip"], "ill", "entropy") == pytest.approx(math.exp(entropy))
    whole = {v: sum(row[1] == v for row in rows) / len(rows) for v in "abc"}
    apart = max(sum(abs(share.get(v, 0) - whole[v]) for v in "abc") / 2 for share in shares)
    assert t_closeness(table, ["zip"], "ill") == pytest.approx(apart)


def test_closeness_of_numbers_is_the_paper_s_example():
    """Li et al. 2007, section 5.1: Q = 3k … 11k; D[{3k,4k,5k}] = 0.375 and D[{6k,8k,11k}] = 0.167."""
    table = {"group": [0, 0, 0, 1, 1, 1, 2, 2, 2], "salary": [3, 4, 5, 6, 8, 11, 7, 9, 10]}
    assert t_closeness(table, ["group"], "salary") == pytest.approx(0.375)
    second = {"group": [0 if s in (6, 8, 11) else s for s in range(3, 12)], "salary": list(range(3, 12))}
    from discreet.heuristic.kanonymity.diversity import spread

    rows = np.flatnonzero(np.isin(second["salary"], (6, 8, 11)))
    assert spread(np.array(second["salary"])).distance(rows) == pytest.approx(1 / 6, abs=1e-3)


# The breaks.


def test_rows_written_k_times_meet_the_definition_and_hide_nothing():
    table = people(3)
    absurd = repeat_rows(table, 5)
    assert is_k_anonymous(absurd, QUASI, 5)
    assert homogeneity(absurd, QUASI, "illness").share == homogeneity(table, QUASI, "illness").share > 0.9


def test_homogeneity_and_background_knowledge():
    table = {"zip": [1, 1, 1, 2, 2, 2], "ill": ["a", "a", "a", "a", "b", "b"]}
    assert homogeneity(table, ["zip"], "ill").people == 3
    assert background(table, ["zip"], "ill", ruled_out=1).people == 6
    assert is_k_anonymous(table, ["zip"], 3)


def test_two_releases_leave_fewer_values_than_either():
    table = people(4)
    first = anonymise(table, ["age", "zip"], k=4, sensitive="illness", diversity=2)
    second = anonymise(table, ["age", "marital"], k=4, sensitive="illness", diversity=2)
    alone, both = intersection([first], table, "illness"), intersection([first, second], table, "illness")
    assert alone.min() >= 2
    assert (both <= alone).all()
    assert (both >= 1).all(), "the truth is never ruled out"
    assert (both == 1).mean() > 0.01
    with pytest.raises(InvalidValue, match="must publish the column 'income'"):
        intersection([first], table, "income")
    with pytest.raises(InvalidValue, match="at least one release"):
        intersection([], table, "illness")


def test_reading_the_class_is_evidence_without_a_ceiling():
    """Every row's secret is a fair coin; classes of five give it away more often than any small epsilon would."""
    table = {name: column for name, column in people(5, 600).items() if name in QUASI}
    one = KAnonymous(("age", "zip"), 5, ("secret",))
    two = Composed((one, KAnonymous(("age", "marital"), 5, ("secret",))))
    shares = []
    for mechanism in (one, two):
        evidence = audit(mechanism, ClassReading(table, "secret", 1), SecretColumn(table, "secret", seed=1), runs=3)
        found = verdict(mechanism.claims()[0], evidence, confidence=0.999999, delta=0.0)
        assert found.outcome == "no ceiling"
        assert found.floor > 0.3
        shares.append(guesses(evidence).share)
    assert 0.6 < shares[0] < shares[1]
