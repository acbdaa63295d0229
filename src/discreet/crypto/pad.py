"""The one-time pad: perfect secrecy for one message under one key, and what goes wrong with a second one.

**Correctness.** `(x + k) - k = x` modulo the size of the alphabet.
**Perfect secrecy** (Shannon 1949). For a fixed message the ciphertext is uniform if the key is, so it is independent
of the message: `Pr[message | ciphertext] = Pr[message]` for every prior, whatever the adversary computes. `secrecy`
verifies this by counting all keys.
**Shannon's bound.** A scheme with fewer keys than messages is not perfectly secret: decrypting one ciphertext with
every key leaves at least one message out, and that message has become impossible.
**No integrity.** Adding `d` to a ciphertext adds `d` to the message (`tamper`), without the key.
"""

from __future__ import annotations

import secrets
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import TypeVar

from discreet.crypto.private import Once, Private
from discreet.errors import InvalidValue

__all__ = ["OneTimePad", "possible_messages", "secrecy", "tamper", "xor"]

M = TypeVar("M")
C = TypeVar("C")
K = TypeVar("K")


def xor(first: bytes, second: bytes) -> bytes:
    """Bitwise exclusive or of two texts of the same length.

    >>> xor(b"ab", xor(b"ab", b"xy"))
    b'xy'
    """
    if len(first) != len(second):
        raise InvalidValue(f"Both texts must have the same length; found {len(first)} and {len(second)} bytes.")
    return (int.from_bytes(first) ^ int.from_bytes(second)).to_bytes(len(first))


@dataclass(slots=True, repr=False)
class OneTimePad(Private):
    """A key that encrypts one message of its own length, once.

    `OneTimePad(b"...")` takes the key that both sides hold; `OneTimePad.random(length)` draws one from the operating
    system. Each side makes a pad of its own from the key; a pad that has encrypted a message refuses to encrypt
    another.

    >>> key = OneTimePad.random(5).key
    >>> sent = OneTimePad(key).encrypt(b"hello")
    >>> OneTimePad(key).decrypt(sent)
    b'hello'
    """

    key: bytes = field(repr=False)
    used: bool = False
    _once: Once = field(default_factory=lambda: Once("encrypt"), init=False, repr=False, compare=False)

    @classmethod
    def random(cls, length: int) -> OneTimePad:
        """A pad for a message of `length` bytes."""
        if length < 1:
            raise InvalidValue(f"A pad needs a length of at least 1 byte; found {length}.")
        return cls(secrets.token_bytes(length))

    def encrypt(self, message: bytes) -> bytes:
        """The ciphertext. The pad is used up afterwards."""
        ciphertext = self._combine(message, "message")
        if self.used or not self._once.take("encrypt"):
            raise InvalidValue(
                "This pad has encrypted a message already. Two ciphertexts under one key reveal the exclusive or of their "
                "messages (see discreet.crypto.separate); draw a new pad: OneTimePad.random(len(message))."
            )
        self.used = True
        return ciphertext

    def decrypt(self, ciphertext: bytes) -> bytes:
        """The message. Nothing tells whether the ciphertext was changed on its way: the pad has no integrity."""
        return self._combine(ciphertext, "ciphertext")

    def _combine(self, text: bytes, name: str) -> bytes:
        if len(text) != len(self.key):
            raise InvalidValue(
                f"The {name} has {len(text)} bytes and the key {len(self.key)}. Perfect secrecy needs a key as long as the "
                "message (Shannon's bound); draw one of that length, and pad the message where its length must stay secret."
            )
        return xor(text, self.key)


def tamper(ciphertext: bytes, believed: bytes, wanted: bytes) -> bytes:
    """A ciphertext that decrypts to `wanted` where the sender wrote `believed`, made without the key.

    >>> pad = OneTimePad.random(8)
    >>> pad.decrypt(tamper(pad.encrypt(b"pay  100"), b"pay  100", b"pay 9999"))
    b'pay 9999'
    """
    return xor(ciphertext, xor(believed, wanted))


def secrecy(encrypt: Callable[[M, K], C], messages: Iterable[M], keys: Sequence[K]) -> dict[M, dict[C, Fraction]]:
    """The exact distribution of the ciphertext for every message, over all keys.

    A scheme is perfectly secret if and only if all these distributions are the same.

    >>> table = secrecy(lambda m, k: (m + k) % 3, range(3), range(3))          # the pad over the integers modulo 3
    >>> len({frozenset(row.items()) for row in table.values()})
    1
    >>> biased = secrecy(lambda m, k: (m + k) % 3, range(3), range(2))         # too few keys: Shannon's bound
    >>> len({frozenset(row.items()) for row in biased.values()})
    3
    """
    if not keys:
        raise InvalidValue("A scheme needs at least one key; found none.")
    return {m: {c: Fraction(n, len(keys)) for c, n in Counter(encrypt(m, k) for k in keys).items()} for m in messages}


def possible_messages(decrypt: Callable[[C, K], M], ciphertext: C, keys: Iterable[K]) -> set[M]:
    """Every message that some key decrypts the ciphertext to: at most as many as there are keys.

    >>> sorted(possible_messages(lambda c, k: (c - k) % 3, 2, range(2)))
    [1, 2]
    """
    return {decrypt(ciphertext, k) for k in keys}
