"""The picture of what is left, in the guide to the ledger, is what the ledger says."""

from __future__ import annotations

import runpy
from pathlib import Path

DOCS = Path(__file__).parents[2] / "docs"


def test_the_picture_and_its_numbers_are_the_ledgers() -> None:
    made = runpy.run_path(str(DOCS / "left.py"))
    assert (DOCS / "guides" / "ledger-left.svg").read_text(encoding="utf-8") == made["drawn"]() + "\n"
    found = made["points"]()
    text = (DOCS / "guides" / "ledger.md").read_text(encoding="utf-8")
    assert f"{len(found) - 1} answers of epsilon 0.5 amount to {found[-1][2]:.2f}" in text
