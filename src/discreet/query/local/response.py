"""Randomised response: the truth, now and then replaced by any answer alike."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from discreet.core import Event, RandomizedResponse
from discreet.noise.additive import fix
from discreet.noise.samplers import Number, float_above
from discreet.noise.source import open_source
from discreet.query.local.coins import below, budget, coins, kept
from discreet.query.local.oracle import Ints, Oracle, public, whole_reports

CHUNK = 1 << 15  # people at a time, so that everything in flight stays in cache


@dataclass(frozen=True, slots=True)
class KaryResponse(Oracle):
    """One answer out of k: the truth with odds e^epsilon against each other (Kairouz, Bonawitz & Ramage 2016).

    A coin decides between the truth and an answer at random out of all k. The best oracle while k < 3 e^epsilon + 2.

    >>> poll = KaryResponse(epsilon=2, categories=["tea", "coffee", "water"])
    >>> told = poll.encode(["tea"] * 900 + ["water"] * 100)
    >>> found = poll.estimate(told, confidence=0.999999)
    >>> bool(found.low[0] <= 0.9 <= found.high[0])
    True
    """

    epsilon: Fraction
    categories: int | tuple[Any, ...]
    keep: Fraction = field(repr=False)

    def __init__(self, epsilon: Number, categories: Any) -> None:
        fix(self, epsilon=budget(epsilon), categories=public(categories))
        fix(self, keep=kept(self.epsilon, 1, self.size))

    @property
    def p(self) -> Fraction:  # type: ignore[override]
        return self.keep + self.q

    @property
    def q(self) -> Fraction:  # type: ignore[override]
        return (1 - self.keep) / self.size

    def event(self) -> Event:
        return RandomizedResponse(float_above("epsilon", self.epsilon), self.size)

    def cost(self) -> float:
        return math.log2(self.size) + 1

    def _encode(self, truth: Ints) -> NDArray[Any]:
        return respond(truth, self.keep, self.size)

    def _supports(self, reports: NDArray[Any]) -> Ints:
        return np.bincount(whole_reports(reports, (self.size,)), minlength=self.size)


def respond(truth: NDArray[Any], keep: Fraction, size: int) -> Ints:
    """Each answer kept with probability `keep`, else drawn from all alike: the same draws whatever the truth is."""
    source = open_source()
    out = np.empty(len(truth), np.int64)
    for start in range(0, len(truth), CHUNK):
        part = truth[start : start + CHUNK]
        answer = below(size, len(part), source)
        out[start : start + CHUNK] = answer
        np.copyto(out[start : start + CHUNK], part, where=coins(keep, len(part), source))
    return out


@dataclass(frozen=True, slots=True)
class Coin(Oracle):
    """The lecture's coin (Warner 1965): heads, tell the truth; tails, say what a second coin says.

    Yes becomes yes with probability 3/4 and no with 1/4, so epsilon is ln 3, and the share of yes is twice the share told,
    less a half. Both coins are fair, so nothing is rounded.

    >>> poll = Coin()
    >>> found = poll.estimate([1] * 600 + [0] * 400, confidence=0.95)      # p = 2 x 0.6 - 1/2
    >>> round(float(found.estimate[1]), 9)
    0.7
    """

    p: Fraction = field(init=False, repr=False, default=Fraction(3, 4))
    q: Fraction = field(init=False, repr=False, default=Fraction(1, 4))
    categories: int = field(init=False, repr=False, default=2)

    @property
    def epsilon(self) -> Fraction:  # type: ignore[override]
        return Fraction(math.nextafter(math.log(3), math.inf))

    def event(self) -> Event:
        return RandomizedResponse(float(self.epsilon), 2)

    def cost(self) -> float:
        return 2.0

    def _encode(self, truth: Ints) -> NDArray[Any]:
        return respond(truth, Fraction(1, 2), 2)

    def _supports(self, reports: NDArray[Any]) -> Ints:
        return np.bincount(whole_reports(reports, (2,)), minlength=2)
