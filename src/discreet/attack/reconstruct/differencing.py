"""Differencing: two harmless answers whose difference is one person, and the same question again and again."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from discreet.attack.reconstruct.interface import Ask, Bits, replies
from discreet.core import Attack, check
from discreet.errors import InvalidValue

Pairs = Callable[[Any], tuple[Any, Any]]


def leave_one_out_queries(size: int) -> Pairs:
    """The two questions about person `i` of `size`: everyone, and everyone but that person.

    >>> [question.tolist() for question in leave_one_out_queries(3)(1)]
    [[True, True, True], [True, False, True]]
    """
    check.whole("size", size)

    def pair(target: int) -> tuple[Bits, Bits]:
        rest = np.ones(size, dtype=np.bool_)
        rest[target] = False
        return np.ones(size, dtype=np.bool_), rest

    return pair


def differencing_attack(before: float, after: float, count: int) -> float:
    """The value of the one who left, from the averages of `count` people before and one fewer after.

    >>> differencing_attack(72.75, 82, count=4)
    45.0
    """
    check.whole("count", count, least=2)
    return count * float(before) - (count - 1) * float(after)


class Differencing(Attack[Ask]):
    """For each target, the answer to a question about all less the answer to the same question without the target.

    `pair(target)` gives the two questions in whatever form the interface takes: subsets, predicates, SQL. With `times`
    above 1 both are asked that often and averaged, which removes noise that is drawn afresh and does nothing against
    noise that is remembered. A refused question scores nothing.

    >>> from discreet.attack import Counts
    >>> grades = Counts(noise=None, most=None).run(np.array([True, False, True]))
    >>> Differencing(leave_one_out_queries(3)).score(grades, [0, 1, 2]).tolist()
    [1.0, 0.0, 1.0]
    """

    def __init__(self, pair: Pairs, *, times: int = 1, view: str | Iterable[str] = "answers", name: str | None = None) -> None:
        if not callable(pair):
            raise InvalidValue("pair must be a function from a target to two questions, such as leave_one_out_queries(20).")
        self.pair = pair
        self.times = check.whole("times", times)
        self.view = frozenset((view,) if isinstance(view, str) else view)
        self.name = name or ("differencing" if times == 1 else f"differencing, {times} times")

    def score(self, seen: Ask, targets: Sequence[Any]) -> NDArray[np.float64]:
        return np.array([self._one(seen, target) for target in targets])

    def _one(self, ask: Ask, target: Any) -> float:
        questions = list(self.pair(target)) * self.times
        if all(isinstance(question, np.ndarray) for question in questions):
            got = replies(ask, np.stack(questions))
        else:
            got = replies(ask, questions)
        both = len(got) // 2
        return float((got[: 2 * both : 2] - got[1 : 2 * both : 2]).mean()) if both else 0.0


def isolating_queries(subsets: Bits, people: int = 1) -> list[tuple[int, int]]:
    """Pairs of published questions whose subsets differ in at most `people` people (and in at least one), by their place.

    The difference of their answers is about these people alone.

    >>> isolating_queries(np.array([[1, 1, 1], [1, 0, 1], [0, 0, 0]], dtype=bool))
    [(0, 1)]
    """
    check.whole("people", people)
    table = np.asarray(subsets, dtype=np.float32)
    sizes = table.sum(axis=1)
    pairs: list[tuple[int, int]] = []
    for start in range(0, len(table), 1024):
        apart = sizes[start : start + 1024, None] + sizes[None, :] - 2 * table[start : start + 1024] @ table.T
        rows, places = np.nonzero((apart > 0.5) & (apart < people + 0.5))
        pairs += [(int(row) + start, int(place)) for row, place in zip(rows, places) if row + start < place]
    return pairs


def determined(subsets: Bits) -> NDArray[np.bool_]:
    """Whose value follows from exact answers by linear algebra alone: true where it does.

    Person i is determined just when some combination of the questions is "person i", so when the projection onto the span
    of the questions leaves that person's unit vector where it is.

    >>> determined(np.array([[1, 1, 1], [0, 1, 1]], dtype=bool)).tolist()
    [True, False, False]
    """
    table = np.asarray(subsets, dtype=np.float64)
    _, sizes, basis = np.linalg.svd(table, full_matrices=False)
    basis = basis[sizes > max(table.shape) * np.finfo(np.float64).eps * max(sizes.max(initial=0.0), 1.0)]
    return np.asarray((basis**2).sum(axis=0) > 1.0 - 1e-8)
