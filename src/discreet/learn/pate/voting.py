"""Noisy votes of teachers, as mechanisms: what is released are noisy counts, and labels are read off them.

Every unit belongs to one teacher, so it moves one vote: one count of each query by 1 up and one by 1 down. That is an l1
distance of 2 and an l2 distance of the root of 2, whatever the number of classes. docs/theory/pate.md has the proofs.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from discreet.accounting import calibrate
from discreet.core import Claim, DiscreteGaussian, DiscreteLaplace, Event, Game, Repeat, Sequence, Unit, check
from discreet.errors import InvalidValue
from discreet.noise import discrete_gaussian, discrete_laplace

Ints = NDArray[np.int64]

CHECKING = 4.0  # the noise of a threshold test over that of an answer; Papernot et al. 2018 use 3.75 to 5
TEACHER = "each unit's rows belong to one teacher, chosen without looking at them; teachers share no rows and no randomness"
PUBLIC = "the queries and their number were not chosen by looking at private rows"


@dataclass(frozen=True, slots=True)
class Answers:
    """What is released: which queries were answered, and their noisy counts [queries, classes] (zeros where not)."""

    answered: NDArray[np.bool_]
    counts: Ints

    def labels(self) -> Ints:
        """The place of the class with most votes, -1 where a query was not answered."""
        return np.where(self.answered, self.counts.argmax(axis=1), -1)


@dataclass(frozen=True, slots=True)
class GNMax:
    """Every query is answered: counts plus discrete Gaussian noise (Papernot et al. 2018, with exact noise).

    `run` takes the counts of votes [queries, classes] and gives [queries, 1 + classes]: whether answered, and noisy counts.

    >>> from discreet.core import record
    >>> GNMax(queries=100, unit=record(), noise=40.0).claims()[0].event
    Repeat(event=DiscreteGaussian(sigma=40.0, sensitivity=1), times=200)
    """

    name: ClassVar[str] = "gnmax"
    queries: int
    unit: Unit
    noise: float

    def __post_init__(self) -> None:
        check.whole("queries", self.queries)
        check.positive("noise", self.noise)
        if not isinstance(self.unit, Unit):
            raise InvalidValue(f"unit must be a Unit, such as discreet.record(); got {check.shown(self.unit)}.")

    def event(self) -> Event:
        """Two counts of a query move by 1 each: two numbers with noise of their own."""
        return Repeat(DiscreteGaussian(self.noise, 1), 2 * self.queries)

    def claims(self) -> tuple[Claim, ...]:
        return (Claim(game=Game(self.unit, {"answers"}), event=self.event(), assumptions=(TEACHER, PUBLIC)),)

    def run(self, data: Any) -> Ints:
        counts = np.asarray(data, np.int64)
        self.fits(counts)
        return np.hstack([np.ones((len(counts), 1), np.int64), counts + discrete_gaussian(self.noise, counts.shape)])

    def fits(self, counts: Ints) -> None:
        if counts.ndim != 2 or len(counts) != self.queries:
            raise InvalidValue(f"The votes must be counts [{self.queries}, classes], as claimed; got {counts.shape}.")


@dataclass(frozen=True, slots=True)
class LNMax(GNMax):
    """The same with discrete Laplace noise of scale `noise`: 2 / noise is the epsilon of one query (Papernot et al. 2017).

    >>> from discreet.core import record
    >>> LNMax(queries=100, unit=record(), noise=40.0).claims()[0].event.event
    DiscreteLaplace(scale=40.0, sensitivity=2)
    """

    name: ClassVar[str] = "lnmax"

    def event(self) -> Event:
        noisy = DiscreteLaplace(self.noise, 2)
        return noisy if self.queries == 1 else Repeat(noisy, self.queries)

    def run(self, data: Any) -> Ints:
        counts = np.asarray(data, np.int64)
        self.fits(counts)
        return np.hstack([np.ones((len(counts), 1), np.int64), counts + discrete_laplace(self.noise, counts.shape)])


@dataclass(frozen=True, slots=True)
class ConfidentGNMax(GNMax):
    """Answers the first `answers` queries of which a noisy test says that `threshold` teachers agree.

    All tests come first, one for each query; then at most `answers` queries are answered. Both numbers are fixed beforehand,
    and the claim is for all of them, however many are answered: the claim covers that number too.

    >>> from discreet.core import record
    >>> ConfidentGNMax(queries=100, unit=record(), noise=40.0, answers=30, threshold=200).claims()[0].event.events[0]
    Repeat(event=DiscreteGaussian(sigma=160.0, sensitivity=1), times=100)
    """

    name: ClassVar[str] = "confident"
    answers: int
    threshold: int

    def __post_init__(self) -> None:
        GNMax.__post_init__(self)
        check.whole("answers", self.answers, most=self.queries)
        check.whole("threshold", self.threshold)

    def event(self) -> Event:
        tests = DiscreteGaussian(CHECKING * self.noise, 1)
        tests_of_all = tests if self.queries == 1 else Repeat(tests, self.queries)
        return Sequence([tests_of_all, Repeat(DiscreteGaussian(self.noise, 1), 2 * self.answers)])

    def run(self, data: Any) -> Ints:
        counts = np.asarray(data, np.int64)
        self.fits(counts)
        sure = counts.max(axis=1) + discrete_gaussian(CHECKING * self.noise, len(counts)) >= self.threshold
        chosen = np.flatnonzero(sure)[: self.answers]
        noise = discrete_gaussian(self.noise, (self.answers, counts.shape[1]))  # as many draws, however many are answered
        out = np.zeros((len(counts), 1 + counts.shape[1]), np.int64)
        out[chosen, 0] = 1
        out[chosen, 1:] = counts[chosen] + noise[: len(chosen)]
        return out


METHODS: dict[str, type[GNMax]] = {kind.name: kind for kind in (GNMax, LNMax, ConfidentGNMax)}


def calibrated(
    method: str, *, queries: int, unit: Unit, epsilon: float, delta: float, answers: int | None, threshold: int | None
) -> GNMax:
    """The mechanism of this method with the least noise that keeps (epsilon, delta)."""
    check.word("method", method, tuple(METHODS))
    check.positive("epsilon", epsilon)
    check.open_fraction("delta", delta)
    more: dict[str, Any] = {}
    if method == "confident":
        if threshold is None or answers is None:
            raise InvalidValue(
                "method='confident' answers up to `answers` queries on which about `threshold` teachers agree; both decide "
                "what it costs or gives and have no default: threshold=200, answers=300."
            )
        more = {"answers": min(check.whole("answers", answers), queries), "threshold": threshold}
    elif threshold is not None:
        raise InvalidValue(f"threshold is of method='confident' alone; leave it out of method={method!r}.")
    trial = METHODS[method](queries=queries, unit=unit, noise=1.0, **more)
    noise = calibrate(lambda scale: replace(trial, noise=scale).event(), epsilon, delta)
    return replace(trial, noise=noise)
