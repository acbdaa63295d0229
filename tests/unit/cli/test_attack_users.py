"""`discreet attack synthetic` on tables of users, and on tables whose categories and bins were found privately."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as parquet
import pytest
from click.testing import CliRunner

from discreet.cli import app
from discreet.core import Release, user

SCHEMA = (
    '[ward]\ntype = "categorical"\nfind = "categories"\n\n[age]\ntype = "integer"\nbounds = [0, 99]\nbins = 8\n'
    'find = ["bins", "mass"]\n\n[long]\ntype = "boolean"\n\n[note]\ntype = "omit"\n'
)


def visits(count: int, seed: int) -> pa.Table:
    draw = np.random.default_rng(seed)
    age = np.where(draw.random(count) < 0.3, 40, draw.integers(0, 100, count))
    return pa.table({
        "id": draw.integers(0, count // 2, count) + 10**6 * seed, "ward": draw.choice(["A", "B", "C"], count), "age": age,
        "long": age > draw.integers(0, 100, count), "note": [f"note {i}" for i in range(count)],
    })  # fmt: skip


def test_users_and_found_cells_are_attacked_like_rows_and_listed_cells(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name, seed in (("people", 1), ("others", 2)):
        parquet.write_table(visits(2000, seed), f"{name}.parquet")
    Path("schema.toml").write_text(SCHEMA)

    def call(*words: object) -> str:
        done = CliRunner().invoke(app, list(map(str, words)))
        assert done.exit_code == 0, done.output
        return done.stdout

    call("synth", "people.parquet", "--schema", "schema.toml", "--epsilon", 8, "--delta", "1e-6", "--method", "tree",
         "--unit", "user:id", "--unit-rows", 3, "-o", "out")  # fmt: skip
    columns = {it["name"]: it.get("found") for it in Release.load("out/release.json").facts["synthetic"]["columns"]}
    assert set(columns["ward"]["values"]) == {"A", "B", "C"}
    assert 40 in columns["age"]["mass"]
    assert columns["long"] is None
    told = json.loads(call(
        "attack", "synthetic", "out/synthetic.parquet", "--members", "people.parquet", "--control", "others.parquet",
        "--claim", "out/release.json", "--schema", "schema.toml", "--attacks", "density,shadows", "--shadows", 2,
        "--canaries", 40, "--output", "attacked", "--json",
    ))  # fmt: skip
    assert [it["attack"] for it in told["attacks"]] == ["density ratio", "shadow generators", "canaries in one fit"]
    assert told["owner_fidelity"]["means"]["2"] < 0.2
    canaries = Release.load("attacked/release.json").evidence[-1]
    assert canaries.game.unit == user("id", rows=3), "canaries are people, as in the claim"
    assert canaries.design == "canary"
