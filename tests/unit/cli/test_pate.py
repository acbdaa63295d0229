"""`discreet pate`, as it is called."""

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


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("pate")
    age = np.random.default_rng(1).integers(18, 90, 6000)
    parquet.write_table(pa.table({"age": age, "old": np.where(age > 50, "yes", "no")}), place / "people.parquet")
    parquet.write_table(pa.table({"age": np.arange(18, 90)}), place / "public.parquet")
    (place / "columns.toml").write_text("age = { bins = [30, 40, 50, 60] }\n")
    return place


def call(folder: Path, *args: object) -> Result:
    fixed = ["pate", str(folder / "people.parquet"), str(folder / "public.parquet"), "--columns", str(folder / "columns.toml")]
    fixed += ["--target", "old", "--delta", "1e-6", "--teachers", "50"]
    return CliRunner().invoke(app, [*fixed, *map(str, args)])


def test_labels_paid_by_a_ledger(folder: Path, tmp_path: Path) -> None:
    place = str(tmp_path / "ledger.db")
    with Ledger(place) as ledger:
        ledger.open("people", unit=record(), epsilon=10.0, delta=1e-5)
    where = ["--classes", "no,yes", "--epsilon", 8, "-o", tmp_path / "labels.json", "--ledger", place, "--source", "people"]
    done = call(folder, *where, "--json")
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["entry"]
    kept = Release.load(tmp_path / "labels.json").value
    right = np.where(np.arange(18, 90) > 50, "yes", "no")
    assert (np.array(kept["student"]) == right).mean() > 0.85
    assert len(kept["labels"]) == len(kept["counts"]) == 72
    refused = call(folder, *where)
    assert refused.exit_code == 2
    assert "epsilon" in refused.output


def test_a_target_in_the_schema_is_not_learned_from(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "columns.toml").write_text('age = [0, 100]\nold = ["no", "yes"]\n')
    args = ["--columns", tmp_path / "columns.toml", "--classes", "no,yes", "--epsilon", 1, "-o", tmp_path / "labels.json"]
    done = call(folder, *args)  # the public table has no such column
    assert done.exit_code == 0, done.output
    (tmp_path / "columns.toml").write_text("age = [0, 100]\nold = [0, 1]\n")
    refused = call(folder, *args)
    assert refused.exit_code == 2
    assert "a classifier needs categories there" in " ".join(refused.output.split())
