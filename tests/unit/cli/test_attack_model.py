"""`discreet attack model` on users' files: weights, recipes, rows, and everything that can be wrong with them."""

from __future__ import annotations

import json
import pickle
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from click.testing import CliRunner, Result
from safetensors.torch import save_file
from torch import nn

from discreet.attack.membership import model_audit, train_shadows
from discreet.cli import app, membership, output
from discreet.core import Claim, Game, Gaussian, NonPrivate, Release, record
from discreet.models import Onnx, Recipe

RECIPE = """
from torch import nn
from discreet.models import Recipe
recipe = Recipe(lambda: nn.Sequential(nn.Linear(6, 32), nn.ReLU(), nn.Linear(32, 3)), epochs={epochs}, learning_rate=0.02)
"""


def build() -> nn.Module:
    return nn.Sequential(nn.Linear(6, 32), nn.ReLU(), nn.Linear(32, 3))


def run(*args: object) -> Result:
    return CliRunner().invoke(app, ["attack", "model", *map(str, args)])


def fitted(X: np.ndarray, y: np.ndarray) -> nn.Module:
    torch.manual_seed(1)
    model = build()
    optimizer = torch.optim.Adam(model.parameters(), 0.02)
    for _ in range(60):
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(torch.from_numpy(X)), torch.from_numpy(y)).backward()
        optimizer.step()
    return model


def table(file: Path, X: np.ndarray, y: np.ndarray, order: str = "abcdef") -> Path:
    lines = [",".join([*order, "label"])]
    for row, label in zip(X, y):
        lines.append(",".join([*(repr(float(row["abcdef".index(name)])) for name in order), str(label)]))
    file.write_text("\n".join(lines) + "\n")
    return file


