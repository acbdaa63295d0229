"""Code blocks of the documentation, found and run."""

from __future__ import annotations

import doctest
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
LOOSELY = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
_FENCE = re.compile(r"^```(\w*)[^\n]*\n(.*?)^```", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True)
class Block:
    """One fenced block of a page."""

    language: str
    text: str
    line: int


def blocks(page: Path) -> Iterator[Block]:
    text = page.read_text(encoding="utf-8")
    for found in _FENCE.finditer(text):
        yield Block(found[1], found[2], text[: found.start()].count("\n") + 2)


def run_python(page: Path) -> None:
    """All python blocks of a page, top to bottom, in one namespace; prompts are checked as doctests."""
    names: dict[str, object] = {"__name__": "__snippet__"}
    for block in blocks(page):
        if block.language != "python":
            continue
        if ">>>" in block.text:
            test = doctest.DocTestParser().get_doctest(block.text, names, page.name, str(page), block.line)
            found = doctest.DocTestRunner(optionflags=LOOSELY).run(test, clear_globs=False)
            assert found.failed == 0, f"{page}:{block.line}: the output is not what the page says"
            names.update(test.globs)
        else:
            padding = "\n" * (block.line - 1)
            exec(compile(padding + block.text, str(page), "exec"), names)  # noqa: S102 (our own documentation)


def run_console(page: Path, folder: Path) -> None:
    """Every `$ command` of a console block must work; what the page shows below it must be what it prints ("..." skips).

    The folder has a run.json with an event, as the reader of a page is assumed to.
    """
    (folder / "run.json").write_text('{"kind": "gaussian", "noise_multiplier": 1.0}')
    program = shlex.quote(str(Path(sys.executable).with_name("discreet")))
    for block in blocks(page):
        if block.language != "console":
            continue
        for part in re.split(r"^\$ ", block.text, flags=re.MULTILINE)[1:]:
            command, _, expected = part.partition("\n")
            whole = re.sub(r"(^|\| )discreet ", rf"\1{program} ", command)
            done = subprocess.run(["bash", "-c", whole], capture_output=True, text=True, cwd=folder, timeout=300)
            assert done.returncode == 0, f"{page}:{block.line}: {command} exits with {done.returncode}: {done.stderr}"
            if not expected.strip():
                continue
            same = doctest.OutputChecker().check_output(expected, done.stdout, LOOSELY)
            assert same, f"{page}:{block.line}: {command} prints\n{done.stdout}"
