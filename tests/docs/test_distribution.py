"""Nobody is told to install somebody else's program: the distribution is discreet-privacy, whatever names it."""

from __future__ import annotations

import re
import subprocess
import tomllib
from pathlib import Path

from discreet.errors import MissingExtra

ROOT = Path(__file__).parents[2]
NAME = "discreet-privacy"
INSTALLS = re.compile(r"(?:pip3?|pipx|uv|uvx)(?:\s+\w+)*?\s+(?:--?[\w-]+(?:[= ]\S+)?\s+)*['\"]?(discreet[\w-]*)")
NOT_FOR_USERS = ("docs/decisions/", "CHANGELOG.md", "tests/docs/test_distribution.py")


def files() -> list[str]:
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=False).stdout.split("\n")
    return [name for name in listed if name and not name.startswith(NOT_FOR_USERS)]


def test_the_project_has_the_name_and_refers_to_itself_by_it() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["name"] == NAME
    itself = [need for needs in project["optional-dependencies"].values() for need in needs if need.startswith("discreet")]
    assert itself
    assert all(need.startswith(f"{NAME}[") for need in itself)


def test_every_command_that_installs_names_the_distribution() -> None:
    named: list[tuple[str, str]] = []
    for file in files():
        try:
            text = (ROOT / file).read_text("utf-8")
        except (UnicodeDecodeError, OSError):
            continue
        named += [(file, found) for found in INSTALLS.findall(text)]
    assert {file for file, _ in named} >= {"docs/guides/gate.md", "docs/guides/serve.md", "src/discreet/errors.py"}
    assert [pair for pair in named if pair[1] != NAME] == []


def test_an_error_names_it() -> None:
    assert f"pip install '{NAME}[pdf]'" in str(MissingExtra("weasyprint", "pdf", "A PDF"))
