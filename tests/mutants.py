"""C of the package with a fault put in, or for another processor: compiled by the tests themselves."""

from __future__ import annotations

import ctypes
import runpy
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import pytest
import setuptools

from discreet import native


def compiled(name: str, replacements: dict[str, str], level: str = "v4") -> ctypes.CDLL:
    """The library of `name`.c after these replacements, with the flags of setup.py for the highest level there is here."""
    levels = [each for each, needed in native.LEVELS.items() if needed <= native.features()]
    flags = _flags(name, level if level in levels else levels[0])
    folder = Path(tempfile.mkdtemp())
    for file in (f"{name}.c", "normal.h"):
        text = (native.HERE / file).read_text()
        for right, wrong in replacements.items():
            text = text.replace(right, wrong)
        (folder / file).write_text(text)
    compiler = shutil.which("cc") or pytest.skip("no C compiler here")
    command = [compiler, *flags, "-shared", "-fPIC", str(folder / f"{name}.c"), "-o", str(folder / "made.so"), "-lm"]
    subprocess.run(command, check=True, capture_output=True)
    return ctypes.CDLL(str(folder / "made.so"))


def _flags(name: str, level: str) -> list[str]:
    """What setup.py would build this text with."""
    told: dict[str, Any] = {}
    original = setuptools.setup
    setuptools.setup = lambda **given: told.update(given)
    try:
        runpy.run_path(str(Path(__file__).parents[1] / "setup.py"))
    finally:
        setuptools.setup = original
    return next(each.extra_compile_args for each in told["ext_modules"] if each.name.endswith(f"._{name}_{level}"))


def mutated(module: Any, file: str, right: str, wrong: str, monkeypatch: pytest.MonkeyPatch) -> Any:
    """What `module` would use if its C text said `wrong` where it says `right`."""
    assert right in (native.HERE / file).read_text()
    monkeypatch.setattr(native, "library", lambda name: compiled(name, {right: wrong}))
    return module.compiled.__wrapped__()
