"""Every figure in the tables of docs/guides/attacks.md and kanonymity.md stands in a committed result."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]


def result(name: str) -> dict[str, Any]:
    return json.loads((ROOT / "bench/results" / f"{name}.json").read_text())


def percent(share: float) -> str:
    return f"{share:.1%}".replace("%", " %")


def spread(row: dict[str, float]) -> str:
    return f"{percent(row['mean'])} ({percent(row['least'])} to {percent(row['most'])})"


def averaging() -> list[str]:
    rows = result("reconstruct")["averaging"]
    lines = []
    for times, told in ((1, "once"), (10, "10 times"), (100, "100 times"), (1000, "1000 times")):
        cells = [percent(row["share_right"]) for row in rows if row["times"] == times]
        lines.append(f"| {told} | {' | '.join(cells)} |")
    return lines


def reconstruction() -> list[str]:
    return [
        f"| {told(row)} | {row['people']} | {row['questions']} | {row['method'].replace('_', ' ')} | "
        f"{spread(row['share_right'])} | {'—' if row['answers'] != 'private' else percent(row['claim_allows'])} |"
        for row in result("reconstruct")["reconstruction"]
    ]


def told(row: dict[str, Any]) -> str:
    if row["answers"] == "private":
        return f"private, ε = {row['epsilon']:g}"
    return f"off by {row['largest_error']}" if row["largest_error"] else "exact"


def uniqueness() -> list[str]:
    columns = ("sample_unique", "pitman", "zayatz", "match_right", "match_right_estimate")
    lines = []
    for row in result("link")["uniqueness"]:
        sample, pitman, zayatz, right, estimate = (percent(row[name]["mean"]) for name in columns)
        lines.append(
            f"| {row['table']} | {sample} | {percent(row['population_unique'])} | {pitman} | {zayatz} | {right} | {estimate} |"
        )
    return lines


def ratings() -> list[str]:
    return [
        f"| {row['known']} | {row['wrong']} | {'± 14 days' if row['days_off'] == 14 else 'none'} | "
        f"{spread(row['best_is_right'])} | {percent(row['named']['mean'])} | "
        f"{percent(row['named_and_right_of_named']['mean'])} | {percent(row['strangers_named']['mean'])} |"
        for row in result("link")["movielens_100k"]
        if row["days_off"] != 3
    ]


@pytest.mark.parametrize("lines", [averaging, reconstruction, uniqueness, ratings])
def test_the_guide_to_attacks_shows_what_was_measured(lines) -> None:
    page = (ROOT / "docs/guides/attacks.md").read_text()
    for line in lines():
        assert line in page


def test_the_guide_to_k_anonymity_shows_what_was_measured() -> None:
    found = result("kanonymity")
    ours, peers = found["rounds"]["ours"][0], found["rounds"]["peers"][0]
    page = (ROOT / "docs/guides/kanonymity.md").read_text().replace("\n", " ")
    ratio = {name: int(value) for name, value in found["peers_times_ours"].items()}
    assert (
        f"{ours['classes']} classes where anonypy makes {peers['classes']}, in 1/{ratio['anonymise']} of its CPU time" in page
    )
    assert f"in 1/{ratio['check']} of the time" in page
    assert ours["found"] == pytest.approx(peers["found"], abs=1e-3)
