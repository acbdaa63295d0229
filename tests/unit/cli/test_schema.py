"""One schema file, read by every command that needs public facts about columns, in one meaning."""

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

SCHEMA = """
age = [18, 90]
ward = ["A", "B"]
grade = { categories = [1, 2] }
ill = ["no", "yes"]

[notes]
type = "omit"
"""
FULL = """
[people.age]
type = "integer"
bounds = [18, 90]

[people]
ward = ["A", "B"]
grade = { values = [1, 2] }
notes = { type = "omit" }

[people.ill]
type = "categorical"
categories = ["no", "yes"]
"""
DATA = '[data]\nfile = "people.parquet"\ntarget = "ill"\nclasses = ["no", "yes"]\n'
TRAIN = "[train]\nepsilon = 4.0\ndelta = 1e-5\nrate = 0.1\nsteps = 5\nclip_norm = 1.0\nlearning_rate = 0.5\n"
ROUNDS = """
[train]
strategy = "fedavg"
rounds = 2
learning_rate = 0.5
[privacy]
kind = "central"
clip_norm = 0.5
epsilon = 8.0
delta = 1e-6
rate = 0.5
divisor = 4.0
"""


@pytest.fixture(scope="module", params=[SCHEMA, FULL], ids=["short", "full"])
def folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    place, draw = tmp_path_factory.mktemp("schema"), np.random.default_rng(1)
    age = draw.integers(18, 91, 4000)
    parquet.write_table(
        pa.table({
            "age": age, "ward": draw.choice(["A", "B"], 4000), "grade": draw.integers(1, 3, 4000),
            "ill": np.where(age > 50, "yes", "no"), "notes": ["text"] * 4000,
        }),
        place / "people.parquet",
    )  # fmt: skip
    (place / "schema.toml").write_text(request.param)
    return place


