"""The guide to other trainers, run from top to bottom."""

from __future__ import annotations

import pytest
from snippets import ROOT, blocks

pytestmark = pytest.mark.filterwarnings("ignore")


def test_the_guide_runs(tmp_path, monkeypatch):
    for name in ("lightning", "transformers", "peft"):
        pytest.importorskip(name, reason=f"{name} is not installed: pip install 'discreet[lightning,huggingface]'")
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {"__name__": "__guide__"}
    for block in blocks(ROOT / "docs/guides/trainers.md"):
        if block.language == "py":
            exec(compile(block.text, "trainers.md", "exec"), names)  # noqa: S102 (our own documentation)
    for folder in ("model", "model-hf", "adapters"):
        assert (tmp_path / folder / "release.json").is_file()
