"""Leaked-password lookup by k-anonymity: the client sends a prefix of the password's hash, never the password.

The server learns the prefix, which at least k leaked passwords share. It answers with every hash that has this prefix, padded
so that all answers have the same length, and the client looks for its own hash there. This hides which of those passwords
was asked for. It does not hide what is probable anyway: a prefix makes likely passwords more likely.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections.abc import Callable, Iterable, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from discreet.core import check
from discreet.errors import InvalidValue

HASHES: dict[str, Callable[[bytes], str]] = {
    "sha1": lambda data: hashlib.sha1(data, usedforsecurity=False).hexdigest().upper(),
    "blake2": lambda data: hashlib.blake2b(data, digest_size=20).hexdigest().upper(),
}
_DIGITS = frozenset("0123456789ABCDEF")
_COUNT = 10  # digits of a count, so that every line is as long as any other


class Leaked:
    """The server's side: passwords that leaked and how often, found by the first `prefix` hexadecimal digits of their hash.

    >>> leaked = Leaked({"123456": 37, "letmein": 2}, prefix=1)
    >>> Client(leaked.range, prefix=1).count("letmein"), Client(leaked.range, prefix=1).count("correct horse")
    (2, 0)
    """

    def __init__(self, passwords: Mapping[str, int] | Iterable[str], *, prefix: int = 5, hash: str = "sha1") -> None:
        self.prefix = check.whole("prefix", prefix, most=20)
        digest = HASHES[check.word("hash", hash, tuple(HASHES))]
        counted = passwords if isinstance(passwords, Mapping) else dict.fromkeys(passwords, 1)
        if not counted:
            raise InvalidValue("There must be at least one leaked password; got none.")
        self._ranges: dict[str, list[str]] = {}
        for word, count in counted.items():
            name = digest(word.encode("utf-8"))
            times = min(check.whole("count", count), 10**_COUNT - 1)
            self._ranges.setdefault(name[:prefix], []).append(f"{name[prefix:]}:{times:0{_COUNT}d}")
        self._lines = max(map(len, self._ranges.values()))

    @property
    def k(self) -> int:
        """The fewest leaked passwords that share one prefix; 0 where a prefix has none."""
        return min(map(len, self._ranges.values())) if len(self._ranges) == 16**self.prefix else 0

    def range(self, prefix: str) -> str:
        """The hashes with this prefix and made-up ones with count 0, in random order: all answers have the same length."""
        if len(prefix) != self.prefix or not set(prefix) <= _DIGITS:
            raise InvalidValue(f"A range is asked by {self.prefix} hexadecimal digits; got something else.")
        lines = list(self._ranges.get(prefix, ()))
        while len(lines) < self._lines:
            lines.append(f"{secrets.token_hex(20).upper()[self.prefix :]}:{0:0{_COUNT}d}")
        secrets.SystemRandom().shuffle(lines)
        return "\n".join(lines)


class Client:
    """The asker's side. `fetch(prefix)` brings the server's answer: a function, or `over_http(address)`."""

    def __init__(self, fetch: Callable[[str], str], *, prefix: int = 5, hash: str = "sha1") -> None:
        self.fetch = fetch
        self.prefix = check.whole("prefix", prefix, most=20)
        self.hash = HASHES[check.word("hash", hash, tuple(HASHES))]

    def count(self, password: str) -> int:
        """How often this password leaked; 0 if it is not in the list. It never leaves this process."""
        name = self.hash(password.encode("utf-8"))
        count = 0
        for line in self.fetch(name[: self.prefix]).splitlines():
            suffix, _, times = line.partition(":")
            if hmac.compare_digest(suffix.encode(), name[self.prefix :].encode()):  # every line, whichever it is
                count = int(times)
        return count


def over_http(address: str) -> Callable[[str], str]:
    """A `fetch` that asks a server started with `serve`, at an address such as http://127.0.0.1:8000."""
    if not address.startswith(("http://", "https://")):
        raise InvalidValue("The address must begin with http:// or https://.")

    def fetch(prefix: str) -> str:
        from urllib.request import urlopen

        with urlopen(f"{address}/range/{prefix}", timeout=10) as answer:
            return str(answer.read().decode("ascii"))

    return fetch


def serve(leaked: Leaked, host: str = "127.0.0.1", port: int = 0) -> ThreadingHTTPServer:
    """A small web server for `leaked`: start it with `serve_forever()`, stop it with `shutdown()`; port 0 takes a free one."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            try:
                body = leaked.range(self.path.removeprefix("/range/")).encode("ascii")
            except InvalidValue as error:
                self.send_error(400, str(error))
                return
            self.send_response(200)
            self.send_header("Content-Type", "text/plain")
            self.send_header("Content-Length", str(len(body)))
            self.send_header("Cache-Control", "no-store")
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            """Log nothing: a log would record who asked for which prefix."""

    return ThreadingHTTPServer((host, port), Handler)
