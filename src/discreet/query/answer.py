"""Noise: from the exact whole numbers of an engine to noisy columns with intervals."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from discreet.noise import discrete_laplace
from discreet.query.cut import Share
from discreet.query.engines.request import Plan, Request, Term
from discreet.query.operations import Kind, Op, PlanKind, TermKind
from discreet.query.price import Priced
from discreet.query.quantiles import Measured, Quantiles
from discreet.query.statistics.quantity import Quantity, ValueCount
from discreet.query.statistics.statistic import CONFIDENCE, MOST_ROWS, PART, Cells, Statistic, each
from discreet.query.together import Reach
from discreet.query.tree import Question, Scalar

Ask = Callable[[Request], Mapping[str, Sequence[Any]]]


def requests(priced: Priced) -> list[Request]:
    """What the engine is asked for: all sums at once, what was cut, then one histogram for each expression that is ranked."""
    question = priced.question
    terms = tuple(measure.term for measure in priced.measures if measure.term is not None)
    counted = priced.cut is not None or not all(measure.alone for measure in priced.measures)
    terms += priced.cut.terms() if priced.cut else ()
    asked = [Request(question.rows, question.keys, priced.plan, terms)] if counted else []
    asked += priced.cut.requests(question.rows) if priced.cut else []
    for measure in priced.measures:
        if measure.bins is not None:
            asked.append(Request(question.rows, question.keys, priced.plan, (), measure.bins))
        elif measure.values is not None:
            asked.append(_values(question, priced.plan, measure.values))
    return asked


def _values(question: Question, plan: Plan, values: ValueCount) -> Request:
    """The different values of each group: the groups of a finer question, in as many of which a unit counts as it has rows."""
    parts = tuple(part for part in (question.rows.where, values.where) if part is not None)
    where = Scalar(Op.AND, Kind.BOOLEAN, parts) if len(parts) == 2 else parts[0] if parts else None
    rows, keys = replace(question.rows, where=where), (*question.keys, *values.of)
    if plan.kind == PlanKind.ROWS:
        return Request(rows, keys, plan, (Term(TermKind.COUNT),))
    return Request(rows, keys, Plan(PlanKind.SAMPLED, plan.rows, plan.rows, 1))


class Noisy:
    """The noisy numbers of one query, with their intervals."""

    def __init__(self, priced: Priced) -> None:
        self.priced = priced
        self.keys: list[tuple[Any, ...]] = []
        self.values: dict[int, NDArray[np.float64]] = {}
        self.shown: NDArray[Any] = np.zeros(0, np.int64)  # noisy counts of the groups that were released by them
        self.cut: Share | None = None
        self.most_rows: Callable[[float], float] = lambda confidence: MOST_ROWS
        self._ranked: dict[int, Measured] = {}
        self._limits: dict[float, tuple[NDArray[Any], NDArray[Any]]] = {}

    def run(self, ask: Ask) -> Noisy:
        """Ask the engine, choose the groups, add the noise."""
        asked = requests(self.priced)
        alone = self._places(alone=True)
        added = asked[: len(asked) - len(alone)]
        if not added:  # nothing to add up, and all groups are public
            self.keys = list(self.priced.keys or ())
        else:
            sums = ask(added[0])
            engine_keys = [_one_zero(key) for key in zip(*(sums[f"k{i}"] for i in range(len(self.priced.question.keys))))]
            self._choose(engine_keys if self.priced.question.keys else [()], self._exact(sums))
            if self.priced.cut is not None:
                terms = sum(measure.term is not None for measure in self.priced.measures)
                more = ask(added[1]) if len(added) > 1 else {}
                self.cut = self.priced.cut.run(sums, terms, more, self.confidence)
                self.most_rows = partial(self.priced.cut.most_rows, self.cut)
        for request, place in zip(asked[len(added) :], alone):
            if request.bins is not None:
                self._ranked[place] = self._quantiles(place, ask(request))
            else:
                self._add_noise(place, self._different(request, ask(request)))
        return self

    def _places(self, *, alone: bool) -> list[int]:
        return [i for i, measure in enumerate(self.priced.measures) if measure.alone == alone]

    def _different(self, request: Request, found: Mapping[str, Sequence[Any]]) -> list[int]:
        """How many different values each released group has."""
        keys = len(self.priced.question.keys)
        counts = dict.fromkeys(map(_plain_key, self.keys), 0)
        columns = [found[f"k{i}"] for i in range(len(request.keys))]
        for key in {_plain_key(_one_zero(row)) for row in zip(*columns)}:
            if key[:keys] in counts:
                counts[key[:keys]] += 1
        return [counts[_plain_key(key)] for key in self.keys]

    def _exact(self, sums: Mapping[str, Sequence[Any]]) -> dict[int, list[int]]:
        """The engine's whole numbers, by measurement; a sum over no rows is 0."""
        columns: dict[int, list[int]] = {}
        place = 0
        for i in self._places(alone=False):
            name = "units" if self.priced.measures[i].term is None else f"s{place}"
            place += self.priced.measures[i].term is not None
            columns[i] = [int(value or 0) for value in sums[name]]
        return columns

    def _choose(self, engine_keys: list[tuple[Any, ...]], exact: Mapping[int, list[int]]) -> None:
        priced = self.priced
        if priced.keys is not None:
            rows = {_plain_key(key): i for i, key in enumerate(engine_keys)}
            self.keys = list(priced.keys)
            order = [rows.get(_plain_key(key)) for key in self.keys]
            whole = {m: [0 if i is None else column[i] for i in order] for m, column in exact.items()}
        else:
            assert priced.threshold is not None
            kept, noisy = self._show(exact)
            chosen = sorted(np.flatnonzero(kept).tolist(), key=lambda i: [_in_order(part) for part in engine_keys[i]])
            self.keys = [engine_keys[i] for i in chosen]
            whole = {m: [column[i] for i in chosen] for m, column in exact.items() if m not in noisy}
            self.shown = noisy[priced.threshold][chosen]
            self._keep({m: column[chosen] for m, column in noisy.items()})
        together = [m for m in priced.joint if m in whole]
        if together:
            self._keep(dict(zip(together, priced.noise().run([whole.pop(m) for m in together]))))
        for m, column in whole.items():
            self._add_noise(m, column)

    def _show(self, exact: Mapping[int, list[int]]) -> tuple[NDArray[np.bool_], dict[int, NDArray[Any]]]:
        """Which groups are released, and the noisy numbers drawn jointly with the count that decided it."""
        priced = self.priced
        assert priced.threshold is not None
        if priced.threshold not in priced.joint:
            kept, noisy = priced.selector().run(np.array(exact[priced.threshold], np.int64))
            return kept, {priced.threshold: noisy}
        columns = [[value * times for value in exact[m]] for m, times in zip(priced.joint, priced.noise().times)]
        kept, together = priced.selector().run_together(columns)
        return kept, dict(zip(priced.joint, together))

    def _add_noise(self, m: int, column: Sequence[int]) -> None:
        noise = discrete_laplace(self._scale(m), len(column)).tolist()
        self._keep({m: np.array([a + b for a, b in zip(column, noise)], object)})

    def _keep(self, noisy: Mapping[int, NDArray[Any]]) -> None:
        for m, column in noisy.items():
            self.values[m] = column.astype(float) * self.priced.step(m)

    def _scale(self, m: int) -> Fraction:
        return Fraction(self.priced.measures[m].sensitivity) / Fraction(self.priced.epsilons[m])

    def _quantiles(self, m: int, counts: Mapping[str, Sequence[Any]]) -> Measured:
        measure = self.priced.measures[m]
        assert measure.bins is not None
        bins = measure.bins
        rows = {_plain_key(key): i for i, key in enumerate(self.keys)}
        histogram = np.zeros((len(self.keys), bins.parts), np.int64)
        columns = [counts[f"k{i}"] for i in range(len(self.priced.question.keys))]
        for *key, place, weight in zip(*columns, counts["b"], counts["s0"]):
            row = rows.get(_plain_key(tuple(key)))
            if row is not None and place is not None:
                histogram[row, int(place)] += int(weight)
        return Quantiles(measure.ranks, self.priced.epsilons[m], measure.sensitivity).measure(histogram)

    @property
    def confidence(self) -> float:
        return self.priced.confidence

    # ---- the released rows ---------------------------------------------------------------------------------------------

    @property
    def grouped(self) -> list[tuple[int, ...]]:
        sets = self.priced.question.sets
        return [tuple(range(len(self.priced.question.keys))) if sets is None else sets[0]] * len(self.keys)

    def column(self, statistic: int, confidence: float) -> Cells:
        """One statistic of the question, by its place."""
        return self.priced.question.aggregates[statistic].estimate(self, confidence)

    # ---- what statistics are estimated from ----------------------------------------------------------------------------

    def statistic(self, statistic: Statistic, confidence: float = CONFIDENCE) -> Cells:
        """One column of the answer, from the same noisy numbers as all others."""
        return statistic.estimate(self, confidence)

    def __contains__(self, quantity: Quantity) -> bool:
        return quantity in self.priced.place

    def value(self, quantity: Quantity) -> NDArray[np.float64]:
        return self.values[self.priced.place[quantity]]

    def whole(self, quantity: Quantity) -> bool:
        return self.priced.measures[self.priced.place[quantity]].scale == 1

    def reach(self, quantities: Sequence[Quantity], confidence: float) -> Reach | None:
        places = [self.priced.place[quantity] for quantity in quantities]
        known, selector = np.ones(len(self.keys), bool), None
        if self.priced.threshold in places:
            selector, rest = self.priced.selector(), each(PART, confidence)
            known, confidence = selector.surely(self.shown, 1 - rest), each(PART / (PART - 1), confidence)
        sure, rounding = self._rounding(places, confidence)
        noise = self.priced.reach(places, 1 - sure if selector is None else selector.given_shown(1 - sure))
        if noise is None:
            return None
        return Reach(lambda weights: noise(weights) + sum(a * b for a, b in zip(weights, rounding)), known)

    def ranked(self, quantity: Quantity, rank: float, confidence: float) -> Cells:
        place = self.priced.place[quantity]
        measure, found = self.priced.measures[place], self._ranked[place]
        assert measure.bins is not None
        bins, i = measure.bins, measure.ranks.index(rank)
        width = (bins.high - bins.low) / bins.parts
        ends = (found.value, *found.interval(confidence))
        value, low, high = (bins.low + (part[:, i] + at) * width for part, at in zip(ends, (0.5, 0.0, 1.0)))
        return value, low, high

    def ends(self, quantity: Quantity, confidence: float) -> tuple[NDArray[Any], NDArray[Any]]:
        """The interval of the number without noise; of groups that were released by it, given that they were."""
        m = self.priced.place[quantity]
        if m == self.priced.threshold:
            if confidence not in self._limits:  # several columns ask for the same
                low, high = self.priced.selector().limits(self.shown, confidence)
                self._limits[confidence] = (low.astype(float) * self.priced.step(m), high.astype(float) * self.priced.step(m))
            return self._limits[confidence]
        sure, (rounding,) = self._rounding((m,), confidence)
        error = self.priced.error(m, sure) + rounding
        return self.values[m] - error, self.values[m] + error

    def _rounding(self, places: Sequence[int], confidence: float) -> tuple[float, list[NDArray[np.float64] | float]]:
        """How far whole steps move these sums, at most, and the confidence that is left for their noise: a small part of what
        it may miss is for the number of rows, which is known with noise."""
        parts = [self.priced.measures[m].rounding for m in places]
        count = next((count for m in places if (count := self.priced.counted(m)) is not None), None)
        if not any(parts):
            return confidence, list(parts)
        left = each(PART / (PART - 1), confidence)
        if count is None:
            return left, [part * self.most_rows(each(PART, confidence)) for part in parts]
        if count == self.priced.threshold:
            far = float(self.priced.selector().bound) * self.priced.step(count)
        else:
            far = self.priced.error(count, each(PART, confidence))
        own = self.priced.measures[count].rounding  # at most a 32nd
        rows = np.maximum(self.values[count] + far, 0.0) * (1 + 2 * own)
        return left, [part * rows for part in parts]


