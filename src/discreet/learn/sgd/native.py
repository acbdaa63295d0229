"""`normal.c` of `discreet.native`, where it was built: the same bits as numpy gives, several times as fast.

Before its first use in a process it is compared with numpy and `cryptography`; code that differs in one bit is not used.
Elsewhere numpy does the work.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from discreet import native
from discreet.learn.sgd import normal
from discreet.learn.sgd.normal import Floats, Words

Tiles = Callable[[Words, float, Floats], bool]
Fill = Callable[[bytes, int, int, float, Floats], NDArray[np.uint64]]


@dataclass(frozen=True)
class Native:
    """The compiled transform of contiguous tiles; with AES instructions `fill` too, keystream and all."""

    tiles: Tiles
    fill: Fill | None  # (key, step, offset, scale, out) -> rare pairs, each a row (number of the pair, a, b)


@lru_cache(maxsize=1)
def kernel() -> Native | None:
    """What was built here, or None where numpy must do."""
    library = native.library("normal")
    if library is None:
        return None
    tiles = _tiles(library)
    if not agrees(tiles):
        return None
    fill = _fill(library) if hasattr(library, "discreet_fill") else None
    return Native(tiles, fill if fill and fills_alike(fill) else None)


def _tiles(library: ctypes.CDLL) -> Tiles:
    function = library.discreet_tiles
    function.argtypes = [ctypes.c_void_p, ctypes.c_long, ctypes.c_long, ctypes.c_float, ctypes.c_void_p]
    function.restype = ctypes.c_int

    def call(words: Words, scale: float, out: Floats) -> bool:
        tiles, _, half = words.shape
        return bool(function(words.ctypes.data, tiles, half, scale, out.ctypes.data))

    return call


def _fill(library: ctypes.CDLL) -> Fill:
    function, whole, pointer = library.discreet_fill, ctypes.c_uint64, ctypes.c_void_p
    function.argtypes = [ctypes.c_char_p, whole, whole, whole, ctypes.c_float, pointer, pointer, ctypes.c_long]
    function.restype = ctypes.c_long

    def call(key: bytes, step: int, offset: int, scale: float, out: Floats) -> NDArray[np.uint64]:
        room = 64 + (out.size >> 14)  # 16 times what is expected, and then some; if it is not enough, twice as much
        while True:
            rare = np.empty((room, 3), np.uint64)
            count = function(key, step, offset, out.size, scale, out.ctypes.data, rare.ctypes.data, room)
            if count <= room:
                return rare[:count]
            room = 2 * count

    return call


def agrees(tiles: Tiles) -> bool:
    """The same bits as numpy, on pairs at every exponent, at both ends and between."""
    count = 1 << 12
    spread = np.arange(count, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    a, b = (spread >> np.uint64(32)).astype(np.uint32), (spread & np.uint64(0xFFFFFFFF)).astype(np.uint32)
    a[:1024] >>= (np.arange(1024) % 18).astype(np.uint32)
    a[1024:1280], a[1280:1536] = np.arange(256), 2**32 - 1 - np.arange(256)
    b[::7] = np.resize(np.array([0, 1, 2**30, 2**31 - 1, 2**31, 2**31 + 1, 2**32 - 1], np.uint32), b[::7].size)
    words = np.stack([a, b])[None]
    ours, theirs = np.empty((1, 2, count), np.float32), np.empty((1, 2, count), np.float32)
    same = normal.Transform(count)(words, 0.7, ours) == tiles(words, 0.7, theirs)
    return same and ours.tobytes() == theirs.tobytes()


def fills_alike(fill: Fill) -> bool:
    """The same bits as OpenSSL and numpy over a few tiles, neither end at the edge of one."""
    from discreet.learn.sgd.keystream import Keystream

    key, step, tile, skip = bytes(range(32)), (1 << 47) + 12345, (1 << 40) + 3, 1001
    stream, words = Keystream(key, step), np.empty((4, 2, normal.TILE // 2), np.uint32)
    stream.words(tile, words)
    ours, theirs = np.empty(words.shape, np.float32), np.empty(words.size - 2 * skip, np.float32)
    normal.Transform(words.size // 2)(words, 0.7, ours)
    fill(key, step, tile * normal.TILE + skip, 0.7, theirs)
    return ours.reshape(-1)[skip:-skip].tobytes() == theirs.tobytes()
