"""What a database releases, as mechanisms: claims that are fixed before a row is read, and a run against an engine."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from discreet.core import Claim, Game, Sequence, Unit
from discreet.query import bounds
from discreet.query.after import Chosen, holds, order
from discreet.query.answer import Noisy, Together, shown_plan
from discreet.query.engines import Engine
from discreet.query.engines.request import Plan
from discreet.query.operations import PlanKind
from discreet.query.price import Priced
from discreet.query.statistics.statistic import CONFIDENCE
from discreet.query.table import answer_table
from discreet.query.tree import Base, Relation, bases

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True, slots=True)
class SqlQuery:
    """One SQL query with its price; it runs inside the engine, and noise is added to what comes back."""

    unit: Unit
    priced: Priced
    nonnegative: bool = False

    def claims(self) -> tuple[Claim, ...]:
        """What the answer claims."""
        events = self.priced.events()
        assumptions = [
            *dict.fromkeys(shown_plan(one.plan) for one in self.priced.sets),
            "bounds, public keys and which tables are public were not chosen by looking at the data",
        ]
        if self.unit.key is not None and any(
            measure.values is not None for one in self.priced.sets for measure in one.measures
        ):
            assumptions.append(f"of each unit at most {self.unit.rows} different values are counted, chosen at random")
        if self.unit.key is not None:
            assumptions.append(f"rows whose {self.unit.key} is NULL are left out")
        assumptions += declared_assumptions(self.priced.question.rows)
        private = list(dict.fromkeys(base.table for base in bases(self.priced.question.rows) if base.private and not base.most))
        if self.unit.key is None and len(private) > 1:
            assumptions.append(f"a record is in one of {', '.join(private)}, not in several: none is a copy of another")
        event = events[0] if len(events) == 1 else Sequence(events)
        return (Claim(game=Game(self.unit, {"answers"}), event=event, assumptions=tuple(assumptions)),)

    def run(self, data: Engine) -> pa.Table:
        """The noisy table, after HAVING, ORDER BY and LIMIT, which see noisy numbers only."""
        parts = [Noisy(one).run(data.aggregate) for one in self.priced.sets]
        keys = 1 + max((place for one in self.priced.sets for place in (one.question.sets or ((),))[0]), default=-1)
        noisy = parts[0] if self.priced.question.sets is None else Together(parts, keys)
        question = self.priced.question
        rows = np.arange(len(noisy.keys)) if question.having is None else np.flatnonzero(holds(question.having, noisy))
        left = Chosen(noisy, rows, len(rows))  # totals are of the rows that HAVING leaves, as in SQL
        places = order(left, np.arange(len(rows)), question.order)[question.skipped :][: question.limit]
        return answer_table(noisy, replace(left, shown=len(places)), places, self.nonnegative)

    def key(self, engine: Engine) -> str:
        """The same for an identical question of the same data only: what the engine is asked, and all that is done with it."""
        priced, question = self.priced, self.priced.question
        statistics = [(type(asked).__module__, type(asked).__qualname__, asked) for asked in question.aggregates]
        parts = (
            (question.rows, priced.plan),
            *((one.question.keys, one.question.sets, one.measures, one.keys, one.epsilons, one.delta, one.joint)
              for one in priced.sets),
            (question.names, question.outputs, statistics, question.having, question.order, question.limit,
             *((question.skipped,) if question.skipped else ())),
            (priced.shares, self.nonnegative, *((priced.confidence,) if priced.confidence != CONFIDENCE else ())),
            *([priced.cut] if priced.cut else []), *(("gaussian", one.multiplier) for one in priced.sets if one.multiplier),
        )  # fmt: skip
        return " | ".join([*map(repr, parts), engine.name, engine.fingerprint()])


def declared_assumptions(rows: Relation) -> list[str]:
    """What the owner declared of the tables of a query, and the claim needs."""
    derived = {base.table: base.most for base in bases(rows) if base.most}
    return [
        f"{table} is no base table: one unit has at most {most} rows in it, and each of its rows depends on one unit alone"
        for table, most in derived.items()
    ]


@dataclass(frozen=True, slots=True)
class BoundsQuery:
    """Bounds that hold nearly all values of one column, from a noisy histogram."""

    unit: Unit
    table: Base
    column: str
    epsilon: float

    @property
    def plan(self) -> Plan:
        assert self.unit.rows is not None  # Database.find_bounds says what to do where it is
        if self.unit.key is None:
            return Plan(PlanKind.ROWS, max(1, self.table.most))
        return Plan(PlanKind.WEIGHTED, self.unit.rows)

    @property
    def moved(self) -> int:
        return bounds.sensitivity(self.plan, 2 if self.unit.relation == "replace" else 1)

    def claims(self) -> tuple[Claim, ...]:
        bounds.request(self.table, self.column, self.plan)  # a column without bounds is refused before anything is charged
        game = Game(self.unit, {"answers"})
        assumptions = (shown_plan(self.plan), *declared_assumptions(self.table))
        return (Claim(game=game, event=bounds.event(self.epsilon, self.moved), assumptions=assumptions),)

    def run(self, data: Engine) -> list[float]:
        counts = data.aggregate(bounds.request(self.table, self.column, self.plan))
        histogram = dict(zip(counts["b"], (int(count) for count in counts["s0"])))
        return list(bounds.choose(histogram, self.epsilon, self.moved))
