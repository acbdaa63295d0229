"""What a question needs measured, in whole numbers, and how far one unit moves each of them."""

from __future__ import annotations

from dataclasses import dataclass

from discreet.core import Unit
from discreet.errors import InvalidQuery
from discreet.query.bias import Share
from discreet.query.engines.request import Bins, Plan, Term
from discreet.query.tree import Aggregate, Question, Scalar

PARTS = 1 << 10  # of a histogram for quantiles


@dataclass(frozen=True, slots=True)
class Measure:
    """One vector of whole numbers, by group, that one unit moves by at most `sensitivity` in l1."""

    term: Term | None  # None: the number of units, which sampling counts by itself
    sensitivity: int
    scale: float  # what one step of it stands for
    bins: Bins | None = None
    ranks: tuple[float, ...] = ()


class Measures:
    """The measurements of a question, each once; `place` finds them."""

    def __init__(self, plan: Plan, twice: int, finest: int, *, counted: bool) -> None:
        self.plan, self.twice, self.finest, self.counted = plan, twice, finest, counted  # counted: rows are, for the keys
        self.measures: list[Measure] = []
        self.place: dict[tuple[str, Scalar | None], int] = {}

    def weight(self) -> int:
        """The most that one unit's rows weigh together."""
        rows = self.plan.groups * self.plan.each if self.plan.kind == "sampled" else self.plan.rows
        return rows * self.plan.scale * self.twice

    def add(self, kind: str, of: Scalar | None, make: Measure) -> int:
        if (kind, of) not in self.place:
            self.place[kind, of] = len(self.measures)
            self.measures.append(make)
        return self.place[kind, of]

    def need(self, it: Aggregate, question: Question) -> None:
        if it.kind in ("quantile", "least", "most"):
            self.histogram(it, question)
        elif it.kind == "units":
            self.units()
        elif it.kind in ("count", "count_of"):
            self.count(it.of)
        elif it.kind == "sum" and not self.centred(it, question):
            self.total(it.of, centred=False)
        else:
            self.count(it.of)
            self.total(it.of, centred=True)
            if it.kind in ("variance", "deviation"):
                self.square(it.of)

    def centred(self, it: Aggregate, question: Question) -> bool:
        """Whether a sum is made of the values less their middle, and the count that is measured anyway: the noise is less."""
        of = optional(it.of)
        counted = any(other.kind in ("count", "count_of") and optional(other.of) == of for other in question.aggregates)
        means = any(other.of == it.of and other.kind in CENTRED for other in question.aggregates)
        return means or counted or (self.counted and of is None)

    def count(self, of: Scalar | None) -> int:
        of = optional(of)
        if of is None:
            return self.add("count", of, Measure(Term("count"), self.weight(), 1 / self.plan.scale))
        return self.add("count", of, self.some("known", of))

    def some(self, kind: str, of: Scalar) -> Measure:
        """How many rows have something; in finer parts where the mean over a unit's rows is taken, and so would be 0 or 1."""
        parts = self.finest if self.plan.kind == "sampled" else 1
        return Measure(Term(kind, of, most=parts), self.weight() * parts, 1 / (self.plan.scale * parts))

    def share(self, it: Share) -> tuple[int, int]:
        """The measurements of what was clamped or cut, and of what it is a part of."""
        if it.of is not None:
            return self.add("outside", it.of, self.some("outside", it.of)), self.count(it.of)
        if self.plan.kind == "sampled":
            return self.add("cut", None, Measure(Term("cut"), max(1, self.plan.groups) * self.twice, 1.0)), self.units()
        return self.add("cut", None, Measure(Term("cut"), self.weight(), 1 / self.plan.scale)), self.count(None)

    def units(self) -> int:
        return self.add("units", None, Measure(None, max(1, self.plan.groups) * self.twice, 1.0))

    def total(self, of: Scalar | None, *, centred: bool) -> int:
        low, high = bounds_of(of)
        centre = (low + high) / 2 if centred else 0.0
        reach = (high - low) / 2 if centred else max(abs(low), abs(high))
        whole = _kind(of) == "integer" and _whole(low, high)
        step, most = _grid(reach, self.finest, whole=whole, means=self.plan.kind == "sampled")
        term = Term("sum", of, centre, step, most)
        return self.add("centred" if centred else "sum", of, Measure(term, self.weight() * most, step / self.plan.scale))

    def square(self, of: Scalar | None) -> int:
        low, high = bounds_of(of)
        half = (high - low) / 2
        most = self.finest
        step = half * half / (2 * most)
        term = Term("square", of, (low + high) / 2, step, most)
        return self.add("square", of, Measure(term, self.weight() * most, step / self.plan.scale))

    def histogram(self, it: Aggregate, question: Question) -> int:
        assert it.of is not None
        low, high = bounds_of(it.of)
        parts = PARTS
        if it.of.kind == "integer" and _whole(low, high) and high - low < PARTS:
            low, high = low - 0.5, high + 0.5
            parts = round(high - low)
        ranks = sorted({rank(other) for other in question.aggregates if other.of == it.of and other.kind in RANKED})
        sampled = self.plan.kind == "sampled"
        weight = self.weight() * (1 << 20 if sampled else 1)
        measure = Measure(None, weight, 1 / self.plan.scale, Bins(it.of, low, high, parts), tuple(ranks))
        return self.add("histogram", it.of, measure)

    def threshold(self, unit: Unit) -> int:
        """Keys are released by what the most people can be counted with: units if sampled, else weighted rows."""
        if unit.relation == "replace":
            raise InvalidQuery("Names of groups can be released where units are added or removed; for replaced units list "
                               "them: values = [...] in the schema.")  # fmt: skip
        return self.units() if self.plan.kind == "sampled" else self.count(None)


CENTRED = ("mean", "variance", "deviation")
RANKED = ("quantile", "least", "most")


def bounds_of(it: Scalar | None) -> tuple[float, float]:
    """The bounds of what is added up: parsing saw to it that there are some."""
    assert it is not None
    assert it.bounds is not None
    return it.bounds


def rank(it: Aggregate) -> float:
    """Quantiles by rank; the least is 0 and the most is 1."""
    return {"least": 0.0, "most": 1.0}.get(it.kind, it.rank)


def optional(of: Scalar | None) -> Scalar | None:
    """What a count of an expression depends on: nothing, where it is never missing."""
    return None if of is not None and of.required else of


def _whole(low: float, high: float) -> bool:
    return low == int(low) and high == int(high)


def _kind(of: Scalar | None) -> str:
    return "" if of is None else of.kind


def _grid(reach: float, finest: int, *, whole: bool, means: bool) -> tuple[float, int]:
    """(step, steps to the end). Whole numbers within a small range stay exact; half steps, since the middle may be half, and
    as fine as may be where means of them are taken."""
    if whole and 2 * reach <= finest:
        parts = finest // round(2 * reach) if means else 1
        return 0.5 / parts, round(2 * reach) * parts
    return reach / finest, finest
