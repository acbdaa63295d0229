"""The bits behind the noise on a CPU: AES-256 in counter mode (NIST SP 800-38A), addressed by step and place."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from discreet.learn.sgd.normal import TILE
from discreet.noise.ciphers import aes_blocks, aes_ctr

WORDS, MORE = 0, 1  # domains: the words of all pairs, four to a block; further bits of rare pairs, one block each


class Keystream:
    """The keystream of one step under its key. A counter block is domain (16 bits), step (48), number (64), big-endian."""

    def __init__(self, key: bytes, step: int) -> None:
        self._key, self._step = key, step
        self._stream: Any = None
        self._next = -1  # the tile that `_stream` goes on with
        self._zeros = b""

    def words(self, tile: int, out: NDArray[np.uint32]) -> None:
        """The words of tiles from `tile` on, as many as `out` [tiles, 2, TILE / 2] holds."""
        if tile != self._next:
            self._stream = aes_ctr(self._key, self.block(WORDS, tile * TILE // 4))
        if len(self._zeros) < out.nbytes:
            self._zeros = bytes(out.nbytes)
        self._stream.update_into(memoryview(self._zeros)[: out.nbytes], out.data.cast("B"))
        self._next = tile + len(out)

    def more(self, pairs: Sequence[int]) -> list[int]:
        """64 bits more for each of these pairs: their counter blocks, enciphered."""
        plain = b"".join(self.block(MORE, pair) for pair in pairs)
        stream = aes_blocks(self._key, plain)
        return [int.from_bytes(stream[i : i + 8], "little") for i in range(0, len(stream), 16)]

    def block(self, domain: int, number: int) -> bytes:
        return (domain << 112 | self._step << 64 | number).to_bytes(16, "big")
