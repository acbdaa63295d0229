"""Files of keys and ciphertexts: a kind, a version, a header, and binary parts, with a checksum over all of it.

The checksum finds truncated and damaged files. It is no signature: it does not say who wrote the file.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import secrets
import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from discreet.core.document import keep_keys, parse_json
from discreet.errors import InvalidDocument, InvalidValue

MAGIC = b"discreet-crypto\n"
VERSION = 1
LARGEST_HEADER = 1 << 20
KINDS = {
    "secret-key": "a secret key", "public-key": "a public key", "ciphertext": "ciphertexts",
    "training": "a message of encrypted training", "sum": "an encrypted update or sum", "triple": "a triple",
}  # fmt: skip


def is_name(value: Any) -> bool:
    """Whether this is a name of a key or a message as discreet makes them: 32 digits, which are safe to show."""
    return isinstance(value, str) and re.fullmatch("[0-9a-f]{32}", value) is not None


def pack(kind: str, header: dict[str, Any], parts: Sequence[bytes]) -> bytes:
    """The bytes of a file.

    >>> unpack(pack("ciphertext", {"rows": 2}, [b"one", b"two"]), "ciphertext")
    ({'rows': 2}, [b'one', b'two'])
    """
    text = json.dumps({"kind": kind, "header": header, "parts": [len(part) for part in parts]}).encode()
    body = b"".join([MAGIC, struct.pack("<II", VERSION, len(text)), text, *parts])
    return body + hashlib.sha256(body).digest()


def unpack(data: bytes, kind: str, name: str = "The data") -> tuple[dict[str, Any], list[bytes]]:
    """The header and the parts; anything else than one whole file of this kind and version is refused."""
    start = len(MAGIC) + 8
    if not data.startswith(MAGIC):
        raise InvalidDocument(f"{name} was not written by discreet crypto. Name {KINDS[kind]} that it wrote.")
    if len(data) < start + 32:
        raise InvalidDocument(f"{name} is truncated: {len(data)} bytes. Copy or send it again.")
    version, length = struct.unpack("<II", data[len(MAGIC) : start])
    if version != VERSION:
        raise InvalidDocument(f"{name} has version {version}; this discreet reads version {VERSION}. Upgrade discreet.")
    if hashlib.sha256(data[:-32]).digest() != data[-32:]:
        raise InvalidDocument(f"{name} is truncated or damaged: its checksum does not fit. Copy or send it again.")
    if length > min(LARGEST_HEADER, len(data) - start - 32):
        raise InvalidDocument(f"{name} has a header of {length} bytes, which it cannot hold. It was not written by discreet.")
    return _split(data, start, length, kind, name)


def _split(data: bytes, start: int, length: int, kind: str, name: str) -> tuple[dict[str, Any], list[bytes]]:
    document = parse_json(data[start : start + length].decode("utf-8", "replace"))
    if (
        not isinstance(document, dict)
        or set(document) != {"kind", "header", "parts"}
        or not isinstance(document["header"], dict)
    ):
        raise InvalidDocument(f"{name} has a header that is not one of discreet crypto.")
    if document["kind"] != kind:
        found = KINDS.get(document["kind"], "something else") if isinstance(document["kind"], str) else "something else"
        raise InvalidDocument(f"{name} holds {found}; {KINDS[kind]} is needed here.")
    sizes, place = document["parts"], start + length
    if not isinstance(sizes, list) or not all(type(size) is int and size >= 0 for size in sizes):
        raise InvalidDocument(f"{name} has a list of parts that is not one of sizes.")
    if place + sum(sizes) + 32 != len(data):
        raise InvalidDocument(f"{name} holds {len(data) - place - 32} bytes of parts where its header says {sum(sizes)}.")
    parts = []
    for size in sizes:
        parts.append(data[place : place + size])
        place += size
    return document["header"], parts


def write_file(path: str | os.PathLike[str], data: bytes, *, secret: bool = False) -> Path:
    """Write the file whole or not at all; a secret one can be read by its owner alone."""
    target = Path(path)
    keep_keys(target)
    if not target.parent.is_dir():
        raise InvalidValue(f"There is no folder {target.parent} to write {target.name} to. Make it first, or name another.")
    name = target.parent / f".{target.name[:100]}.{secrets.token_hex(8)}"
    handle = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600 if secret else 0o666)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(name, target)
    except BaseException:
        os.unlink(name)
        raise
    return target


def read_file(path: str | os.PathLike[str], kind: str) -> tuple[dict[str, Any], list[bytes]]:
    """Read a file of this kind."""
    target = Path(path)
    if not target.is_file():
        raise InvalidDocument(f"There is no file {target.name}; name {KINDS[kind]} that discreet crypto wrote.")
    return unpack(target.read_bytes(), kind, target.name)
