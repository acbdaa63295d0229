"""How much of the data bounds change: the shares of rows that were clamped and of weight that was cut.

They are counts like any other, bought with part of the query's epsilon. docs/theory/query-bounding.md says why one unit moves
them by no more than it moves a count.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from discreet.errors import InvalidQuery
from discreet.query.engines.request import Plan
from discreet.query.operations import OutputOp, PlanKind
from discreet.query.statistics.quantity import Cut, Outside, Quantity, RowCount, UnitCount, optional
from discreet.query.statistics.statistic import (
    Cells,
    ExpectedErrors,
    NoisyNumbers,
    Statistic,
    clipped,
    each,
    ratio,
    within_typical,
)
from discreet.query.tree import Output, Question, Scalar

CAPPED = "rows_capped"
ROUGH = 0.25  # how exact a share is meant to be, beside the columns that were asked


class Column(NamedTuple):
    """A column that is added to the answer."""

    name: str
    statistic: Statistic


@dataclass(frozen=True, slots=True)
class Share(Statistic):
    """The share of rows whose `of` lay outside its bounds; without `of`, of the weight (or sampled units) that was cut."""

    sampled: bool = False

    @property
    def part(self) -> Quantity:
        return Cut() if self.of is None else Outside(self.of)

    @property
    def whole(self) -> Quantity:
        return UnitCount() if self.of is None and self.sampled else RowCount(optional(self.of))

    def measures(self, others: Collection[Collection[Quantity]] = ()) -> Mapping[Quantity, float]:
        return {self.part: ROUGH, self.whole: ROUGH}

    def estimate(self, noisy: NoisyNumbers, confidence: float) -> Cells:
        return clipped(ratio(noisy, self.part, self.whole, each(2, confidence)), 0.0, 1.0)

    def expected_error(self, errors: ExpectedErrors) -> str:
        return within_typical(errors.half_width(self.part), "a share, ")


def bias_columns(question: Question, plan: Plan) -> tuple[Column, ...]:
    """A column for each expression that is clamped, named after the first column it is in, and one for bounded units."""
    columns: dict[Scalar, Column] = {}
    for name, output in zip(question.names, question.outputs):
        clamped = [statistic.clamped for statistic in _statistics(output, question)]
        new = dict.fromkeys(of for of in clamped if of is not None and of not in columns)
        for i, of in enumerate(new, 1):
            columns[of] = Column(f"{name}_outside" + (f"_{i}" if i > 1 else ""), Share(of))
    capped = [] if plan.kind == PlanKind.ROWS else [Column(CAPPED, Share(sampled=plan.kind == PlanKind.SAMPLED))]
    if not columns and not capped:
        raise InvalidQuery("Nothing is clamped or cut in this query, so there is no bias to estimate. Ask it without bias.")
    return (*columns.values(), *capped)


def _statistics(output: Output, question: Question) -> Iterator[Statistic]:
    if output.op == OutputOp.STATISTIC:
        yield question.aggregates[output.value]
    for part in output.args:
        yield from _statistics(part, question)
