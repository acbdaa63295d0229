"""`discreet attack synthetic` and `discreet synth --fidelity-epsilon`, as they are called."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv as csv
import pyarrow.parquet as parquet
import pytest
from click.testing import CliRunner, Result

from discreet import Ledger, record
from discreet.cli import app
from discreet.core import Release

SCHEMA = (
    '[ward]\ntype = "categorical"\nvalues = ["A", "B"]\n\n[age]\ntype = "integer"\nbounds = [0, 99]\nbins = 5\n\n'
    '[long]\ntype = "categorical"\nvalues = ["no", "yes"]\n'
)


def rows(count: int, seed: int) -> pa.Table:
    draw = np.random.default_rng(seed)
    age = draw.integers(0, 100, count)
    return pa.table({
        "ward": draw.choice(["A", "B"], count), "age": age, "long": np.where(age > draw.integers(0, 100, count), "yes", "no"),
    })  # fmt: skip


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name, seed in (("people", 1), ("others", 2)):
        parquet.write_table(rows(1500, seed), tmp_path / f"{name}.parquet")
    (tmp_path / "schema.toml").write_text(SCHEMA)
    return tmp_path


def call(folder: Path, *words: object) -> Result:
    return CliRunner().invoke(app, [str(folder / word) if str(word).endswith((".parquet", ".toml", ".json", ".db")) or
                                    word in ("out", "attacked") else str(word) for word in words])  # fmt: skip


def made(folder: Path, *more: object) -> Result:
    done = call(folder, "synth", "people.parquet", "--schema", "schema.toml", "--epsilon", 2, "--delta", "1e-6",
                "--method", "tree", "-o", "out", *more)  # fmt: skip
    assert done.exit_code == 0, done.output
    return done


def attacked(folder: Path, table: str, *more: object) -> Result:
    return call(folder, "attack", "synthetic", table, "--members", "people.parquet", "--control", "others.parquet",
                "--output", "attacked", *more)  # fmt: skip


def test_a_private_table_with_fits_fidelity_and_canaries(folder: Path) -> None:
    made(folder)
    done = attacked(folder, "out/synthetic.parquet", "--claim", "out/release.json", "--schema", "schema.toml", "--attacks",
                    "density,pairs,closest,shadows", "--shadows", 4, "--canaries", 60, "--secret", "long",
                    "--label", "long", "--json")  # fmt: skip
    assert done.exit_code == 0, done.output
    told = json.loads(done.stdout)
    assert [(it["attack"], it["design"]) for it in told["attacks"]] == [
        ("density ratio", "post_hoc"), ("density ratio (pairs)", "post_hoc"), ("distance to closest record", "post_hoc"),
        ("shadow generators", "post_hoc"), ("canaries in one fit", "canary"),
    ]  # fmt: skip
    assert [it["name"] for it in told["risks"]] == ["singling out", "linkability", "inference of long"]
    assert told["owner_fidelity"]["for_release"] is False
    assert told["usefulness"]["synthetic_auc"] > 0.6
    assert "proves nothing" in done.stderr
    assert "Not for release" in done.stderr
    kept, fitted = (Release.load(folder / name / "release.json") for name in ("attacked", "out"))
    assert kept.claims == fitted.claims
    assert kept.facts["synthetic"] == fitted.facts["synthetic"]
    assert len(kept.evidence) == 5


def test_a_copy_is_caught_without_any_claim(folder: Path) -> None:
    for seed, name in enumerate(("people", "others")):  # without fine values only a handful of predicates fit one row alone
        table, height = parquet.read_table(folder / f"{name}.parquet"), np.random.default_rng(seed).normal(170, 10, 1500)
        parquet.write_table(table.append_column("height", pa.array(height)), folder / f"{name}.parquet")
    done = attacked(folder, "people.parquet")
    assert done.exit_code == 0, done.output
    assert "Nothing is claimed" in done.stderr
    risks = {it["name"]: it for it in Release.load(folder / "attacked" / "release.json").facts["risks"]}
    assert risks["singling out"]["members"] == 1.0, "whatever singles out a row of the copy singles out a member"
    assert risks["singling out"]["control"] < 1.0


def typed(count: int, seed: int) -> pa.Table:
    """Dates, booleans and numbers, each with gaps."""
    draw = np.random.default_rng(seed)
    gaps = draw.random((4, count)) < 0.1
    days = np.datetime64("2020-01-01") + draw.integers(0, 900, count)
    return pa.table({
        "born": pa.array(days, mask=gaps[0]), "ill": pa.array(draw.random(count) < 0.5, mask=gaps[1]),
        "age": pa.array(draw.integers(0, 100, count), mask=gaps[2]), "pay": pa.array(draw.normal(size=count), mask=gaps[3]),
    })  # fmt: skip


@pytest.mark.parametrize("synthetic", ["copy.parquet", "people.csv"])
def test_a_copy_is_caught_whatever_the_files_are(folder: Path, synthetic: str) -> None:
    for name, seed in (("people", 1), ("others", 2)):
        table = typed(600, seed)
        csv.write_csv(table, folder / f"{name}.csv")
        parquet.write_table(table, folder / ("copy.parquet" if name == "people" else f"{name}.parquet"))
    real = ("people.csv", "others.csv") if synthetic.endswith("parquet") else ("copy.parquet", "others.parquet")
    members, control = (str(folder / name) for name in real)
    done = call(folder, "attack", "synthetic", folder / synthetic, "--members", members, "--control", control,
                "--output", "attacked", "--json")  # fmt: skip
    assert done.exit_code == 0, done.output
    told = json.loads(done.stdout)
    assert {it["attack"]: it["auc"] for it in told["attacks"]}["distance to closest record"] == 1.0
    assert all(it["low"] > 0.2 for it in told["risks"]), told["risks"]


def test_columns_of_two_kinds_are_refused(folder: Path) -> None:
    for name, day in (("people", "31/1/2020"), ("others", "2020-01-31")):
        (folder / f"{name}.csv").write_text("born,ill\n,true\n" + f"{day},no\n" * 40)
    parquet.write_table(typed(100, 3).select(["born", "ill"]), folder / "made.parquet")
    members, control = (str(folder / f"{name}.csv") for name in ("people", "others"))
    done = call(
        folder, "attack", "synthetic", "made.parquet", "--members", members, "--control", control, "--output", "attacked"
    )
    assert done.exit_code == 2
    assert "'born' holds dates in one table and text in the members" in " ".join(done.stderr.split())
    assert "first in row 2" in " ".join(done.stderr.split())


def test_fits_need_to_know_how(folder: Path) -> None:
    made(folder)
    for more in (("--canaries", 60), ("--attacks", "shadows", "--claim", "out/release.json"), ("--attacks", "magic")):
        done = attacked(folder, "out/synthetic.parquet", *more)
        assert done.exit_code == 2
        assert "needs --claim" in done.stderr or "attacks must be" in done.stderr
        assert not (folder / "attacked").exists()


def test_fidelity_is_paid_for_beside_the_table(folder: Path) -> None:
    with Ledger(folder / "ledger.db") as ledger:
        ledger.open("people", unit=record(), epsilon=4.0, delta=1e-5)
        done = made(folder, "--fidelity-epsilon", 0.5, "--ledger", "ledger.db", "--source", "people")
        near = Release.load(folder / "out" / "fidelity.json")
        assert ledger.payment(near).sound
    assert near.facts["fidelity"]["for_release"] is True
    assert set(near.value) == {"1", "2"}
    assert "mean total variation" in done.stderr


def test_a_claim_about_users_allows_attacks_on_rows(folder: Path) -> None:
    for name in ("people", "others"):
        table = parquet.read_table(folder / f"{name}.parquet")
        whose = pa.array(np.arange(table.num_rows) // 3)
        parquet.write_table(table.append_column("id", whose), folder / f"{name}.parquet")
    (folder / "schema.toml").write_text(SCHEMA + '\n[id]\ntype = "omit"\n')
    made(folder, "--unit", "user:id", "--unit-rows", 3)
    known = ("--claim", "out/release.json", "--schema", "schema.toml")
    assert attacked(folder, "out/synthetic.parquet", *known).exit_code == 0
    kept = Release.load(folder / "attacked" / "release.json")
    assert {each.game.unit for each in kept.evidence} == {record()}
    assert kept.claims[0].game.unit.key == "id"
