"""What a question costs: how units are bounded, what is measured, and which part of epsilon each measurement gets."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from functools import lru_cache

from discreet.core import Event, Pure, Unit, check
from discreet.errors import InvalidQuery, InvalidValue
from discreet.noise import discrete_laplace_error
from discreet.query.bias import Share, shares
from discreet.query.engines.request import Plan
from discreet.query.joint import MOST, Joint, common_steps
from discreet.query.measures import RANKED, Measure, Measures, bounds_of, optional
from discreet.query.split import split, worst
from discreet.query.threshold import Threshold
from discreet.query.tree import Aggregate, Output, Question, Scalar, single

FINEST = 1 << 14  # steps between the middle of the bounds and their ends
WIDEST = 1 << 49  # of noise scales: beyond it whole numbers would not fit 64 bits
ROUGH = 0.25  # how exact a share of what was clamped or cut is meant to be, beside the columns that were asked


@dataclass(frozen=True, slots=True)
class Priced:
    """A question with its measurements and their parts of epsilon. `place` finds the measurements of each statistic.

    Those in `joint` share one noise; its epsilon stands with the first of them, and 0 with the others.
    """

    question: Question
    plan: Plan
    measures: tuple[Measure, ...]
    epsilons: tuple[float, ...]
    place: Mapping[tuple[str, Scalar | None], int] = field(hash=False)
    keys: tuple[tuple[object, ...], ...] | None  # public keys, or None: they are released by threshold
    threshold: int | None  # which measurement decides about keys
    delta: float
    shares: tuple[Share, ...] = ()  # what is told of clamping and bounding, if that was asked
    joint: tuple[int, ...] = ()  # measurements under one noise; the one that decides about keys comes first

    def selector(self) -> Threshold:
        """The mechanism that releases keys."""
        assert self.threshold is not None
        measure = self.measures[self.threshold]
        each = 1 if measure.term is None else measure.sensitivity  # a unit counts once in a group; its rows may all be in one
        if self.threshold not in self.joint:
            return _selector(self.epsilons[self.threshold], self.delta, measure.sensitivity, each, 1)
        noise = self.noise()
        return _selector(self.epsilons[self.threshold], self.delta, noise.sensitivity, each * noise.times[0], len(self.joint))

    def noise(self) -> Joint:
        """What the measurements in `joint` get."""
        return _noise(tuple(self.measures[m].sensitivity for m in self.joint), self.epsilons[self.joint[0]])

    def step(self, m: int) -> float:
        """What one step of a noisy number stands for."""
        times = self.noise().times[self.joint.index(m)] if m in self.joint else 1
        return self.measures[m].scale / times

    def error(self, m: int, confidence: float) -> float:
        """The half-width of an interval that holds with this confidence for the noise of measurement `m`."""
        if m == self.threshold:
            return float(self.selector().interval(confidence)) * self.step(m)
        if m in self.joint:
            return float(self.noise().error(confidence)) * self.step(m)
        scale = Fraction(self.measures[m].sensitivity) / Fraction(self.epsilons[m])
        return float(discrete_laplace_error(float(scale), confidence)) * self.step(m)

    def events(self) -> tuple[Event, ...]:
        """What runs, one event per measurement, in order."""
        made: list[Event] = []
        for i, (measure, epsilon) in enumerate(zip(self.measures, self.epsilons)):
            if i == self.threshold:
                made.append(self.selector().event)
            elif measure.bins is not None:
                made += quantile_events(measure, epsilon)
            elif i not in self.joint[1:]:
                made.append(Pure(epsilon))
        return tuple(made)


@lru_cache(256)
def _selector(epsilon: float, delta: float, sensitivity: int, each: int, numbers: int) -> Threshold:
    return Threshold(epsilon, delta, sensitivity, each, numbers)


@lru_cache(256)
def _noise(sensitivities: tuple[int, ...], epsilon: float) -> Joint:
    return Joint(sensitivities, epsilon)


def quantile_events(measure: Measure, epsilon: float) -> list[Event]:
    from discreet.query.quantiles import Quantiles

    return list(Quantiles(measure.ranks, epsilon, measure.sensitivity).events)


def choose_plan(question: Question, unit: Unit, *, registered: bool, groups: int | None) -> Plan:
    """How units are bounded: a row each; as registered; sampled where groups are bounded; else weighted."""
    if unit.relation == "zero_out":
        raise InvalidValue("Private SQL knows units that are added, removed or replaced; zero_out is for training.")
    if unit.key is None:
        if unit.rows != 1:
            raise InvalidValue(f"A unit of {unit.rows} rows needs a key: user('column', rows={unit.rows}).")
        if groups is not None:
            raise InvalidValue("groups bounds the groups of one unit; here each row is a unit, and is in one group.")
        if not single(question.rows):
            raise InvalidQuery("Each row is a unit here, and a JOIN, or a UNION ALL of a table with itself, can make several "
                               "of one. Join beforehand, or say whose rows they are: unit=user('id', rows=1).")  # fmt: skip
        return Plan("rows", 1)
    if unit.rows is None:
        raise InvalidValue(f"{unit} has no bound on its rows, so nothing can be added up. Say one: user({unit.key!r}, rows=…).")
    wanted = any(it.kind == "units" for it in question.aggregates)
    if groups is not None or wanted:
        most = min(groups or unit.rows, unit.rows) if question.keys else 1
        return Plan("sampled", unit.rows, most, max(1, unit.rows // most))
    return Plan("registered" if registered else "weighted", unit.rows)


def price(
    question: Question, unit: Unit, plan: Plan, *, epsilon: float, delta: float | None, weights: Mapping[str, float],
    bias: bool = False,
) -> Priced:  # fmt: skip
    """The measurements of a question, with epsilon divided among them, on the finest grid whose noise fits 64 bits."""
    told = shares(question, plan) if bias else ()
    unknown = set(weights) - {*question.names, *(it.name for it in told)}
    if unknown:
        raise InvalidValue(f"weights names {min(unknown)!r}, and the answer has {', '.join(question.names)}.")
    for finest in (FINEST, FINEST >> 4, FINEST >> 8):
        made = _price(question, unit, plan, epsilon, delta, weights, told, finest)
        if _fits(made):
            return made
    raise InvalidQuery(f"epsilon {epsilon:g} is too little for {len(made.measures)} measurements of units of {unit.rows} rows: "
                       "the noise would not fit 64 bits. Ask fewer statistics, or bound the rows of a unit more.")  # fmt: skip


def _fits(it: Priced) -> bool:
    alone = [i for i in range(len(it.measures)) if i not in it.joint]
    joint = common_steps(tuple(it.measures[m].sensitivity for m in it.joint))[1] if it.joint else 0
    return joint <= WIDEST * (it.epsilons[it.joint[0]] if it.joint else 1.0) and all(
        it.measures[i].sensitivity <= WIDEST * it.epsilons[i] for i in alone
    )


def _price(
    question: Question, unit: Unit, plan: Plan, epsilon: float, delta: float | None, weights: Mapping[str, float],
    told: tuple[Share, ...], finest: int,
) -> Priced:  # fmt: skip
    keys = public_keys(question)
    builder = Measures(plan, 2 if unit.relation == "replace" else 1, finest, counted=keys is None and plan.kind != "sampled")
    for aggregate in question.aggregates:
        builder.need(aggregate, question)
    for share in told:
        builder.share(share)
    threshold = builder.threshold(unit) if keys is None else None
    if threshold is not None and not delta:
        raise InvalidQuery(
            "The groups are not public, so releasing their names needs a delta, such as delta=1e-6; or list them in the "
            "schema: values = [...]."
        )
    if not builder.measures:
        raise InvalidQuery(
            "The query asks nothing of the rows, and its groups are public. Ask for a statistic: COUNT(*), SUM …"
        )
    needs = [
        _needs(output, builder, question, weights.get(name, 1.0)) for name, output in zip(question.names, question.outputs)
    ]
    needs = [need for need in needs if need]
    needs += [{threshold: 1.0}] if threshold is not None else []
    main = {i for need in needs for i in need}
    needs += [{i: ROUGH * _weight(weights.get(it.name, 1.0)) for i in builder.share(it)} for it in told]
    spare = sum(3 * len(measure.ranks) for measure in builder.measures)
    added = [i for i, measure in enumerate(builder.measures) if measure.bins is None]
    added.sort(key=lambda i: i != threshold)
    ways = {(), *(it for it in (tuple(added), tuple(i for i in added if i in main)) if 1 < len(it) <= MOST)}
    found = [(joint, *_divide(epsilon, needs, len(builder.measures), joint, spare)) for joint in sorted(ways)]
    joint, parts, _ = min(found, key=lambda it: it[2])
    return Priced(
        question, plan, tuple(builder.measures), tuple(parts), builder.place, keys, threshold, delta or 0.0, told, joint
    )


def _divide(
    epsilon: float, needs: list[dict[int, float]], count: int, joint: tuple[int, ...], spare: int
) -> tuple[list[float], float]:
    """The parts of epsilon if these measurements share one noise, and the worst relative error then, squared.

    The variance of one of d numbers under one noise is (d + 1) (d + 2) / 6 times that of a number that has the epsilon alone.
    """
    more = (len(joint) + 1) * (len(joint) + 2) / 6
    alone = [i for i in range(count) if i not in joint]
    first = 1 if joint else 0
    merged = []
    for need in needs:
        column = {first + alone.index(i): it for i, it in need.items() if i in alone}
        shared = math.sqrt(more * sum(it * it for i, it in need.items() if i in joint))
        merged.append(column | ({0: shared} if shared else {}))
    parts = split(epsilon, merged, first + len(alone), spare)
    made = [0.0] * count
    for i in alone:
        made[i] = parts[first + alone.index(i)]
    if joint:
        made[joint[0]] = parts[0]
    return made, worst(merged, parts)


def public_keys(question: Question) -> tuple[tuple[object, ...], ...] | None:
    """All groups, if they are public; the one group if there are no keys; None if their names are private."""
    if not question.keys:
        return ((),)
    lists = [key.values for key in question.keys]
    if any(values is None for values in lists):
        return None
    if math.prod(len(values or ()) for values in lists) > 1_000_000:
        raise InvalidQuery("The public keys make more than a million groups. Ask for fewer at a time.")
    found: tuple[tuple[object, ...], ...] = ((),)
    for values in lists:
        found = tuple((*head, value) for head in found for value in values or ())
    return found


def _needs(output: Output, builder: Measures, question: Question, weight: float) -> dict[int, float]:
    """How much of a column's relative error each measurement brings, for a group of one size or another."""
    weight = _weight(weight)
    if output.op == "statistic":
        return {i: need * weight for i, need in _statistic_needs(question.aggregates[output.value], builder).items()}
    found: dict[int, float] = {}
    for part in output.args:
        for i, need in _needs(part, builder, question, weight).items():
            found[i] = max(need, found.get(i, 0.0))
    return found


def _weight(weight: float) -> float:
    return check.positive("weights", weight)


def _statistic_needs(it: Aggregate, builder: Measures) -> dict[int, float]:
    count = builder.place.get(("count", optional(it.of)))
    if it.kind in ("count", "count_of"):
        return {builder.count(it.of): 1.0}
    if it.kind == "units":
        return {builder.units(): 1.0}
    if it.kind in RANKED:
        return {builder.place["histogram", it.of]: 1.0}  # its rank is about as wrong as a count
    centred = builder.place.get(("centred", it.of))
    if it.kind == "sum" and centred is None:
        return {builder.place["sum", it.of]: 1.0}
    assert count is not None
    assert centred is not None
    if it.kind == "sum":
        low, high = bounds_of(it.of)
        middle, reach = abs(low + high) / 2, max(abs(low), abs(high))
        return {count: middle / reach, centred: (high - low) / 2 / reach}
    needs = {count: 0.5, centred: math.sqrt(0.75)}  # a mean halfway to an end; in equal parts no worse off than a count
    if it.kind != "mean":
        needs[builder.place["square", it.of]] = 1.0
    return needs
