"""Private set intersection and private lookup by Diffie and Hellman's exponents, which commute: `(H(x)^a)^b =
(H(x)^b)^a`.

Items are hashed onto the curve P-256 and raised to a party's secret exponent. Without that exponent the result looks
random (decisional Diffie–Hellman, hash function as a random oracle), so the other party can raise it to its own
exponent, and equal items meet under both.

**What it hides, from whom.** Parties that follow the protocol but look at everything (semi-honest): each learns the
number of items of the other, and the asking party learns which of its own items the other has. It is not hidden who
takes part, and a party may lie about its items: an asking party that enters the whole domain learns the whole set.
The intersection is itself a release about the people in it; this protocol makes no claim for it.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Iterable, Sequence

from cryptography.hazmat.primitives.asymmetric import ec

from discreet.errors import InvalidValue

__all__ = ["Party", "intersect"]

CURVE = ec.SECP256R1()
ORDER = 0xFFFFFFFF00000000FFFFFFFFFFFFFFFFBCE6FAADA7179E84F3B9CAC2FC632551
WIDTH = 32  # bytes of a coordinate


def _point(coordinate: bytes) -> ec.EllipticCurvePublicKey:
    return ec.EllipticCurvePublicKey.from_encoded_point(CURVE, b"\x02" + coordinate)


def _onto_curve(item: bytes) -> ec.EllipticCurvePublicKey:
    """The first counter whose hash is the coordinate of a point. Its time depends on the item, which is the party's own."""
    for counter in range(256):
        try:
            return _point(hashlib.sha256(b"discreet intersection" + bytes([counter]) + item).digest())
        except ValueError:  # about every second number is no coordinate
            continue
    raise AssertionError("unreachable: 256 hashes in a row that are no coordinate")  # pragma: no cover


class Party:
    """One party's secret exponent, fresh for every protocol run. It never leaves the process; what the methods return
    may be sent.

    >>> hospital, registry = Party(), Party()
    >>> asked = [b"ann", b"ben"]
    >>> twice = registry.raised(hospital.blinded(asked))                # there and back, in order
    >>> theirs = hospital.raised(registry.blinded([b"ben", b"cem"], shuffle=True))
    >>> [item for item, value in zip(asked, twice) if value in set(theirs)]
    [b'ben']
    """

    __slots__ = ("_key",)

    def __init__(self, exponent: int | None = None) -> None:
        self._key = ec.generate_private_key(CURVE) if exponent is None else ec.derive_private_key(exponent, CURVE)

    def __reduce__(self) -> str:
        raise InvalidValue("A party's exponent is secret and is not pickled; send what blinded() and raised() return.")

    def blinded(self, items: Iterable[bytes], *, shuffle: bool = False) -> list[bytes]:
        """The party's own items under its exponent; shuffled where the other side must not learn which is which."""
        values = [self._key.exchange(ec.ECDH(), _onto_curve(item)) for item in _distinct(items)]
        if shuffle:
            secrets.SystemRandom().shuffle(values)
        return values

    def raised(self, received: Sequence[bytes]) -> list[bytes]:
        """What the other party sent, under both exponents, in the order received."""
        try:
            return [self._key.exchange(ec.ECDH(), _point(value)) for value in received]
        except (ValueError, TypeError) as problem:
            raise InvalidValue(
                f"A received value is not {WIDTH} bytes that are the coordinate of a point on P-256. Nothing was answered; "
                "ask the other party to send what blinded() returned."
            ) from problem

    def lookup(self, item: bytes, table: Iterable[bytes], server: Party) -> bool:
        """Whether `item` is in a table that `server` published with `blinded`; the server sees one random point, no
        prefix of a hash.

        >>> server = Party()
        >>> Party().lookup(b"hunter2", server.blinded([b"123456", b"hunter2"], shuffle=True), server)
        True
        """
        mask = secrets.randbelow(ORDER - 1) + 1
        answer = server.raised(Party(mask).blinded([item]))  # the one message each way
        return Party(pow(mask, -1, ORDER)).raised(answer)[0] in set(table)


def _distinct(items: Iterable[bytes]) -> list[bytes]:
    listed = list(items)
    for item in listed:
        if not isinstance(item, bytes):
            raise InvalidValue(
                f"Items are bytes, written alike on both sides; found {type(item).__name__}. Encode text: text.encode()."
            )
    if len(set(listed)) < len(listed):
        raise InvalidValue("Items must differ: an item that appears twice would show as two equal values. Pass each once.")
    return listed


def intersect(mine: Iterable[bytes], theirs: Iterable[bytes]) -> list[bytes]:
    """Both parties in one process, for trying it out: the items of `mine` that `theirs` has, in the order of `mine`.

    Between machines each side holds a `Party` and sends three lists: see the guide.

    >>> intersect([b"ann", b"ben", b"dee"], [b"dee", b"ann"])
    [b'ann', b'dee']
    """
    asking, answering, own = Party(), Party(), _distinct(mine)
    twice = answering.raised(asking.blinded(own))
    common = set(asking.raised(answering.blinded(theirs, shuffle=True)))
    return [item for item, value in zip(own, twice, strict=True) if value in common]
