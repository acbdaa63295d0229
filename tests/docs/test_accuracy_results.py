"""What the page of recipes shows is what bench/results/sgd_accuracy.json holds, and it holds enough runs."""

from __future__ import annotations

import gzip
import importlib.util
import json
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

torch = pytest.importorskip("torch")

ROOT = Path(__file__).parents[2]
FILE = ROOT / "bench/results/sgd_accuracy.json"
measured = pytest.mark.skipif(not FILE.exists(), reason="accuracy has not been measured yet")


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(ROOT / "bench"))
    monkeypatch.setattr(sys, "path", list(sys.path))
    spec = importlib.util.spec_from_file_location("bench_sgd_accuracy", ROOT / "bench/sgd_accuracy.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "bench_sgd_accuracy", module)
    spec.loader.exec_module(module)
    sys.modules.pop("_record", None)
    return module


@measured
def test_the_page_shows_the_results(bench: ModuleType) -> None:
    assert bench.markdown(json.loads(FILE.read_text())["cases"]) in (ROOT / "docs/guides/recipes.md").read_text(
        encoding="utf-8"
    )


@measured
def test_every_case_is_a_known_one_at_its_budget(bench: ModuleType) -> None:
    for name, row in json.loads(FILE.read_text())["cases"].items():
        case = bench.CASES[name]
        assert row["delta"] == 1e-5
        assert 0.99 * case.epsilon < row["epsilon"] <= case.epsilon
        assert row["least"] <= row["mean"] <= row["most"]
        assert row["recipe"] == f"examples/{case.recipe}.py"
        assert (ROOT / row["recipe"]).exists()


def write_idx(path: Path, values: Any) -> None:
    head = bytes([0, 0, 8, values.dim()]) + b"".join(size.to_bytes(4, "big") for size in values.shape)
    path.write_bytes(gzip.compress(head + values.byte().numpy().tobytes()))


def test_one_command_measures_and_writes(bench: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "mnist").mkdir()
    for part, count in (("train", 120), ("t10k", 40)):
        images, labels = importlib.import_module("image_data").made_up(count)
        write_idx(tmp_path / "mnist" / f"{part}-images.gz", images.clamp(0, 1) * 255)
        write_idx(tmp_path / "mnist" / f"{part}-labels.gz", labels)
    out, page = tmp_path / "out.json", tmp_path / "page.md"
    page.write_text(f"before\n{bench.MARKS[0]}\nold\n{bench.MARKS[1]}\nafter\n")
    asked = ["--data", tmp_path, "--case", "mnist-scatter-3", "--seeds", 2, "--set", "batch=60", "steps=2", "--try", "lr=1,2"]
    monkeypatch.setattr(sys, "argv", ["bench", *map(str, asked), "--out", str(out), "--page", str(page)])
    assert bench.main() == 0
    (row,) = json.loads(out.read_text())["cases"].values()
    assert len(row["runs"]) == 2
    assert 2.9 < row["epsilon"] <= 3.0
    assert row["settings"]["steps"] == 2
    assert row["runs_seen_while_choosing"] == bench.CASES["mnist-scatter-3"].seen + 2
    text = page.read_text()
    assert text.startswith("before")
    assert text.endswith("after\n")
    assert f"{row['mean']:.2f} %" in text
    assert "old" not in text
