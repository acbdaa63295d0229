"""Synthesis against its claim on the worst neighbours, and broken twins that must be refuted.

Seeded: each check is the same every time. `refuted` is asked at a confidence of 1 - 1e-6, so no twin is refuted by luck.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import numpy as np
import pytest

from discreet.audit import check_mechanism
from discreet.core import Claim, Game, Unit, record, user
from discreet.errors import ClaimRefuted
from discreet.noise.source import seeded_for_tests
from discreet.synth import Aim, Column, Independent, Junction, Synthesis, Tree, measure, select
from discreet.synth.cells import Cells
from discreet.synth.domain import open_columns
from discreet.synth.measure import Measurement, Reach
from discreet.synth.methods import Public, Spending
from unit.synth.rows import Rows

SIZES = (2, 2, 2)
CROWD = [(0, 0, 0)] * 3 + [(1, 1, 0)] * 3 + [(0, 1, 1)] * 2
ONE, OTHER = (1, 1, 1), (0, 0, 0)
ADDED = (Rows([*CROWD, ONE], SIZES), Rows(CROWD, SIZES))
REPLACED = (Rows([*CROWD, ONE], SIZES), Rows([*CROWD, OTHER], SIZES))


@dataclass(frozen=True)
class Released:
    """A method's measurements, which are all that is ever released, with the claim of a synthesis."""

    method: Any
    unit: Unit
    epsilon: float

    def claims(self) -> tuple[Claim, ...]:
        return Synthesis(SIZES, self.unit, self.epsilon, 1e-6, self.method).claims()

    def run(self, data: Rows) -> Any:
        synthesis = Synthesis(SIZES, self.unit, self.epsilon, 1e-6, self.method)
        return _numbers(self.method.measure(data, synthesis.public, synthesis.spending()), self.unit.relation)


@cache
def planned(public: Public) -> Spending:
    return Independent().plan(public)


def _numbers(measured: list[Measurement], relation: str) -> Any:
    """The tables chosen, and what tells the two worlds apart best: the cells ONE is in, less those it was replaced by, each by
    the precision of its noise."""
    away = sum(float(it.counts[tuple(ONE[c] for c in it.columns)]) / it.sigma**2 for it in measured)
    if relation == "replace":
        away -= sum(float(it.counts[tuple(OTHER[c] for c in it.columns)]) / it.sigma**2 for it in measured)
    return ["".join(str(it.columns) for it in measured if len(it.columns) > 1), round(away, 6)]


def audit(mechanism: Any, pair: Any, runs: int) -> str:
    with seeded_for_tests(b"synth"):
        found = check_mechanism(mechanism, [pair], runs=runs, confidence=1 - 1e-6, seed=4)
    return found[0][1].outcome


@pytest.mark.parametrize(
    ("method", "relation", "pair"),
    [
        (Independent(), "add_remove", ADDED),
        (Independent(), "replace", REPLACED),
        (Tree(), "add_remove", ADDED),
        (Tree(), "replace", REPLACED),
        (Tree(score="information"), "add_remove", ADDED),
        (Junction(), "add_remove", ADDED),
    ],
    ids=["independent", "independent, replaced", "tree", "tree, replaced", "tree by information", "junction"],
)
def test_the_claim_holds(method: Any, relation: str, pair: Any) -> None:
    assert audit(Released(method, record(relation), 8.0), pair, 500) in ("holds", "inconclusive")


class HardlyAnyNoise(Aim):
    """The adaptive choice, whose tables have a sixteenth of the noise that is paid for."""

    def measure(self, table: Any, public: Public, spending: Spending) -> list[Measurement]:
        parts = {name: sigma if name == "choices" else sigma / 16 for name, sigma in spending.parts.items()}
        return super().measure(table, public, replace(spending, parts=parts))


