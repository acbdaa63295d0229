"""Shuffled reports: the clones' pair against slow sums, against every tiny shuffle, and against the closed form."""

from __future__ import annotations

import itertools
import math
from collections import Counter

import mpmath
import numpy as np
import pytest

from discreet.accounting import (
    Approximate,
    Filter,
    Gaussian,
    Group,
    Laplace,
    Pure,
    RandomizedResponse,
    Repeat,
    Sequence,
    Shuffled,
    curve,
    renyi,
    shuffle,
)
from discreet.errors import InvalidValue

EPSILONS = [0.0, 0.1, 0.3, 0.7, 1.2]


def clones_pair(epsilon: float, users: int, rate: float) -> tuple[list[float], list[float]]:
    """Both worlds of the theorem, written out: (clones, reports of the first kind)."""
    p, q = [], []
    truth = math.exp(epsilon) / (1 + math.exp(epsilon))
    for c in range(users):
        here = math.comb(users - 1, c) * rate**c * (1 - rate) ** (users - 1 - c)
        for a in range(c + 2):
            one, same = (math.comb(c, j) / 2**c if 0 <= j <= c else 0.0 for j in (a - 1, a))
            p.append(here * (truth * one + (1 - truth) * same))
            q.append(here * ((1 - truth) * one + truth * same))
    return p, q


def hockey_stick(p, q, epsilon: float) -> float:
    return math.fsum(max(x - math.exp(epsilon) * y, 0.0) for x, y in zip(p, q))


@pytest.mark.parametrize("users", [2, 3, 10, 60])
@pytest.mark.parametrize("epsilon", [0.05, 0.8, 2.0])
def test_the_profile_is_that_of_the_clones(epsilon: float, users: int) -> None:
    for event, rate in (
        (Pure(epsilon), math.exp(-epsilon)),
        (RandomizedResponse(epsilon), 2 / (math.exp(epsilon) + 1)),
    ):
        p, q = clones_pair(epsilon, users, rate)
        for x in EPSILONS:
            truth = hockey_stick(p, q, x)
            found = curve(Shuffled(event, users)).delta(x)
            assert truth <= found <= truth * (1 + 1e-7) + 1e-13


def shuffled_law(rows: list[np.ndarray]) -> dict[tuple[int, ...], float]:
    """The law of the multiset of reports, by trying every combination."""
    found: Counter[tuple[int, ...]] = Counter()
    for told in itertools.product(range(len(rows[0])), repeat=len(rows)):
        found[tuple(sorted(told))] += math.prod(row[y] for row, y in zip(rows, told))
    return found


@pytest.mark.parametrize("seed", range(5))
def test_every_tiny_shuffle_is_below_the_bound(seed: int) -> None:
    """Random local randomisers over three answers and three values; every neighbouring pair of up to four users."""
    rng = np.random.default_rng(seed)
    table = rng.dirichlet(np.ones(3) * 2, size=3) + 0.02
    table /= table.sum(axis=1, keepdims=True)
    epsilon = float(np.log(table.max(axis=0) / table.min(axis=0)).max()) * (1 + 1e-12)
    for users in (2, 3, 4):
        bound = curve(Shuffled(Pure(epsilon), users))
        allowed = [bound.delta(x) for x in EPSILONS]
        for others in itertools.combinations_with_replacement(range(3), users - 1):
            laws = [shuffled_law([table[v], *(table[o] for o in others)]) for v in range(3)]
            for one, two in itertools.permutations(laws, 2):
                for x, most in zip(EPSILONS, allowed):
                    assert hockey_stick([one[y] for y in one], [two[y] for y in one], x) <= most + 1e-12


def test_two_answers_shuffled_are_below_their_own_bound_and_it_is_near() -> None:
    epsilon, users = 1.5, 8
    p = math.exp(epsilon) / (1 + math.exp(epsilon))
    row = {1: np.array([1 - p, p]), 0: np.array([p, 1 - p])}
    bound = curve(Shuffled(RandomizedResponse(epsilon), users))
    nearest = 0.0
    for ones in range(users):
        others = [row[1]] * ones + [row[0]] * (users - 1 - ones)
        yes, no = (shuffled_law([row[v], *others]) for v in (1, 0))
        for x in EPSILONS:
            for a, b in ((yes, no), (no, yes)):
                truth, most = hockey_stick([a[y] for y in a], [b[y] for y in a], x), bound.delta(x)
                assert truth <= most + 1e-12
                nearest = max(nearest, truth / most)
    assert nearest > 0.5


def test_the_rate_whose_proof_was_withdrawn_is_used_for_two_answers_only() -> None:
    """Clones at rate 2 / (e^epsilon + 1) for any randomiser: the proof had an error (errata of Feldman et al. 2023)."""
    fewer = hockey_stick(*clones_pair(1.0, 2, math.exp(-1.0)), 0.0)
    for event in (Pure(1.0), RandomizedResponse(1.0, 3), Laplace(1.0)):
        assert curve(Shuffled(event, 2)).delta(0.0) >= fewer
    assert curve(Shuffled(RandomizedResponse(1.0, 2), 2)).delta(0.0) < fewer


