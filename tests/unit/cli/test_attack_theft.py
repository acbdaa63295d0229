"""`discreet attack theft` and `property`."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch
from click.testing import CliRunner
from safetensors.torch import save_file
from torch import nn

from discreet.cli import app
from discreet.models import Recipe, Trainer


def ran(*words):
    return CliRunner().invoke(app, [str(word) for word in words])


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    folder = tmp_path_factory.mktemp("theft")
    torch.manual_seed(0)
    ours, other = (nn.Sequential(nn.Linear(10, 32), nn.ReLU(), nn.Linear(32, 2)).state_dict() for _ in range(2))
    tuned = {name: value + 0.1 * torch.randn_like(value) for name, value in ours.items()}
    small = {name: value[:4] for name, value in ours.items()}
    for name, weights in {"ours": ours, "tuned": tuned, "other": other, "small": small}.items():
        save_file({each: value.contiguous() for each, value in weights.items()}, folder / f"{name}.safetensors")
    return folder


def test_a_copy_is_accused_and_another_model_is_not(models, tmp_path):
    found = ran("attack", "theft", models / "ours.safetensors", models / "tuned.safetensors", "-o", tmp_path / "kin.json")
    assert found.exit_code == 1
    assert "made from ours" in found.stdout
    assert "made from this model" in ran("report", tmp_path / "kin.json").output
    found = ran("attack", "theft", models / "ours.safetensors", models / "other.safetensors", "--json")
    assert found.exit_code == 0
    assert not json.loads(found.stdout)["accused"]


@pytest.mark.parametrize(
    ("suspect", "words", "says"),
    [
        ("small.safetensors", (), "of one shape"),
        ("other.safetensors", ("--layers", "7.weight"), "of one shape"),
        ("other.safetensors", ("--orders", "10"), "cannot show"),
        ("other.safetensors", ("--level", "2"), "level"),
        ("none.safetensors", (), "none.safetensors"),
    ],
)
def test_what_cannot_be_compared_is_said(models, suspect, words, says):
    found = ran("attack", "theft", models / "ours.safetensors", models / suspect, *words)
    assert found.exit_code == 2
    assert says in found.output


def test_the_share_of_a_group_is_told(tmp_path):
    rng = np.random.default_rng(0)

    def rows(count, share):
        X = rng.normal(size=(count, 3)).astype(np.float32)
        X[:, 2] = np.arange(count) < share * count
        return X, (X[:, 0] + np.where(X[:, 2] == 1, 1, -1) * X[:, 1] > 0).astype(np.int64)

    recipe = Recipe(lambda: nn.Linear(3, 2), epochs=5, learning_rate=0.05)
    model = Trainer(recipe).one(*rows(200, 0.8), seed=3)
    save_file(model.state_dict(), tmp_path / "model.safetensors")
    (tmp_path / "recipe.py").write_text(
        "from torch import nn\nfrom discreet.models import Recipe\n"
        "recipe = Recipe(lambda: nn.Linear(3, 2), epochs=5, learning_rate=0.05)\n"
    )
    X, y = rows(600, 0.5)
    lines = ["a,b,group,label", *(",".join(map(str, [*row, label])) for row, label in zip(X.tolist(), y.tolist()))]
    (tmp_path / "own.csv").write_text("\n".join(lines) + "\n")
    words = ("attack", "property", tmp_path / "model.safetensors", "--recipe", tmp_path / "recipe.py", "--data",
             tmp_path / "own.csv", "--rows", 200, "--shadows", 60, "--confidence", 0.9)  # fmt: skip
    found = ran(*words, "--has", "group=1", "-o", tmp_path / "share.json", "--json")
    assert found.exit_code == 0, found.output
    told = json.loads(found.stdout)
    assert told["low"] <= 0.8 <= told["high"] < told["low"] + 2 * told["blind"]
    assert "group=1" in ran("report", tmp_path / "share.json").output
    for has, says in (("group", "COLUMN=VALUE"), ("group=7", "No row"), ("other=1", "no column 'other'")):
        found = ran(*words, "--has", has)
        assert found.exit_code == 2
        assert says in found.output
    found = ran(*words, "--has", "group=1", "--between", "1")
    assert found.exit_code == 2
    assert "two shares" in found.output
