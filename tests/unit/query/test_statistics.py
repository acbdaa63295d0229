"""A statistic from outside the package: one class, given as an argument, works in SQL and for arrays.

Budgets are so large that an estimate misses what is asserted with probability below 1e-9; what draws at a small one is seeded.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np
import pyarrow as pa
import pytest

from discreet import Ledger, connect, record, user
from discreet.errors import InvalidQuery, InvalidValue
from discreet.noise.source import seeded_for_tests
from discreet.query import array_mechanisms as mechanisms
from discreet.query import arrays
from discreet.query.statistics import (
    STATISTICS,
    Correlation,
    Count,
    CountUnits,
    CountValues,
    Covariance,
    Deviation,
    Mean,
    Quantile,
    Statistic,
    Sum,
    Variance,
)
from discreet.query.statistics.quantity import Quantity, RowCount, Squares, Total, bounds_of, optional
from discreet.query.statistics.statistic import Cells, ExpectedErrors, NoisyNumbers, each, within

X = [1.0, 4.0, 9.0, 12.0, None, -3.0, 2.5, 6.0]
BOUNDS = (0.0, 10.0)
TRUTH = sum(min(max(x, 0.0), 10.0) ** 2 for x in X if x is not None)


@dataclass(frozen=True, slots=True)
class SumOfSquares(Statistic):
    """The sum of squares: those of distances from the middle m, and 2 m times the distances, and m^2 times the count."""

    functions: ClassVar[tuple[str, ...]] = ("SUM_OF_SQUARES",)

    def _factors(self) -> dict[Quantity, float]:
        assert self.of is not None
        (low, high), squares = bounds_of(self.of), Squares(self.of)
        middle = (low + high) / 2
        count, centred = RowCount(optional(self.of)), Total(self.of, centred=True)
        return {count: middle**2 + squares.shift, centred: 2 * middle, squares: 1.0}

    def measures(self, others: Collection[Collection[Quantity]] = ()) -> Mapping[Quantity, float]:
        return dict.fromkeys(self._factors(), 1.0)

    def estimate(self, noisy: NoisyNumbers, confidence: float) -> Cells:
        factors = self._factors()
        value = sum(factor * noisy.value(quantity) for quantity, factor in factors.items())
        error = sum(
            abs(factor) * (noisy.ends(quantity, each(3, confidence))[1] - noisy.value(quantity))
            for quantity, factor in factors.items()
        )
        return np.asarray(value), np.asarray(value - error), np.asarray(value + error)

    def expected_error(self, errors: ExpectedErrors) -> str:
        return within(sum(abs(factor) * errors.half_width(quantity) for quantity, factor in self._factors().items()), "about ")


def table(**more: object) -> pa.Table:
    return pa.table({"id": list(range(len(X))), "g": ["a", "b"] * 4, "x": X, **more})


MORE = (*STATISTICS, SumOfSquares)


@pytest.mark.parametrize("unit", [record(), user("id", rows=2)], ids=["record", "user"])
def test_a_statistic_from_outside_works_in_sql(unit) -> None:
    db = connect({"t": table()}, unit=unit, bounds={"x": BOUNDS}, statistics=MORE)
    answer = db.sql("SELECT SUM_OF_SQUARES(x) AS q, SUM(x) AS s FROM t", epsilon=100.0).value.to_pydict()
    assert answer["q"][0] == pytest.approx(TRUTH, abs=60)
    assert answer["q_low"][0] <= answer["q"][0] <= answer["q_high"][0]
    told = db.explain("SELECT sum_of_squares(x) AS q FROM t", epsilon=1.0, bias=True)
    assert told.errors["q"].startswith("within about")
    assert "q_outside" in told.errors


def test_a_statistic_from_outside_is_filtered_grouped_and_computed_with() -> None:
    db = connect(
        {"t": table()}, unit=record(), schema={"t": {"x": {"bounds": BOUNDS}, "g": {"values": ["a", "b"]}}}, statistics=MORE
    )
    query = "SELECT g, SUM_OF_SQUARES(x) FILTER (WHERE x < 5) / COUNT(*) AS q FROM t GROUP BY g HAVING q > -1e9 ORDER BY g"
    assert db.sql(query, epsilon=100.0).value.column("g").to_pylist() == ["a", "b"]


def test_a_statistic_from_outside_works_for_arrays() -> None:
    answer = arrays.estimate(X, SumOfSquares, bounds=BOUNDS, unit=record(), epsilon=1e6).value
    assert answer.value == pytest.approx(TRUTH, abs=0.1)
    assert answer.low <= answer.value <= answer.high
    owned = arrays.estimate(X * 3, SumOfSquares, ids=[*range(len(X))] * 3, bounds=BOUNDS, unit=user("id", rows=1), epsilon=1e6)
    assert owned.value.value == pytest.approx(TRUTH, abs=0.1), "a person with three rows weighs as much as one row"


def test_its_claim_is_that_of_what_it_measures() -> None:
    mechanism = mechanisms.statistic(SumOfSquares, unit=record(), epsilon=1, bounds=BOUNDS, confidence=0.95)
    assert len(mechanism.events) == 3
    assert sum(event.sensitivity / event.scale for event in mechanism.events) == pytest.approx(1)
    db = connect({"t": table()}, unit=record(), bounds={"x": BOUNDS}, statistics=MORE)
    assert db.explain("SELECT SUM_OF_SQUARES(x) AS q FROM t", epsilon=1.0).epsilon == pytest.approx(1.0)


def test_its_intervals_hold_the_truth_about_as_often_as_they_say() -> None:
    """Each is at 95 % or more; seeded."""
    mechanism = mechanisms.statistic(SumOfSquares, unit=record(), epsilon=0.5, bounds=BOUNDS, confidence=0.95)
    with seeded_for_tests(b"squares"):
        answers = [mechanism.run(X) for _ in range(200)]
    assert np.mean([it.low <= TRUTH <= it.high for it in answers]) > 0.9


def test_without_the_argument_it_is_unknown() -> None:
    db = connect({"t": table()}, unit=record(), bounds={"x": BOUNDS})
    with pytest.raises(InvalidQuery, match="SUM_OF_SQUARES"):
        db.sql("SELECT SUM_OF_SQUARES(x) AS q FROM t", epsilon=1.0)
    few = connect({"t": table()}, unit=record(), bounds={"x": BOUNDS}, statistics=(Count,))
    with pytest.raises(InvalidQuery):
        few.sql("SELECT SUM(x) AS s FROM t", epsilon=1.0)
    assert few.sql("SELECT COUNT(*) AS n FROM t", epsilon=1.0).value.num_rows == 1


@pytest.mark.parametrize(
    "query", ["SUM_OF_SQUARES(x, 2)", "SUM_OF_SQUARES()", "SUM_OF_SQUARES(id)", "SUM_OF_SQUARES(DISTINCT x)"]
)
def test_its_arguments_are_checked(query: str) -> None:
    db = connect({"t": table()}, unit=record(), bounds={"x": BOUNDS}, statistics=MORE)
    with pytest.raises(InvalidQuery):
        db.sql(f"SELECT {query} AS q FROM t", epsilon=1.0)


def test_what_arrays_cannot_measure_is_refused() -> None:
    for kind in (Quantile, CountUnits):
        with pytest.raises(InvalidValue, match="SQL"):
            arrays.estimate(X, kind, bounds=BOUNDS, unit=record(), epsilon=1.0)
    with pytest.raises(InvalidValue, match="statistic"):
        arrays.estimate(X, "mean", bounds=BOUNDS, unit=record(), epsilon=1.0)  # type: ignore[arg-type]


def test_every_statistic_has_its_own_names() -> None:
    names = [name for kind in STATISTICS for name in kind.functions]
    assert len(set(names)) == len(names)
    assert set(STATISTICS) == {
        Correlation, Count, CountUnits, CountValues, Covariance, Deviation, Mean, Quantile, Sum, Variance,
    }  # fmt: skip


# ---- a question is asked again only where it is the same -----------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Doubled(SumOfSquares):
    """Measures what its parent does, and makes another number of it."""

    def estimate(self, noisy: NoisyNumbers, confidence: float) -> Cells:
        value, low, high = SumOfSquares.estimate(self, noisy, confidence)
        return 2 * value, 2 * low, 2 * high


def test_another_statistic_of_the_same_name_is_another_question(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("x\n" + "\n".join("5" for _ in range(50)))
    schema = {"t": {"x": {"type": "number", "bounds": BOUNDS}}}
    answers = []
    with Ledger(tmp_path / "ledger.db") as ledger:
        ledger.open("people", unit=record(), epsilon=1000.0, delta=1e-6)
        for kind in (SumOfSquares, SumOfSquares, Doubled):
            with connect(path, unit=record(), schema=schema, ledger=ledger, source="people", statistics=(kind,)) as db:
                answers.append(db.sql("SELECT SUM_OF_SQUARES(x) AS q FROM t", epsilon=90.0))
    assert answers[0].entry == answers[1].entry != answers[2].entry
    assert answers[0].value.equals(answers[1].value)
    assert answers[2].value["q"][0].as_py() == pytest.approx(2500, abs=500)


def test_tables_in_memory_of_two_connections_are_not_the_same_data(tmp_path: Path) -> None:
    answers = []
    with Ledger(tmp_path / "ledger.db") as ledger:
        ledger.open("people", unit=record(), epsilon=1000.0, delta=1e-6)
        for rows in (1000, 5):
            with connect({"t": pa.table({"x": [1.0] * rows})}, unit=record(), ledger=ledger, source="people") as db:
                answers.append(db.sql("SELECT COUNT(*) AS n FROM t", epsilon=90.0))
                again = db.sql("SELECT COUNT(*) AS n FROM t", epsilon=90.0)
                assert again.entry == answers[-1].entry, "the same question of the same connection is free"
    assert answers[0].entry != answers[1].entry
    assert answers[1].value["n"][0].as_py() < 100


def test_an_account_is_charged_for_one_query(tmp_path: Path) -> None:
    with Ledger(tmp_path / "ledger.db") as ledger:
        ledger.open("people", unit=record(), epsilon=10.0, delta=1e-6)
        ledger.share("people", "ann", 0.5, by="owner")
        with connect({"t": pa.table({"x": [5.0] * 1000})}, unit=record(), ledger=ledger, source="people") as db:
            before = {name: ledger.balance("people", name).spent for name in ("ann", "default")}
            db.sql("SELECT COUNT(*) AS n FROM t", epsilon=0.5, account="ann")
            db.find_bounds("x", epsilon=1.0, account="ann")
            assert ledger.balance("people", "ann").spent != before["ann"]
            assert ledger.balance("people", "default").spent == before["default"]
            left = [db.explain("SELECT COUNT(*) AS n FROM t", epsilon=0.5, account=name).left for name in ("ann", None)]
            assert left == [str(ledger.balance("people", name)) for name in ("ann", "default")]
