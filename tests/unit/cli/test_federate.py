"""`discreet federate`, as it is called."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner, Result

from discreet import Ledger, user
from discreet.cli import app
from discreet.core import Release
from discreet.core import event as events
from discreet.report import html

CONFIG = """
[data]
file = "people.csv"
target = "old"
classes = ["no", "yes"]
client = "town"
columns = { age = [18, 90] }

[train]
strategy = "fedavg"
rounds = 6
learning_rate = 1.0

[privacy]
kind = "central"
clip_norm = 1.0
epsilon = 8.0
delta = 1e-6
rate = 1.0
divisor = 30.0

[ledger]
place = "ledger.db"
source = "people"

[output]
folder = "model"
checkpoint = "run"
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    draw = np.random.default_rng(1)
    lines = [f"{age},{'yes' if age > 50 else 'no'},t{draw.integers(30)}" for age in draw.integers(18, 90, 900)]
    (tmp_path / "people.csv").write_text("age,old,town\n" + "\n".join([*lines, "40,no,"]) + "\n")
    (tmp_path / "federate.toml").write_text(CONFIG)
    with Ledger(tmp_path / "ledger.db") as ledger:
        ledger.open("people", unit=user("town", rows=None), epsilon=10.0, delta=1e-5)
    return tmp_path


def call(folder: Path, *words: str) -> Result:
    return CliRunner().invoke(app, ["federate", str(folder / "federate.toml"), *words])


def test_a_model_paid_by_a_ledger(folder: Path) -> None:
    done = call(folder, "--json", "--test", str(folder / "people.csv"))
    assert done.exit_code == 0, done.output
    told = json.loads(done.stdout)
    assert told["epsilon"] == 8.0
    assert told["test_accuracy"] > 0.55
    release = Release.load(folder / "model" / "release.json")
    assert release.entry == told["entry"]
    assert isinstance(release.claims[0].event, events.Repeat)
    with Ledger(folder / "ledger.db") as ledger:
        assert ledger.payment(release) is not None
    page = html(release)
    assert "Federated training" in page
    assert "about 30, each drawn on its own" in page
    assert "every update as it is: it is trusted" in page
    again = call(folder, "--json")  # from the checkpoint, which has all rounds
    assert json.loads(again.stdout)["entry"] == told["entry"]
    predicted = CliRunner().invoke(app, ["predict", str(folder / "model"), str(folder / "people.csv")])
    assert predicted.exit_code == 0, predicted.output


def test_a_plan_reads_and_spends_nothing(folder: Path) -> None:
    (folder / "people.csv").unlink()
    done = call(folder, "--dry-run")
    assert done.exit_code == 0, done.output
    assert "unit: one user (any number of rows, known by town), added or removed" in done.output
    with Ledger(folder / "ledger.db") as ledger:
        assert ledger.spent("people") == 0


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("rounds = 6", "", "lacks rounds"),
        ("rounds = 6", "rounds = 0", "rounds must be at least 1"),
        ('kind = "central"', 'kind = "trusted"', "must be central, local, distributed"),
        ("divisor = 30.0", "divizor = 30.0", "does not know divizor"),
        ("divisor = 30.0", "", "missing 1 required"),
        ("divisor = 30.0", "divisor = 30.0\ntimes = 2", "does not know times"),
        ("learning_rate = 1.0", "learning_rate = 1.0\nupload = 0.1", "does not know upload"),
        ("[model]", "[network]", ""),
        ('place = "ledger.db"', 'place = "none.db"', "no ledger at"),
        ('client = "town"', 'client = "city"', "city"),
    ],
)
def test_what_cannot_be_meant_is_refused(folder: Path, old: str, new: str, said: str) -> None:
    (folder / "federate.toml").write_text(CONFIG.replace(old, new) if old in CONFIG else f"{CONFIG}\n{new}\n")
    done = call(folder)
    assert done.exit_code == 2, done.output
    assert said in done.output


def test_a_column_with_one_client_is_no_federation(folder: Path) -> None:
    (folder / "people.csv").write_text("age,old,town\n40,no,a\n50,no,a\n")
    done = call(folder)
    assert done.exit_code == 2
    assert "belong to 1 client" in done.output
