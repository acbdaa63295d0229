"""Secure computation by two or three parties on additive shares: sums, inner products, scores. Exact, modulo 2^64.

A number is a sum of shares modulo 2^64, one for each party; all but one of them are uniform and say nothing. Sums of shared
numbers need no message. A product needs a *triple* (A, B, AB) of shared random numbers, made beforehand by a dealer
(Beaver 1991): the parties open X - A and Y - B, which are uniform, and XY = (X-A)(Y-B) + (X-A)B + A(Y-B) + AB.

**What is proven.** Parties that follow the protocol and look at everything (semi-honest), up to all but one of them together,
learn the opened result and nothing else, whatever they compute. **What the dealer could see.** The dealer sees no input and
no message; but it knows every triple, so that the dealer together with *one* party reads all inputs of products. It
should be a party that gains nothing by that, and forget the triples. A party that sends other values than it should
changes the result unnoticed. The result itself is a release, for which none of this is a claim.
"""

from __future__ import annotations

import hashlib
import queue
import secrets
import socket
import struct
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

import numpy as np
from numpy.typing import NDArray

from discreet.core.document import members
from discreet.crypto.container import pack, unpack
from discreet.crypto.private import Once, Private
from discreet.errors import InvalidDocument, InvalidValue

__all__ = ["ShareParty", "Shared", "Triple", "decode", "encode", "share", "triples"]

Words = NDArray[np.uint64]
FRACTION_BITS = 20


def encode(values: Any, *, bits: int = FRACTION_BITS) -> Words:
    """Numbers as whole multiples of 2^-bits modulo 2^64; what does not fit is refused.

    >>> decode(encode([0.5, -3.25]) + encode([1.0, 1.0])).tolist()
    [1.5, -2.25]
    """
    try:
        scaled = np.asarray(values, np.float64) * 2.0**bits
    except (TypeError, ValueError):
        raise InvalidValue("Only numbers can be shared; found something else. Encode categories as numbers first.") from None
    if not np.isfinite(scaled).all() or (scaled.size and np.abs(scaled).max() >= 2.0**62):
        raise InvalidValue(
            f"Numbers must be finite and below 2^{62 - bits} in magnitude. Nothing was shared; scale or clip them."
        )
    return np.rint(scaled).astype(np.int64).view(np.uint64)


def decode(words: Words, *, bits: int = FRACTION_BITS) -> NDArray[np.float64]:
    """The numbers again; of a product, `bits` is the sum of those of its factors."""
    return np.asarray(words, np.uint64).view(np.int64) / 2.0**bits


def uniform(shape: Sequence[int]) -> Words:
    """Random numbers of the operating system."""
    count = int(np.prod(shape, dtype=np.int64))
    return np.frombuffer(secrets.token_bytes(8 * count), np.uint64).reshape(tuple(shape)).copy()


def share(words: Words, parties: int) -> list[Words]:
    """Shares for each party. Any parties - 1 of them are uniform and independent of the numbers.

    >>> one, two = share(encode([1.5]), 2)
    >>> decode(one + two).tolist()
    [1.5]
    """
    if parties not in (2, 3):
        raise InvalidValue(f"Two or three parties compute together here; got {parties!r}.")
    others = [uniform(words.shape) for _ in range(parties - 1)]
    return [words - np.asarray(sum(others[1:], others[0])), *others]


