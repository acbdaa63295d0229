"""What the page of recipes shows is what bench/results/sgd_accuracy.json holds, and it holds enough runs."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path
from types import ModuleType

import pytest

pytest.importorskip("torch")

ROOT = Path(__file__).parents[2]
FILE = ROOT / "bench/results/sgd_accuracy.json"
pytestmark = pytest.mark.skipif(not FILE.exists(), reason="accuracy has not been measured yet")


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


def test_the_page_shows_the_results(bench: ModuleType) -> None:
    assert bench.markdown(json.loads(FILE.read_text())["cases"]) in (ROOT / "docs/guides/recipes.md").read_text(
        encoding="utf-8"
    )


def test_every_case_is_a_known_one_at_its_budget(bench: ModuleType) -> None:
    for name, row in json.loads(FILE.read_text())["cases"].items():
        case = bench.CASES[name]
        assert row["delta"] == 1e-5
        assert 0.99 * case.epsilon < row["epsilon"] <= case.epsilon
        assert row["least"] <= row["mean"] <= row["most"]
        assert row["recipe"] == f"examples/{case.recipe}.py"
        assert (ROOT / row["recipe"]).exists()
