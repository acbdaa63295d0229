"""Attacks that run beside the server: each is a Python function in a process of its own, one after another.

The functions are given to `Jobs` by whoever starts the server, one for each kind of target. They report their progress and, if
they fail, one message; nothing else that the process writes is kept.
"""

from __future__ import annotations

import json
import re
import shutil
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from discreet.core import Release
from discreet.core.document import read_json, write_whole
from discreet.errors import DiscreetError, InvalidValue
from discreet.serve.routes import number_in
from discreet.serve.settings import Target
from discreet.serve.store import ReleaseStore
from discreet.serve.worker import PATIENCE, Task, Worker

MOST_WAITING = 8
KEPT = 50  # ended ones that are still listed
LONGEST = 6 * 3600.0  # seconds
WRITTEN = ("number", "who", "description", "state", "done", "of", "fault", "release", "asked", "began", "ended")  # of an attack


@dataclass
class Job:
    """One attack: waiting, running, done, failed or cancelled."""

    number: int
    target: Target
    who: str
    options: Mapping[str, Any]
    description: str
    state: str = "waiting"
    done: int = 0
    of: int = 0
    line: str = ""
    fault: str = ""
    release: str | None = None
    asked: float = field(default_factory=time.time)
    began: float | None = None
    ended: float | None = None
    worker: Worker | None = None
    stop: bool = False

    def report(self, kind: str, *content: Any) -> None:
        """Note a message of the worker: progress, or why it failed."""
        if kind == "progress":
            self.done, self.of = content
            left = f", about {self.lasted / self.done * (self.of - self.done):.0f} s left" if self.done else ""
            self.line = f"training shadows: {self.done} of {self.of}{left}"
        elif kind == "failed":
            self.fault = str(content[0])[:500]

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
            "who": self.who, "what": self.description, "state": self.state, "part": self.part, "done": self.done, "of": self.of,
            "seconds": round(self.lasted, 1), "line": self.line, "result": self.release,
        }  # fmt: skip


