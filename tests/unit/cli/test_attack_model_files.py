"""`discreet attack model` and `discreet audit`: columns, labels and folders as people have them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from click.testing import CliRunner, Result
from safetensors.torch import save_file
from torch import nn

from discreet.attack.membership import model_audit, summary
from discreet.audit import epsilon_at_least, epsilon_lower_bound
from discreet.cli import app
from discreet.core import Claim, Evidence, Game, Gaussian, Pure, Release, record
from discreet.errors import InvalidValue
from discreet.models import files
from discreet.models.files import read_recipe
from discreet.models.rows import read_rows

RECIPE = """
from torch import nn
from discreet.models import Recipe
recipe = Recipe(lambda: nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 3)), epochs=20, learning_rate=0.03)
"""
TREE = """
from discreet.models import Recipe
from sklearn.tree import DecisionTreeClassifier
recipe = Recipe(DecisionTreeClassifier())
"""
DRAW = np.random.default_rng(0)
X, Y = DRAW.normal(size=(160, 4)).astype(np.float32), DRAW.integers(0, 3, 160)


def run(*args: object) -> Result:
    return CliRunner().invoke(app, [str(each) for each in args])


def csv(file: Path, columns: dict[str, Any]) -> Path:
    rows = zip(*(np.asarray(each).tolist() for each in columns.values()))
    file.write_text(
        "\n".join([",".join(columns), *(",".join("" if c is None else str(c) for c in row) for row in rows)]) + "\n"
    )
    return file


def sides(folder: Path, order: str = "abcd", labels: Any = Y, **more: Any) -> list[object]:
    """Options that name members and non-members, their columns in this order."""
    for name, part in (("in", slice(0, 80)), ("out", slice(80, 160))):
        columns = {each: X[part, "abcd".index(each)] for each in order} | {"label": np.asarray(labels)[part]}
        csv(folder / f"{name}.csv", columns | {each: values[part] for each, values in more.items()})
    return ["--members", folder / "in.csv", "--nonmembers", folder / "out.csv"]


@pytest.fixture
def weights(tmp_path: Path) -> list[object]:
    (tmp_path / "recipe.py").write_text(RECIPE)
    torch.manual_seed(0)
    save_file(nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 3)).state_dict(), tmp_path / "model.safetensors")
    return ["attack", "model", tmp_path / "model.safetensors", "--recipe", tmp_path / "recipe.py", "--no-controls"]


class Fitted:
    """A classifier that was fitted on columns a to d, and knows the rows it was fitted on."""

    classes_ = np.array([10, 20, 30])
    feature_names_in_ = np.array(["a", "b", "c", "d"], object)

    def predict_proba(self, rows: np.ndarray) -> np.ndarray:
        right = np.abs(rows[:, None] - X[:80]).max(2) < 1e-5
        return np.where(right.any(1)[:, None], 0.8 * np.eye(3)[Y[:80][right.argmax(1)]] + 1 / 15, 1 / 3)


def test_columns_are_given_in_the_order_the_model_was_fitted_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Once they were given in the order of the file: such a model seemed to leak nothing."""
    (tmp_path / "model.joblib").write_bytes(b"")
    monkeypatch.setattr(files, "_unpickled", lambda file: Fitted())
    given = ["attack", "model", tmp_path / "model.joblib", "--trust-pickle", "--output", tmp_path / "audit", "--json"]
    for order in ("abcd", "dbca"):
        result = run(*given, *sides(tmp_path, order, labels=10 * Y + 10))
        assert result.exit_code == 0, result.stderr
        assert {each["attack"]: each["auc"] for each in json.loads(result.stdout)["attacks"]}["loss"] == 1.0
    told = run(*given, *sides(tmp_path, "abcd", labels=10 * Y + 10, e=X[:, 0])).stderr
    assert "The members have 'e', which the model was not fitted on" in told
    assert "The members lack 'b'" in run(*given, *sides(tmp_path, "acd", labels=10 * Y + 10)).stderr


