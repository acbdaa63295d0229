"""The server on a real socket: slow clients are cut off, others are served meanwhile.

Patience is shortened here; how long a test waits decides nothing but how soon a broken server is given up on.
"""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from discreet.errors import InvalidValue
from discreet.serve import AppState, app, server
from webapp import settings

GIVE_UP = 30.0


@pytest.fixture
def port(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    for module, name in ((server, "HEAD_WITHIN"), (server, "READ_WITHIN"), (app, "BODY_WITHIN")):
        monkeypatch.setattr(module, name, 0.3)
    listener = server.bind("127.0.0.1", 0)
    up = threading.Event()
    made = server.make_server(AppState(settings(tmp_path)), listening=up.set)
    thread = threading.Thread(target=made.run, kwargs={"sockets": [listener]})
    thread.start()
    assert up.wait(GIVE_UP)
    yield listener.getsockname()[1]
    made.should_exit = True
    thread.join(GIVE_UP)
    listener.close()
    assert not thread.is_alive()


def call(port: int) -> socket.socket:
    return socket.create_connection(("127.0.0.1", port), timeout=GIVE_UP)


def served(port: int) -> bool:
    with call(port) as link:
        link.sendall(b"GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n")
        return b"200 OK" in rest(link)


def rest(link: socket.socket) -> bytes:
    """All that still comes until the other side ends it."""
    parts = []
    try:
        while part := link.recv(65536):
            parts.append(part)
    except ConnectionError:
        pass
    return b"".join(parts)


def test_a_head_that_does_not_come_is_not_waited_for(port: int) -> None:
    with call(port) as silent, call(port) as half:
        half.sendall(b"GET /login HTTP/1.1\r\nHost: 127.")
        assert served(port)
        assert rest(silent) == rest(half) == b""


def test_a_head_that_drips_is_cut_off(port: int) -> None:
    with call(port) as link:
        sent = 0
        end = time.monotonic() + GIVE_UP
        try:
            while time.monotonic() < end:
                link.sendall(b"G" if sent == 0 else b"E")
                sent += 1
                time.sleep(0.05)
        except OSError:
            end = 0.0
        assert end == 0.0


def test_a_second_head_that_drips_is_cut_off_too(port: int) -> None:
    with call(port) as link:
        link.sendall(b"GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\nGET /hea")
        found = rest(link)
        assert found.count(b"200 OK") == 1


def test_a_body_that_does_not_come_is_not_waited_for(port: int) -> None:
    with call(port) as link:
        link.sendall(b"POST /login HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 1000\r\n\r\nname=")
        assert b"408" in rest(link).split(b"\r\n")[0]


def test_an_answer_that_is_not_taken_is_not_kept(port: int) -> None:
    count = 400
    with call(port) as link:
        one = b"GET /static/htmx.min.js HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"
        try:
            link.sendall(one * count)
            time.sleep(2.0)
            found = rest(link)
        except OSError:
            found = b""
        assert found.count(b"HTTP/1.1 200 OK") < count
    assert served(port)


def test_a_head_that_is_too_long_is_refused(port: int) -> None:
    with call(port) as link:
        link.sendall(b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nX: " + b"x" * (server.LONGEST_HEAD + 10))
        assert rest(link).split(b"\r\n")[0] in (b"", b"HTTP/1.1 400 Bad Request")


def test_two_hosts_or_none_are_refused(port: int) -> None:
    for head in (b"", b"Host: 127.0.0.1\r\nHost: evil.example\r\n"):
        with call(port) as link:
            link.sendall(b"GET /login HTTP/1.1\r\n" + head + b"Connection: close\r\n\r\n")
            assert b"400" in rest(link).split(b"\r\n")[0]


def test_many_at_once_are_served(port: int) -> None:
    found: list[bool] = []
    threads = [threading.Thread(target=lambda: found.append(served(port))) for _ in range(60)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(GIVE_UP)
    assert found == [True] * 60


def test_a_port_in_use_is_told() -> None:
    with server.bind("127.0.0.1", 0) as first:
        first.listen()
        with pytest.raises(InvalidValue, match="is in use"):
            server.bind("127.0.0.1", first.getsockname()[1])
    with pytest.raises(InvalidValue, match="cannot listen at 192"):
        server.bind("192.0.2.1", 0)


def test_the_ready_file_is_for_its_user_alone(tmp_path: Path) -> None:
    server.write_ready(str(tmp_path / "ready.json"), {"url": "x"})
    assert json.loads((tmp_path / "ready.json").read_text()) == {"url": "x"}
    assert (tmp_path / "ready.json").stat().st_mode & 0o077 == 0
