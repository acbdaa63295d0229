"""How alike two pictures are, and pictures as PNG."""

from __future__ import annotations

import base64
import struct
import zlib

import numpy as np
from numpy.typing import ArrayLike, NDArray

from discreet.core.facts import LARGEST_PICTURE
from discreet.errors import InvalidValue

__all__ = ["png", "sheet", "ssim", "thumbnail"]

REACH, WIDTH = 5, 1.5  # the published window: 11 pixels, a standard deviation of 1.5


def ssim(one: ArrayLike, two: ArrayLike) -> NDArray[np.float64]:
    """Structural similarity (Wang et al. 2004) of each pair of pictures [count, height, width, channels] within 0 and 1.

    >>> same = np.random.default_rng(0).random((2, 16, 16, 3))
    >>> ssim(same, same).tolist()
    [1.0, 1.0]
    """
    from scipy.ndimage import correlate1d

    left, right = np.asarray(one, np.float64), np.asarray(two, np.float64)
    if left.shape != right.shape or left.ndim != 4 or min(left.shape[1:3]) < 2 * REACH + 1:
        raise InvalidValue(
            f"ssim compares pictures of one shape, 11 pixels or more a side; got {left.shape} and {right.shape}."
        )
    window = np.exp(-(np.arange(-REACH, REACH + 1) ** 2) / (2 * WIDTH**2))
    window /= window.sum()

    def mean(values: NDArray[np.float64]) -> NDArray[np.float64]:
        for axis in (1, 2):
            values = correlate1d(values, window, axis=axis)
        return values[:, REACH:-REACH, REACH:-REACH]

    centre, other = mean(left), mean(right)
    spread, apart = mean(left**2) - centre**2, mean(right**2) - other**2
    shared = mean(left * right) - centre * other
    alike = (2 * centre * other + 1e-4) * (2 * shared + 9e-4) / ((centre**2 + other**2 + 1e-4) * (spread + apart + 9e-4))
    return np.asarray(alike.mean(axis=(1, 2, 3)))


def sheet(rows: list[ArrayLike], gap: int = 1) -> NDArray[np.uint8]:
    """Rows of pictures [count, height, width, channels] within 0 and 1 as one picture, white between them."""
    pictures = [np.clip(np.round(np.asarray(row, np.float64) * 255), 0, 255).astype(np.uint8) for row in rows]
    count, (height, width, channels) = max(len(row) for row in pictures), pictures[0].shape[1:]
    size = (len(rows) * (height + gap) - gap, count * (width + gap) - gap, channels)
    out = np.full(size, 255, np.uint8)
    for down, row in enumerate(pictures):
        for across, picture in enumerate(row):
            top, left = down * (height + gap), across * (width + gap)
            out[top : top + height, left : left + width] = picture
    return out


def png(picture: NDArray[np.uint8]) -> bytes:
    """A picture [height, width, 1 or 3] of bytes as a PNG file."""
    height, width, channels = picture.shape
    if channels not in (1, 3):
        raise InvalidValue(f"A PNG has 1 or 3 channels here; got {channels}.")
    lines = b"".join(b"\0" + line.tobytes() for line in np.ascontiguousarray(picture))

    def part(kind: bytes, content: bytes) -> bytes:
        return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))

    head = struct.pack(">IIBBBBB", width, height, 8, 0 if channels == 1 else 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + part(b"IHDR", head) + part(b"IDAT", zlib.compress(lines, 9)) + part(b"IEND", b"")


def thumbnail(rows: list[ArrayLike], most: int = 20) -> str | None:
    """Rows of pictures as a PNG in base64 for a report: as many columns as fit, None where not one does."""
    if np.shape(rows[0])[-1] not in (1, 3):
        return None
    shown = min(most, max(len(np.asarray(row)) for row in rows))
    while shown:
        made = base64.b64encode(png(sheet([np.asarray(row)[:shown] for row in rows]))).decode()
        if len(made) <= LARGEST_PICTURE:
            return made
        shown = min(shown - 1, shown * LARGEST_PICTURE // len(made))
    return None
