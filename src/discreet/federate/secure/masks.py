"""Keys that two clients share, and the masks that follow from them: AES-256 in counter mode under 256-bit keys."""

from __future__ import annotations

from typing import Any

import numpy as np
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from numpy.typing import NDArray

from discreet.errors import InvalidDocument
from discreet.noise.ciphers import aes_ctr

Words = NDArray[Any]  # unsigned whole numbers of 16, 32 or 64 bits, of which sums are modulo 2^bits

PIECE = 1 << 18  # bytes of mask that are made and added at a time, so that they stay in cache
_ZEROS = np.zeros(PIECE, np.uint8)


def agreed(secret: X25519PrivateKey, public: bytes, use: bytes) -> bytes:
    """256 bits that only the holders of the two secret keys can compute, for one use."""
    try:
        shared = secret.exchange(X25519PublicKey.from_public_bytes(public))
    except ValueError:  # a point of low order, with which every secret gives the same
        raise InvalidDocument("A party announced a key that is none. Leave it out, and run the round again.") from None
    return HKDF(algorithm=SHA256(), length=32, salt=None, info=use).derive(shared)


def add_mask(total: Words, key: bytes, *, minus: bool = False) -> None:
    """Add the mask of this key to the numbers, in place, or take it off."""
    stream, room = aes_ctr(key, bytes(16)), np.empty(PIECE + 16, np.uint8)
    step = PIECE // total.itemsize
    for start in range(0, len(total), step):
        part = total[start : start + step]
        stream.update_into(_ZEROS[: part.nbytes], room)
        words = room[: part.nbytes].view(total.dtype.newbyteorder("<"))
        (np.subtract if minus else np.add)(part, words, out=part)
