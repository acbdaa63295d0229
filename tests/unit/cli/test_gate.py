"""`discreet gate`: what it prints, writes and exits with."""

from __future__ import annotations

import json
from pathlib import Path
from xml.etree import ElementTree as XML

import numpy as np
import pytest
from click.testing import CliRunner, Result
from jsonschema import Draft7Validator, Draft202012Validator

from discreet.cli import app
from discreet.core import Claim, Evidence, Game, Laplace, Release, record
from schemas import published

SCHEMA = json.loads((Path(__file__).parents[3] / "docs/reference/gate.schema.json").read_text())
GAME = Game(record(), {"scores"})
RATE = '[[rule]]\non = "attack.*"\ntpr = { at_fpr = 0.01, max = 0.1 }\n'
REQUIRED = '[[rule]]\non = "release"\nrequire = ["claim.unit", "evidence.membership"]\n'


def run(*args: str, env: dict[str, str | None] | None = None) -> Result:
    quiet: dict[str, str | None] = {"GITHUB_ACTIONS": None, "GITHUB_STEP_SUMMARY": None}
    return CliRunner().invoke(app, ["gate", *args], env={**quiet, **(env or {})})


def saved(
    folder: Path, gap: float, count: int = 4000, design: str = "canary", attack: str = "lira", name: str = "release"
) -> str:
    random = np.random.default_rng(7)
    inside = np.arange(count) % 2 == 0
    score = random.normal(size=count) + gap * inside
    found = Evidence(game=GAME, attack=attack, score=score, inside=inside, run=np.arange(count), design=design)
    claims = (Claim(game=GAME, event=Laplace(1.0)),)
    made = Release(value=1, source="people", claims=claims, evidence=(found,))
    return str(made.save(folder / f"{name}.json"))


@pytest.fixture
def policy(tmp_path: Path) -> str:
    file = tmp_path / "privacy.toml"
    file.write_text(RATE + REQUIRED)
    return str(file)


@pytest.mark.parametrize(
    ("gap", "design", "code", "last"),
    [
        (0.0, "canary", 0, "holds: 4 hold"),
        (3.0, "post_hoc", 1, "failed: 2 hold, 2 failed"),
        (3.0, "canary", 3, "refuted: 2 hold, 1 failed, 1 refuted"),
    ],
)
def test_exit_codes(gap: float, design: str, code: int, last: str, policy: str, tmp_path: Path) -> None:
    result = run(saved(tmp_path, gap, design=design), "--policy", policy)
    assert result.exit_code == code, result.stderr
    assert result.stderr.startswith(last)
    assert len(result.stdout.splitlines()) == 4


def test_inconclusive_is_a_failure_and_a_warning_where_the_policy_is_lenient(policy: str, tmp_path: Path) -> None:
    file = saved(tmp_path, 0.0, count=100)
    assert run(file, "--policy", policy).exit_code == 1
    result = run(file, "--policy", policy, "--no-strict")
    assert (result.exit_code, "would decide" in result.stdout) == (0, True)
    assert result.stderr.startswith("inconclusive: 3 hold, 1 inconclusive")
    Path(policy).write_text(f"strict = false\n{RATE}")
    assert run(file, "--policy", policy).exit_code == 0
    assert run(file, "--policy", policy, "--strict").exit_code == 1


def test_every_release_is_judged(policy: str, tmp_path: Path) -> None:
    files = [saved(tmp_path, 0.0, name="good"), saved(tmp_path, 3.0, design="post_hoc", name="bad")]
    result = run(*files, "--policy", policy)
    assert result.exit_code == 1
    assert "good.json" in result.stdout
    assert "bad.json" in result.stdout
    (tmp_path / "model").mkdir()
    saved(tmp_path / "model", 0.0)
    assert run(str(tmp_path / "model"), "--policy", policy).exit_code == 0


def test_json_has_it_all(policy: str, tmp_path: Path) -> None:
    result = run(saved(tmp_path, 3.0), "--policy", policy, "--json")
    found = json.loads(result.stdout)
    Draft202012Validator(SCHEMA).validate(found)
    assert (found["outcome"], found["strict"], result.exit_code) == ("refuted", True, 3)
    (release,) = found["releases"]
    assert release["source"] == "people"
    first = release["findings"][0]
    assert (first["rule"], first["where"], first["outcome"], first["line"]) == (
        "attack.*/tpr-at-0.01", "attack.lira", "failed", 3,
    )  # fmt: skip
    assert first["low"] > first["limit"] == 0.1


