"""What the guide to estimators says of trees, clusters and components is what bench/results say."""

from __future__ import annotations

import json
from statistics import mean
from typing import Any

import pytest
from snippets import ROOT

RESULTS = json.loads((ROOT / "bench/results/ensembles.json").read_text())["results"]
CONVENTIONS = json.loads((ROOT / "bench/results/conventions.json").read_text())["results"]
PAGE = (ROOT / "docs/guides/estimators.md").read_text()
EPSILONS = (0.1, 0.5, 1.0, 3.0, 8.0)
OURS, EBM, LIB = "discreet", "dpebm", "diffprivlib"
LINES = [
    ("adult", "`HistGradientBoostingClassifier`", OURS, "boosted trees", 4),
    ("adult", "DP-EBM", EBM, "DP-EBM", 4),
    ("adult", "diffprivlib, random forest", LIB, "random forest", 4),
    ("acs", "`HistGradientBoostingClassifier`", OURS, "boosted trees", 4),
    ("acs", "DP-EBM", EBM, "DP-EBM", 4),
    ("meps", "`HistGradientBoostingClassifier`", OURS, "boosted trees", 4),
    ("meps", "DP-EBM", EBM, "DP-EBM", 4),
    ("adult, R²", "`HistGradientBoostingRegressor`", OURS, "boosted trees, regression", 4),
    ("adult, R²", "DP-EBM", EBM, "DP-EBM, regression", 4),
    ("adult, R²", "`LinearRegression`", OURS, "linear regression, centred", 4),
    ("adult, distance", "`KMeans`, 8 clusters", OURS, "k-means", 4),
    ("adult, distance", "diffprivlib, k-means", LIB, "k-means", 4),
    ("adult, variance kept", "`PCA`, two of five", OURS, "components", 4),
    ("adult, variance kept", "diffprivlib, PCA", LIB, "components", 4),
]


def means(table: str, by: str, model: str) -> list[float]:
    fits: list[dict[str, Any]] = RESULTS[table.split(",")[0]]["fits"]
    return [
        mean(next(row["scores"] for row in fits if (row["by"], row["model"], row["epsilon"]) == (by, model, epsilon)))
        for epsilon in EPSILONS
    ]


def line(table: str, name: str, by: str, model: str, digits: int) -> str:
    return f"| {table} | {name} | " + " | ".join(f"{score:.{digits}f}" for score in means(table, by, model)) + " |"


@pytest.mark.parametrize("row", LINES, ids=lambda row: f"{row[0]} {row[1]}")
def test_the_table_is_what_was_measured(row: Any) -> None:
    assert line(*row) in PAGE


@pytest.mark.parametrize(
    ("table", "ours", "by", "theirs"),
    [
        *((table, "boosted trees", EBM, "DP-EBM") for table in ("adult", "acs", "meps")),
        ("adult", "boosted trees", LIB, "random forest"), ("adult", "boosted trees, regression", EBM, "DP-EBM, regression"),
        ("adult", "components", LIB, "components"),
    ],
)  # fmt: skip
def test_ours_is_ahead_at_every_epsilon(table: str, ours: str, by: str, theirs: str) -> None:
    assert all(a >= b for a, b in zip(means(table, OURS, ours), means(table, by, theirs)))


def test_centres_are_nearer_at_every_epsilon() -> None:
    assert all(a <= b for a, b in zip(means("adult", OURS, "k-means"), means("adult", LIB, "k-means")))


def test_no_undeclared_failure_of_three_versions_of_scikit_learn() -> None:
    assert len(CONVENTIONS) == 3
    for version, found in CONVENTIONS.items():
        assert version in PAGE
        assert all(each["failed"] == [] and each["checks"] > 40 for each in found.values())
