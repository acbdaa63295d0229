"""PATE on the worst neighbours we know, and four mistakes that each break it.

Noise is seeded, so this is the same every time. Every verdict is asked at confidence 1 - 1e-6.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.dummy import DummyClassifier

from discreet.audit import verdict
from discreet.core import DiscreteGaussian, Event, Evidence, Repeat, Sequence, Verdict, record
from discreet.learn.pate import ConfidentGNMax, GNMax, LNMax, Poll, estimator, teachers
from discreet.learn.pate.estimate import Estimate, by_margin
from discreet.noise.source import seeded_for_tests

CONFIDENCE, RUNS = 1 - 1e-6, 3000
THERE, GONE = np.tile([[6, 4]], (4, 1)), np.tile([[5, 5]], (4, 1))


def played(mechanism: Any, there: Any, gone: Any, score: Any, runs: int = RUNS) -> Verdict:
    inside = np.arange(runs) % 2 == 0
    with seeded_for_tests(b"pate"):
        scores = [float(score(mechanism.run(there if is_in else gone))) for is_in in inside]
    claim = mechanism.claims()[0]
    seen = Evidence(
        game=claim.game, attack="votes", score=np.array(scores), inside=inside, run=np.arange(runs), design="paired"
    )
    return verdict(claim, seen, confidence=CONFIDENCE)


def tilt(released: Any) -> Any:
    return (released[:, 1] - released[:, 2]).sum()


@dataclass(frozen=True, slots=True)
class OneCount(GNMax):
    """A vote that moves is taken to move one count, as for a histogram of rows that are added."""

    def event(self) -> Event:
        return Repeat(DiscreteGaussian(self.noise, 1), self.queries)


@dataclass(frozen=True, slots=True)
class FreeTests(ConfidentGNMax):
    """Only answers are charged, as if what was not answered told nothing."""

    def event(self) -> Event:
        return Sequence([Repeat(DiscreteGaussian(self.noise, 1), 2 * self.answers)])


@pytest.mark.parametrize("kind", [GNMax, LNMax])
def test_votes_hold(kind: type[GNMax]) -> None:
    assert played(kind(queries=4, unit=record(), noise=4.0), THERE, GONE, tilt).outcome == "holds"


def test_a_vote_counted_once_is_refuted() -> None:
    assert played(OneCount(queries=4, unit=record(), noise=1.0), THERE, GONE, tilt, 20_000).outcome == "refuted"


def test_unpaid_threshold_tests_are_refuted() -> None:
    """Many queries are tested and one is answered: which ones pass tells what the answer does not."""
    how: dict[str, Any] = {"queries": 200, "unit": record(), "noise": 4.0, "answers": 1, "threshold": 5}
    there, gone = np.tile([[6, 0]], (200, 1)), np.tile([[5, 0]], (200, 1))

    def first(released: Any) -> Any:
        return -np.flatnonzero(released[:, 0])[0] if released[:, 0].any() else -len(released)

    assert played(ConfidentGNMax(**how), there, gone, first).outcome == "holds"
    how |= {"noise": 40.0, "threshold": 800}
    there, gone = np.tile([[1000, 0]], (200, 1)), np.tile([[600, 0]], (200, 1))
    assert played(FreeTests(**how), there, gone, first, 600).outcome == "refuted"


class Least(ClassifierMixin, BaseEstimator):
    """Says the least label of its rows."""

    def fit(self, X: Any, y: Any) -> Least:
        self.classes_, self._said = np.unique(y), y.min()
        return self

    def predict(self, X: Any) -> Any:
        return np.full(len(X), self._said)


def test_rows_dealt_in_turn_are_refuted_and_rows_dealt_by_lot_hold(monkeypatch: pytest.MonkeyPatch) -> None:
    """A row at the front shifts all others, where every two rows are dealt to a teacher in turn: half of all votes change."""
    k = 40
    labels = np.tile([0, 1, 1, 0], k // 4)
    there, gone = ((np.zeros((len(y), 1)), y, None) for y in (labels, labels[1:]))
    poll = Poll(Least(), k // 2, np.array([0, 1]), np.zeros((1, 1)), GNMax(queries=1, unit=record(), noise=4.0))
    assert played(poll, there, gone, tilt, 400).outcome == "holds"
    monkeypatch.setattr(teachers, "uniform", lambda count, size: np.arange(size) // 2)
    assert played(poll, there, gone, tilt, 400).outcome == "refuted"


def test_an_estimate_holds_and_one_with_noise_for_local_sensitivity_is_refuted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the bound is flat two units around, local sensitivity asks for next to no noise, and one unit further for some."""
    sigma, k, order = 4.0, 60, 4.0
    asked = Estimate(40, 2, sigma, k, order, record(), 1.0, 1e-3)
    bound = by_margin(sigma, 2, k, order)
    falls = int(np.flatnonzero(np.diff(bound) < 0)[0])  # the last margin with the data-independent bound
    top = (k + falls - 1) // 2 if (k + falls) % 2 else (k + falls - 2) // 2
    there, gone = (np.tile([[votes, k - votes]], (40, 1)) for votes in (top, top - 1))

    def away(steps: Any) -> Any:
        return abs(steps - round(float(bound[0]) * 40 / asked.step))

    assert played(asked, there, gone, away, 400).outcome == "holds"

    def local(self: Estimate, bound: Any, margins: Any) -> float:
        around = [np.abs(bound[np.clip(margins + v, 0, k)] - bound[margins]) for v in (-2, 2)]
        return float(np.max(around, axis=0).sum())

    monkeypatch.setattr(Estimate, "_smooth", local)
    assert played(asked, there, gone, away, 400).outcome == "refuted"


def test_the_whole_of_it_holds() -> None:
    """Labels of a private row, by teachers that learn them by heart."""
    poll = Poll(DummyClassifier(), 3, np.array([0, 1]), np.zeros((2, 1)), GNMax(queries=2, unit=record("replace"), noise=3.0))
    rows = np.zeros((1, 1))
    assert played(poll, (rows, np.array([0]), None), (rows, np.array([1]), None), tilt, 2000).outcome == "holds"
    assert estimator.Poll is Poll
