"""Client, server and wire for scoring: an HTTP server that gets public keys and ciphertexts, and answers ciphertexts.

The server's process holds no secret key, and nothing of this module writes one. It listens on the loopback interface
unless told otherwise; there is no transport encryption and no login: put it behind a proxy that has both.
"""

from __future__ import annotations

import http.client
import json
import math
import threading
import time
import urllib.error
import urllib.request
from collections import OrderedDict
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from discreet.crypto.accuracy import error_under
from discreet.crypto.container import unpack
from discreet.crypto.keys import PublicContext, key_memory
from discreet.crypto.model import Model
from discreet.crypto.names import column_names, same_columns
from discreet.crypto.packed import Encrypted
from discreet.crypto.parameters import PURPOSES
from discreet.crypto.scoring import Scorer
from discreet.errors import DiscreetError, InvalidDocument, InvalidValue

__all__ = ["ScoringClient", "ScoringServer"]

LARGEST, LARGEST_WORDS = 1 << 28, 1 << 20  # bytes of encrypted scores, and of anything else that a server answers
BOUND = 8.0  # of values, for the error that a server states unless it is asked for another
MOST_KEYS, MOST_MESSAGES = 16, 100_000  # that a server remembers
MOST_AT_ONCE, PATIENCE = 4, 60.0  # messages in memory at once, and seconds that a further one waits for a place
READING, SLOWEST = 60.0, 100_000  # a message may take so many seconds, and one more for each so many bytes


class _Server(ThreadingHTTPServer):
    def handle_error(self, *_: object) -> None:
        """A client that goes away is not written down, nor its address."""


