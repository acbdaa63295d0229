"""`discreet attack model` on what `discreet train`, `federate` and `fit` wrote: no recipe, no target, no claim to name."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner, Result

from discreet import Ledger, record, user
from discreet.attack.membership.validation import in_both
from discreet.audit import verdict
from discreet.cli import app
from discreet.cli.owners import Owners
from discreet.cli.trained import trained
from discreet.core import Release

DATA = """
[data]
file = "in.csv"
target = "ill"
classes = ["no", "yes"]
columns = { age = [0, 100], sex = ["f", "m"] }
"""
TRAIN = """
[train]
epsilon = 4.0
delta = 1e-5
rate = 0.1
steps = 6
clip_norm = 1.0
learning_rate = 1.0
[ledger]
place = "ledger.db"
source = "people"
[output]
folder = "model"
"""
FEDERATE = """client = "person"
[train]
strategy = "fedsgd"
rounds = 3
learning_rate = 1.0
[privacy]
kind = "central"
clip_norm = 1.0
epsilon = 8.0
delta = 1e-6
rate = 1.0
divisor = 60.0
[output]
folder = "model"
"""


def call(*words: object) -> Result:
    return CliRunner().invoke(app, [*map(str, words)])


def attacked(folder: Path, what: str = "model", *more: object) -> Result:
    return call("attack", "model", folder / what, "--members", folder / "in.csv", "--nonmembers", folder / "out.csv",
                "--shadows", 2, "--no-controls", "-o", folder / "audit", *more)  # fmt: skip


@pytest.fixture
def place(tmp_path: Path) -> Path:
    draw = np.random.default_rng(0)
    for name, first in (("in", 0), ("out", 500)):
        rows = zip(draw.normal(50, 20, 120).round(3), draw.choice(["f", "m"], 120))
        lines = [f"{age},{sex},{'yes' if age > 50 else 'no'},p{first + n // 2}" for n, (age, sex) in enumerate(rows)]
        (tmp_path / f"{name}.csv").write_text("\n".join(["age,sex,ill,person", "40,f,perhaps,p0", *lines]) + "\n")
    return tmp_path


@pytest.mark.parametrize("key", [None, "person"])
def test_a_network_and_its_claim(place: Path, key: str | None) -> None:
    unit = record() if key is None else user(key, rows=2)
    with Ledger(place / "ledger.db") as ledger:
        ledger.open("people", unit=unit, epsilon=6.0, delta=1e-4)
    (place / "train.toml").write_text(DATA + TRAIN + ("" if key is None else f'[unit]\nkey = "{key}"\nrows = 2\n'))
    assert call("train", place / "train.toml").exit_code == 0
    with Ledger(place / "ledger.db") as ledger:
        spent = ledger.spent("people")
    done = attacked(place)
    assert done.exit_code == 0, done.output
    first, found = (Release.load(place / name / "release.json") for name in ("model", "audit"))
    assert (found.claims, found.entry, found.source) == (first.claims, first.entry, first.source)
    assert found.value["shadows"] == 2
    about = [each for each in found.evidence if each.game.unit == unit]
    assert {each.attack.split()[0] for each in about} == {"bayes_lira", "lira", "loss"}
    assert {len(each.inside) for each in about} == {
        240 if key is None else 120
    }  # rows with no class are left out, as in training
    assert verdict(found.claims[0], about[0], confidence=0.95).outcome != "incomparable"
    assert (
        min(each["index"] for each in found.facts["exposed"]) > 0
    )  # numbers are those of the file, whose first row is left out
    with Ledger(place / "ledger.db") as ledger:
        assert ledger.spent("people") == spent  # shadows cost nothing
    assert "audit/release.json" in done.stderr
    assert call("audit", place / "audit" / "release.json").exit_code == 0


def test_a_federation_is_asked_about_its_clients(place: Path) -> None:
    (place / "federate.toml").write_text(DATA + FEDERATE)
    assert call("federate", place / "federate.toml").exit_code == 0
    done = attacked(place, "model/release.json", "--attacks", "lira")
    assert done.exit_code == 0, done.output
    found = Release.load(place / "audit" / "release.json")
    assert [each.attack for each in found.evidence] == ["lira", "lira by person"]
    assert found.evidence[1].game.unit == found.claims[0].game.unit
    assert int(found.evidence[1].inside.sum()) == 60


def test_a_fit_and_duplicates(place: Path) -> None:
    (place / "columns.toml").write_text('age = [0, 100]\nsex = ["f", "m"]\n')
    (place / "out.csv").write_text(
        (place / "out.csv").read_text() + "".join((place / "in.csv").read_text().splitlines(True)[2:5])
    )
    assert call("fit", "logistic", place / "in.csv", "--target", "ill", "--columns", place / "columns.toml", "--classes",
                "no,yes", "--epsilon", 2, "--delta", 1e-6, "-o", place / "model.json").exit_code == 0  # fmt: skip
    refused = attacked(place, "model.json", "--attacks", "loss,lira")
    assert refused.exit_code == 2
    assert "--drop-duplicates" in refused.stderr
    done = attacked(place, "model.json", "--attacks", "loss,lira", "--drop-duplicates", "--json")
    assert done.exit_code == 0, done.output
    told = json.loads(done.stdout)
    gone = told["left_out_in_both"]
    assert gone[1] >= gone[0] >= 3
    assert (told["members"], told["nonmembers"]) == (120 - gone[0], 123 - gone[1])
    assert f"{gone[0]} of 120 members and {gone[1]} of 123 nonmembers" in done.stderr
    found = Release.load(place / "audit" / "release.json")
    assert "members" in found.facts["attack_settings"]["rows left out, in both files"]
    assert found.claims == Release.load(place / "model.json").claims
    from pyarrow.parquet import read_table

    rows = read_table(place / "audit" / "scores.parquet").to_pydict()
    assert not {1, 2, 3} & {row for row, inside in zip(rows["row"], rows["inside"]) if inside}  # numbers of the file


def test_weights_that_are_not_those_of_the_claim_are_refused(place: Path) -> None:
    (place / "train.toml").write_text(DATA + TRAIN.replace('[ledger]\nplace = "ledger.db"\nsource = "people"\n', ""))
    assert call("train", place / "train.toml").exit_code == 0
    asked = attacked(place, "model", "--target-column", "sex")
    assert asked.exit_code == 2
    assert "predicts ill" in asked.stderr
    from safetensors.torch import load_file, save_file

    weights = {name: weight + 1 for name, weight in load_file(place / "model" / "model.safetensors").items()}
    save_file(weights, place / "model" / "model.safetensors")
    assert "another model than release.json" in attacked(place).stderr
    (place / "model" / "config.toml").unlink()
    assert "--recipe and --claim" in attacked(place).stderr
    assert trained(str(place / "in.csv")) is None


def test_half_of_the_rows_of_twice_the_people_are_as_many_people() -> None:
    draw = np.random.default_rng(0)
    X, y = draw.normal(size=(40, 2)).astype(np.float32), np.zeros(40, np.int64)
    known = Owners.of([(X[:20], y[:20]), (X[20:], y[20:])], [np.arange(40) // 2], people=10)
    assert np.bincount(known.find(X, y)).tolist() == [4] * 10
    assert len(set(known.find(X[::2], y[::2]).tolist())) == 10


def test_rows_in_both_are_found_on_both_sides() -> None:
    X, y = np.array([[1.0], [2.0], [2.0], [3.0]]), np.array([0, 1, 1, 0])
    ours, theirs = in_both(X, y, X[1:] + np.array([[0.0], [5.0], [0.0]]), np.array([1, 1, 1]))
    assert ours.tolist() == [False, True, True, False]  # the last has another label there
    assert theirs.tolist() == [True, False, False]
