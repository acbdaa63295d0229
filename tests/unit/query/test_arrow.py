"""Columns of an answer: the same as pyarrow would make them, and without pandas."""

from __future__ import annotations

import subprocess
import sys
from datetime import date, datetime

import numpy as np
import pyarrow as pa
import pytest

from discreet.query import arrow

VALUES = {
    "integer": ([0, -5, 2**63 - 1, None, -(2**63)], pa.int64()),
    "number": ([0.5, -1e300, None, 3.0], pa.float64()),
    "text": (["a", "", None, "äöü 文字", "x" * 1000], pa.string()),
    "boolean": ([True, None, False] * 7, pa.bool_()),
    "date": ([date(1970, 1, 1), date.min, date.max, None], pa.date32()),
    "timestamp": ([datetime(2026, 1, 2, 3, 4, 5, 678901), datetime.min, None, datetime.max], pa.timestamp("us")),
}


@pytest.mark.parametrize("kind", VALUES)
def test_columns_are_those_of_pyarrow(kind):
    values, type_ = VALUES[kind]
    for part in (values, [it for it in values if it is not None], [None] * 9, []):
        made = arrow.column(part, kind)
        made.validate(full=True)
        assert made.equals(pa.array(part, type_))


def test_numbers_and_constants():
    assert arrow.numbers(np.arange(6)[::2]).equals(pa.array([0.0, 2.0, 4.0]))
    assert arrow.numbers(np.zeros(0)).equals(pa.array([], pa.float64()))
    for value in (True, 7, 0.25, "text", None, date(2020, 1, 1)):
        assert arrow.constant(value, 3).equals(pa.array([value] * 3))


def test_an_answer_loads_neither_pandas_nor_scipy(tmp_path):
    """Each takes as much memory as the engine."""
    script = """if True:
        import sys
        import discreet
        import duckdb
        duckdb.sql("COPY (SELECT i % 2 AS g, i AS v FROM range(100) AS r(i)) TO 'loaded.parquet'").fetchall()
        db = discreet.connect("loaded.parquet", unit=discreet.record(), bounds={"v": (0, 9)})
        db.sql("SELECT g, COUNT(*) AS n, AVG(v) AS m, MEDIAN(v) AS q FROM loaded GROUP BY g", epsilon=1.0, delta=1e-6)
        db = discreet.connect("loaded.parquet", unit=discreet.user("v", rows=4), bounds={"v": (0, 9), "g": (0, 1)})
        for groups in ("ROLLUP (g)", "g"):
            asked = "SELECT COUNT(DISTINCT (g, v)), STDDEV(g), CORR(v, g + 1), AVG(v) / SUM(v) FROM loaded GROUP BY "
            db.sql(asked + groups, epsilon=1.0, delta=1e-6, bias=True, confidence=0.9)
        print(sorted({"pandas", "scipy", "pyarrow"} & set(sys.modules)))
    """
    found = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, cwd=tmp_path)
    assert found.stdout.strip() == "['pyarrow']"