def test_what_pandas_writes_of_its_index_is_no_column(tmp_path: Path) -> None:
    csv(tmp_path / "rows.csv", {"a": X[:5, 0], "__index_level_0__": np.arange(5), "label": Y[:5]})
    inputs, _, names, _ = read_rows(str(tmp_path / "rows.csv"), "label")
    assert names == ["a"]
    assert inputs.shape == (5, 1)


def test_empty_cells_are_not_called_text(tmp_path: Path) -> None:
    csv(tmp_path / "gaps.csv", {"a": [1.5, None, 2.5], "label": [0, 1, 0]})
    with pytest.raises(InvalidValue, match=r"column 'a' of .* has 1 empty cells. Fill them in"):
        read_rows(str(tmp_path / "gaps.csv"), "label")
    csv(tmp_path / "text.csv", {"a": ["x", None, "y"], "label": [0, 1, 0]})
    with pytest.raises(InvalidValue, match=r"column 'a' of .* holds text. Give it as numbers"):
        read_rows(str(tmp_path / "text.csv"), "label")


def test_whole_numbers_that_32_bits_would_merge_stay_apart(tmp_path: Path) -> None:
    csv(tmp_path / "times.csv", {"when": 1_700_000_000 + np.arange(9), "label": np.zeros(9, int)})
    assert len(np.unique(read_rows(str(tmp_path / "times.csv"), "label")[0])) == 9
    csv(tmp_path / "small.csv", {"when": np.arange(9) + 0.1, "label": np.zeros(9, int)})
    assert read_rows(str(tmp_path / "small.csv"), "label")[0].dtype == np.float32


def test_a_population_needs_no_groups(tmp_path: Path, weights: list[object]) -> None:
    csv(tmp_path / "others.csv", {**{each: 1.0 + X[:80, place] for place, each in enumerate("abcd")}, "label": Y[:80]})
    np.savez(tmp_path / "others.npz", X=1.0 + X[:80], y=Y[:80])
    given = [*weights, *sides(tmp_path, ward=np.array(["east", "west"])[Y % 2]), "--group-by", "ward", "--shadows", 2]
    for others in ("others.csv", "others.npz"):
        result = run(*given, "--population", tmp_path / others, "--output", tmp_path / "audit", "--json")
        assert result.exit_code == 0, result.stderr
        assert {each["group"] for each in json.loads(result.stdout)["groups"] if each["by"] == "ward"} == {"east", "west"}


def test_labels_say_what_is_wrong_with_them(tmp_path: Path, weights: list[object]) -> None:
    for labels, told in ((np.array(["x", "y", "z"])[Y], "they are text"), (Y + 0.5, "numbers with fractions"),
                         (np.where(np.arange(160) == 3, None, Y.astype(object)), "empty in 1 of 80 rows")):  # fmt: skip
        result = run(*weights, *sides(tmp_path, labels=labels), "--output", tmp_path / "audit")
        assert result.exit_code == 2
        assert told in result.stderr


def test_only_our_shadows_are_cleared_away(tmp_path: Path, weights: list[object]) -> None:
    """Once a whole folder called shadows was, whatever lay in it."""
    mine = tmp_path / "audit" / "shadows" / "thesis.txt"
    mine.parent.mkdir(parents=True)
    mine.write_text("years of work")
    given = [*weights, *sides(tmp_path), "--shadows", 2, "--output", tmp_path / "audit"]
    assert run(*given).exit_code == 0
    assert [each.name for each in mine.parent.iterdir()] == ["thesis.txt"]
    assert run(*given, "--seed", 1, "--keep-shadows").exit_code == 0
    assert len(list(mine.parent.glob("*/*.npz"))) == 1
    assert run(*given).exit_code == 0
    assert len(list(mine.parent.glob("*/*.npz"))) == 1  # those of the other seed


