"""What SEAL's files say of their size, read before SEAL unpacks them."""

from __future__ import annotations

import struct

_SEAL, _NONE, _ZSTD = b"\x5e\xa1\x10", 0, 2


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
