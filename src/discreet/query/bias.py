"""What bounds change, told on request: the shares of rows that were clamped and of weight that was cut.

They are counts like any other, bought with part of the query's epsilon. docs/theory/query-bounding.md says why one unit moves
them by no more than it moves a count.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from discreet.errors import InvalidQuery
from discreet.query.engines.request import Plan
from discreet.query.tree import Aggregate, Output, Question, Scalar

CAPPED = "rows_capped"
UNBOUNDED = ("count", "count_of", "units")  # statistics of which nothing is clamped


@dataclass(frozen=True, slots=True)
class Share:
    """One more column: the share of rows whose `of` lay outside its bounds; without `of`, the share of what was cut."""

    name: str
    of: Scalar | None = None


def shares(question: Question, plan: Plan) -> tuple[Share, ...]:
    """A column for each expression that is clamped, named after the first column it is in, and one for bounded units."""
    found: dict[Scalar, Share] = {}
    for name, output in zip(question.names, question.outputs):
        new = [it.of for it in _statistics(output, question) if it.kind not in UNBOUNDED and it.of is not None]
        for i, of in enumerate(dict.fromkeys(it for it in new if it not in found), 1):
            found[of] = Share(f"{name}_outside" + (f"_{i}" if i > 1 else ""), of)
    told = (*found.values(), *([] if plan.kind == "rows" else [Share(CAPPED)]))
    if not told:
        raise InvalidQuery("Nothing is clamped or cut in this query, so there is no bias to estimate. Ask it without bias.")
    return told


def _statistics(output: Output, question: Question) -> Iterator[Aggregate]:
    if output.op == "statistic":
        yield question.aggregates[output.value]
    for part in output.args:
        yield from _statistics(part, question)
