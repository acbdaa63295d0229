"""The one source of randomness behind all noise: a stream cipher keyed by the operating system.

Every public call opens a source of its own, so every release has its own 256-bit key. No seed of numpy, `random` or
torch reaches it. Only tests may replace it by a repeatable source; code that makes real releases calls
`refuse_seeded` first.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import numpy as np
from numpy.typing import NDArray

from discreet.errors import InvalidValue
from discreet.noise.ciphers import chacha20

KEY = 32  # bytes
_SMALLEST, _LARGEST = 1 << 10, 1 << 16  # bytes made ahead of use


class Source:
    """Unbiased random digits: ChaCha20 (RFC 8439) under a key from the operating system.

    Each refill spends 32 bytes of keystream on the next key and forgets the last one, so that a later look at memory
    does not show earlier noise. A forked child draws a new key before its first digit. A source belongs to one call:
    it is not shared between threads.

    >>> 0 <= Source().below(6) < 6
    True
    """

    __slots__ = ("_ahead", "_at", "_forks", "_key", "_pid", "_pool")
    repeatable = False

    def __init__(self) -> None:
        self._restart(os.urandom(KEY))

    def _restart(self, key: bytes) -> None:
        self._key, self._pool, self._at, self._ahead = key, b"", 0, _SMALLEST
        self._pid, self._forks = os.getpid(), _forks

    def take(self, count: int) -> bytes:
        """`count` random bytes."""
        if not self.repeatable and (self._pid != os.getpid() or self._forks != _forks):
            self._restart(os.urandom(KEY))
        start, end = self._at, self._at + count
        if end > len(self._pool):
            self._refill(count)
            start, end = 0, count
        self._at = end
        return self._pool[start:end]

    def _refill(self, count: int) -> None:
        size = max(count, self._ahead)
        stream = chacha20(self._key, bytes(16), KEY + size)
        self._key, self._pool = stream[:KEY], stream[KEY:]
        self._ahead = min(2 * self._ahead, _LARGEST)

    def bits(self, count: int) -> int:
        """A uniform integer of `count` bits."""
        size = (count + 7) // 8
        return int.from_bytes(self.take(size), "little") >> (8 * size - count)

    def below(self, bound: int) -> int:
        """A uniform integer in [0, bound): draws of the next power of two until one fits, which it does every other time."""
        width = (bound - 1).bit_length()
        while (drawn := self.bits(width)) >= bound:
            pass
        return drawn

    def words(self, dtype: type[np.unsignedinteger[Any]], count: int) -> NDArray[Any]:
        """`count` uniform machine words; the array is read-only."""
        return np.frombuffer(self.take(count * np.dtype(dtype).itemsize), dtype=dtype)

    def many_below(self, bound: int, count: int) -> NDArray[np.int64]:
        """`count` uniform integers in [0, bound), for bound up to 2^63, by the same rejection."""
        width = (bound - 1).bit_length()
        dtype, size = smallest_word(width)
        out = np.empty(count, np.int64)
        todo = np.arange(count)
        while todo.size:
            drawn = self.words(dtype, todo.size) >> dtype(size - width) if width else np.zeros(todo.size, np.uint64)
            fits = drawn < bound
            out[todo[fits]] = drawn[fits]
            todo = todo[~fits]
        return out


class Seeded(Source):
    """A repeatable source, for tests only: the same seed gives the same noise, so it hides nothing.

    >>> Seeded(b"a test").below(1000) == Seeded(b"a test").below(1000)
    True
    """

    __slots__ = ()
    repeatable = True

    def __init__(self, seed: bytes) -> None:
        if not isinstance(seed, bytes) or not seed:
            raise InvalidValue(f"A test seed must be non-empty bytes, such as b'noise'; got {type(seed).__name__}.")
        self._restart(hashlib.sha256(b"discreet test seed\0" + seed).digest())


_in_tests: ContextVar[Source | None] = ContextVar("discreet_noise_source_in_tests", default=None)


def open_source() -> Source:
    """A source with a fresh key, or the one a test put in its place."""
    replaced = _in_tests.get()
    return Source() if replaced is None else replaced


@contextmanager
def seeded_for_tests(seed: bytes) -> Iterator[Source]:
    """Noise inside this block, in this thread, repeats. Never use it for data about people: `refuse_seeded` then raises.

    >>> from discreet.noise import discrete_laplace
    >>> with seeded_for_tests(b"a test"):
    ...     first = discrete_laplace(10)
    >>> with seeded_for_tests(b"a test"):
    ...     first == discrete_laplace(10)
    True
    """
    with replaced_for_tests(Seeded(seed)) as source:
        yield source


@contextmanager
def replaced_for_tests(source: Source) -> Iterator[Source]:
    """Draw from `source` inside this block: tests feed the samplers chosen digits through it."""
    token = _in_tests.set(source)
    try:
        yield source
    finally:
        _in_tests.reset(token)


def refuse_seeded() -> None:
    """Raise where noise would come from a test's source; everything that makes a real release calls this first."""
    if _in_tests.get() is not None:
        raise InvalidValue(
            "This release would draw its noise from a seeded source, which anyone can repeat. "
            "Make it outside seeded_for_tests(); a real release never takes a seed."
        )


def smallest_word(bits: int) -> tuple[type[np.unsignedinteger[Any]], int]:
    """The smallest machine word of at least `bits` bits, and its width."""
    for dtype, size in ((np.uint8, 8), (np.uint16, 16), (np.uint32, 32)):
        if bits <= size:
            return dtype, size
    return np.uint64, 64


_forks = 0


def _forked() -> None:
    global _forks
    _forks += 1


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)
