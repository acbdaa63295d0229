"""Which units take part: keyed draws that any process can repeat.

A draw depends on the key, its purpose, the step and the number of units, and on nothing else. The caller states the event of
the sampling scheme.
"""

from __future__ import annotations

import hmac
from typing import Any

import numpy as np
from numpy.typing import NDArray

from discreet.core import check
from discreet.errors import InvalidValue
from discreet.noise.ciphers import aes_ctr

Ints = NDArray[np.int64]

KEY = 32  # bytes
BLOCK = 1 << 19  # units looked at together, so that what is in flight stays in cache
MOST_UNITS = 1 << 40  # so that no keystream of a step is ever long enough to begin again
_ZEROS = bytes(2 * BLOCK)


def thinned(key: bytes, purpose: bytes, step: int, units: int, most: int) -> Ints:
    """Units whose own uniform 64-bit number is below `most`, ascending.

    The first 16 bits decide all but one unit in 65,536; only those ask for the other 48, from a keystream of its own.
    """
    step, units = check.whole("step", step, least=0), check.whole("units", units, least=0, most=MOST_UNITS)
    _check(key)
    first, rest = most >> 48, most & (2**48 - 1)
    if first == 1 << 16:
        return np.arange(units, dtype=np.int64)
    stream: Any = keystream(key, purpose, step)
    more: Any = None
    parts = []
    for start in range(0, units, BLOCK):
        count = min(BLOCK, units - start)
        digits = np.frombuffer(stream.update(memoryview(_ZEROS)[: 2 * count]), "<u2")
        selected = digits < first
        close = np.flatnonzero(digits == first)
        if close.size:
            more = keystream(key, purpose + b" more", step) if more is None else more
            words = np.frombuffer(more.update(bytes(8 * close.size)), "<u8")
            selected[close] = words >> np.uint64(16) < np.uint64(rest)
        parts.append(np.flatnonzero(selected) + start)
    return np.concatenate(parts).astype(np.int64, copy=False) if parts else np.empty(0, np.int64)


def placed(key: bytes, purpose: bytes, number: int, units: int, places: int) -> Ints:
    """For each unit one of `places`, uniformly and independently.

    A 32-bit word times `places`, the high half taken; words that would favour some place are drawn again (Lemire 2019).
    """
    stream, more = keystream(key, purpose, number), keystream(key, purpose + b" more", number)
    out = np.empty(units, np.int64)
    uneven = 2**32 % places
    for start in range(0, units, BLOCK):
        part = out[start : start + BLOCK]
        todo = np.arange(part.size)
        words = np.frombuffer(stream.update(bytes(4 * part.size)), "<u4")
        while todo.size:
            product = words.astype(np.uint64) * np.uint64(places)
            part[todo] = product >> np.uint64(32)
            todo = todo[(product & np.uint64(2**32 - 1)) < np.uint64(uneven)]
            words = np.frombuffer(more.update(bytes(4 * todo.size)), "<u4")
    return out


def keystream(key: bytes, purpose: bytes, step: int) -> Any:
    """AES-256 in counter mode: a key of its own for each purpose, a range of counters of its own for each step.

    The purpose goes through HMAC-SHA256, so noise and sampling share no keystream even where they share `key`, and the
    keystream of one purpose reveals nothing about another. A step has 2^64 blocks before the next step's begin.
    """
    _check(key)
    own = hmac.digest(key, b"discreet sampling: " + purpose, "sha256")
    return aes_ctr(own, step.to_bytes(8, "big") + bytes(8))


def _check(key: bytes) -> None:
    if not isinstance(key, bytes) or len(key) != KEY:
        got = f"{len(key)} bytes" if isinstance(key, bytes) else type(key).__name__
        raise InvalidValue(f"key must be {KEY} bytes, such as os.urandom({KEY}); got {got}.")