def test_the_adaptive_choice_holds_and_its_twin_is_refuted() -> None:
    assert audit(Released(Aim(), record(), 1.0), ADDED, 120) in ("holds", "inconclusive")
    with pytest.raises(ClaimRefuted):
        audit(Released(HardlyAnyNoise(), record(), 1.0), ADDED, 400)


# ---- one mistake each --------------------------------------------------------------------------------------------------


class MeasuredTwice(Independent):
    """Every table is measured twice, and paid for once."""

    def measure(self, table: Any, public: Public, spending: Spending) -> list[Measurement]:
        sets: Any = [(column,) for column in range(public.columns)]
        return measure.noisy(sets, table.counts(sets), spending.parts["columns"], [2] * len(sets))


class HalfTheSensitivity(Independent):
    """A replaced record moves two cells; this one's noise is for one."""

    def measure(self, table: Any, public: Public, spending: Spending) -> list[Measurement]:
        added = Public(public.sizes, Reach(), public.epsilon, public.delta)
        return super().measure(table, added, planned(added))


@pytest.mark.parametrize(
    ("method", "relation", "pair"),
    [(MeasuredTwice(), "add_remove", ADDED), (HalfTheSensitivity(), "replace", REPLACED)],
    ids=["measured twice", "half the sensitivity"],
)
def test_a_table_with_too_little_noise_is_refuted(method: Any, relation: str, pair: Any) -> None:
    with pytest.raises(ClaimRefuted):
        audit(Released(method, record(relation), 14.0), pair, 4000)


@dataclass(frozen=True)
class Chosen:
    """The choice of a tree alone, among pairs whose exact tables and expected ones are given: one event per edge."""

    epsilon: float
    sensitivity: float = 1

    def claims(self) -> tuple[Claim, ...]:
        return (Claim(game=Game(record(), {"answers"}), event=measure.choice_event(self.epsilon, 2)),)

    def run(self, scores: list[int]) -> list[Any]:
        return select.spanning_tree([(0, 1), (0, 2), (1, 2)], scores, 3, self.epsilon, self.sensitivity)  # type: ignore[arg-type]


class ChosenWithoutNoise(Chosen):
    def run(self, scores: list[int]) -> list[Any]:
        pairs = [(0, 1), (0, 2), (1, 2)]
        return [pairs[i] for i in np.argsort([-score for score in scores], kind="stable")[:2]]


WORST = ([1, 0, 1], [0, 1, 0])


def test_a_private_choice_holds_and_its_twins_are_refuted() -> None:
    assert audit(Chosen(2.0), WORST, 1000) in ("holds", "inconclusive")
    with pytest.raises(ClaimRefuted):
        audit(ChosenWithoutNoise(2.0), WORST, 400)
    with pytest.raises(ClaimRefuted):
        audit(Chosen(2.0, sensitivity=0.25), WORST, 3000)


class DomainOffTheData(Released):
    """Cells are those that somebody is in: one person's own category appears with them and goes with them."""

    def run(self, data: Rows) -> Any:
        seen = tuple(int(data.codes[:, column].max()) + 1 for column in range(3))
        own = Rows(data.codes, seen)
        public = Public(seen, Reach(), self.epsilon, 1e-6)
        return [it.counts.tolist() for it in self.method.measure(own, public, planned(public))]


def test_a_domain_read_off_the_data_is_refuted() -> None:
    lonely = [(0, 0, 0)] * 5
    with pytest.raises(ClaimRefuted):
        audit(DomainOffTheData(Independent(), record(), 2.0), (Rows([*lonely, ONE], SIZES), Rows(lonely, SIZES)), 400)


# ---- users with several rows ---------------------------------------------------------------------------------------------

GRAIN = 1 << 20


