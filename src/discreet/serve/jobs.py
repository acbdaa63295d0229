"""Attacks that run beside the server: each is the command line in a process of its own, one after another.

What such a process writes is not shown as it is: a recipe is somebody's program, and may print what it likes. Only its progress
and, if it fails, the last line that the command line itself wrote as an error are kept.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from discreet.core import Release
from discreet.core.document import read_json, write_whole
from discreet.errors import DiscreetError, InvalidValue
from discreet.serve.settings import Target
from discreet.serve.shelf import Shelf

MOST_WAITING = 8
KEPT = 50  # ended ones that are still listed
LONGEST = 6 * 3600.0  # seconds
PATIENCE = 10.0  # between asking a process to stop and stopping it
WRITTEN = ("number", "who", "told", "state", "done", "of", "fault", "release", "asked", "began", "ended")  # of an attack
_STEP = re.compile(r"(\d+) of (\d+)")


@dataclass
class Job:
    """One attack: waiting, running, done, failed or cancelled."""

    number: int
    target: Target
    who: str
    command: list[str]
    told: str
    state: str = "waiting"
    done: int = 0
    of: int = 0
    line: str = ""
    fault: str = ""
    release: str | None = None
    asked: float = field(default_factory=time.time)
    began: float | None = None
    ended: float | None = None
    process: subprocess.Popen[str] | None = None
    stop: bool = False

    @property
    def part(self) -> float:
        """How far it is, from 0 to 1."""
        return 1.0 if self.state == "done" else self.done / self.of if self.of else 0.0

    @property
    def over(self) -> bool:
        return self.state not in ("waiting", "running")

    @property
    def lasted(self) -> float:
        return (self.ended or time.time()) - self.began if self.began else 0.0

    def to_json(self) -> dict[str, Any]:
        return {
            "number": self.number, "target": self.target.name, "kind": self.target.kind, "release": self.target.release,
            "who": self.who, "what": self.told, "state": self.state, "part": self.part, "done": self.done, "of": self.of,
            "seconds": round(self.lasted, 1), "line": self.line, "result": self.release,
        }  # fmt: skip


class Jobs:
    """The queue. One attack runs at a time; what waits is bounded."""

    def __init__(self, shelf: Shelf, *, waiting: int = MOST_WAITING) -> None:
        self._shelf, self._most = shelf, waiting
        self._file = shelf.folder / ".attacks.json"
        self._jobs: OrderedDict[int, Job] = OrderedDict((job.number, job) for job in _read(self._file))
        self._lock = threading.Lock()
        self._news = threading.Condition(self._lock)
        self._closing = False
        self._worker: threading.Thread | None = None
        self.ended: Callable[[Job], None] = lambda job: None
        shutil.rmtree(shelf.folder / ".work", ignore_errors=True)  # of attacks that an earlier server did not end

    def add(self, target: Target, who: str, chosen: dict[str, Any]) -> Job:
        """Queue an attack; refused when too many wait."""
        arguments, told = _arguments(target, chosen)
        with self._news:
            if sum(job.state == "waiting" for job in self._jobs.values()) >= self._most:
                raise InvalidValue(f"{self._most} attacks are waiting already. Wait for one to end, or cancel one.")
            number = 1 + max([self._last(), *self._jobs])
            job = Job(number, target, who, arguments, told)
            self._jobs[number] = job
            for old in [each.number for each in self._jobs.values() if each.over][:-KEPT]:
                del self._jobs[old]
            self._write()
            if self._worker is None:
                self._worker = threading.Thread(target=self._work, name="attacks", daemon=True)
                self._worker.start()
            self._news.notify_all()
        return job

    def _last(self) -> int:
        """The highest number among the results of earlier attacks, so that names are not used twice."""
        found = [re.fullmatch(r"attack-(\d+)-.*", name) for name in self._shelf.names()]
        return max((int(each[1]) for each in found if each), default=0)

    def all(self) -> list[Job]:
        """Newest first."""
        with self._lock:
            return list(reversed(self._jobs.values()))

    def find(self, number: str) -> Job:
        with self._lock:
            found = self._jobs.get(int(number)) if number.isdecimal() and len(number) < 10 else None
        if found is None:
            raise InvalidValue(f"There is no attack {number[:20]}; the last {KEPT} that ended are listed.")
        return found

    def cancel(self, number: str) -> Job:
        """Stop it, or take it from the queue."""
        job = self.find(number)
        with self._news:
            if job.over:
                raise InvalidValue(f"Attack {job.number} has ended already ({job.state}).")
            job.stop = True
            if job.state == "waiting":
                job.state, job.ended = "cancelled", time.time()
                self._write()
            elif job.process is not None:
                _interrupt(job.process)
        return job

    def _work(self) -> None:
        while True:
            with self._news:
                while not self._closing and not any(job.state == "waiting" for job in self._jobs.values()):
                    self._news.wait()
                if self._closing:
                    return
                job = next(job for job in self._jobs.values() if job.state == "waiting")
                job.state, job.began = "running", time.time()
            try:
                self._run(job)
            except Exception as error:  # the queue goes on whatever one attack did
                job.state, job.fault = "failed", f"It could not be started: {type(error).__name__}."
            with self._lock:
                job.ended, job.process = time.time(), None
                self._write()
            with suppress(Exception):
                self.ended(job)

    def _write(self) -> None:
        """What is listed is listed after a restart, too. An attack goes on where it cannot be written down."""
        known = [{name: getattr(job, name) for name in WRITTEN} | _of(job.target) for job in self._jobs.values()]
        with suppress(DiscreetError):
            write_whole(self._file, json.dumps(known))

    def _run(self, job: Job) -> None:
        folder = self._shelf.folder / ".work" / f"{job.number}"
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        out = folder if job.target.kind == "model" else folder / "release.json"
        claim = (
            ["--claim", str(self._shelf.path(job.target.release))]
            if job.target.kind == "model" and _claims(self._shelf, job)
            else []
        )
        try:
            code = self._follow(job, [*job.command, *claim, "--out", str(out)])
            if job.stop:
                job.state = "cancelled"
            elif code == 0 and (folder / "release.json").is_file():
                shutil.rmtree(folder / "shadows", ignore_errors=True)
                job.release = f"attack-{job.number}-{job.target.name}"[:120]
                self._name(folder / "release.json", job)
                folder.rename(self._shelf.folder / job.release)
                job.state = "done"
            else:
                job.state, job.fault = "failed", job.fault or f"It ended with code {code}, and said nothing."
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def _name(self, file: Path, job: Job) -> None:
        """What was found is about the release, not about the file that its rows came from.

        It names the entry of that release where it has the same claims: the entry paid for those, and for nothing else.
        """
        about: Release[Any] = self._shelf.load(job.target.release)
        found: Release[Any] = Release.load(file)
        title = f"{about.facts.get('title') or job.target.release}, attacked"
        entry, also = (about.entry, about.also) if found.claims == about.claims else (None, ())
        replace(found, source=about.source, entry=entry, also=also, facts={**found.facts, "title": title}).save(file)

    def _follow(self, job: Job, arguments: list[str]) -> int:
        """Run the command line, reading its progress; its exit code."""
        with self._lock:
            if job.stop:
                return -1
            job.process = subprocess.Popen(
                [sys.executable, "-m", "discreet.cli", *arguments], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE, text=True, errors="replace", start_new_session=True, env=_environment(),
            )  # fmt: skip
        process = job.process
        timer = threading.Timer(LONGEST, _interrupt, [process])
        timer.daemon = True
        timer.start()
        try:
            with process:
                for line in process.stderr or ():
                    _heard(job, line.strip())
            return process.returncode
        finally:
            timer.cancel()

    def close(self) -> None:
        """Stop what runs; what waits never starts."""
        with self._news:
            self._closing = True
            running = [job for job in self._jobs.values() if not job.over]
            for job in running:
                job.stop = True
                if job.process is not None:
                    _interrupt(job.process)
            self._news.notify_all()
        if self._worker is not None:
            self._worker.join(PATIENCE + 5)


def _of(target: Target) -> dict[str, str]:
    return {"target": target.name, "kind": target.kind, "about": target.release}


def _read(file: Path) -> list[Job]:
    """The attacks that an earlier server listed; what had not ended then never will. Without a file that can be read, none."""
    try:
        known = [
            Job(command=[], target=Target(it["target"], it["kind"], it["about"], {}), **{name: it[name] for name in WRITTEN})
            for it in read_json(file)
            if isinstance(it["number"], int)
        ]
    except (DiscreetError, LookupError, TypeError):
        return []
    for job in known:
        if not job.over:
            job.state, job.fault, job.ended = "failed", "The server was stopped before it ended.", job.ended or job.began
    return known


def _heard(job: Job, line: str) -> None:
    step = _STEP.search(line)
    if line.startswith("Error: "):
        job.fault = line.removeprefix("Error: ")[:500]
    elif step and line.startswith("training shadows"):
        job.done, job.of, job.line = int(step[1]), int(step[2]), line[:200]


def _interrupt(process: subprocess.Popen[str]) -> None:
    """Ask the process and all it started to stop, and make sure of it a little later."""

    def send(number: int) -> None:
        with suppress(OSError):
            os.killpg(process.pid, number)

    send(signal.SIGINT)
    later = threading.Timer(PATIENCE, lambda: send(signal.SIGKILL) if process.poll() is None else None)
    later.daemon = True
    later.start()


def _environment() -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("DISCREET_LEDGER")}
    return {**kept, "DISCREET_PROGRESS": "0.5", "OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", "1")}


def _claims(shelf: Shelf, job: Job) -> bool:
    return bool(shelf.load(job.target.release).claims)


def _arguments(target: Target, chosen: dict[str, Any]) -> tuple[list[str], str]:
    """The command line, and what it does in words. Visitors choose numbers and names from lists, never files."""
    given = target.given
    if target.kind == "table":
        made = ["attack", "table", given["file"], "--quasi", given["quasi"]]
        for name in ("sensitive", "population", "id", "fraction"):
            made += [f"--{name}", str(given[name])] if name in given else []
        return made, f"a join on {given['quasi']}"
    made = ["attack", "model", given["weights"], "--members", given["members"], "--nonmembers", given["nonmembers"]]
    made += ["--recipe", given["recipe"]] if "recipe" in given else []
    made += ["--target-column", str(given["target_column"])] if "target_column" in given else []
    made += ["--trust-pickle"] if given.get("trust_pickle") is True else []
    made += ["--no-controls"] if given.get("controls") is False else []
    attacks, shadows, seed = chosen["attacks"], chosen["shadows"], chosen["seed"]
    made += ["--attacks", attacks, "--shadows", str(shadows), "--seed", str(seed)]
    return made, f"{attacks} with {shadows} shadow models, seed {seed}"
