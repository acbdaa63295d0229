"""`discreet train`, as it is called."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner, Result

from discreet import Ledger, record
from discreet.cli import app
from discreet.core import Release

CONFIG = """
[data]
file = "people.csv"
target = "ill"
classes = ["no", "yes"]
[data.columns]
age = [0, 100]
sex = ["f", "m"]
[model]
hidden = [8]
[train]
epsilon = 4.0
delta = 1e-5
rate = 0.05
steps = 60
clip_norm = 1.0
learning_rate = 2.0
momentum = 0.9
[output]
folder = "model"
"""


@pytest.fixture
def config(tmp_path: Path) -> Path:
    rng = np.random.default_rng(0)
    ages, sexes = rng.integers(0, 100, 2_000), rng.choice(["f", "m"], 2_000)
    lines = [f"{age},{sex},{'yes' if age > 50 else 'no'},p{i // 2}" for i, (age, sex) in enumerate(zip(ages, sexes))]
    (tmp_path / "people.csv").write_text("age,sex,ill,person\n" + "\n".join(lines) + "\n")
    (tmp_path / "train.toml").write_text(CONFIG)
    return tmp_path / "train.toml"


def call(*args: object) -> Result:
    return CliRunner().invoke(app, ["train", *map(str, args)])


def test_a_table_becomes_a_model_with_its_claim(config: Path) -> None:
    result = call(config, "--test", config.parent / "people.csv", "--json")
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout)
    assert found["test_accuracy"] > 0.9
    assert found["epsilon"] <= 4.0
    release = Release.load(config.parent / "model" / "release.json")
    assert release.claims[0].game.unit == record()
    assert {path.name for path in (config.parent / "model").iterdir()} == {"model.safetensors", "release.json", "config.toml"}


def test_a_dry_run_reads_and_writes_nothing(config: Path) -> None:
    (config.parent / "people.csv").unlink()
    result = call(config, "--dry-run")
    assert result.exit_code == 0, result.output
    assert "noise multiplier" in result.stdout
    assert not (config.parent / "model").exists()


def test_a_user_is_the_unit_and_the_ledger_pays(config: Path) -> None:
    ledger = Ledger(config.parent / "ledger.db")
    from discreet import user

    ledger.open("people", unit=user("person", rows=2), epsilon=6.0, delta=1e-4)
    config.write_text(CONFIG + '[unit]\nkey = "person"\nrows = 2\n[ledger]\nplace = "ledger.db"\nsource = "people"\n')
    result = call(config, "--json")
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout)["entry"]
    assert ledger.spent("people") > 0
    again = call(config)
    assert again.exit_code == 2
    assert "left" in again.stderr


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ("epsilon = 4.0", "epsilom = 4.0", "does not know epsilom"),
        ("epsilon = 4.0", "epsilon = 0.0", "epsilon must be"),
        ("epsilon = 4.0", "", "either epsilon or noise_multiplier"),
        ("people.csv", "absent.csv", "There is no file"),
        ("age = [0, 100]", "age = [100, 0]", "must rise"),
        ("age = [0, 100]", "height = [0, 100]", "no column"),
        ('classes = ["no", "yes"]', 'classes = ["perhaps", "never"]', "No row has"),
        ("rate = 0.05", "rate = 1.5", "rate"),
        ("steps = 60", "", "lacks steps"),
        ("[data]", "[dat]", "known are"),
        ("[data]", "[data", "not valid TOML"),
    ],
)
def test_a_wrong_file_is_told_and_nothing_is_written(config: Path, old: str, new: str, told: str) -> None:
    config.write_text(CONFIG.replace(old, new, 1))
    result = call(config)
    assert result.exit_code == 2, result.output
    assert told in " ".join(result.stderr.split())
    assert not (config.parent / "model").exists()
