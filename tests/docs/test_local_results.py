"""What the pages on local privacy show is what bench/results/local.json holds."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[2]
RESULT = json.loads((ROOT / "bench/results/local.json").read_text())


def bench(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(ROOT / "bench"))
    spec = importlib.util.spec_from_file_location("bench_local", ROOT / "bench/local.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    sys.modules.pop("_record", None)
    return module


def test_the_picture_is_drawn_from_the_results(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn = bench(monkeypatch).plot(RESULT["trust"])
    assert (ROOT / "docs/theory/local-error.svg").read_text(encoding="utf-8") == drawn


def test_central_and_local_error_fall_as_the_lecture_says() -> None:
    first, last = RESULT["trust"][0], RESULT["trust"][-1]
    growth = last["people"] / first["people"]
    assert first["central"] / last["central"] == pytest.approx(growth, rel=0.1)
    assert first["local"] / last["local"] == pytest.approx(growth**0.5, rel=0.1)


def test_variances_are_those_of_theory_and_none_is_above_the_peers() -> None:
    for row in [*RESULT["variance"], *RESULT["means"]]:
        assert abs(row["ours"]["ratio"] - 1) < 0.02, row
        if "pure_ldp" in row:
            unsure = 3 * (row["pure_ldp"]["standard_error"] + row["ours"]["standard_error"])
            assert row["ours"]["ratio"] <= row["pure_ldp"]["ratio"] + unsure, row


def test_encoding_was_measured_beside_the_peer_for_every_oracle() -> None:
    assert len(RESULT["speed"]) == 10
    assert min(row["pure_ldp_times_ours"] for row in RESULT["speed"]) >= 20
