"""The table of the page on encoded gradients is what bench/results/encoded_gradients.json says."""

from __future__ import annotations

import json
import re
from statistics import mean

from snippets import ROOT

RESULTS = json.loads((ROOT / "bench/results/encoded_gradients.json").read_text())["results"]
PAGE = (ROOT / "docs/theory/encoded-gradients.md").read_text()
ROW = re.compile(r"^\| (Gaussian|Student's t) \| (plain|encoded) \| (plain|denoised) \| (.+) \|$", re.MULTILINE)


def scores(noise: str, gradient: str, update: str, epsilon: float) -> list[float]:
    names = ("noise", "gradient", "update", "asked")
    return [row["accuracy"] for row in RESULTS if tuple(row[name] for name in names) == (noise, gradient, update, epsilon)]


def test_the_table_is_what_was_measured() -> None:
    rows = ROW.findall(PAGE)
    assert len(rows) == 8
    for *cell, figures in rows:
        found = [scores(*cell, epsilon) for epsilon in (1.0, 3.2, 6.0)]
        assert figures.split(" | ") == [f"{mean(one):.4f}" if one else "–" for one in found]


def test_no_run_spent_more_than_it_was_asked() -> None:
    assert all(row["epsilon"] <= row["asked"] for row in RESULTS)
