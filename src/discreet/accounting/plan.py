"""What an event comes down to: a multiset of single mechanisms."""

from __future__ import annotations

import math
from collections.abc import Hashable
from dataclasses import dataclass
from functools import lru_cache
from typing import cast

from discreet.accounting import allocation, profile, replaced, shuffle, student
from discreet.accounting.gather import DIFFERENT, concentrated, gathered, weight
from discreet.accounting.profile import Profile
from discreet.accounting.rounding import quotient_down, total_up
from discreet.core import event as events
from discreet.errors import InvalidValue


@dataclass(frozen=True, slots=True)
class Plan:
    """Profiles with how often each ran; `bounded` is False where something has no ceiling at all."""

    parts: tuple[tuple[Profile, int], ...]
    bounded: bool = True
    loose: bool = False  # some part is known by an envelope that composes worse than what it covers
    counts: tuple[tuple[events.Event, int], ...] = ()  # the events themselves
    told: float = 0.0  # the probability that some Approximate event tells all; they stand among the parts without it


def plan(event: events.Event) -> Plan:
    """Flatten repeats, sequences and groups; count equal events together; merge Gaussians, which compose exactly.

    Very many different events are gathered to fewer that dominate them.
    """
    counts: dict[events.Event, int] = {}
    _collect(event, 1, 1, counts)
    if events.NonPrivate() in counts:
        return Plan((), bounded=False)
    counts.pop(events.Zero(), None)
    counts = _one_concentrated(counts)
    counts, told = _without_failures(counts)
    if weight(counts) > DIFFERENT:
        counts = _one_concentrated(gathered(counts))
    normals = [(item, n) for item, n in counts.items() if isinstance(item, events.Gaussian)]
    parts = [(_single(item), n) for item, n in counts.items() if not isinstance(item, events.Gaussian)]
    if normals:
        parts.insert(0, (profile.gaussian(_merged(normals)), 1))
    loose = any(_holds_envelope(item) for item in counts)
    return Plan(tuple((item, n) for item, n in parts if item.most > 0), loose=loose, counts=tuple(counts.items()), told=told)


def _holds_envelope(event: events.Event) -> bool:
    match event:
        case events.Exponential() | events.Concentrated():
            return True
        case events.Poisson(_, inner) | events.WithoutReplacement(_, inner) | events.Group(inner) | events.Repeat(inner):
            return _holds_envelope(inner)
        case events.RandomAllocation(inner) | events.PoissonReplace(_, inner):
            return _holds_envelope(inner)
        case events.Sequence(items):
            return any(_holds_envelope(item) for item in items)
    return False


def _without_failures(counts: dict[events.Event, int]) -> tuple[dict[events.Event, int], float]:
    """Each Approximate as the Pure event that it is unless it tells all, and the probability that any does. Rounded up."""
    failing = [(item, n) for item, n in counts.items() if isinstance(item, events.Approximate) and item.delta > 0]
    rest = {item: n for item, n in counts.items() if not (isinstance(item, events.Approximate) and item.delta > 0)}
    if not failing:
        return counts, 0.0
    for item, n in failing:
        inner = events.Pure(item.epsilon)
        rest[inner] = rest.get(inner, 0) + n
    some = -math.expm1(math.fsum(n * math.log1p(-item.delta) for item, n in failing)) * (1 + 1e-15)
    return rest, min(some, total_up((item.delta, n) for item, n in failing), 1.0)


def _one_concentrated(counts: dict[events.Event, int]) -> dict[events.Event, int]:
    """What is known by zCDP as one event: its rho adds up (Bun & Steinke 2016, Lemma 1.7). Rounded up."""
    rhos = [n * item.rho for item, n in counts.items() if isinstance(item, events.Concentrated)]
    rest = {item: n for item, n in counts.items() if not isinstance(item, events.Concentrated)}
    rho = math.fsum(rhos) * (1 + 4e-16 if len(rhos) > 1 else 1)
    if rho == math.inf:
        raise OverflowError("the sum of all rho is beyond the largest float")
    return rest | {events.Concentrated(rho): 1} if rho else rest


def _merged(normals: list[tuple[events.Gaussian, int]]) -> float:
    """One Gaussian mechanism that equals them all: squared shifts add up. Rounded towards less noise."""
    if len(normals) == 1 and normals[0][1] == 1:
        return normals[0][0].noise_multiplier
    least = min(item.noise_multiplier for item, _ in normals)
    merged = least * (1 - 4e-16) / math.sqrt(math.fsum(n * (least / item.noise_multiplier) ** 2 for item, n in normals))
    return max(merged, profile.LEAST)  # so little noise hides nothing


