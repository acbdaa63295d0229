"""Gaussian noise at a position, from a cipher.

Standard normal number p of step t is a fixed function of (key, t, p): AES-256 in counter mode (NIST SP 800-38A) gives
the bits, Box & Muller's transform makes two normal numbers of each 64 of them. So a shard draws its own part of the
noise and nothing else, any split of a vector gives the same numbers bit for bit, and a resumed run repeats what it
drew. Neither `torch.manual_seed` nor the number of threads reaches it.
"""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor

from discreet.core import check
from discreet.errors import InvalidValue

KEY = 32  # bytes
BLOCK = 1 << 15  # numbers made at a time: what is in flight stays in cache; a block is always made whole
_PAIRS = BLOCK // 2
_ZEROS = bytes(4 * BLOCK)


class Stream:
    """Normal numbers addressed by (step, position) under one key of 32 bytes.

    Whoever holds the key can take the noise away again: a run draws it from the operating system and releases it to
    nobody. The same key must never serve two runs.

    >>> stream = Stream(bytes(32))
    >>> whole, part = torch.empty(10), torch.empty(4)
    >>> bool((stream.fill(part, step=3, offset=5) == stream.fill(whole, step=3)[5:9]).all())
    True
    """

    def __init__(self, key: bytes, device: torch.device | str = "cpu") -> None:
        if not isinstance(key, bytes) or len(key) != KEY:
            raise InvalidValue(f"key must be {KEY} bytes, such as os.urandom({KEY}); got {type(key).__name__}.")
        self._key = key
        self.device = torch.device(device)

    def fill(self, out: Tensor, *, step: int, offset: int = 0, scale: float = 1.0) -> Tensor:
        """`out[i] = scale * (standard normal number offset + i of this step)`, in place; returns `out`."""
        step = check.whole("step", step, least=0, most=(1 << 48) - 1)
        offset = check.whole("offset", offset, least=0)
        scale = check.nonnegative("scale", scale)
        if out.dtype != torch.float32 or out.dim() != 1 or not out.is_contiguous():
            raise InvalidValue(f"out must be a flat contiguous float32 tensor; got {out.dtype} of shape {tuple(out.shape)}.")
        if out.device.type != "cpu":
            host = torch.empty(out.numel())
            return out.copy_(self.fill(host, step=step, offset=offset, scale=scale))
        self._fill(out.detach().numpy(), step, offset, scale)
        return out

    def _fill(self, out: np.ndarray, step: int, offset: int, scale: float) -> None:
        from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

        first = offset // BLOCK
        counter = (step << 64 | first * (BLOCK // 4)).to_bytes(16, "big")
        stream = Cipher(algorithms.AES256(self._key), modes.CTR(counter)).encryptor()
        words, made = np.empty(BLOCK, np.uint32), np.empty(BLOCK, np.float32)
        raw = words.data.cast("B")
        done, skip = 0, offset - first * BLOCK
        while done < out.size:
            stream.update_into(_ZEROS, raw)
            _normal(words, scale, made)
            take = min(BLOCK - skip, out.size - done)
            out[done : done + take] = made[skip : skip + take]
            done, skip = done + take, 0


def _normal(words: np.ndarray, scale: float, out: np.ndarray) -> None:
    """A block of words to normal numbers: radius from its first half, angle from its second."""
    radius, cosine, sine = np.empty(_PAIRS, np.float32), out[:_PAIRS], out[_PAIRS:]
    np.add(words[:_PAIRS].astype(np.float32), 0.5, out=radius)
    np.multiply(radius, 2.0**-32, out=radius)
    np.log(radius, out=radius)
    np.multiply(radius, -2.0 * scale * scale, out=radius)
    np.sqrt(np.abs(radius, out=radius), out=radius)
    angle = words[_PAIRS:].view(np.int32) * np.float32(math.pi / 2**31)
    angle = angle.astype(np.float32)
    np.multiply(np.cos(angle, out=cosine), radius, out=cosine)
    np.multiply(np.sin(angle, out=sine), radius, out=sine)
