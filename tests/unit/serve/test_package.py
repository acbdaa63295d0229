"""What a wheel must carry: every template, style and script, and nothing that was made elsewhere but htmx."""

from __future__ import annotations

import hashlib
import re
import tomllib
from pathlib import Path

import discreet.serve

HERE = Path(discreet.serve.__file__).parent
ROOT = Path(__file__).parents[3]
HTMX = "d6fdc75f204e6bdefa99b69bf1e6d4ac69b8a364f77929f45c13476b4000f717"  # 2.0.11, as its makers published it


def test_every_file_is_packaged() -> None:
    known = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["package-data"]["discreet"]
    endings = {Path(each).suffix for each in known}
    files = [file for file in HERE.rglob("*") if file.is_file() and file.suffix not in (".py", ".pyc")]
    assert len(files) > 25
    assert {file.suffix for file in files} <= endings


def test_htmx_is_as_it_was_published() -> None:
    script = HERE / "static" / "htmx.min.js"
    assert hashlib.sha256(script.read_bytes()).hexdigest() == HTMX
    assert "Zero-Clause BSD" in (HERE / "static" / "htmx.LICENSE.txt").read_text()
    assert [file.name for file in HERE.rglob("*.js")] == ["htmx.min.js"]


def test_no_page_has_script_or_style_of_its_own() -> None:
    """But for a report, which is one file wherever it is read."""
    for file in (HERE / "templates").rglob("*.html"):
        text = file.read_text()
        assert not re.search(r"<script(?! src=)|\son\w+=|javascript:", text), file.name
        assert not re.search("https?://", text), file.name
        if file.name != "release.html":
            assert not re.search(r"<style|\sstyle=", text), file.name


def test_nothing_heavy_is_loaded_to_start() -> None:
    import subprocess
    import sys

    heavy = ("torch", "pandas", "starlette", "duckdb")
    code = f"import sys, discreet.cli.serve, discreet.serve; print([it for it in {heavy} if it in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
