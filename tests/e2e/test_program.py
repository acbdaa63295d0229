"""The installed program in a shell: exit codes, streams, pipes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = str(Path(sys.executable).with_name("discreet"))


def shell(command: str, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["bash", "-o", "pipefail", "-c", command.replace("discreet", PROGRAM, 1)],
        capture_output=True, text=True, errors="replace", stdin=subprocess.DEVNULL, env={**os.environ, **env}, timeout=120,
    )  # fmt: skip


def test_the_program_is_installed() -> None:
    done = shell("discreet --version")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("discreet ")


@pytest.mark.parametrize(
    ("command", "code"),
    [
        ("discreet account laplace --noise 1", 0),
        ("discreet account laplace --noise 0", 2),
        ("discreet account laplace --nose 1", 2),
        ("discreet nothing", 2),
        ("discreet audit /nowhere/release.json", 2),
        ("discreet show /dev/null", 2),
        ("discreet show /", 2),
    ],
)
def test_exit_codes_and_no_traceback(command: str, code: int) -> None:
    done = shell(command)
    assert done.returncode == code
    assert "Traceback" not in done.stderr
    assert (done.stdout == "") == (code == 2)
    assert (done.stderr == "") == (code == 0)


def test_stdin_is_a_file_like_any_other() -> None:
    done = shell(
        'echo \'{"kind": "laplace", "noise_multiplier": 2}\' | "$DISCREET" account event - --json --delta 0', DISCREET=PROGRAM
    )
    assert json.loads(done.stdout)["epsilon"] == [{"delta": 0.0, "epsilon": 0.5}]


def test_a_reader_that_leaves_early_is_no_error() -> None:
    done = shell("discreet account laplace --noise 1 | true; exit ${PIPESTATUS[0]}")
    assert done.returncode in (0, 141)
    assert done.stderr == ""
    assert shell("discreet account laplace --noise 1 | head -n 1").stdout.startswith("what ran")


def test_a_full_disk_is_told() -> None:
    done = shell("discreet account laplace --noise 1 > /dev/full")
    assert (done.returncode, done.stderr) == (1, "Error: The system refused: No space left on device.\n")


def test_old_terminals_get_escapes_and_no_traceback() -> None:
    done = shell("discreet account laplace --noise 1", PYTHONIOENCODING="latin-1")
    assert (done.returncode, done.stderr) == (0, "")
    assert "\\u25cf" in done.stdout


def test_no_colour_and_no_bar_away_from_a_terminal() -> None:
    done = shell("discreet account gaussian --noise 1", FORCE_COLOR="", TERM="xterm-256color")
    assert "\x1b" not in done.stdout + done.stderr
