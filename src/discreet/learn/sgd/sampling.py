"""Which units take part in a step: keyed draws, each of which states its event.

A draw depends on the key, the step and the number of units, and on nothing else: every rank of a distributed run makes
the same one, and a resumed run makes it again. The sampling that ran is the sampling that is accounted: the object that
draws is the object that names the event. Nothing here shuffles, fills up or skips a batch.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from discreet.core import check
from discreet.core import event as events
from discreet.errors import InvalidValue
from discreet.noise.sampling import MOST_UNITS, placed, thinned

Ints = NDArray[np.int64]


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
        """The event of `steps` such steps, each releasing its sum with `noise`; relation add/remove."""
        return self.repeated(noise, self.rounds(0, check.whole("steps", steps)))

    def rounds(self, start: int, stop: int) -> int:
        """The number of rounds in steps `start` to `stop` under a key of their own."""
        return max(stop - start, 0)

    def repeated(self, noise: events.Event, rounds: int) -> events.Event:
        """The event of so many rounds, whatever the keys they were drawn with."""
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
        """The event of `steps` such steps, each releasing its sum with `noise`; an incomplete pass counts as a whole one."""
        return self.repeated(noise, self.rounds(0, check.whole("steps", steps)))

    def rounds(self, start: int, stop: int) -> int:
        """The number of passes that steps `start` to `stop` overlap: a key of their own allots each of these passes anew."""
        return (stop - 1) // self.bins - start // self.bins + 1 if stop > start else 0

    def repeated(self, noise: events.Event, rounds: int) -> events.Event:
        """The event of so many passes, whatever the keys they were drawn with."""
        return events.Repeat(events.RandomAllocation(noise, self.bins), check.whole("rounds", rounds))


def stripe(drawn: Ints, rank: int, world: int) -> Ints:
    """The part of a global draw that one of `world` ranks takes: all of them together take each unit once.

    >>> [stripe(np.array([3, 5, 8]), rank, 2).tolist() for rank in range(2)]
    [[3, 8], [5]]
    """
    world = check.whole("world", world)
    return drawn[check.whole("rank", rank, least=0, most=world - 1) :: world]
