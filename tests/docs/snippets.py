"""Code blocks of the documentation, found and run.

A page is run from top to bottom in one folder: python blocks in one namespace, console blocks by a shell. What stands in
the line above a block says what else it is:

    <!-- file: recipe.py -->       the block is the content of that file
    <!-- not run: why -->          it needs what is not here, such as a cluster

and `<!-- first: … -->` or `<!-- then: … -->` hold python that readers do not see: it starts the server that the page tells them
to start, or looks at what became of it. The files that a page needs are made where readers see it.
"""

from __future__ import annotations

import doctest
import json
import re
import shlex
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
LOOSELY = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
DATA = {"json": json.loads, "toml": tomllib.loads}  # shown, not run: they must at least be what they say
_FENCE = re.compile(
    r"^(?:<!-- (?P<mark>file|not run): (?P<said>[^\n]*?) -->\n)?```(?P<language>\w*)[^\n]*\n(?P<text>.*?)^```"
    r"|^<!-- (?:first|then):\n(?P<unseen>.*?)^-->",
    re.MULTILINE | re.DOTALL,
)
_EXIT = re.compile(r"  # exits? with (\d+)$")


@dataclass(frozen=True)
class Block:
    """One fenced block of a page. `file` is where it belongs, `excuse` why it is not run."""

    language: str
    text: str
    line: int
    file: str | None = None
    excuse: str | None = None

    @property
    def runs(self) -> bool:
        return self.excuse is None and (self.file is not None or self.language in ("python", "console"))


def blocks(page: Path) -> Iterator[Block]:
    text = page.read_text(encoding="utf-8")
    for found in _FENCE.finditer(text):
        if found["unseen"] is not None:
            yield Block("python", found["unseen"], text[: found.start("unseen")].count("\n") + 1)
            continue
        marked = {found["mark"]: found["said"]}
        line = text[: found.start("text")].count("\n") + 1
        yield Block(found["language"], found["text"], line, marked.get("file"), marked.get("not run"))


def run_page(page: Path, folder: Path) -> None:
    """Everything on a page that runs, in order; the caller has made `folder`, which is empty, the working directory."""
    names: dict[str, object] = {"__name__": "__snippet__"}
    for block in blocks(page):
        if block.excuse is not None:
            continue
        if block.file is not None:
            (folder / block.file).parent.mkdir(parents=True, exist_ok=True)
            (folder / block.file).write_text(block.text)
        elif block.language == "python":
            _run_python(page, block, names)
        elif block.language == "console":
            _run_console(page, block, folder)
        elif block.language in DATA:
            DATA[block.language](block.text)


def _run_python(page: Path, block: Block, names: dict[str, Any]) -> None:
    """In one namespace for all blocks; prompts are checked as doctests."""
    if ">>>" in block.text:
        test = doctest.DocTestParser().get_doctest(block.text, names, page.name, str(page), block.line)
        found = doctest.DocTestRunner(optionflags=LOOSELY).run(test, clear_globs=False)
        assert found.failed == 0, f"{page}:{block.line}: the output is not what the page says"
        names.update(test.globs)
    else:
        padding = "\n" * (block.line - 1)
        exec(compile(padding + block.text, str(page), "exec"), names)  # noqa: S102 (our own documentation)


def _run_console(page: Path, block: Block, folder: Path) -> None:
    """Every `$ command` must work, or exit as a comment behind it says ("  # exits with 3"); what the page shows below it must
    be what it prints ("..." skips). A backslash carries a command on to the next line."""
    program = shlex.quote(str(Path(sys.executable).with_name("discreet")))
    python = shlex.quote(sys.executable)
    before, *parts = re.split(r"^\$ ", block.text, flags=re.MULTILINE)
    assert not before.strip(), f"{page}:{block.line}: a console block begins with a command: $ discreet …"
    for part in parts:
        command, _, expected = part.replace("\\\n", " ").partition("\n")
        wanted = _EXIT.search(command)
        whole = re.sub(r"(^|\| |&& )((?:\w+=\S+ )*)discreet ", rf"\1\2{program} ", _EXIT.sub("", command))
        whole = re.sub(r"(^|\| |&& )python ", rf"\1{python} ", whole)
        done = subprocess.run(["bash", "-c", whole], capture_output=True, text=True, cwd=folder, timeout=300)
        code = int(wanted[1]) if wanted else 0
        assert done.returncode == code, f"{page}:{block.line}: {command} exits with {done.returncode}: {done.stderr}"
        if not expected.strip():
            continue
        same = doctest.OutputChecker().check_output(expected, done.stdout, LOOSELY)
        assert same, f"{page}:{block.line}: {command} prints\n{done.stdout}"