class Jobs:
    """The queue. One attack runs at a time; what waits is bounded."""

    def __init__(self, store: ReleaseStore, tasks: Mapping[str, Task] | None = None, *, waiting: int = MOST_WAITING) -> None:
        self._store, self._tasks, self._most = store, dict(tasks or {}), waiting
        self._file = store.folder / ".attacks.json"
        self._jobs: OrderedDict[int, Job] = OrderedDict((job.number, job) for job in _read(self._file))
        self._lock = threading.Lock()
        self._news = threading.Condition(self._lock)
        self._closing = False
        self._worker: threading.Thread | None = None
        self.ended: Callable[[Job], None] = lambda job: None
        shutil.rmtree(store.folder / ".work", ignore_errors=True)  # of attacks that an earlier server did not end

    def add(self, target: Target, who: str, chosen: dict[str, Any]) -> Job:
        """Queue an attack; refused when too many wait."""
        if target.kind not in self._tasks:
            raise InvalidValue(f"This server was started without attacks on a {target.kind}: use discreet serve.")
        options, description = options_of(target, chosen)
        with self._news:
            if sum(job.state == "waiting" for job in self._jobs.values()) >= self._most:
                raise InvalidValue(f"{self._most} attacks are waiting already. Wait for one to end, or cancel one.")
            number = 1 + max([self._last(), *self._jobs])
            job = Job(number, target, who, options, description)
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
        matches = [re.fullmatch(r"attack-(\d+)-.*", name) for name in self._store.names()]
        return max((int(each[1]) for each in matches if each), default=0)

    def all(self) -> list[Job]:
        """Newest first."""
        with self._lock:
            return list(reversed(self._jobs.values()))

    def find(self, number: str) -> Job:
        with self._lock:
            job = self._jobs.get(number_in(number) or 0)
        if job is None:
            raise InvalidValue(f"There is no attack {number[:20]}; the last {KEPT} that ended are listed.")
        return job

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
            elif job.worker is not None:
                job.worker.interrupt()
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
                job.ended, job.worker = time.time(), None
                self._write()
            with suppress(Exception):
                self.ended(job)

    def _write(self) -> None:
        """What is listed is listed after a restart, too. An attack goes on where it cannot be written down."""
        known = [{name: getattr(job, name) for name in WRITTEN} | _of(job.target) for job in self._jobs.values()]
        with suppress(DiscreetError):
            write_whole(self._file, json.dumps(known))

    def _run(self, job: Job) -> None:
        folder = self._store.folder / ".work" / f"{job.number}"
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        options = {**job.options, "out": str(folder if job.target.kind == "model" else folder / "release.json")}
        if job.target.kind == "model" and self._store.load(job.target.release).claims:
            options["claim"] = str(self._store.path(job.target.release))
        try:
            code = self._follow(job, options)
            if job.stop:
                job.state = "cancelled"
            elif code == 0 and (folder / "release.json").is_file():
                shutil.rmtree(folder / "shadows", ignore_errors=True)
                job.release = f"attack-{job.number}-{job.target.name}"[:120]
                self._name(folder / "release.json", job)
                folder.rename(self._store.folder / job.release)
                job.state = "done"
            else:
                job.state, job.fault = "failed", job.fault or f"It ended with code {code}, and said nothing."
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def _name(self, file: Path, job: Job) -> None:
        """The result is about the attacked release, not about the file that its rows came from.

        It names the entry of that release only where it has the same claims: the entry paid for those.
        """
        attacked: Release[Any] = self._store.load(job.target.release)
        evidence: Release[Any] = Release.load(file)
        title = f"{attacked.facts.get('title') or job.target.release}, attacked"
        entry, also = (attacked.entry, attacked.also) if evidence.claims == attacked.claims else (None, ())
        replace(evidence, source=attacked.source, entry=entry, also=also, facts={**evidence.facts, "title": title}).save(file)

    def _follow(self, job: Job, options: Mapping[str, Any]) -> int:
        """Run the attack and note what it reports; its exit code."""
        with self._lock:
            if job.stop:
                return -1
            job.worker = worker = Worker(self._tasks[job.target.kind], options)
        timer = threading.Timer(LONGEST, worker.interrupt)
        timer.daemon = True
        timer.start()
        try:
            for message in worker.messages():
                job.report(*message)
            return worker.code()
        finally:
            timer.cancel()

    def close(self) -> None:
        """Stop what runs; what waits never starts."""
        with self._news:
            self._closing = True
            running = [job for job in self._jobs.values() if not job.over]
            for job in running:
                job.stop = True
                if job.worker is not None:
                    job.worker.interrupt()
            self._news.notify_all()
        if self._worker is not None:
            self._worker.join(PATIENCE + 5)


def _of(target: Target) -> dict[str, str]:
    return {"target": target.name, "kind": target.kind, "about": target.release}


def _read(file: Path) -> list[Job]:
    """The attacks that an earlier server listed; what had not ended then never will. Without a file that can be read, none."""
    try:
        known = [
            Job(
                options={},
                target=Target(saved["target"], saved["kind"], saved["about"], {}),
                **{name: saved[name] for name in WRITTEN},
            )
            for saved in map(_renamed, read_json(file))
            if isinstance(saved["number"], int)
        ]
    except (DiscreetError, LookupError, TypeError):
        return []
    for job in known:
        if not job.over:
            job.state, job.fault, job.ended = "failed", "The server was stopped before it ended.", job.ended or job.began
    return known


def _renamed(saved: Any) -> Any:
    """An attack as an earlier version listed it, with the names of today."""
    return {**saved, "description": saved.get("description", saved.get("told"))} if isinstance(saved, dict) else saved


def options_of(target: Target, chosen: Mapping[str, Any]) -> tuple[dict[str, Any], str]:
    """The options of an attack, and a description. Users choose numbers and names from lists, never files."""
    options = {name: value for name, value in target.options.items() if name not in ("attacks", "shadows")}
    if target.kind == "table":
        return options, f"a join on {options['quasi']}"
    options |= {name: chosen[name] for name in ("attacks", "shadows", "seed")}
    return options, f"{options['attacks']} with {options['shadows']} shadow models, seed {options['seed']}"
