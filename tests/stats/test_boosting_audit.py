"""Boosted trees, refitted on the worst neighbours we know; and ways to get the sums wrong, each refuted.

Noise is seeded, so this is the same every time. Every verdict is asked at confidence 1 - 1e-6.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from discreet.audit import verdict
from discreet.core import Evidence, Verdict, record
from discreet.learn.estimators import boosting
from discreet.learn.estimators.boosting import Boosting, Logistic, Squared
from discreet.noise.source import seeded_for_tests

CONFIDENCE, RUNS = 1 - 1e-6, 300
LOSSES = {"logistic": (Logistic(1), 1), "three classes": (Logistic(3), 2), "squared": (Squared(), 1.0)}


def forget() -> None:
    boosting.plan.cache_clear()
    boosting._noise.cache_clear()


@pytest.fixture(autouse=True)
def few_steps(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Two passes and two trees: the claim is made in the same way, and each fit takes milliseconds."""
    forget()
    monkeypatch.setattr(boosting, "PASSES", 2)
    monkeypatch.setattr(boosting, "TREES", 2)
    yield
    forget()


def made(name: str) -> tuple[Boosting, Any, Any]:
    """One row with the largest gradient beside one in another leaf, and the same without it."""
    loss, target = LOSSES[name]
    bins, targets = np.array([[0, 1], [0, 1]], np.uint16), np.array([0, target])
    mechanism = Boosting((3, 3), frozenset({1}), loss, record(), 0.5, 1e-6)
    return mechanism, (bins, targets), (bins[:, :1], targets[:1])


def played(mechanism: Boosting, claim: Any, there: Any, gone: Any, direction: Any) -> Verdict:
    """The verdict by the best score there is for Gaussians: the sums in the direction in which the row moves them, weighted."""
    inside = np.arange(RUNS) % 2 == 0
    with seeded_for_tests(b"boosting"):
        scores = [float(mechanism.run(there if is_in else gone) @ direction) for is_in in inside]
    seen = Evidence(
        game=claim.game, attack="refit", score=np.array(scores), inside=inside, run=np.arange(RUNS), design="paired"
    )
    return verdict(claim, seen, confidence=CONFIDENCE)


def direction_of(mechanism: Boosting, there: Any, gone: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    """How the row moves the sums where there is no noise, each over the variance of its noise."""
    with monkeypatch.context() as patch:
        patch.setattr(boosting.exact, "discrete_gaussian", lambda sigma, size: np.zeros(size, np.int64))
        moved = mechanism.run(there) - mechanism.run(gone)
    single, tree = mechanism.multipliers()
    sizes = [2 * mechanism.loss.outputs * step.leaves for step in mechanism._plan()]
    noise = [tree if len(step.columns) > 1 else single for step in mechanism._plan()]
    return moved / np.repeat(noise, sizes) ** 2


@pytest.mark.parametrize("name", sorted(LOSSES))
def test_the_claim_holds_and_a_part_of_the_noise_is_refuted(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    mechanism, there, gone = made(name)
    claim, direction = mechanism.claims()[0], direction_of(mechanism, there, gone, monkeypatch)
    assert played(mechanism, claim, there, gone, direction).outcome == "holds"
    right = mechanism.multipliers()
    monkeypatch.setattr(Boosting, "multipliers", lambda self: (right[0] / 20, right[1] / 20))
    assert played(mechanism, claim, there, gone, direction).outcome == "refuted"


def test_gradients_that_are_not_cut_are_refuted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Targets up to 100 that nobody scaled, so that their gradients are fifty times the largest that the noise is for."""
    mechanism, there, gone = made("squared")
    claim = mechanism.claims()[0]

    def whole(self: Squared, scores: Any, target: Any) -> Any:
        left = 100 * target - np.clip(scores, -1.0, 1.0)
        return left / 4, np.full_like(left, 0.25)

    monkeypatch.setattr(Squared, "slopes", whole)
    direction = direction_of(mechanism, there, gone, monkeypatch)
    assert played(mechanism, claim, there, gone, direction).outcome == "refuted"


@pytest.mark.parametrize("name", sorted(LOSSES))
def test_no_row_moves_a_step_further_than_its_noise_is_for(name: str) -> None:
    loss, target = LOSSES[name]
    scores = np.linspace(-800, 800, 4001) * np.ones((loss.outputs, 1))
    for targets in (np.full(4001, target), np.full(4001, 0 if name != "squared" else -1.0)):
        slope, curve = loss.slopes(scores, targets)
        length = np.sqrt((slope**2 + curve**2).sum(axis=0))
        assert length.max() <= made(name)[0].sensitivity() * (1 + 1e-12)
