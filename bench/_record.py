"""What every benchmark does: say on what it ran, and write its figures where the docs may quote them."""

from __future__ import annotations

import datetime
import json
import os
import platform
import subprocess
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import discreet


def machine(*packages: str) -> dict[str, Any]:
    """The processor and the versions; no names of machines, no paths."""
    processor = "unknown"
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                processor = line.split(":", 1)[1].strip()
                break
    except OSError:
        pass
    found = {"discreet": discreet.__version__}
    for name in ("numpy", "scipy", *packages):
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = "absent"
    return {
        "processor": processor,
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        "versions": found,
    }


def commit() -> str:
    """The commit that is measured; with a plus where its files were changed since, results aside."""

    def git(*words: str) -> str:
        root = Path(__file__).parents[1]
        return subprocess.run(["git", *words], capture_output=True, text=True, cwd=root, check=False).stdout.strip()

    changed = git("status", "--porcelain", "--untracked-files=no", "--", ".", ":!bench/results")
    return (git("rev-parse", "--short=12", "HEAD") or "unknown") + "+" * bool(changed)


def write(path: str | Path | None, what: dict[str, Any], *packages: str) -> None:
    """The result as JSON with its date and machine, where a path was given."""
    if path:
        date = datetime.datetime.now(datetime.UTC).date().isoformat()
        Path(path).write_text(json.dumps({"date": date, "machine": machine(*packages), **what}, indent=1) + "\n")
        print(f"written: {path}")
