"""`discreet attack` on users' files."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner, Result

from discreet.cli import app
from discreet.core import Release

PATIENTS = "id,zip,sex,illness\n1,02138,m,flu\n2,02139,f,cold\n3,02139,f,flu\n4,02140,m,flu\n5,02140,m,flu\n"
VOTERS = "id,zip,sex\n" + "".join(f"{i},{z},{s}\n" for i, z, s in [(1, "02138", "m"), (2, "02139", "f"), (9, "02141", "f")])
ANSWERS = "answer,ann,bob,cat\n2,1,1,1\n1,0,1,1\n1,1,1,0\n"


def run(*args: object) -> Result:
    return CliRunner().invoke(app, ["attack", *map(str, args)])


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    truth = "who,bit\nann,1\nbob,0\ncat,1\n"
    for name, text in (("patients", PATIENTS), ("voters", VOTERS), ("answers", ANSWERS), ("truth", truth)):
        (tmp_path / f"{name}.csv").write_text(text)
    return tmp_path


def test_a_table(folder: Path) -> None:
    result = run("table", folder / "patients.csv", "--quasi", "zip,sex", "--sensitive", "illness", "--fraction", 0.2, "--json")
    assert result.exit_code == 0, result.stderr
    found = json.loads(result.stdout)
    assert (found["rows"], found["classes"], found["unique"], found["k"], found["l"]) == (5, 3, 1, 1, 1)
    assert found["exposed_share"] == 0.6
    assert found["exposed_share_if_one_value_is_ruled_out"] == 1.0
    assert 0 < found["unique_in_population_estimate"] < found["unique_share"]
    assert "unique share" in run("table", folder / "patients.csv", "--quasi", "zip").stdout


def test_a_join_and_its_evidence(folder: Path) -> None:
    out = folder / "evidence.json"
    result = run(
        "table", folder / "patients.csv", "--quasi", "zip,sex", "--population", folder / "voters.csv",
        "--id", "id", "-o", out, "--json",
    )  # fmt: skip
    assert result.exit_code == 0, result.stderr
    found = json.loads(result.stdout)
    assert (found["linked"], found["linked_right"]) == (1, 1)
    release = Release.load(out)
    assert release.claims == ()
    assert release.evidence[0].design == "post_hoc"
    assert release.evidence[0].inside.tolist() == [True, True, False]
    assert CliRunner().invoke(app, ["show", str(out)]).stdout.rstrip().endswith("none: there is no ceiling")


def test_answers(folder: Path) -> None:
    out = folder / "evidence.json"
    result = run("answers", folder / "answers.csv", "--truth", folder / "truth.csv", "-o", out, "--json")
    assert result.exit_code == 0, result.stderr
    found = json.loads(result.stdout)
    assert found["bits"] == {"ann": True, "bob": False, "cat": True}
    assert (found["reconstructed_share"], found["determined_if_exact"], found["pairs_that_isolate_one"]) == (1.0, 3, 2)
    assert Release.load(out).evidence[0].score.shape == (3,)


@pytest.mark.parametrize("method", ["exhaustive", "linear_program", "least_squares"])
def test_answers_by_names(folder: Path, method: str) -> None:
    file = folder / "named.csv"
    file.write_text("members,answer\nann bob cat,2\nbob;cat,1\nann bob,1\n")
    found = json.loads(run("answers", file, "--members", "members", "--method", method, "--json").stdout)
    assert found["bits"] == {"ann": True, "bob": False, "cat": True}


def test_parquet_and_gz_are_read_as_well(folder: Path) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    parquet.write_table(pyarrow.table({"zip": ["a", "a", "b"], "n": np.arange(3)}), folder / "t.parquet")
    assert json.loads(run("table", folder / "t.parquet", "--quasi", "zip", "--json").stdout)["unique"] == 1
    with gzip.open(folder / "t.csv.gz", "wt") as file:
        file.write("zip\n1\n1\n2\n")
    assert json.loads(run("table", folder / "t.csv.gz", "--quasi", "zip", "--json").stdout)["classes"] == 2


@pytest.mark.parametrize(
    ("args", "told"),
    [
        (["table", "nowhere.csv", "--quasi", "zip"], "There is no file"),
        (["table", "patients.csv", "--quasi", "zap"], "no column 'zap'; it has id, zip, sex, illness"),
        (["table", "patients.csv", "--quasi", " , "], "No column was named"),
        (["table", "empty.csv", "--quasi", "zip"], "holds no rows"),
        (["table", "header.csv", "--quasi", "zip"], "holds no rows"),
        (["table", "uneven.csv", "--quasi", "a"], "first line 3"),
        (["table", "twice.csv", "--quasi", "a"], "a column twice"),
        (["table", "binary.csv", "--quasi", "a"], "not CSV in UTF-8"),
        (["table", "patients.csv", "--quasi", "zip", "-o", "x.json"], "give --population and --id"),
        (["table", "patients.csv", "--quasi", "zip", "--fraction", "2"], "fraction must be"),
        (["answers", "answers.csv", "-o", "x.json"], "give --truth"),
        (["answers", "patients.csv"], "no column 'answer'"),
        (["answers", "patients.csv", "--answer", "id"], "1 where counted and 0 where not"),
        (["answers", "patients.csv", "--answer", "sex"], "it holds text"),
        (["answers", "answers.csv", "--truth", "short.csv"], "says nothing of 2 of the 3"),
        (["answers", "answers.csv", "--truth", "patients.csv"], "two columns"),
        (["answers", "answers.csv", "--method", "magic"], "method must be one of"),
    ],
)
def test_what_is_wrong_is_told(folder: Path, monkeypatch: pytest.MonkeyPatch, args: list[str], told: str) -> None:
    monkeypatch.chdir(folder)
    Path("empty.csv").write_text("")
    Path("header.csv").write_text("zip\n")
    Path("uneven.csv").write_text("a,b\n1,2\n1\n")
    Path("twice.csv").write_text("a,a\n1,2\n")
    Path("binary.csv").write_bytes(b"\xff\xfe\x00a")
    Path("short.csv").write_text("who,bit\nann,1\n")
    result = run(*args)
    assert (result.exit_code, result.stdout) == (2, "")
    assert told in " ".join(result.stderr.split())
