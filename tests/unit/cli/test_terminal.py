"""The program on a terminal of 80 columns, in a pseudo-terminal, and in shells that complete its words."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import shutil
import struct
import subprocess
import sys
import termios
from pathlib import Path

import pytest

from discreet import Ledger, Release, record
from discreet.core import Claim, Game, Gaussian, Pure

COMMAND = [sys.executable, "-m", "discreet.cli"]


def on_a_terminal(words: list[str], columns: int = 80) -> str:
    """What a person sees of a command."""
    mine, its = pty.openpty()
    fcntl.ioctl(its, termios.TIOCSWINSZ, struct.pack("HHHH", 50, columns, 0, 0))
    environment = {key: value for key, value in os.environ.items() if key not in ("COLUMNS", "NO_COLOR")} | {"TERM": "xterm"}
    process = subprocess.Popen([*COMMAND, *words], stdin=its, stdout=its, stderr=its, env=environment)
    os.close(its)
    seen = b""
    try:
        while part := os.read(mine, 65536):
            seen += part
    except OSError:  # the other end is closed
        pass
    process.wait(60)
    os.close(mine)
    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", seen.decode()).replace("\r", "")


@pytest.fixture
def place(tmp_path: Path) -> Path:
    claims = (Claim(game=Game(record(), {"answers"}), event=Gaussian(9.0)),)
    with Ledger(tmp_path / "ledger.db") as ledger:
        ledger.open("the hospital of a long name", unit=record(), epsilon=2.0, delta=1e-6)
        for name in ("research", "quality-of-care"):
            ledger.share("the hospital of a long name", name, 0.25, by="data protection office")
        with ledger.reserve("the hospital of a long name", claims, account="research") as entry:
            pass
    Release(value=1, source="the hospital of a long name", claims=claims, entry=entry).save(tmp_path / "release.json")
    event = Pure(0.5)
    (tmp_path / "event.json").write_text(f'{{"kind": "pure", "epsilon": {event.epsilon}}}')
    (tmp_path / "privacy.toml").write_text('[[rule]]\non = "claim"\nepsilon = { at_delta = 1e-6, max = 3.0 }\n')
    return tmp_path


@pytest.mark.parametrize(
    "words",
    [
        "ledger show the_source --ledger {place}/ledger.db", "ledger show --ledger {place}/ledger.db",
        "ledger history --ledger {place}/ledger.db", "ledger show the-hospital-of-a-long-nam --ledger {place}/ledger.db",
        "show {place}/release.json", "account event {place}/event.json",
        "gate {place}/release.json --policy {place}/privacy.toml",
        "audit {place}/release.json", "--help", "query --help", "attack model --help", "ledger open --help",
    ],
)  # fmt: skip
def test_no_line_is_longer_than_the_terminal_and_no_word_is_cut(words: str, place: Path) -> None:
    """Only a word that is longer than a line, such as the path of a file, may go beyond it."""
    given = [word.format(place=place).replace("the_source", "the hospital of a long name") for word in words.split()]
    text = on_a_terminal(given)
    assert len(text) > 100
    long = [line for line in text.split("\n") if len(line) > 80 and max(map(len, line.split())) <= 80]
    assert long == []
    plain = subprocess.run([*COMMAND, *given], capture_output=True, text=True, timeout=60)
    cut = {word for word in (plain.stdout + plain.stderr).split() if len(word) <= 20 and word not in text}
    assert cut == set()


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_shell_completes_commands_and_options(shell: str) -> None:
    """As the shell asks: by the words typed so far, in its environment."""

    def completed(typed: str) -> set[str]:
        words = typed.split(" ")
        given = {"_DISCREET_COMPLETE": f"{shell}_complete", "COMP_WORDS": typed,
                 "COMP_CWORD": words[-1] if shell == "fish" else str(len(words) - 1)}  # fmt: skip
        program = [sys.executable, "-c", "from discreet.cli import main; main()"]
        done = subprocess.run(program, capture_output=True, text=True, env=os.environ | given, timeout=60, check=True)
        return set(re.split(r"[,\n\t]", done.stdout))

    assert {"ledger", "query", "report"} <= completed("discreet ")
    assert {"show", "share"} <= completed("discreet ledger s")
    assert "--epsilon" in completed("discreet query --e")
    assert "laplace" in completed("discreet query --noise l")


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_what_a_shell_reads_is_valid(shell: str, tmp_path: Path) -> None:
    program = shutil.which(shell)
    environment = os.environ | {"_DISCREET_COMPLETE": f"{shell}_source"}
    command = [sys.executable, "-c", "from discreet.cli import main; main()"]
    script = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=60, check=True).stdout
    assert "_DISCREET_COMPLETE" in script
    (tmp_path / "completion").write_text(script)
    if program is None:
        pytest.skip(f"{shell} is not installed")
    subprocess.run([program, "-n", str(tmp_path / "completion")], check=True, timeout=60)
