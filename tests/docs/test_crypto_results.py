"""What the pages on encryption show is what bench/results/crypto.json holds, and it keeps to the bounds that are stated."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
ROWS = json.loads((ROOT / "bench/results/crypto.json").read_text())["rows"]


def test_the_picture_is_drawn_from_the_results(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "bench"))
    spec = importlib.util.spec_from_file_location("bench_crypto", ROOT / "bench/crypto.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    sys.modules.pop("_record", None)
    assert (ROOT / "docs/theory/lwe-noise.svg").read_text(encoding="utf-8") == module.plot(ROWS["noise"])


def test_noise_is_that_of_the_theory() -> None:
    for row in [*ROWS["noise"]["gates"], *ROWS["noise"]["sums"]]:
        assert row["measured"] == pytest.approx(row["theory"], rel=0.35), row


def test_every_measured_error_is_within_the_stated_one() -> None:
    step, row = ROWS["step"], ROWS["row"]
    found = (
        step["step"],
        step["step_with_momentum"],
        ROWS["scoring"],
        row["link_after_decryption"],
        row["sigmoid_on_ciphertext"],
    )
    for measured in found:
        assert 0 < measured["error"] < measured["stated_error"]
    assert step["step"]["stated_error"] < 1e-5
    assert 0 < ROWS["mnist"]["weights_error"] < ROWS["mnist"]["stated_error"] < 2e-3


def test_what_must_hold_holds() -> None:
    assert ROWS["naive"]["ratio"] > 3e5  # the lectures' million
    for name in ("step", "step_with_momentum"):
        assert ROWS["step"][name]["ratio"] <= ROWS["step"]["must_ratio"]
        assert ROWS["step"][name]["seconds"] <= ROWS["step"]["must_seconds"]
    mnist = ROWS["mnist"]
    assert mnist["seconds"] <= mnist["must_seconds"]
    assert abs(mnist["accuracy"] - mnist["plain_accuracy"]) <= 0.005
    assert ROWS["scoring"]["ratio"] <= ROWS["scoring"]["must_ratio"]
    assert ROWS["row"]["sigmoid_on_ciphertext"]["seconds"] <= ROWS["row"]["must_seconds"]
    assert ROWS["sum"]["encryption_seconds"] <= ROWS["sum"]["must_seconds"]
    assert ROWS["sum"]["bytes_ratio"] <= ROWS["sum"]["goal_bytes_ratio"]
    assert ROWS["intersection"]["seconds"] <= ROWS["intersection"]["must_seconds"]
    assert ROWS["nand"]["one"]["right"]
    assert ROWS["nand"]["batch"]["right"]
