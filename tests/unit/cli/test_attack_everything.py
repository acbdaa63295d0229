"""`discreet attack model --all`: what fits the model and the access is tried, and one page tells of all."""

from __future__ import annotations

import json

import joblib
import numpy as np
import pytest
from click.testing import CliRunner
from safetensors.torch import save_file
from sklearn.linear_model import LogisticRegression
from sklearn.tree import DecisionTreeClassifier
from torch import nn

from discreet.cli import app
from discreet.core import Release
from discreet.models import Recipe, Trainer

RECIPE = """
from torch import nn
from discreet.models import Recipe
recipe = Recipe(lambda: nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 2)), epochs=4, learning_rate=0.02)
"""


def rows(count: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Four numbers, a column of three values, and a group whose labels follow another rule."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(count, 6)).astype(np.float32)
    X[:, 4], X[:, 5] = rng.integers(0, 3, count), rng.random(count) < 0.5
    return X, (X[:, 0] + np.where(X[:, 5] == 1, 1, -1) * X[:, 1] + X[:, 4] > 1).astype(np.int64)


def csv(path, X, y):
    lines = ["a,b,c,d,kind,group,label", *(",".join(map(str, [*row, label])) for row, label in zip(X.tolist(), y.tolist()))]
    path.write_text("\n".join(lines) + "\n")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    place = tmp_path_factory.mktemp("everything")
    X, y = rows(100, 0)
    others = rows(240, 1)
    csv(place / "in.csv", X, y), csv(place / "out.csv", *others)
    (place / "recipe.py").write_text(RECIPE)
    recipe = Recipe(lambda: nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 2)), epochs=4, learning_rate=0.02)
    model = Trainer(recipe).one(X, y, seed=7)
    save_file(model.state_dict(), place / "model.safetensors")
    joblib.dump(LogisticRegression().fit(X, y), place / "linear.joblib")
    joblib.dump(DecisionTreeClassifier(max_depth=3).fit(X, y), place / "tree.joblib")
    pictures, who = np.random.default_rng(3).random((80, 48)).astype(np.float32), np.arange(80) % 3
    joblib.dump(LogisticRegression().fit(pictures[:40], who[:40]), place / "pictures.joblib")
    np.savez(place / "pin.npz", X=pictures[:40], y=who[:40]), np.savez(place / "pout.npz", X=pictures[40:], y=who[40:])
    return place


def ran(folder, model, out, *more, members="in.csv", nonmembers="out.csv"):
    words = ["attack", "model", folder / model, "--members", folder / members, "--nonmembers", folder / nonmembers]
    done = CliRunner().invoke(app, [*map(str, [*words, "--all", "--no-controls", "-o", out, *more])])
    assert done.exit_code == 0, done.output
    return done, Release.load(out / "release.json")


def test_a_network_whose_weights_are_known(folder, tmp_path):
    done, release = ran(
        folder, "model.safetensors", tmp_path / "out", "--recipe", folder / "recipe.py", "--shadows", 4, "--group-by", "group",
        "--attacks", "loss,gradient", "--json",
    )  # fmt: skip
    facts = release.facts
    assert [each["method"] for each in facts["stealing"]] == ["relu", "learned copy"]
    assert facts["stealing"][0]["error"] < 1e-7
    assert facts["stealing"][1]["agreement"] > 0.8
    assert {each["name"] for each in facts["inference"]} == {"inference of kind", "inference of group"}
    (share,) = facts["shares"]
    truth = float(rows(100, 0)[0][:, 5].mean())
    assert share["property"] == "group 1"
    assert share["low"] <= truth <= share["high"]
    names = {each.attack for each in release.evidence}
    assert {"loss", "gradient", "attribute inference of kind"} <= names
    assert set(facts["tried"]) >= {"loss", "gradient", "attribute inference", "exact stealing", "property inference"}
    assert any(each.startswith("Model inversion: rows are no pictures") for each in facts["not_tried"])
    page = (tmp_path / "out" / "report.html").read_text()
    for heading in ("What a model tells of a hidden column", "What share of the training rows", "What answers give away"):
        assert heading in page
    assert json.loads(done.stdout)["members"] == 100


@pytest.mark.parametrize(("model", "method"), [("linear.joblib", "linear"), ("tree.joblib", "tree")])
def test_models_of_scikit_learn(folder, tmp_path, model, method):
    _, release = ran(folder, model, tmp_path / "out", "--trust-pickle", "--access", "scores", "--attacks", "loss")
    assert [each["method"] for each in release.facts["stealing"]] == [method, "learned copy"]
    assert any("say how with a recipe" in each for each in release.facts["not_tried"])


def test_labels_alone(folder, tmp_path):
    _, release = ran(folder, "linear.joblib", tmp_path / "out", "--trust-pickle", "--access", "labels", "--attacks", "label")
    assert [each["method"] for each in release.facts["stealing"]] == ["learned copy"]
    assert {name for each in release.evidence for name in each.game.view} == {"labels"}
    assert any(each.startswith("Reconstruction of training data") for each in release.facts["not_tried"])
    assert sum("needs more than labels" in each for each in release.facts["not_tried"]) == 3


def test_pictures_are_recreated_and_shown(folder, tmp_path):
    _, release = ran(
        folder, "pictures.joblib", tmp_path / "out", "--trust-pickle", "--access", "scores", "--shape", "8,6,1",
        "--attacks", "loss", members="pin.npz", nonmembers="pout.npz",
    )  # fmt: skip
    (found,) = release.facts["recreated"]
    assert (found["method"], found["classes"], found["prior"]) == ("black-box", 3, "non-members")
    page = (tmp_path / "out" / "report.html").read_text()
    assert f"data:image/png;base64,{found['picture']}" in page
    assert "for the owner of the data alone" in page
    assert not any(each.startswith("Reconstruction of training data") for each in release.facts["not_tried"])


def test_access_without_all_is_refused(folder, tmp_path):
    words = ["attack", "model", folder / "linear.joblib", "--members", folder / "in.csv", "--nonmembers", folder / "out.csv"]
    done = CliRunner().invoke(app, [*map(str, [*words, "--trust-pickle", "--access", "labels", "-o", tmp_path])])
    assert done.exit_code == 2
    assert "--all" in done.output
