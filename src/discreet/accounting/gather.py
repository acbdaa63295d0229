"""Very many different events as fewer, slightly worse ones.

Each parameter is moved to the next point of a geometric grid on its worse side, so that events that are nearly the same become
the same. What is put in an event's place dominates it:

- less Laplace or Gaussian noise: more noise is noise added to the output. That a Laplace law of larger scale is a smaller one
  plus something independent holds on the whole numbers as well (its characteristic functions divide into a mixture);
- less noise of Student's t on one number: its profile grows with the shift (docs/theory/encoded-gradients.md);
- a larger epsilon of Pure, NoisyMax, Exponential, RandomizedResponse: by definition, or by more random answers;
- a larger rate: the likelihood ratio 1 - q + q r grows with q in the convex order; where a unit is replaced, both worlds at
  a smaller rate are those at a larger one mixed with one and the same world, and H is jointly convex;
- fewer users of a shuffle: some of the reports that hide one are given away;
- fewer steps of a pass: the mean of fewer independent likelihood ratios is larger in the convex order.

The discrete Gaussian cannot be moved: on whole numbers, more of its noise is not less of it plus something. Very many of them
are counted together by their divergences: that of order a is at most a Delta^2 / 2 sigma^2 (Canonne, Kamath, Steinke
2020). These add up and bound delta at every epsilon. That costs some percent of epsilon.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

import numpy as np

from discreet.accounting import profile as profiles
from discreet.accounting.profile import Profile
from discreet.core import event as events

DIFFERENT = 600  # events that are composed one by one
COSTLY: dict[type, int] = {events.Shuffled: 10, events.RandomAllocation: 8, events.PoissonReplace: 2}  # in plain events
ORDERS = 1 + np.geomspace(1e-5, 1e7, 500)  # at which divergences are turned into deltas
EPSILONS = 800  # points of a curve known by divergences
Parameters = tuple[tuple[bool, float], ...]  # whether it is worse upwards, and its logarithm
FINEST, COARSEST = -120, 8  # powers of 2^(1/4) tried as relative widths of the grid


def weight(counts: Iterable[events.Event]) -> int:
    """About how many plain events take as long to compose."""
    return sum(COSTLY.get(type(item), 1) for item in counts)


def without_discrete_gaussians(counts: dict[events.Event, int]) -> tuple[dict[events.Event, int], float]:
    """The events without discrete Gaussians, and the sum of Delta^2 / sigma^2 of these, rounded up."""
    rest = {item: n for item, n in counts.items() if not isinstance(item, events.DiscreteGaussian)}
    squares = [
        n * (item.sensitivity / item.sigma) ** 2 for item, n in counts.items() if isinstance(item, events.DiscreteGaussian)
    ]
    return rest, math.fsum(squares) * (1 + 1e-14)


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
    """The events with how often each occurs, moved to the finest grid on which few are different."""
    kinds: dict[tuple[object, ...], list[list[float]]] = {}
    for item in counts:
        if parameters := _parameters(item):
            kinds.setdefault((type(item), *_kind(item)), []).append([-log if up else log for up, log in parameters])
    tables = [(np.array(rows), COSTLY.get(kind[0], 1)) for kind, rows in kinds.items()]  # type: ignore[call-overload]
    kept = weight(item for item in counts if not isinstance(item, events.DiscreteGaussian) and not _parameters(item))
    low, high = FINEST, COARSEST
    while low < high:
        middle = (low + high) // 2
        cells = sum(each * len(np.unique(np.floor(table / 2.0 ** (middle / 4)), axis=0)) for table, each in tables)
        low, high = (low, middle) if kept + cells <= DIFFERENT else (middle + 1, high)
    fewer: dict[events.Event, int] = {}
    for item, times in counts.items():
        moved = _moved(item, 2.0 ** (high / 4)) if _parameters(item) else item
        fewer[moved] = fewer.get(moved, 0) + times
    return fewer


def _parameters(event: events.Event) -> Parameters:
    """What may be moved; nothing where that is not known to be on the worse side."""
    match event:
        case events.Gaussian(value) | events.Laplace(value) | events.DiscreteLaplace(value):
            return ((False, math.log(value)),)
        case events.StudentT(value, _, (size,), (1,)):
            return ((False, math.log(value) - math.log(size)),) if size > 0 else ()
        case events.Pure(value) | events.NoisyMax(value) | events.Exponential(value) | events.RandomizedResponse(value):
            return ((True, math.log(value)),) if value > 0 else ()
        case events.Poisson(rate, inner) | events.WithoutReplacement(rate, inner) | events.PoissonReplace(rate, inner):
            inside = _parameters(inner)
            return ((True, math.log(rate)), *inside) if inside and rate > 0 else ()
        case events.RandomAllocation(inner, bins):
            return ((False, math.log(bins)), *_parameters(inner))
        case events.Group(inner):
            return _parameters(inner)
        case events.Shuffled(inner, users):
            return ((False, math.log(users)), *_parameters(inner))
    return ()


def _kind(event: events.Event) -> tuple[object, ...]:
    """All that is not moved."""
    match event:
        case events.DiscreteLaplace(_, whole) | events.RandomizedResponse(_, whole):
            return (event.kind, whole)
        case events.StudentT(_, degrees, (_,), (1,)):
            return (event.kind, degrees)
        case events.Poisson(_, inner) | events.WithoutReplacement(_, inner) | events.PoissonReplace(_, inner):
            return (event.kind, *_kind(inner))
        case events.Shuffled(inner) | events.RandomAllocation(inner):
            return (event.kind, *(_kind(inner) if _parameters(inner) else (inner,)))
        case events.Group(inner, size):
            return (event.kind, size, *_kind(inner))
    return (event.kind,)


def _moved(event: events.Event, width: float) -> events.Event:
    if not _parameters(event):
        return event
    match event:
        case events.Gaussian(value) | events.Laplace(value):
            return type(event)(_down(value, width))
        case events.DiscreteLaplace(value, sensitivity):
            return events.DiscreteLaplace(_down(value, width), sensitivity)
        case events.StudentT(value, degrees, (size,), (1,)):
            return events.StudentT(_down(value / size * (1 - 1e-15), width), degrees, (1.0,), (1,))
        case events.Pure(value) | events.NoisyMax(value) | events.Exponential(value):
            return type(event)(_up(value, width))
        case events.RandomizedResponse(value, categories):
            return events.RandomizedResponse(_up(value, width), categories)
        case events.Poisson(rate, inner) | events.WithoutReplacement(rate, inner) | events.PoissonReplace(rate, inner):
            return type(event)(min(_up(rate, width), 1.0), _moved(inner, width))
        case events.RandomAllocation(inner, bins):
            return events.RandomAllocation(_moved(inner, width), max(math.floor(_down(bins, width)), 1))
        case events.Group(inner, size):
            return events.Group(_moved(inner, width), size)
        case events.Shuffled(inner, users):
            return events.Shuffled(_moved(inner, width), max(math.floor(_down(users, width)), 1))
    return event


def _up(value: float, width: float) -> float:
    return math.exp(math.ceil(math.log(value) / width) * width) * (1 + 1e-12)  # past the rounding of both functions


def _down(value: float, width: float) -> float:
    return math.exp(math.floor(math.log(value) / width) * width) * (1 - 1e-12)
