"""Unit, game, event, claim and verdict: what they hold and what they refuse."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from discreet.core import (
    Approximate,
    Claim,
    DiscreteLaplace,
    Event,
    Game,
    Gaussian,
    Laplace,
    Poisson,
    Pure,
    Repeat,
    Sequence,
    Unit,
    Verdict,
    check,
    record,
    user,
)
from discreet.core.event import KINDS
from discreet.core.game import _IMPLIES, VIEWS
from discreet.errors import InvalidValue

GAME = Game(record(), {"answers"})


@pytest.mark.parametrize("value", [0, -1, float("nan"), float("inf"), True, "1", None, 10**400, np.array(1.0)])
def test_noise_must_be_a_positive_number(value: Any) -> None:
    with pytest.raises(InvalidValue, match="noise_multiplier must"):
        Gaussian(value)


@pytest.mark.parametrize("value", [1, 1.0, np.float32(1), np.int64(1), Fraction(1)])
def test_numbers_of_all_kinds_become_floats(value: Any) -> None:
    assert Gaussian(value) == Gaussian(1.0)
    assert type(Gaussian(value).noise_multiplier) is float
    assert type(DiscreteLaplace(1.0, value).sensitivity) is int


@pytest.mark.parametrize("delta", [-1e-9, 1.0, 2.0])
def test_delta_is_below_one(delta: float) -> None:
    with pytest.raises(InvalidValue, match="delta must be at least 0 and below 1"):
        Approximate(1.0, delta)


@pytest.mark.parametrize("times", [0, -1, 1.5, 2**53, 10**5000, True], ids=lambda value: type(value).__name__)
def test_times_are_whole_and_bounded(times: Any) -> None:
    with pytest.raises(InvalidValue, match="times must be"):
        Repeat(Gaussian(1.0), times)


def test_a_class_is_not_an_event() -> None:
    cls: Any = Gaussian
    with pytest.raises(InvalidValue, match="event must be an event"):
        Claim(game=GAME, event=cls)
    with pytest.raises(InvalidValue, match="event must be an event"):
        Poisson(0.1, cls)


def test_an_empty_sequence_names_the_way_out() -> None:
    with pytest.raises(InvalidValue, match=r"use Zero\(\)"):
        Sequence([])


def test_a_sequence_takes_any_iterable_and_many_events() -> None:
    long = Sequence(Gaussian(1.0) for _ in range(100_000))
    assert Repeat(Repeat(long, 2), 2).nesting() == 3
    assert hash(long) == hash(Sequence(long.events))


def test_every_kind_is_an_event() -> None:
    assert len(KINDS) == 22
    assert all(isinstance(cls, type) and cls.kind == kind for kind, cls in KINDS.items())
    assert isinstance(Pure(1.0), Event)


def test_units_read_as_sentences() -> None:
    assert str(record("replace")) == "one record (1 row), replaced"
    assert str(user("id", rows=None)) == "one user (any number of rows, known by id), added or removed"
    assert Unit("hospital", "zero_out", 7.0).rows == 7  # type: ignore[arg-type]


def test_views_close_under_what_is_computable() -> None:
    assert Game(record(), "transcript").sees() == {"transcript", "weights", "aggregate", "logits", "scores", "labels"}
    assert {*_IMPLIES, *(name for names in _IMPLIES.values() for name in names)} <= set(VIEWS)
    assert not Game(record(), {"weights"}).within(Game(record(), {"labels"}))
    assert not Game(record(), {"labels"}).within(Game(record("replace"), {"labels"}))


@pytest.mark.parametrize("view", [[], "everything", {"labels", "x"}, 3, [["labels"]], None])
def test_unknown_views_are_refused(view: Any) -> None:
    with pytest.raises(InvalidValue, match="view must"):
        Game(record(), view)


@pytest.mark.parametrize("assumptions", ["one sentence", 3, ("",), (1,), None])
def test_assumptions_are_sentences(assumptions: Any) -> None:
    with pytest.raises(InvalidValue, match="assumption"):
        Claim(game=GAME, event=Laplace(1.0), assumptions=assumptions)


def test_a_verdict_is_not_a_truth_value() -> None:
    verdict = Verdict(outcome="holds", reason="it does", confidence=0.95, delta=0.0, ceiling=float("inf"), floor=0.5)
    assert verdict.to_json()["ceiling"] is None
    assert str(verdict) == "holds: it does"
    with pytest.raises(TypeError, match="outcome"):
        bool(verdict)


@pytest.mark.parametrize(
    "value", [10**5000, -(10**5000), "x" * 10**6, [10**5000], "\ud800", object()], ids=lambda value: type(value).__name__
)
def test_any_value_can_be_shown(value: Any) -> None:
    assert len(check.shown(value).encode()) <= 64


def test_half_a_character_is_not_text() -> None:
    with pytest.raises(InvalidValue, match="surrogate"):
        Unit("\ud800", "replace", 1)
