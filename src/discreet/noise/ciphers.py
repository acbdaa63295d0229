"""ChaCha20 and AES-256: OpenSSL's through `cryptography`, or the same bits in numpy where that package is absent.

GPU machines often have nothing but numpy and torch. There the same bits come more slowly: about 100 MB of ChaCha20 or 15 MB of
AES a second. The numpy versions do not run in constant time; keys are fresh for every run, on the user's own machine.
"""

from __future__ import annotations

import hashlib
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

Words = NDArray[np.uint32]

LONGEST = 1 << 30  # bytes given to OpenSSL at a time


def chacha20(key: bytes, nonce: bytes, count: int) -> bytes:
    """`count` bytes of keystream; the nonce is 16 bytes, the first 4 of them the block counter (RFC 8439).

    >>> chacha20(bytes(32), bytes(16), 4).hex()
    '76b8e0ad'
    """
    ciphers = _library()
    if ciphers is None:
        return _chacha20(key, nonce, count)
    stream: bytes = ciphers.Cipher(ciphers.algorithms.ChaCha20(key, nonce), mode=None).encryptor().update(bytes(count))
    return stream


def aes_ctr(key: bytes, counter: bytes) -> Any:
    """AES-256 in counter mode from a 16-byte counter on: an object with `update(data)` and `update_into(data, buffer)`.

    >>> aes_ctr(bytes(32), bytes(16)).update(bytes(4)).hex()
    'dc95c078'
    """
    ciphers = _library()
    if ciphers is None:
        return _Counter(key, counter)
    return ciphers.Cipher(ciphers.algorithms.AES256(key), ciphers.modes.CTR(counter)).encryptor()


def aes_blocks(key: bytes, plain: bytes) -> bytes:
    """Blocks of 16 bytes, each enciphered by itself; what is put in must never repeat under one key."""
    ciphers = _library()
    if ciphers is None:
        return _aes(_schedule(key), np.frombuffer(plain, ">u4").astype(np.uint32).reshape(-1, 4)).astype(">u4").tobytes()
    done: bytes = ciphers.Cipher(ciphers.algorithms.AES256(key), ciphers.modes.ECB()).encryptor().update(plain)
    return done


def mac(key: bytes, nonce: bytes, *parts: Any) -> tuple[str, bytes]:
    """A keyed hash of the concatenated buffers, with its name: GMAC (NIST SP 800-38D), or BLAKE2b without OpenSSL.

    It detects changes between two calls. A nonce may be used for several messages only if no hash is ever shown.

    >>> mac(bytes(32), bytes(12), b"some", b"thing") == mac(bytes(32), bytes(12), b"something")
    True
    """
    ciphers = _library()
    if ciphers is None:
        own = hashlib.blake2b(nonce, key=key, digest_size=16)
        for part in parts:
            own.update(part)
        return "blake2b", own.digest()
    stream = ciphers.Cipher(ciphers.algorithms.AES256(key), ciphers.modes.GCM(nonce)).encryptor()
    for part in parts:
        view = memoryview(part).cast("B")
        for start in range(0, len(view), LONGEST):
            stream.authenticate_additional_data(view[start : start + LONGEST])
    stream.finalize()
    return "gmac", stream.tag


@cache
def _library() -> Any:
    try:
        from cryptography.hazmat.primitives import ciphers
    except ImportError:
        return None
    return ciphers


# ---- ChaCha20 --------------------------------------------------------------------------------------------------------

_SIGMA = np.frombuffer(b"expand 32-byte k", "<u4")
_QUARTERS = (
    (0, 4, 8, 12),
    (1, 5, 9, 13),
    (2, 6, 10, 14),
    (3, 7, 11, 15),
    (0, 5, 10, 15),
    (1, 6, 11, 12),
    (2, 7, 8, 13),
    (3, 4, 9, 14),
)


