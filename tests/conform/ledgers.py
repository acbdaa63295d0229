"""Every engine a ledger can live in, and workers that charge one from processes of their own.

The workers are forked by one process that has loaded the ledger and nothing else, so that a new one costs milliseconds.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from types import TracebackType

PATIENCE = 60  # seconds until a worker is thought to be stuck
ENGINES = ["sqlite", "sqlite without file locks", "postgres"]

_SPAWNER = """
import json, os, sys
from discreet.ledger import Ledger, sqlite
from discreet.accounting import Gaussian
from discreet.core import Claim, Game, record
from discreet.errors import BudgetExceeded

def charge(place, engine, times, noise, key, out):
    if engine == "sqlite without file locks":
        sqlite.fcntl = None
    told = os.open(out, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    say = lambda *words: os.write(told, (" ".join(words) + "\\n").encode())
    claim = Claim(game=Game(record(), {"answers"}), event=Gaussian(noise))
    ledger = Ledger(place)
    for _ in range(times):
        try:
            made = ledger.reserve("people", claim, key=key)
        except BudgetExceeded:
            say("refused")
            continue
        say("reserved", made.id, str(int(made.repeated)))
        with made:
            if not made.repeated:
                made.settle(answer=made.id)
        say("settled", made.id)
    ledger.close()

for line in sys.stdin:
    asked = json.loads(line)
    if "wait" in asked:
        print(os.waitstatus_to_exitcode(os.waitpid(asked["wait"], 0)[1]), flush=True)
        continue
    child = os.fork()
    if child == 0:
        code = 1
        try:
            charge(**asked)
            code = 0
        except BaseException as error:
            print(f"worker: {type(error).__name__}: {error}", file=sys.stderr, flush=True)
        finally:
            os._exit(code)
    print(child, flush=True)
"""


class Workers:
    """Processes that charge a ledger; each tells of its steps in a file, which a kill leaves as it is."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._made: list[Path] = []
        self._spawner = subprocess.Popen(
            [sys.executable, "-c", _SPAWNER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
            env={**os.environ, "OPENBLAS_NUM_THREADS": "1"},
        )  # fmt: skip

    def start(self, place: object, engine: str, *, times: int, noise: float, key: str | None = None) -> int:
        """A process that charges `times` times from now on; its id."""
        out = self._folder / f"worker-{len(self._made)}"
        asked = {"place": str(place), "engine": engine, "times": times, "noise": noise, "key": key, "out": str(out)}
        self._made.append(out)
        return self._ask(asked)

    def go_on(self, lines: int) -> None:
        """Wait until all together have told about this many lines more."""
        wanted, until = self._size() + 25 * lines, time.monotonic() + PATIENCE
        while self._size() < wanted:
            assert time.monotonic() < until, f"the workers told fewer than {lines} lines in {PATIENCE} seconds"
            time.sleep(0.001)

    def _size(self) -> int:
        return sum(out.stat().st_size for out in self._made if out.exists())

    def wait(self, process: int) -> int:
        """Its exit code, as Popen tells it."""
        return self._ask({"wait": process})

    def told(self) -> list[list[str]]:
        """What all of them told, in words; a last line that was cut short is left out."""
        texts = [out.read_text() for out in self._made if out.exists()]
        return [line.split() for text in texts for line in text.splitlines(keepends=True) if line.endswith("\n")]

    def _ask(self, document: dict[str, object]) -> int:
        assert self._spawner.stdin is not None
        assert self._spawner.stdout is not None
        self._spawner.stdin.write(f"{json.dumps(document)}\n")
        self._spawner.stdin.flush()
        return int(self._spawner.stdout.readline())

    def __enter__(self) -> Workers:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._spawner.communicate()