@pytest.mark.parametrize("epsilon", [0.1, 0.5, 1.0, 2.0])
@pytest.mark.parametrize("users", [10_000, 10**6, 10**8])
def test_below_the_closed_form(epsilon: float, users: int) -> None:
    assert curve(Shuffled(Pure(epsilon), users)).epsilon(1e-6) < shuffle.closed_form(epsilon, users, 1e-6) / 2


def test_the_closed_form_says_where_it_holds() -> None:
    with pytest.raises(InvalidValue, match="proven for epsilon up to"):
        shuffle.closed_form(4.0, 1000, 1e-6)


def test_more_users_hide_better_up_to_the_most_that_are_counted() -> None:
    found = [curve(Shuffled(Pure(1.0), n)).epsilon(1e-6) for n in (1, 10, 100, 10**4, 10**6, 10**8, 10**12)]
    assert found == sorted(found, reverse=True)
    assert found[0] == pytest.approx(1.0, abs=1e-4)
    assert found[-1] == found[-2]


@pytest.mark.parametrize("users", [50, 5000, 10**6])
def test_the_table_lies_just_above_the_sums(users: int) -> None:
    pair = shuffle._clones(1.0, users, math.exp(-1.0))
    x = np.random.default_rng(0).uniform(0, min(1.0, 8 / math.sqrt(users)), 300)
    exact, read = pair.exactly(x), pair.delta(np.concatenate([x, np.zeros(400)]))[:300]
    assert (read >= exact * (1 - 1e-12)).all()
    seen = exact > 1e-12
    assert (read[seen] <= exact[seen] * 1.01).all()


@pytest.mark.parametrize("count", [7, 1000, 10**5, 10**8])
def test_binomial_terms_are_as_exact_as_they_are_said_to_be(count: int) -> None:
    """The rounding that is allowed for is an order above what is found."""
    from scipy.special import betainc

    with mpmath.workdps(40):
        for far in (0, 1, 4, 10):
            k = min(int(count / 2 + far * math.sqrt(count) / 2) + 1, count - 1)
            log = mpmath.loggamma(count + 1) - mpmath.loggamma(k + 1) - mpmath.loggamma(count - k + 1) - count * mpmath.log(2)
            mine = float(shuffle._log_binomial(np.array([float(count)]), np.array([float(k)]), 0.5)[0])
            assert abs(mpmath.expm1(mpmath.mpf(mine) - log)) < shuffle.ROUNDING / 10
            steps = np.arange(k, min(count, k + int(14 * math.sqrt(count)) + 60))
            ratio = 1 + math.fsum(np.cumprod((count - steps) / (steps + 1.0)).tolist())
            tail = mpmath.exp(log) * ratio
            assert abs(mpmath.mpf(float(betainc(k, count - k + 1, 0.5))) / tail - 1) < shuffle.ROUNDING / 5


def test_what_has_no_pure_bound_is_not_amplified() -> None:
    for event in (Gaussian(2.0), Approximate(1.0, 1e-3)):
        assert curve(Shuffled(event, 10**6)).delta(0.5) == curve(event).delta(0.5)
    assert curve(Shuffled(Laplace(1.0), 10**4)).epsilon(1e-6) == curve(Shuffled(Pure(1.0), 10**4)).epsilon(1e-6)
    assert curve(Shuffled(Repeat(Pure(0.5), 2), 10**4)).epsilon(1e-6) == pytest.approx(
        curve(Shuffled(Pure(1.0), 10**4)).epsilon(1e-6)
    )


@pytest.mark.parametrize("users", [2, 5, 40])
@pytest.mark.parametrize("order", [1.5, 2.0, 8.0, 40.0])
def test_renyi_is_above_the_pair_and_near(users: int, order: float) -> None:
    p, q = (np.array(side) for side in clones_pair(1.0, users, math.exp(-1.0)))
    truth = math.log(math.fsum(np.exp(order * np.log(p) + (1 - order) * np.log(q)).tolist())) / (order - 1)
    assert truth <= renyi(Shuffled(Pure(1.0), users), order) <= truth * 1.02


def test_composes_with_others_and_fits_a_filter() -> None:
    poll = Shuffled(Pure(1.0), 10_000)
    alone = curve(poll).epsilon(1e-6)
    assert alone < curve(Repeat(poll, 10)).epsilon(1e-6) < 10 * alone
    assert curve(Gaussian(5.0)).epsilon(1e-6) < curve(Sequence([poll, Gaussian(5.0)])).epsilon(1e-6)
    assert alone < curve(Group(poll, 3)).epsilon(1e-6)
    budget = Filter(epsilon=1.0, delta=1e-6)
    budget.spend(poll)
    assert budget.left > 0.9 * budget.limit / 10**15
    assert not budget.allows(Pure(1.0))
    assert not budget.allows(Shuffled(Approximate(1.0, 1e-9), 10_000))
