"""After the noise: expressions over released rows, with intervals; HAVING and ORDER BY, which see noisy numbers only.

Every operation is total: what has no finite value is NULL, as of one row, whatever the noisy numbers are.

A value has three parts, one entry each per released row: what it is, and the least and most that it may be if the intervals of
all its statistics hold. Of a truth value these are whether it surely, and whether it possibly, holds. NULL is NaN in numbers
and None in everything else.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from discreet.query import values
from discreet.query.operations import MOST_DIGITS, NUMBERS, Kind, Op, OutputOp
from discreet.query.statistics.statistic import Cells, each
from discreet.query.tree import Output

WHOLE = 2.0**63  # whole numbers have 64 bits


class Released(Protocol):
    """The released rows, before expressions over them are worked out."""

    @property
    def keys(self) -> Sequence[tuple[Any, ...]]:
        """The key of each row, NULL where its grouping set lacks one."""
        ...

    @property
    def grouped(self) -> Sequence[tuple[int, ...]]:
        """The places of the keys in the grouping set of each row."""
        ...

    @property
    def confidence(self) -> float:
        """Of each interval of the answer."""
        ...

    def column(self, statistic: int, confidence: float) -> Cells:
        """A statistic, by its place in the question."""
        ...


@dataclass(frozen=True)
class Chosen:
    """The released rows that HAVING leaves, and what is worked out of them; `shown` of them are in the answer, after LIMIT.

    Noise decides which rows are shown, so that an interval of one of them would miss more often than it says. Of r rows of n
    each may miss r / n times as rarely; then as large a share of those shown misses as is asked, on average (Benjamini &
    Yekutieli 2005). A total holds if the intervals of all its rows do.
    """

    released: Released
    rows: NDArray[np.intp]
    shown: int

    @property
    def keys(self) -> list[tuple[Any, ...]]:
        return [self.released.keys[row] for row in self.rows]

    @property
    def grouped(self) -> list[tuple[int, ...]]:
        return [self.released.grouped[row] for row in self.rows]

    @property
    def confidence(self) -> float:
        known, all_rows = self.released.confidence, len(self.released.keys)
        return each(all_rows / max(1, self.shown), known) if self.shown < all_rows else known

    def column(self, statistic: int, confidence: float) -> Cells:
        value, low, high = self.released.column(statistic, confidence)
        return value[self.rows], low[self.rows], high[self.rows]


def evaluate(output: Output, noisy: Released) -> Cells:
    """An expression over released columns, with an interval that holds if the intervals of all its statistics do."""
    return _evaluate(output, noisy, each(max(1, len(output.statistics())), noisy.confidence))


def holds(output: Output, noisy: Released) -> NDArray[np.bool_]:
    """The released rows that satisfy a HAVING condition, which sees noisy values only."""
    return np.array([value is True for value in evaluate(output, noisy)[0].tolist()], bool)


def order(noisy: Released, rows: NDArray[np.intp], by: Sequence[tuple[Output, bool]]) -> NDArray[np.intp]:
    """The places of rows sorted by ORDER BY; NULL comes last."""
    for output, falling in reversed(by):
        column = evaluate(output, noisy)[0].tolist()
        known = [i for i in rows if not values.missing(column[i])]
        known.sort(key=lambda i: column[i], reverse=falling)
        rows = np.array([*known, *(i for i in rows if values.missing(column[i]))], np.intp)
    return rows


def _evaluate(output: Output, noisy: Released, confidence: float) -> Cells:
    count = len(noisy.keys)
    if output.op == OutputOp.STATISTIC:
        return noisy.column(output.value, confidence)
    if output.op == OutputOp.KEY:
        return _exact(output.kind, [key[output.value] for key in noisy.keys])
    if output.op in (OutputOp.LITERAL, Op.NULL):
        return _exact(output.kind, [output.value] * count)
    if output.op == OutputOp.GROUPING:
        return _exact(Kind.INTEGER, [0 if output.value in places else 1 for places in noisy.grouped])
    if output.op == OutputOp.TOTAL:
        return _total(output, noisy, confidence)
    args = [_evaluate(part, noisy, confidence) for part in output.args]
    kinds = [part.kind for part in output.args]
    if output.op in (Op.CASE, Op.COALESCE):
        return _CHOICES[Op(output.op)](output.kind, args)
    if output.op in _LOGIC:
        return _LOGIC[Op(output.op)](args)
    if output.op in _COMPARISONS and all(kind in NUMBERS for kind in kinds):
        return _COMPARISONS[Op(output.op)](*args)
    if output.op in _NUMERIC and all(kind in NUMBERS for kind in kinds):
        with np.errstate(all="ignore"):
            return _in_order(_known(_NUMERIC[Op(output.op)](args, output.value)))
    made = [values.one(Op(output.op), row, output.value, kinds) for row in zip(*(arg[0].tolist() for arg in args))]
    return _exact(output.kind, made)


def _exact(kind: Kind, column: list[Any]) -> Cells:
    """What no noise moves."""
    if kind in NUMBERS:
        numbers = np.array([math.nan if value is None else value for value in column], float)
        return numbers, numbers, numbers
    if kind == Kind.BOOLEAN:
        true = np.array([value is True for value in column], bool)
        return _objects(column), true, true
    made = _objects(column)
    return made, made, made


def _objects(column: Sequence[Any]) -> NDArray[Any]:
    made = np.empty(len(column), object)
    made[:] = column
    return made


def _known(cells: Cells) -> Cells:
    """NULL in place of a value beyond what a number may be, as of one row."""
    value, low, high = cells
    return np.where(np.isfinite(value), value, math.nan) + 0.0, low, high  # there is one zero


def _in_order(cells: Cells) -> Cells:
    """The ends around the value; an end that is nowhere is at infinity."""
    value, low, high = cells
    ends = np.where(np.isnan(low), -math.inf, low), np.where(np.isnan(high), math.inf, high)
    return value, np.fmin(ends[0], value), np.fmax(ends[1], value)


def _total(output: Output, noisy: Released, confidence: float) -> Cells:
    """Sums over the released rows that agree on some keys. All their intervals hold at once with this confidence."""
    parts = _evaluate(output.args[0], noisy, each(max(1, len(noisy.keys)), confidence))
    groups: dict[tuple[Any, ...], list[int]] = {}
    places = [groups.setdefault(tuple(key[k] for k in output.value), []) for key in noisy.keys]
    for i, members in enumerate(places):
        members.append(i)
    with np.errstate(all="ignore"):
        sums = [[float(np.nansum(np.asarray(part, float)[members])) for members in places] for part in parts]
    value, low, high = (np.array(column, float) for column in sums)
    return _in_order(_known((value, low, high)))


# ---- numbers ------------------------------------------------------------------------------------------------------------


def _corners(f: Callable[[Any, Any], Any]) -> Callable[[list[Cells], Any], Cells]:
    """Of two numbers, where the ends are at those of both."""

    def rule(args: list[Cells], option: Any) -> Cells:
        (value, *one), (other, *two) = args
        ends = [f(a, b) for a in one for b in two]
        ends = [np.where(np.isnan(end), math.inf, end) for end in ends]
        return f(value, other), np.minimum.reduce(ends), np.maximum.reduce(ends)

    return rule


def _quotient(args: list[Cells], option: Any) -> Cells:
    """NULL where the divisor is 0, as of one row; unbounded where it may be."""
    (above, *_), (below, least, most) = args
    _, low, high = _corners(np.divide)(args, option)
    crossing = (least <= 0) & (most >= 0)
    value = np.where(below == 0, math.nan, above / np.where(below == 0, 1.0, below))
    return value, np.where(crossing, -math.inf, low), np.where(crossing, math.inf, high)


def _remainder(args: list[Cells], option: Any) -> Cells:
    (one, *ends), (two, *others) = args
    value = np.where(two == 0, math.nan, np.fmod(one, np.where(two == 0, 1.0, two)))
    most = np.maximum(*map(np.abs, others))
    exact = (ends[0] == ends[1]) & (others[0] == others[1])
    return value, np.where(exact, value, -most), np.where(exact, value, most)


def _power(args: list[Cells], option: Any) -> Cells:
    (_, low, high), (exponent, *_) = args
    value, least, most = _corners(np.power)(args, option)
    least = np.where((low < 0) & (high > 0), np.where(exponent % 2 == 0, 0.0, least), least)
    sure = (args[1][1] == args[1][2]) & ((low > 0) | ((exponent > 0) & ((exponent % 1 == 0) | (low >= 0))))
    value = np.where(np.isfinite(value), value, math.nan)
    return value, np.where(sure, least, -math.inf), np.where(sure, most, math.inf)


def _rising(f: Callable[[Any], Any], least: float = -math.inf) -> Callable[[list[Cells], Any], Cells]:
    """Of a function that rises from `least` on, below which it has no value."""

    def rule(args: list[Cells], option: Any) -> Cells:
        value, low, high = args[0]
        made = f(value)
        return np.where(np.isfinite(made), made, math.nan), f(np.maximum(low, least)), f(np.maximum(high, least))

    return rule


def _rounded(args: list[Cells], digits: Any) -> Cells:
    """Halves are rounded away from 0, as they are of one row. A double has no more
    digits than 10.0 has powers."""
    unit = 10.0 ** max(-MOST_DIGITS, min(int(digits or 0), MOST_DIGITS))

    def rounded(part: Any) -> Any:
        whole = np.trunc(part * unit)
        near = np.where(np.abs(part * unit - whole) >= 0.5, whole + np.sign(part), whole) / unit
        return np.where(np.isfinite(near), near, part)

    value, low, high = (rounded(part) for part in args[0])
    return value, low, high


def _whole(args: list[Cells], option: Any) -> Cells:
    """NULL beyond 64 bits, as of one row."""
    value, low, high = args[0]
    return np.where(np.abs(value) < WHOLE, np.rint(value), math.nan), np.rint(low), np.rint(high)


def _negative(args: list[Cells], option: Any) -> Cells:
    value, low, high = args[0]
    return -value, -high, -low


def _size(args: list[Cells], option: Any) -> Cells:
    value, low, high = args[0]
    ends = np.abs(low), np.abs(high)
    return np.abs(value), np.where((low < 0) & (high > 0), 0.0, np.minimum(*ends)), np.maximum(*ends)


def _extreme(f: Callable[[Any, Any], Any]) -> Callable[[list[Cells], Any], Cells]:
    """GREATEST and LEAST pass over NULL."""

    def rule(args: list[Cells], option: Any) -> Cells:
        value, low, high = args[0]
        for arg in args[1:]:
            value, low, high = f(value, arg[0]), f(low, arg[1]), f(high, arg[2])
        return value, low, high

    return rule


def _bucket(args: list[Cells], ends: Any) -> Cells:
    lower = np.asarray(ends, float)

    def place(part: Any) -> Any:
        cell = lower[np.clip(np.searchsorted(lower, part, "right") - 1, 0, len(lower) - 1)]
        return np.where(np.isnan(part), math.nan, cell)

    value, low, high = (place(part) for part in args[0])
    return value, low, high


_NUMERIC: dict[Op, Callable[[list[Cells], Any], Cells]] = {
    Op.ADD: _corners(np.add), Op.SUB: _corners(np.subtract), Op.MUL: _corners(np.multiply), Op.DIV: _quotient,
    Op.MOD: _remainder, Op.POWER: _power, Op.NEG: _negative, Op.ABS: _size, Op.SIGN: _rising(np.sign),
    Op.SQRT: _rising(np.sqrt, 0.0), Op.EXP: _rising(np.exp), Op.LN: _rising(np.log, 0.0), Op.LOG2: _rising(np.log2, 0.0),
    Op.LOG10: _rising(np.log10, 0.0), Op.FLOOR: _rising(np.floor), Op.CEIL: _rising(np.ceil), Op.ROUND: _rounded,
    Op.GREATEST: _extreme(np.fmax), Op.LEAST: _extreme(np.fmin), Op.BUCKET: _bucket, Op.TO_INTEGER: _whole,
    Op.TO_NUMBER: _rising(np.positive),
}  # fmt: skip


# ---- truth values -------------------------------------------------------------------------------------------------------


def _truth(one: Any, two: Any, value: Any, low: Any, high: Any) -> Cells:
    """A comparison, NULL where a side is; `low` and `high`: whether it holds for all and for some of what the sides may be."""
    null = np.isnan(one) | np.isnan(two)
    return _objects([None if n else bool(v) for n, v in zip(null, value)]), np.asarray(low, bool), np.asarray(high, bool)


def _less(one: Cells, two: Cells) -> Cells:
    return _truth(one[0], two[0], one[0] < two[0], one[2] < two[1], one[1] < two[2])


def _at_most(one: Cells, two: Cells) -> Cells:
    return _truth(one[0], two[0], one[0] <= two[0], one[2] <= two[1], one[1] <= two[2])


def _equal(one: Cells, two: Cells) -> Cells:
    sure = (one[1] == one[2]) & (two[1] == two[2]) & (one[1] == two[1])
    return _truth(one[0], two[0], one[0] == two[0], sure, (one[1] <= two[2]) & (two[1] <= one[2]))


def _not(args: list[Cells]) -> Cells:
    value, sure, possible = args[0]
    null = np.array([part is None for part in value], bool) & ~possible
    return _objects([None if part is None else not part for part in value]), ~possible & ~null, ~sure & ~null


def _all(args: list[Cells]) -> Cells:
    made = [False if False in row else None if None in row else True for row in zip(*(arg[0].tolist() for arg in args))]
    return _objects(made), np.all([arg[1] for arg in args], axis=0), np.all([arg[2] for arg in args], axis=0)


def _any(args: list[Cells]) -> Cells:
    made = [True if True in row else None if None in row else False for row in zip(*(arg[0].tolist() for arg in args))]
    return _objects(made), np.any([arg[1] for arg in args], axis=0), np.any([arg[2] for arg in args], axis=0)


def _is_null(args: list[Cells]) -> Cells:
    return _exact(Kind.BOOLEAN, [values.missing(value) for value in args[0][0].tolist()])


def _as_number(args: list[Cells]) -> Cells:
    value, sure, possible = args[0]
    return np.array([math.nan if part is None else float(part) for part in value], float), sure * 1.0, possible * 1.0


_LOGIC: dict[Op, Callable[[list[Cells]], Cells]] = {
    Op.AND: _all, Op.OR: _any, Op.NOT: _not, Op.IS_NULL: _is_null, Op.TRUTH: _as_number,
}  # fmt: skip
_COMPARISONS: dict[Op, Callable[[Cells, Cells], Cells]] = {
    Op.LT: _less, Op.LE: _at_most, Op.EQ: _equal, Op.GT: lambda a, b: _less(b, a), Op.GE: lambda a, b: _at_most(b, a),
    Op.NE: lambda a, b: _not([_equal(a, b)]),
}  # fmt: skip


# ---- choices ------------------------------------------------------------------------------------------------------------


def _case(kind: Kind, args: list[Cells]) -> Cells:
    """The first branch whose condition holds; the interval is around all branches that may be meant."""
    pairs, rest = list(zip(args[:-1:2], args[1:-1:2])), args[-1]
    count = len(rest[0])
    chosen = [next((branch for condition, branch in pairs if condition[0][i] is True), rest) for i in range(count)]
    value = [branch[0][i] for i, branch in enumerate(chosen)]
    if kind not in (*NUMBERS, Kind.BOOLEAN):
        return _exact(kind, value)
    ends: list[list[Any]] = [[], []]
    for i in range(count):
        meant = _meant(pairs, rest, i)
        if kind == Kind.BOOLEAN:
            ends[0].append(all(branch[1][i] for branch in meant))
            ends[1].append(any(branch[2][i] for branch in meant))
        else:
            ends[0].append(_least(np.array([branch[1][i] for branch in meant], float)))
            ends[1].append(_most(np.array([branch[2][i] for branch in meant], float)))
    made = _objects(value) if kind == Kind.BOOLEAN else np.array(value, float)
    return made, np.array(ends[0]), np.array(ends[1])


def _meant(pairs: list[tuple[Cells, Cells]], rest: Cells, i: int) -> list[Cells]:
    """The branches of row i that may be the right one."""
    meant = []
    for condition, branch in pairs:
        if condition[2][i] or condition[0][i] is True:
            meant.append(branch)
        if condition[1][i]:
            return meant
    return [*meant, rest]


def _least(ends: NDArray[np.float64]) -> float:
    return float(np.fmin.reduce(ends))


def _most(ends: NDArray[np.float64]) -> float:
    return float(np.fmax.reduce(ends))


def _coalesce(kind: Kind, args: list[Cells]) -> Cells:
    rows = range(len(args[0][0]))
    chosen = [next((arg for arg in args if not values.missing(arg[0][i])), args[-1]) for i in rows]
    if kind in NUMBERS:
        value, low, high = (np.array([chosen[i][k][i] for i in rows], float) for k in range(3))
        return value, low, high
    return _exact(kind, [chosen[i][0][i] for i in rows])


_CHOICES: dict[Op, Callable[[Kind, list[Cells]], Cells]] = {Op.CASE: _case, Op.COALESCE: _coalesce}
