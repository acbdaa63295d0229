"""Ed25519 keys, as files and as text: for signatures of releases and of a ledger's last entry."""

from __future__ import annotations

import base64
import binascii
import os
from pathlib import Path
from typing import Any

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from discreet.core import check
from discreet.core.document import read_text
from discreet.errors import InvalidValue

__all__ = ["make_key", "named_key"]

KIND = "ed25519:"
_LARGEST = 1 << 14  # bytes of a file with a key


def make_key(path: str | os.PathLike[str]) -> str:
    """Write a new private key to a file that only its owner can read; the public key, as text. No file is replaced."""
    private = Ed25519PrivateKey.generate()
    text = private.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )  # fmt: skip
    try:
        file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        raise InvalidValue(f"{path} is there already; a key is never written over. Choose another name.") from None
    except OSError as error:
        raise InvalidValue(f"{path} cannot be written: {error.strerror}.") from None
    with os.fdopen(file, "wb") as opened:
        opened.write(text)
        opened.flush()
        os.fsync(opened.fileno())
    return public_text(private)


def private_key(path: str | os.PathLike[str]) -> Ed25519PrivateKey:
    """The private key in a file; one that others can read is refused."""
    text = read_text(path, _LARGEST, "private key")
    if os.name == "posix" and os.stat(path).st_mode & 0o077:
        raise InvalidValue(
            f"{path} holds a private key, and others can read it. Run chmod 600 on it, and think of making another."
        )
    try:
        key = serialization.load_pem_private_key(text.encode(), password=None)
    except TypeError:
        raise InvalidValue(
            f"{path} holds a key with a password, which is not supported. Make one: discreet keys make."
        ) from None
    except ValueError:
        raise InvalidValue(f"{path} holds no private key. Make one: discreet keys make {path}.key") from None
    if not isinstance(key, Ed25519PrivateKey):
        raise InvalidValue(f"{path} holds a key of another kind; signatures here are Ed25519. Make one: discreet keys make.")
    return key


def public_text(key: Ed25519PrivateKey) -> str:
    """The public key of a private one, as it is written in policies."""
    raw = key.public_key().public_bytes(serialization.Encoding.Raw, serialization.PublicFormat.Raw)
    return KIND + base64.b64encode(raw).decode("ascii")


def check_public(name: str, value: Any) -> str:
    """A public key as text, ed25519: and 44 characters."""
    text = check.word(name, value)
    if not text.startswith(KIND) or _raw(text) is None:
        raise InvalidValue(
            f"{name} must be {KIND} and 32 bytes in base64, as discreet keys show writes it; got {check.shown(text)}."
        )
    return text


def named_key(given: str) -> str:
    """A public key, given as text, or as the file that holds it as text; a private key's file does too."""
    if given.startswith(KIND):
        return check_public("key", given)
    if not Path(given).is_file():
        raise InvalidValue(f"{check.shown(given)} is neither a public key, such as {KIND}…, nor a file that holds one.")
    text = read_text(given, _LARGEST, "key").strip()
    return public_text(private_key(given)) if text.startswith("-----BEGIN") else check_public(given, text)


def fits(key: str, signature: str, message: bytes) -> bool:
    """Whether the owner of this public key signed the message."""
    raw = _raw(key)
    try:
        if raw is None or not key.startswith(KIND):
            return False
        Ed25519PublicKey.from_public_bytes(raw).verify(base64.b64decode(signature, validate=True), message)
    except (InvalidSignature, ValueError, binascii.Error):
        return False
    return True


def _raw(key: str) -> bytes | None:
    try:
        raw = base64.b64decode(key[len(KIND) :], validate=True)
    except (ValueError, binascii.Error):
        return None
    return raw if len(raw) == 32 else None
