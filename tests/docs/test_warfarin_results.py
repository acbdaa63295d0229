"""What the guide says of the warfarin case is what bench/results/warfarin.json says."""

from __future__ import annotations

import json
from statistics import mean
from typing import Any

import pytest
from snippets import ROOT

WHOLE = json.loads((ROOT / "bench/results/warfarin.json").read_text())
PAGE = (ROOT / "docs/guides/attribute.md").read_text()
RACE = "vkorc1, frequencies by race"


def of(model: str, *path: str) -> float:
    found: list[Any] = [row for row in WHOLE["results"] if row["model"] == model]
    for key in path:
        found = [row[key] for row in found]
    return mean(found)


def three(value: float) -> str:
    return f"{value:.3f}".removeprefix("0")


@pytest.mark.parametrize(
    ("says", "model", "gene"),
    [
        ("the attack, with marginal frequencies (as published)", "not private", "vkorc1"),
        ("the attack, with frequencies within each race", "not private", RACE),
        ("the attack with race, on a private model, ε = 20", "private 20", RACE),
        ("the same, ε = 1", "private 1", RACE),
    ],
)
def test_the_table_is_what_was_measured(says: str, model: str, gene: str) -> None:
    members, control = (three(of(model, "attack", gene, side)) for side in ("members", "control"))
    assert f"| {says} | {members} | {control} |" in PAGE


def test_the_ideal_the_prior_and_the_doses() -> None:
    ideal = mean(row["accuracy"] for row in WHOLE["results"] if row["model"] == "ideal" and row["gene"] == "vkorc1")
    assert f'("ideal") | | {three(ideal)} |' in PAGE
    assert of("not private", "attack", RACE, "control") > ideal - 0.05  # as published
    assert f"| {three(of('not private', 'attack', 'vkorc1', 'baseline'))} |" in PAGE
    for model in ("not private", "private 20", "private 1", "private 0.25", "35 mg for everybody"):
        assert f"{of(model, 'error_mg'):.1f} mg" in PAGE
    assert all(WHOLE["game"]["not private"][gene]["epsilon_at_least"] == 0 for gene in ("vkorc1", RACE))


def test_members_are_no_better_known_than_people_outside() -> None:
    for gene in ("vkorc1", RACE, "cyp2c9"):
        assert abs(of("not private", "attack", gene, "members") - of("not private", "attack", gene, "control")) < 0.01
    assert three(of("not private", "attack", "cyp2c9", "members")) in PAGE
