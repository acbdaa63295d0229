"""Which units take part in a step: keyed draws, each of which knows the event that it makes.

A draw depends on the key, the step and the number of units, and on nothing else: every rank of a distributed run makes
the same one, and a resumed run makes it again. The sampling that ran is the sampling that is accounted: the object that
draws is the object that names the event. Nothing here shuffles, fills up or skips a batch.
"""

from __future__ import annotations

import hmac
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from discreet.core import check
from discreet.core import event as events
from discreet.errors import InvalidValue
from discreet.noise.ciphers import aes_ctr

Ints = NDArray[np.int64]

KEY = 32  # bytes
BLOCK = 1 << 19  # units looked at together, so that what is in flight stays in cache
MOST_UNITS = 1 << 40  # so that no keystream of a step is ever long enough to begin again
_ZEROS = bytes(2 * BLOCK)


@dataclass(frozen=True)
class Poisson:
    """Each unit takes part in each step on its own, with probability at most `rate`.

    A uniform 64-bit number per unit and step is compared with floor(rate 2^64), so the probability is that over 2^64:
    never above `rate`. An empty batch is a step like any other and must be taken, noise and all.

    >>> Poisson(0.25).draw(bytes(32), step=0, units=20)
    array([ 0,  1,  3, 10, 13, 15, 19])
    """

    rate: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "rate", check.fraction("rate", self.rate))
        if self.rate == 0:
            raise InvalidValue("rate must be above 0: at 0 no unit ever takes part.")

    def draw(self, key: bytes, step: int, units: int) -> Ints:
        """The units of this step, ascending; there may be none. Units that both calls know are treated alike in both."""
        return thinned(key, b"poisson", step, units, int(Fraction(self.rate) * 2**64))

    def event(self, noise: events.Event, steps: int) -> events.Event:
        """What `steps` such steps are, each releasing its sum with `noise`; relation add/remove."""
        return self.repeated(noise, self.rounds(0, check.whole("steps", steps)))

    def rounds(self, start: int, stop: int) -> int:
        """How many times the event of a round steps `start` to `stop`, under a key of their own, make."""
        return max(stop - start, 0)

    def repeated(self, noise: events.Event, rounds: int) -> events.Event:
        """What so many rounds are, whatever the keys they were drawn with."""
        return events.Repeat(events.Poisson(self.rate, noise), check.whole("rounds", rounds))


@dataclass
class _Pass:
    """The last pass that was drawn: what it was drawn for, the units in order of their step, and where steps begin."""

    of: tuple[bytes, int, int] | None = None
    order: Ints = field(default_factory=lambda: np.empty(0, np.int64))
    starts: Ints = field(default_factory=lambda: np.zeros(1, np.int64))


@dataclass(frozen=True)
class BallsInBins:
    """In every pass of `bins` steps each unit takes part in just one, chosen uniformly and on its own.

    Batches are near the same size, each unit is seen once a pass, and the loss is below that of Poisson sampling at rate
    1 / bins (docs/theory/random-allocation.md). This is not shuffling: a unit's step says nothing about another's.

    >>> sampler = BallsInBins(3)
    >>> [sampler.draw(bytes(32), step, units=8).tolist() for step in range(3)]
    [[0, 7], [4, 5], [1, 2, 3, 6]]
    """

    bins: int
    _pass: _Pass = field(default_factory=_Pass, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "bins", check.whole("bins", self.bins, most=2**31))

    @property
    def rate(self) -> float:
        """The share of units expected in a step."""
        return 1 / self.bins

    def draw(self, key: bytes, step: int, units: int) -> Ints:
        """The units of this step, ascending; there may be none. A pass is drawn whole and kept until the next is asked for."""
        step, units = check.whole("step", step, least=0), check.whole("units", units, least=0, most=MOST_UNITS)
        number, place = divmod(step, self.bins)
        drawn = self._pass
        if drawn.of != (key, number, units):
            chosen = placed(key, b"bins", number, units, self.bins)
            drawn.order = np.argsort(chosen.astype(np.uint16) if self.bins <= 1 << 16 else chosen, kind="stable")
            drawn.starts = np.append(0, np.cumsum(np.bincount(chosen, minlength=self.bins)))
            drawn.of = (key, number, units)
        return drawn.order[drawn.starts[place] : drawn.starts[place + 1]].astype(np.int64)

    def event(self, noise: events.Event, steps: int) -> events.Event:
        """What `steps` such steps are, each releasing its sum with `noise`; a pass that is broken off counts as a whole one."""
        return self.repeated(noise, self.rounds(0, check.whole("steps", steps)))

    def rounds(self, start: int, stop: int) -> int:
        """The passes of which steps `start` to `stop` show something: a key of their own allots each of these passes anew."""
        return (stop - 1) // self.bins - start // self.bins + 1 if stop > start else 0

    def repeated(self, noise: events.Event, rounds: int) -> events.Event:
        """What so many passes are, whatever the keys they were drawn with."""
        return events.Repeat(events.RandomAllocation(noise, self.bins), check.whole("rounds", rounds))


