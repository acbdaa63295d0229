"""The demo, as a stranger runs it: the story, the files, the report as a browser shows it, and what a light install gets.

False alarms: the private model's noise is fresh in every run. That its attack finds more than 10 % at 1 % false alarms, or
that it is right on fewer than 60 % of strangers, is ten standard deviations away; the audits of a light install decide at
1 - 1e-6, two of them, and so does the audit of the synthetic table (3e-6).
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import pytest
from browser import look

from discreet import Ledger, connect
from discreet.core import NonPrivate, Release
from discreet.demo.hospital import SOURCE

ROOT = Path(__file__).parents[2]
NAMES = ["answer-1", "answer-2", "answer-3", "overfit-model", "private-model", "synthetic-table"]
FOLDERS = ("overfit-model", "private-model", "synthetic-table")
LIGHT = """
import importlib.util, sys
found = importlib.util.find_spec
importlib.util.find_spec = lambda name, *more: None if name in ("torch", "duckdb") else found(name, *more)
from discreet.cli import main
sys.argv[0] = "discreet"
try:
    main()
finally:
    assert "torch" not in sys.modules and "duckdb" not in sys.modules
"""


def program(*args: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "discreet.cli", *args], capture_output=True, text=True, timeout=600)


@pytest.fixture(scope="session")
def story(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[str]]:
    """The folder the demo wrote, and the lines it printed; the picture lies beside the folder."""
    folder = tmp_path_factory.mktemp("demo") / "new" / "demo"
    done = program("demo", "-o", str(folder), "--picture", str(folder.parent / "picture.svg"))
    assert done.returncode == 0, done.stderr
    return folder, done.stdout.splitlines()


@pytest.fixture(scope="session")
def demo(story: tuple[Path, list[str]]) -> Path:
    return story[0]


def release(demo: Path, name: str) -> Release:
    return Release.load(demo / name / "release.json" if name in FOLDERS else demo / f"{name}.json")


def test_the_story_has_six_lines(story: tuple[Path, list[str]]) -> None:
    folder, lines = story
    assert [line[:3] for line in lines] == ["1. ", "2. ", "3. ", "4. ", "5. ", "6. "]
    found = [[float(number) for number in re.findall(r"([\d.]+) %", line)] for line in lines]
    assert found[0][0] == 100  # right on all of its patients
    assert found[0][2] > 15  # and finds so many of them
    assert found[1][2] < 3  # no attack can find more
    assert found[1][1] > 60
    assert "its claim holds" in lines[2]
    assert "refused" in lines[4]
    assert f"discreet serve --ledger {folder / 'ledger.db'} --releases {folder} --config" in lines[5]


def test_the_private_model_is_under_its_ceiling_and_as_useful(demo: Path) -> None:
    leaky, private = (release(demo, f"{name}-model") for name in ("overfit", "private"))
    assert leaky.evidence[0].tpr(0.01) > 0.15
    assert private.evidence[0].tpr(0.01) < 0.10
    assert private.facts["quality"]["accuracy on strangers"] > leaky.facts["quality"]["accuracy on strangers"] - 0.1
    assert leaky.claims[0].event == NonPrivate()
    assert private.facts["controls"][0]["found"]
    assert len(private.facts["groups"]) == 6
    assert (demo / "private-model" / "model.safetensors").is_file()


def test_everything_is_in_one_ledger(demo: Path) -> None:
    with Ledger(demo / "ledger.db") as ledger:
        ledger.verify()
        assert ledger.sources() == [SOURCE]
        kinds = [entry.kind for entry in ledger.history(SOURCE)]
        paid = {entry.id for entry in ledger.history(SOURCE) if entry.kind == "reserve"}
    assert kinds.count("refuse") == 2  # the model without a ceiling, and the question that did not fit
    entries = {name: release(demo, name).entry for name in NAMES}
    assert entries.pop("overfit-model") is None
    assert set(entries.values()) == paid


def test_the_web_app_can_go_on_from_there(demo: Path) -> None:
    """The table for its console, a model to attack, and a policy that the private model keeps and the other does not."""
    from discreet.report.gate import Policy
    from discreet.serve.settings import read_config

    sources, targets = read_config(demo / "serve.toml")
    assert list(sources) == [SOURCE]
    with connect(sources[SOURCE].location, unit=sources[SOURCE].unit, schema=sources[SOURCE].schema) as db:
        assert list(db.tables()["patients"]) == ["age", "ward", "days"]
    assert sources[SOURCE].synth is not None
    assert [targets[name].release for name in targets] == ["overfit-model"]
    policy = Policy.read(demo / "privacy.toml")
    found = {name: {each.outcome for each in policy.judge(release(demo, name))} for name in NAMES}
    assert "failed" in found.pop("overfit-model")
    assert all(each == {"holds"} for each in found.values())


def test_answers_can_be_read_in_their_files(demo: Path) -> None:
    [row] = release(demo, "answer-1").value
    assert row["patients_low"] < row["patients"] < row["patients_high"]
    assert release(demo, "answer-2").facts["title"] == "Length of stay by ward"


@pytest.mark.parametrize("name", NAMES)
def test_releases_are_shown_and_none_is_refuted(demo: Path, name: str) -> None:
    file = demo / name / "release.json" if name in FOLDERS else demo / f"{name}.json"
    assert program("show", str(file)).returncode == 0
    if name in FOLDERS:
        told = json.loads(program("audit", str(file), "--json").stdout)["verdicts"]
        assert {each["outcome"] for each in told} == ({"no ceiling"} if name == "overfit-model" else {"holds"})


def test_the_synthetic_table_is_there_with_its_evidence(demo: Path) -> None:
    import pyarrow.parquet as parquet

    made = release(demo, "synthetic-table")
    table = parquet.read_table(demo / "synthetic-table" / "synthetic.parquet")
    assert table.column_names == ["age", "ward", "days"]
    assert abs(table.num_rows - 4000) < 400  # a noisy count
    assert [each.design for each in made.evidence] == ["canary", "post_hoc", "post_hoc", "post_hoc"]
    assert made.facts["owner_fidelity"]["for_release"] is False
    assert len(made.facts["risks"]) == 3


class Tags(HTMLParser):
    """The tags of a page and every address it names."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.addresses: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.addresses += [value or "" for name, value in attrs if name in ("href", "src", "srcset", "action", "data")]