@pytest.fixture
def here(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(folder)
    return folder


def call(*args: object, code: int = 0) -> Result:
    done = CliRunner().invoke(app, [word for each in args for word in str(each).split(" ")])
    assert done.exit_code == code, done.output
    return done


def test_synth_makes_a_table_that_has_ages(here: Path) -> None:
    told = call("synth people.parquet --schema schema.toml --epsilon 2 --delta 1e-6", "--explain").output
    for line in ("age: integer 18 to 90", "ward: 2 categories", "grade: 2 categories", "notes: left out"):
        assert f"reads      {line}" in told
    call("synth people.parquet --schema schema.toml --epsilon 2 --delta 1e-6 -o made")
    made = parquet.read_table("made/synthetic.parquet").to_pandas()
    assert "notes" not in made
    assert made.isna().mean().max() < 0.05
    assert set(made["grade"].dropna()) == {1, 2}
    assert 45 < made["age"].mean() < 65
    assert made["age"].nunique() > 50


def test_query_has_ranges_and_groups(here: Path) -> None:
    sql = ("query", "people.parquet", "SELECT grade, AVG(age) AS age FROM people GROUP BY grade")
    asked = ["--epsilon", "4", "--schema", "schema.toml"]
    done = CliRunner().invoke(app, [*sql, *asked, "--json"])
    assert done.exit_code == 0, done.output
    columns = json.loads(done.stdout)["columns"]
    assert columns["grade"] == [1, 2]
    assert columns["age"] == pytest.approx([54, 54], abs=4)
    told = CliRunner().invoke(app, [*sql, *asked, "--dry-run"]).output
    assert "age: integer 18 to 90" in told
    assert "grade: 2 categories" in told


def test_fit_and_predict(here: Path) -> None:
    done = call("fit logistic people.parquet --target ill --columns schema.toml --epsilon 4 --delta 1e-6 -o model.json")
    assert "age: integer 18 to 90" in done.output
    value = Release.load("model.json").value
    assert value["classes"] == ["no", "yes"]
    assert value["columns"] == {"age": [18, 90], "ward": ["A", "B"], "grade": {"categories": [1, 2]}}
    assert len(value["coef"][0]) == 5
    call("predict model.json people.parquet -o said.csv")
    said = csv.read_csv("said.csv").to_pandas()
    truth = parquet.read_table("people.parquet").to_pandas()["ill"]
    assert (said.iloc[:, 0].to_numpy() == truth.to_numpy()).mean() > 0.8


def test_train_keeps_the_schema_beside_the_model(here: Path) -> None:
    Path("train.toml").write_text(f'{DATA}columns = "schema.toml"\n{TRAIN}[output]\nfolder = "trained"\n')
    told = call("train train.toml --dry-run").output
    assert "age: integer 18 to 90" in told
    call("train train.toml")
    from discreet.learn.table import load

    known = load("trained").encoding
    assert known.columns == {"age": [18, 90], "ward": ["A", "B"], "grade": {"categories": [1, 2]}}
    assert known.inputs({"age": [54], "ward": ["B"], "grade": [2]}).tolist() == [[0.0, 0.0, 1.0, 0.0, 1.0]]


def test_federate_leaves_the_clients_out(here: Path) -> None:
    data = f'{DATA}client = "ward"\ncolumns = "schema.toml"\n'
    Path("federate.toml").write_text(f'{data}{ROUNDS}[output]\nfolder = "federated"\n')
    told = call("federate federate.toml --dry-run").output
    assert "age: integer 18 to 90" in told
    assert "ward" not in told.replace("user", "").split("age: ")[1]
    call("federate federate.toml")
    from discreet.learn.table import load

    assert load("federated").encoding.columns == {"age": [18, 90], "grade": {"categories": [1, 2]}}


def test_attack_gradients_has_the_columns_of_a_network(here: Path) -> None:
    from discreet.attack.gradients.layout import Layout
    from discreet.cli.gradients import _schema

    layout = Layout.of(_schema("schema.toml", "ill"))
    assert layout.names == ("age", "ward", "grade")
    assert layout.ranges[0] == (18.0, 90.0)
    assert layout.categories[1:] == (("A", "B"), (1, 2))


def test_attack_synthetic_reads_it_too(here: Path) -> None:
    call("synth people.parquet --schema schema.toml --epsilon 2 --delta 1e-6 -o made")
    whole = parquet.read_table("people.parquet")
    parquet.write_table(whole.slice(0, 200), "some.parquet")
    asked = "--members some.parquet --control some.parquet --schema schema.toml --attacks density -o judged"
    call(f"attack synthetic made/synthetic.parquet {asked}")
    assert "owner_fidelity" in json.loads(Path("judged/release.json").read_text())["facts"]


@pytest.mark.parametrize(
    ("said", "told"),
    [
        ("age = [18, 40, 90]", "categories = [18, 40, 90] }, or { bins = [18, 40, 90] }"),
        ("age = [90, 18]", "must rise"),
        ("age = [18]", "a plain list of numbers or dates is a range"),
        ("age = [18, 2020-01-01]", "two numbers or two dates"),
        ("age = 18", "list of categories, a range such as [0, 120]"),
        ("[age]\nbounds = [18, 90]\nward = ['A']", "write [age.bounds]"),
        ("[age]\nbounds = [18, 90]\ncolour = 'red'", "it can say type, bounds"),
        ("[age]\ntype = 'float'", "type of age"),
        ("age = [[1, 2], [3, 4]]", "texts, numbers, truth values or dates"),
        ("[age]\ncategories = [1]\nvalues = [1]", "which are the same"),
    ],
)
@pytest.mark.parametrize("command", ["synth", "query", "fit"])
def test_what_could_mean_two_things_is_refused_and_costs_nothing(said: str, told: str, command: str, tmp_path: Path) -> None:
    parquet.write_table(pa.table({"age": [18, 40, 90], "ill": ["no", "yes", "no"]}), tmp_path / "people.parquet")
    (tmp_path / "schema.toml").write_text(f'ill = ["no", "yes"]\n{said}\n')
    with Ledger(str(tmp_path / "ledger.db")) as ledger:
        ledger.open("people", unit=record(), epsilon=2.0, delta=1e-5)
    place, schema = tmp_path / "people.parquet", tmp_path / "schema.toml"
    args = {
        "synth": ["synth", place, "--schema", schema, "--delta", "1e-6", "-o", tmp_path / "made"],
        "query": ["query", place, "SELECT COUNT(*) AS n FROM people", "--schema", schema],
        "fit": ["fit", "logistic", place, "--target", "ill", "--columns", schema, "--delta", "1e-6", "-o", tmp_path / "m.json"],
    }[command]
    paid = ["--epsilon", 1, "--ledger", tmp_path / "ledger.db", "--source", "people"]
    done = CliRunner().invoke(app, [*map(str, args), *map(str, paid)])
    assert done.exit_code == 2, done.output
    assert told in " ".join(done.output.split())
    with Ledger(str(tmp_path / "ledger.db")) as ledger:
        assert ledger.spent("people") == 0
        assert len(ledger.history("people")) == 1  # its opening
