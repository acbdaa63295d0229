"""Every event has its theorem: a proof in these pages, or a citation."""

from __future__ import annotations

import re

import pytest
from snippets import ROOT

from discreet.core.event import KINDS

ROWS = [line.split(" | ") for line in (ROOT / "docs/theory/events.md").read_text().splitlines() if line.startswith("| `")]
PLAIN = ("Zero", "NonPrivate")  # there is nothing to prove


def test_no_row_is_about_something_else() -> None:
    named = [name for row in ROWS for name in re.findall(r"`(\w+)`", row[0])]
    assert sorted(named) == sorted(cls.__name__ for cls in KINDS.values())


@pytest.mark.parametrize("name", [cls.__name__ for cls in KINDS.values()])
def test_every_event_has_a_proof_or_a_citation(name: str) -> None:
    by = next(row[2] for row in ROWS if f"`{name}`" in row[0])
    if name not in PLAIN:
        assert re.search(r"\]\([\w-]+\.md[#)]|\b(19|20)\d\d\b|direct:", by), f"{name}: {by}"