@pytest.fixture(scope="module")
def ground(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model that memorised its 100 rows, and 100 others."""
    folder = tmp_path_factory.mktemp("ground")
    draw = np.random.default_rng(0)
    y = draw.integers(0, 3, 200)
    X = (draw.normal(size=(3, 6))[y] + 2.0 * draw.normal(size=(200, 6))).astype(np.float32)
    np.savez(folder / "all.npz", X=X, y=y)
    np.savez(folder / "in.npz", X=X[:100], y=y[:100])
    np.savez(folder / "out.npz", X=X[100:], y=y[100:])
    table(folder / "in.csv", X[:100], y[:100])
    table(folder / "out.csv", X[100:], y[100:], order="fedcba")
    (folder / "recipe.py").write_text(RECIPE.format(epochs=40))
    model = fitted(X[:100], y[:100])
    save_file(model.state_dict(), folder / "model.safetensors")
    torch.save(model.state_dict(), folder / "model.pt")
    return folder


def asked(ground: Path, out: Path, *more: object, weights: str = "model.safetensors", members: str = "in.csv",
          nonmembers: str = "out.csv") -> Result:  # fmt: skip
    return run(ground / weights, "--recipe", ground / "recipe.py", "--members", ground / members, "--nonmembers",
               ground / nonmembers, "--shadows", 4, "--output", out, *more)  # fmt: skip


def test_a_model_and_its_rows(ground: Path, tmp_path: Path) -> None:
    result = asked(ground, tmp_path / "audit", "--json")
    assert result.exit_code == 0, result.stderr
    found = json.loads(result.stdout)
    assert (found["members"], found["nonmembers"], found["shadows"]) == (100, 100, 4)
    by_name = {each["attack"]: each for each in found["attacks"]}
    assert set(by_name) == {"bayes_lira", "lira", "loss"}
    assert by_name["bayes_lira"]["auc"] > 0.6  # chance is 0.5 with a spread of 0.04 on 100 against 100, and all is seeded
    assert {rate["outcome"] for rate in by_name["loss"]["rates"]} == {"few rows"}
    assert [rate["nonmembers_needed"] for rate in by_name["loss"]["rates"]] == [1_000, 10_000]
    assert len(set(found["most_exposed_members"])) == 10
    assert "recipe.py: a recipe is a Python program" in result.stderr
    release = Release.load(tmp_path / "audit" / "release.json")
    assert [claim.event for claim in release.claims] == [NonPrivate()]
    assert {each.design for each in release.evidence} == {"post_hoc"}
    from pyarrow.parquet import read_table

    scores = read_table(tmp_path / "audit" / "scores.parquet").to_pydict()
    assert list(scores) == ["inside", "row", "bayes_lira", "lira", "loss", "risk", "memorisation"]
    assert all(0 <= each <= 1 for each in scores["risk"])
    assert all(-1 <= each <= 1 for each in scores["memorisation"])
    assert np.mean(scores["risk"]) > 0.5  # memorised rows are told apart; all is seeded
    assert scores["bayes_lira"] == release.evidence[0].score.tolist()
    assert scores["row"] == [*range(100), *range(100)]
    assert not (tmp_path / "audit" / "shadows").exists()
    assert CliRunner().invoke(app, ["audit", str(tmp_path / "audit" / "release.json")]).exit_code == 0


def test_controls_groups_and_facts(ground: Path, tmp_path: Path) -> None:
    for name in ("in", "out"):
        lines = (ground / f"{name}.csv").read_text().splitlines()
        place = lines[0].split(",").index("a")
        where = ["where", *("east" if float(line.split(",")[place]) > 0 else "west" for line in lines[1:])]
        (tmp_path / f"{name}.csv").write_text("\n".join(f"{line},{more}" for line, more in zip(lines, where)) + "\n")
    given = ["--group-by", "where, b", "--attacks", "bayes_lira,loss"]
    result = asked(ground, tmp_path / "audit", *given, members=str(tmp_path / "in.csv"), nonmembers=str(tmp_path / "out.csv"))
    assert result.exit_code == 0, result.stderr
    assert "AUC on an overfit control" in result.stdout
    assert "most exposed groups" in result.stdout
    facts = Release.load(tmp_path / "audit" / "release.json").facts
    kinds = {(each["name"], each["kind"]): each["found"] for each in facts["controls"]}
    assert kinds["loss on an overfit control", "positive"] is True
    assert kinds["loss on a model that saw none of the rows", "negative"] is False
    assert len(kinds) == 4
    counts = {}
    for each in facts["groups"]:
        counts[each["by"]] = counts.get(each["by"], 0) + each["n"]
    assert counts == {"class": 100, "where": 100, "b": 100}
    assert {each["group"] for each in facts["groups"] if each["by"] == "where"} == {"east", "west"}
    assert len([each for each in facts["groups"] if each["by"] == "b"]) == 4  # many numbers: quarters of them
    assert [each["index"] for each in facts["exposed"]] == Release.load(tmp_path / "audit" / "release.json").value[
        "most_exposed_members"
    ]
    assert facts["quality"]["train accuracy"] > facts["quality"]["test accuracy"]
    assert facts["seeds"] == {"shadows": 0}
    assert facts["attack_settings"]["shadow models"].startswith("4,")
    assert "1" in facts["attack_settings"]["questions to the model, for each row"]
    assert set(facts["hashes"]) == {"model.safetensors", "recipe.py", "in.csv", "out.csv"}
    assert str(tmp_path) not in json.dumps(facts.to_json())
    assert facts["made"]["packages"]["torch"] == torch.__version__


def test_members_of_another_kind_show_in_the_negative_control(ground: Path, tmp_path: Path) -> None:
    """Members whose labels are all right against others whose labels are noise: a model that saw neither tells them apart."""
    draw = np.random.default_rng(3)
    y = draw.integers(0, 3, 800)
    X = (3.0 * draw.normal(size=(3, 6))[y] + draw.normal(size=(800, 6))).astype(np.float32)
    y[400:] = draw.integers(0, 3, 400)
    np.savez(tmp_path / "in.npz", X=X[:400], y=y[:400])
    np.savez(tmp_path / "out.npz", X=X[400:], y=y[400:])
    result = asked(ground, tmp_path / "audit", "--attacks", "loss", members=str(tmp_path / "in.npz"),
                   nonmembers=str(tmp_path / "out.npz"))  # fmt: skip
    assert result.exit_code == 0, result.stderr
    assert '"finds" members of a model that saw none' in result.stderr


def test_an_attacker_with_other_rows(ground: Path, tmp_path: Path) -> None:
    draw = np.random.default_rng(4)
    y = draw.integers(0, 3, 60)
    np.savez(tmp_path / "other.npz", X=draw.normal(size=(60, 6)).astype(np.float32), y=y)
    more = ["--population", tmp_path / "other.npz", "--no-controls", "--json"]
    result = asked(ground, tmp_path / "audit", *more, members="in.npz", nonmembers="out.npz")
    assert result.exit_code == 0, result.stderr
    found = json.loads(result.stdout)
    assert [each["attack"] for each in found["attacks"]] == ["lira_offline", "rmia", "loss"]
    assert found["controls"] == []
    assert "Controls: left out." in result.stderr
    refused = asked(ground, tmp_path / "b", "--attacks", "bayes_lira", *more, members="in.npz", nonmembers="out.npz")
    assert refused.exit_code == 2
    assert "leave population out" in refused.stderr


def test_groups_that_cannot_be(ground: Path, tmp_path: Path) -> None:
    assert "no column 'z' to group by; it has a, b, c" in asked(ground, tmp_path, "--group-by", "z").stderr
    assert "names no columns" in asked(ground, tmp_path, "--group-by", "a", members="in.npz", nonmembers="out.npz").stderr


def test_columns_are_matched_by_name(ground: Path, tmp_path: Path) -> None:
    one = asked(ground, tmp_path / "a", "--attacks", "loss")
    two = asked(ground, tmp_path / "b", "--attacks", "loss", weights="model.pt", members="in.npz", nonmembers="out.npz")
    assert one.exit_code == two.exit_code == 0, one.stderr + two.stderr
    assert "10,000 non-members would narrow all of them" in one.stderr
    scores = [Release.load(tmp_path / name / "release.json").evidence[0].score for name in "ab"]
    assert np.allclose(scores[0], scores[1], atol=1e-5)


def test_every_attack_there_is(ground: Path, tmp_path: Path) -> None:
    from discreet.attack.membership import ATTACKS

    result = asked(ground, tmp_path, "--attacks", "all", "--json")
    assert result.exit_code == 0, result.stderr
    assert {"bayes_lira", "lira", "rmia", "loss", "label"} <= {each["attack"] for each in json.loads(result.stdout)["attacks"]}
    assert {each["attack"] for each in json.loads(result.stdout)["attacks"]} <= {attack.name for attack in ATTACKS}


def test_a_claim_is_carried(ground: Path, tmp_path: Path) -> None:
    claim = Claim(game=Game(record(), {"weights"}), event=Gaussian(1.0))
    facts = {"title": "Readmissions", "seeds": {"training": 7}, "quality": {"strangers": 0.7}}
    Release(value=1, source="rows", claims=(claim,), entry="3-ab", also=("4-cd",), facts=facts).save(tmp_path / "claim.json")
    result = asked(ground, tmp_path / "audit", "--attacks", "loss", "--claim", tmp_path / "claim.json")
    assert result.exit_code == 0, result.stderr
    attacked = Release.load(tmp_path / "audit" / "release.json")
    assert (attacked.claims, attacked.source, attacked.entries) == ((claim,), "rows", ("3-ab", "4-cd"))
    assert attacked.facts["title"] == "Readmissions"
    assert attacked.facts["seeds"] == {"training": 7, "shadows": 0}
    assert attacked.facts["quality"]["strangers"] == 0.7
    assert attacked.evidence
    assert "discreet audit" in result.stderr
    Release(value=1, source="rows", claims=()).save(tmp_path / "none.json")
    assert "has no claims" in asked(ground, tmp_path / "b", "--claim", tmp_path / "none.json").stderr


def test_interrupted_it_goes_on(ground: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(model_audit, "GROUP", 2)
    real = membership.reported

    class Stop:
        def __enter__(self):
            def step(done: int, count: int) -> None:
                raise KeyboardInterrupt

            return step

        def __exit__(self, *error: object) -> None: ...

    monkeypatch.setattr(membership, "reported", lambda *_: Stop())
    result = asked(ground, tmp_path, "--attacks", "bayes_lira")
    assert result.exit_code == 1
    assert "Stopped: 2 of 4 shadows are kept" in result.stderr
    kept = list((tmp_path / "shadows").glob("*/*.npz"))
    assert [each.name for each in kept] == ["models-00000-00002.npz"]
    before = kept[0].stat().st_mtime_ns
    monkeypatch.setattr(membership, "reported", real)
    assert asked(ground, tmp_path, "--attacks", "bayes_lira", "--keep-shadows").exit_code == 0
    assert len(list((tmp_path / "shadows").glob("*/*.npz"))) == 2
    assert kept[0].stat().st_mtime_ns == before


def test_progress_says_how_long(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """What an earlier run had done took no time in this one, and nothing done says nothing of the pace."""
    clock = iter([0.0, 20.0, 50.0, 80.0, 100.0])
    monkeypatch.setattr(output.time, "monotonic", lambda: next(clock))
    with output.reported(100, "training shadows") as step:
        for done in (0, 60, 80, 100):
            step(done, 100)
    assert capsys.readouterr().err.splitlines() == [
        "training shadows: 0 of 100",
        "training shadows: 60 of 100, about 20 s left",
        "training shadows: 80 of 100, about 15 s left",
    ]


def test_progress_counts_from_what_was_kept(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    clock = iter([0.0, 1.0, 31.0])
    monkeypatch.setattr(output.time, "monotonic", lambda: next(clock))
    with output.reported(100, "training shadows") as step:
        step(90, 100)  # kept by a run before
        step(95, 100)
    assert capsys.readouterr().err == "training shadows: 95 of 100, about 30 s left\n"


@pytest.mark.parametrize("size", [1, 16, 65_536, 300_000])
def test_a_bar_moves_whatever_the_steps(size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Steps of 65,536 rows were never a multiple of a hundredth of a million: the bar stood still until the end."""
    moved: list[float] = []
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    monkeypatch.setattr("rich.progress.Progress.update", lambda self, task, completed: moved.append(completed))
    count = 1_000 if size < 100 else 1_000_000
    with output.progress(count, "rows") as step:
        for done in [*range(size, count, size), count]:
            assert step is not None
            step(done, count)
    assert moved[-1] == count
    assert len(moved) >= min(count // size, 60)
    assert len(moved) <= 101


def test_pickles_need_trust(ground: Path, tmp_path: Path) -> None:
    joblib = pytest.importorskip("joblib")
    tree = pytest.importorskip("sklearn.tree").DecisionTreeClassifier(random_state=0)
    with np.load(ground / "in.npz") as rows:
        joblib.dump(tree.fit(rows["X"], np.array(["one", "two", "three"])[rows["y"]]), tmp_path / "model.joblib")
    words = {"0": "one", "1": "two", "2": "three"}
    for name in ("in", "out"):
        lines = (ground / f"{name}.csv").read_text().splitlines()
        named = [f"{line.rpartition(',')[0]},{words[line.rpartition(',')[2]]}" for line in lines[1:]]
        (tmp_path / f"{name}.csv").write_text("\n".join([lines[0], *named]) + "\n")
    given = [tmp_path / "model.joblib", "--members", tmp_path / "in.csv", "--nonmembers", tmp_path / "out.csv",
             "--output", tmp_path / "audit", "--attacks", "all", "--json"]  # fmt: skip
    refused = run(*given)
    assert refused.exit_code == 2
    assert "Say --trust-pickle" in refused.stderr
    result = run(*given, "--trust-pickle")
    assert result.exit_code == 0, result.stderr
    found = {each["attack"]: each["auc"] for each in json.loads(result.stdout)["attacks"]}
    assert "bayes_lira" not in found  # no recipe, no shadows
    assert found["loss"] > 0.7  # a full tree is right on all its rows and on few others
    (tmp_path / "out.csv").write_text((tmp_path / "out.csv").read_text().replace("three", "four"))
    assert "none of the model's 3 classes" in run(*given, "--trust-pickle").stderr


def field(number: int, value: bytes | str | int) -> bytes:
    """One field of a protobuf message."""
    if isinstance(value, int):
        return bytes([number << 3, value])
    data = value.encode() if isinstance(value, str) else value
    size = len(data)
    return bytes([number << 3 | 2, *([size] if size < 128 else [size & 127 | 128, size >> 7])]) + data


def onnx(W: np.ndarray, b: np.ndarray) -> bytes:
    """A linear model in ONNX: Y = X W + b, of one node."""

    def tensor(name: str, values: np.ndarray) -> bytes:
        dims = b"".join(field(1, size) for size in values.shape)
        return field(5, dims + field(2, 1) + field(8, name) + field(9, values.astype("<f4").tobytes()))

    def port(number: int, name: str, width: int) -> bytes:
        dims = field(1, field(2, "N")) + field(1, field(1, width))
        return field(number, field(1, name) + field(2, field(1, field(1, 1) + field(2, dims))))

    node = field(1, b"".join(field(1, name) for name in "XWB") + field(2, "Y") + field(4, "Gemm"))
    graph = node + field(2, "g") + tensor("W", W) + tensor("B", b) + port(11, "X", W.shape[0]) + port(12, "Y", W.shape[1])
    return field(1, 8) + field(7, graph) + field(8, field(2, 13))


def test_onnx_models(ground: Path, tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime", reason="ONNX models need onnxruntime")
    W, b = np.random.default_rng(0).normal(size=(6, 3)).astype(np.float32), np.array([0.1, 0.2, 0.3], np.float32)
    (tmp_path / "model.onnx").write_bytes(onnx(W, b))
    given = ["--members", ground / "in.npz", "--nonmembers", ground / "out.npz", "--output", tmp_path / "audit", "--json"]
    result = run(tmp_path / "model.onnx", *given)
    assert result.exit_code == 0, result.stderr
    assert [each["attack"] for each in json.loads(result.stdout)["attacks"]] == ["loss", "label"]  # no recipe, no shadows
    with np.load(ground / "in.npz") as rows:
        assert np.allclose(Onnx(tmp_path / "model.onnx").scores(rows["X"]), rows["X"] @ W + b, atol=1e-5)
    with_shadows = asked(
        ground, tmp_path / "more", "--attacks", "bayes_lira", "--no-controls", weights=str(tmp_path / "model.onnx")
    )
    assert with_shadows.exit_code == 0, with_shadows.stderr
    (tmp_path / "junk.onnx").write_bytes(b"junk")
    assert "cannot be read as ONNX" in run(tmp_path / "junk.onnx", *given).stderr
    (tmp_path / "narrow.onnx").write_bytes(onnx(W[:4], b))
    assert "cannot be asked about these rows" in run(tmp_path / "narrow.onnx", *given).stderr


def test_onnx_models_say_what_they_need(ground: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    (tmp_path / "model.onnx").write_bytes(b"")
    told = run(
        tmp_path / "model.onnx", "--members", ground / "in.npz", "--nonmembers", ground / "out.npz", "--output", tmp_path
    )
    assert told.exit_code == 2
    assert "discreet-privacy[onnx]" in told.stderr


class Evil:
    def __reduce__(self) -> tuple[object, tuple[object, ...]]:
        return (Path.touch, (Path("evil-was-here"),))


def test_weights_never_run_code(ground: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    torch.save({"a": Evil()}, tmp_path / "evil.pt")
    (tmp_path / "evil.bin").write_bytes(pickle.dumps(Evil()))
    for name in ("evil.pt", "evil.bin"):
        result = run(tmp_path / name, "--recipe", ground / "recipe.py", "--members", ground / "in.csv", "--nonmembers",
                     ground / "out.csv", "--output", tmp_path / "audit")  # fmt: skip
        assert result.exit_code == 2
        assert "holds something other than weights" in result.stderr
    assert not Path("evil-was-here").exists()


def wrong(ground: Path, tmp_path: Path, needle: str, **given: object) -> None:
    named = {"weights": "model.safetensors", "recipe": "recipe.py", "members": "in.npz", "nonmembers": "out.npz", **given}
    paths = {name: Path(value) if Path(str(value)).is_absolute() else ground / str(value) for name, value in named.items()}
    result = run(paths["weights"], "--recipe", paths["recipe"], "--members", paths["members"], "--nonmembers",
                 paths["nonmembers"], "--shadows", 2, "--attacks", "bayes_lira,loss",
                 "--output", tmp_path / "audit")  # fmt: skip
    assert result.exit_code == 2, result.output
    assert needle in result.stderr
    assert not (tmp_path / "audit" / "release.json").exists()


def saved(file: Path, **arrays: np.ndarray) -> Path:
    np.savez(file, **arrays)
    return file


def test_rows_that_cannot_be_right(ground: Path, tmp_path: Path) -> None:
    with np.load(ground / "out.npz") as rows:
        X, y = rows["X"], rows["y"]
    wrong(ground, tmp_path, "are members too", nonmembers="all.npz")
    wrong(ground, tmp_path, "they must be alike", nonmembers=saved(tmp_path / "narrow.npz", X=X[:, :5], y=y))
    wrong(ground, tmp_path, "the target knows 3 classes", nonmembers=saved(tmp_path / "label.npz", X=X, y=y + 1))
    wrong(ground, tmp_path, "whole numbers from 0", nonmembers=saved(tmp_path / "half.npz", X=X, y=y + 0.5))
    wrong(ground, tmp_path, "it lacks y", nonmembers=saved(tmp_path / "lacks.npz", X=X))
    wrong(ground, tmp_path, "NaN or infinite inputs", nonmembers=saved(tmp_path / "nan.npz", X=X * np.nan, y=y))
    wrong(ground, tmp_path, "There is no file", members="nothing.npz")
    (tmp_path / "junk.npz").write_bytes(b"junk")
    wrong(ground, tmp_path, "cannot be read as .npz", members=tmp_path / "junk.npz")
    lines = (ground / "out.csv").read_text()
    (tmp_path / "other.csv").write_text(lines.replace("f,e", "g,e", 1))
    wrong(ground, tmp_path, "The nonmembers lack 'f' and have 'g'", members="in.csv", nonmembers=tmp_path / "other.csv")
    narrow = "\n".join(line.partition(",")[2] for line in lines.splitlines())
    (tmp_path / "narrow.csv").write_text(narrow + "\n")
    wrong(ground, tmp_path, "The nonmembers lack 'f' (1 columns", members="in.csv", nonmembers=tmp_path / "narrow.csv")
    wrong(ground, tmp_path, "have 'f', which members do not", members=tmp_path / "narrow.csv", nonmembers="out.csv")
    (tmp_path / "text.csv").write_text("a,label\nx,1\n")
    wrong(ground, tmp_path, "holds text", members=tmp_path / "text.csv")
    (tmp_path / "bare.csv").write_text("a,b\n1,1\n")
    wrong(ground, tmp_path, "has no column 'label'", members=tmp_path / "bare.csv")


def test_models_that_cannot_be_right(ground: Path, tmp_path: Path) -> None:
    save_file({name: weight * torch.nan for name, weight in build().state_dict().items()}, tmp_path / "nan.safetensors")
    wrong(ground, tmp_path, "The target gives NaN", weights=tmp_path / "nan.safetensors")
    save_file(nn.Linear(6, 3).state_dict(), tmp_path / "other.safetensors")
    wrong(ground, tmp_path, "do not fit what the recipe builds", weights=tmp_path / "other.safetensors")
    torch.save([1, 2], tmp_path / "list.pt")
    wrong(ground, tmp_path, "not a state dict", weights=tmp_path / "list.pt")
    (tmp_path / "empty.safetensors").write_bytes(b"")
    wrong(ground, tmp_path, "or is damaged", weights=tmp_path / "empty.safetensors")
    for text, needle in (("recipe = 3", "a recipe that is a int"), ("x = 1", "defines no recipe"),
                         ("x = 1\n1 / 0", "stopped with ZeroDivisionError in line 2")):  # fmt: skip
        (tmp_path / "recipe.py").write_text(text)
        wrong(ground, tmp_path, needle, recipe=tmp_path / "recipe.py")
    if not torch.cuda.is_available():
        assert "no 'cuda' device" in asked(ground, tmp_path / "audit", "--device", "cuda").stderr
    assert "names no attack" in asked(ground, tmp_path / "audit", "--attacks", ",").stderr
    assert asked(ground, tmp_path / "audit", "--attacks", "magic").exit_code == 2


def test_a_recipe_unlike_the_target_is_told(ground: Path, tmp_path: Path) -> None:
    (tmp_path / "recipe.py").write_text(RECIPE.format(epochs=1))
    result = run(ground / "model.safetensors", "--recipe", tmp_path / "recipe.py", "--members", ground / "in.csv",
                 "--nonmembers", ground / "out.csv", "--shadows", 2, "--output", tmp_path / "audit", "--json")  # fmt: skip
    assert result.exit_code == 0, result.stderr
    assert "the recipe does not resemble the target" in result.stderr
    assert "the recipe does not resemble the target" in json.loads(result.stdout)["warnings"][0]


def test_out_of_memory_makes_groups_smaller(monkeypatch: pytest.MonkeyPatch) -> None:
    from discreet.models import stacked

    real, sizes = stacked.train_stack, []

    def greedy(recipe, X, y, inside, *rest):
        sizes.append(len(inside))
        if len(inside) > 1:
            raise MemoryError
        return real(recipe, X, y, inside, *rest)

    monkeypatch.setattr(stacked, "train_stack", greedy)
    draw = np.random.default_rng(0)
    X, y = draw.normal(size=(20, 6)).astype(np.float32), draw.integers(0, 3, 20)
    found = train_shadows(Recipe(build, epochs=1), X, y, np.eye(4, 20, dtype=bool))
    assert sizes == [4, 2, 1, 1, 2, 1, 1]
    assert found.scores.shape == (4, 20, 3)