class Together:
    """The rows of all grouping sets of a query, one set after another."""

    def __init__(self, parts: Sequence[Noisy], keys: int) -> None:
        self.parts, self.priced = parts, parts[0].priced
        self.confidence, self.cut = self.priced.confidence, parts[0].cut
        for part in parts:
            part.most_rows = parts[0].most_rows  # rows before they are counted in groups
        self.grouped = [places for part in parts for places in part.grouped]
        rows = [key for part in parts for key in part.keys]
        self.keys = [tuple(dict(zip(places, key)).get(i) for i in range(keys)) for key, places in zip(rows, self.grouped)]

    def column(self, statistic: int, confidence: float) -> Cells:
        return _joined([part.column(statistic, confidence) for part in self.parts])

    def statistic(self, statistic: Statistic, confidence: float = CONFIDENCE) -> Cells:
        return _joined([part.statistic(statistic, confidence) for part in self.parts])


def _joined(cells: Sequence[Cells]) -> Cells:
    value, low, high = (np.concatenate([np.asarray(part[k]) for part in cells]) for k in range(3))
    return value, low, high


def _plain_key(key: tuple[Any, ...]) -> tuple[Any, ...]:
    """A key for comparison with others: 1 equals 1.0, and True does not equal 1."""
    return tuple(("truth", part) if isinstance(part, bool) else part for part in key)


def _one_zero(key: tuple[Any, ...]) -> tuple[Any, ...]:
    """0.0 and -0.0 are one group: which of the two the engine names it by tells whose row came first."""
    return tuple(part + 0.0 if isinstance(part, float) else part for part in key)


def _in_order(part: Any) -> tuple[bool, str, Any]:
    """A sort key for group keys. The engine's own order may reveal which row came first."""
    return part is None, type(part).__name__, 0 if part is None else part


def shown_plan(plan: Plan) -> str:
    """How units were bounded, as a sentence for the claim."""
    if plan.kind == PlanKind.ROWS:
        return "each row is one unit" if plan.rows == 1 else f"each record is one unit, and is in at most {plan.rows} rows"
    if plan.kind == PlanKind.SAMPLED:
        return f"of each unit at most {plan.groups} groups count, chosen at random, each as at most {plan.each} rows"
    when = "when the table was registered" if plan.kind == PlanKind.REGISTERED else "in this query"
    return f"the rows of one unit weigh at most {plan.rows} together, weighted {when}"
