"""What SEAL's files say of their size and of their inner parts, checked before SEAL reads them.

SEAL believes the headers inside its files: one with a wrong size or a compressed part where there is none ends the process.
So what is received is unpacked here, by the decoder that the library itself brings, and its form compared with what the ring's
parameters leave room for; SEAL then reads the unpacked bytes.
"""

from __future__ import annotations

import ctypes
import struct
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

_SEAL, _NONE, _ZSTD = b"\x5e\xa1\x10", 0, 2
_HEADER, _SEED = 16, 65  # bytes of a header; of a generator's kind and seed


def unpacked_size(data: bytes) -> int | None:
    """How many bytes SEAL will unpack this to; None where it is not one whole frame that says its size."""
    if len(data) < 16 or data[:3] != _SEAL or struct.unpack("<Q", data[8:16])[0] != len(data):
        return None
    if data[5] == _NONE:
        return len(data)
    if data[5] != _ZSTD or data[16:20] != b"\x28\xb5\x2f\xfd" or len(data) < 32:
        return None
    kind, place = data[20], 21
    place += (not kind & 0x20) + (0, 1, 2, 4)[kind & 3]  # a window, a dictionary
    width = (kind >> 5 & 1, 2, 4, 8)[kind >> 6]
    size = int.from_bytes(data[place : place + width], "little") + (256 if width == 2 else 0)
    place += width
    return size if width and _one_frame(data, place, 4 if kind & 4 else 0) else None


def _one_frame(data: bytes, place: int, checksum: int) -> bool:
    """Whether the blocks from here on end where the data ends: behind a frame could stand another."""
    last = 0
    while not last and place + 3 <= len(data):
        block = int.from_bytes(data[place : place + 3], "little")
        last, place = block & 1, place + 3 + (1 if block >> 1 & 3 == 1 else block >> 3)
    return bool(last) and place + checksum == len(data)


def unpacked(data: bytes, size: int, library: str) -> bytes | bytearray | None:
    """The same file without compression, where `size` bytes come out of it; None where they do not.

    `library` is the file of the engine's extension module. Where it does not show its decoder (on Windows, say), the data is
    returned as it is.
    """
    if data[5] == _NONE:
        return data
    decode = _decoder(library)
    if decode is None:  # pragma: no cover - other systems
        return data
    whole = bytearray(_HEADER + size)
    whole[:_HEADER] = data[:5] + bytes([_NONE, 0, 0]) + struct.pack("<Q", _HEADER + size)
    room = (ctypes.c_char * size).from_buffer(whole, _HEADER)
    start = ctypes.cast(ctypes.c_char_p(data), ctypes.c_void_p).value
    assert start is not None
    return whole if decode(room, size, start + _HEADER, len(data) - _HEADER) == size else None


@lru_cache(maxsize=4)
def _decoder(library: str) -> Any:
    try:
        decode = ctypes.CDLL(library).ZSTD_decompress
    except (OSError, AttributeError):
        return None
    decode.restype = ctypes.c_size_t
    decode.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p, ctypes.c_size_t]
    return decode


@dataclass(slots=True)
class _Form:
    """Reads a file from its start, and raises ValueError where it is not of this form."""

    data: bytes | bytearray
    degree: int
    primes: int
    place: int = 0

    def number(self) -> int:
        (found,) = struct.unpack_from("<Q", self.data, self.place)
        self.place += 8
        return int(found)

    def need(self, *holds: bool) -> None:
        if not all(holds):
            raise ValueError("another form")

    def header(self) -> int:
        """Of a part that is not compressed; how many bytes there are from the header on."""
        start = self.data[self.place : self.place + 8]
        self.need(start == _SEAL + self.data[3:5] + bytes(3))
        self.place += 8
        return self.number()

    def array(self, *counts: int) -> int:
        """An array of as many words as one of these."""
        size, count = self.header(), self.number()
        self.need(count in counts, size == _HEADER + 8 + 8 * count)
        self.place += 8 * count
        return count

    def ciphertext(self, transformed: bool = True) -> None:
        self.place += 33  # the level's name, and whether it is transformed
        self.need(self.data[self.place - 1] == transformed)
        size, degree, primes = self.number(), self.number(), self.number()
        self.need(size in (2, 3), degree == self.degree, 1 <= primes <= self.primes)
        self.place += 16  # scale, correction
        whole, seeded = size * degree * primes, degree * primes
        if self.array(whole, *([seeded] if size == 2 else [])) == seeded:  # the uniform half as a seed
            self.need(self.header() == _HEADER + _SEED, self.data[self.place] in (1, 2))
            self.place += _SEED

    def secret(self) -> None:
        self.place += 32
        self.need(self.number() == self.degree * self.primes)
        self.place += 8
        self.array(self.degree * self.primes)

    def switches(self, most: int, keys: int) -> None:
        """Keys by place, of which at most `keys` are there, each with an encryption for each prime but the last."""
        self.place += 32
        count = self.number()
        self.need(count <= most)
        for _ in range(count):
            parts = self.number()
            keys -= parts > 0
            self.need(parts in (0, self.primes - 1), keys >= 0)
            for _ in range(parts):
                end = self.place + self.header()
                self.ciphertext()
                self.need(self.place == end)


def has_form(data: bytes | bytearray, kind: str, degree: int, primes: int, keys: int, transformed: bool) -> bool:
    """Whether this is a file without compression, of one key or ciphertext of a ring with this degree and so many primes, whose
    ciphertexts are transformed or not; keys always are.
    """
    form = _Form(data, degree, primes)
    try:
        form.need(form.header() == len(data))
        if kind in ("Ciphertext", "PublicKey"):
            form.ciphertext(transformed or kind == "PublicKey")
        elif kind == "SecretKey":
            form.secret()
        else:
            form.switches(*((degree, keys) if kind == "GaloisKeys" else (1, 1)))
    except (ValueError, struct.error, IndexError):
        return False
    return form.place == len(data)
