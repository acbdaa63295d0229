"""The table of the guide to estimators is what bench/results/estimators.json says."""

from __future__ import annotations

import json
from statistics import mean

import pytest
from snippets import ROOT

RESULTS = json.loads((ROOT / "bench/results/estimators.json").read_text())["results"]
PAGE = (ROOT / "docs/guides/estimators.md").read_text()
EPSILONS = (0.1, 0.5, 1.0, 3.0, 8.0)


def scores(table: str, by: str, models: tuple[str, ...]) -> list[float]:
    """The mean at each epsilon; of several models the best."""
    fits = RESULTS[table]["fits"]
    return [
        max(mean(row["scores"]) for row in fits if (row["by"], row["epsilon"]) == (by, e) and row["model"] in models)
        for e in EPSILONS
    ]


def line(table: str, name: str, by: str, models: tuple[str, ...]) -> str:
    return f"| {table} | {name} | " + " | ".join(f"{score:.4f}" for score in scores(table, by, models)) + " |"


@pytest.mark.parametrize("table", ["adult", "acs", "meps"])
def test_the_table_is_what_was_measured(table: str) -> None:
    assert line(table, "`LogisticRegression`", "discreet", ("logistic",)) in PAGE
    assert (
        line(table, "diffprivlib 0.6.6, the better of C = 1 and .01", "diffprivlib", ("logistic C=1", "logistic C=.01")) in PAGE
    )
    assert line(table, "DP-EBM 0.7.8", "dpebm", ("DP-EBM",)) in PAGE


@pytest.mark.parametrize("table", ["adult", "acs", "meps"])
def test_naive_bayes_is_ahead_at_every_epsilon(table: str) -> None:
    theirs = "diffprivlib 0.6.6, naive Bayes"
    for name, by in (("`GaussianNB`", "discreet"), (theirs, "diffprivlib")):
        assert line(table, name, by, ("naive Bayes",)) in PAGE
    ours, peer = (scores(table, by, ("naive Bayes",)) for by in ("discreet", "diffprivlib"))
    assert all(a >= b for a, b in zip(ours, peer))


@pytest.mark.parametrize("table", ["adult", "acs", "meps"])
def test_logistic_regression_is_ahead_at_every_epsilon(table: str) -> None:
    ours = scores(table, "discreet", ("logistic",))
    for by, models in (("diffprivlib", ("logistic C=1", "logistic C=.01")), ("dpebm", ("DP-EBM",))):
        assert all(a >= b for a, b in zip(ours, scores(table, by, models))), by


def test_the_audit_refutes_diffprivlib_and_the_search_beats_the_split() -> None:
    found = RESULTS["audit of diffprivlib 0.6.6"]
    assert found["epsilon_at_least"] > found["claimed"]
    assert f"at least {found['epsilon_at_least']:.2f}" in PAGE
    line = RESULTS["audit of diffprivlib 0.6.6, linear regression"]
    assert line["epsilon_at_least"] > line["claimed"] == 4
    assert f"linear regression at least {line['epsilon_at_least']:.1f}" in PAGE
    for row in RESULTS["search on adult"]:
        assert mean(row["private search"]) > mean(row["naive split"])
