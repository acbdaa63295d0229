"""Gaussian noise at a position, from a cipher.

Standard normal number p of step t is a fixed function of (key, t, p): AES-256 in counter mode gives the bits, Box &
Muller's transform makes two normal numbers of each 64 of them. So a shard draws its own part of the noise and nothing
else, any split of a vector gives the same numbers bit for bit, and a resumed run repeats what it drew, on any machine.
Neither `torch.manual_seed` nor the number of threads reaches it. A stream for a GPU takes its bits from ChaCha8 instead
(`chacha.py`): other numbers under the same key, with the same properties.

Positions come in tiles of 8192: number j < 4096 of a tile is x, and number j + 4096 is y, of the pair made of words j
and j + 4096 of the tile.
"""

from __future__ import annotations

import hmac
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from discreet.core import check
from discreet.errors import InvalidValue
from discreet.learn.sgd import native, normal
from discreet.learn.sgd.keystream import Keystream
from discreet.learn.sgd.normal import TILE, Floats

KEY = 32  # bytes
MANY = 8  # tiles at a time: what is in flight stays in the second cache
WORTH_A_THREAD = 1 << 20  # numbers
LAST_STEP = (1 << 48) - 1
HALF = TILE // 2

_thread_buffers = threading.local()  # room, for each thread its own


class Stream:
    """Normal numbers addressed by (step, position) under one key of 32 bytes.

    Whoever holds the key can take the noise away again: a run draws it from the operating system and releases it to
    nobody. The same key must never be used for two runs. `device` decides the cipher, and so the numbers: AES-256 in counter
    mode, or ChaCha8 where it is "cuda". Tensors on other devices are filled all the same, only slower.

    >>> stream = Stream(bytes(32))
    >>> whole, part = torch.empty(10), torch.empty(4)
    >>> bool((stream.fill(part, step=3, offset=5) == stream.fill(whole, step=3)[5:9]).all())
    True
    """

    def __init__(self, key: bytes, device: torch.device | str = "cpu") -> None:
        if not isinstance(key, bytes) or len(key) != KEY:
            got = f"{len(key)} bytes" if isinstance(key, bytes) else type(key).__name__
            raise InvalidValue(f"key must be {KEY} bytes, such as os.urandom({KEY}); got {got}.")
        self.device = torch.device(device)
        self._cipher = "chacha8" if self.device.type == "cuda" else "aes-256-ctr"
        # a key of its own, so that noise shares no keystream with anything else that is keyed by `key`
        self._key = hmac.digest(key, b"discreet noise: " + self._cipher.encode(), "sha256")

    def fill(self, out: Tensor, *, step: int, offset: int = 0, scale: float = 1.0) -> Tensor:
        """`out[i] = scale * (standard normal number offset + i of this step)`, in place; returns `out`."""
        step = check.whole("step", step, least=0, most=LAST_STEP)
        offset = check.whole("offset", offset, least=0)
        scale = check.nonnegative("scale", scale)
        if out.dtype != torch.float32 or out.dim() != 1 or not out.is_contiguous():
            raise InvalidValue(f"out must be a flat contiguous float32 tensor; got {out.dtype} of shape {tuple(out.shape)}.")
        if self._cipher == "chacha8":
            _on_gpu(out)(self._key, step, offset, scale, out.detach())
            return out
        # blocks of AES under one key never repeat, which truly random ones would: a key for each step keeps that unseen
        key = hmac.digest(self._key, step.to_bytes(8, "big"), "sha256")
        if out.device.type == "cpu":
            fill(key, step, offset, scale, out.detach().numpy())
        else:
            host = np.empty(out.numel(), np.float32)
            fill(key, step, offset, scale, host)
            out.detach().copy_(torch.from_numpy(host))
        return out


def _on_gpu(out: Tensor) -> Callable[[bytes, int, int, float, Tensor], None]:
    """One kernel where there is Triton, torch's operations where not: the same bits."""
    if out.device.type == "cuda":
        try:
            from discreet.learn.sgd import chacha_triton
        except ImportError:
            pass
        else:
            return chacha_triton.fill
    from discreet.learn.sgd import chacha

    return chacha.fill