class Weighted(Rows):
    """Rows of users, each of which weighs min(1, 3 / rows of its user), in whole parts, as engines count them."""

    def __init__(self, codes: Any, users: list[int], sizes: tuple[int, ...]) -> None:
        super().__init__(codes, sizes)
        shares = np.minimum(GRAIN, 3 * GRAIN // np.bincount(users))
        self.weights = shares[np.array(users)].astype(np.int64)

    def counts(self, sets: Any) -> list[Any]:
        made = []
        for columns in sets:
            table = np.zeros([self.sizes[column] for column in columns], np.int64)
            np.add.at(table, tuple(self.codes[:, column] for column in columns), self.weights)
            made.append(table)
        return made


class AsIfOneRow(Independent):
    """A user of three rows gets the noise of one row."""

    def measure(self, table: Any, public: Public, spending: Spending) -> list[Measurement]:
        one = Public(public.sizes, Reach(grain=GRAIN), public.epsilon, public.delta)
        return super().measure(table, one, planned(one))


THREE = user("id", rows=3)
OTHERS = list(range(len(CROWD)))
VISITED = (  # a user with seven rows, all in one cell: together they weigh three
    Weighted([*CROWD, *[ONE] * 7], [*OTHERS, *[len(CROWD)] * 7], SIZES), Weighted(CROWD, OTHERS, SIZES),
)  # fmt: skip
SPREAD = (  # and one with three rows in three cells
    Weighted([*CROWD, ONE, OTHER, (0, 1, 0)], [*OTHERS, *[len(CROWD)] * 3], SIZES), Weighted(CROWD, OTHERS, SIZES),
)  # fmt: skip


@pytest.mark.parametrize("method", [Independent(), Tree(), Junction()], ids=["independent", "tree", "junction"])
@pytest.mark.parametrize("pair", [VISITED, SPREAD], ids=["one cell", "three cells"])
def test_the_claim_for_users_holds(method: Any, pair: Any) -> None:
    assert audit(Released(method, THREE, 8.0), pair, 400) in ("holds", "inconclusive")


def test_a_user_with_the_noise_of_one_row_is_refuted() -> None:
    with pytest.raises(ClaimRefuted):
        audit(Released(AsIfOneRow(), THREE, 4.0), VISITED, 1000)


# ---- categories that are found -------------------------------------------------------------------------------------------


class Named(Rows):
    """One column of names, which is open."""

    def __init__(self, names: list[str]) -> None:
        self.names = names
        self.cells = (Cells.of("name", Column("categorical", find="categories"), "text"),)
        self.open = open_columns(self.cells)

    def values(self, place: int) -> tuple[list[Any], Any]:
        found = sorted(set(self.names))
        return found, np.array([self.names.count(name) for name in found], np.int64)


@dataclass(frozen=True)
class Found:
    """The categories that are found, with the claim of the synthesis that finds them."""

    epsilon: float
    delta: float = 0.01

    def _mechanism(self) -> Synthesis:
        return Synthesis((8,), record(), self.epsilon, self.delta, Independent(), open=Named([]).open)

    def claims(self) -> tuple[Claim, ...]:
        return (Claim(game=Game(record(), {"answers"}), event=self._mechanism().domain.events[0]),)

    def run(self, data: Named) -> list[str]:
        return list(self._mechanism().domain.find(data)[0].values)


class FoundWithoutNoise(Found):
    def run(self, data: Named) -> list[str]:
        return sorted(set(data.names))


def test_categories_are_found_privately_and_the_twin_is_refuted() -> None:
    """Somebody stands alone in a category, or is one more in one that is shown half of the time."""
    alone = Named(["cook"] * 9 + ["astronaut"]), Named(["cook"] * 9)
    assert audit(Found(20.0), alone, 2000) in ("holds", "inconclusive")
    bound = Found(20.0)._mechanism().domain.threshold().bound
    assert audit(Found(20.0), (Named(["cook"] * (bound + 1)), Named(["cook"] * bound)), 2000) in ("holds", "inconclusive")
    with pytest.raises(ClaimRefuted):
        audit(FoundWithoutNoise(20.0), alone, 400)
