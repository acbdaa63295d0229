"""A pad used twice, broken: `c1 xor c2 = m1 xor m2`, which holds both messages.

`drag` slides a guessed word (a crib) along that text and shows what the other message would be there, as the readers
of the Venona messages did by hand. `separate` does it without guesses: a beam search for the two messages that a
model of the language finds most likely (Mason, Watkins, Eisner and Stubblefield 2006). Which of the two is the first
message cannot be known, and where both have the same letters the search may exchange them.
"""

from __future__ import annotations

import heapq
import math
from collections import Counter, defaultdict
from dataclasses import dataclass, field

from discreet.crypto.pad import xor
from discreet.errors import InvalidValue

__all__ = ["LetterModel", "drag", "separate"]

TEXT = frozenset(range(32, 127)) | {9, 10, 13}


def drag(first: bytes, second: bytes, crib: bytes) -> list[tuple[int, bytes]]:
    """Where `crib` may stand in one message, with what the other message then says there: places where that is
    printable text.

    >>> key = bytes(range(100, 120))
    >>> first, second = xor(b"the attack is at ten", key), xor(b"send them more maps.", key)
    >>> (4, b" them ") in drag(first, second, b"attack")
    True
    """
    both = xor(first, second)
    if not 0 < len(crib) <= len(both):
        raise InvalidValue(f"The crib must have 1 to {len(both)} bytes, the length of the ciphertexts; found {len(crib)}.")
    shown = ((i, xor(both[i : i + len(crib)], crib)) for i in range(len(both) - len(crib) + 1))
    return [(i, text) for i, text in shown if TEXT.issuperset(text)]


@dataclass(frozen=True)
class LetterModel:
    """How likely a character is after the ones before it, counted in a corpus and smoothed by Witten and Bell's
    interpolation.

    >>> model = LetterModel.learn("the cat sat on the mat. " * 3, order=3)
    >>> model.log_probability("th", "e") > model.log_probability("th", "m")
    True
    """

    order: int
    alphabet: tuple[str, ...]
    counts: dict[str, Counter[str]] = field(repr=False)
    _seen: dict[tuple[str, str], float] = field(default_factory=dict, repr=False, compare=False)

    @classmethod
    def learn(cls, corpus: str, order: int = 6) -> LetterModel:
        """Count every context of up to `order - 1` characters."""
        if order < 1 or len(corpus) < order:
            raise InvalidValue(
                f"A model of order {order} needs a corpus of at least that many characters; found {len(corpus)}."
            )
        counts: dict[str, Counter[str]] = defaultdict(Counter)
        for length in range(order):
            for i in range(length, len(corpus)):
                counts[corpus[i - length : i]][corpus[i]] += 1
        return cls(order, tuple(sorted(counts[""])), dict(counts))

    def log_probability(self, context: str, letter: str) -> float:
        """The logarithm of the probability of `letter` after `context`."""
        context = context[-(self.order - 1) :] if self.order > 1 else ""
        return math.log(self._probability(context, letter))

    def _probability(self, context: str, letter: str) -> float:
        known = self._seen.get((context, letter))
        if known is not None:
            return known
        shorter = self._probability(context[1:], letter) if context else 1 / 256
        following = self.counts.get(context)
        if following is None:
            return shorter
        total, kinds = following.total(), len(following)
        value = (following[letter] + kinds * shorter) / (total + kinds)
        self._seen[context, letter] = value
        return value


def separate(first: bytes, second: bytes, model: LetterModel, *, beam: int = 300) -> tuple[bytes, bytes]:
    """The two messages behind two ciphertexts of one key: the most likely pair that a beam search finds."""
    both = xor(first, second)
    letters = {ord(c) for c in model.alphabet if ord(c) < 256}
    paths = [(0.0, "", "")]
    for position, difference in enumerate(both):
        pairs = [(chr(a), chr(a ^ difference)) for a in letters if a ^ difference in letters]
        if not pairs:
            raise InvalidValue(
                f"No two characters of the corpus differ as the ciphertexts do at byte {position}. "
                "Learn the model from text with the characters of the messages, and check that both used the same key "
                "from its first byte on."
            )
        longer = (
            (score + model.log_probability(a, x) + model.log_probability(b, y), a + x, b + y)
            for score, a, b in paths
            for x, y in pairs
        )
        paths = heapq.nlargest(beam, longer, key=lambda path: path[0])
        if position == 0:  # the two messages may change places: keep one order
            paths = [path for path in paths if path[1] <= path[2]]
    _, one, other = paths[0]
    return one.encode("latin-1"), other.encode("latin-1")