def test_the_folder_is_looked_at_before_anything_is_trained(tmp_path: Path, weights: list[object]) -> None:
    given = [*weights, *sides(tmp_path), "--attacks", "loss", "--output"]
    (tmp_path / "file").write_text("")
    assert "is a file" in run(*given, tmp_path / "file").stderr
    assert "cannot be written" in run(*given, tmp_path / "file" / "below").stderr
    release = tmp_path / "release.json"
    Release(value=1, source="rows", claims=(Claim(game=Game(record(), {"weights"}), event=Gaussian(1.0)),)).save(release)
    before = release.read_bytes()
    result = run(*given, tmp_path, "--claim", release)
    assert result.exit_code == 2
    assert "would be lost" in result.stderr
    assert release.read_bytes() == before
    assert run(*given, tmp_path / "audit").exit_code == 0
    assert "holds an audit of model.safetensors, which this one replaces" in run(*given, tmp_path / "audit").stderr


def test_shadows_are_counted_only_where_some_were_trained(tmp_path: Path, weights: list[object]) -> None:
    result = run(*weights, *sides(tmp_path), "--attacks", "loss", "--shadows", 0, "--output", tmp_path / "audit", "--json")
    assert result.exit_code == 0, result.stderr
    assert json.loads(result.stdout)["shadows"] == 0
    told = run(*weights, *sides(tmp_path), "--shadows", 1, "--output", tmp_path / "audit").stderr
    assert "shadows must be at least 2" in told
    assert "Without any: attacks=loss" in told


def test_stopped_twice_it_still_says_what_is_kept(
    tmp_path: Path, weights: list[object], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(model_audit, "GROUP", 2)
    from discreet.models import trainer

    real = trainer._train_group

    def stopped(recipe: Any, rows: Any, labels: Any, inside: Any, seeds: range, *more: Any) -> Any:
        if seeds[0] >= 2:
            raise KeyboardInterrupt
        return real(recipe, rows, labels, inside, seeds, *more)

    monkeypatch.setattr(trainer, "_train_group", stopped)
    given = [*weights, *sides(tmp_path), "--attacks", "bayes_lira", "--shadows", 4, "--output", tmp_path / "audit"]
    for _ in range(2):
        assert "Stopped: 2 of 4 shadows are kept" in run(*given).stderr


def test_shadows_of_a_network_that_was_written_anew_are_not_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "beside_it.py").write_text("WIDTH = 8\n")
    (tmp_path / "recipe.py").write_text("import beside_it\n" + RECIPE)
    read_recipe(str(tmp_path / "recipe.py"))
    given = str(tmp_path / "recipe.py"), (X, Y), 4, 0
    first = model_audit._fingerprint(*given)
    assert model_audit._fingerprint(*given) == first
    (tmp_path / "beside_it.py").write_text("WIDTH = 16\n")
    assert model_audit._fingerprint(*given) != first


@pytest.mark.parametrize(("members", "up"), [(950, 1.0), (850, 1.0), (50, -1.0)])
def test_a_larger_side_does_not_pass_for_leakage(members: int, up: float, tmp_path: Path) -> None:
    """Scores of noise that reach far to one side: a bound above 0 at 1 - 1e-7 is a false alarm of at most 1e-7 each. Taken as
    they came, the surest guesses are all of the larger side, and right as often as it is large."""
    given = {
        "game": Game(record(), {"scores"}), "attack": "noise", "score": up * np.exp(2 * DRAW.normal(size=1000)),
        "inside": np.arange(1000) < members, "run": np.zeros(1000, int), "design": "post_hoc",
    }  # fmt: skip
    evidence = Evidence(**given)
    assert epsilon_lower_bound(evidence.score, evidence.inside, evidence.run, 0.0, 1 - 1e-7) > 0.4
    assert epsilon_at_least(evidence, 0.0, 1 - 1e-7) == 0.0
    assert summary.reached(evidence, 0.0, 1 - 1e-7)["epsilon_at_least"] == 0.0
    with pytest.raises(InvalidValue, match="fair coin"):  # no coins that are fair come out like this
        Evidence(**{**given, "design": "canary"})
    claim = Claim(game=Game(record(), {"scores"}), event=Pure(0.1))
    place = Release(value=1, source="rows", claims=(claim,), evidence=(evidence,)).save(tmp_path / "release.json")
    found = json.loads(run("audit", place, "--json", "--confidence", 1 - 1e-7).stdout)
    assert found["verdicts"][0]["floor"] == 0.0


