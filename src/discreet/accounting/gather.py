"""Very many different events as fewer, slightly worse ones.

Events that differ in numbers alone are put into cells, and each cell counts as its worst corner: the least noise, the largest
epsilon, the largest rate of any event in it. What stands in an event's place dominates it:

- less Laplace or Gaussian noise: more noise is noise added to the output. That a Laplace law of larger scale is a smaller one
  plus something independent holds on the whole numbers as well (its characteristic functions divide into a mixture);
- less noise of Student's t on one number: its profile grows with the shift (docs/theory/encoded-gradients.md);
- a larger epsilon or delta of Pure, Approximate, NoisyMax and Exponential, a larger rho, a larger curvature: by definition; a
  larger epsilon and fewer categories of RandomizedResponse: more random answers, or a larger profile;
- a larger rate: the likelihood ratio 1 - q + q r grows with q in the convex order; where a unit is replaced, both worlds at
  a smaller rate are those at a larger one mixed with one and the same world, and H is jointly convex;
- fewer users of a shuffle: some of the reports that hide one are given away;
- fewer steps of a pass: the mean of fewer independent likelihood ratios is larger in the convex order;
- more repeats, and a larger group: what is seen grows.

Where too many are left that differ in what cannot be moved, they are put down to simpler ones first (`simplified`). Noise of
the discrete Gaussian is, but for a factor of 1 +- 1e-33, less Gaussian noise rounded to whole numbers at random: rounding has a
variance of 4, and post-processing costs nothing. Little such noise is known by its Rényi divergences, a Delta^2 / 2 sigma^2 of
order a (Canonne, Kamath, Steinke 2020). docs/theory/accounting-composition.md has the proof.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import cast

import numpy as np
from numpy.typing import NDArray

from discreet.accounting import objective, student
from discreet.accounting import profile as profiles
from discreet.accounting.profile import Profile
from discreet.accounting.rounding import quotient_down, quotient_up
from discreet.core import event as events

DIFFERENT = 600  # events that are composed one by one
COSTLY: dict[type, int] = {  # in plain events
    events.Shuffled: 10, events.RandomAllocation: 8, events.StudentT: 3, events.PoissonReplace: 3,
}  # fmt: skip
MERGED = (events.Gaussian, events.Concentrated)  # any number of these is one
ROUNDED = 4.0  # the variance of a random rounding to whole numbers
PLAIN, SAMPLED = 6.0, 2.5  # sigma from which Gaussian noise that is rounded costs less than knowing divergences alone
ORDERS = 1 + np.geomspace(1e-5, 1e7, 500)  # at which divergences are turned into deltas
EPSILONS = 800  # points of a curve known by divergences
Parameters = tuple[tuple[bool, float], ...]  # whether larger is worse, and the number
Row = tuple[events.Event, Parameters]
SETTLED = 1e-6  # a share of all spread of which no cell exceeds more


def weight(counts: Iterable[events.Event]) -> int:
    """About how many plain events take as long to compose."""
    return sum(map(_cost, counts))


def _cost(event: events.Event) -> int:
    inner, cost = getattr(event, "event", None), COSTLY.get(type(event), 1)
    while isinstance(inner, (events.Group, events.Repeat)):
        inner = inner.event
    if isinstance(event, events.PoissonReplace) and not isinstance(inner, events.Gaussian):
        return 12
    return max(cost, 8) if isinstance(inner, events.Sequence) else cost


def concentrated(square: float) -> Profile:
    """What is known of a pair whose divergence of every order a is at most a * square / 2, in both directions.

    delta <= e^{(a - 1)(D - epsilon)} / a (1 - 1/a)^{a - 1} (Canonne, Kamath, Steinke 2020, Proposition 12), and the total
    variation is at most the square root of half the Kullback-Leibler divergence (Pinsker).
    """
    farthest = square / 2 + 45 * math.sqrt(square)  # delta is below 1e-400 there
    if not 0 < farthest < 1e14:
        return profiles.unbounded() if farthest else profiles.pure(0.0)
    grid = np.concatenate([[0.0], np.geomspace(1e-4 * min(math.sqrt(square), farthest), farthest, EPSILONS)])
    log = (ORDERS - 1) * (ORDERS * square / 2 - grid[:, None] + np.log1p(-1 / ORDERS)) - np.log(ORDERS)
    known = min(math.sqrt(square / 4) * (1 + 1e-15), 1.0)
    delta = np.minimum(np.exp(np.minimum(log.min(axis=1), 0.0)) * (1 + 1e-11), known)
    table = grid, np.minimum.accumulate(np.maximum(delta, 5e-324))
    return profiles.from_table(table, table)


def gathered(counts: dict[events.Event, int]) -> dict[events.Event, int]:
    """The events with how often each occurs, in few cells. The cell whose corner costs most beyond its events is parted first.

    What is merged exactly, plain Gaussians and zCDP, stays as it is.
    """
    kinds = _kinds(counts)
    if sum(_cost(kind[0][0]) for kind in kinds) > DIFFERENT // 4:
        simpler: dict[events.Event, int] = {}
        for item, times in counts.items():
            simple = simplified(item)
            simpler[simple] = simpler.get(simple, 0) + times
        counts, kinds = simpler, _kinds(simpler)
    heap = [_Cell(_Kind(kind, counts), np.arange(len(kind))) for kind in kinds]
    heapq.heapify(heap)
    left = DIFFERENT - len(MERGED) - sum(cell.cost for cell in heap)
    enough = SETTLED * math.fsum(cell.spread for cell in heap)
    while heap and heap[0].excess > enough and left >= heap[0].cost:
        left -= heap[0].cost
        one, two = heap[0].parted()
        heapq.heapreplace(heap, one)
        heapq.heappush(heap, two)
    fewer: dict[events.Event, int] = {item: times for item, times in counts.items() if isinstance(item, MERGED)}
    for cell in heap:
        fewer[cell.corner] = fewer.get(cell.corner, 0) + cell.times
    return fewer


def _kinds(counts: Iterable[events.Event]) -> list[list[Row]]:
    """The events that differ in numbers alone, together."""
    kinds: dict[tuple[object, ...], list[Row]] = {}
    for item in counts:
        if not isinstance(item, MERGED):
            parameters = _parameters(item)
            kinds.setdefault((type(item), *_kind(item)) if parameters else (item,), []).append((item, parameters))
    return list(kinds.values())


class _Kind:
    """Events that differ in numbers alone: their logarithms, which grow as they get worse, and about what each event costs."""

    def __init__(self, rows: list[Row], counts: dict[events.Event, int]) -> None:
        self.rows, self.times = rows, [counts[item] for item, _ in rows]
        self.cost = _cost(rows[0][0])
        signs = np.array([1.0 if up else -1.0 for up, _ in rows[0][1]])
        numbers = [[value for _, value in parameters] for _, parameters in rows]
        self.worse = np.log(np.array(numbers, dtype=np.float64).reshape(len(rows), len(signs))) * signs
        self.spread = np.array(self.times, dtype=np.float64) * [_spread(item) for item, _ in rows]


class _Cell:
    """Events that count as the worst corner of all; `excess` is about what that costs, over the time it takes to part them."""

    def __init__(self, kind: _Kind, where: NDArray[np.int64]) -> None:
        self._kind, self._where, self.cost = kind, where, kind.cost
        self.times = sum(kind.times[row] for row in where)
        worst = where[kind.worse[where].argmax(axis=0)] if kind.worse.shape[1] else ()
        numbers = [kind.rows[row][1][column][1] for column, row in enumerate(worst)]
        self.corner = _made(kind.rows[where[0]][0], iter(numbers))
        self.spread = float(kind.spread[where].sum())
        self.excess = (self.times * _spread(self.corner) - self.spread) / self.cost if len(where) > 1 else 0.0

    def parted(self) -> tuple[_Cell, _Cell]:
        """In the middle of its longest side."""
        worse = self._kind.worse[self._where]
        least, most = worse.min(axis=0), worse.max(axis=0)
        side = int(np.argmax(most - least))
        low = worse[:, side] <= (least[side] + most[side]) / 2
        return _Cell(self._kind, self._where[low]), _Cell(self._kind, self._where[~low])

    def __lt__(self, other: _Cell) -> bool:
        return self.excess > other.excess


def _spread(event: events.Event) -> float:
    """About the variance of the loss. It decides which cells are parted, and nothing else."""
    match event:
        case events.Gaussian(value):
            return math.expm1(min(1 / value / value, 300.0))
        case events.Laplace(value):
            return math.expm1(min(1 / value, 150.0)) ** 2
        case events.DiscreteLaplace(value, size):
            return math.expm1(min(size / value, 150.0)) ** 2
        case events.DiscreteGaussian(value, size):
            return math.expm1(min((size / value) * (size / value), 300.0))
        case events.Concentrated(value):
            return math.expm1(min(2 * value, 300.0))
        case events.StudentT(value):
            return (max(event.sizes) / value) * (max(event.sizes) / value)
        case events.ObjectivePerturbation(value, curvature):
            return math.expm1(min(1 / value / value, 300.0)) + curvature
        case events.Approximate(value, delta):
            return math.expm1(min(value, 150.0)) ** 2 + delta
        case events.Poisson(rate, inner) | events.WithoutReplacement(rate, inner) | events.PoissonReplace(rate, inner):
            return rate * rate * _spread(inner)
        case events.RandomAllocation(inner, share) | events.Shuffled(inner, share):
            return _spread(inner) / share
        case events.Group(inner, size):
            return size * size * _spread(inner)
        case events.Repeat(inner, times):
            return times * _spread(inner)
        case events.Sequence(items):
            return math.fsum(map(_spread, items))
    return math.expm1(min(getattr(event, "epsilon", 0.0), 150.0)) ** 2


def simplified(event: events.Event) -> events.Event:
    """An event that dominates it, and can be moved in all of its parameters, wherever it stands."""
    match event:
        case events.DiscreteGaussian(sigma, sensitivity):
            if sigma < PLAIN:
                return events.Concentrated((sensitivity / sigma) ** 2 / 2 * (1 + 1e-14))
            return _rounded(event)
        case events.DiscreteLaplace(scale, sensitivity):
            return events.Pure(quotient_up(sensitivity, scale))
        case events.StudentT() if event.counts != (1,):
            return student.as_gaussian(event)
        case events.ObjectivePerturbation(noise_multiplier, curvature, True):
            return objective.as_gaussian(event) or events.ObjectivePerturbation(noise_multiplier, curvature)
        case events.Poisson() | events.PoissonReplace() | events.WithoutReplacement() | events.RandomAllocation():
            return replace(event, event=_within(event.event))
        case events.Group() | events.Repeat() | events.Shuffled():
            return replace(event, event=_within(event.event))
    return event


def _within(event: events.Event) -> events.Event:
    """The same inside a sample, where a mechanism known by its divergences alone composes far worse."""
    match event:
        case events.DiscreteGaussian(sigma) if sigma >= SAMPLED:
            return _rounded(event)
        case events.Sequence(items):
            return events.Sequence(_within(item) for item in items)
    return simplified(event)


def _rounded(event: events.DiscreteGaussian) -> events.Gaussian:
    """The Gaussian mechanism that it is a random rounding of, a little worse than that."""
    less = event.sigma * math.sqrt(1 - ROUNDED / event.sigma / event.sigma) * (1 - 1e-12)
    return events.Gaussian(quotient_down(less, event.sensitivity))


def _parameters(event: events.Event) -> Parameters:
    """The numbers that may be worse, each with whether worse is larger; none where that is not known."""
    match event:
        case events.Gaussian(value) | events.Laplace(value) | events.DiscreteLaplace(value):
            return ((False, value),)
        case events.StudentT(value, _, (size,), (1,)):
            return ((False, quotient_down(value, size)),) if size > 0 else ()
        case events.Pure(value) | events.NoisyMax(value) | events.Exponential(value) | events.Concentrated(value):
            return ((True, value),) if value > 0 else ()
        case events.RandomizedResponse(value, categories):
            return ((True, value), (False, categories)) if value > 0 else ()
        case events.Approximate(value, delta):
            return ((True, value), (True, delta)) if value > 0 and delta > 0 else ()
        case events.ObjectivePerturbation(value, curvature, False):
            return ((False, value), (True, curvature)) if curvature > 0 else ()
        case events.Poisson(rate, inner) | events.WithoutReplacement(rate, inner) | events.PoissonReplace(rate, inner):
            return ((True, rate), *_parameters(inner)) if rate > 0 else ()
        case events.RandomAllocation(inner, number) | events.Shuffled(inner, number):
            return ((False, number), *_parameters(inner))
        case events.Group(inner, number) | events.Repeat(inner, number):
            return ((True, number), *_parameters(inner))
        case events.Sequence(items):
            return tuple(each for item in items for each in _parameters(item))
    return ()


def _kind(event: events.Event) -> tuple[object, ...]:
    """All but these numbers."""
    match event:
        case events.DiscreteLaplace(_, whole):
            return (event.kind, whole)
        case events.StudentT(_, degrees, (_,), (1,)):
            return (event.kind, degrees)
        case events.Sequence(items):
            return (event.kind, *map(_kind, items))
    if (inner := getattr(event, "event", None)) is not None:
        return (event.kind, *_kind(inner)) if _parameters(event) else (event,)
    return (event.kind,) if _parameters(event) else (event,)


def _made(event: events.Event, numbers: Iterator[float]) -> events.Event:
    """The event with other numbers, in the order of `_parameters`."""
    if not _parameters(event):
        return event
    match event:
        case events.StudentT(_, degrees, (_,), (1,)):
            return events.StudentT(next(numbers), degrees, (1.0,), (1,))
        case events.DiscreteLaplace(_, sensitivity):
            return events.DiscreteLaplace(next(numbers), sensitivity)
        case events.RandomizedResponse() | events.Approximate() | events.ObjectivePerturbation():
            return type(event)(next(numbers), next(numbers))  # type: ignore[arg-type]
        case events.Poisson(_, inner) | events.WithoutReplacement(_, inner) | events.PoissonReplace(_, inner):
            return type(event)(next(numbers), _made(inner, numbers))
        case events.RandomAllocation() | events.Shuffled() | events.Group() | events.Repeat():
            number = cast(int, next(numbers))
            return type(event)(_made(event.event, numbers), number)
        case events.Sequence(items):
            return events.Sequence(_made(item, numbers) for item in items)
    return type(event)(next(numbers))  # type: ignore[call-arg]
