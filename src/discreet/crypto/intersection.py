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
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

from cryptography.hazmat.primitives.asymmetric import ec

from discreet.core import Claim, Unit
from discreet.crypto.private import Once, Private
from discreet.errors import InvalidValue
from discreet.noise import LaplaceNoise

__all__ = ["IntersectionSize", "LookupServer", "Party", "Question", "intersect"]

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


class Party(Private):
    """One party's secret exponent, for one run of the protocol. It never leaves the process; what the methods return
    may be sent.

    Each method works once: an exponent that is used again gives equal items equal values, so that whoever sees two runs
    knows which items are in both.

    >>> hospital, registry = Party(), Party()
    >>> asked = [b"ann", b"ben"]
    >>> twice = registry.raised(hospital.blinded(asked))                # there and back, in order
    >>> theirs = hospital.raised(registry.blinded([b"ben", b"cem"], shuffle=True))
    >>> [item for item, value in zip(asked, twice) if value in set(theirs)]
    [b'ben']
    """

    __slots__ = ("_key", "_steps")

    def __init__(self) -> None:
        self._key = ec.generate_private_key(CURVE)
        self._steps = Once("blinded", "raised")

    def _once(self, step: str) -> None:
        if not self._steps.take(step):
            raise InvalidValue(
                f"This party has called {step}() already. A second run with the same exponent could be linked with the first: "
                "make a new Party() for each run."
            )

    def blinded(self, items: Iterable[bytes], *, shuffle: bool = False) -> list[bytes]:
        """The party's own items under its exponent; shuffled where the other side must not learn which is which."""
        own = _distinct(items)
        self._once("blinded")
        values = [self._key.exchange(ec.ECDH(), _onto_curve(item)) for item in own]
        if shuffle:
            secrets.SystemRandom().shuffle(values)
        return values

    def raised(self, received: Sequence[bytes], *, shuffle: bool = False) -> list[bytes]:
        """What the other party sent, under both exponents, in the order received; shuffled where only the number of common
        items is to be learned.
        """
        points = _points(received)
        self._once("raised")
        values = [self._key.exchange(ec.ECDH(), point) for point in points]
        if shuffle:
            secrets.SystemRandom().shuffle(values)
        return values


class LookupServer(Private):
    """Holds a list that others may ask about, one item at a time, without showing the item or a prefix of its hash.

    `table` is published once; its exponent stays the same for as long as the table does, which links nothing: the questions
    are masked by a fresh exponent each (a Diffie–Hellman oblivious pseudorandom function).

    >>> server = LookupServer([b"123456", b"hunter2"])
    >>> question = Question(b"hunter2")
    >>> question.found(server.answer(question.sent), server.table)
    True
    """

    __slots__ = ("_key", "table")

    def __init__(self, items: Iterable[bytes]) -> None:
        own = _distinct(items)
        self._key = ec.generate_private_key(CURVE)
        self.table = frozenset(self._key.exchange(ec.ECDH(), _onto_curve(item)) for item in own)

    def answer(self, sent: bytes) -> bytes:
        """One question under the server's exponent. Limit how often one client may ask: each answer tests one item."""
        return self._key.exchange(ec.ECDH(), _points([sent])[0])


class Question(Private):
    """One question to a `LookupServer`: `sent` is a random point, whatever the item is."""

    __slots__ = ("_mask", "sent")

    def __init__(self, item: bytes) -> None:
        self._mask = secrets.randbelow(ORDER - 1) + 1
        self.sent = ec.derive_private_key(self._mask, CURVE).exchange(ec.ECDH(), _onto_curve(_distinct([item])[0]))

    def found(self, answer: bytes, table: Collection[bytes]) -> bool:
        """Whether the item is in the server's published table."""
        unmask = ec.derive_private_key(pow(self._mask, -1, ORDER), CURVE)
        return unmask.exchange(ec.ECDH(), _points([answer])[0]) in table


def _points(received: Sequence[bytes]) -> list[ec.EllipticCurvePublicKey]:
    try:
        return [_point(value) for value in received]
    except (ValueError, TypeError) as problem:
        raise InvalidValue(
            f"A received value is not {WIDTH} bytes that are the coordinate of a point on P-256. Nothing was answered; "
            "ask the other party to send what blinded() returned."
        ) from problem


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


@dataclass(frozen=True, slots=True)
class IntersectionSize:
    """How many items two parties have in common, with noise: the mechanism, both parties in one process.

    Both lists come back shuffled, so that the counting party learns how many items match and not which. **It learns that
    number exactly**; whoever is told the noisy one gets what the claim says. An item more or less on either side moves the
    number by at most 1.

    >>> from discreet import record
    >>> IntersectionSize(scale=2, unit=record()).claims()[0].event
    DiscreteLaplace(scale=2.0, sensitivity=1)
    """

    scale: int | float | Fraction
    unit: Unit

    def claims(self) -> tuple[Claim, ...]:
        if self.unit.rows != 1 or self.unit.relation not in ("add_remove", "replace", "zero_out"):
            raise InvalidValue(f"The unit must be one item of either list; got {self.unit}.")
        (claim,) = LaplaceNoise(self.scale, 1, self.unit).claims()
        counted = "the party that counts, which learns the exact number, follows the protocol and publishes the noisy one alone"
        return (replace(claim, assumptions=(*claim.assumptions, counted)),)

    def run(self, data: tuple[Iterable[bytes], Iterable[bytes]]) -> int:
        counting, other = Party(), Party()
        # An error would tell of one item: those that appear twice count once, and what is no bytes counts as nothing.
        first, second = (list(dict.fromkeys(item for item in side if isinstance(item, bytes))) for side in data)
        mine = other.raised(counting.blinded(first), shuffle=True)
        theirs = counting.raised(other.blinded(second, shuffle=True))
        noisy = LaplaceNoise(self.scale, 1, self.unit).run(len(set(mine) & set(theirs)))
        assert isinstance(noisy, int)
        return noisy


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