class Triple(Private):
    """One party's shares of random A and B and of their product AB, for one product of matrices and no other."""

    __slots__ = ("_once", "_parts")

    def __init__(self, parts: Sequence[Words]) -> None:
        self._parts, self._once = tuple(parts), Once("take")

    def _instead(self) -> str:
        return "The dealer sends to_bytes() to the one party that it is for."

    def to_bytes(self) -> bytes:
        """For the dealer, to the party whose shares these are. Whoever reads the triples of all parties reads their inputs."""
        shapes = [list(part.shape) for part in self._parts]
        return pack("triple", {"shapes": shapes}, [part.astype("<u8").tobytes() for part in self._parts])

    @classmethod
    def from_bytes(cls, data: bytes) -> Triple:
        header, parts = unpack(data, "triple")
        shapes = members("triple", header, required=("shapes",))["shapes"]
        if not _fits(shapes, parts):
            raise InvalidDocument("The triple has other shapes than its numbers. Ask the dealer to send it again.")
        return cls(
            [np.frombuffer(part, "<u8").astype(np.uint64).reshape(shape) for part, shape in zip(parts, shapes, strict=True)]
        )

    def take(self, left: Words, right: Words) -> tuple[Words, Words, Words]:
        """The shares, once, for a product of matrices of their shapes."""
        if not self._parts:
            raise InvalidValue(_USED)
        first, second, product = self._parts
        if first.shape != left.shape or second.shape != right.shape:
            raise InvalidValue(
                f"The triple is for a product of {first.shape} and {second.shape}; these are {left.shape} and {right.shape}. "
                "Ask the dealer for another."
            )
        content = hashlib.sha256(b"".join(part.tobytes() for part in self._parts)).digest()
        if not self._once.take("take") or not _first(content):
            raise InvalidValue(_USED)
        self._parts = ()
        return first, second, product


_USED = "This triple was used already; with it again, the difference of two inputs would be open. Ask the dealer for another."
_taken: set[bytes] = set()  # of triples that this process has used: their bytes may come again
_taking = threading.Lock()


def _first(content: bytes) -> bool:
    with _taking:
        there = content in _taken
        _taken.add(content)
    return not there


def _fits(shapes: Any, parts: list[bytes]) -> bool:
    if not isinstance(shapes, list) or len(shapes) != 3 or len(parts) != 3:
        return False
    if not all(isinstance(s, list) and len(s) == 2 and all(type(n) is int and 0 < n < 1 << 24 for n in s) for s in shapes):
        return False
    (rows, inner), (other, columns), product = shapes
    sizes = all(8 * s[0] * s[1] == len(part) for s, part in zip(shapes, parts, strict=True))
    return sizes and inner == other and product == [rows, columns]


def triples(left: Sequence[int], right: Sequence[int], parties: int) -> list[Triple]:
    """The dealer's part, before any input is there: a triple for each party, for one product of matrices of these shapes."""
    one, two = uniform(left), uniform(right)
    parts = [share(words, parties) for words in (one, two, one @ two)]
    return [Triple(mine) for mine in zip(*parts, strict=True)]


class Shared(Private):
    """One party's share of numbers, with the bits behind the point. Sums and public factors need no message."""

    __slots__ = ("bits", "words")

    def __init__(self, words: Words, bits: int = FRACTION_BITS) -> None:
        self.words, self.bits = words, bits

    def __add__(self, other: Shared) -> Shared:
        if not isinstance(other, Shared) or self.bits != other.bits or self.words.shape != other.words.shape:
            raise InvalidValue(
                "Shared numbers are added to shared numbers of the same shape and the same bits behind the point."
            )
        return Shared(self.words + other.words, self.bits)

    def sum(self) -> Shared:
        """Over the first dimension."""
        return Shared(np.atleast_1d(self.words.sum(axis=0, dtype=np.uint64)), self.bits)


