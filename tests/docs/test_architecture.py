"""The page on the architecture: its layers are those that are checked, and its walks pass the files that it names."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/architecture.md").read_text()
# Passed or not by chance (a rare draw takes another way), or by what was built on this machine.
SOMETIMES = {
    "noise/digits.py",
    "noise/exact.py",
    "noise/samplers.py",
    "models/chain.py",
    "models/kernels.py",
    "native/__init__.py",
    "learn/sgd/native.py",
    "learn/sgd/normal.py",
    "learn/sgd/keystream.py",
    "learn/sgd/engine/tune.py",
}


def named(walk: str) -> tuple[int, set[str]]:
    """How many files the page says, and which."""
    text = PAGE.partition(f"### {walk}: ")[2].partition("\n###")[0]
    rows = re.findall(r"^\| `([^`]+)` \| (.+) \|$", text, re.MULTILINE)
    files = {
        file if folder == "." else f"{folder}/{file}" for folder, names in rows for file in re.findall(r"`([^`]+)`", names)
    }
    return int(text.split()[0]), files


@pytest.fixture(scope="module")
def walks() -> dict[str, list[str]]:
    """In a process of its own, where nothing is remembered from other tests."""
    command = [sys.executable, "-W", "ignore", str(Path(__file__).with_name("walks.py"))]
    return json.loads(subprocess.run(command, check=True, capture_output=True, text=True, cwd=ROOT).stdout)


@pytest.mark.parametrize("walk", ["A SQL question", "A training run", "An audit"])
def test_a_walk_passes_the_files_that_are_named(walk: str, walks: dict[str, list[str]]) -> None:
    count, files = named(walk)
    assert count == len(files)
    assert files - SOMETIMES == set(walks[walk]) - SOMETIMES


def test_the_layers_are_those_that_are_checked() -> None:
    checked = (ROOT / "pyproject.toml").read_text().partition("layers = [")[2].partition("]")[0]
    drawn = PAGE.partition("```text\n")[2].partition("```")[0]
    there = {
        path.stem for path in (ROOT / "src/discreet").iterdir() if not path.name.startswith("_") and path.suffix in ("", ".py")
    }
    layers = [set(re.findall(r"[a-z]+", layer)) & there for layer in re.findall(r'"([^"]+)"', checked)]
    pictured = [set(line[:52].split()) for line in drawn.splitlines()]
    assert pictured == layers


def test_unit_tests_mirror_the_packages() -> None:
    """Every folder of tests/unit that holds tests is a package of the source."""
    unit, source = ROOT / "tests/unit", ROOT / "src/discreet"
    folders = [path.relative_to(unit) for path in unit.rglob("*") if path.is_dir() and list(path.glob("test_*.py"))]
    assert len(folders) > 20
    assert [str(folder) for folder in folders if not list((source / folder).glob("*.py"))] == []