def test_a_recipe_that_leaves_is_told(tmp_path: Path) -> None:
    (tmp_path / "recipe.py").write_text("import sys\nsys.exit('bye')\n")
    with pytest.raises(InvalidValue, match="stopped with SystemExit in line 2: bye"):
        read_recipe(str(tmp_path / "recipe.py"))
    (tmp_path / "recipe.py").write_text(RECIPE + "from discreet.heuristic.defences import l2\nrecipe = l2(recipe, 0.1)\n")
    with pytest.raises(InvalidValue, match=r"is a Defended; it must say .* or defence\(…\).recipe"):
        read_recipe(str(tmp_path / "recipe.py"))


@pytest.mark.parametrize("labels", [Y + 1, Y - 7, np.array(["cat", "dog", "eel"])[Y], Y.astype(float) * 3])
def test_an_audit_numbers_classes_of_any_name(tmp_path: Path, labels: np.ndarray) -> None:
    (tmp_path / "recipe.py").write_text(RECIPE)
    rows = csv(tmp_path / "rows.csv", {**{each: X[:, place] for place, each in enumerate("abcd")}, "label": labels})
    result = run("audit", tmp_path / "recipe.py", "--data", rows, "--canaries", 40, "--delta", 1e-5, "--json", "--no-controls")
    assert result.exit_code == 0, result.stderr
    assert json.loads(result.stdout)["canaries"] == 40


def test_an_audit_of_rows_that_cannot_be(tmp_path: Path) -> None:
    (tmp_path / "recipe.py").write_text(RECIPE)
    for name, rows, labels, told in (("gaps", np.where(np.arange(160)[:, None] == 5, np.nan, X), Y, "1 of 160 rows hold NaN"),
                                     ("real", X, X[:, 0], "What a regression predicts is no class")):  # fmt: skip
        np.savez(tmp_path / f"{name}.npz", X=rows, y=labels)
        result = run("audit", tmp_path / "recipe.py", "--data", tmp_path / f"{name}.npz", "--canaries", 40, "--delta", 0)
        assert result.exit_code == 2
        assert told in result.stderr


def test_an_audit_of_a_forest_that_may_miss_a_rare_class(tmp_path: Path) -> None:
    pytest.importorskip("sklearn")
    (tmp_path / "recipe.py").write_text(TREE)
    np.savez(tmp_path / "rows.npz", X=X, y=np.where(np.arange(160) < 2, 1, 2 * (Y > 0)))
    result = run("audit", tmp_path / "recipe.py", "--data", tmp_path / "rows.npz", "--canaries", 80, "--delta", 1e-5, "--json")
    assert result.exit_code == 0, result.stderr
    assert {each["kind"] for each in json.loads(result.stdout)["controls"]} == {"positive", "negative"}


def test_too_few_canaries_are_not_said_to_be_alike(tmp_path: Path) -> None:
    (tmp_path / "recipe.py").write_text(RECIPE)
    np.savez(tmp_path / "rows.npz", X=X, y=Y)
    few = ["--canaries", 10, "--delta", 1e-5, "--confidence", 0.9999, "--no-controls"]
    told = run("audit", tmp_path / "recipe.py", "--data", tmp_path / "rows.npz", *few).stderr
    assert "No epsilon is refuted: 10 canaries, told apart with an area of" in told
    assert "So many can show 0 at most" in told
