"""Very many different events as fewer, slightly worse ones.

Each parameter is moved to the next point of a geometric grid on its worse side, so that events that are nearly the same become
the same. What is put in an event's place dominates it:

- less Laplace or Gaussian noise: more noise is noise added to the output. That a Laplace law of larger scale is a smaller one
  plus something independent holds on the whole numbers as well (its characteristic functions divide into a mixture);
- a larger epsilon of Pure, NoisyMax, Exponential, RandomizedResponse: by definition, or by more random answers;
- a larger rate: the likelihood ratio 1 - q + q r grows with q in the convex order.

The discrete Gaussian is left as it is: on whole numbers, more of its noise is not less of it plus something.
"""

from __future__ import annotations

import math

import numpy as np

from discreet.core import event as events

DIFFERENT = 600  # events that are composed one by one
Parameters = tuple[tuple[bool, float], ...]  # whether it is worse upwards, and its logarithm
FINEST, COARSEST = -120, 8  # powers of 2^(1/4) tried as relative widths of the grid


def gathered(counts: dict[events.Event, int]) -> dict[events.Event, int]:
    """The events with how often each occurs, moved to the finest grid on which few are different."""
    kinds: dict[tuple[object, ...], list[list[float]]] = {}
    for item in counts:
        if parameters := _parameters(item):
            kinds.setdefault(_kind(item), []).append([-log if up else log for up, log in parameters])
    tables = [np.array(rows) for rows in kinds.values()]
    kept = len(counts) - sum(map(len, tables))
    low, high = FINEST, COARSEST
    while low < high:
        middle = (low + high) // 2
        cells = sum(len(np.unique(np.floor(table / 2.0 ** (middle / 4)), axis=0)) for table in tables)
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
        case events.Pure(value) | events.NoisyMax(value) | events.Exponential(value) | events.RandomizedResponse(value):
            return ((True, math.log(value)),) if value > 0 else ()
        case events.Poisson(rate, inner) | events.WithoutReplacement(rate, inner):
            inside = _parameters(inner)
            return ((True, math.log(rate)), *inside) if inside and rate > 0 else ()
    return ()


def _kind(event: events.Event) -> tuple[object, ...]:
    """All that is not moved."""
    match event:
        case events.DiscreteLaplace(_, whole) | events.RandomizedResponse(_, whole):
            return (event.kind, whole)
        case events.Poisson(_, inner) | events.WithoutReplacement(_, inner):
            return (event.kind, *_kind(inner))
    return (event.kind,)


def _moved(event: events.Event, width: float) -> events.Event:
    match event:
        case events.Gaussian(value) | events.Laplace(value):
            return type(event)(_down(value, width))
        case events.DiscreteLaplace(value, sensitivity):
            return events.DiscreteLaplace(_down(value, width), sensitivity)
        case events.Pure(value) | events.NoisyMax(value) | events.Exponential(value):
            return type(event)(_up(value, width))
        case events.RandomizedResponse(value, categories):
            return events.RandomizedResponse(_up(value, width), categories)
        case events.Poisson(rate, inner) | events.WithoutReplacement(rate, inner):
            return type(event)(min(_up(rate, width), 1.0), _moved(inner, width))
    return event


def _up(value: float, width: float) -> float:
    return math.exp(math.ceil(math.log(value) / width) * width) * (1 + 1e-12)  # past the rounding of both functions


def _down(value: float, width: float) -> float:
    return math.exp(math.floor(math.log(value) / width) * width) * (1 - 1e-12)
