"""Bounds of a column found privately, from a noisy histogram, where nobody knows them."""

from __future__ import annotations

import math
from fractions import Fraction

from discreet.core import Pure, check
from discreet.errors import InvalidValue
from discreet.noise import discrete_laplace
from discreet.query.engines.request import Bins, Plan, Request
from discreet.query.operations import NUMBERS, Kind, Op
from discreet.query.scalars.operands import number_literal
from discreet.query.tree import Base, Scalar, Select

REACH = 35.0  # ln(1 + 1e15): numbers beyond count as that
PARTS = 560  # of [-REACH, REACH]: neighbouring bounds differ by an eighth
WIDEST = 1 << 49  # of noise scales: beyond it whole numbers would not fit 64 bits
NONE = "no bounds stood out from the noise, so these hold any number. Ask with a larger epsilon, or give bounds you know"
MISTAKE = 1e-3  # how often noise alone makes an empty part look full


def request(table: Base, column: str, plan: Plan) -> Request:
    """The request for a histogram of sign(x) ln(1 + |x|) with public bins."""
    places = [i for i, name in enumerate(table.names) if name == column]
    if not places:
        raise InvalidValue(f"{table.table} has no column {column}; it has {', '.join(table.names[:20])}.")
    field = table.fields[places[0]]
    if field.kind not in NUMBERS:
        raise InvalidValue(f"{column} holds {field.kind}; only numbers have bounds.")
    value = Scalar(Op.COLUMN, field.kind, (), (0, places[0]))
    size = Scalar(
        Op.LN, Kind.NUMBER, (Scalar(Op.ADD, Kind.NUMBER, (Scalar(Op.ABS, Kind.NUMBER, (value,)), number_literal(1))),)
    )
    shaped = Scalar(Op.MUL, Kind.NUMBER, (Scalar(Op.SIGN, Kind.NUMBER, (value,)), size))
    return Request(Select(table, (), None, (), (), True), (), plan, (), Bins(shaped, -REACH, REACH, PARTS))


def sensitivity(plan: Plan, twice: int) -> int:
    return plan.rows * plan.scale * twice


def event(epsilon: float, moved: int) -> Pure:
    """Laplace noise on every part of the histogram, which one unit moves by its weight in all."""
    if moved > WIDEST * check.positive("epsilon", epsilon):
        raise InvalidValue(f"epsilon {epsilon:g} is too little here: the noise would not fit 64 bits. Ask with a larger one.")
    return Pure(epsilon)


def choose(counts: dict[int, int], epsilon: float, moved: int) -> tuple[float, float]:
    """The bounds of the outermost bins whose noisy count exceeds what noise alone explains; where none does, the widest, since
    the charge is made by then."""
    scale = Fraction(moved) / Fraction(epsilon)
    noise = discrete_laplace(scale, PARTS).tolist()
    level = float(scale) * math.log(PARTS / MISTAKE)
    full = [i for i in range(PARTS) if counts.get(i, 0) + noise[i] > level]
    return (_end(full[0]), _end(full[-1] + 1)) if full else ALL


def _end(part: int) -> float:
    shaped = -REACH + 2 * REACH * part / PARTS
    return math.copysign(math.expm1(abs(shaped)), shaped) if shaped else 0.0


ALL = _end(0), _end(PARTS)