def placed(key: bytes, purpose: bytes, number: int, units: int, places: int) -> Ints:
    """For each unit one of `places`, uniformly and on its own.

    A 32-bit word times `places`, the high half taken; words that would favour some place are drawn again (Lemire 2019).
    """
    stream, more = keystream(key, purpose, number), keystream(key, purpose + b" more", number)
    out = np.empty(units, np.int64)
    uneven = 2**32 % places
    for start in range(0, units, BLOCK):
        part = out[start : start + BLOCK]
        todo = np.arange(part.size)
        words = np.frombuffer(stream.update(bytes(4 * part.size)), "<u4")
        while todo.size:
            product = words.astype(np.uint64) * np.uint64(places)
            part[todo] = product >> np.uint64(32)
            todo = todo[(product & np.uint64(2**32 - 1)) < np.uint64(uneven)]
            words = np.frombuffer(more.update(bytes(4 * todo.size)), "<u4")
    return out


def stripe(drawn: Ints, rank: int, world: int) -> Ints:
    """The part of a global draw that one of `world` ranks takes: all of them together take each unit once.

    >>> [stripe(np.array([3, 5, 8]), rank, 2).tolist() for rank in range(2)]
    [[3, 8], [5]]
    """
    world = check.whole("world", world)
    return drawn[check.whole("rank", rank, least=0, most=world - 1) :: world]


def thinned(key: bytes, purpose: bytes, step: int, units: int, most: int) -> Ints:
    """Units whose own uniform 64-bit number is below `most`, ascending.

    The first 16 bits decide all but one unit in 65,536; only those ask for the other 48, from a keystream of its own.
    """
    step, units = check.whole("step", step, least=0), check.whole("units", units, least=0, most=MOST_UNITS)
    _check(key)
    first, rest = most >> 48, most & (2**48 - 1)
    if first == 1 << 16:
        return np.arange(units, dtype=np.int64)
    stream: Any = keystream(key, purpose, step)
    more: Any = None
    parts = []
    for start in range(0, units, BLOCK):
        count = min(BLOCK, units - start)
        digits = np.frombuffer(stream.update(memoryview(_ZEROS)[: 2 * count]), "<u2")
        taken = digits < first
        close = np.flatnonzero(digits == first)
        if close.size:
            more = keystream(key, purpose + b" more", step) if more is None else more
            words = np.frombuffer(more.update(bytes(8 * close.size)), "<u8")
            taken[close] = words >> np.uint64(16) < np.uint64(rest)
        parts.append(np.flatnonzero(taken) + start)
    return np.concatenate(parts).astype(np.int64, copy=False) if parts else np.empty(0, np.int64)


def keystream(key: bytes, purpose: bytes, step: int) -> Any:
    """AES-256 in counter mode: a key of its own for each purpose, a range of counters of its own for each step.

    The purpose goes through HMAC-SHA256, so noise and sampling share no keystream even where they share `key`, and one
    purpose tells nothing about another. A step has 2^64 blocks before the next step's begin.
    """
    _check(key)
    own = hmac.digest(key, b"discreet sampling: " + purpose, "sha256")
    return aes_ctr(own, step.to_bytes(8, "big") + bytes(8))


def _check(key: bytes) -> None:
    if not isinstance(key, bytes) or len(key) != KEY:
        found = f"{len(key)} bytes" if isinstance(key, bytes) else type(key).__name__
        raise InvalidValue(f"key must be {KEY} bytes, such as os.urandom({KEY}); got {found}.")
