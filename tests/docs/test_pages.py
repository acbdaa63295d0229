"""The documentation is true: its code runs, its links lead somewhere, every public name has a place.

False alarms: the pages and examples that audit something do so at a confidence of 1 - 1e-6; with the demo run by the guide to
the command line that is below 7e-6.
"""

from __future__ import annotations

import importlib
import pkgutil
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from snippets import DATA, PAGES, ROOT, blocks, run_page

import discreet

ROOMS = [
    "core",
    "accounting",
    "noise",
    "ledger",
    "audit",
    "charts",
    "federate",
    "attack",
    "attack.membership",
    "heuristic",
    "learn",
    "learn.features",
    "learn.layers",
    "learn.table",
    "query.local",
    "query.arrays",
    "report",
    "errors",
]
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))


def label(path: Path) -> str:
    return str(path.relative_to(ROOT))


WITH_CODE = [page for page in PAGES if any(block.runs for block in blocks(page))]
MARKS = {"trainers.md": pytest.mark.filterwarnings("ignore")}  # trainers of others warn about every CPU
NOT_RUN = {  # blocks that need what is not here
    "docs/architecture.md": 1,  # a picture
    "README.md": 1,  # installs everything
    "CONTRIBUTING.md": 1,  # runs everything
    "docs/index.md": 1,  # installs everything
    "docs/guides/encrypted.md": 1,  # a server runs until it is stopped; tests/unit/crypto/test_wire.py runs it
    "docs/guides/engines.md": 2,  # a PostgreSQL server, a Spark cluster; tests/conform runs both
    "docs/guides/extraction.md": 1,  # a trained model of Hugging Face; tests/unit/cli/test_attack_stealing.py runs a small one
    "docs/guides/federated.md": 1,  # a Flower cluster; tests/e2e/test_flower.py runs one
    "docs/guides/gate.md": 5,  # CI servers, pytest in pytest, MLflow; tests/e2e/test_gate.py runs what they call
    "docs/guides/ledger.md": 1,  # a PostgreSQL server
    "docs/guides/serve.md": 4,  # a server runs until it is stopped; proxies
    "docs/guides/processes.md": 3,  # several processes; tests/unit/learn/sgd/test_distributed.py runs them
}


