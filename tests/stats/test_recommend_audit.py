"""Sums over ratings on the worst neighbours we know, by the best score there is, and mistakes that break them.

Noise is seeded, so this is the same every time. Every verdict is asked at confidence 1 - 1e-6.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from discreet import record, user
from discreet.audit import verdict
from discreet.core import Claim, Evidence, Gaussian, Verdict
from discreet.learn.estimators import exact
from discreet.learn.recommend import Factors, factors
from discreet.learn.recommend.summaries import Summaries, cleaned
from discreet.noise.source import seeded_for_tests

PERSON = user("user", rows=None)
Data = tuple[Any, Any, Any]


def data(*rows: tuple[int, int, float]) -> Data:
    table = np.array(rows, np.float64).reshape(-1, 3)
    return table[:, 0].astype(int), table[:, 1].astype(int), table[:, 2]


def played(mechanism: Summaries, there: Data, gone: Data, runs: int = 600) -> Verdict:
    """Score: how far the release lies in the direction in which the unit moves it."""
    zero = np.zeros(mechanism.items)

    def bare(rows: Data) -> Any:
        parts = cleaned(*rows, mechanism.items)
        return np.concatenate([mechanism.effect_sums(*parts), mechanism.matrices(*parts, zero, 0.0)])

    first, second = (noise * far for noise, far in zip(mechanism.parts(), sensitivities(mechanism)))
    weight = bare(there) - bare(gone)
    cut = 2 * mechanism.items + 2
    weight = np.concatenate([weight[:cut] / first**2, weight[cut:] / second**2])[: None if mechanism.covariance else cut]
    inside = np.arange(runs) % 2 == 0
    with seeded_for_tests(b"ratings"):
        score = [float(mechanism.run(there if is_in else gone) @ weight) for is_in in inside]
    claim = mechanism.claims()[0]
    seen = Evidence(game=claim.game, attack="sums", score=score, inside=inside, run=np.arange(runs), design="paired")
    return verdict(claim, seen, confidence=CONFIDENCE)


CONFIDENCE = 1 - 1e-6


def sensitivities(mechanism: Summaries) -> tuple[float, float]:
    return mechanism.effect_sensitivity(), mechanism.matrix_sensitivity()


ONE = data((0, 0, 1.0)), data()
MANY = data(*((0, i, 1.0 - 2 * (i % 2)) for i in range(12))), data()


@pytest.mark.parametrize("covariance", [False, True])
@pytest.mark.parametrize(("unit", "pair"), [(record(), ONE), (PERSON, ONE), (PERSON, MANY)], ids=["rating", "user", "user, 12"])
def test_sums_hold(unit: Any, pair: tuple[Data, Data], covariance: bool) -> None:
    assert played(Summaries(12, unit, 2.0, 1e-5, covariance), *pair).outcome == "holds"


def test_a_users_ratings_counted_one_by_one_are_refuted(monkeypatch: pytest.MonkeyPatch) -> None:
    """The noise of a user without the weights that keep a user small."""
    mechanism = Summaries(12, PERSON, 2.0, 1e-5, False)
    monkeypatch.setattr(Summaries, "effect_sums", lambda self, who, item, value: np.concatenate(
        [np.bincount(item, value, 12), np.bincount(item, minlength=12) * 0.3, [0.0, 0.0]]))  # fmt: skip
    assert played(mechanism, *MANY).outcome == "refuted"


def test_a_flood_of_ratings_moves_no_more_and_matrices_without_weights_are_refuted(monkeypatch: pytest.MonkeyPatch) -> None:
    """One user rates one item a hundred times; and products of many ratings, each counted whole."""
    mechanism = Summaries(12, PERSON, 2.0, 1e-5, False)
    flood = data(*((0, 0, 1.0) for _ in range(100)), *((0, i, -1.0) for i in range(1, 12)))
    assert played(mechanism, flood, data()).outcome == "holds"
    right = Summaries.matrices
    monkeypatch.setattr(Summaries, "matrices", lambda self, who, *rest: len(who) * right(self, who, *rest))
    assert played(Summaries(12, PERSON, 2.0, 1e-5, True), *MANY).outcome == "refuted"


def one_round(there: Data, gone: Data, epsilon: float = 8.0, runs: int = 600) -> Verdict:
    """The sums of one round of alternating least squares, from item factors that suit the user."""
    mechanism, items = Factors(12, PERSON, epsilon, 1e-5, 2), 12
    chosen = np.where(np.arange(items) % 2 == 0, 0.3, -0.3)[:, None] * np.ones(2)

    def bare(rows: Data) -> Any:
        who, item, value = cleaned(*rows, items)
        return factors.round_sums(who, item, factors.user_residuals(who, item, value, np.zeros(items), 0.0), chosen)

    noise, moved = mechanism.parts()[1], factors.round_sensitivity()
    weight = bare(there) - bare(gone)
    inside = np.arange(runs) % 2 == 0
    with seeded_for_tests(b"rounds"):
        score = [
            float(exact.noisy(bare(there if is_in else gone), sensitivity=moved, noise_multiplier=noise) @ weight)
            for is_in in inside
        ]
    claim = Claim(game=mechanism.claims()[0].game, event=Gaussian(noise))
    seen = Evidence(game=claim.game, attack="sums", score=score, inside=inside, run=np.arange(runs), design="paired")
    return verdict(claim, seen, confidence=CONFIDENCE)


@pytest.mark.parametrize("pair", [ONE, MANY], ids=["one rating", "12 ratings"])
def test_a_round_of_least_squares_holds(pair: tuple[Data, Data]) -> None:
    assert one_round(*pair).outcome == "holds"


@pytest.mark.parametrize("broken", ["factors are not clipped", "ratings are counted one by one"])
def test_a_round_without_its_bounds_is_refuted(broken: str, monkeypatch: pytest.MonkeyPatch) -> None:
    right = factors.round_sums
    if broken == "factors are not clipped":
        own = factors.user_factors
        monkeypatch.setattr(factors, "user_factors", lambda *given: 6 * own(*given))
    else:
        monkeypatch.setattr(factors, "round_sums", lambda who, *rest: math.sqrt(max(len(who), 1)) * right(who, *rest))
    assert one_round(*MANY).outcome == "refuted"


def test_no_user_moves_a_round_further_than_said() -> None:
    """Against random users with few and many ratings and random item factors; some come near the bound."""
    rng = np.random.default_rng(0)
    farthest = 0.0
    for _ in range(300):
        count, rank = int(rng.integers(1, 40)), int(rng.integers(1, 6))
        whole = np.zeros(count, np.int64), rng.permutation(40)[:count], rng.uniform(-0.5, 0.5, count) * rng.integers(1, 3)
        left = np.clip(whole[2], -0.5, 0.5)
        moved = factors.round_sums(whole[0], whole[1], left, rng.normal(0, rng.choice([0.1, 3.0]), (40, rank)))
        farthest = max(farthest, float(np.linalg.norm(moved)))
    assert 0.5 * factors.round_sensitivity() < farthest <= factors.round_sensitivity()


def test_no_rating_moves_the_matrices_further_than_said() -> None:
    """Against random users with few and many ratings: the bound of docs/theory/recommend.md."""
    rng = np.random.default_rng(0)
    mechanism = Summaries(30, record(), 1.0, 1e-6, True)
    effects, farthest = rng.uniform(-0.5, 0.5, 30), 0.0
    for _ in range(300):
        count = int(rng.integers(1, 30))
        items = rng.permutation(30)[:count]
        value = rng.choice([-1.0, 1.0], count)
        whole = np.zeros(count, np.int64), items, value
        less = tuple(part[:-1] for part in whole)
        moved = np.linalg.norm(mechanism.matrices(*whole, effects, 0.1) - mechanism.matrices(*less, effects, 0.1))
        farthest = max(farthest, float(moved))
    assert 0.5 * mechanism.matrix_sensitivity() < farthest <= mechanism.matrix_sensitivity()
