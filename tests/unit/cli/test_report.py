"""`discreet report`: files in, files out."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from discreet.cli import app
from reports import broken, leaky, ledger, private


def run(*args: str | Path, **options: str) -> Result:
    return CliRunner().invoke(app, ["report", *map(str, args)], env=options)


def test_a_page_from_a_file(tmp_path: Path) -> None:
    file = private().save(tmp_path / "release.json")
    result = run(file, "-o", tmp_path / "report.html")
    assert result.exit_code == 0, result.stderr
    assert result.stdout == ""
    assert "The report is in" in result.stderr
    assert "holds: Whatever an attacker tries" in result.stderr
    assert "sha256:" in (tmp_path / "report.html").read_text()


def test_several_forms_of_several_releases(tmp_path: Path) -> None:
    kept, visits = ledger(tmp_path)
    kept.close()
    files = [each.save(tmp_path / f"{name}.json") for name, each in (("a", leaky()), ("b", visits))]
    out = [tmp_path / f"both{form}" for form in (".html", ".md", ".json")]
    result = run(
        *files, *(part for path in out for part in ("-o", path)), "--ledger", tmp_path / "ledger.db", "--annex", "--title", "T"
    )
    assert result.exit_code == 0, result.stderr
    assert all(path.exists() for path in out)
    told = json.loads(out[2].read_text())
    assert (told["title"], len(told["releases"]), told["ledger"][0]["source"]) == ("T", 2, "hospital")
    assert told["annex"]
    assert run(files[1], "--json", DISCREET_LEDGER=str(tmp_path / "ledger.db")).exit_code == 0


def test_without_a_place_it_is_markdown_on_stdout(tmp_path: Path) -> None:
    result = run(broken().save(tmp_path / "release.json"))
    assert result.exit_code == 0
    assert result.stdout.startswith("# Release from clinic\n")
    assert "**refuted.**" in result.stdout


def test_json_on_stdout_is_the_document(tmp_path: Path) -> None:
    result = run(broken().save(tmp_path / "release.json"), "--json", "--confidence", "0.9")
    told = json.loads(result.stdout)
    assert told["verdict"]["status"] == "refuted"
    assert told["confidence"] == 0.9


def test_plots_are_written_beside_the_report(tmp_path: Path) -> None:
    file = private().save(tmp_path / "release.json")
    assert run(file, "-o", tmp_path / "r.html", "--plots", "svg").exit_code == 0
    names = sorted(path.name for path in (tmp_path / "r-plots").iterdir())
    assert names == ["histogram-1.svg", "histogram-2.svg", "marginals.svg", "roc.svg", "steps.svg", "tradeoff.svg"]
    kept, visits = ledger(tmp_path)
    kept.close()
    other = visits.save(tmp_path / "visits.json")
    assert run(file, other, "-o", tmp_path / "two.html", "--plots", "svg", "--ledger", tmp_path / "ledger.db").exit_code == 0
    names = sorted(path.name for path in (tmp_path / "two-plots").iterdir())
    assert "1-readmission-model-trained-privately-roc.svg" in names
    assert "burn_down-hospital.svg" in names


def test_a_model_card(tmp_path: Path) -> None:
    file = private().save(tmp_path / "release.json")
    assert run(file, "--card", tmp_path / "card.md").exit_code == 0
    assert (tmp_path / "card.md").read_text().startswith("---\ntags:\n")
    result = run(file, file, "--card", tmp_path / "card.md")
    assert result.exit_code == 2
    assert "--card is about one model; 2 releases were given" in result.stderr


def test_a_folder_stands_for_the_release_in_it(tmp_path: Path) -> None:
    private().save(tmp_path / "release.json")
    assert run(tmp_path, "-o", tmp_path / "r.md").exit_code == 0


def test_a_folder_without_one_stands_for_all_releases_in_it(tmp_path: Path) -> None:
    (tmp_path / "model").mkdir()
    private().save(tmp_path / "model" / "release.json")
    broken().save(tmp_path / "count.json")
    (tmp_path / "other.json").write_text("{}")
    told = json.loads(run(tmp_path, "--json").stdout)
    assert [item["source"] for item in told["releases"]] == ["clinic", "hospital"]
    (tmp_path / "empty").mkdir()
    result = run(tmp_path / "empty")
    assert result.exit_code == 2
    assert "holds no release.json and no other release" in result.stderr


@pytest.mark.parametrize("text", ["", "{", '{"format": "discreet-release"}', "[]", '{"a": NaN}'])
def test_a_broken_file_is_told_and_nothing_is_written(text: str, tmp_path: Path) -> None:
    (tmp_path / "release.json").write_text(text)
    result = run(tmp_path / "release.json", "-o", tmp_path / "r.html")
    assert result.exit_code == 2
    assert len(result.stderr) < 400
    assert not (tmp_path / "r.html").exists()


def test_a_truncated_file_says_that_it_may_be_cut_short(tmp_path: Path) -> None:
    file = private().save(tmp_path / "release.json")
    file.write_text(file.read_text()[:20_000])
    assert "it may be cut short" in run(file).stderr


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (("-o", "report.docx"), "ends in .html, .pdf, .md, .json"),
        (("--ledger", "none.db"), "There is no ledger at none.db"),
        (("--confidence", "2"), "confidence must be above 0 and below 1"),
        (("--title", ""), "title must be a non-empty string"),
    ],
)
def test_wrong_use_is_told(args: tuple[str, ...], said: str, tmp_path: Path) -> None:
    result = run(broken().save(tmp_path / "release.json"), *args)
    assert result.exit_code == 2
    assert said in result.stderr
    assert run("none.json").exit_code == 2
    assert run().exit_code == 2
