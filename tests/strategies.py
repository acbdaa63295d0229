"""Hypothesis strategies for the core values, shared by the property tests."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from hypothesis import strategies as st

from discreet.core import (
    Approximate,
    Claim,
    Concentrated,
    DiscreteGaussian,
    DiscreteLaplace,
    Event,
    Evidence,
    Exponential,
    ExternalValue,
    Game,
    Gaussian,
    Group,
    Laplace,
    NoisyMax,
    NonPrivate,
    ObjectivePerturbation,
    Poisson,
    PoissonReplace,
    Pure,
    RandomAllocation,
    RandomizedResponse,
    Release,
    Repeat,
    Sequence,
    Shuffled,
    StudentT,
    Unit,
    WithoutReplacement,
    Zero,
)
from discreet.core.adjacency import relations
from discreet.core.check import LARGEST_WHOLE
from discreet.core.event import KINDS
from discreet.core.evidence import DESIGNS
from discreet.core.game import RELATIONS, VIEWS

positive = st.floats(min_value=1e-6, max_value=1e6)
epsilon = st.floats(min_value=0, max_value=1e4)
delta = st.floats(min_value=0, max_value=1, exclude_max=True)
rate = st.floats(min_value=0, max_value=1)
whole = st.integers(1, LARGEST_WHOLE)
text = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=20)

LEAVES: dict[type, st.SearchStrategy[Any]] = {
    Zero: st.builds(Zero),
    NonPrivate: st.builds(NonPrivate),
    Pure: st.builds(Pure, epsilon),
    Approximate: st.builds(Approximate, epsilon, delta),
    Gaussian: st.builds(Gaussian, positive),
    Laplace: st.builds(Laplace, positive),
    DiscreteGaussian: st.builds(DiscreteGaussian, positive, whole),
    DiscreteLaplace: st.builds(DiscreteLaplace, positive, whole),
    Concentrated: st.builds(Concentrated, epsilon),
    Exponential: st.builds(Exponential, epsilon),
    NoisyMax: st.builds(NoisyMax, epsilon),
    ObjectivePerturbation: st.builds(ObjectivePerturbation, positive, epsilon, st.booleans()),
    StudentT: st.integers(1, 4).flatmap(
        lambda n: st.builds(
            StudentT,
            positive,
            st.floats(1, 30),
            st.lists(positive, min_size=n, max_size=n),
            st.lists(whole, min_size=n, max_size=n),
        )
    ),
    RandomizedResponse: st.builds(RandomizedResponse, epsilon, st.integers(2, LARGEST_WHOLE)),
}


def around(inner: st.SearchStrategy[Event]) -> st.SearchStrategy[Event]:
    """Events that hold other events."""
    return st.one_of(
        st.builds(Poisson, rate, inner),
        st.builds(PoissonReplace, rate, inner),
        st.builds(WithoutReplacement, rate, inner),
        st.builds(RandomAllocation, inner, whole),
        st.builds(Shuffled, inner, whole),
        st.builds(Repeat, inner, whole),
        st.builds(Sequence, st.lists(inner, min_size=1, max_size=4)),
        st.builds(Group, inner, whole),
    )


leaves = st.one_of(*LEAVES.values())
events: st.SearchStrategy[Event] = st.recursive(leaves, around, max_leaves=8)
HOLDERS = {Poisson, PoissonReplace, WithoutReplacement, RandomAllocation, Shuffled, Repeat, Sequence, Group}
assert {*LEAVES, *HOLDERS} == set(KINDS.values()), "an event kind has no strategy"

units = st.builds(Unit, text, relation=st.sampled_from(RELATIONS), rows=st.none() | whole, key=st.none() | text)
games = st.builds(Game, units, st.sets(st.sampled_from(VIEWS), min_size=1))


@st.composite
def claims_of(draw: st.DrawFn, about: st.SearchStrategy[Event]) -> Claim:
    """A claim whose event is for its unit's relation; where there is no such relation, one about a leaf."""
    event = draw(about)
    if not relations(event):
        event = draw(leaves)
    game, relation = draw(games), draw(st.sampled_from(relations(event)))
    unit = replace(game.unit, relation=relation)
    return Claim(game=Game(unit, game.view), event=event, assumptions=tuple(draw(st.lists(text, max_size=3))))


claims = claims_of(events)


@st.composite
def evidences(draw: st.DrawFn) -> Evidence:
    size = draw(st.integers(1, 20))
    numbers = st.floats(allow_nan=False, allow_infinity=False)
    return Evidence(
        game=draw(games),
        attack=draw(text),
        score=np.array(draw(st.lists(numbers, min_size=size, max_size=size))),
        inside=np.array(draw(st.lists(st.booleans(), min_size=size, max_size=size))),
        run=np.array(draw(st.lists(st.integers(0, 2**62), min_size=size, max_size=size)), dtype=np.int64),
        design=draw(st.sampled_from(DESIGNS)),
    )


json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**80), 2**80)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=6), inner, max_size=4),
    max_leaves=8,
)
_counts = st.integers(0, 10**6)
_rates = st.dictionaries(st.sampled_from(["0.001", "0.01", "1"]), rate, max_size=2)
_words = st.lists(text, max_size=2)
facts = st.fixed_dictionaries(
    {},
    optional={
        "title": text,
        "made": st.fixed_dictionaries({}, optional={"when": text, "packages": st.dictionaries(text, text, max_size=2)}),
        "seeds": st.dictionaries(text, _counts, max_size=2),
        "groups": st.lists(
            st.fixed_dictionaries({"by": text, "group": text}, optional={"n": _counts, "tpr": _rates}), max_size=2
        ),
        "exposed": st.lists(st.fixed_dictionaries({"index": _counts, "score": positive}), max_size=2),
        "controls": st.lists(
            st.fixed_dictionaries({"name": text, "kind": st.just("positive")}, optional={"auc": rate}), max_size=2
        ),
        "spending": st.lists(st.lists(epsilon, min_size=2, max_size=2), max_size=3),
        "not_tried": _words,
        "of one's own": st.none() | _words,
    },
)
releases = st.builds(
    Release,
    value=json_values | st.builds(ExternalValue, text),
    source=text,
    claims=st.lists(claims, max_size=3).map(tuple),
    entry=st.none() | text,
    evidence=st.lists(evidences(), max_size=2).map(tuple),
    facts=facts,
)

# What a careless or hostile caller passes where a number or a value belongs.
strange: st.SearchStrategy[Any] = st.one_of(
    st.sampled_from([
        None, True, False, "", "1", "\ud800", b"x", [], {}, (), set(), object(), Gaussian, type, 1j, float("nan"),
        float("inf"), -float("inf"), -1, -0.5, 0, 10**400, -(10**5000), 10**5000, np.nan, np.float32(np.inf), np.array([1.0]),
        np.array(1.0), np.bool_(True), [[]], "x" * 10_000, range(3), ..., NotImplemented, lambda: 1, Exception("x"),
    ]),
    st.floats(), st.integers(), st.text(max_size=5),
)  # fmt: skip
