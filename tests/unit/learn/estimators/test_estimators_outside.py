"""An estimator from outside the package: a mechanism that says what it claims, and a class whose `fit` spends it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

pytest.importorskip("sklearn")

from sklearn.base import clone
from sklearn.pipeline import make_pipeline

import discreet
from discreet.core import Claim, Game
from discreet.core.event import DiscreteLaplace
from discreet.errors import BudgetExceeded
from discreet.learn import OneHotEncoder
from discreet.learn.estimators.base import PrivateEstimator
from discreet.noise import discrete_laplace


@dataclass(frozen=True)
class Positives:
    """How many rows are positive in the first column, with discrete Laplace noise."""

    scale: float  # 1 / epsilon

    def claims(self) -> tuple[Claim, ...]:
        return (Claim(game=Game(discreet.record(), {"weights"}), event=DiscreteLaplace(self.scale)),)

    def run(self, rows: np.ndarray) -> float:
        return float((rows[:, 0] > 0).sum() + int(discrete_laplace(self.scale, 1)[0]))


class Prevalence(PrivateEstimator):
    """The share of positive rows among `size` rows, a public number."""

    def __init__(self, *, size: int, epsilon: float, delta: float = 0.0, ledger: str | None = None, source: str | None = None):
        self.size, self.epsilon, self.delta, self.ledger, self.source = size, epsilon, delta, ledger, source

    def fit(self, X: Any, y: Any = None) -> Prevalence:
        self.release_ = self._spend(Positives(1 / self.epsilon), np.asarray(X, np.float64))
        self.share_ = self.release_.value / self.size
        return self


def test_it_pays_from_the_ledger_and_releases_what_it_claims(tmp_path):
    place = str(tmp_path / "ledger.db")
    with discreet.Ledger(place) as ledger:
        ledger.open("people", unit=discreet.record(), epsilon=1.0, delta=1e-6)
    rows = np.where(np.arange(4000) % 4, -1.0, 1.0)[:, None]
    estimator = Prevalence(size=4000, epsilon=1.0, ledger=place, source="people")
    made = clone(estimator).fit(rows)
    assert abs(made.share_ - 0.25) < 0.01  # forty times the noise: wrong once in 10^17
    assert made.release_.claims == Positives(1.0).claims()
    with discreet.Ledger(place) as ledger:
        assert [entry.kind for entry in ledger.history("people")][-2:] == ["reserve", "settle"]
        assert ledger.spent("people") == pytest.approx(1.0)
    with pytest.raises(BudgetExceeded):
        clone(estimator).fit(rows)


def test_it_goes_into_a_pipeline():
    pipe = make_pipeline(OneHotEncoder(categories=[["f", "m"]]), Prevalence(size=100, epsilon=1.0))
    assert pipe.fit([["f"], ["m"]] * 50)[-1].share_ == pytest.approx(0.5, abs=0.2)  # twenty times the noise