def _collect(event: events.Event, times: int, size: int, counts: dict[events.Event, int]) -> None:
    match event:
        case events.Repeat(inner, n):
            _collect(inner, times * n, size, counts)
        case events.Sequence(items):
            for item in items:
                _collect(item, times, size, counts)
        case events.Group(inner, n):
            _collect(inner, times, size * n, counts)
        case events.Poisson(1.0, inner) | events.RandomAllocation(inner, 1):
            _collect(inner, times, size, counts)
        case events.PoissonReplace(1.0, inner):
            _collect(inner, times, 2 * size, counts)
        case events.RandomAllocation(events.Poisson(rate, inner), bins):
            _collect(events.Poisson(rate, events.RandomAllocation(inner, bins)), times, size, counts)
        case events.StudentT() if size == 1:
            for each, n in student.numbers(event):
                counts[each] = counts.get(each, 0) + times * n
        case _:
            seen = grouped(event, size)
            counts[seen] = counts.get(seen, 0) + times


def grouped(event: events.Event, size: int) -> events.Event:
    """The event as `size` units see it together, where that is an event of the same kind.

    A group so large that its event cannot be written down has no ceiling worth naming.
    """
    if size == 1:
        return event
    try:
        return _grouped(event, size)
    except InvalidValue:
        return events.NonPrivate()


def _grouped(event: events.Event, size: int) -> events.Event:
    match event:
        case events.Zero() | events.NonPrivate():
            return event
        case events.Gaussian(noise_multiplier):
            return events.Gaussian(quotient_down(noise_multiplier, size))
        case events.StudentT():  # words of several units add up to any vector of that length
            return _grouped(student.as_gaussian(event), size)
        case events.Laplace(noise_multiplier):
            return events.Laplace(quotient_down(noise_multiplier, size))
        case events.DiscreteGaussian(sigma, sensitivity):
            return events.DiscreteGaussian(sigma, sensitivity * size)
        case events.DiscreteLaplace(scale, sensitivity):
            return events.DiscreteLaplace(scale, sensitivity * size)
        case events.Pure(epsilon) | events.NoisyMax(epsilon) | events.RandomizedResponse(epsilon):
            return events.Pure(total_up([(epsilon, size)]))
        case events.Exponential(epsilon):
            return events.Exponential(total_up([(epsilon, size)]))
        case events.Concentrated(rho):  # Bun & Steinke 2016, Proposition 1.9
            return events.Concentrated(total_up([(rho, size * size)]))
    return events.Group(event, size)


def _single(event: events.Event) -> Profile:
    """The profile of one mechanism, sampled or seen by a group."""
    match event:
        case events.Poisson(rate, inner):
            return profile.poisson(rate, _whole(inner))
        case events.PoissonReplace(rate, events.Gaussian(noise_multiplier)) if rate > 0:
            return replaced.gaussian_replaced(rate, noise_multiplier)
        case events.PoissonReplace(rate, events.StudentT() as inner) if rate > 0:
            return replaced.gaussian_replaced(rate, student.as_gaussian(inner).noise_multiplier)
        case events.PoissonReplace(rate, inner):
            return replaced.replaced(rate, _whole(inner))
        case events.WithoutReplacement(rate, inner):
            return profile.without_replacement(rate, _whole(inner))
        case events.RandomAllocation(events.Gaussian(noise_multiplier), bins):
            return allocation.gaussian_allocated(noise_multiplier, bins)
        case events.RandomAllocation(inner, bins):
            return allocation.allocated(_whole(inner), bins)
        case events.Shuffled(inner, users):
            return _shuffled(inner, users)
        case events.Group(inner, size):
            return profile.group(size, _single(inner))
        case events.Concentrated(rho):
            return concentrated(2 * rho)
        case events.StudentT():
            return student.shifted(event) if student.one_number(event) else _whole(event)
    return profile.basic(event)


def _shuffled(inner: events.Event, users: int) -> Profile:
    """Amplified where a report has a pure bound; else forgetting the order is post-processing, and costs nothing more."""
    epsilon = pure_epsilon(inner)
    if epsilon == math.inf or users == 1:
        return _whole(inner)
    return shuffle.shuffled(epsilon, users, two_answers=tells_one_of_two(inner))


def pure_epsilon(event: events.Event) -> float:
    """The epsilon at delta 0: all largest losses together, rounded up; infinity where there is none."""
    parts = plan(event)
    if not parts.bounded or parts.told:
        return math.inf
    return total_up((item.most, n) for item, n in parts.parts)


def tells_one_of_two(event: events.Event) -> bool:
    """Whether each report is one answer of two, so that every other user's is a clone more often."""
    return isinstance(event, events.RandomizedResponse) and event.categories == 2


def _whole(event: events.Event) -> Profile:
    """One profile for an event that may be composed: several steps on the same sample."""
    return _kept(cast(Hashable, event))


@lru_cache(maxsize=64)
def _kept(event: Hashable) -> Profile:
    """Kept, since composing takes a second and the same run is often sampled in several ways."""
    inner = plan(cast(events.Event, event))
    if not inner.bounded:
        return profile.unbounded()
    if not inner.parts:
        return profile.failing(inner.told, profile.pure(0.0))
    if len(inner.parts) == 1 and inner.parts[0][1] == 1:
        return profile.failing(inner.told, inner.parts[0][0])
    from discreet.accounting.curve import composed_profile

    return profile.failing(inner.told, composed_profile(inner))
