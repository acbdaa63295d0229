"""One line of a text file changes nothing about the records of other lines: in SQL, in synthesis, and in `discreet fit`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner, Result
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from discreet.cli import app
from discreet.core import lines, record
from discreet.learn.estimators import classifiers
from discreet.learn.estimators.features import Features
from discreet.models.tables import read_private
from discreet.query import connect
from discreet.query.engines.frames import Declared, text_table
from discreet.synth.schema import Schema
from discreet.synth.table import Table

NASTY = st.lists(st.sampled_from([b'"', b'""', b",", b"\t", b"\r", b"\n", b"\0", b"\xff", b"\xc3", b"\xc3\xa9", b"\xef\xbb\xbf",
                                  b"a", b"1", b"1.5", b"NA", b" ", b"\\", b"'", b"{", b"[", b"]", b"}", b":", b"\x1a"]),
                 max_size=12).map(b"".join)  # fmt: skip
BEFORE, AFTER = st.lists(NASTY, max_size=3), st.lists(NASTY, max_size=3)
OPEN = ([b"1,a"], b'2,"open', [b"3,b", b'4,"c"', b'5,x"y'])
MARK = ([], b"", [b"\xef\xbb\xbf1,a"])
ROUNDS = settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])

Rows = list[tuple[Any, ...]]


def by_sql(folder: Path, suffix: str, body: bytes) -> Rows:
    path = folder / f"t{suffix}"
    path.write_bytes({".csv": b"x,y\n", ".tsv": b"x\ty\n"}.get(suffix, b"") + body)
    return [tuple(row.values()) for row in text_table(path, Declared(("x", "y"), ("NA",))).to_pylist()]


def by_fit(folder: Path, suffix: str, body: bytes) -> Rows:
    path = folder / f"t{suffix}"
    path.write_bytes(b"x,y\n1,sound\n" + body)
    table = read_private(str(path), ["x", "y"])
    features = Features({"x": [0, 2], "y": ["a", "1"]})(table)
    return list(zip(table["x"], table["y"], map(tuple, features.tolist()), strict=True))[1:]


@pytest.mark.parametrize(("read", "suffix"), [(by_sql, ".csv"), (by_sql, ".tsv"), (by_sql, ".jsonl"), (by_fit, ".csv")])
@ROUNDS
@given(before=BEFORE, odd=NASTY, after=AFTER)
@example(*OPEN)
@example(*MARK)
def test_a_line_leaves_the_records_of_others_as_they_are(
    read: Any, suffix: str, tmp_path: Path, before: list[bytes], odd: bytes, after: list[bytes]
) -> None:
    first, last = b"".join(line + b"\n" for line in before), b"".join(line + b"\n" for line in after)
    above, below = read(tmp_path, suffix, first), read(tmp_path, suffix, last)
    assert read(tmp_path, suffix, first + last) == above + below
    found = read(tmp_path, suffix, first + odd + b"\n" + last)
    own = len(found) - len(above) - len(below)
    assert 0 <= own <= len(odd.splitlines())
    assert found == above + found[len(above) : len(above) + own] + below


@ROUNDS
@given(line=NASTY.filter(lambda line: b"NA" not in line and not set(line) & set(b"\r\n")))
def test_both_readers_see_one_record(tmp_path: Path, line: bytes) -> None:
    """What Arrow makes of a line is what Python's csv makes of it, but for the blanks around values."""
    kept = [lines.cells(each, ",") for each in lines.records(line, ",", 2)]
    arrow = [[(value or "").strip() or None for value in row] for row in by_sql(tmp_path, ".csv", line + b"\n")]
    assert arrow == kept


PEOPLE = [f"{i % 2},{'ab'[i % 2]}" for i in range(400)]
ODD = ['1,"a', '"', '1.5,"b', "01,a", "x,y", ",", "1", "1,2,3"]
TYPES = {"t": {"x": {"type": "number", "bounds": [0, 1]}, "y": {"type": "text"}}}


def written(folder: Path, *first: str) -> Path:
    (folder / "t.csv").write_text("\n".join(["x,y", *first, *PEOPLE]) + "\n")
    return folder / "t.csv"


