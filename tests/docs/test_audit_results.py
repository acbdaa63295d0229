"""The tables of docs/guides/audit-training.md are those of bench/results/audit_training.json."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/guides/audit-training.md").read_text(encoding="utf-8")
FOUND: dict[str, Any] = json.loads((ROOT / "bench/results/audit_training.json").read_text())
BUGS = {row["bug"]: row for row in FOUND["bugs"]["table"]}


def percent(value: float) -> str:
    return f"{value:.1%}".replace("%", " %")


@pytest.mark.parametrize("row", BUGS.values(), ids=list(BUGS))
def test_the_planted_bugs_stand_in_the_results(row: dict[str, Any]) -> None:
    line = (
        f"| {row['bug']} | {row['what']} | {row['refuted']:,} of {row['runs']:,} | {percent(row['low'])} to "
        f"{percent(row['high'])} | {row['floor_median']:.2f} |"
    )
    assert line in PAGE


def test_every_bug_is_found_and_nothing_else() -> None:
    """Power of at least 95 % and false alarms of at most 5 %, by the ends of exact intervals."""
    assert {"sound", "no clipping", "noise / divisor", "same noise", "known seed", "shuffled", "epsilon + 2"} <= set(BUGS)
    sound = BUGS["sound"]
    assert sound["runs"] >= 1000
    assert sound["high"] <= 0.05
    assert sound["floor_above_claim"] <= 0.05 * sound["runs"]
    for name, row in BUGS.items():
        if name != "sound":
            assert row["runs"] >= 200
            assert row["low"] >= 0.95, name
