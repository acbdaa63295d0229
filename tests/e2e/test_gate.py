"""The gate as CI runs it: the installed program and its exit codes, the action, the hook, and pytest with the plugin."""

from __future__ import annotations

import importlib
import os
import re
import shlex
import subprocess
import sys
import tomllib
from dataclasses import replace
from pathlib import Path
from typing import Any

import click
import numpy as np
import pytest
import yaml
from jsonschema import Draft7Validator

from discreet import Ledger
from discreet.cli import app
from discreet.core import Claim, Evidence, Game, Laplace, Release, record
from discreet.report.keys import make_key
from discreet.report.signature import sign_release
from schemas import published

ROOT = Path(__file__).parents[2]
PROGRAM = Path(sys.executable).with_name("discreet")
POLICY = '[[rule]]\non = "attack.*"\ntpr = { at_fpr = 0.01, max = 0.1 }\nauc = { max = 0.6 }\n'


def made(gap: float, count: int = 4000, design: str = "canary") -> Release[Any]:
    random = np.random.default_rng(7)
    inside = np.arange(count) % 2 == 0
    game = Game(record(), {"scores"})
    score = random.normal(size=count) + gap * inside
    found = Evidence(game=game, attack="lira", score=score, inside=inside, run=np.arange(count), design=design)
    return Release(value=1, source="people", claims=(Claim(game=game, event=Laplace(1.0)),), evidence=(found,))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A checkout: a policy and releases that hold, are unsure, fail and are refuted."""
    (tmp_path / "privacy.toml").write_text(POLICY)
    for name, release in {
        "holds": made(0.0),
        "unsure": made(0.0, 100),
        "failed": made(3.0, design="post_hoc"),
        "refuted": made(3.0),
    }.items():
        (tmp_path / name).mkdir()
        release.save(tmp_path / name / "release.json")
    return tmp_path


def shell(command: str, folder: Path, **env: str) -> subprocess.CompletedProcess[str]:
    here = {**os.environ, "PATH": f"{PROGRAM.parent}{os.pathsep}{os.environ['PATH']}", "GITHUB_ACTIONS": "", **env}
    return subprocess.run(["bash", "-c", command], capture_output=True, text=True, cwd=folder, env=here, timeout=300)


@pytest.mark.parametrize(
    ("command", "code"),
    [
        ("discreet gate holds", 0),
        ("discreet gate holds unsure/release.json", 1),
        ("discreet gate --no-strict holds unsure", 0),
        ("discreet gate holds failed", 1),
        ("discreet gate nowhere", 2),
        ("discreet gate holds --policy nowhere.toml", 2),
        ("discreet gate failed refuted holds", 3),
        ("discreet gate - < refuted/release.json", 3),
    ],
)
def test_the_program_exits_as_it_says(command: str, code: int, folder: Path) -> None:
    done = shell(command, folder)
    assert done.returncode == code, done.stderr
    assert "Traceback" not in done.stderr
    assert (done.stdout == "") == (code == 2)


def options(name: str) -> set[str]:
    command = app.get_command(click.Context(app), name)
    assert command is not None
    return {option for param in command.params for option in param.opts}


def test_the_action_is_valid_and_calls_options_that_exist() -> None:
    action = yaml.safe_load((ROOT / "action.yml").read_text())
    Draft7Validator(published("github-action.json")).validate(action)
    *_, last = action["runs"]["steps"]
    words = shlex.split(last["run"].replace("${JUNIT:+", "").replace("${SARIF:+", "").replace("}", ""))
    assert words[:2] == ["discreet", "gate"]
    assert {word for word in words if word.startswith("--") and word != "--"} | {"--strict"} <= options("gate")
    given = {name for line in last["env"].values() for name in action["inputs"] if f"inputs.{name}" in line}
    assert given == set(action["inputs"])
    for step in action["runs"]["steps"]:
        assert "${{" not in step["run"], "an input inside a script could be a script"


def inputs(**given: str) -> dict[str, str]:
    """The environment of the last step, as GitHub makes it of the inputs."""
    action = yaml.safe_load((ROOT / "action.yml").read_text())
    values = {name: str(each.get("default", "")) for name, each in action["inputs"].items()} | given
    made = {}
    for name, text in action["runs"]["steps"][-1]["env"].items():
        asked = text.removeprefix("${{ ").removesuffix(" }}")
        flags = {"true": "--strict", "false": "--no-strict"}
        made[name] = values[asked.removeprefix("inputs.")] if "'" not in asked else flags.get(values["strict"], "")
    return made


@pytest.mark.parametrize(
    ("given", "code"),
    [
        ({"releases": "holds"}, 0),
        ({"releases": "unsure holds"}, 1),
        ({"releases": "unsure", "strict": "false"}, 0),
        ({"releases": "unsure", "strict": "true"}, 1),
        ({"releases": "*/release.json", "junit": "a b.xml", "sarif": "s.json"}, 3),
        ({"releases": "$(touch hurt); touch hurt"}, 2),
    ],
)
def test_the_script_of_the_action(given: dict[str, str], code: int, folder: Path) -> None:
    script = yaml.safe_load((ROOT / "action.yml").read_text())["runs"]["steps"][-1]["run"]
    summary = folder / "summary.md"
    done = shell(script, folder, **inputs(**given), GITHUB_STEP_SUMMARY=str(summary))
    assert done.returncode == code, done.stderr
    assert not (folder / "hurt").exists()
    for name in ("junit", "sarif"):
        assert name not in given or (folder / given[name]).exists()
    assert summary.exists() == (code != 2)


def test_the_hook_is_what_pre_commit_runs(folder: Path) -> None:
    (hook,) = yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text())
    assert {"id", "name", "entry", "language"} <= set(hook)
    assert {word for word in hook["args"] if word.startswith("--")} <= options("gate")
    for file, code in (("holds/release.json", 0), ("failed/release.json", 1)):
        done = shell(shlex.join([*hook["entry"].split(), *hook["args"], file]), folder)
        assert done.returncode == code, done.stderr


def test_what_the_guide_shows_to_servers_is_there() -> None:
    shown = re.findall(r"^```yaml\n(.*?)^```", (ROOT / "docs/guides/gate.md").read_text(), re.MULTILINE | re.DOTALL)
    github, gitlab, hooks = map(yaml.safe_load, shown)
    action = yaml.safe_load((ROOT / "action.yml").read_text())
    (used,) = [step for step in github["jobs"]["privacy"]["steps"] if "discreet" in step.get("uses", "")]
    assert set(used["with"]) <= set(action["inputs"])
    words = shlex.split(gitlab["privacy"]["script"][-1])
    assert words[:2] == ["discreet", "gate"]
    (hook,) = hooks["repos"][0]["hooks"]
    assert hook["id"] == yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text())[0]["id"]
    assert {word for word in [*words, *hook["args"]] if word.startswith("--")} <= options("gate")


def pytest_run(folder: Path, *args: str) -> str:
    """pytest with the plugin and no other."""
    asked = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-p", "discreet.integrations.pytest", "-rs", *args]
    alone = {**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTEST_ADDOPTS": ""}
    done = subprocess.run(asked, capture_output=True, text=True, cwd=folder, timeout=300, env=alone)
    return f"exit {done.returncode}\n{done.stdout}{done.stderr}"


def test_pytest_finds_the_plugin_by_itself() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    (name,) = project["entry-points"]["pytest11"].values()
    assert callable(importlib.import_module(name).pytest_addoption)


TEST = """
import discreet

