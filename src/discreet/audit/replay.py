"""Replay on a neighbour: the same randomness, one unit less, and a look at everything just before noise covers it.

Noise hides a bug in a sensitivity from an audit of outputs, or asks for millions of runs to see it. Here a mechanism says
what it is about to add noise to, and is run on two neighbouring data sets. On the second it is handed what the first
released, so that it goes the same way; then it must ask the same questions, in the same number and shape, and each answer
must be within its declared sensitivity of the first run's. Two runs show what is wrong, and where (the idea of the
grey-box audits of arXiv 2602.17454, which found 13 violations in 12 libraries).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from discreet.core import check
from discreet.errors import ClaimRefuted
from discreet.figures import down, up

D = TypeVar("D")

NORMS: dict[str, float] = {"l1": 1, "l2": 2, "max": math.inf}
ROUNDING = 1e-3  # of the sensitivity: sums are floating-point numbers


class Tell(Protocol):
    """Says what noise is about to be added to, with the noise; gives back what was released."""

    def __call__(
        self, name: str, value: ArrayLike, *, sensitivity: float, noise: Callable[[Any], Any] | None = None, norm: str = "l2"
    ) -> Any: ...


@dataclass(frozen=True, slots=True)
class Question:
    """One value that noise was to cover, how far it is from the neighbour's, and how far it may be."""

    name: str
    shape: tuple[int, ...]
    sensitivity: float
    distance: float

    @property
    def holds(self) -> bool:
        """Within the declared sensitivity, up to rounding."""
        return self.distance <= self.sensitivity * (1.0 + ROUNDING)


@dataclass(frozen=True, slots=True)
class _Asked:
    name: str
    value: NDArray[np.float64]
    sensitivity: float
    norm: str
    released: Any


def replay(mechanism: Callable[[D, Tell], Any], with_unit: D, without_unit: D) -> tuple[Question, ...]:
    """Run `mechanism(data, tell)` on both; ClaimRefuted where the second asks something else or is too far away.

    The mechanism calls `tell(name, value, sensitivity=…, noise=add)` wherever it would add noise and goes on with what that
    returns: `add(value)` in the first run, the same released thing in the second. All other randomness must be the same
    in both runs: seed it.

    >>> def count_and_sum(rows, tell):
    ...     tell("count", len(rows), sensitivity=1)
    ...     tell("sum", sum(min(row, 10) for row in rows), sensitivity=10)
    >>> [question.distance for question in replay(count_and_sum, [3, 50], [3])]
    [1.0, 10.0]
    >>> replay(lambda rows, tell: tell("mean", sum(rows) / len(rows), sensitivity=1), [3, 50], [3])  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    ...
    discreet.errors.ClaimRefuted: mean (question 0) moves by 23.5 when one unit is removed; its noise is for 1. ...
    """
    first: list[_Asked] = []
    mechanism(with_unit, _Recorder(first))
    second = _Player(first)
    mechanism(without_unit, second)
    if len(second.met) < len(first):
        raise ClaimRefuted(
            f"With the unit {len(first)} values are released, without it {len(second.met)}: that number alone tells of it. "
            f"The first that is missing is {first[len(second.met)].name}."
        )
    return tuple(second.met)


class _Recorder:
    """The first run: notes everything and adds the noise."""

    def __init__(self, asked: list[_Asked]) -> None:
        self._asked = asked

    def __call__(
        self, name: str, value: ArrayLike, *, sensitivity: float, noise: Callable[[Any], Any] | None = None, norm: str = "l2"
    ) -> Any:
        item = _asked(name, value, sensitivity, norm, None)
        released = noise(value) if noise is not None else value
        self._asked.append(_Asked(item.name, item.value, item.sensitivity, item.norm, released))
        return released


class _Player:
    """The second run: compares, and hands out what the first released."""

    def __init__(self, asked: list[_Asked]) -> None:
        self._asked = asked
        self.met: list[Question] = []

    def __call__(
        self, name: str, value: ArrayLike, *, sensitivity: float, noise: Callable[[Any], Any] | None = None, norm: str = "l2"
    ) -> Any:
        number = len(self.met)
        if number == len(self._asked):
            raise ClaimRefuted(
                f"Without the unit {name} is released as well, after the {number} values of the run with it: "
                "what is released depends on the data before any noise."
            )
        wanted, found = self._asked[number], _asked(name, value, sensitivity, norm, None)
        _same_way(number, wanted, found)
        gap = float(np.linalg.norm((wanted.value - found.value).ravel(), NORMS[norm]))
        question = Question(name, found.value.shape, wanted.sensitivity, gap)
        if not question.holds:
            raise ClaimRefuted(
                f"{name} (question {number}) moves by {down(gap)} when one unit is removed; its noise is for "
                f"{up(wanted.sensitivity)}. Bound what one unit adds before the sum, or add noise for what it can add."
            )
        self.met.append(question)
        return wanted.released


def _asked(name: str, value: ArrayLike, sensitivity: float, norm: str, released: Any) -> _Asked:
    check.word("norm", norm, tuple(NORMS))
    number: NDArray[np.float64] = np.asarray(value).astype(np.float64)
    if not np.isfinite(number).all():
        raise ClaimRefuted(f"{name} is not a finite number, so that no noise covers it. One record must not spoil a sum.")
    return _Asked(check.word("name", name), number, check.nonnegative("sensitivity", sensitivity), norm, released)


def _same_way(number: int, wanted: _Asked, found: _Asked) -> None:
    """Same question, same shape, same sensitivity: whatever differs was decided by the unit, without noise."""
    for what, one, other in (
        ("the question", wanted.name, found.name),
        ("its shape", wanted.value.shape, found.value.shape),
        ("its sensitivity", (wanted.sensitivity, wanted.norm), (found.sensitivity, found.norm)),
    ):
        if one != other:
            raise ClaimRefuted(
                f"Question {number} depends on the unit before any noise: {what} is {one} with it and {other} without. "
                "Decide it from public numbers, or pay for it."
            )
