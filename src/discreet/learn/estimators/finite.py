"""Empirical risk minimisation over a finite class, by the exponential mechanism."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from discreet.core import Claim, Exponential, Game, Release, Unit, check
from discreet.errors import InvalidValue
from discreet.learn.estimators.base import UNNAMED
from discreet.learn.estimators.mechanisms import for_unit, group_size
from discreet.learn.estimators.rows import numbers
from discreet.ledger import LedgerLike
from discreet.ledger.seam import release
from discreet.noise import exponential

FINEST = 1 << 20  # a loss is a whole number of these parts of 1


@dataclass(frozen=True, slots=True)
class FiniteRisk:
    """One of `count` hypotheses, chosen with probability ~ exp(-epsilon x (sum of its losses) / 2 x rows that differ).

    Losses lie in [0, 1] (others are cut to it) and are rounded to parts of 2^-20 row by row, so that sums are exact and
    one row moves each by at most 1. Adding a row moves all sums the same way, so epsilon / 2 is not the best that can be
    said there; the claim is the one that holds for every relation.
    """

    count: int
    unit: Unit
    epsilon: float

    def __post_init__(self) -> None:
        check.whole("hypotheses", self.count)
        check.positive("epsilon", self.epsilon)
        group_size(self.unit)

    def share(self) -> float:
        """The epsilon of one row that differs."""
        return self.epsilon / group_size(self.unit)

    def claims(self) -> tuple[Claim, ...]:
        owner = "each unit owns one row" if self.unit.rows == 1 else f"no unit owns more than {self.unit.rows} rows"
        says = (owner, "the hypotheses were not chosen by looking at the data")
        event = for_unit(Exponential(self.share()), self.unit)
        return (Claim(game=Game(self.unit, {"answers"}), event=event, assumptions=says),)

    def run(self, data: Any) -> int:
        """The place of the chosen hypothesis; `data` is the losses, [rows, hypotheses]."""
        losses = np.asarray(data, np.float64)
        parts = np.round(np.clip(np.where(np.isnan(losses), 1.0, losses), 0.0, 1.0) * FINEST).astype(np.int64)
        return int(exponential((-parts.sum(axis=0)).tolist(), self.share(), FINEST))


def choose_hypothesis(
    losses: Any, hypotheses: Sequence[Any], *, epsilon: float, unit: Unit, ledger: LedgerLike | None = None,
    source: str | None = None,
) -> Release[Any]:  # fmt: skip
    """The hypothesis of a finite class with about the least sum of losses, which is epsilon-DP.

    `losses[i][j]` in [0, 1] is that of row i under hypothesis j, or `losses` is a function of a hypothesis that gives one for
    each row. With probability 1 - b the chosen one has at most `excess_risk(count, epsilon, b)` more loss, over all rows,
    than the best.

    >>> from discreet.core import record
    >>> rows = np.linspace(0, 1, 5000)
    >>> cuts = [0.1, 0.3, 0.5, 0.7, 0.9]
    >>> choose_hypothesis(lambda cut: (rows > cut) != (rows > 0.5), cuts, epsilon=1.0, unit=record()).value
    0.5
    """
    known = list(hypotheses)
    mechanism = FiniteRisk(len(known), unit, epsilon)
    table = (
        np.stack([np.asarray(losses(hypothesis)) for hypothesis in known], axis=1) if callable(losses) else np.asarray(losses)
    )
    if table.ndim != 2 or table.shape[1] != len(known):
        raise InvalidValue(f"The losses must be [rows, {len(known)}], a column for each hypothesis. Nothing was spent.")
    table = numbers(table)
    if ledger is None:
        return release(mechanism, table, source=UNNAMED, facts={"title": "Choice of a hypothesis"}).map(
            lambda place: known[place]
        )
    if source is None:
        raise InvalidValue("A ledger keeps budgets of sources; say which one pays: source='people'.")
    facts = {"title": f"Choice of a hypothesis from {source}"}
    return release(mechanism, table, source=source, ledger=ledger, facts=facts).map(lambda place: known[place])


def excess_risk(count: int, epsilon: float, failure: float) -> float:
    """The most by which the sum of losses of the choice is above the least, but for probability `failure`.

    It is 2 log(count / failure) / epsilon, where epsilon is that of one row that differs.

    >>> round(excess_risk(100, 1.0, 0.05), 1)
    15.2
    """
    count = check.whole("count", count)
    return 2 * math.log(count / check.open_fraction("failure", failure)) / check.positive("epsilon", epsilon)
