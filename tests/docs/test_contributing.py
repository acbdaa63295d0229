"""The budget of false alarms: every test file that can fail by chance is listed, and the list adds up."""

from __future__ import annotations

import ast
import re

from snippets import ROOT

MOST = 1e-4
ROW = re.compile(r"^\| `((?:tests|src)/[^`]+)` \| ([\d.e-]+) \|$", re.MULTILINE)


def listed() -> dict[str, float]:
    return {name: float(rate) for name, rate in ROW.findall((ROOT / "CONTRIBUTING.md").read_text())}


def test_the_sum_stays_within_the_budget() -> None:
    assert 0 < sum(listed().values()) < MOST


def test_every_listed_file_is_there() -> None:
    assert [name for name in listed() if not (ROOT / name).exists()] == []


def test_every_file_that_tells_a_rate_is_listed() -> None:
    telling = {
        str(file.relative_to(ROOT))
        for file in (ROOT / "tests").rglob("test_*.py")
        if file.name != "test_contributing.py"
        and re.search(r"false[- ]alarm", ast.get_docstring(ast.parse(file.read_text())) or "", re.IGNORECASE)
    }
    assert telling <= set(listed()), f"CONTRIBUTING.md does not list {sorted(telling - set(listed()))}"
