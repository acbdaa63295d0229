"""How a query's epsilon is divided among what it measures."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from fractions import Fraction
from functools import lru_cache

from discreet.errors import InvalidQuery

GRAIN = Fraction(1, 10**9)  # of the parts of an epsilon
ROUNDS = 200


def split(epsilon: float, needs: Sequence[Mapping[int, float]], count: int, spare: int = 0) -> list[float]:
    """The part of epsilon for each of `count` measurements that makes the worst of the relative errors least.

    `needs` has, for each column of the answer, the measurements it is made of and how much of the error each brings: its
    squared relative error is the sum of need^2 / epsilon_i^2. By multiplicative weights on the columns: for fixed weights the
    best parts are proportional to the cube root of the weighted needs. Whatever it finds is a valid division. `spare` grains
    are left over, for measurements that are themselves made of several parts, each rounded up when it is charged.

    >>> split(1.0, [{0: 1.0}, {1: 1.0}], 2)
    [0.5, 0.5]
    """
    return _exact(epsilon, _shares(tuple(tuple(column.items()) for column in needs), count), spare)


def worst(needs: Sequence[Mapping[int, float]], parts: Sequence[float]) -> float:
    """The largest of the squared relative errors of the columns with these parts.

    >>> worst([{0: 1.0}, {1: 1.0}], [0.5, 0.5])
    4.0
    """
    return max((sum(need * need / parts[i] ** 2 for i, need in column.items()) for column in needs), default=0.0)


@lru_cache(1024)
def _shares(needs: tuple[tuple[tuple[int, float], ...], ...], count: int) -> list[float]:
    squares = [{i: need * need for i, need in column} for column in needs] or [dict.fromkeys(range(count), 1.0)]
    weights = [1.0 / len(squares)] * len(squares)
    best: tuple[float, list[float]] = (math.inf, [1.0 / count] * count)
    for _ in range(ROUNDS if len(squares) > 1 else 1):
        raw = [sum(w * column.get(i, 0.0) for w, column in zip(weights, squares)) ** (1 / 3) for i in range(count)]
        floor = max(raw) * 1e-3
        whole = sum(max(part, floor) for part in raw)
        shares = [max(part, floor) / whole for part in raw]
        errors = [sum(square / shares[i] ** 2 for i, square in column.items()) for column in squares]
        if max(errors) < best[0] * (1 - 1e-12):
            best = (max(errors), shares)
        mean = sum(w * error for w, error in zip(weights, errors))
        weights = [w * (error / mean) ** 0.3 for w, error in zip(weights, errors)]
        total = sum(weights)
        weights = [w / total for w in weights]
    return best[1]


def _exact(epsilon: float, shares: list[float], spare: int) -> list[float]:
    """Whole multiples of GRAIN whose sum is at most epsilon, exactly; what rounding leaves over goes to the first.

    A budget counts epsilons in this grain, so that an answer costs what was asked, however many parts it has.
    """
    rest = math.floor(Fraction(repr(epsilon)) / GRAIN) - spare - len(shares)
    if rest < 0:
        raise InvalidQuery(f"epsilon {epsilon:g} is too little for {len(shares)} measurements. Ask fewer statistics.")
    wholes = [1 + math.floor(share * rest) for share in shares]
    wholes[0] += rest + len(shares) - sum(wholes)
    return [below(whole * GRAIN) for whole in wholes]


def below(part: Fraction) -> float:
    """The largest float that is not more."""
    near = float(part)
    return near if Fraction(near) <= part else math.nextafter(near, 0.0)
