"""Pipelines over data frames with numbers, text and categories, audited in Python and from the command line.

False alarms: 1e-6, where a one-run audit draws its own coins.
"""

from __future__ import annotations

import inspect
import json
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from discreet.attack import Recipe, membership
from discreet.cli import app
from discreet.errors import InvalidValue
from discreet.models.frames import ByName, Columns, recipe_by_name

pandas = pytest.importorskip("pandas")
joblib = pytest.importorskip("joblib")
sklearn = pytest.importorskip("sklearn")


def pipeline():
    from sklearn.compose import ColumnTransformer
    from sklearn.feature_extraction.text import CountVectorizer
    from sklearn.impute import SimpleImputer
    from sklearn.pipeline import Pipeline
    from sklearn.preprocessing import OneHotEncoder
    from sklearn.tree import DecisionTreeClassifier

    prepare = ColumnTransformer([
        ("numbers", SimpleImputer(), ["age"]), ("categories", OneHotEncoder(handle_unknown="ignore"), ["ward"]),
        ("text", CountVectorizer(), "note"),
    ])  # fmt: skip
    return Pipeline([("prepare", prepare), ("model", DecisionTreeClassifier(random_state=0))])


RECIPE = f"from discreet.models import Recipe\n\n{inspect.getsource(pipeline)}\nrecipe = Recipe(pipeline())\n"
WORDS = ["cough", "fever", "rash", "pain", "tired", "well"]


def people(count: int, seed: int):
    """Ages with empty cells, wards, notes; and a label that has little to do with them, so that a tree memorises rows."""
    rng = np.random.default_rng(seed)
    frame = pandas.DataFrame({
        "age": np.where(rng.random(count) < 0.1, np.nan, rng.integers(0, 90, count)),
        "ward": rng.choice(["north", "south", "east"], count),
        "note": [" ".join(rng.choice(WORDS, 4)) + f" bed{rng.integers(10**6)}" for _ in range(count)],
    })  # fmt: skip
    return frame, rng.choice(["home", "stay"], count)


@pytest.fixture(scope="module")
def trained():
    inside, outside = people(120, 1), people(120, 2)
    return pipeline().fit(*inside), inside, outside


@pytest.mark.parametrize("categorical", [False, True])
def test_a_pipeline_that_learned_by_heart_is_found_out(trained, categorical) -> None:
    model, inside, outside = trained
    if categorical:
        inside, outside = ((x.assign(ward=x["ward"].astype("category")), y) for x, y in (inside, outside))
        model = pipeline().fit(*inside)
    recipe = Recipe(pipeline())
    found = membership(model, recipe, inside, outside, attacks=["lira", "loss"], shadows=8, controls=True)
    assert found["loss"].auc() > 0.7
    assert found["lira"].auc() > 0.7
    assert found.controls is not None
    assert found.controls.positive["loss"].auc() > 0.7
    assert 0.3 < found.controls.negative["loss"].auc() < 0.7


def test_all_means_what_text_allows(trained) -> None:
    model, inside, outside = trained
    assert set(membership(model, None, inside, outside, attacks="all")) == {"loss", "confidence", "entropy", "label"}
    with pytest.raises(InvalidValue, match="needs inputs that are numbers"):
        membership(model, None, inside, outside, attacks=["noise"])


def test_frames_of_numbers_keep_their_names_and_all_attacks() -> None:
    from sklearn.compose import ColumnTransformer
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    rng = np.random.default_rng(0)
    frames = [pandas.DataFrame(rng.normal(size=(80, 2)), columns=["a", "b"]) for _ in range(2)]
    labels = [rng.integers(2, size=80) for _ in range(2)]
    model = make_pipeline(ColumnTransformer([("s", StandardScaler(), ["b", "a"])]), LogisticRegression())
    model.fit(frames[0], labels[0])
    found = membership(model, None, (frames[0], labels[0]), (frames[1], labels[1]), attacks=["loss", "noise"])
    assert set(found) == {"loss", "noise"}


def test_rows_and_frames_are_the_same() -> None:
    frame, _ = people(20, 3)
    frame["ward"] = frame["ward"].astype("category")
    columns = Columns.of([frame, frame.assign(ward=pandas.Categorical(["west"] * 20))])
    rows = columns.rows(frame)
    again = columns.table(rows[[3, 1]])
    assert again["note"].tolist() == frame["note"].iloc[[3, 1]].tolist()
    assert again["age"].dtype == np.float64
    assert set(again["ward"].cat.categories) == {"north", "south", "east", "west"}
    with pytest.raises(InvalidValue, match="lack 'note'"):
        columns.rows(frame.drop(columns="note"))


def test_functions_that_fit_frames() -> None:
    frame, y = people(40, 4)
    seen = []

    def fit(rows, labels):
        seen.append(list(rows.columns))
        return lambda asked: np.stack([asked["age"].isna(), ~asked["age"].isna()], 1).astype(float)

    columns = Columns.of([frame])
    recipe = recipe_by_name(Recipe(fit, kind="fit"), columns)
    assert recipe is not None
    scores = recipe.fit_one(columns.rows(frame), (y == "home").astype(int), 0, 2)(columns.rows(frame))
    assert seen == [["age", "ward", "note"]]
    assert scores.shape == (40, 2)
    assert not hasattr(ByName(pipeline(), columns), "classes_")


@pytest.fixture
def files(trained, tmp_path: Path) -> Path:
    model, inside, outside = trained
    joblib.dump(model, tmp_path / "model.joblib")
    for name, (frame, y) in {"in": inside, "out": outside}.items():
        frame.assign(label=y).to_csv(tmp_path / f"{name}.csv", index=False)
    (tmp_path / "recipe.py").write_text(RECIPE)
    return tmp_path


def call(*args: object):
    return CliRunner().invoke(app, [str(each) for each in args])


def test_attacked_from_the_command_line(files: Path) -> None:
    common = ("--members", files / "in.csv", "--nonmembers", files / "out.csv", "--trust-pickle", "--json")
    result = call("attack", "model", files / "model.joblib", *common, "--recipe", files / "recipe.py", "--shadows", 8,
                  "--group-by", "ward", "--output", files / "found")  # fmt: skip
    assert result.exit_code == 0, result.output
    told = json.loads(result.stdout)
    assert all(each["auc"] > 0.7 for each in told["attacks"])
    assert {each["group"] for each in told["groups"] if each["by"] == "ward"} >= {"north", "south", "east"}
    alone = call("attack", "model", files / "model.joblib", *common, "--output", files / "alone")
    assert {each["attack"] for each in json.loads(alone.stdout)["attacks"]} == {"loss", "label"}


def test_audited_in_one_run_from_the_command_line(files: Path) -> None:
    result = call("audit", files / "recipe.py", "--data", files / "in.csv", "--canaries", 60, "--delta", 1e-5, "--json")
    assert result.exit_code == 0, result.output
    told = json.loads(result.stdout)
    assert told["canaries"] == 60
    assert told["auc"] > 0.5  # the tree knows all that were inside; of the others it guesses not one in 2^20 audits all wrong
    assert len(told["controls"]) == 2


def test_a_model_that_does_not_take_text_is_told_so(files: Path) -> None:
    (files / "network.py").write_text(
        "from torch import nn\nfrom discreet.models import Recipe\nrecipe = Recipe(lambda: nn.Linear(3, 2))\n"
    )
    result = call("audit", files / "network.py", "--data", files / "in.csv", "--canaries", 60, "--delta", 1e-5)
    assert result.exit_code == 2
    assert "holds text" in " ".join(result.output.split()) or "empty cells" in " ".join(result.output.split())
