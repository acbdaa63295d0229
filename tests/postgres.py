"""A real PostgreSQL server for the tests, in a folder of its own, reached through a socket in it and gone afterwards.

with server() as url, database(url) as one:
    psycopg.connect(one)
"""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Any

PATIENCE = 60.0  # seconds to come up, and to go down
_SETTINGS = {
    "listen_addresses": "", "port": "5432", "fsync": "on", "synchronous_commit": "on", "max_connections": "100",
    "shared_buffers": "32MB", "unix_socket_permissions": "0700",
}  # fmt: skip
_numbers = count()


def program(name: str) -> str | None:
    """One of the server's programs: on the path, or where Debian puts them (the newest)."""
    found = shutil.which("postgres")
    debian = sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=lambda place: (len(place.parts[-2]), place.parts[-2]))
    places = [Path(found).resolve().parent] if found else reversed(debian)
    return next((str(place / name) for place in places if (place / name).exists()), None)


def missing() -> str | None:
    """Why there is no server here, or None."""
    if not hasattr(os, "geteuid"):
        return "the PostgreSQL tests need a POSIX system"
    if program("postgres") is None or program("initdb") is None:
        return "no PostgreSQL server here; `make test` installs it where it can"
    return None


@contextmanager
def server(**settings: str) -> Iterator[str]:
    """The URL of an empty database of a server that nobody else uses; FileNotFoundError where there is none to start."""
    if (reason := missing()) is not None:
        raise FileNotFoundError(reason)
    folder = Path(tempfile.mkdtemp(prefix="pg-", dir="/tmp"))  # the path of a socket is short
    try:
        owner = _owner(folder)
        _run([program("initdb"), "-D", folder / "data", "-U", "tests", "-A", "trust", "-E", "UTF8", "--locale=C", "-N"], owner)
        process = _start(folder, {**_SETTINGS, **settings}, owner)
        try:
            url = f"postgresql://tests@/postgres?host={folder}&port=5432"
            _until_up(process, url, folder / "log")
            yield url
        finally:
            _stop(process)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def database(url: str, options: str = "") -> Iterator[str]:
    """The URL of a new database of this server; it is dropped afterwards, whoever still uses it."""
    import psycopg

    name = f"tests_{os.getpid()}_{next(_numbers)}"
    with psycopg.connect(url, autocommit=True) as link:
        link.execute(f"CREATE DATABASE {name} {options}".encode())
    try:
        yield url.replace("/postgres?", f"/{name}?")
    finally:
        with psycopg.connect(url, autocommit=True) as link:
            link.execute(f"DROP DATABASE {name} WITH (FORCE)".encode())


def _owner(folder: Path) -> dict[str, Any]:
    """PostgreSQL refuses to run as root, so root hands the folder to its user, or to nobody."""
    if os.geteuid() != 0:
        return {}
    names = {entry.pw_name: entry for entry in pwd.getpwall()}
    user = names.get("postgres") or names["nobody"]
    os.chown(folder, user.pw_uid, user.pw_gid)
    return {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []}


def _environment() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if not name.startswith("PG")} | {"LC_ALL": "C"}


def _run(command: list[Any], owner: dict[str, Any]) -> None:
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=PATIENCE, cwd="/", env=_environment(), **owner
    )  # fmt: skip
    if done.returncode:
        raise RuntimeError(f"{Path(command[0]).name} failed: {done.stderr[-2000:]}")


def _start(folder: Path, settings: dict[str, str], owner: dict[str, Any]) -> subprocess.Popen[bytes]:
    given = [part for name, value in settings.items() for part in ("-c", f"{name}={value}")]
    with (folder / "log").open("wb") as log:
        return subprocess.Popen(
            [str(program("postgres")), "-D", str(folder / "data"), "-k", str(folder), *given],
            stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd="/", env=_environment(), start_new_session=True, **owner,
        )  # fmt: skip


def _until_up(process: subprocess.Popen[bytes], url: str, log: Path) -> None:
    import psycopg

    until = time.monotonic() + PATIENCE
    while True:
        try:
            psycopg.connect(url, connect_timeout=10).close()
            return
        except psycopg.OperationalError as error:
            if process.poll() is not None or time.monotonic() > until:
                raise RuntimeError(f"PostgreSQL did not start: {error}\n{log.read_text()[-2000:]}") from None
        time.sleep(0.02)


def _stop(process: subprocess.Popen[bytes]) -> None:
    """Gently (no client is waited for), then by force."""
    for sign in (signal.SIGINT, signal.SIGQUIT, signal.SIGKILL):
        if process.poll() is None:
            process.send_signal(sign)
        try:
            process.wait(PATIENCE / 3)
            return
        except subprocess.TimeoutExpired:
            continue
