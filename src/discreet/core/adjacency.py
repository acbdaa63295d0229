"""The adjacency relations that an event's curve is for: the unit of a claim decides which events it may carry.

A curve bounds what tells two neighbouring worlds apart, and what counts as neighbouring is the unit's relation: one unit added
or removed, replaced by another, or blanked out. Noise and pure bounds are stated by a sensitivity or an epsilon, which is
that of the claim's own unit, so they go with every relation. How units are sampled makes the two worlds different mixtures
under each relation, so a sampled event goes with the relations that its theorem is about, and with no other.
docs/theory/adjacency.md has the table and the proofs.
"""

from __future__ import annotations

from typing import Any

from discreet.core import event as events
from discreet.core.event import Event, check_event
from discreet.core.game import RELATIONS
from discreet.errors import InvalidValue

_IN_OR_OUT = ("add_remove", "zero_out")

# For each kind: the relations its curve is for, each with the relation that the events inside it are read for.
STATED: dict[type, dict[str, str]] = {
    **{
        kind: {relation: relation for relation in RELATIONS}
        for kind in (
            events.Zero, events.NonPrivate, events.Pure, events.Approximate, events.Gaussian, events.Laplace,
            events.DiscreteGaussian, events.DiscreteLaplace, events.Concentrated, events.Exponential, events.NoisyMax,
            events.StudentT, events.Repeat, events.Sequence, events.Group,
        )
    },
    events.ObjectivePerturbation: {relation: relation for relation in _IN_OR_OUT},
    events.RandomizedResponse: {"replace": "replace"},
    events.Poisson: {relation: relation for relation in _IN_OR_OUT},
    events.PoissonReplace: {"replace": "add_remove"},
    events.WithoutReplacement: {"replace": "replace"},
    events.RandomAllocation: {relation: relation for relation in _IN_OR_OUT},
    events.Shuffled: {"replace": "replace"},
}  # fmt: skip


def relations(event: Event) -> tuple[str, ...]:
    """The relations that `event` states a curve for.

    >>> relations(events.Poisson(0.1, events.Gaussian(1.0)))
    ('add_remove', 'zero_out')
    """
    check_event("event", event)
    return tuple(relation for relation in RELATIONS if _misplaced(event, relation) is None)


def check_relation(event: Event, relation: str) -> None:
    """InvalidValue where the curve of `event` is not one for units of this relation."""
    misplaced = _misplaced(event, relation)
    if misplaced is not None:
        raise InvalidValue(_refusal(*misplaced, relation))


def replaced(event: Event) -> Event:
    """What ran, for units that are replaced, where `event` says it for units that are added or removed.

    A Poisson sample has its own event. For anything else a replacement is a removal and an addition: a group of two.

    >>> replaced(events.Repeat(events.Poisson(0.1, events.Gaussian(1.0)), 20))
    Repeat(event=PoissonReplace(rate=0.1, event=Gaussian(noise_multiplier=1.0)), times=20)
    """
    check_relation(event, "add_remove")
    return _replaced(event)


def _replaced(event: Any) -> Event:
    match event:
        case events.Repeat(inner, times):
            return events.Repeat(_replaced(inner), times)
        case events.Sequence(items):
            return events.Sequence(_replaced(item) for item in items)
        case events.Poisson(rate, inner):
            return events.PoissonReplace(rate, inner)
        case events.Zero() | events.NonPrivate():
            return event
    return events.Group(event, 2)


def _misplaced(event: Any, relation: str) -> tuple[Event, str] | None:
    """The first event inside (or this one) that has no curve for the relation it is read for, and that relation."""
    paired = isinstance(event, events.Group) and event.size > 1 and relation == "replace"
    if paired and _misplaced(event.event, "add_remove") is None:
        return None  # one unit removed and another added: a group of two
    inside = STATED[type(event)].get(relation)
    if inside is None:
        return event, relation
    if isinstance(event, events.Sequence):
        return next((part for item in event.events if (part := _misplaced(item, inside)) is not None), None)
    return _misplaced(event.event, inside) if hasattr(event, "event") else None


_RELATION_WORDS = {"add_remove": "added or removed", "replace": "replaced", "zero_out": "blanked out"}


def _refusal(event: Event, wanted: str, relation: str) -> str:
    name = type(event).__name__
    stated = " or ".join(_RELATION_WORDS[stated_relation] for stated_relation in STATED[type(event)])
    where = "" if wanted == relation else f" (the event around it reads it for units that are {_RELATION_WORDS[wanted]})"
    return (
        f"A claim about units that are {_RELATION_WORDS[relation]} cannot carry {name}, whose curve is for units that are "
        f"{stated}{where}: it bounds nothing here. {_way_out(event, wanted)}"
    )


def _way_out(event: Event, wanted: str) -> str:
    if isinstance(event, events.Poisson) and wanted == "replace":
        return "Write PoissonReplace(rate, event), with the same inner event."
    if isinstance(event, (events.RandomAllocation, events.ObjectivePerturbation)) and wanted == "replace":
        return "Write Group(event, 2), which bounds a replacement as one unit out and one in."
    if isinstance(event, events.PoissonReplace):
        return "Write Poisson(rate, event), with the same inner event."
    if isinstance(event, events.RandomizedResponse):
        return (
            "Randomised response hides what someone answered, not that they did: make the claim for a unit with "
            "relation='replace', or write Pure(epsilon) if the mechanism is epsilon-DP for this unit."
        )
    return "Make the claim for a unit with relation='replace', or name the sampling that ran."