def test_the_report_is_one_small_file_without_script(demo: Path) -> None:
    text = (demo / "report.html").read_text()
    page = Tags(text)
    assert len(text.encode()) < 150_000
    assert "script" not in page.tags
    assert all(address.startswith(("data:,", "#")) for address in page.addresses)
    models = ("Diagnosis model, overfit", "trained privately", "no ceiling")
    for told in (*models, "Number of patients", "Synthetic patients", "The synthetic table"):
        assert told in text


@pytest.mark.parametrize(("width", "dark"), [(1180, False), (390, True)])
def test_a_browser_draws_it_and_asks_for_nothing(demo: Path, tmp_path: Path, width: int, dark: bool) -> None:
    seen = look(demo / "report.html", tmp_path, width=width, dark=dark)
    assert seen.console == []
    assert seen.requests == []
    assert 'class="line ceiling"' in seen.dom
    assert seen.picture.stat().st_size > 50_000


def test_the_browser_would_have_noticed(tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    page.write_text('<!doctype html><img src="http://example.test/x.png"><script>console.error("oops")</script>')
    seen = look(page, tmp_path)
    assert seen.requests == ["http://example.test/x.png"]
    assert any("oops" in line for line in seen.console)


def shape(svg: str) -> str:
    """All of a picture but its numbers."""
    return re.sub(r"-?\d+(\.\d+)?", "0", re.sub(r' d="[^"]*"', "", svg))


def test_the_picture_of_the_readme_is_what_the_demo_draws(demo: Path) -> None:
    drawn, kept = (demo.parent / "picture.svg").read_text(), (ROOT / "docs/demo.svg").read_text()
    assert shape(drawn) == shape(kept), "make it again: discreet demo --picture docs/demo.svg"
    assert len(kept) < 30_000
    for page in ("README.md", "docs/index.md"):
        assert "demo.svg)" in (ROOT / page).read_text()


def test_an_earlier_demo_is_replaced_and_nobody_elses_ledger(tmp_path: Path) -> None:
    from discreet.core import record
    from discreet.demo.hospital import open_budget
    from discreet.demo.story import cleared
    from discreet.errors import InvalidValue

    with Ledger(tmp_path / "ledger.db") as ledger:
        open_budget(ledger)
    cleared(tmp_path)
    assert list(tmp_path.iterdir()) == []
    with Ledger(tmp_path / "ledger.db") as ledger:
        ledger.open("mine", unit=record(), epsilon=1.0, delta=1e-6)
    with pytest.raises(InvalidValue, match="not the demo's"):
        cleared(tmp_path)
    assert (tmp_path / "ledger.db").exists()


def test_a_folder_that_cannot_be_made_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    done = program("demo", "-o", str(tmp_path / "file" / "x"))
    assert (done.returncode, done.stdout) == (2, "")
    assert "cannot be made" in done.stderr


def test_a_light_install_does_what_it_can_and_says_what_it_left_out(tmp_path: Path) -> None:
    args = [sys.executable, "-c", LIGHT, "demo", "-o", str(tmp_path), "--json"]
    done = subprocess.run(args, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["outcomes"] == {"count": "holds", "broken-count": "refuted"}
    assert ["discreet-privacy[torch]" in found["left_out"][0], "discreet-privacy[sql]" in found["left_out"][1]] == [True, True]
    assert "Left out" in done.stderr
    assert "broken mechanism" in (tmp_path / "report.html").read_text()


def test_no_picture_without_models(tmp_path: Path) -> None:
    picture = tmp_path / "p.svg"
    args = [sys.executable, "-c", LIGHT, "demo", "-o", str(tmp_path / "demo"), "--picture", str(picture)]
    done = subprocess.run(args, capture_output=True, text=True, timeout=300)
    assert done.returncode == 2
    assert "discreet-privacy[torch]" in done.stderr
    assert not picture.exists()
