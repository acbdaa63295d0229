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
    (place / "columns.toml").write_text('age = { bins = [30, 40, 50, 60] }\nsex = ["f", "m"]\n')
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


@pytest.mark.parametrize("model", ["logistic", "svm", "regression"])
def test_what_was_fitted_predicts(folder: Path, model: str, tmp_path: Path) -> None:
    """The output of fit could not be predicted from."""
    kind = ["--target", "pay", "--bounds", 0, 10000] if model == "regression" else ["--target", "old", "--classes", "no,yes"]
    assert call(folder, model, *kind, "--epsilon", 5, "-o", tmp_path / "model.json").exit_code == 0
    new = tmp_path / "new.csv"
    new.write_text("age,sex\n20,f\n88,m\nnone,f\n")
    done = CliRunner().invoke(app, ["predict", str(tmp_path / "model.json"), str(new), "--json"])
    assert done.exit_code == 0, done.output
    told = json.loads(done.stdout)
    young, old, _ = told["pay" if model == "regression" else "old"]
    assert young < old if model == "regression" else (young, old) == ("no", "yes")
    asked = CliRunner().invoke(app, ["predict", str(tmp_path / "model.json"), str(new), "--probabilities"])
    if model == "logistic":
        shares = [[float(cell) for cell in line.split(",")[1:]] for line in asked.stdout.splitlines()[1:]]
        assert all(sum(each) == pytest.approx(1, abs=1e-4) for each in shares)
        assert shares[0][0] > 0.5 < shares[1][1]
    else:
        assert (asked.exit_code, "no probabilities" in asked.stderr) == (2, True)


def test_predictions_are_those_of_the_estimator(folder: Path, tmp_path: Path) -> None:
    from discreet.learn import LogisticRegression
    from discreet.learn.estimators.features import Features
    from discreet.learn.estimators.saved import load_fit

    known, rng = Features({"a": [0, 1], "b": ["x", "y", "z"]}), np.random.default_rng(3)
    table = {"a": rng.random(300), "b": rng.choice(["x", "y", "z"], 300)}
    y = np.where(table["a"] > 0.6, "p", np.where(table["b"] == "x", "q", "r"))
    for margin in (0.0, 1.0):
        made = LogisticRegression(
            epsilon=8.0, delta=1e-6, norm=known.norm, unit=record(), classes=["p", "q", "r"], margin=margin
        )
        made.fit(known(table), y)
        about = {"model": "logistic", "target": "y", "columns": dict(known.known), "margin": margin}
        made.release_.map(lambda value, about=about: {**about, **value}).save(tmp_path / "m.json")
        read = load_fit(tmp_path / "m.json")
        assert read.predict(table) == made.predict(known(table)).tolist()
        assert read.predict_proba(table) == pytest.approx(made.predict_proba(known(table)))


@pytest.mark.parametrize(
    ("change", "says"),
    [({"coef": [[1.0]]}, "finite numbers, 7"), ({"coef": [["x"] * 7]}, "damaged"), ({"classes": ["no"]}, "classes"),
     ({"intercept": [1.0, 2.0]}, "damaged"), ({"model": "forest"}, "model"), ({"columns": {}}, "column"),
     ({"target": None}, "target")],
)  # fmt: skip
def test_a_damaged_model_is_refused(folder: Path, tmp_path: Path, change: dict[str, object], says: str) -> None:
    assert call(folder, "logistic", *WHOLE, "-o", tmp_path / "model.json").exit_code == 0
    kept = Release.load(tmp_path / "model.json")
    kept.map(lambda value: {**value, **change}).save(tmp_path / "odd.json")
    done = CliRunner().invoke(app, ["predict", str(tmp_path / "odd.json"), str(folder / "people.parquet")])
    assert (done.exit_code, says in done.stderr) == (2, True), done.output
