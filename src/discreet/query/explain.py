"""The cost of a query and the expected error of its answer, before anything is read or spent."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from discreet.core import Event
from discreet.query.operations import OutputOp, PlanKind
from discreet.query.price import Priced


@dataclass(frozen=True, slots=True)
class Explanation:
    """What a query would cost and how wrong its answer may be; nothing was read and nothing spent."""

    epsilon: float
    delta: float
    event: Event
    plan: str
    errors: Mapping[str, str]
    keys: str
    sql: tuple[str, ...]
    left: str | None
    free: bool = False  # the same question was answered before, and its answer is kept: asked again, nothing is charged

    def to_json(self) -> dict[str, Any]:
        return {
            "epsilon": self.epsilon, "delta": self.delta, "event": self.event.to_json(), "plan": self.plan,
            "errors": dict(self.errors), "keys": self.keys, "sql": list(self.sql), "left": self.left,
            "free": self.free,
        }  # fmt: skip

    def __str__(self) -> str:
        price = f"epsilon {self.epsilon:g}" + (f", delta {self.delta:g}" if self.delta else "")
        lines = [
            f"costs      nothing: the same question was answered before, for {price}" if self.free else f"costs      {price}",
            f"units      {self.plan}",
        ]
        lines += [f"groups     {self.keys}"]
        lines += [f"error      {name}: {error}" for name, error in self.errors.items()]
        lines += [f"budget     {self.left}"] if self.left else []
        return "\n".join(lines)


def expected_errors(priced: Priced) -> dict[str, str]:
    """How wrong each number of the answer may be, by its name."""
    question = priced.question
    columns = {name: question.aggregates[output.value] for name, output in zip(question.names, question.outputs)
               if output.op == OutputOp.STATISTIC}  # fmt: skip
    return {name: statistic.expected_error(priced) for name, statistic in [*columns.items(), *priced.shares]}


def shown_groups(priced: Priced) -> str:
    """Which groups the answer has."""
    if priced.keys == ((),):
        return "one, of all rows"
    if priced.keys is not None:
        return f"{len(priced.keys)}, public"
    counted = "units" if priced.plan.kind == PlanKind.SAMPLED else "weighted rows"
    return f"those with more than about {_reach(priced):,.0f} {counted}"


def _reach(priced: Priced) -> float:
    assert priced.threshold is not None
    return priced.selector().bound * priced.step(priced.threshold)
