"""Reconstruction from many counts: find the secret bits that explain the published answers.

Dinur & Nissim 2003: answers to all subsets with error E let anyone find all but 4E bits, and answers to order n log² n random
subsets with error below √n let anyone find all but a vanishing share. Dwork, McSherry & Talwar 2007: the linear programme
survives a share of answers that are wildly wrong.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from discreet.attack.reconstruct.interface import Ask, Bits, replies
from discreet.core import Attack, check
from discreet.errors import InvalidValue

Floats = NDArray[np.float64]
MOST_EXHAUSTIVE = 20  # people; there are 2^20 candidates


def random_subsets(size: int, questions: int, seed: int) -> Bits:
    """Subsets that take each of `size` people by a fair coin."""
    return np.random.default_rng(check.whole("seed", seed, least=0)).random((questions, size), dtype=np.float32) < 0.5


def every_subset(size: int) -> Bits:
    """All 2^size subsets; for small sizes.

    >>> every_subset(2).astype(int).tolist()
    [[0, 0], [1, 0], [0, 1], [1, 1]]
    """
    check.whole("size", size, most=MOST_EXHAUSTIVE)
    return np.asarray((np.arange(1 << size)[:, None] >> np.arange(size)) % 2 == 1)


def reconstruct_bits(subsets: Any, answers: Any, method: str = "least_squares") -> Floats:
    """An estimate of each person's bit, from published counts over subsets; above 1/2 means the bit is set.

    `exhaustive` tries every candidate (at most 20 people) and keeps those that come closest in the worst answer;
    `linear_program` minimises the sum of absolute errors over [0, 1]; `least_squares` the sum of squares.

    >>> secret = np.array([True, False, True, True])
    >>> asked = every_subset(4)
    >>> (reconstruct_bits(asked, asked @ secret.astype(int), "exhaustive") > 0.5).tolist()
    [True, False, True, True]
    """
    check.word("method", method, tuple(METHODS))
    table, known = np.asarray(subsets), np.asarray(answers, dtype=np.float64)
    if table.ndim != 2 or known.shape != (len(table),) or not table.size:
        raise InvalidValue(
            f"There must be one answer per subset, and one subset at least; got {table.shape} and {known.shape}."
        )
    if not np.isin(table, (0, 1)).all():
        raise InvalidValue("A subset must say 0 or 1 for each person.")
    if not np.isfinite(known).all():
        raise InvalidValue(f"The answers must be finite; {int((~np.isfinite(known)).sum())} of {len(known)} are not.")
    return METHODS[method](table.astype(np.bool_), known)


def exhaustive(subsets: Bits, answers: Floats) -> Floats:
    """The mean of all candidates whose worst error is least."""
    size = subsets.shape[1]
    if size > MOST_EXHAUSTIVE:
        raise InvalidValue(
            f"Trying every candidate is for at most {MOST_EXHAUSTIVE} people; there are {size}. Use least_squares."
        )
    table = subsets.astype(np.float32)
    best, kept, count = np.inf, np.zeros(size), 1
    step = max(1, (1 << 24) // len(table))
    for start in range(0, 1 << size, step):
        numbers = np.arange(start, min(start + step, 1 << size))
        candidates = ((numbers[:, None] >> np.arange(size)) & 1).astype(np.float32)
        worst = np.abs(candidates @ table.T - answers.astype(np.float32)).max(axis=1)
        least = float(worst.min())
        if least < best:
            best, kept, count = least, np.zeros(size), 0
        if least == best:
            equal = candidates[worst == least]
            kept, count = kept + equal.sum(axis=0), count + len(equal)
    return kept / count


def linear_program(subsets: Bits, answers: Floats) -> Floats:
    """The least sum of absolute errors with every bit in [0, 1], by HiGHS."""
    from scipy.optimize import linprog
    from scipy.sparse import csr_matrix, hstack, identity

    questions, size = subsets.shape
    table = csr_matrix(subsets.astype(np.float64))
    slack = identity(questions, format="csr")
    # table x + over - under = answers, with over and under at least 0: their sum is the absolute error
    equal = hstack([table, slack, -slack], format="csr")
    cost = np.concatenate([np.zeros(size), np.ones(2 * questions)])
    bounds = [(0.0, 1.0)] * size + [(0.0, None)] * (2 * questions)
    solution = linprog(cost, A_eq=equal, b_eq=answers, bounds=bounds, method="highs")
    if solution.x is None:
        raise InvalidValue(f"The linear programme was not solved ({solution.message}); use least_squares.")
    return np.asarray(solution.x[:size], dtype=np.float64)


def least_squares(subsets: Bits, answers: Floats) -> Floats:
    """The least sum of squares, around 1/2 where the answers leave a choice."""
    return 0.5 + _solve(*_normal(subsets, answers - subsets.sum(axis=1) / 2.0))


def _normal(subsets: Bits, answers: Floats) -> tuple[Floats, Floats]:
    """The normal equations; counts up to 2^24 are exact in single precision, which is twice as fast."""
    table = subsets.astype(np.float32)
    return (table.T @ table).astype(np.float64), table.T.astype(np.float64) @ answers


def _solve(gram: Floats, right: Floats) -> Floats:
    from scipy.linalg import LinAlgError, cho_factor, cho_solve

    try:
        return np.asarray(cho_solve(cho_factor(gram), right))
    except LinAlgError:  # fewer answers than people: the smallest solution
        return np.asarray(np.linalg.lstsq(gram, right, rcond=1e-10)[0])


METHODS: dict[str, Callable[[Bits, Floats], Floats]] = {
    "exhaustive": exhaustive,
    "linear_program": linear_program,
    "least_squares": least_squares,
}


class Reconstruction(Attack[Ask]):
    """Asks about random subsets of `size` people until refused, solves for the bits, and scores each target with its own.

    A score above 0 is the guess "the bit is set".

    >>> from discreet.attack import Counts
    >>> secret = np.array([True, False, True, True, False])
    >>> ask = Counts(noise=None, most=None).run(secret)
    >>> (Reconstruction(5, questions=40).score(ask, range(5)) > 0).tolist() == secret.tolist()
    True
    """

    view = frozenset({"answers"})

    def __init__(self, size: int, *, questions: int, method: str = "least_squares", seed: int = 0) -> None:
        self.subsets = random_subsets(check.whole("size", size), check.whole("questions", questions), seed)
        self.method = check.word("method", method, tuple(METHODS))
        self.name = f"reconstruction ({method.replace('_', ' ')})"

    def score(self, seen: Ask, targets: Sequence[int]) -> Floats:
        got = replies(seen, self.subsets)
        if not len(got):
            return np.zeros(len(targets))
        estimate = reconstruct_bits(self.subsets[: len(got)], got, self.method)
        return np.asarray(estimate[np.asarray(targets)] - 0.5)
