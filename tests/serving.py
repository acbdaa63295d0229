"""A server of the web app on loopback, as its owner would start it, and analysts who ask it from programs.

analysts = prepare(folder, 8, epsilon=3.0)
with running(folder) as address, Analyst(address, analysts["a0"]) as one:
    one.ask("SELECT COUNT(*) AS n FROM visits", 0.1)
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPConnection
from pathlib import Path
from types import TracebackType
from typing import Any

PATIENCE = 120.0  # seconds: a machine may be busy
SOURCE = "hospital"


def prepare(folder: Path, analysts: int, *, epsilon: float, rows: int = 20_000) -> dict[str, str]:
    """A hospital that never was, a budget shared evenly, and people: each analyst's name and token."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.parquet as parquet

    import discreet
    from discreet.serve import Users, users

    draw = np.random.default_rng(0)
    columns = {"patient_id": draw.integers(0, rows // 4, rows), "ward": draw.choice(["A", "B", "C"], rows),
               "age": draw.integers(0, 100, rows)}  # fmt: skip
    parquet.write_table(pa.table(columns), folder / "visits.parquet")
    (folder / "schema.toml").write_text('[visits.ward]\nvalues = ["A", "B", "C"]\n[visits.age]\nbounds = [0, 120]\n')
    (folder / "serve.toml").write_text(
        f'[sources.{SOURCE}]\nlocation = "visits.parquet"\nunit = "user:patient_id"\nrows = 4\nschema = "schema.toml"\n'
    )
    names = [f"a{i}" for i in range(analysts)]
    with discreet.Ledger(folder / "ledger.db") as ledger:
        ledger.open(SOURCE, unit=discreet.user("patient_id", rows=4), epsilon=epsilon, delta=1e-6)
        for name in names:
            ledger.share(SOURCE, name, 0.999 / analysts, by="ada")
    users.HASHING.update(time_cost=1, memory_cost=64)  # nobody's password
    crowd = Users(folder / "users.db")
    try:
        crowd.join(crowd.first_link(), "ada", "four words make one")
        return {name: crowd.new_token(crowd.join(crowd.invite(name, "analyst"), name, "four words make one"), "program")
                for name in names}  # fmt: skip
    finally:
        crowd.close()


def start(folder: Path) -> tuple[subprocess.Popen[bytes], str]:
    """The process of a new server, and its address; what it says goes to server.log."""
    ready = folder / "ready.json"
    ready.unlink(missing_ok=True)
    command = [sys.executable, "-m", "discreet.cli", "serve", "--ledger", "ledger.db", "--config", "serve.toml", "--port", "0",
               "--ready-file", "ready.json"]  # fmt: skip
    with (folder / "server.log").open("ab") as log:
        process = subprocess.Popen(command, cwd=folder, stdout=log, stderr=log)
    end = time.monotonic() + PATIENCE
    while not ready.exists():
        if process.poll() is not None or time.monotonic() > end:
            process.kill()
            raise RuntimeError(f"the server did not start: {(folder / 'server.log').read_text()[-2000:]}")
        time.sleep(0.02)
    return process, json.loads(ready.read_text())["url"]


@contextmanager
def running(folder: Path) -> Iterator[tuple[subprocess.Popen[bytes], str]]:
    """A server that is asked to stop afterwards, if it still runs."""
    process, address = start(folder)
    try:
        yield process, address
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
        process.wait(PATIENCE)


class Analyst:
    """One person's program, with one connection."""

    def __init__(self, address: str, token: str) -> None:
        self._link = HTTPConnection(address.removeprefix("http://"), timeout=PATIENCE)
        self._head = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}

    def call(self, page: str, **fields: Any) -> tuple[int, Any]:
        """Status and document of a page, or of a form that was sent to it."""
        body = json.dumps(fields).encode() if fields else None
        self._link.request("POST" if fields else "GET", f"{page}.json", body, self._head)
        reply = self._link.getresponse()
        return reply.status, json.loads(reply.read())

    def ask(self, sql: str, epsilon: float) -> tuple[int, Any]:
        status, found = self.call("/console/ask", source=SOURCE, sql=sql, epsilon=epsilon)
        return status, found["answer"] if status == 200 else found["error"]

    def __enter__(self) -> Analyst:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._link.close()