def test_release(release):
    discreet.assert_below(release, tpr=0.1, fpr=0.01)
"""


def test_the_fixture_and_the_assertion(folder: Path) -> None:
    (folder / "test_model.py").write_text(TEST)
    assert pytest_run(folder, "test_model.py", "--privacy-release", "holds").startswith("exit 0")
    failed = pytest_run(folder, "test_model.py", "--privacy-release", "failed/release.json")
    assert failed.startswith("exit 1")
    assert "attack.lira: failed: TPR at 1 % FPR is" in failed
    assert "No release is named: give --privacy-release" in pytest_run(folder, "test_model.py")
    several = pytest_run(folder, "test_model.py", "--privacy-release", "holds", "--privacy-release", "unsure")
    assert "2 releases are named" in several


def test_a_policy_is_collected_as_tests(folder: Path) -> None:
    assert "collected 0 items" in pytest_run(folder)  # without a release a privacy.toml is nobody's business
    assert "3 passed" in pytest_run(folder, "--privacy-release", "holds")
    unsure = pytest_run(folder, "--privacy-release", "unsure", "--privacy-no-strict")
    assert "1 passed, 2 skipped" in unsure
    assert "would decide" in unsure
    assert "2 failed, 1 passed" in pytest_run(folder, "--privacy-release", "unsure")
    failed = pytest_run(folder, "--privacy-release", "refuted", "--privacy-release", "holds")
    assert "3 failed, 3 passed" in failed
    assert "privacy.toml, line 3: TPR at 1 % FPR below 10 %, for attack.*" in failed
    assert "Traceback" not in failed


def test_the_plugin_holds_a_release_against_its_ledger_and_its_signature(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with Ledger(folder / "ledger.db") as ledger:
        ledger.open("people", unit=record(), epsilon=3.0, delta=1e-6)
        with ledger.reserve("people", made(0.0).claims) as entry:
            paid = replace(made(0.0), entry=entry)
    paid.save(folder / "holds/release.json")
    monkeypatch.setenv("DISCREET_LEDGER", str(folder / "ledger.db"))
    assert "4 passed" in pytest_run(folder, "--privacy-release", "holds")
    replace(paid, source="visits").save(folder / "holds/release.json")
    assert "paid for 'people'; the release is from 'visits'" in pytest_run(folder, "--privacy-release", "holds")
    monkeypatch.delenv("DISCREET_LEDGER")
    assert "3 passed" in pytest_run(folder, "--privacy-release", "holds")
    make_key(folder / "our.key")
    sign_release(folder / "holds", folder / "our.key")
    assert "4 passed" in pytest_run(folder, "--privacy-release", "holds")
    paid.save(folder / "holds/release.json")
    assert "was changed after it was signed" in pytest_run(folder, "--privacy-release", "holds")


def test_the_configuration_may_name_the_release(folder: Path) -> None:
    (folder / "pytest.ini").write_text("[pytest]\nprivacy_release = holds/release.json\n")
    assert "3 passed" in pytest_run(folder)
    assert "3 failed" in pytest_run(folder, "--privacy-release", "failed")
    (folder / "privacy.toml").write_text("[[rule]]\nonn = 3\n")
    assert "line 2: unknown key 'onn' in a rule (did you mean on?)" in pytest_run(folder)


def test_the_plugin_loads_nothing_heavy() -> None:
    code = (
        "import sys, pytest, discreet.integrations.pytest\n"
        "heavy = {'numpy', 'scipy', 'torch', 'discreet.core', 'discreet.report', 'click', 'rich'} & set(sys.modules)\n"
        "sys.exit(f'loaded {heavy}' if heavy else 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
