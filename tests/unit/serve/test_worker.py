"""The process that an attack runs in is somebody's program: what it sends is data, whatever it sends."""

from __future__ import annotations

import gc
import pickle
from collections.abc import Mapping
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import pytest

from discreet.errors import InvalidValue
from discreet.serve.worker import Worker

REPORTS = [("progress", 1, 2), ("progress", 2, 2)]


def reports(options: Mapping[str, Any], progress: Any) -> None:
    progress(1, 2)
    progress(2, 2)


def fails(options: Mapping[str, Any], progress: Any) -> None:
    raise InvalidValue("the rows have no label")


class Mark:
    """Makes a file wherever it is unpickled."""

    def __init__(self, file: str) -> None:
        self.file = file

    def __reduce__(self) -> Any:
        return Path.touch, (Path(self.file),)


def attacks_the_server(options: Mapping[str, Any], progress: Any) -> None:
    """Finds the pipe of its process and sends what would run in another that unpickles, and what is no message."""
    (pipe,) = [it for it in gc.get_objects() if isinstance(it, Connection)]
    for raw in (pickle.dumps(Mark(options["file"])), b"\xff", b"[" * 100_000, b'["progress", "a", 1]', b'["other"]', b"{}"):
        pipe.send_bytes(raw)
    reports(options, progress)


@pytest.mark.parametrize(("task", "sent", "code"), [
    (reports, REPORTS, 0), (fails, [("failed", "the rows have no label")], 2), (attacks_the_server, REPORTS, 0),
])  # fmt: skip
def test_messages(task: Any, sent: list[Any], code: int, tmp_path: Path) -> None:
    worker = Worker(task, {"file": str(tmp_path / "ran")})
    assert list(worker.messages()) == sent
    assert worker.code() == code
    assert not (tmp_path / "ran").exists()
