"""Every statistic of arrays on a worst pair, and a broken twin of each that must be refuted.

Seeded. A right plan fails its check with probability at most 1e-7 under fresh seeds; there are fewer than 20 here. A twin is
refuted when the lower bound on its epsilon, at confidence 1 - 1e-7, is above the 1 it claims.
"""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from discreet.core import record, user
from discreet.noise import discrete_laplace, exponential
from discreet.noise.source import seeded_for_tests
from discreet.query import array_mechanisms as mechanisms
from discreet.query.covariance import covariance
from discreet.query.rows import Rows
from discreet.query.statistics import Count, Mean, Sum, Variance
from unit.noise.tools import epsilon_at_least

ALPHA = 1e-7
R, U = record(), user("id", rows=1)
COMMON = {"unit": R, "epsilon": 1, "confidence": 0.95}
OWNED = {**COMMON, "unit": U}


def bound(run, pair, event, runs=2000):
    seen = []
    for i, data in enumerate(pair):
        with seeded_for_tests(b"arrays %d" % i):
            seen.append(sum(bool(event(run(data))) for _ in range(runs)))
    return epsilon_at_least(*seen, runs, ALPHA)


def noise(scale):
    return discrete_laplace(Fraction(scale) * 1000) / 1000


def above(t):
    return lambda found: found.value >= t


# A person with five rows, or not there; others are one row each.
MANY = (Rows([1.0] * 8, ["a", "b", "c", "me", "me", "me", "me", "me"]), Rows([1.0] * 3, ["a", "b", "c"]))


def unowned(plan):
    """The twin forgets whose row each is."""
    return lambda rows: plan.run(Rows(rows.values))


RIGHT = [
    ("count", mechanisms.statistic(Count, **COMMON), ([1, 1], [1]), above(2)),
    ("count by user", mechanisms.statistic(Count, **OWNED), MANY, above(4)),
    ("sum", mechanisms.statistic(Sum, bounds=(0, 10), **COMMON), ([5.0, 1e9], [5.0]), above(15)),
    ("sum by user", mechanisms.statistic(Sum, bounds=(0, 1), **OWNED), MANY, above(4)),
    ("mean", mechanisms.statistic(Mean, bounds=(0, 1), **COMMON), ([0.0, 0.0, 1.0], [0.0, 0.0]), above(0.5)),
    ("mean by user", mechanisms.statistic(Mean, bounds=(0, 1), **OWNED), MANY, above(0.99)),
    ("variance", mechanisms.statistic(Variance, bounds=(0, 1), **COMMON), ([0.0, 0.0, 1.0], [0.0, 0.0]), above(0.2)),
    (
        "covariance",
        covariance(bounds=[(0, 1), (0, 1)], **COMMON),
        (np.array([[0.0, 0.0], [1.0, 1.0]]), np.array([[0.0, 0.0]])),
        lambda found: found.value[0][1] > 0,
    ),
    (
        "median",
        mechanisms.quantile(bounds=(0, 2), targets=0.5, bins=2, **COMMON),
        ([0.5, 0.5, 1.5], [0.5, 0.5]),
        lambda found: found.value > 1,
    ),
    (
        "median by user",
        mechanisms.quantile(bounds=(0, 2), targets=0.5, bins=2, **OWNED),
        MANY,
        lambda found: found.value > 1,
    ),
    (
        "histogram by user",
        mechanisms.histogram(categories=list(range(5)), **OWNED),
        (Rows(list(range(5)), ["me"] * 5), Rows([], [])),
        lambda found: sum(found.value) > 2,
    ),
    (
        "top k",
        mechanisms.top_k(categories=list("abcd"), k=2, **COMMON),
        (["a"], []),
        lambda found: "a" in [row["category"] for row in found],
    ),
    (
        "select",
        mechanisms.select(candidates=list("ab"), score=lambda v, c: v.count(c), sensitivity=1, unit=R, epsilon=1),
        (["a"], []),
        lambda found: found == "a",
    ),
]


@pytest.mark.parametrize(("plan", "pair", "event"), [case[1:] for case in RIGHT], ids=[case[0] for case in RIGHT])
def test_holds_on_a_worst_pair(plan, pair, event):
    assert bound(plan.run, pair, event, runs=1000) <= 1


def test_counts_and_sums_reach_their_claim():
    """The check has power: at twice the epsilon both are refuted."""
    for plan, pair, event in (
        (mechanisms.statistic(Count, unit=R, epsilon=2, confidence=0.95), ([1, 1], [1]), above(2)),
        (
            mechanisms.statistic(Sum, unit=R, epsilon=2, bounds=(0, 10), confidence=0.95),
            ([5.0, 1e9], [5.0]),
            above(15),
        ),
    ):
        assert bound(plan.run, pair, event) > 1


@pytest.mark.parametrize(
    ("plan", "event"),
    [
        (mechanisms.statistic(Count, **COMMON), above(8)),
        (mechanisms.statistic(Sum, bounds=(0, 1), **COMMON), above(8)),
        (mechanisms.statistic(Mean, bounds=(-1, 1), **COMMON), lambda found: found.low > 0.01),
    ],
    ids=["count", "sum", "mean"],
)
def test_forgetting_whose_row_it_is_is_refuted(plan, event):
    assert bound(unowned(plan), MANY, event) > 1


def test_unclipped_sum_is_refuted():
    assert bound(lambda rows: sum(rows) + noise(10), ([5.0, 100.0], [5.0]), lambda y: y > 55) > 1


def test_a_mean_with_noise_by_the_true_count_is_refuted():
    """Noise of scale range / n tells n, and n is private."""
    twin = lambda rows: np.mean(rows) + noise(Fraction(1, len(rows)))  # noqa: E731
    assert bound(twin, ([0.0, 0.0, 0.0], [0.0]), lambda y: abs(y) > 1) > 1


def test_a_variance_within_bounds_read_from_the_data_is_refuted():
    """The largest value scales the noise, so it shows."""

    def twin(rows):
        reach = max(1, int(max(rows)))
        return np.var(rows) * len(rows) + noise(reach**2)

    assert bound(twin, ([0.0, 1.0, 100.0], [0.0, 1.0]), lambda y: abs(y) > 50) > 1


def test_a_covariance_that_counts_each_pair_as_free_is_refuted():
    """Six products and three sums of one row, each with noise for the whole of epsilon."""

    def twin(rows):
        products = [sum(r[i] * r[j] for r in rows) + noise(1) for i in range(3) for j in range(i + 1)]
        return sum(products)

    assert bound(twin, ([(1, 1, 1)], []), lambda y: y > 3) > 1


def test_a_histogram_for_one_row_is_refuted_for_a_person_in_every_cell():
    plan = mechanisms.histogram(categories=list(range(10)), **COMMON)
    pair = (Rows(list(range(10)), ["me"] * 10), Rows([], []))
    assert bound(unowned(plan), pair, lambda found: sum(found.value) > 5) > 1


def test_top_k_that_pays_once_for_all_its_choices_is_refuted():
    """Ten choices of one of two, each at the whole epsilon."""
    twin = lambda rows: sum(exponential([rows.count("a"), 0], 1, Fraction(1, 2)) == 0 for _ in range(10))  # noqa: E731
    assert bound(twin, (["a"], []), lambda hits: hits >= 8) > 1


def test_select_with_an_understated_sensitivity_is_refuted():
    plan = mechanisms.select(candidates=list("ab"), score=lambda v, c: 6 * v.count(c), sensitivity=1, unit=R, epsilon=1)
    assert bound(plan.run, (["a"], ["b"]), lambda found: found == "a") > 1