def test_files_are_written(policy: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    saved(tmp_path, 3.0)
    result = run("release.json", "--junit", "j.xml", "--sarif", "s.json", "--summary", "s.md")
    assert result.exit_code == 3, result.stderr
    assert XML.parse("j.xml").getroot().get("failures") == "2"
    document = json.loads(Path("s.json").read_text())
    Draft7Validator(published("sarif-2.1.0.json")).validate(document)
    assert {each["locations"][0]["physicalLocation"]["artifactLocation"]["uri"] for each in document["runs"][0]["results"]} == {
        "privacy.toml"
    }
    assert Path("s.md").read_text().startswith("## Privacy gate: refuted")


def test_github_gets_a_summary_and_the_lines_at_fault(policy: str, tmp_path: Path) -> None:
    summary = tmp_path / "summary.md"
    summary.write_text("before\n")
    env = {"GITHUB_ACTIONS": "true", "GITHUB_STEP_SUMMARY": str(summary)}
    result = run(saved(tmp_path, 3.0), "--policy", policy, "--json", env=env)
    assert json.loads(result.stdout)
    assert sum(line.startswith("::error file=") for line in result.stderr.splitlines()) == 2
    assert summary.read_text().startswith("before\n## Privacy gate: refuted")
    result = run(saved(tmp_path, 0.0), "--policy", policy, env={**env, "GITHUB_STEP_SUMMARY": "/nowhere/summary.md"})
    assert (result.exit_code, "summary cannot be written" in result.stderr, "::error" in result.stderr) == (0, True, False)


def test_names_in_a_release_give_no_orders_to_the_server(policy: str, tmp_path: Path) -> None:
    file = saved(tmp_path, 3.0, attack="x\n::add-mask::y ##[error]z")
    result = run(file, "--policy", policy, env={"GITHUB_ACTIONS": "true"})
    lines = (result.stdout + result.stderr).splitlines()
    assert not [line for line in lines if line.startswith("::add-mask") or "##[" in line]


def whole(folder: Path) -> str:
    return Path(saved(folder, 0.0, count=20)).read_text()


@pytest.mark.parametrize(
    ("broken", "told"),
    [
        (lambda text: text[: len(text) // 2], "cut short"),
        (lambda text: text.replace('"version": 2', '"version": 99'), "Upgrade discreet"),
        (lambda text: text.replace('"discreet-release"', '"other"'), "not a release"),
        (lambda text: "", "cut short"),
        (lambda text: "[" * 100_000, "nested too deeply"),
        (lambda text: text.replace('"laplace"', '"magic"'), "magic"),
    ],
)
def test_releases_that_cannot_be_read_are_wrong_use(broken, told: str, policy: str, tmp_path: Path) -> None:
    good, bad = saved(tmp_path, 0.0, name="good"), tmp_path / "bad.json"
    bad.write_text(broken(whole(tmp_path)))
    result = run(good, str(bad), "--policy", policy, "--junit", str(tmp_path / "j.xml"))
    assert (result.exit_code, result.stdout) == (2, "")
    assert told in result.stderr
    assert not (tmp_path / "j.xml").exists()


@pytest.mark.parametrize(
    "text",
    [
        "", "[[rule]", "rule = 1", RATE.replace("0.01,", "0,"), RATE.replace("0.1", "-0.1"), RATE.replace("tpr", "tprr"),
        RATE.replace("max = 0.1", 'max = "a"'), RATE.replace("max = 0.1", "max = 0.1, confidence = 1.5"), "#" * (10 << 20),
    ],
)  # fmt: skip
def test_policies_that_cannot_be_read_are_wrong_use(text: str, tmp_path: Path) -> None:
    file = tmp_path / "privacy.toml"
    file.write_text(text)
    result = run(saved(tmp_path, 0.0, count=20), "--policy", str(file))
    assert (result.exit_code, result.stdout) == (2, "")
    assert "privacy.toml" in result.stderr
    assert len(result.stderr) < 600


def test_wrong_use(policy: str, tmp_path: Path) -> None:
    file = saved(tmp_path, 0.0)
    for args in ([], ["--policy", policy], [file, "--policy", "/nowhere.toml"], ["/nowhere.json", "--policy", policy],
                 [file, "--policy", policy, "--nothing"], [file, "--policy", str(tmp_path)],
                 [file, "--policy", policy, "--sarif", "/nowhere/s.json"]):  # fmt: skip
        result = run(*args)
        assert result.exit_code == 2, args
        assert "Traceback" not in result.stderr


def test_a_rule_that_no_attack_matches_fails(tmp_path: Path) -> None:
    file = tmp_path / "privacy.toml"
    file.write_text(RATE.replace("attack.*", "attack.whitebox"))
    result = run(saved(tmp_path, 0.0), "--policy", str(file))
    assert (result.exit_code, "no attack of the release matches whitebox" in result.stdout) == (1, True)


def test_a_folder_stands_for_all_releases_in_it(policy: str, tmp_path: Path) -> None:
    several = tmp_path / "several"
    (several / "inner").mkdir(parents=True)
    (several / "other.json").write_text("{}")
    saved(several, 0.0, name="a")
    saved(several / "inner", 0.0)
    told = json.loads(run(str(several), "--policy", policy, "--json").stdout)
    assert [Path(each["file"]).name for each in told["releases"]] == ["a.json", "release.json"]
    (tmp_path / "empty").mkdir()
    result = run(str(tmp_path / "empty"), "--policy", policy)
    assert (result.exit_code, result.stdout) == (2, "")
    assert "holds no release.json" in result.stderr
