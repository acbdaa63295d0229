"""Pricing: how units are bounded, what is measured, and which part of epsilon each measurement gets."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import lru_cache

from discreet.core import Event, Pure, Unit, check
from discreet.core.event import Gaussian
from discreet.errors import InvalidQuery, InvalidValue
from discreet.noise import discrete_laplace_error
from discreet.query.cut import CutShare, cut_share
from discreet.query.engines.request import Plan
from discreet.query.gaussian import Gaussians, multiplier
from discreet.query.groups import of_set, public_keys
from discreet.query.joint import MOST_NUMBERS, Joint, common_steps
from discreet.query.operations import OutputOp, PlanKind
from discreet.query.quantiles import Quantiles
from discreet.query.split import split, worst
from discreet.query.statistics.bias import Column, bias_columns
from discreet.query.statistics.quantity import Bounding, Measure, Quantity, RowCount, UnitCount
from discreet.query.statistics.statistic import CONFIDENCE, MOST_ROWS, TYPICAL
from discreet.query.threshold import Threshold
from discreet.query.together import Weights, of_box, of_laplace, of_normal
from discreet.query.tree import Output, Question, copies

FINEST = 38  # binary digits of the steps between the middle of the bounds and their ends, where the noise fits
FINEST_MEANS = 26  # where means over the rows of a unit count: their sums are within 64 bits in every engine
COARSEST = 6
HEAVIEST = 1e9  # weight of a column, and one over the least
MOST_COPIES = 1 << 16  # rows that may be made of one record
WIDEST = 1 << 49  # of noise scales: beyond it whole numbers would not fit 64 bits


@dataclass(frozen=True, slots=True)
class Priced:
    """A question with its measurements and their parts of epsilon. `place` says which measurement a quantity is.

    Those in `joint` share one noise; its epsilon is that of the first of them, and the others have 0.
    """

    question: Question
    plan: Plan
    measures: tuple[Measure, ...]
    epsilons: tuple[float, ...]
    place: Mapping[Quantity, int] = field(hash=False)
    keys: tuple[tuple[object, ...], ...] | None  # public keys, or None: they are released by threshold
    threshold: int | None  # which measurement decides about keys
    delta: float
    shares: tuple[Column, ...] = ()  # the columns about clamping and bounding, if they were asked for
    joint: tuple[int, ...] = ()  # measurements under one noise; the one that decides about keys comes first
    confidence: float = CONFIDENCE  # of each interval
    more: tuple[Priced, ...] = ()  # the further grouping sets of the query, each measured by itself
    cut: CutShare | None = None  # how much bounding cuts, told once for the whole query
    multiplier: float = 0.0  # of Gaussian noise on the measurements in `joint`; 0 where it is not Gaussian
    gaussian_delta: float = 0.0  # what that noise may fail with

    def selector(self) -> Threshold:
        """The mechanism that releases keys."""
        assert self.threshold is not None
        measure = self.measures[self.threshold]
        each = 1 if measure.term is None else measure.sensitivity  # a unit counts once in a group; its rows may all be in one
        if self.threshold not in self.joint:
            return _selector(self.epsilons[self.threshold], self.delta, measure.sensitivity, each, 1)
        noise = self.noise()
        assert isinstance(noise, Joint)
        return _selector(self.epsilons[self.threshold], self.delta, noise.sensitivity, each * noise.times[0], len(self.joint))

    def noise(self) -> Joint | Gaussians:
        """What the measurements in `joint` get."""
        if self.multiplier:
            return _gaussians(tuple(self.measures[m].sensitivity for m in self.joint), _parts(self.plan), self.multiplier)
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
            noise = self.noise()
            together = noise.error(confidence) if isinstance(noise, Joint) else noise.error(self.joint.index(m), confidence)
            return float(together) * self.step(m)
        scale = Fraction(self.measures[m].sensitivity) / Fraction(self.epsilons[m])
        return float(discrete_laplace_error(float(scale), confidence)) * self.step(m)

    def reach(self, places: Sequence[int], failing: float) -> Callable[[Weights], float] | None:
        """How far from 0 the noise of a weighted sum of these numbers is, but with probability `failing`; a step of each is for
        whole numbers. None where some share a noise and some do not. Noise that is cut off at the threshold counts as whole."""
        steps, joint = [self.step(m) for m in places], [m in self.joint for m in places]
        if any(joint) != all(joint):
            return None
        noise = self.noise() if all(joint) else None

        def reach(weights: Weights) -> float:
            units = tuple(weight * step for weight, step in zip(weights, steps))
            if isinstance(noise, Joint):
                return float(noise.scale) * of_box(units, len(self.joint), failing) + sum(units)
            if noise is None:
                scales = [float(self.measures[m].sensitivity / self.epsilons[m]) for m in places]
                return of_laplace(tuple(a * b for a, b in zip(scales, units)), failing) + sum(units)
            sigmas = [noise.sigmas[self.joint.index(m)] for m in places]
            return of_normal(tuple(a * b for a, b in zip(sigmas, units)), failing) + sum(units)

        return reach

    def __contains__(self, quantity: Quantity) -> bool:
        return quantity in self.place

    def half_width(self, quantity: Quantity) -> float:
        """Half of the interval of a quantity in the answer, as far as it is known before: of a group of typical size."""
        m = self.place[quantity]
        rows = MOST_ROWS if self.counted(m) is None and self.plan.kind == PlanKind.ROWS else TYPICAL
        return self.error(m, self.confidence) + rows * self.measures[m].rounding

    def counted(self, m: int) -> int | None:
        """A measurement that counts the rows whose rounding is in measurement `m`."""
        term = self.measures[m].term
        counts = (RowCount(), *(() if term is None or term.of is None else (RowCount(term.of),)))
        return next((self.place[count] for count in counts if count in self.place), None)

    @property
    def sets(self) -> tuple[Priced, ...]:
        """All grouping sets of the query."""
        return (self, *self.more)

    @property
    def spent(self) -> tuple[float, float]:
        """The epsilon and the delta of all that is measured."""
        cut = sum(self.cut.epsilons) if self.cut else 0.0
        delta = sum(one.gaussian_delta + (one.delta if one.keys is None else 0.0) for one in self.sets)
        return sum(sum(one.epsilons) for one in self.sets) + cut, delta

    def events(self) -> tuple[Event, ...]:
        """What runs, one event per measurement, in order."""
        events: list[Event] = [event for one in self.more for event in one.events()]
        for i, (measure, epsilon) in enumerate(zip(self.measures, self.epsilons)):
            if i == self.threshold:
                events.append(self.selector().event)
            elif measure.bins is not None:
                events += quantile_events(measure, epsilon)
            elif i not in self.joint[1:]:
                events.append(Gaussian(self.multiplier) if self.multiplier and i in self.joint else Pure(epsilon))
        return (*events, *(self.cut.events if self.cut else ()))


@lru_cache(256)
def _selector(epsilon: float, delta: float, sensitivity: int, each: int, numbers: int) -> Threshold:
    return Threshold(epsilon, delta, sensitivity, each, numbers)


@lru_cache(256)
def _noise(sensitivities: tuple[int, ...], epsilon: float) -> Joint:
    return Joint(sensitivities, epsilon)


@lru_cache(256)
def _gaussians(sensitivities: tuple[int, ...], groups: int, multiplier: float) -> Gaussians:
    return Gaussians(sensitivities, groups, multiplier)


def _parts(plan: Plan) -> int:
    """Into how many equal parts, one in a group each, what one unit moves a number by is cut at least."""
    return max(1, plan.groups) if plan.kind == PlanKind.SAMPLED else 1


def quantile_events(measure: Measure, epsilon: float) -> list[Event]:
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
        most = copies(question.rows)
        if most is None:
            raise InvalidQuery(
                "Each row is a unit here, and a JOIN can make any number of one. A public table can be joined on what it is "
                'unique on, if the schema declares that: [wards] public = true, unique = ["ward"], and with repeats = 3 '
                "if up to three rows agree on that. Or say whose rows they are: unit=user('id', rows=1)."
            )
        if most > MOST_COPIES:
            raise InvalidQuery(
                f"These joins may make {most:,} rows of one record, more than {MOST_COPIES:,}. Join fewer tables, or such as "
                "are unique."
            )
        return Plan(PlanKind.ROWS, most)
    if unit.rows is None:
        raise InvalidValue(f"{unit} has no bound on its rows, so nothing can be added up. Say one: user({unit.key!r}, rows=…).")
    if groups is not None or any(statistic.counts_units for statistic in question.aggregates):
        most = min(groups or unit.rows, unit.rows) if question.keys else 1
        return Plan(PlanKind.SAMPLED, unit.rows, most, max(1, unit.rows // most))
    return Plan(PlanKind.REGISTERED if registered else PlanKind.WEIGHTED, unit.rows)


def price(
    question: Question, unit: Unit, plan: Plan, *, epsilon: float, delta: float | None, weights: Mapping[str, float],
    bias: bool = False, noise: str | None = None,
) -> Priced:  # fmt: skip
    """The measurements of a question, with epsilon divided among them; each grouping set has an equal part.

    `noise` is laplace or gaussian; None takes whichever is less, as far as there is a delta for it.
    """
    if noise == "gaussian" and not delta:
        raise InvalidQuery("Gaussian noise needs a delta, such as delta=1e-6.")
    shares = bias_columns(question, plan) if bias else ()
    unknown = set(weights) - {*question.names, *(column.name for column in shares)}
    if unknown:
        raise InvalidValue(f"weights names {min(unknown)!r}, and the answer has {', '.join(question.names)}.")
    cut = cut_share(plan, unit, epsilon, WIDEST)
    spare = sum(cut.grains) if cut else 0
    if question.sets is None:
        return replace(_finest(question, unit, plan, epsilon, delta, weights, shares, noise, spare), cut=cut)
    parts = split(epsilon, [{i: 1.0} for i in range(len(question.sets))], len(question.sets), spare)
    sets = [of_set(question, places) for places in question.sets]
    spending = len(sets) if noise == "gaussian" else sum(public_keys(one) is None for one in sets)
    part, kind = delta and delta / max(1, spending), noise or "laplace"
    first, *more = (_finest(one, unit, _of_set(plan, one), mine, part, weights, shares, kind)
                    for one, mine in zip(sets, parts))  # fmt: skip
    return replace(first, more=tuple(more), cut=cut and replace(cut, plan=first.plan))


def _of_set(plan: Plan, question: Question) -> Plan:
    """How units are bounded in one grouping set: where they are sampled, all rows of one count in a total without keys."""
    return replace(plan, groups=1, each=plan.rows) if plan.kind == PlanKind.SAMPLED and not question.keys else plan


def _finest(
    question: Question, unit: Unit, plan: Plan, epsilon: float, delta: float | None, weights: Mapping[str, float],
    shares: tuple[Column, ...], noise: str | None, spare: int = 0,
) -> Priced:  # fmt: skip
    """On the finest grid whose noise fits 64 bits. `spare` grains of epsilon are left for what is measured beside."""
    times = 2 if unit.relation == "replace" else 1
    for digits in range(FINEST_MEANS if plan.kind == PlanKind.SAMPLED else FINEST, COARSEST - 1, -1):
        bounding = Bounding(plan, times, 1 << digits)
        if digits > COARSEST and bounding.weight << digits > min(WIDEST * epsilon, check.LARGEST_WHOLE):
            continue
        priced = _price(question, unit, bounding, epsilon, delta, weights, shares, spare, noise)
        if _fits(priced):
            return priced
    raise InvalidQuery(
        f"epsilon {epsilon:g} is too little for {len(priced.measures)} measurements of units of {unit.rows} rows: the noise "
        "would not fit 64 bits. Ask fewer statistics, or bound the rows of a unit more."
    )


def _fits(priced: Priced) -> bool:
    if any(measure.sensitivity > check.LARGEST_WHOLE for measure in priced.measures):
        return False
    alone = [i for i in range(len(priced.measures)) if i not in priced.joint]
    if priced.multiplier:
        widest = max(priced.measures[m].sensitivity for m in priced.joint) * priced.multiplier * math.sqrt(len(priced.joint))
        return widest <= WIDEST and all(priced.measures[i].sensitivity <= WIDEST * priced.epsilons[i] for i in alone)
    joint = common_steps(tuple(priced.measures[m].sensitivity for m in priced.joint))[1] if priced.joint else 0
    widest = min(WIDEST * (priced.epsilons[priced.joint[0]] if priced.joint else 1.0), check.LARGEST_WHOLE)
    return joint <= widest and all(priced.measures[i].sensitivity <= WIDEST * priced.epsilons[i] for i in alone)


def _price(
    question: Question, unit: Unit, bounding: Bounding, epsilon: float, delta: float | None, weights: Mapping[str, float],
    shares: tuple[Column, ...], spare: int, noise: str | None,
) -> Priced:  # fmt: skip
    keys = public_keys(question)
    threshold = _threshold(unit, bounding, delta) if keys is None else None
    asked = [set(statistic.measures()) for statistic in question.aggregates] + ([{threshold}] if threshold else [])
    statistics = [statistic.measures(asked) for statistic in question.aggregates]
    measured = [*statistics, *(column.statistic.measures() for column in shares), *([{threshold: 1.0}] if threshold else [])]
    place = {quantity: i for i, quantity in enumerate(dict.fromkeys(quantity for needs in measured for quantity in needs))}
    if not place:
        raise InvalidQuery(
            "The query asks nothing of the rows, and its groups are public. Ask for a statistic: COUNT(*), SUM …"
        )
    measures = [quantity.measure(bounding, _ranks(quantity, question, statistics)) for quantity in place]
    columns = [_needs(output, statistics, weights.get(name, 1.0)) for name, output in zip(question.names, question.outputs)]
    columns += [dict(statistics[i]) for i in question.only_later()]  # what HAVING and ORDER BY decide by
    columns = [column for column in columns if column] + ([{threshold: 1.0}] if threshold else [])
    main = {quantity for column in columns for quantity in column}
    columns += [_scaled(column.statistic.measures(), weights.get(column.name, 1.0)) for column in shares]
    needs = [{place[quantity]: need for quantity, need in column.items()} for column in columns]
    spare += sum(3 * len(measure.ranks) for measure in measures)
    added = [quantity for quantity, i in place.items() if not measures[i].alone]
    added.sort(key=lambda quantity: quantity != threshold)
    together = [tuple(place[q] for q in added), tuple(place[q] for q in added if q in main)]
    decides = None if threshold is None else place[threshold]
    ways = {(), *(joint for joint in together if 1 < len(joint) <= MOST_NUMBERS)} if noise != "gaussian" else set()
    divided = [(joint, 0.0, *_divide(epsilon, needs, len(measures), joint, _times(len(joint)), spare))
               for joint in sorted(ways)]  # fmt: skip
    numbers = tuple(m for m in together[0] if m != decides)
    part = (delta or 0.0) / (2 if keys is None else 1)  # the other half is for releasing keys
    less = noise is None and keys is not None and _many(bounding.plan, len(numbers))  # half a delta would release fewer keys
    if numbers and part and (noise == "gaussian" or less):
        more = (epsilon * multiplier(epsilon, part)) ** 2 * len(numbers) / (2 * _parts(bounding.plan))
        divided.append((numbers, part, *_divide(epsilon, needs, len(measures), numbers, more, spare)))
    if not divided:
        raise InvalidQuery("There is nothing here that Gaussian noise is added to. Leave noise out.")
    joint, failing, parts, _ = min(divided, key=lambda way: way[3])
    return Priced(
        question, bounding.plan, tuple(measures), tuple(parts), place, keys, decides,
        part if failing else delta or 0.0, shares, joint, multiplier=multiplier(parts[joint[0]], failing) if failing else 0.0,
        gaussian_delta=failing,
    )  # fmt: skip


def _many(plan: Plan, numbers: int) -> bool:
    """Whether a unit is in so many groups, or numbers are so many, that Gaussian noise may be less than Laplace noise."""
    return _parts(plan) > 4 or numbers > MOST_NUMBERS


def _times(size: int) -> float:
    """The variance of one of `size` numbers under one noise, by that of a number that has the epsilon alone."""
    return (size + 1) * (size + 2) / 6


def _threshold(unit: Unit, bounding: Bounding, delta: float | None) -> Quantity:
    """What decides which groups are released: the number of units where they are sampled, else of weighted rows."""
    if unit.relation == "replace":
        raise InvalidQuery("Names of groups can be released where units are added or removed; for replaced units list "
                           "them: values = [...] in the schema.")  # fmt: skip
    if not delta:
        raise InvalidQuery(
            "The groups are not public, so releasing their names needs a delta, such as delta=1e-6; or list them in the "
            "schema: values = [...]."
        )
    return UnitCount() if bounding.sampled else RowCount()


def _ranks(quantity: Quantity, question: Question, statistics: list[Mapping[Quantity, float]]) -> tuple[float, ...]:
    """The ranks that statistics ask of a quantity."""
    users = (statistic for statistic, needs in zip(question.aggregates, statistics) if quantity in needs)
    return tuple(sorted({rank for statistic in users for rank in statistic.ranks}))


def _divide(
    epsilon: float, needs: list[dict[int, float]], count: int, joint: tuple[int, ...], more: float, spare: int
) -> tuple[list[float], float]:
    """The parts of epsilon if these measurements share one noise, and the worst relative error then, squared.

    `more` is the variance of each of them, by that of a number that has the epsilon alone.
    """
    alone = [i for i in range(count) if i not in joint]
    first = 1 if joint else 0
    merged = []
    for need in needs:
        column = {first + alone.index(i): part for i, part in need.items() if i in alone}
        shared = math.sqrt(more * sum(part * part for i, part in need.items() if i in joint))
        merged.append(column | ({0: shared} if shared else {}))
    parts = split(epsilon, merged, first + len(alone), spare)
    epsilons = [0.0] * count
    for i in alone:
        epsilons[i] = parts[first + alone.index(i)]
    if joint:
        epsilons[joint[0]] = parts[0]
    return epsilons, worst(merged, parts)


def _needs(output: Output, statistics: list[Mapping[Quantity, float]], weight: float) -> dict[Quantity, float]:
    """How much of a column's relative error each quantity brings, for a group of one size or another."""
    if output.op == OutputOp.STATISTIC:
        return _scaled(statistics[output.value], weight)
    most: dict[Quantity, float] = {}
    for part in output.args:
        for quantity, need in _needs(part, statistics, weight).items():
            most[quantity] = max(need, most.get(quantity, 0.0))
    return most


def _scaled(needs: Mapping[Quantity, float], weight: float) -> dict[Quantity, float]:
    weight = check.positive("weights", weight)
    if not 1 / HEAVIEST <= weight <= HEAVIEST:
        raise InvalidValue(f"weights must be between {1 / HEAVIEST:g} and {HEAVIEST:g}; got {weight:g}.")
    return {quantity: need * weight for quantity, need in needs.items()}
