"""`discreet keys`, and what the gate, the report and the ledger make of keys and entries."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from discreet import Ledger, record
from discreet.accounting import Gaussian
from discreet.cli import app
from discreet.core import Claim, ExternalValue, Game, Release

CLAIM = Claim(game=Game(record(), {"answers"}), event=Gaussian(50.0))


def run(*args: object) -> Result:
    return CliRunner().invoke(app, [str(each) for each in args], env={"GITHUB_ACTIONS": None, "DISCREET_LEDGER": None})


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A folder with a ledger, a release that it paid for, a policy and a key."""
    with Ledger(tmp_path / "ledger.db") as ledger:
        ledger.open("people", unit=record(), epsilon=1.0, delta=1e-6)
        with ledger.reserve("people", CLAIM) as entry:
            Release(value=7, source="people", claims=(CLAIM,), entry=entry).save(tmp_path / "answer.json")
    (tmp_path / "privacy.toml").write_text('[[rule]]\non = "release"\nrequire = ["claim"]\n')
    assert run("keys", "make", tmp_path / "our.key").exit_code == 0
    return tmp_path


def test_make_and_show(place: Path) -> None:
    made = run("keys", "make", place / "their.key")
    assert made.stdout.startswith("ed25519:")
    assert "whoever has it signs as you" in made.stderr
    assert run("keys", "show", place / "their.key").stdout == made.stdout
    assert json.loads(run("keys", "show", place / "their.key", "--json").stdout) == {"public": made.stdout.strip()}
    again = run("keys", "make", place / "their.key")
    assert again.exit_code == 2
    assert "never written over" in again.stderr


def test_sign_and_verify(place: Path) -> None:
    answer, key = place / "answer.json", place / "our.key"
    unsigned = run("keys", "verify", answer)
    assert (unsigned.exit_code, "there is no signature beside it" in unsigned.stdout) == (1, True)
    assert run("keys", "sign", answer, "--key", key).exit_code == 0
    fine = run("keys", "verify", answer, "--key", key)
    assert (fine.exit_code, fine.stderr) == (0, "")
    assert "signed it" in fine.stdout
    blind = run("keys", "verify", answer)
    assert blind.exit_code == 0
    assert "No public key was given" in blind.stderr
    answer.write_text(answer.read_text().replace("50.0", "60.0"))
    bad = run("keys", "verify", answer, "--key", key, "--json")
    assert bad.exit_code == 1
    assert json.loads(bad.stdout)["signatures"][0]["fault"] == "answer.json was changed after it was signed"


def test_sign_and_verify_a_ledger(place: Path) -> None:
    ledger, key, head = place / "ledger.db", place / "our.key", place / "head.sig"
    assert run("keys", "sign", "--ledger", ledger, "--key", key, "-o", head).exit_code == 0
    fine = run("keys", "verify", head, "--ledger", ledger, "--key", key)
    assert fine.exit_code == 0
    assert "is not signed" in fine.stderr
    for wrong in (
        ("sign", "--ledger", ledger, "--key", key), ("sign", "--key", key), ("sign", "x", "--ledger", ledger, "--key", key),
        ("sign", place / "answer.json", place / "answer.json", "--with", key, "--key", key),
        ("verify", head, "--ledger", place / "nothing.db"), ("verify", head, "--key", "nobody"),
    ):  # fmt: skip
        assert run("keys", *wrong).exit_code == 2, wrong
    assert not (place / "nothing.db").exists()


def test_the_gate_exits_with_1_on_what_the_ledger_contradicts(place: Path) -> None:
    gate = ("gate", "--policy", place / "privacy.toml", "--ledger", place / "ledger.db")
    fine = run(*gate, place / "answer.json")
    assert (fine.exit_code, fine.stdout.splitlines()[0].split()[:3]) == (0, ["holds", "as-it-says", "entry"])
    release = Release.load(place / "answer.json")
    edited = replace(release, claims=(Claim(game=CLAIM.game, event=Gaussian(500.0)),)).save(place / "edited.json")
    found = run(*gate, edited, "--sarif", place / "out.sarif")
    assert found.exit_code == 1
    assert found.stdout.splitlines()[0].split()[:3] == ["failed", "as-it-says", "entry"]
    raw = run(*gate, replace(release, value=[1, 2, 3], claims=()).save(place / "raw.json"))
    assert (raw.exit_code, raw.stdout.splitlines()[0].split()[:3]) == (1, ["failed", "as-it-says", "entry"])
    assert (
        "its claims are not those" in json.loads((place / "out.sarif").read_text())["runs"][0]["results"][0]["message"]["text"]
    )
    assert run("gate", "--policy", place / "privacy.toml", edited).exit_code == 0  # nothing to hold it against
    told = run("report", edited, "--ledger", place / "ledger.db")
    assert told.exit_code == 0
    assert told.stderr.startswith("contradicted: Do not rely on this release: its claims are not those")


def test_the_gate_warns_of_two_values_that_one_entry_paid_for(place: Path) -> None:
    gate = ("gate", "--policy", place / "privacy.toml", "--ledger", place / "ledger.db", place / "answer.json")
    release = Release.load(place / "answer.json")
    same, other = release.save(place / "same.json"), release.map(lambda value: [value, 1]).save(place / "other.json")
    assert "Warning" not in run(*gate, same).stderr
    told = run(*gate, other)
    assert told.exit_code == 0  # it may have been made from the answer
    assert f"Warning: Entry {release.entry} is named by releases with different values: " in told.stderr
    model = replace(release, value=ExternalValue("model"))
    assert "Warning" in run(*gate[:-1], model.save(place / "one.json"), model.save(place / "two.json")).stderr


def test_the_gate_with_keys_and_a_head(place: Path) -> None:
    key = run("keys", "show", place / "our.key").stdout.strip()
    policy = place / "strict.toml"
    policy.write_text(f'keys = ["{key}"]\n[[rule]]\non = "release"\nrequire = ["ledger", "ledger.head", "signature"]\n')
    gate = ("gate", "--policy", policy, place / "answer.json", "--ledger", place / "ledger.db")
    assert run(*gate).exit_code == 1
    run("keys", "sign", place / "answer.json", "--key", place / "our.key")
    run("keys", "sign", "--ledger", place / "ledger.db", "--key", place / "our.key", "-o", place / "head.sig")
    assert run(*gate, "--head", place / "head.sig").exit_code == 0
    assert run("gate", "--policy", policy, place / "answer.json", "--head", place / "head.sig").exit_code == 2


def test_verify_says_what_it_cannot_know(place: Path) -> None:
    found = run("ledger", "verify", "--ledger", place / "ledger.db")
    assert found.exit_code == 0
    assert found.stderr.count("What this cannot know: ") == 2
    assert "No entry that was noted elsewhere was given" in found.stderr
    noted = found.stdout.split()[-1]
    told = json.loads(run("ledger", "verify", "--ledger", place / "ledger.db", "--noted", noted, "--json").stdout)
    assert told["verified"]
    assert told["cannot_know"][0] == f"What was written after entry {noted} may be missing or written anew."


def test_a_release_that_is_not_there_is_wrong_use(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    for name in ("nofolder", "empty", "no.json"):
        result = run("keys", "verify", tmp_path / name)
        assert (result.exit_code, result.stdout) == (2, "")
        assert "There is no release at" in result.stderr