class ScoringServer:
    """Serves one model. Keys are kept for the last 16 clients; a request that was answered before is refused."""

    def __init__(self, model: Model, *, host: str = "127.0.0.1", port: int = 0) -> None:
        self.scorer, self.model = Scorer(model), model
        self._keys: OrderedDict[str, PublicContext] = OrderedDict()
        self._seen: OrderedDict[str, None] = OrderedDict()
        self._lock = threading.Lock()
        self.places = threading.BoundedSemaphore(MOST_AT_ONCE)
        self._http = _Server((host, port), _handler(self))
        self.url = f"http://{host}:{self._http.server_address[1]}"

    def add_key(self, data: bytes) -> dict[str, Any]:
        """Take a client's public key. A secret key is refused by its kind, before any of it is read."""
        context, model = PublicContext.from_bytes(data), self.model
        if (context.purpose, context.features) != (model.purpose, model.features):
            raise InvalidValue(
                f"The model needs keys for {model.purpose} with {model.features} features; these are for {context.purpose} "
                f"with {context.features}. Run keygen again."
            )
        with self._lock:  # nobody replaces the rotation keys of another client, or is there before it unnoticed
            if self._keys.setdefault(context.id, context).to_bytes() != context.to_bytes():
                raise InvalidValue(
                    f"Key {context.id[:8]} is here with other rotation keys, which somebody else has sent. Run keygen again."
                )
            while len(self._keys) > MOST_KEYS:
                self._keys.popitem(last=False)
        return {"key": context.id}

    def score(self, data: bytes) -> bytes:
        """Answer one request."""
        request = Encrypted.from_bytes(data)
        with self._lock:
            public = self._keys.get(request.key)
            if public is None:
                raise InvalidValue(f"The server does not have key {request.key[:8]}. Send the public key first.")
            if request.message in self._seen:
                raise InvalidValue("This request was answered already: it is a replay. Encrypt the rows again.")
            self._seen[request.message] = None
            while len(self._seen) > MOST_MESSAGES:
                self._seen.popitem(last=False)
        return self.scorer.score(public, request).to_bytes()

    def describe(self, bound: float = BOUND) -> dict[str, Any]:
        """What a client must know: sizes, the purpose of the keys, what polynomials stand for, and the error of scores of rows
        within this bound.
        """
        model = self.model
        return {
            "features": model.features, "outputs": model.outputs, "purpose": model.purpose, "link": model.link,
            "approximation": list(model.approximation), "error": error_under(model, PURPOSES[model.purpose], bound),
            **({} if model.names is None else {"names": list(model.names)}),
        }  # fmt: skip

    def largest(self, path: str) -> int:
        """Bytes of a message that this model has use for."""
        model, parameters = self.model, PURPOSES[self.model.purpose]
        keys = key_memory(model.purpose, features=model.features)
        size = {"/keys": keys, "/score": model.features * parameters.ciphertext_bytes}[path]
        return size + size // 16 + (1 << 20)

    def serve(self) -> None:
        """Answer until `close` is called."""
        self._http.serve_forever(poll_interval=0.1)

    def close(self) -> None:
        self._http.shutdown()
        self._http.server_close()

    def __enter__(self) -> ScoringServer:
        threading.Thread(target=self.serve, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _handler(server: ScoringServer) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        timeout = 60  # seconds in which a client must go on sending

        def do_GET(self) -> None:
            path, _, asked = self.path.partition("?bound=")
            if path == "/model" and (bound := _bound(asked)) is not None:
                self._send(200, json.dumps(server.describe(bound)).encode())
            else:
                self._send(404, b"There is /model to read, and /keys and /score to post to.")

        def do_POST(self) -> None:
            actions: dict[str, Any] = {"/keys": lambda data: json.dumps(server.add_key(data)).encode(), "/score": server.score}
            if self.path not in actions:
                return self._send(404, b"There is /model to read, and /keys and /score to post to.")
            length = self.headers.get("Content-Length", "")
            largest = server.largest(self.path)
            if not length.isascii() or not length.isdigit() or len(length) > 12 or int(length) > largest:
                return self._send(411, f"A message needs a Content-Length of at most {largest} bytes.".encode())
            if not server.places.acquire(timeout=PATIENCE):
                return self._send(503, f"{MOST_AT_ONCE} messages are being read already. Send it again later.".encode())
            try:
                said = self._said(actions[self.path], int(length))
            finally:
                server.places.release()
            return self._send(*said)  # who does not read it keeps no place

        def _said(self, action: Any, length: int) -> tuple[int, bytes]:
            try:
                return 200, action(self._read(length))
            except TimeoutError:
                return 408, f"A message must come at {SLOWEST} bytes a second or more. Send it again.".encode()
            except DiscreetError as error:
                return 400, str(error).encode()
            except Exception as error:  # a fault of ours, told without its details
                return 500, f"The request failed with {type(error).__name__}.".encode()

        def _read(self, length: int) -> bytes:
            """The body, in bounded time: who sends a byte now and then must not keep a place."""
            deadline, parts = time.monotonic() + READING + length / SLOWEST, []
            while length:
                self.connection.settimeout(max(1e-3, deadline - time.monotonic()))
                part = self.rfile.read1(min(length, 1 << 20))
                if not part:
                    break
                parts.append(part)
                length -= len(part)
            self.connection.settimeout(self.timeout)
            return b"".join(parts)

        def _send(self, status: int, body: bytes) -> None:
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Nothing: who asked what is not written down."""

    return Handler


def _bound(asked: str) -> float | None:
    """The bound of values that a client asks about; None for what is none."""
    try:
        bound = float(asked) if asked else BOUND
    except ValueError:
        return None
    return bound if 0 < bound <= 1024 else None


def _printable(text: str) -> str:
    """What a server says, without what moves a terminal's cursor."""
    return "".join(letter if letter.isprintable() else "?" for letter in text)[:2000]


def _reason(refusal: urllib.error.HTTPError) -> str:
    """What a server says of its refusal, as far as that can be read."""
    with refusal:
        try:
            return _printable(refusal.read(2000).decode("utf-8", "replace"))
        except (OSError, http.client.HTTPException):
            return f"status {refusal.code}"


class ScoringClient:
    """Sends public keys and encrypted rows. It takes no secret key: encryption and decryption stay outside of it."""

    def __init__(self, url: str, *, timeout: float = 600.0) -> None:
        if not url.startswith(("http://", "https://")):
            raise InvalidValue(f"url must start with http:// or https://; got {url!r}.")
        self.url, self.timeout = url.rstrip("/"), timeout

    def describe(self, bound: float = BOUND) -> dict[str, Any]:
        """What the server says of its model, and of its error for values up to `bound`."""
        data = self._call(f"/model?bound={bound}", None)
        try:
            found = json.loads(data)
        except (ValueError, RecursionError):
            found = None
        if not isinstance(found, dict) or not {"features", "purpose", "link", "approximation"} <= set(found):
            raise InvalidDocument(f"{self.url} is no scoring server: it describes no model.")
        if not isinstance(found["approximation"], list):
            raise InvalidDocument(f"{self.url} describes its approximation by something else than sentences.")
        if type(found.get("error")) is not float or not 0 < found["error"] < math.inf:
            raise InvalidDocument(f"{self.url} states no error of its scores.")
        try:
            found |= {"names": column_names(found["names"])} if found.get("names") is not None else {}
        except InvalidValue as error:
            raise InvalidDocument(f"{self.url} names no columns of a model: {error}") from None
        return {**found, "approximation": [_printable(str(line)) for line in found["approximation"]]}

    def send_key(self, public: PublicContext) -> None:
        """Send it, unless the model needs another: a server closes the line on a larger key than its model has use for."""
        if not isinstance(public, PublicContext):
            raise InvalidValue(f"Only a PublicContext can be sent; got {type(public).__name__}. Pass secret.public.")
        wanted = self.describe()
        if (public.purpose, public.features) != (wanted["purpose"], wanted["features"]):
            raise InvalidValue(
                f"The server's model needs keys for {_printable(str(wanted['purpose']))} with "
                f"{_printable(str(wanted['features']))} features; these are for {public.purpose} with {public.features}. "
                "Run keygen again."
            )
        self._call("/keys", public.to_bytes())

    def score(self, request: Encrypted) -> Encrypted:
        """The encrypted answer to this request, and to no other. The names of its columns are compared here, and not sent."""
        if request.names is not None:
            same_columns(self.describe().get("names"), request.names)
        body = replace(request, names=None).to_bytes()
        unpack(body, "ciphertext")  # whatever is sent is ciphertexts
        answer = Encrypted.from_bytes(self._call("/score", body), "The server's answer")
        if answer.answers != request.message or answer.key != request.key or answer.layout != "scores":
            raise InvalidDocument("The server's answer is to another request. It was replayed, or belongs to another client.")
        return answer

    def _call(self, path: str, body: bytes | None) -> bytes:
        most = LARGEST if path == "/score" else LARGEST_WORDS
        try:
            request = urllib.request.Request(self.url + path, data=body)
            with urllib.request.urlopen(request, timeout=self.timeout) as response:
                data: bytes = response.read(most + 1)
        except urllib.error.HTTPError as refusal:
            raise InvalidValue(f"The server refused: {_reason(refusal)}") from None
        except (http.client.InvalidURL, ValueError):
            raise InvalidValue(f"{_printable(self.url)} is no address. Write it as http://127.0.0.1:8300.") from None
        except http.client.HTTPException as problem:
            raise InvalidDocument(
                f"{self.url} does not speak HTTP as a scoring server does ({type(problem).__name__}). Is it the right address?"
            ) from None
        except (urllib.error.URLError, OSError) as problem:
            raise InvalidValue(
                f"{self.url} does not answer ({type(problem).__name__}). Is discreet crypto serve running?"
            ) from None
        if len(data) > most:
            raise InvalidDocument(f"{self.url} answers more than {most:,} bytes, which no scoring server does.")
        return data
