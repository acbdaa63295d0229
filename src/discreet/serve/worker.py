"""A Python function in a process of its own, which reports through a pipe and can be stopped with all that it started.

The process is a new session with its own process group, reads and writes nothing but the pipe (a recipe is somebody's program,
and may print what it likes), and does not inherit the address of the ledger. `multiprocessing` would run the main module of
the server again and give the process the server's environment, so it is started here.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from multiprocessing.connection import Connection
from typing import Any

PATIENCE = 10.0  # seconds between the request to stop and SIGKILL
LONGEST = 1 << 20  # bytes of one message
MOST_SAID = 10_000  # characters of an error

Progress = Callable[[int, int], None]
Task = Callable[[Mapping[str, Any], Progress], None]  # a function of a module: the other process imports it by name


class Worker:
    """One call of a task. `messages` yields what it reports until it ends; `code` is then 0, or not 0 where it failed."""

    def __init__(self, task: Task, options: Mapping[str, Any]) -> None:
        ours, theirs = socket.socketpair()
        with theirs:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "discreet.serve.worker", str(theirs.fileno())], pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True,
                env=_environment(),
            )  # fmt: skip
        self._pipe = Connection(ours.detach())
        with suppress(OSError):  # it ended at once, which `code` says
            self._pipe.send(sys.path)
            self._pipe.send((task, dict(options)))

    def messages(self) -> Iterator[tuple[Any, ...]]:
        """("progress", done, of) any number of times, and ("failed", message) where the task raised an error."""
        with self._pipe, suppress(EOFError, OSError):
            while True:
                message = _decoded(self._pipe.recv_bytes(LONGEST))
                if message is not None:
                    yield message

    def code(self) -> int:
        """Wait for the end; the exit code."""
        return self.process.wait()

    def interrupt(self) -> None:
        """Ask the process and all that it started to stop; kill them if they have not after `PATIENCE` seconds."""
        self._send(signal.SIGINT)
        later = threading.Timer(PATIENCE, lambda: self._send(signal.SIGKILL) if self.process.poll() is None else None)
        later.daemon = True
        later.start()

    def _send(self, number: int) -> None:
        with suppress(OSError):
            os.killpg(self.process.pid, number)


def _decoded(text: bytes) -> tuple[Any, ...] | None:
    """A message, or None for anything else. It is JSON, not a pickle: what runs in the other process is somebody's program."""
    try:
        message = json.loads(text)
    except (ValueError, RecursionError):
        return None
    match message:
        case ["progress", int(done), int(of)]:
            return "progress", done, of
        case ["failed", str(reason)]:
            return "failed", reason
    return None


def _send(pipe: Connection, *message: Any) -> None:
    pipe.send_bytes(json.dumps(message).encode())


def _environment() -> dict[str, str]:
    """The environment without the ledger, and with one thread unless the server was told otherwise."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("DISCREET_LEDGER")}
    return {**kept, "OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", "1")}


def main(pipe: Connection, watch: Callable[[], None] = lambda: None) -> int:
    """The other process: receive the task, call it, report; the exit code. `watch` is called once the task has come."""
    from discreet.errors import DiscreetError

    sys.path[:] = pipe.recv()
    task, options = pipe.recv()
    watch()
    try:
        task(options, lambda done, of: _send(pipe, "progress", int(done), int(of)))
    except DiscreetError as error:
        _send(pipe, "failed", " ".join([str(error), *getattr(error, "__notes__", ())])[:MOST_SAID])
        return 2
    except OSError as error:
        _send(pipe, "failed", f"The system refused: {error.strerror or error}."[:MOST_SAID])
        return 1
    except Exception as error:
        _send(pipe, "failed", f"This is a fault in discreet ({type(error).__name__}: {str(error)[:300]}).")
        return 70
    return 0


def end_with_server(pipe: Connection) -> None:
    """Wait until the server is gone, however it ended, and end this process with all that it started.

    The server sends nothing more, so that only its end is read. Called in a thread of the process that runs the task.
    """
    try:
        while True:
            pipe.recv_bytes(LONGEST)
    except (EOFError, ConnectionError):
        os.killpg(os.getpgid(0), signal.SIGKILL)
    except (OSError, TypeError):
        return  # the task has ended, and its pipe is closed


if __name__ == "__main__":
    with Connection(int(sys.argv[1])) as opened:
        code = main(opened, watch=lambda: threading.Thread(target=end_with_server, args=(opened,), daemon=True).start())
    sys.exit(code)
