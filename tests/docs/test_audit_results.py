"""The tables of docs/guides/audit-training.md are those of bench/results/audit_training.json."""

from __future__ import annotations

import json
from pathlib import Path
from statistics import median
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


MODELS = FOUND["models"]
ATTACK_PAGE = (ROOT / "docs/guides/attack-model.md").read_text(encoding="utf-8")


def private_line(row: dict[str, Any], audit: dict[str, Any] | None) -> str:
    best = max(row["attacks"], key=lambda each: each["auc"])
    high = max(row["attacks"], key=lambda each: each["tpr"]["0.01"])
    floor = max(each["largest_floor"] for each in row["attacks"])
    claimed = "no privacy" if row["epsilon"] is None else f"{row['epsilon']:g}"
    allowed = "—" if row["epsilon"] is None else percent(row["allowed"]["0.01"])
    floors = [audit["floor_by_scores"], audit["floor_by_updates"]] if audit else []
    runs = " | ".join(f"{median(each):.2f}" for each in floors) if audit else "— | —"
    return (
        f"| {claimed} | {percent(row['test_accuracy'])} | {best['auc']:.3f} (`{best['attack']}`) | "
        f"{percent(high['tpr']['0.01'])} (`{high['attack']}`) | {allowed} | {floor:.2f} | {runs} |"
    )


@pytest.mark.parametrize("row", MODELS["attacked"], ids=lambda row: str(row["epsilon"]))
def test_private_models_stand_in_the_results(row: dict[str, Any]) -> None:
    audits = {each["epsilon"]: each for each in MODELS["one_run"]}
    assert private_line(row, audits.get(row["epsilon"])) in ATTACK_PAGE


def test_every_floor_is_under_its_claim() -> None:
    claimed = [row for row in MODELS["attacked"] if row["epsilon"] is not None]
    assert [row["epsilon"] for row in claimed] == [8.0, 3.0, 1.0]
    for row in claimed:
        assert all(each["largest_floor"] <= row["epsilon"] for each in row["attacks"])
        assert all(each["tpr"]["0.01"] <= row["allowed"]["0.01"] for each in row["attacks"])
    for row in MODELS["one_run"]:
        assert max(*row["floor_by_scores"], *row["floor_by_updates"]) <= row["epsilon"]
        assert set(row["verdicts"]) == {"holds"}


def test_the_command_is_done_in_five_minutes() -> None:
    found = FOUND["command"]
    assert (found["rows"], found["inputs"], found["classes"], found["shadows"]) == (10_000, 600, 100, 64)
    assert found["seconds"] < 300
    assert f"{found['cpu_seconds']:.0f} CPU-seconds\nand, on two cores, {found['seconds']:.0f} seconds" in ATTACK_PAGE
