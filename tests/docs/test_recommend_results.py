"""What the guide to recommenders says is what bench/results/recommend.json says."""

from __future__ import annotations

import json
from statistics import mean
from typing import Any

import pytest
from snippets import ROOT

ROWS: list[dict[str, Any]] = json.loads((ROOT / "bench/results/recommend.json").read_text())["results"]
PAGE = (ROOT / "docs/guides/recommend.md").read_text()
EPSILONS = (0.1, 0.3, 1.0, 4.0, 10.0, 30.0, 100.0, 1e6)


def part(name: str) -> list[dict[str, Any]]:
    return [row for row in ROWS if row["part"] == name]


def rmse(method: str, level: str, epsilon: float | None) -> float:
    kept = (row for row in part("curve") if (row["method"], row["level"]) == (method, level))
    return mean(row["rmse"] for row in kept if row.get("epsilon") == epsilon)


@pytest.mark.parametrize(
    ("name", "method", "level"),
    [
        ("item effects, one rating", "effects", "rating"),
        ("kNN, one rating", "knn", "rating"),
        ("SVD, one rating", "svd", "rating"),
        ("item effects, one user", "effects", "user"),
        ("least squares, one user", "als", "user"),
    ],
)
def test_the_table_is_what_was_measured(name: str, method: str, level: str) -> None:
    line = " | ".join(f"{rmse(method, level, epsilon):.3f}" for epsilon in EPSILONS)
    assert f"| {name} | {line} |" in PAGE


def test_what_the_page_says_of_it() -> None:
    base = rmse("item mean", "none", None)
    assert f"at {base:.3f}" in PAGE
    assert all(rmse(method, "rating", 0.3) < base for method in ("effects", "knn", "svd"))
    for epsilon in (1.0, 4.0, 10.0):
        assert rmse("effects", "rating", epsilon) < min(rmse(method, "rating", epsilon) for method in ("knn", "svd"))
    for epsilon in (30.0, 100.0):
        assert rmse("effects", "rating", epsilon) > max(rmse(method, "rating", epsilon) for method in ("knn", "svd"))
    assert rmse("knn", "rating", 1e6) <= 0.93
    assert rmse("effects", "user", 4.0) <= 1.0
    assert f"item effects reach {rmse('effects', 'user', 4.0):.3f} at ε = 4" in PAGE
    for epsilon in (30.0, 100.0, 1e6):
        assert rmse("als", "user", epsilon) < rmse("effects", "user", epsilon)


def test_the_loss_falls_and_the_large_table_is_near() -> None:
    rows = sorted(part("growth"), key=lambda row: row["ratings"])
    losses = [mean(row["private"] - row["not_private"] for row in rows[i : i + 3]) for i in range(0, len(rows), 3)]
    assert f"it is {losses[0]:.3f}, {losses[1]:.3f}, {losses[2]:.3f} and {losses[3]:.3f}" in PAGE
    assert losses[0] > losses[-1]
    large = {(row["tastes"], row["method"], row["epsilon"]): row for row in part("large")}
    for tastes, method in ((0, "effects"), (4, "als")):
        assert large[tastes, method, 10.0]["rmse"] <= 1.06 * large[tastes, method, 1e6]["rmse"]
    levels = [f"{large[0, 'effects', epsilon]['rmse']:.4f}" for epsilon in (10.0, 1e6)]
    assert f"{levels[0]} at user-level ε = 10 against {levels[1]} without noise" in PAGE
    tastes = [f"{large[4, 'als', epsilon]['rmse']:.3f}" for epsilon in (1.0, 10.0, 1e6)]
    assert f"{tastes[0]} at user-level ε = 1 and {tastes[1]} at 10, against {tastes[2]} without noise" in PAGE
    assert f"item effects alone {large[4, 'effects', 1e6]['rmse']:.3f} without noise" in PAGE
    pace = {row["tastes"]: row["ratings_per_cpu_s"] / 1e6 for row in part("pass")}
    assert f"takes {pace[0]:.0f} million ratings a CPU-second, a round of least squares {pace[4]:.1f} million" in PAGE
    assert min(pace.values()) >= 1


def test_the_attack_stays_below_the_claims() -> None:
    found = {row["epsilon"]: row for row in part("linkage")}
    for epsilon in (1.0, 4.0):
        assert found[epsilon]["epsilon_at_least"] < epsilon
        assert f"AUC {found[1.0]['auc']:.3f} at ε = 1, {found[4.0]['auc']:.3f} at ε = 4" in PAGE
