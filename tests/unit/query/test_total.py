"""What is evaluated after a charge is total: it has an answer whatever the rows, the noise and the arguments are."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from click.testing import CliRunner

from discreet import Ledger, connect, record, user
from discreet.cli import app
from discreet.core import Unit
from discreet.errors import DiscreetError, InvalidQuery, InvalidValue
from discreet.query import after, arrays, price
from discreet.query.local import intervals
from discreet.query.operations import Op, OutputOp
from discreet.query.statistics.moments import Mean, Sum, Variance
from discreet.query.statistics.statistic import Cells, each
from discreet.query.together import of_box, of_laplace, of_normal
from discreet.query.tree import Output

ROWS = 40_000
BEYOND = (0.0, 1.0, 1 - 2**-53, 1 - 2.0**-52, 1e-300, 5e-324, math.nan)
HOSTILE = (0.0, -0.0, 0.5, -2.5, 1e14, -1e14, 2.0**63, 1e300, -1e308, 5e-324, math.nan)


def _table(value: float, kind: Any = np.float64) -> pa.Table:
    return pa.table({"id": np.arange(ROWS) // 2, "x": np.full(ROWS, value, kind), "y": np.linspace(0, 1, ROWS)})


def _missed(table: pa.Table, query: str, truth: float, unit: Unit, times: int = 6, **how: Any) -> int:
    db = connect({"t": table}, unit=unit, bounds={"x": (0, 1000), "y": (0, 1)})
    values = [db.sql(query, epsilon=1.0, confidence=0.999, **how).value.to_pydict() for _ in range(times)]
    return sum(not value["s_low"][0] <= truth <= value["s_high"][0] for value in values)


STATISTICS: dict[str, Callable[[float], float]] = {
    "SELECT SUM(x) AS s FROM t": lambda x: x * ROWS,
    "SELECT COUNT(*) AS n, SUM(x) AS s FROM t": lambda x: x * ROWS,
    "SELECT AVG(x) AS s FROM t": lambda x: x,
    "SELECT AVG(x) * 2 + SUM(x) / COUNT(*) AS s FROM t": lambda x: 3 * x,
    "SELECT VARIANCE(x) AS s FROM t": lambda x: 0.0,
    "SELECT STDDEV(x) AS s FROM t": lambda x: 0.0,
    "SELECT COVAR_POP(x, y) AS s FROM t": lambda x: 0.0,
}


@pytest.mark.parametrize("steps", [price.COARSEST, price.FINEST])
@pytest.mark.parametrize(("unit", "how"), [(record(), {}), (record(), {"noise": "gaussian", "delta": 1e-6}),
                                           (user("id", rows=2), {}), (user("id", rows=2), {"groups": 1})])  # fmt: skip
def test_intervals_include_the_rounding(steps: int, unit: Unit, how: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """All rows are rounded to the same side, by nearly half a step of the coarsest grid; a right interval misses two of six
    once in 60,000."""
    monkeypatch.setattr(price, "FINEST", steps)
    monkeypatch.setattr(price, "FINEST_MEANS", min(steps, price.FINEST_MEANS))
    for query, truth in STATISTICS.items():
        assert _missed(_table(3.8), query, truth(3.8), unit, **how) <= 1, query


@pytest.mark.parametrize("unit", [record(), user("id", rows=2)])
def test_whole_numbers_are_not_rounded(unit: Unit) -> None:
    db = connect({"t": _table(1, np.int64)}, unit=unit, bounds={"x": (0, 10**6)})
    value = db.sql("SELECT SUM(x) AS s, AVG(x) AS m FROM t", epsilon=100.0, confidence=0.999).value.to_pydict()
    assert value["s_low"][0] <= ROWS <= value["s_high"][0]
    assert value["m_low"][0] <= 1 <= value["m_high"][0]
    assert value["m_high"][0] - value["m_low"][0] < 10, "10 people at the bound could move it by 100"


@pytest.mark.parametrize("kind", [Sum, Mean, Variance])
def test_intervals_of_arrays_include_the_rounding(kind: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from discreet.query import array_mechanisms

    monkeypatch.setattr(array_mechanisms, "FINEST", 64)
    values, truth = np.full(ROWS, 3.8), {Sum: 3.8 * ROWS, Mean: 3.8, Variance: 0.0}[kind]
    how: dict[str, Any] = {"unit": record(), "epsilon": 1, "confidence": 0.999}
    array_mechanisms._step.cache_clear()
    found = [arrays.estimate(values, kind, **how, bounds=(0, 1000)).value for _ in range(8)]
    table = np.stack([values, values], axis=1)
    pairs = [arrays.covariance(table, **how, bounds=[(0, 1000)] * 2).value for _ in range(8)]
    array_mechanisms._step.cache_clear()
    assert sum(not one.low <= truth <= one.high for one in found) <= 1
    assert sum(not one.low[0][1] <= 0 <= one.high[0][1] for one in pairs) <= 1


@pytest.mark.parametrize("confidence", BEYOND)
def test_a_confidence_that_leaves_nothing_is_refused_before_the_charge(confidence: float, tmp_path: Path) -> None:
    table = pa.table({"id": [1, 2, 3], "x": [1.0, 2.0, 3.0]})
    ledger = Ledger(tmp_path / "l.db")
    ledger.open("s", unit=record(), epsilon=1.0, delta=1e-5)
    before = ledger.balance("s")
    db = connect({"t": table}, unit=record(), bounds={"x": (0, 5)}, ledger=ledger, source="s")
    for ask in (db.sql, db.explain):
        with pytest.raises(InvalidValue, match="confidence"):
            ask("SELECT VARIANCE(x) AS v FROM t", epsilon=0.5, confidence=confidence)
    how: dict[str, Any] = {"unit": record(), "epsilon": 0.5, "confidence": confidence, "ledger": ledger, "source": "s"}
    values = np.array([1.0, 2.0])
    for array in (lambda: arrays.count(values, **how), lambda: arrays.mean(values, bounds=(0, 5), **how),
                  lambda: arrays.quantile(values, 0.5, bounds=(0, 5), **how),
                  lambda: arrays.histogram(values, edges=[0, 1, 5], **how),
                  lambda: arrays.top_k(["a", "b"], k=1, categories=["a", "b"], **how),
                  lambda: arrays.covariance(np.stack([values, values], axis=1), bounds=[(0, 5)] * 2, **how)):  # fmt: skip
        with pytest.raises(InvalidValue, match="confidence"):
            array()
    with pytest.raises(InvalidValue, match="confidence"):
        intervals.beta(confidence)
    assert ledger.balance("s") == before


def test_the_command_refuses_such_a_confidence(tmp_path: Path) -> None:
    import pyarrow.parquet as pq

    pq.write_table(pa.table({"x": [1.0, 2.0]}), tmp_path / "t.parquet")
    run = CliRunner().invoke(app, ["query", str(tmp_path / "t.parquet"), "SELECT COUNT(*) AS n FROM t", "--epsilon", "1",
                                   "--confidence", "0.9999999999999999"])  # fmt: skip
    assert run.exit_code != 0
    assert "confidence must be between" in run.output + str(run.exception)


def test_searches_end_at_every_confidence_a_float_can_say() -> None:
    for failing in (1.0, 0.5, 2**-53):
        for weights in ((1.0,), (1.0, 0.3), (1.0, 0.0), (0.0, 0.0)):
            for size in (2, 16):
                assert of_box(weights, size, failing) >= 0
            assert of_laplace(weights, failing) >= 0
            assert of_normal(weights, failing) >= 0
    assert of_box((1.0, 0.3), 2, 2e-9) < 100
    assert of_box((1.0, 0.3), 2, 2**-53) < 100
    assert 0 < each(10**9, 1 - 1e-15) < 1


@pytest.mark.parametrize("epsilon", [1e-300, 1e-15, 1e-9, 1e-6, 1e-3, 100.0, 1e6])
@pytest.mark.parametrize("unit", [record(), user("id", rows=1000), user("id", rows=1 << 40)])
def test_what_little_or_much_epsilon_cannot_pay_for_is_refused_before_the_charge(
    epsilon: float, unit: Unit, tmp_path: Path
) -> None:
    """`find_bounds` charged, and then found that its noise would not fit or that no bounds stood out."""
    ledger = Ledger(tmp_path / "ledger.db")
    ledger.open("s", unit=unit, epsilon=4000.0, delta=1e-3)
    table = pa.table({"id": [1, 2, 3], "x": [1.0, 2.0, None]})
    with connect({"t": table}, unit=unit, ledger=ledger, source="s", bounds={"x": (0, 5)}) as db:
        query = "SELECT AVG(x) AS a, MEDIAN(x) AS m, COUNT(DISTINCT x) AS d FROM t"
        for ask in (lambda: db.find_bounds("x", epsilon=epsilon), lambda: db.find_rows(epsilon=epsilon),
                    lambda: db.sql(query, epsilon=epsilon)):  # fmt: skip
            before = str(ledger.balance("s"))
            try:
                ask()
            except DiscreetError:
                assert str(ledger.balance("s")) == before


class _Rows:
    """Released rows with these noisy numbers and intervals, by statistic."""

    confidence = 0.95

    def __init__(self, columns: Sequence[Cells]) -> None:
        self.columns = columns
        self.keys: list[tuple[Any, ...]] = [()] * len(columns[0][0])
        self.grouped: list[tuple[int, ...]] = [()] * len(self.keys)

    def column(self, statistic: int, confidence: float) -> Cells:
        return self.columns[statistic]


ONE = {Op.NEG, Op.ABS, Op.SIGN, Op.SQRT, Op.EXP, Op.LN, Op.LOG2, Op.LOG10, Op.FLOOR, Op.CEIL, Op.ROUND, Op.BUCKET,
       Op.TO_INTEGER, Op.TO_NUMBER}  # fmt: skip
OPTIONS: dict[Op, Sequence[Any]] = {Op.ROUND: (None, 2, 308, -308, 400, -400), Op.BUCKET: ([0.0, 1.0, 2.0],)}


@pytest.mark.parametrize("op", sorted(after._NUMERIC))
def test_every_operation_on_noisy_numbers_has_a_value_or_is_null(op: Op) -> None:
    pairs = np.array(list(itertools.product(HOSTILE, HOSTILE))).T
    args = tuple(Output(OutputOp.STATISTIC, (), place) for place in range(1 if op in ONE else 2))
    for ends in (None, (-math.inf, math.inf)):
        columns = [(part, *(part if ends is None else np.full(len(part), end) for end in ends or (0, 0))) for part in pairs]
        for option in OPTIONS.get(op, (None,)):
            value, low, high = after.evaluate(Output(op, args, option), _Rows(columns))
            known = ~np.isnan(value)
            assert not np.isinf(value).any()
            assert (low[known] <= value[known]).all()
            assert (value[known] <= high[known]).all()


@pytest.mark.parametrize("made", [
    "ROUND(AVG(x), 308)", "ROUND(COUNT(*) * 1e14, 300)", "ROUND(POWER(COUNT(*), 150), 308)", "POWER(COUNT(*), 400)",
    "SQRT(0 - COUNT(*))", "LN(0 - COUNT(*))", "EXP(COUNT(*) * 1e10)", "CAST(COUNT(*) * 1e14 * 1e14 AS BIGINT)",
    "CAST(0 - COUNT(*) * 1e14 * 1e14 AS BIGINT)", "COUNT(*) / 0", "CAST(CAST(COUNT(*) * 1e14 * 1e14 AS VARCHAR) AS BIGINT)",
    "CAST('99999999999999999999999' AS BIGINT) + COUNT(*)", "POWER(COUNT(*), 150) * POWER(COUNT(*), 150)",
    "SUM(POWER(COUNT(*), 154)) OVER ()", "COUNT(*) % 0", "CAST(EXP(COUNT(*) * 1e10) AS VARCHAR)",
    "CASE WHEN EXP(COUNT(*) * 1e10) > 1 THEN 1 END",
])  # fmt: skip
def test_no_expression_over_an_answer_raises_after_the_charge(made: str) -> None:
    db = connect({"t": pa.table({"x": [3.0] * 200, "g": ["a", "b"] * 100})}, unit=record(), bounds={"x": (0, 50)})
    value = db.sql(f"SELECT {made} AS v, g FROM t GROUP BY g ORDER BY v", epsilon=50.0, keys={"g": ["a", "b"]}).value
    found = value["v"].to_pylist()
    assert all(one is None or not isinstance(one, float) or math.isfinite(one) for one in found)
    if "1e14 AS BIGINT" in made or "EXP" in made or "SQRT" in made or "LN" in made or "/ 0" in made:
        assert found == [None, None]


@pytest.mark.parametrize(("query", "how"), [
    ("SELECT ROUND(AVG(x), 400) AS n FROM t", {}), ("SELECT SUM(ROUND(x, 400)) AS n FROM t", {}),
    ("SELECT COUNT(DISTINCT ()) AS n FROM t", {}), ("SELECT COUNT(*) AS n FROM t", {"weights": {"n": 1e-320}}),
    ("SELECT COUNT(*) AS n FROM t", {"weights": {"n": 1e200}}),
])  # fmt: skip
def test_what_has_no_meaning_is_refused_before_the_charge(query: str, how: dict[str, Any], tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "l.db")
    ledger.open("s", unit=record(), epsilon=5.0, delta=1e-5)
    before = ledger.balance("s")
    db = connect({"t": pa.table({"x": [1.0, 2.0]})}, unit=record(), bounds={"x": (0, 5)}, ledger=ledger, source="s")
    with pytest.raises(DiscreetError) as told:
        db.sql(query, epsilon=1.0, **how)
    assert isinstance(told.value, (InvalidQuery, InvalidValue))
    assert ledger.balance("s") == before


def test_explain_says_what_a_variance_and_a_quantile_are_of() -> None:
    db = connect({"t": pa.table({"x": [1.0, 2.0]})}, unit=record(), bounds={"x": (0, 5)})
    query = ("SELECT VAR_SAMP(x) AS v, STDDEV_SAMP(x) AS d, COVAR_SAMP(x, x) AS c, "
             "PERCENTILE_CONT(0.25) WITHIN GROUP (ORDER BY x) AS p FROM t")  # fmt: skip
    told = db.explain(query, epsilon=1.0).errors
    assert all("divided by n" in told[name] for name in "vdc")
    assert "none in between" in told["p"]
