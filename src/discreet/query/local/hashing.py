"""Local hashing: everybody draws a hash function, and tells by randomised response what their value hashes to.

The function is drawn before the value is looked at and is part of the report; only the answer is noised. A report supports
every category that its function sends to its answer.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from discreet.errors import InvalidValue
from discreet.noise.additive import fix
from discreet.noise.samplers import Number
from discreet.noise.source import open_source
from discreet.query.local.coins import below, budget, kept
from discreet.query.local.oracle import Ints, Oracle, public, whole_reports
from discreet.query.local.response import respond

PRIME = (1 << 31) - 1
WIDEST = 1 << 8  # answers of a hash function
CELLS = 1 << 18  # pairs of a report and a category at a time
SEED = 62  # bits of a hash function


class _Hashing(Oracle):
    """A report is two whole numbers: which function, and the answer."""

    __slots__ = ()
    answers: int
    keep: Fraction

    @property
    def p(self) -> Fraction:  # type: ignore[override]
        return self.keep + (1 - self.keep) / self.answers

    @property
    def q(self) -> Fraction:  # type: ignore[override]
        return Fraction(1, self.answers)


@dataclass(frozen=True, slots=True)
class LocalHashing(_Hashing):
    """Optimised local hashing (Wang, Blocki, Li & Jha 2017): about e^epsilon + 1 answers, the variance of OptimalUnary.

    The functions are (a x + b mod 2^31 - 1) mod g, pairwise independent (Carter & Wegman 1979) up to 2^-46. The collector
    tries every category on every report: HadamardResponse is as exact and far quicker to count.

    >>> LocalHashing(epsilon=1, categories=1000).answers
    4
    """

    epsilon: Fraction
    categories: int | tuple[Any, ...]
    answers: int
    keep: Fraction = field(repr=False)

    def __init__(self, epsilon: Number, categories: Any) -> None:
        fix(self, epsilon=budget(epsilon), categories=public(categories))
        near = math.floor(math.exp(min(float(self.epsilon), 20.0))) + 1
        _settle(self, (min(max(g, 2), WIDEST) for g in (near, near + 1)))

    def cost(self) -> float:
        return SEED + math.log2(self.answers) + self.size

    def _encode(self, truth: Ints) -> NDArray[Any]:
        source = open_source()
        a, b = (below(PRIME, len(truth), source) for _ in range(2))
        hashed = _mod_prime(a * truth.astype(np.uint64) + b) % np.uint64(self.answers)
        answer = respond(hashed.astype(np.int64), self.keep, self.answers)
        return np.stack([(a << np.uint64(31) | b).astype(np.int64), answer], axis=1)

    def _supports(self, reports: NDArray[Any]) -> Ints:
        table = whole_reports(reports, (1 << SEED, self.answers))
        every = np.arange(self.size, dtype=np.uint64)
        total = np.zeros(self.size, np.int64)
        rows = max(1, CELLS // self.size)
        for start in range(0, len(table), rows):
            seed, answer = table[start : start + rows].astype(np.uint64).T
            hashed = _mod_prime((seed >> np.uint64(31))[:, None] * every + (seed & np.uint64(PRIME))[:, None])
            total += (hashed % np.uint64(self.answers) == answer[:, None]).sum(axis=0)
        return total


def _mod_prime(x: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """x mod 2^31 - 1 for x below 2^62 + 2^31."""
    for _ in range(2):
        x = (x & np.uint64(PRIME)) + (x >> np.uint64(31))
    return np.where(x >= np.uint64(PRIME), x - np.uint64(PRIME), x)


@dataclass(frozen=True, slots=True)
class HadamardResponse(_Hashing):
    """Local hashing by t parities of the value's bits, which one fast Walsh-Hadamard transform counts for all categories.

    With t = 1 this is the Hadamard response of Acharya, Sun & Zhang 2019 for high privacy, whose variance is
    (e^epsilon + 1)^2 / (n (e^epsilon - 1)^2). More parities make 2^t answers, so that larger epsilons keep the variance of
    local hashing. Two categories share an answer with probability exactly 2^-t.

    >>> HadamardResponse(epsilon=1, categories=1000).answers
    4
    """

    epsilon: Fraction
    categories: int | tuple[Any, ...]
    answers: int
    keep: Fraction = field(repr=False)

    def __init__(self, epsilon: Number, categories: Any) -> None:
        fix(self, epsilon=budget(epsilon), categories=public(categories))
        most = min(SEED // self.width, WIDEST.bit_length() - 1)
        _settle(self, (1 << t for t in range(1, most + 1)))

    @property
    def width(self) -> int:
        """Bits of a category's number."""
        return (self.size - 1).bit_length()

    @property
    def parities(self) -> int:
        return self.answers.bit_length() - 1

    def cost(self) -> float:
        return self.parities * (self.width + 1) + self.answers

    def _encode(self, truth: Ints) -> NDArray[Any]:
        source, seed, hashed = open_source(), np.zeros(len(truth), np.int64), np.zeros(len(truth), np.int64)
        for t in range(self.parities):
            row = below(1 << self.width, len(truth), source).astype(np.int64)
            seed |= row << (t * self.width)
            hashed |= _parity(row & truth) << t
        return np.stack([seed, respond(hashed, self.keep, self.answers)], axis=1)

    def _supports(self, reports: NDArray[Any]) -> Ints:
        """Whether all parities agree is the mean over sets of parities of (-1)^(their disagreements): a sum of characters."""
        width, t = self.width, self.parities
        table = whole_reports(reports, (1 << (width * t), self.answers))
        rows = [(table[:, 0] >> (i * width)) & ((1 << width) - 1) for i in range(t)]
        spectrum = np.zeros(1 << width, np.int64)
        for chosen in range(1 << t):
            where = _xor(rows[i] for i in range(t) if chosen >> i & 1)
            sign = 1 - 2 * _parity(table[:, 1] & chosen)
            if where is None:
                spectrum[0] += len(table)
            else:
                spectrum += np.bincount(where, weights=sign, minlength=1 << width).astype(np.int64)
        return _walsh(spectrum)[: self.size] >> t


def _settle(oracle: Any, candidates: Iterable[int]) -> None:
    """The number of answers of least variance, and how often the truth is kept."""
    best: Callable[[int], Fraction] = lambda g: _spread(kept(oracle.epsilon, 1, g), g)  # noqa: E731
    answers = min(candidates, key=best)
    fix(oracle, answers=answers, keep=kept(oracle.epsilon, 1, answers))
    if oracle.keep <= 0:
        raise InvalidValue(f"epsilon {float(oracle.epsilon):g} is too small for any report to say something.")


def _spread(keep: Fraction, answers: int) -> Fraction:
    """n times the variance for a category that nobody has: q (1 - q) / (p - q)^2."""
    q = Fraction(1, answers)
    return q * (1 - q) / (keep * (1 - q)) ** 2


def _xor(rows: Iterable[Ints]) -> Ints | None:
    total: Ints | None = None
    for row in rows:
        total = row if total is None else total ^ row
    return total


def _parity(x: Ints) -> Ints:
    for shift in (32, 16, 8, 4, 2, 1):
        x = x ^ (x >> shift)
    return x & 1


def _walsh(x: Ints) -> Ints:
    """The Walsh-Hadamard transform of an array whose length is a power of two."""
    half = 1
    while half < len(x):
        pairs = x.reshape(-1, 2, half)
        x = np.stack([pairs[:, 0] + pairs[:, 1], pairs[:, 0] - pairs[:, 1]], axis=1).reshape(-1)
        half *= 2
    return x