def fill(key: bytes, step: int, offset: int, scale: float, out: Floats) -> None:
    """`Stream.fill` on the CPU under the key of the step."""
    compiled = native.kernel()
    if compiled and compiled.fill:
        rare = _by_threads(compiled.fill, key, step, offset, scale, out)
    else:
        rare = _by_tiles(Keystream(key, step), compiled.tiles if compiled else None, offset, scale, out)
    if len(rare):
        _mend(Keystream(key, step), rare, offset, scale, out)


def _by_threads(compiled: native.Fill, key: bytes, step: int, offset: int, scale: float, out: Floats) -> NDArray[np.uint64]:
    """Large vectors in as many parts as torch has threads; which numbers they hold does not depend on it."""
    parts = min(torch.get_num_threads(), out.size // WORTH_A_THREAD)
    if parts < 2:
        return compiled(key, step, offset, scale, out)
    size = -(-out.size // parts // TILE) * TILE
    starts = range(0, out.size, size)

    def part(start: int) -> NDArray[np.uint64]:
        return compiled(key, step, offset + start, scale, out[start : start + size])

    with ThreadPoolExecutor(len(starts)) as pool:
        return np.concatenate(list(pool.map(part, starts)))


def _by_tiles(stream: Keystream, compiled: native.Tiles | None, offset: int, scale: float, out: Floats) -> NDArray[np.uint64]:
    """A few tiles at a time: keystream from OpenSSL, transform compiled or by numpy. Returns the rare pairs."""
    first, skip = divmod(offset, TILE)
    tiles = -(-(skip + out.size) // TILE)
    many = max(min(tiles, MANY), 1)
    if not hasattr(_thread_buffers, "words"):  # fresh memory would cost as much as the numbers that a small model needs
        _thread_buffers.words, _thread_buffers.normals = (
            np.empty((MANY, 2, HALF), np.uint32),
            np.empty((MANY, 2, HALF), np.float32),
        )
        _thread_buffers.transform = normal.Transform(HALF * MANY)
    words, room, transform = _thread_buffers.words, _thread_buffers.normals, compiled or _thread_buffers.transform
    rare = []
    for tile in range(0, tiles, many):
        count = min(many, tiles - tile)
        start, end = tile * TILE - skip, (tile + count) * TILE - skip
        inside = start >= 0 and end <= out.size
        normals = out[start:end].reshape(count, 2, HALF) if inside else room[:count]
        stream.words(first + tile, words[:count])
        if transform(words[:count], scale, normals):
            rare.append(_rare(first + tile, words[:count]))
        if not inside:
            out[max(start, 0) : end] = normals.reshape(-1)[max(-start, 0) : out.size - start]
    return np.concatenate(rare) if rare else np.empty((0, 3), np.uint64)


def _rare(tile: int, words: NDArray[np.uint32]) -> NDArray[np.uint64]:
    at, place = np.divmod(np.flatnonzero(words[:, 0] < 2 * normal.RARE), HALF)
    pairs = (tile + at).astype(np.uint64) * np.uint64(HALF) + place.astype(np.uint64)
    return np.stack([pairs, words[at, 0, place], words[at, 1, place]], axis=1).astype(np.uint64)


def _mend(stream: Keystream, rare: NDArray[np.uint64], offset: int, scale: float, out: Floats) -> None:
    """Rare pairs lie far out: they are made again with 64 bits more each."""
    pairs = rare[:, 0].tolist()
    a, b = rare[:, 1].astype(np.uint32), rare[:, 2].astype(np.uint32)
    for pair, x, y in zip(pairs, *normal.tails(a, b, stream.more(pairs), scale)):
        tile, place = divmod(pair, HALF)
        for number, at in ((x, tile * TILE + place - offset), (y, tile * TILE + HALF + place - offset)):
            if 0 <= at < out.size:
                out[at] = number
