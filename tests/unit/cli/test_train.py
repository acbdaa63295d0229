"""`discreet train`, as it is called."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from click.testing import CliRunner, Result

from discreet import Ledger, record
from discreet.cli import app
from discreet.cli import train as train_command
from discreet.core import Release
from discreet.learn import table

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
        ("age = [0, 100]", "height = [0, 100]", "does not name 'height'"),
        ('classes = ["no", "yes"]', 'classes = ["perhaps", "never"]', "No row has"),
        ("rate = 0.05", "rate = 1.5", "rate"),
        ("steps = 60", "", "lacks steps"),
        ("[data]", "[dat]", "known are"),
        ("[data]", "[data", "is not valid TOML"),
    ],
)
def test_a_wrong_file_is_told_and_nothing_is_written(config: Path, old: str, new: str, told: str) -> None:
    config.write_text(CONFIG.replace(old, new, 1))
    result = call(config)
    assert result.exit_code == 2, result.output
    assert told in " ".join(result.stderr.split())
    assert not (config.parent / "model").exists()


def test_quality_and_predictions_from_the_folder(config: Path) -> None:
    found = json.loads(call(config, "--test", config.parent / "people.csv", "--json").stdout)
    assert all(0.9 < found[name] <= 1 for name in ("test_accuracy", "test_balanced_accuracy", "test_f1", "test_auc"))
    folder = config.parent / "model"
    quality = Release.load(folder / "release.json").facts["quality"]
    assert quality["test AUC"] == found["test_auc"]
    (config.parent / "new.csv").write_text("sex,age,name\nf,3,ann\nm,97,bob\nx,,cy\n")
    told = CliRunner().invoke(app, ["predict", str(folder), str(config.parent / "new.csv"), "--probabilities"])
    assert told.exit_code == 0, told.output
    names, *rows = [line.split(",") for line in told.stdout.splitlines()]
    assert names == ["ill", "probability of no", "probability of yes"]
    assert [row[0] for row in rows[:2]] == ["no", "yes"]
    assert all(abs(float(row[1]) + float(row[2]) - 1) < 1e-5 for row in rows)
    classifier = table.load(folder)
    known = {"age": [3, 97, None], "sex": ["f", "m", "x"]}
    assert classifier.predict(known) == [row[0] for row in rows]
    assert np.allclose(classifier.predict_proba(known)[:, 1], [float(row[2]) for row in rows], atol=1e-5)
    as_json = CliRunner().invoke(app, ["predict", str(folder), str(config.parent / "new.csv"), "--json"])
    assert json.loads(as_json.stdout)["ill"] == classifier.predict(known)
    by_release = CliRunner().invoke(app, ["predict", str(folder / "release.json"), str(config.parent / "new.csv"), "--json"])
    assert json.loads(by_release.stdout)["ill"] == classifier.predict(known)
    written = config.parent / "out.csv"
    CliRunner().invoke(app, ["predict", str(folder), str(config.parent / "new.csv"), "--output", str(written)])
    assert written.read_text().splitlines() == ["ill", *classifier.predict(known)]


def test_what_cannot_be_predicted_with(config: Path) -> None:
    def told(*args: object) -> str:
        result = CliRunner().invoke(app, ["predict", *map(str, args)])
        assert result.exit_code == 2
        return " ".join(result.output.split())

    call(config)
    folder, rows = config.parent / "model", config.parent / "people.csv"
    assert "no config.toml" in told(config.parent, rows)
    (config.parent / "other.csv").write_text("age\n3\n")
    assert "sex" in told(folder, config.parent / "other.csv")
    (folder / "config.toml").write_text(CONFIG.replace("hidden = [8]", "hidden = [9]"))
    assert "does not fit" in told(folder, rows)
    (folder / "config.toml").write_text("[data]\n")
    assert "damaged" in told(folder, rows)


def test_a_run_that_fails_after_the_charge_says_so(config: Path) -> None:
    """An error after the charge tells of it on the command line too."""
    text = CONFIG + '[ledger]\nplace = "budgets.db"\nsource = "people"\n'
    config.write_text(text.replace("learning_rate = 2.0\nmomentum = 0.9", "learning_rate = 3e38\nmomentum = 0.99"))
    with Ledger(config.parent / "budgets.db") as ledger:
        ledger.open("people", unit=record(), epsilon=8.0, delta=1e-4)
    result = call(config)
    assert result.exit_code == 2
    said = " ".join(result.output.split())
    assert "no longer finite" in said
    assert "of people was charged" in said
    assert "stays spent" in said


@pytest.mark.parametrize("table_text", [None, "age,sex\n3,f\n", "age,sex,ill\n3,f,maybe\n"])
def test_a_bad_test_table_costs_nothing(config: Path, table_text: str | None) -> None:
    config.write_text(CONFIG + '[ledger]\nplace = "budgets.db"\nsource = "people"\n')
    if table_text is not None:
        (config.parent / "public.csv").write_text(table_text)
    with Ledger(config.parent / "budgets.db") as ledger:
        ledger.open("people", unit=record(), epsilon=8.0, delta=1e-4)
        assert call(config, "--test", config.parent / "public.csv").exit_code == 2
        assert [entry.kind for entry in ledger.history("people")] == ["open"]


def test_a_loss_is_never_rounded_down_and_noise_never_up(config: Path) -> None:
    for args in (["--dry-run"], []):
        told = dict(line.split(": ", 1) for line in call(config, *args).stdout.splitlines())
        exact = json.loads(call(config, *args, "--json").stdout)
        for name, sign in (("epsilon", 1), ("delta", 1), ("noise multiplier", -1)):
            shown, true = float(told[name]), exact[name.replace(" ", "_")]
            assert 0 <= sign * (shown - true) <= 1e-5 * true
    assert train_command._shown("epsilon", 0.9999960001) == "0.999997"
    assert train_command._shown("noise_multiplier", 0.9999969) == "0.999996"


def test_a_ledger_must_be_there(config: Path) -> None:
    config.write_text(CONFIG + '[ledger]\nplace = "legder.db"\nsource = "people"\n')
    result = call(config)
    assert result.exit_code == 2
    assert "There is no ledger at" in " ".join(result.stderr.split())
    assert not (config.parent / "legder.db").exists()
    assert not (config.parent / "model").exists()


def test_a_checkpoint_goes_on(config: Path) -> None:
    settings = CONFIG.replace("[output]", 'resume = "exact"\nevery = 7\n[output]\ncheckpoint = "run.ckpt"')
    config.write_text(settings)
    assert call(config).exit_code == 0
    for name in ("run.ckpt", "run.ckpt.steps"):
        assert (config.parent / name).stat().st_mode & 0o777 == 0o600
    before = (config.parent / "model" / "model.safetensors").read_bytes()
    assert call(config).exit_code == 0  # all steps were taken: the model comes out of the checkpoint
    assert (config.parent / "model" / "model.safetensors").read_bytes() == before
    config.write_text(settings.replace("learning_rate = 2.0", "learning_rate = 1.0"))
    changed = call(config)
    assert changed.exit_code == 2
    assert "another lr" in changed.stderr


def test_all_files_of_a_release_may_be_read_by_the_same_people(config: Path) -> None:
    assert call(config).exit_code == 0
    modes = {path.name: path.stat().st_mode & 0o777 for path in (config.parent / "model").iterdir()}
    assert len(set(modes.values())) == 1, modes


def test_values_that_are_not_listed_are_in_the_owners_log(config: Path, caplog: pytest.LogCaptureFixture) -> None:
    rows = config.parent / "people.csv"
    assert call(config, "--test", rows).exit_code == 0
    assert not [record for record in caplog.records if record.name == "discreet.learn"]
    rows.write_text(rows.read_text() + "31,x,yes,p\n31,f,perhaps,p\n")
    result = call(config)
    assert result.exit_code == 0
    told = [record.getMessage() for record in caplog.records if record.name == "discreet.learn"]
    assert any("column sex: some rows have a value that is none of those listed" in line for line in told)
    assert any("column ill: rows with a value that is none of the classes are left out" in line for line in told)
    assert "perhaps" not in result.output + " ".join(told)


@pytest.mark.parametrize("odd", ['1,"f', "1.5,f,yes,", "x,f,no,p1", "01,\x00,yes,01", "1,2"])
def test_a_line_changes_nothing_about_other_rows(config: Path, odd: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What training is given differs by the rows of that line; a row without a key is nobody's."""
    import discreet.learn
    from discreet.cli.train import start
    from discreet.learn.table import Encoding

    seen: list[tuple[list[object], list[int]]] = []

    def watched(model: object, optimizer: object, data: tuple[torch.Tensor, torch.Tensor], *rest: object, **given: Any) -> None:
        rows = torch.column_stack(data).tolist()
        seen.append((rows, np.bincount(given["owners"]).tolist()))

    monkeypatch.setattr(discreet.learn, "train", watched)
    told = {**tomllib.loads(CONFIG), "unit": {"key": "person", "rows": 2}}
    known = Encoding(told["data"]["columns"], target="ill", classes=["no", "yes"])
    people = config.parent / "people.csv"
    names, body = people.read_text().split("\n", 1)
    start(told, known, config.parent)
    people.write_text(f"{names}\n{odd}\n{body}")
    start(told, known, config.parent)
    (before, owners), (after, more) = seen
    assert after[len(after) - len(before) :] == before
    assert len(after) - len(before) == sum(more) - sum(owners) <= 1


def test_numbers_listed_as_classes_are_found_cell_by_cell() -> None:
    from discreet.learn.table import Encoding

    known = Encoding({"age": [0, 100]}, target="ill", classes=[0, 1])
    assert known.read({"age": ["1", "2", "x"], "ill": ["1.0", "0", "one"]})[1].tolist() == [1, 0]