def _chacha20(key: bytes, nonce: bytes, count: int) -> bytes:
    blocks = -(-count // 64)
    start = np.empty((16, blocks), np.uint32)
    start[:4] = _SIGMA[:, None]
    start[4:12] = np.frombuffer(key, "<u4")[:, None]
    start[12:] = np.frombuffer(nonce, "<u4")[:, None]
    start[12] += np.arange(blocks, dtype=np.uint32)
    x = start.copy()
    for _ in range(10):
        for a, b, c, d in _QUARTERS:
            for target, addend, rotated, bits in ((a, b, d, 16), (c, d, b, 12), (a, b, d, 8), (c, d, b, 7)):
                x[target] += x[addend]
                x[rotated] ^= x[target]
                x[rotated] = (x[rotated] << np.uint32(bits)) | (x[rotated] >> np.uint32(32 - bits))
    return (x + start).T.astype("<u4").tobytes()[:count]


# ---- AES-256 ---------------------------------------------------------------------------------------------------------

ROUNDS = 14


class _Counter:
    """AES-256 in counter mode, going on where the last bytes ended."""

    def __init__(self, key: bytes, counter: bytes) -> None:
        self._keys, self._at, self._left = _schedule(key), int.from_bytes(counter, "big"), b""

    def update(self, data: Any) -> bytes:
        size = len(memoryview(data).cast("B"))
        blocks = -(-max(size - len(self._left), 0) // 16)
        stream = self._left + (self._blocks(blocks) if blocks else b"")
        self._left = stream[size:]
        plain = np.frombuffer(memoryview(data).cast("B"), np.uint8)
        return (np.frombuffer(stream[:size], np.uint8) ^ plain).tobytes()

    def update_into(self, data: Any, buffer: Any) -> int:
        output = self.update(data)
        memoryview(buffer).cast("B")[: len(output)] = output
        return len(output)

    def _blocks(self, count: int) -> bytes:
        high, low = divmod(self._at, 1 << 64)
        if low + count > 1 << 64:
            raise OverflowError("an AES counter would pass 2**64")
        numbers = np.uint64(low) + np.arange(count, dtype=np.uint64)
        state = np.empty((count, 4), np.uint32)
        state[:, 0], state[:, 1] = high >> 32, high & 0xFFFFFFFF
        state[:, 2], state[:, 3] = numbers >> np.uint64(32), numbers & np.uint64(0xFFFFFFFF)
        self._at += count
        return _aes(self._keys, state).astype(">u4").tobytes()


def _aes(keys: Words, state: Words) -> Words:
    """Blocks [blocks, 4] of big-endian words through all rounds, by four tables of 256 words."""
    box, tables = _tables()
    columns = [state[:, i] ^ keys[i] for i in range(4)]
    for number in range(1, ROUNDS):
        columns = [
            tables[0][columns[i] >> 24] ^ tables[1][(columns[(i + 1) % 4] >> 16) & 255]
            ^ tables[2][(columns[(i + 2) % 4] >> 8) & 255] ^ tables[3][columns[(i + 3) % 4] & 255] ^ keys[4 * number + i]
            for i in range(4)
        ]  # fmt: skip
    last = [
        (box[columns[i] >> 24] << 24) ^ (box[(columns[(i + 1) % 4] >> 16) & 255] << 16)
        ^ (box[(columns[(i + 2) % 4] >> 8) & 255] << 8) ^ box[columns[(i + 3) % 4] & 255] ^ keys[4 * ROUNDS + i]
        for i in range(4)
    ]  # fmt: skip
    return np.stack(last, 1).astype(np.uint32)


@cache
def _tables() -> tuple[Words, list[Words]]:
    """The S-box, from inverses in GF(2^8), and the products with it that a round needs."""
    power, log, value = [0] * 255, [0] * 256, 1
    for i in range(255):
        power[i], log[value] = value, i
        value ^= (value << 1) ^ (0x11B if value & 128 else 0)
    box = []
    for x in range(256):
        inverse = power[-log[x] % 255] if x else 0
        rotated = 0
        for shift in range(5):
            rotated ^= ((inverse << shift) | (inverse >> (8 - shift))) & 255
        box.append(rotated ^ 0x63)

    def times(a: int, b: int) -> int:
        return power[(log[a] + log[b]) % 255] if a and b else 0

    word = [(times(s, 2) << 24) | (s << 16) | (s << 8) | times(s, 3) for s in box]
    first = np.array(word, np.uint32)
    tables = [first] + [(first >> np.uint32(8 * i)) | (first << np.uint32(32 - 8 * i)) for i in (1, 2, 3)]
    return np.array(box, np.uint32), tables


def _schedule(key: bytes) -> Words:
    """The 60 words of round keys."""
    box = [int(b) for b in _tables()[0]]
    words = [int.from_bytes(key[i : i + 4], "big") for i in range(0, 32, 4)]
    constant = 1

    def substituted(word: int) -> int:
        return sum(box[(word >> shift) & 255] << shift for shift in (24, 16, 8, 0))

    for i in range(8, 4 * (ROUNDS + 1)):
        word = words[-1]
        if i % 8 == 0:
            word = substituted(((word << 8) | (word >> 24)) & 0xFFFFFFFF) ^ (constant << 24)
            constant = (constant << 1) ^ (0x11B if constant & 128 else 0)
        elif i % 8 == 4:
            word = substituted(word)
        words.append(words[-8] ^ word)
    return np.array(words, np.uint32)
