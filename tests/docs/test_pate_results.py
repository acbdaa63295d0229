"""The table of the guide to PATE is what bench/results/pate.json says."""

from __future__ import annotations

import json
from statistics import mean

import pytest
from snippets import ROOT

RESULTS = json.loads((ROOT / "bench/results/pate.json").read_text())["results"]
PAGE = (ROOT / "docs/guides/pate.md").read_text()


def scores(data: str, model: str, epsilon: float) -> list[float]:
    kept = (row for row in RESULTS if (row["data"], row["model"]) == (data, model))
    return [row["accuracy"] for row in kept if abs(row["epsilon"] - epsilon) < 0.02]


@pytest.mark.parametrize(
    ("data", "name", "model", "epsilons"),
    [
        ("mnist", "PATE, 250 teachers, 1,000 answers", "PATE, counts", (1, 1.9, 3, 3.2)),
        ("adult", "PATE, 250 teachers, 8,000 answers, `VoteRegressor`", "PATE, counts", (0.5, 1, 2)),
        ("adult", "objective perturbation (`LogisticRegression`)", "objective perturbation", (0.5, 1, 2)),
    ],
)
def test_the_table_is_what_was_measured(data: str, name: str, model: str, epsilons: tuple[float, ...]) -> None:
    means = " | ".join(f"{mean(scores(data, model, epsilon)):.4f}" for epsilon in epsilons)
    assert f"| {name} | {means} |" in PAGE


def test_epsilons_are_not_above_what_the_columns_say() -> None:
    assert all(row["epsilon"] <= 3.2 for row in RESULTS if row["model"].startswith("PATE"))
    assert all(len(scores("mnist", "PATE, counts", epsilon)) == 5 for epsilon in (1, 1.9, 3, 3.2))


def test_what_the_page_says_of_winning_and_losing() -> None:
    assert mean(scores("mnist", "PATE, counts", 1)) > mean(scores("mnist", "DP-SGD", 1))
    for epsilon in (0.5, 1, 2):
        plain, voted = (mean(scores("adult", model, epsilon)) for model in ("objective perturbation", "PATE, counts"))
        assert plain > voted
    assert plain - voted < 0.03
    assert mean(scores("adult", "PATE, counts", 2)) - mean(scores("adult", "PATE, confident labels", 2)) > 0.03
