"""The HTTP server: one process with time limits on slow clients, none on slow answers."""

from __future__ import annotations

import asyncio
import errno
import json
import logging
import os
import signal
import socket
import struct
from collections.abc import Callable
from typing import Any

import h11
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from discreet.errors import InvalidValue
from discreet.serve.app import make_app
from discreet.serve.state import AppState

HEAD_WITHIN = 10.0  # seconds in which the head of a request must have come
READ_WITHIN = 60.0  # seconds in which a client must take what was sent before more is
MOST_CONNECTIONS = 1000
LONGEST_HEAD = 32 * 1024
NOT_AT_ALL = struct.pack("ii", 1, 0)
STOP_WITHIN = 20  # seconds that requests may still take when the server is stopped


class Brisk(H11Protocol):
    """uvicorn's HTTP protocol with two time limits: on the head of a request, and on a client that does not read its answer."""

    _head: asyncio.TimerHandle | None = None
    _taken: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._head = self.loop.call_later(HEAD_WITHIN, self._cut)

    def handle_events(self) -> None:
        super().handle_events()
        begun = self.conn.their_state is not h11.IDLE
        if begun and self._head is not None:
            self._head.cancel()
            self._head = None
        elif not begun and self._head is None and self.conn.trailing_data[0]:
            self._head = self.loop.call_later(HEAD_WITHIN, self._cut)

    def pause_writing(self) -> None:
        super().pause_writing()
        self._taken = self.loop.call_later(READ_WITHIN, self._cut)

    def resume_writing(self) -> None:
        super().resume_writing()
        if self._taken is not None:
            self._taken.cancel()
            self._taken = None

    def _cut(self) -> None:
        link = self.transport.get_extra_info("socket")
        if link is not None:
            link.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, NOT_AT_ALL)  # what was sent and not taken is dropped
        self.transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        for timer in (self._head, self._taken):
            if timer is not None:
                timer.cancel()
        super().connection_lost(exc)


class Server(uvicorn.Server):
    """Says when it listens."""

    def __init__(self, config: uvicorn.Config, listening: Callable[[], None]) -> None:
        super().__init__(config)
        self._listening = listening

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self._listening()


def bind(host: str, port: int) -> socket.socket:
    """A socket that listens, or a sentence that says why not."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
    except (OSError, OverflowError) as error:
        listener.close()
        number = getattr(error, "errno", None)
        if number == errno.EADDRINUSE:
            raise InvalidValue(
                f"Port {port} of {host} is in use: another server runs there. Choose another: --port {port + 1}"
            ) from None
        if number == errno.EACCES:
            raise InvalidValue(
                f"Port {port} may be used by root only. Choose one above 1023, and put a proxy before it."
            ) from None
        reason = getattr(error, "strerror", None) or error
        raise InvalidValue(
            f"The server cannot listen at {host}, port {port}: {reason}. Name an address of this machine with --host."
        ) from None
    return listener


def address(host: str, listener: socket.socket) -> str:
    """Where a browser on this machine finds the server."""
    port = listener.getsockname()[1]
    name = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}.get(host, f"[{host}]" if ":" in host else host)
    return f"http://{name}:{port}"


def write_ready(path: str, facts: dict[str, Any]) -> None:
    """Where the server is, for whoever started it; only its user may read it, since it may hold the owner's link."""
    scratch = f"{path}.{os.getpid()}.part"
    with open(os.open(scratch, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="utf-8") as file:
        json.dump(facts, file)
    os.replace(scratch, path)


def make_server(state: AppState, *, proxies: tuple[str, ...] = (), listening: Callable[[], None] = lambda: None) -> Server:
    """The server for one `AppState`, ready to run on a socket."""
    config = uvicorn.Config(
        make_app(state), http=Brisk, ws="none", lifespan="on", loop="asyncio", access_log=False, log_config=None,
        server_header=False, proxy_headers=bool(proxies), forwarded_allow_ips=list(proxies), timeout_keep_alive=15,
        timeout_graceful_shutdown=STOP_WITHIN, limit_concurrency=MOST_CONNECTIONS, h11_max_incomplete_event_size=LONGEST_HEAD,
    )  # fmt: skip
    return Server(config, listening)


def run(
    state: AppState, listener: socket.socket, *, proxies: tuple[str, ...] = (), listening: Callable[[], None] = lambda: None
) -> None:
    """Serve until SIGTERM or Ctrl-C; requests under way are answered, attacks are stopped."""
    logging.basicConfig(format="%(asctime)s %(levelname)s %(message)s", level=logging.WARNING)
    for number in (signal.SIGINT, signal.SIGTERM):  # uvicorn stops at them, and sends them again when it has stopped
        signal.signal(number, lambda *_: None)
    make_server(state, proxies=proxies, listening=listening).run(sockets=[listener])
