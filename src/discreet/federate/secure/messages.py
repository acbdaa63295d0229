"""The messages of one round, as bytes: each names its round and who it is from, and clients sign theirs.

A message starts with a header (what it is, which session, which client) and a body. The session is a digest of the plan, of
the public keys of all clients and of the number of the round, so nothing from another plan, federation or round is taken for
one of this. What the server sends is not signed: the server is not trusted, and what it passes on was signed or sealed by
clients.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Sequence
from typing import NoReturn

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from discreet.errors import InvalidDocument, InvalidValue, ProtocolError

HEADER = struct.Struct("<8sB32sI")
MAGIC = b"discsum1"
SIGNATURE = 64
KEYS, SHARES, MASKED, ANSWER, OTHERS, DELIVERY, SURVIVORS = range(1, 8)
NAMES = {
    KEYS: "the keys of a client", SHARES: "the shares of a client", MASKED: "the masked numbers of a client",
    ANSWER: "the answer of a client", OTHERS: "the keys of others", DELIVERY: "the shares of others", SURVIVORS: "the question",
}  # fmt: skip


class Identity:
    """A client's signing key (Ed25519). `public` goes into the roster that all parties hold; the rest never leaves.

    >>> len(Identity().public)
    32
    """

    __slots__ = ("_key", "public")

    def __init__(self) -> None:
        self._key = Ed25519PrivateKey.generate()
        self.public = self._key.public_key().public_bytes_raw()

    def to_bytes(self) -> bytes:
        """The secret key, to be kept by the client itself."""
        return self._key.private_bytes_raw()

    @classmethod
    def from_bytes(cls, secret: bytes) -> Identity:
        if not isinstance(secret, bytes) or len(secret) != 32:
            raise InvalidDocument("An identity is 32 bytes, as Identity.to_bytes wrote them.")
        own = cls.__new__(cls)
        own._key = Ed25519PrivateKey.from_private_bytes(secret)
        own.public = own._key.public_key().public_bytes_raw()
        return own

    def sign(self, content: bytes) -> bytes:
        return self._key.sign(content)

    def __repr__(self) -> str:
        return f"<Identity {self.public.hex()[:8]}>"

    def __reduce__(self) -> NoReturn:
        raise InvalidValue("An Identity holds a secret key: it is not pickled or copied. Keep to_bytes() where secrets are.")


def session(plan: bytes, roster: Sequence[bytes], number: int) -> bytes:
    """A digest of what all parties must agree on."""
    digest = hashlib.sha256(b"discreet secure sum" + struct.pack("<IQ", len(plan), number) + plan)
    for key in roster:
        digest.update(key)
    return digest.digest()


def write(kind: int, at: bytes, client: int, body: bytes) -> bytes:
    """A message of the server, to one client."""
    return HEADER.pack(MAGIC, kind, at, client) + body


def signed(identity: Identity, kind: int, at: bytes, client: int, body: bytes) -> bytes:
    """A message of a client."""
    header = HEADER.pack(MAGIC, kind, at, client)
    return header + body + identity.sign(header + hashlib.sha256(body).digest())


def read(message: bytes, kind: int, at: bytes) -> tuple[int, memoryview]:
    """The client that a message names and its body, if it is of this kind and session."""
    if not isinstance(message, (bytes, memoryview)) or len(message) < HEADER.size or bytes(message[:8]) != MAGIC:
        raise InvalidDocument(f"This is no message of a secure sum; {NAMES[kind]} is needed here.")
    _, found, session_found, client = HEADER.unpack(message[: HEADER.size])
    if session_found != at:
        raise ProtocolError(
            "This message belongs to another round, plan or roster: it is refused. It may be a replay; all parties must hold "
            "the same plan, the same roster and the same number of the round."
        )
    if found != kind:
        raise ProtocolError(f"This message is {NAMES.get(found, 'of an unknown kind')}; {NAMES[kind]} is needed here.")
    return client, memoryview(message)[HEADER.size :]


def verified(message: bytes, kind: int, at: bytes, roster: Sequence[bytes]) -> tuple[int, memoryview]:
    """The client that signed a message, and its body."""
    client, rest = read(message, kind, at)
    if client >= len(roster) or len(rest) < SIGNATURE:
        raise InvalidDocument(f"This message is cut off, or from client {client}; the roster has {len(roster)}, from 0.")
    body, signature = rest[:-SIGNATURE], bytes(rest[-SIGNATURE:])
    try:
        Ed25519PublicKey.from_public_bytes(roster[client]).verify(
            signature, bytes(message[: HEADER.size]) + hashlib.sha256(body).digest()
        )
    except InvalidSignature:
        raise InvalidDocument(f"The signature of client {client} does not fit: the message was changed or forged.") from None
    return client, body


def kind_of(message: bytes) -> int:
    """What a message says that it is; 0 where it says nothing."""
    whole = isinstance(message, bytes) and len(message) >= HEADER.size and message[:8] == MAGIC
    return message[8] if whole else 0


def cut(body: memoryview, width: int, what: str) -> list[memoryview]:
    """A body as records of so many bytes."""
    if len(body) % width:
        raise InvalidDocument(f"{what} has {len(body)} bytes, which are not records of {width}. Send it again.")
    return [body[place : place + width] for place in range(0, len(body), width)]
