"""The finite domain of a column: encoding values as cells inside the engine, and decoding cells outside.

A row falls into exactly one cell of each column, by its own value alone: that is all the sensitivity proofs need of it.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from datetime import date, datetime, timedelta
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from discreet.core import check
from discreet.errors import InvalidValue
from discreet.query.operations import Kind, Op
from discreet.query.tree import Scalar
from discreet.synth.schema import LISTED, OTHER, Column

if TYPE_CHECKING:
    import pyarrow as pa

Codes = NDArray[Any]
FITS = {  # the engine's kinds of column that each type may be read from
    "categorical": ("text", "integer", "number", "boolean", "date", "timestamp"),
    "ordinal": ("text", "integer", "number", "boolean", "date", "timestamp"),
    "boolean": ("boolean",),
    "integer": ("integer", "number"),
    "real": ("integer", "number"),
    "date": ("date",),
    "timestamp": ("timestamp",),
}
_VALUE = {str: "text", bool: "boolean", int: "integer", float: "number", date: "date", datetime: "timestamp"}


def declared_kind(column: Column) -> str:
    """The kind as which a column of a text file is read: its type, or that of its listed values."""
    if column.type not in LISTED:
        return "number" if column.type == "real" else column.type
    kinds = {_VALUE[type(value)] for value in column.values}
    return kinds.pop() if len(kinds) == 1 else "number" if kinds == {"integer", "number"} else "text"


@dataclass(frozen=True, slots=True)
class Cells:
    """The cells of one column: listed values or bins first, then mass points, then the missing value.

    >>> cells = Cells.of("age", Column("integer", bounds=(0, 99), bins=4), "integer")
    >>> cells.labels()
    ['0 to 24', '25 to 49', '50 to 74', '75 to 99', None]
    """

    name: str
    column: Column
    kind: str  # what the engine's column holds, and so does the synthetic one
    edges: tuple[Any, ...]  # the least value of each bin, then one past the last (the high bound, where values are real)
    values: tuple[Any, ...]  # listed values, or mass points
    arrow: Any = None  # the Arrow type of the table's column, where all values of the domain fit it

    @classmethod
    def of(cls, name: str, column: Column, kind: str) -> Cells:
        if kind not in FITS[column.type]:
            raise InvalidValue(f"{name} holds {kind}, and the schema says {column.type}. Change the schema or the table.")
        if column.type == "boolean":
            return cls(name, column, kind, (), (False, True))
        if column.type in LISTED:
            if column.find and column.other == OTHER and kind != "text":
                raise InvalidValue(
                    f"{name} holds {kind}. Say which value stands for all categories that are not found: other = …"
                )
            rest = () if column.other is None or column.other in column.values else (column.other,)
            return cls(name, column, kind, (), tuple(_as_kind(name, value, kind) for value in (*column.values, *rest)))
        edges = _edges(column)
        if column.type == "real":
            return cls(name, column, kind, edges, column.mass)
        whole = [_number(edge) for edge in edges]
        inside = {int(np.searchsorted(whole, _number(point), "right")) - 1: 0 for point in column.mass}
        for point in column.mass:
            inside[int(np.searchsorted(whole, _number(point), "right")) - 1] += 1
        full = [i for i, n in inside.items() if whole[i + 1] - whole[i] <= n]
        if any(whole[i + 1] - whole[i] > 1 for i in full):
            raise InvalidValue(f"{name}: the mass points fill a bin, so nothing is left for it. Use more bins or fewer points.")
        single = {edges[i] for i in full}  # a bin of one value is a cell of its own already
        return cls(name, column, kind, edges, tuple(point for point in column.mass if point not in single))

    def typed(self, arrow: Any) -> Cells:
        """The same, to be sampled in this Arrow type, if the ends of the domain fit it."""
        ends = self._ends() if self.bins else ()
        return replace(self, arrow=arrow) if _holds(arrow, [*ends, *self.values]) else self

    @property
    def arrow_type(self) -> Any:
        return self.arrow or ARROW[self.kind]()

    @property
    def bins(self) -> int:
        return max(len(self.edges) - 1, 0)

    @property
    def known(self) -> int:
        """How many cells stand for a value."""
        return self.bins + len(self.values)

    @property
    def size(self) -> int:
        return self.known + (not self.column.required)

    def labels(self) -> list[Any]:
        """What each cell stands for: a value, a range as text, or None for a missing value."""
        if not self.bins:
            return [*self.values, *([None] if self.size > self.known else [])]
        ranges = [self._range(i) for i in range(self.bins)]
        return [*ranges, *map(str, self.values), *([None] if self.size > self.known else [])]

    def _range(self, i: int) -> str:
        low, after = self.edges[i], self.edges[i + 1]
        if self.column.type == "real":
            return f"{low:g} to {after:g}"
        last = self.previous(after)
        return str(low) if low == last else f"{low} to {last}"

    def previous(self, value: Any) -> Any:
        """The next smaller value of a discrete column."""
        return value - _step(self.column)

    def ends(self, place: int) -> tuple[Any, Any]:
        """The least and the largest value of a cell with values; of a bin of a real column, its ends."""
        if place >= self.bins:
            return self.values[place - self.bins], self.values[place - self.bins]
        low, after = self.edges[place], self.edges[place + 1]
        if self.column.type == "real":
            return low, after
        step, last = _step(self.column), self.previous(after)
        while low in self.values:
            low += step
        while last in self.values:
            last -= step
        return low, last

    def place(self, value: Any) -> int:
        """The cell of a public value, for conditions; InvalidValue where it has none."""
        if value is None:
            if self.size == self.known:
                raise InvalidValue(f"{self.name} is never missing.")
            return self.known
        if not self.bins:
            if value not in self.values:
                raise InvalidValue(f"{self.name} has no category {check.shown(value)}; it has "
                                   f"{', '.join(map(check.shown, self.values[:12]))}.")  # fmt: skip
            return self.values.index(value)
        point = self.column.point(self.name, value)
        low, high = self._ends()
        if not low <= point <= high:
            raise InvalidValue(f"{self.name} lies between {low} and {high}; got {check.shown(value)}.")
        if point in self.values:
            return self.bins + self.values.index(point)
        bin_number = int(np.searchsorted([_number(edge) for edge in self.edges], _number(point), "right")) - 1
        return min(bin_number, self.bins - 1)

    # ---- in the engine ---------------------------------------------------------------------------------------------

    def code(self, expression: Scalar) -> Scalar:
        """The cell of a row as an expression over its column: a whole number, never NULL."""
        missing = _literal(self.known if self.size > self.known else self._middle(), "integer")
        if not self.bins:
            return self._listed(expression, missing)
        low, high = self._ends()
        tests = [Scalar(Op.IS_NULL, Kind.BOOLEAN, (expression,)), missing]
        for i, point in enumerate(self.values):
            op = {low: Op.LE, high: Op.GE}.get(point, Op.EQ)  # what lies outside is moved to the nearer end
            tests += [Scalar(op, Kind.BOOLEAN, (expression, _literal(point, self.kind))), _literal(self.bins + i, "integer")]
        return Scalar(Op.CASE, Kind.INTEGER, (*tests, self._bin(expression)))

    def _middle(self) -> int:
        return self.bins // 2 if self.bins else self.known - 1

    def _listed(self, expression: Scalar, missing: Scalar) -> Scalar:
        if self.column.other is not None:
            rest = self.values.index(_as_kind(self.name, self.column.other, self.kind))
            empty = [Scalar(Op.IS_NULL, Kind.BOOLEAN, (expression,)), missing]
            return Scalar(Op.CASE, Kind.INTEGER, (*empty, *self._each(expression), _literal(rest, "integer")))
        first, last = self.values[0], self.values[-1]
        if self.kind in ("integer", "number") and self.values == tuple(range(int(first), int(last) + 1)):
            within = [
                Scalar(op, Kind.BOOLEAN, (expression, _literal(end, self.kind))) for op, end in ((Op.GE, first), (Op.LE, last))
            ]
            place = expression  # a code already, as in many tables
            if first or self.kind == "number":
                place = _whole(Scalar(Op.SUB, Kind.NUMBER, (expression, _literal(first, self.kind))))
            return Scalar(Op.CASE, Kind.INTEGER, (Scalar(Op.AND, Kind.BOOLEAN, tuple(within)), place, missing))
        return Scalar(Op.CASE, Kind.INTEGER, (*self._each(expression), missing))

    def _each(self, expression: Scalar) -> list[Scalar]:
        """A test for each listed value, and its place."""
        tests = []
        for i, value in enumerate(self.values):
            tests += [Scalar(Op.EQ, Kind.BOOLEAN, (expression, _literal(value, self.kind))), _literal(i, "integer")]
        return tests

    def _ends(self) -> tuple[Any, Any]:
        assert self.column.bounds is not None
        return self.column.bounds

    def _bin(self, expression: Scalar) -> Scalar:
        column = self.column
        if column.type == "timestamp" or not isinstance(column.bins, int):
            tests: list[Scalar] = []
            for i, edge in enumerate(self.edges[1:-1]):
                tests += [Scalar(Op.LT, Kind.BOOLEAN, (expression, _literal(edge, self.kind))), _literal(i, "integer")]
            last = _literal(self.bins - 1, "integer")
            return Scalar(Op.CASE, Kind.INTEGER, (*tests, last)) if tests else last
        low, high = self._ends()
        if column.type == "date":
            start, width = Scalar(Op.DAYS, Kind.NUMBER, (_literal(low, "date"), expression)), (high - low).days + 1.0
        else:
            start = Scalar(Op.SUB, Kind.NUMBER, (expression, _literal(float(low), "number")))
            width = float(high - low + (1 if column.type == "integer" else 0))
        scaled = Scalar(Op.MUL, Kind.NUMBER, (start, _literal(float(self.bins), "number")))
        part = Scalar(Op.FLOOR, Kind.NUMBER, (Scalar(Op.DIV, Kind.NUMBER, (scaled, _literal(width, "number"))),))
        least = Scalar(Op.GREATEST, Kind.NUMBER, (part, _literal(0.0, "number")))
        return _whole(Scalar(Op.LEAST, Kind.NUMBER, (least, _literal(float(self.bins - 1), "number"))))

    # ---- outside ---------------------------------------------------------------------------------------------------

    def decode(self, codes: Codes, random: np.random.Generator) -> pa.Array:
        """A value for each code: the listed one, or one drawn evenly from the bin, mass points left out."""
        import pyarrow as pa

        kind = ARROW[self.kind]()
        missing = codes == self.known if self.size > self.known else None
        if not self.bins:
            return pa.array([*self.values, None], kind).take(pa.array(codes.astype(np.int32)))
        ends = [_number(edge) for edge in self.edges]
        points = [_number(point) for point in self.values]
        low = np.array([*ends[:-1], *points, 0.0])
        width = np.array([*np.diff(ends), *[0.0] * (len(points) + 1)])
        drawn = low[codes] + random.random(len(codes)) * width[codes]
        if self.column.type == "real":
            drawn = drawn if self.column.decimals is None else np.round(drawn, self.column.decimals)
        else:
            drawn = self._whole_numbers(drawn, codes, low, width, random)
        return _arrow(drawn, missing, self.kind)

    def _whole_numbers(self, drawn: Any, codes: Codes, low: Any, width: Any, random: np.random.Generator) -> Any:
        points = np.array([_number(point) for point in self.values])
        drawn = np.floor(drawn)
        again = np.flatnonzero((codes < self.bins) & np.isin(drawn, points)) if len(points) else np.zeros(0, np.int64)
        while again.size:
            some = codes[again]
            drawn[again] = np.floor(low[some] + random.random(again.size) * width[some])
            again = again[np.isin(drawn[again], points)]
        return drawn


def _arrow(numbers: Any, missing: Any, kind: str) -> pa.Array:
    import pyarrow as pa

    if kind == "number":
        return pa.array(numbers, pa.float64(), mask=missing)
    whole = numbers.astype(np.int64)
    if kind == "integer":
        return pa.array(whole, pa.int64(), mask=missing)
    if kind == "date":
        return pa.array((whole - _EPOCH).astype(np.int32), pa.int32(), mask=missing).cast(pa.date32())
    return pa.array(whole * 1_000_000, pa.int64(), mask=missing).cast(pa.timestamp("us"))


def _holds(arrow: Any, values: list[Any]) -> bool:
    """Whether values fit an Arrow type. They are compared as Python numbers: to make an array of them would load pandas."""
    from pyarrow import types

    if types.is_integer(arrow):
        bits = arrow.bit_width - types.is_signed_integer(arrow)
        least = -(1 << bits) if types.is_signed_integer(arrow) else 0
        return all(least <= value < 1 << bits for value in values)
    if types.is_decimal(arrow):
        return all(abs(value) < 10 ** (arrow.precision - arrow.scale) for value in values)
    plain = (types.is_floating, types.is_boolean, types.is_string, types.is_large_string, types.is_date)
    return any(test(arrow) for test in plain) or (types.is_timestamp(arrow) and arrow.tz is None)


def _arrow_type(name: str) -> Any:
    def made() -> Any:
        import pyarrow as pa

        return pa.timestamp("us") if name == "timestamp" else getattr(pa, name)()

    return made


ARROW = {"integer": _arrow_type("int64"), "number": _arrow_type("float64"), "text": _arrow_type("string"),
         "boolean": _arrow_type("bool_"), "date": _arrow_type("date32"), "timestamp": _arrow_type("timestamp")}  # fmt: skip
_EPOCH = date(1970, 1, 1).toordinal()


def _edges(column: Column) -> tuple[Any, ...]:
    """The least value of each bin, then one past the last."""
    low, high = column.bounds or (0, 1)
    past = high if column.type == "real" else high + _step(column)
    if not isinstance(column.bins, int):
        return (low, *column.bins, past)
    if column.type == "real":
        return (*(low + (high - low) * i / column.bins for i in range(column.bins)), high)
    count = int(_number(past) - _number(low))
    parts = min(column.bins, count)
    return tuple(low + _step(column) * -(-i * count // parts) for i in range(parts + 1))


def settled_edges(column: Column, inner: Sequence[Any], mass: Collection[Any]) -> tuple[Any, ...]:
    """Inner edges, with more where mass points would fill a bin and leave nothing for it: there each value gets a bin."""
    if column.type == "real":
        return tuple(inner)
    low, high = column.bounds or (0, 1)
    step, edges = _step(column), [low, *inner, high + _step(column)]
    more: set[Any] = set()
    for first, after in pairwise(edges):
        inside = {point for point in mass if first <= point < after}
        if len(inside) > 1 and (after - first) / step <= len(inside):
            more |= inside
    return tuple(sorted(({*inner} | more) - {low}))


def _step(column: Column) -> Any:
    """The distance between neighbouring values."""
    return {"date": timedelta(days=1), "timestamp": timedelta(seconds=1)}.get(column.type, 1)


def _number(value: Any) -> float:
    """Days of a date, seconds of a timestamp, a number as it is."""
    if isinstance(value, datetime):
        return (value - datetime(1970, 1, 1)).total_seconds()
    return float(value.toordinal() if isinstance(value, date) else value)


def _literal(value: Any, kind: str) -> Scalar:
    return Scalar(Op.LITERAL, Kind(kind), (), float(value) if kind == "number" else value)


def _whole(expression: Scalar) -> Scalar:
    return Scalar(Op.TO_INTEGER, Kind.INTEGER, (expression,))


def _as_kind(name: str, value: Any, kind: str) -> Any:
    actual = _VALUE[type(value)]
    if actual == "integer" and kind == "number":
        return float(value)
    if actual != kind:
        raise InvalidValue(f"{name} holds {kind}, and its listed values are {actual}. Change the schema or the table.")
    return value