@pytest.mark.parametrize("page", [pytest.param(page, marks=MARKS.get(page.name, ()), id=label(page)) for page in WITH_CODE])
def test_code_blocks_run(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    run_page(page, tmp_path)


@pytest.mark.parametrize("page", PAGES, ids=label)
def test_every_block_runs_or_says_why_not(page: Path) -> None:
    """Reference and theory may show other things, such as the exception tree; what readers copy from is run."""
    shown = [block for block in blocks(page) if not block.runs and block.language not in DATA]
    loose = [f"{label(page)}:{block.line}" for block in shown if block.excuse is None and "reference" not in page.parts]
    assert not loose, f"{loose} are neither run nor marked: <!-- not run: why -->"
    assert len([block for block in shown if block.excuse]) == NOT_RUN.get(label(page), 0)


def test_readers_see_all_that_they_need() -> None:
    """Only servers are started unseen, where the page tells its reader to start one."""
    unseen = {label(page) for page in PAGES if re.search(r"^<!-- first:", page.read_text(encoding="utf-8"), re.MULTILINE)}
    assert unseen == {"docs/guides/serve.md", "docs/guides/encrypted.md"}


def test_a_block_that_is_wrong_would_be_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    page = tmp_path / "page.md"
    for text, told in {
        "```python\nassert 1 == 2\n```\n": None,
        "```python\n>>> 1 + 1\n3\n\n```\n": "not what the page says",
        "```console\n$ false\n```\n": "exits with 1",
        "```console\n$ echo a\nb\n```\n": "prints",
        "```console\necho a\n```\n": "begins with a command",
        "<!-- first:\nassert False\n-->\n": None,
    }.items():
        page.write_text(text)
        with pytest.raises(AssertionError, match=told):
            run_page(page, tmp_path)
    page.write_text("<!-- file: a.txt -->\n```text\nhello\n```\n```console\n$ cat a.txt\nhello\n$ false  # exits with 1\n```\n")
    run_page(page, tmp_path)


@pytest.mark.parametrize("example", EXAMPLES, ids=label)
def test_examples_run_and_are_short(example: Path, tmp_path: Path) -> None:
    assert len(example.read_text().splitlines()) < 80
    done = subprocess.run([sys.executable, str(example)], capture_output=True, text=True, cwd=tmp_path, timeout=300)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip()


def test_there_are_examples() -> None:
    assert len(EXAMPLES) >= 3


@pytest.mark.parametrize("page", [*PAGES, ROOT / "CHANGELOG.md"], ids=label)
def test_links_lead_somewhere(page: Path) -> None:
    text = re.sub(r"```.*?```|`[^`\n]*`", "", page.read_text(), flags=re.DOTALL)
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        file, _, anchor = target.partition("#")
        assert "://" not in file, f"{label(page)} names an address outside the project: {target}"
        found = (page.parent / file).resolve() if file else page
        assert found.exists(), f"{label(page)} links to {target}, which is not there"
        if anchor:
            heads = re.findall(r"^#+ (.*)$", found.read_text(), re.MULTILINE)
            slugs = {re.sub(r"[^\w\- ]", "", head).strip().lower().replace(" ", "-") for head in heads}
            assert anchor in slugs, f"{label(page)} links to {target}, and there is no such heading"


def documented() -> set[str]:
    pages = (ROOT / "docs/reference").glob("*.md")
    return {name for page in pages for name in re.findall(r"^::: ([\w.]+)$", page.read_text(), re.MULTILINE)}


@pytest.mark.parametrize("room", ROOMS)
def test_every_public_name_has_a_place(room: str) -> None:
    module = importlib.import_module(f"discreet.{room}")
    places = {place.rpartition(".")[2] for place in documented() if place.startswith((f"discreet.{room}.", "discreet.core."))}
    missing = sorted(set(module.__all__) - places)
    assert not missing, f"docs/reference does not have {missing}"


PROOF = tuple(f"discreet.learn.sgd.proof{part}" for part in ("", ".call", ".look", ".python", ".watcher"))
# Their lists are for other packages.
INNER = (
    "discreet.audit.bounds",
    "discreet.crypto.packing",
    "discreet.crypto.private",
    "discreet.ledger.budget",
    "discreet.learn.sgd.engine",
    "discreet.demo",
    *PROOF,
)


def public_modules() -> Iterator[tuple[str, list[str]]]:
    """Every module that says what is public; integrations are public as a whole."""
    for found in pkgutil.walk_packages(discreet.__path__, "discreet."):
        built = found.name.startswith("discreet.native._")  # C libraries, which are not imported
        if built or found.name.startswith("discreet.cli") or found.name.endswith("_triton") or found.name in INNER:
            continue
        module = importlib.import_module(found.name)
        names = getattr(module, "__all__", None)
        if names is None and found.name.startswith("discreet.integrations."):
            names = [name for name, it in vars(module).items() if getattr(it, "__module__", "") == found.name]
        if names is not None:
            yield found.name, [name for name in names if not name.startswith("_") and not name.isupper()]


def test_no_room_is_forgotten() -> None:
    """Rooms are listed by hand above; this finds those that were not."""
    places = {place.rpartition(".")[2] for place in documented()}
    rooms = {name.rpartition(".")[2] for name, _ in public_modules()}
    told_as_one = documented()
    missing = {module: sorted(set(names) - places - rooms) for module, names in public_modules() if module not in told_as_one}
    assert not {module: names for module, names in missing.items() if names}


def test_every_documented_name_is_public() -> None:
    published = [(module, importlib.import_module(module)) for module, _ in public_modules()]
    for place in documented() - {"discreet.accounting.closed"}:  # a module of formulas, told as one
        name = place.rpartition(".")[2]
        homes = [it for module, it in published if place.startswith(f"{module}.")]
        assert any(name in getattr(it, "__all__", vars(it)) for it in homes), f"{place} is documented and not public"


@pytest.mark.parametrize("page", PAGES, ids=label)
def test_every_figure_has_a_file(page: Path) -> None:
    """A ratio in a page ("3.5 times", "7×") is only quoted beside the results file that shows it."""
    text = page.read_text()
    if re.search(r"\d(\.\d+)?\s?(×|x faster|times faster|times the time)", text):
        assert "bench/results/" in text, f"{label(page)} quotes a ratio and no file under bench/results"
