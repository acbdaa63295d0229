"""The cost of a query and the expected error of its answer, before anything is read or spent."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from discreet.accounting import curve
from discreet.core import Event, Release
from discreet.query.cut import NOTED, PART
from discreet.query.operations import OutputOp, PlanKind
from discreet.query.price import Priced
from discreet.query.statistics.statistic import OFTEN, Statistic


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
    bounding: str = ""  # what is told of the rows that bounding cuts
    noise: str = ""  # of which kind it is

    def to_json(self) -> dict[str, Any]:
        return {
            "epsilon": self.epsilon, "delta": self.delta, "event": self.event.to_json(), "plan": self.plan,
            "errors": dict(self.errors), "keys": self.keys, "sql": list(self.sql), "left": self.left,
            "free": self.free, "bounding": self.bounding, "noise": self.noise,
        }  # fmt: skip

    def __str__(self) -> str:
        price = f"epsilon {self.epsilon:g}" + (f", delta {self.delta:g}" if self.delta else "")
        lines = [
            f"costs      nothing: the same question was answered before, for {price}" if self.free else f"costs      {price}",
            f"units      {self.plan}",
        ]
        lines += [f"bounding   {self.bounding}"] if self.bounding else []
        lines += [f"groups     {self.keys}"]
        lines += [f"noise      {self.noise}"] if self.noise else []
        lines += [f"error      {name}: {error}" for name, error in self.errors.items()]
        lines += [f"budget     {self.left}"] if self.left else []
        return "\n".join(lines)


def expected_errors(priced: Priced) -> dict[str, str]:
    """How wrong each number of the answer may be, by its name, and each that only HAVING or ORDER BY need."""
    if not priced.more:
        return _errors_of_set(priced)
    told: dict[str, str] = {}
    for one in priced.sets:
        told |= {f"{name}, by {len(one.question.keys)} keys" if one.question.keys else f"{name}, in all": error
                 for name, error in _errors_of_set(one).items()}  # fmt: skip
    return told


def _errors_of_set(priced: Priced) -> dict[str, str]:
    question = priced.question
    columns = {name: question.aggregates[output.value] for name, output in zip(question.names, question.outputs)
               if output.op == OutputOp.STATISTIC}  # fmt: skip
    told = {name: statistic.expected_error(priced) for name, statistic in columns.items()}
    made = {name: output.statistics() for name, output in zip(question.names, question.outputs) if name not in told}
    for name, used in made.items():  # of an expression, what it is made of
        parts = dict.fromkeys((f"{_function(question.aggregates[i])} {question.aggregates[i].expected_error(priced)}")
                              for i in sorted(used))  # fmt: skip
        told |= {name: "; ".join(parts)} if used else {}
    told |= {name: statistic.expected_error(priced) for name, statistic in priced.shares}
    later = [question.aggregates[i] for i in question.only_later()]
    for i, statistic in enumerate(later, 1):
        name = f"{_function(statistic)} in HAVING or ORDER BY" + (f" ({i})" if i > 1 else "")
        told[name] = f"{statistic.expected_error(priced)}; it has its part of epsilon, as a column of the answer has"
    often = f"in {100 * priced.confidence:g} of 100 answers"
    return {name: error.replace(OFTEN, often) for name, error in told.items()}


def _function(statistic: Statistic) -> str:
    return statistic.functions[0] if statistic.functions else type(statistic).__name__.upper()


def why_empty(release: Release[Any]) -> str:
    """What an answer without rows means. Names of groups are released by threshold where the claim has a delta."""
    chosen = any(curve(claim.event).epsilon(0.0) == math.inf for claim in release.claims)
    having = re.search(r"\bhaving\b", str(release.facts.get("query", "")), re.IGNORECASE) is not None
    if not chosen:
        return "No released row satisfies HAVING." if having else "The answer has no rows."
    found = "No group stood out from the noise and satisfies HAVING." if having else "No group stood out from the noise."
    return f"{found} A larger epsilon or delta shows smaller groups."


def shown_bounding(priced: Priced) -> str:
    """What is told of the rows that bounding cuts, and how exactly: from public numbers alone."""
    if priced.plan.kind == PlanKind.ROWS:
        return ""
    price = sum(priced.epsilons) / 10
    proposal = f"db.find_rows(epsilon={price:.2g}) proposes a rows= that 95% of the units keep within, for epsilon {price:.2g}"
    if priced.cut is None:
        return f"how many rows it cuts cannot be told at this epsilon. {proposal}"
    return (
        f"a unit of more than {priced.plan.rows} rows counts as fewer; the share of rows cut is told if it is above "
        f"{NOTED:.0%}, for {float(PART):.0%} of epsilon, and within {NOTED:.0%} from about "
        f"{priced.cut.rows_needed(priced.confidence):,.0f} rows on. A larger rows= cuts less and needs more noise; {proposal}"
    )


def shown_noise(priced: Priced) -> str:
    """Which noise the sums get, where it is not Laplace noise."""
    if not any(one.multiplier for one in priced.sets):
        return ""
    return f"Gaussian on sums and counts, for delta {sum(one.gaussian_delta for one in priced.sets):g}"


def shown_groups(priced: Priced) -> str:
    """Which groups the answer has."""
    if priced.more:
        sets = "; ".join(shown_groups(replace(one, more=())) for one in priced.sets)
        return f"{len(priced.sets)} grouping sets, each with an equal part of epsilon and delta: {sets}"
    if priced.keys == ((),):
        return "one, of all rows"
    if priced.keys is not None:
        return f"{len(priced.keys)}, public"
    counted = "units" if priced.plan.kind == PlanKind.SAMPLED else "weighted rows"
    return f"those with more than about {_reach(priced):,.0f} {counted}"


def _reach(priced: Priced) -> float:
    assert priced.threshold is not None
    return priced.selector().bound * priced.step(priced.threshold)
