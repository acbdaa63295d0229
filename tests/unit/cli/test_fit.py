"""`discreet fit`, as it is called."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as parquet
import pytest
from click.testing import CliRunner, Result

from discreet import Ledger, record
from discreet.cli import app
from discreet.core import Release

WHOLE = ["--target", "old", "--classes", "no,yes", "--epsilon", 1]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("fit")
    age = np.random.default_rng(1).integers(18, 90, 8000)
    table = {"age": age, "sex": ["f", "m"] * 4000, "old": np.where(age > 50, "yes", "no"), "pay": age * 100.0}
    parquet.write_table(pa.table(table), place / "people.parquet")
    (place / "columns.toml").write_text('age = [30, 40, 50, 60]\nsex = ["f", "m"]\n')
    (place / "range.toml").write_text("age = [0, 100]\n")
    return place


def call(folder: Path, model: str, *args: object, columns: str = "columns.toml") -> Result:
    fixed = ["fit", model, str(folder / "people.parquet"), "--columns", str(folder / columns), "--delta", "1e-6"]
    return CliRunner().invoke(app, [*fixed, *map(str, args)])


@pytest.mark.parametrize("model", ["logistic", "svm"])
def test_a_classifier_paid_by_a_ledger(folder: Path, model: str, tmp_path: Path) -> None:
    place = str(tmp_path / "ledger.db")
    with Ledger(place) as ledger:
        ledger.open("people", unit=record(), epsilon=2.0, delta=1e-5)
    where = ["--target", "old", "--classes", "no,yes", "--epsilon", 1, "-o", tmp_path / "model.json"]
    done = call(folder, model, *where, "--ledger", place, "--source", "people", "--json")
    assert done.exit_code == 0, done.output
    told = json.loads(done.stdout)
    assert told["entry"]
    kept = Release.load(tmp_path / "model.json")
    assert kept.value["classes"] == ["no", "yes"]
    assert kept.value["coef"][0][0] < kept.value["coef"][0][4]  # the youngest bin, the oldest


def test_a_regression(folder: Path, tmp_path: Path) -> None:
    where = ["--target", "pay", "--bounds", 0, 10000, "--epsilon", 2, "-o", tmp_path / "model.json"]
    done = call(folder, "regression", *where, columns="range.toml")
    assert done.exit_code == 0, done.output
    assert Release.load(tmp_path / "model.json").value["coef"][0] == pytest.approx(10_000, rel=0.1)


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (["--target", "old", "--epsilon", 1], "--classes"),
        (["--target", "age", "--classes", "a,b", "--epsilon", 1], "is the target"),
        (["--target", "nothing", "--classes", "a,b", "--epsilon", 1], "no column"),
        (["--target", "old", "--classes", "a,b", "--epsilon", 1], "none of the classes"),
        (["--target", "old", "--classes", "no,yes", "--epsilon", 0], "epsilon"),
        (["--target", "old", "--classes", "no,yes", "--bounds", 0, 1, "--epsilon", 1], "no bounds"),
        ([*WHOLE, "--source", "q"], "go together"),
        ([*WHOLE, "--ledger", "nope.db"], "--ledger needs --source"),
        ([*WHOLE, "--ledger", "nope.db", "--source", "q"], "There is no ledger at nope.db"),
    ],
)
def test_wrong_use_says_what_to_do(folder: Path, tmp_path: Path, args: list[object], says: str) -> None:
    done = call(folder, "logistic", *args, "-o", tmp_path / "model.json")
    assert done.exit_code == 2, done.output
    assert says in " ".join(done.stderr.split())
    assert not Path("nope.db").exists()