class ShareParty(Private):
    """One party with a connection to each other: `number` is its own, `peers` the sockets to the others by number."""

    def __init__(self, number: int, peers: Mapping[int, socket.socket], *, timeout: float = 60.0) -> None:
        self.number, self.parties = number, len(peers) + 1
        if self.parties not in (2, 3) or set(peers) | {number} != set(range(self.parties)):
            raise InvalidValue(f"Two or three parties are numbered from 0; this is {number} with peers {sorted(peers)}.")
        self._peers = {peer: Channel(connection, timeout) for peer, connection in sorted(peers.items())}
        self.opened = 0  # numbers that were shown to everybody

    def close(self) -> None:
        for channel in self._peers.values():
            channel.close()

    def input(self, values: Any) -> Shared:
        """Share own numbers: every other party gets its share."""
        own, *parts = share(np.atleast_1d(encode(values)), self.parties)
        for channel, part in zip(self._peers.values(), parts, strict=True):
            channel.send(part)
        return Shared(own)

    def receive(self, owner: int, shape: Sequence[int]) -> Shared:
        """The share of numbers that another party has shared."""
        return Shared(self._peers[owner].read(shape))

    def matmul(self, left: Shared, right: Shared, triple: Triple) -> Shared:
        """The shared product of two shared matrices. Entries of 2^23 or more come out modulo 2^24."""
        first, second, product = triple.take(left.words, right.words)
        masked, other = self._open(left.words - first), self._open(right.words - second)
        total = masked @ second + first @ other + product
        if self.number == 0:
            total = total + masked @ other
        return Shared(total, left.bits + right.bits)

    def inner(self, left: Shared, right: Shared, triple: Triple) -> Shared:
        """The shared inner product of two shared vectors, with a triple for (1, n) and (n, 1)."""
        product = self.matmul(Shared(left.words[None, :], left.bits), Shared(right.words[:, None], right.bits), triple)
        return Shared(product.words[0], product.bits)

    def reveal(self, numbers: Shared) -> NDArray[np.float64]:
        """Open a result to every party: the one step at which something is learned."""
        found = self._open(numbers.words)
        self.opened += found.size
        return decode(found, bits=numbers.bits)

    def score(self, rows: Shared, weights: Shared, intercept: Shared, triple: Triple) -> NDArray[np.float64]:
        """Logistic scores of shared rows (n, d) under shared weights (d, 1): linear scores are opened.

        Of the numbers as they were shared, to multiples of 2^-20, linear scores below 2^23 in magnitude are exact; the
        rounding of x and w moves one by at most 2^-21 times their sums of magnitudes and d.
        """
        linear = self.matmul(rows, weights, triple)
        shifted = linear.words + (intercept.words << np.uint64(linear.bits - intercept.bits))
        return np.asarray(1 / (1 + np.exp(-self.reveal(Shared(shifted, linear.bits))[:, 0])))

    def _open(self, words: Words) -> Words:
        for channel in self._peers.values():
            channel.send(words)
        total = words.copy()
        for channel in self._peers.values():
            total += channel.read(words.shape)
        return total


class Channel:
    """Numbered messages over one socket. A thread of its own sends, so that two who send at once do not wait for each other."""

    def __init__(self, connection: socket.socket, timeout: float) -> None:
        connection.settimeout(timeout)
        self._connection, self._sent, self._received = connection, 0, 0
        self._queue: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self._sender = threading.Thread(target=self._run, daemon=True)
        self._sender.start()

    def _run(self) -> None:
        with suppress(OSError):  # whoever reads next notices
            while (data := self._queue.get()) is not None:
                self._connection.sendall(data)

    def close(self) -> None:
        """Send what is left."""
        self._queue.put(None)
        self._sender.join()

    def send(self, words: Words) -> None:
        self._sent += 1
        data = words.astype("<u8").tobytes()
        self._queue.put(struct.pack("<QQ", self._sent, len(data)) + data)

    def read(self, shape: Sequence[int]) -> Words:
        """The next message, which must have this shape."""
        size = 8 * int(np.prod(shape, dtype=np.int64))
        number, length = struct.unpack("<QQ", self._exactly(16))
        self._received += 1
        if number != self._received:
            raise InvalidDocument(
                f"Message {number} came where {self._received} was expected: it was replayed or is out of order."
            )
        if length != size:
            raise InvalidDocument(f"A party sent {length} bytes where {size} were expected. All must run the same program.")
        return np.frombuffer(self._exactly(size), "<u8").astype(np.uint64).reshape(tuple(shape))

    def _exactly(self, size: int) -> bytes:
        parts: list[bytes] = []
        try:
            while size:
                part = self._connection.recv(min(size, 1 << 20))
                if not part:
                    raise InvalidDocument("A party closed the connection before the end. Run again, with new triples.")
                parts.append(part)
                size -= len(part)
        except OSError as problem:
            raise InvalidDocument(f"A party does not answer ({type(problem).__name__}). Run again, with new triples.") from None
        return b"".join(parts)