@pytest.mark.parametrize("odd", ODD)
def test_counts_move_by_one(tmp_path: Path, odd: str) -> None:
    with connect(written(tmp_path, odd), unit=record(), schema=TYPES) as db:
        answer = db.sql("SELECT COUNT(*) AS n FROM t", epsilon=100.0)
    assert abs(answer.value["n"][0].as_py() - len(PEOPLE)) <= 2  # noise of scale 0.01: further once in e^100
    schema = Schema.of({"x": (0, 1), "y": ["a", "b"]})
    with Table(written(tmp_path), schema, record()) as table:
        before = table.counts([(0, 1)])[0]
    with Table(written(tmp_path, odd), schema, record()) as table:
        assert np.abs(table.counts([(0, 1)])[0] - before).sum() <= 1


# ---- discreet fit ------------------------------------------------------------------------------------------------------


def fit(folder: Path, model: str, target: str, *args: object) -> Result:
    (folder / "columns.toml").write_text('x = ["0", "1"]\n' if target == "y" else 'y = ["a", "b"]\n')
    fixed = [
        "fit",
        model,
        folder / "t.csv",
        "--target",
        target,
        "--columns",
        folder / "columns.toml",
        "--epsilon",
        1,
        "--delta",
    ]
    return CliRunner().invoke(app, [*map(str, fixed), "1e-6", "-o", str(folder / "model.json"), *map(str, args)])


@pytest.mark.parametrize("odd", ODD)
def test_what_a_fit_is_given_differs_in_one_row(tmp_path: Path, odd: str, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []
    spend = classifiers.LinearClassifier._spend

    def watched(self: Any, mechanism: Any, data: Any) -> Any:
        seen.append(np.column_stack(data).tolist())
        return spend(self, mechanism, data)

    monkeypatch.setattr(classifiers.LinearClassifier, "_spend", watched)
    for first in ((), (odd,)):
        written(tmp_path, *first)
        done = fit(tmp_path, "logistic", "y", "--classes", "a,b")
        assert done.exit_code == 0, done.output
    assert seen[1] in (seen[0], seen[1][:1] + seen[0])
    assert np.sum(seen[0]) > len(PEOPLE), "every category was found"


@pytest.mark.parametrize("cell", ["secret", "", "inf", "nan", '"secret', "\udcff"])
def test_a_bad_target_is_left_out_and_not_shown(tmp_path: Path, cell: str) -> None:
    body = "\n".join(["x,y", f"{cell},a", *PEOPLE])
    (tmp_path / "t.csv").write_bytes(body.encode("utf-8", "surrogateescape"))
    for model, more in (("regression", ("--bounds", 0, 1)), ("logistic", ("--classes", "0,1"))):
        done = fit(tmp_path, model, "x", *more)
        assert done.exit_code == 0, done.output
        assert "secret" not in done.output
        assert json.loads((tmp_path / "model.json").read_text())
    (tmp_path / "t.csv").write_bytes(f"x,y\n{cell},a\n".encode("utf-8", "surrogateescape"))
    done = fit(tmp_path, "regression", "x", "--bounds", 0, 1)
    assert done.exit_code == 2
    assert "secret" not in done.output


def test_a_first_line_without_names_is_not_shown(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("secret,a\n1,b\n")
    done = fit(tmp_path, "logistic", "y", "--classes", "a,b")
    assert done.exit_code == 2
    assert "must name every declared column" in " ".join(done.stderr.split())
    assert "secret" not in done.output


def test_one_missing_number_leaves_the_others_whole(tmp_path: Path) -> None:
    """In parquet too: numpy has no whole numbers with gaps, and 1.0 is none of the categories 0 and 1."""
    import pyarrow as pa
    import pyarrow.parquet as parquet

    parquet.write_table(pa.table({"x": [0, 1, None]}), tmp_path / "t.parquet")
    assert Features({"x": ["0", "1"]})(read_private(str(tmp_path / "t.parquet"), ["x"])).tolist() == [[1, 0], [0, 1], [0, 0]]
