"""What a query would cost and how wrong its answer may be, told before anything is read or spent."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from discreet.core import Event
from discreet.query.answer import CONFIDENCE
from discreet.query.bias import Share
from discreet.query.measures import bounds_of, optional
from discreet.query.price import Priced
from discreet.query.tree import Aggregate

TYPICAL = 1_000  # the size of group for which the error of a mean is told


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

    def to_json(self) -> dict[str, Any]:
        return {
            "epsilon": self.epsilon, "delta": self.delta, "event": self.event.to_json(), "plan": self.plan,
            "errors": dict(self.errors), "keys": self.keys, "sql": list(self.sql), "left": self.left,
        }  # fmt: skip

    def __str__(self) -> str:
        lines = [
            f"costs      epsilon {self.epsilon:g}" + (f", delta {self.delta:g}" if self.delta else ""),
            f"units      {self.plan}",
        ]
        lines += [f"groups     {self.keys}"]
        lines += [f"error      {name}: {error}" for name, error in self.errors.items()]
        lines += [f"budget     {self.left}"] if self.left else []
        return "\n".join(lines)


def expected_errors(priced: Priced) -> dict[str, str]:
    """How wrong each number of the answer may be, by its name."""
    asked = zip(priced.question.names, priced.question.outputs)
    told = {name: _expected(priced, output.value) for name, output in asked if output.op == "statistic"}
    return told | {it.name: _expected_share(priced, it) for it in priced.shares}


def shown_groups(priced: Priced) -> str:
    """Which groups the answer has."""
    if priced.keys == ((),):
        return "one, of all rows"
    if priced.keys is not None:
        return f"{len(priced.keys)}, public"
    counted = "units" if priced.plan.kind == "sampled" else "weighted rows"
    return f"those with more than about {_reach(priced):,.0f} {counted}"


def _expected_share(priced: Priced, it: Share) -> str:
    half = _half(priced, priced.place["outside" if it.of is not None else "cut", it.of])
    return f"a share, within about {half / TYPICAL:,.4g} in a group of {TYPICAL:,} rows, in 95 of 100 answers"


def _expected(priced: Priced, place: int) -> str:
    """The half-width of the interval of one statistic, for people."""
    it = priced.question.aggregates[place]
    known = optional(it.of)
    if it.kind in ("quantile", "least", "most"):
        return "depends on how the values lie; its interval comes with the answer"
    found = {"count": ("count", known), "count_of": ("count", known), "units": ("units", None)}.get(it.kind)
    if found is None and ("sum", it.of) in priced.place and it.kind == "sum":
        found = ("sum", it.of)
    if found is not None:
        return f"within {_half(priced, priced.place[found]):,.4g} in 95 of 100 answers"
    part = _half(priced, priced.place["centred", it.of])
    if it.kind == "sum":
        return f"within about {part + _middle(it) * _half(priced, priced.place['count', known]):,.4g} in 95 of 100 answers"
    return f"within about {part / TYPICAL:,.4g} in a group of {TYPICAL:,} rows, in 95 of 100 answers"


def _middle(it: Aggregate) -> float:
    low, high = bounds_of(it.of)
    return abs(low + high) / 2


def _half(priced: Priced, m: int) -> float:
    return priced.error(m, CONFIDENCE)


def _reach(priced: Priced) -> float:
    assert priced.threshold is not None
    return priced.selector().bound * priced.step(priced.threshold)
