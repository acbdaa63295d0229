"""`discreet attack` as installed, in a shell: streams, exit codes, and a document that other commands read."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = str(Path(sys.executable).with_name("discreet"))
FILES = {
    "patients.csv": "id,born,zip,illness\n1,1945,02138,secret\n2,1950,02139,flu\n3,1950,02139,cold\n",
    "voters.csv": "id,born,zip\n1,1945,02138\n2,1950,02139\n3,1950,02139\n4,1960,02140\n",
    "answers.csv": "answer,ann,bob,cat\n2,1,1,1\n1,0,1,1\n1,1,1,0\n",
    "truth.csv": "who,bit\nann,1\nbob,0\ncat,1\n",
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name, text in FILES.items():
        (tmp_path / name).write_text(text)
    return tmp_path


def discreet(folder: Path, *args: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([PROGRAM, *args], capture_output=True, text=True, cwd=folder, timeout=120)


def test_a_table_is_attacked_and_the_evidence_shown(folder: Path) -> None:
    args = ["attack", "table", "patients.csv", "--quasi", "born,zip", "--sensitive", "illness", "--population", "voters.csv"]
    done = discreet(folder, *args, "--id", "id", "-o", "evidence.json", "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["linked_right"] == 1
    assert "no ceiling" in done.stderr
    shown = discreet(folder, "show", "evidence.json", "--html", "card.html")
    assert shown.returncode == 0
    assert "<svg" in (folder / "card.html").read_text()
    assert discreet(folder, "audit", "evidence.json").returncode == 1, "nothing is claimed, so nothing can be compared"


def test_answers_are_attacked(folder: Path) -> None:
    done = discreet(folder, "attack", "answers", "answers.csv", "--truth", "truth.csv")
    assert (done.returncode, done.stderr) == (0, "")
    assert "reconstructed share     100.00%" in done.stdout


@pytest.mark.parametrize(
    "args", [["table", "nowhere.csv", "--quasi", "a"], ["table", "patients.csv"], ["answers", "voters.csv"]]
)
def test_wrong_use(folder: Path, args: list[str]) -> None:
    done = discreet(folder, "attack", *args)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr
    assert "Traceback" not in done.stderr


STOPS = """
import os, signal
from pathlib import Path
import numpy as np
from discreet.models import Recipe

def fit(X, y):
    with open("calls", "a") as file:
        file.write("x")
    if Path("calls").stat().st_size == 20:
        os.kill(os.getpid(), signal.SIGINT)
    share = np.bincount(y, minlength=2) / len(y)
    return lambda rows: np.tile(np.log(share), (len(rows), 1))

recipe = Recipe(fit, kind="fit")
"""


def test_ctrl_c_keeps_what_was_done_and_the_same_command_goes_on(tmp_path: Path) -> None:
    """The recipe presses Ctrl-C in its 20th training: 16 shadows are kept, and are not trained again."""
    np = pytest.importorskip("numpy")
    joblib = pytest.importorskip("joblib")
    linear = pytest.importorskip("sklearn.linear_model")
    draw = np.random.default_rng(0)
    X, y = draw.normal(size=(80, 3)).astype(np.float32), draw.integers(0, 2, 80)
    np.savez(tmp_path / "in.npz", X=X[:40], y=y[:40])
    np.savez(tmp_path / "out.npz", X=X[40:], y=y[40:])
    joblib.dump(linear.LogisticRegression().fit(X[:40], y[:40]), tmp_path / "model.joblib")
    (tmp_path / "recipe.py").write_text(STOPS)
    args = ["attack", "model", "model.joblib", "--trust-pickle", "--recipe", "recipe.py", "--members", "in.npz",
            "--nonmembers", "out.npz", "--shadows", "32", "--no-controls", "--attacks", "bayes_lira", "--output",
            "audit"]  # fmt: skip
    stopped = discreet(tmp_path, *args)
    assert stopped.returncode != 0
    assert "Stopped: 16 of 32 shadows are kept" in stopped.stderr
    assert not (tmp_path / "audit" / "release.json").exists()
    assert discreet(tmp_path, *args).returncode == 0
    assert (tmp_path / "audit" / "release.json").exists()
    assert len((tmp_path / "calls").read_text()) == 20 + 16
