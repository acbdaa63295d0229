"""Replay on a neighbour: same questions, same shapes, same sensitivities, and answers no further apart than declared."""

from __future__ import annotations

import numpy as np
import pytest

from discreet.audit import Question, replay
from discreet.errors import ClaimRefuted, InvalidValue


def clipped_sum(rows, tell):
    return tell("sum", sum(np.clip(row, -1, 1) for row in rows), sensitivity=1, noise=lambda value: value + 100)


def test_the_distance_of_every_question_is_measured():
    def mechanism(rows, tell):
        tell("count", len(rows), sensitivity=1)
        tell("pair", [sum(rows), 2.0 * len(rows)], sensitivity=3, norm="l1")
        tell("most", [max(rows), 0.0], sensitivity=5, norm="max")

    found = replay(mechanism, [3, 1], [3])
    assert found == (Question("count", (), 1, 1.0), Question("pair", (2,), 3, 3.0), Question("most", (2,), 5, 0.0))
    assert all(question.holds for question in found)


def test_both_runs_go_on_with_what_the_first_released():
    seen = []

    def mechanism(rows, tell):
        seen.append(clipped_sum(rows, tell))

    replay(mechanism, [0.5, 7.0], [0.5])
    assert seen == [101.5, 101.5]


def test_what_is_released_is_not_what_is_compared():
    """A mechanism may overwrite its own value; it was noted before."""
    value = np.zeros(2)

    def mechanism(rows, tell):
        value[:] = len(rows)
        tell("sum", value, sensitivity=2)
        value[:] = -1

    assert replay(mechanism, [1, 1], [1])[0].distance == pytest.approx(2**0.5)


@pytest.mark.parametrize(
    ("mechanism", "words"),
    [
        (lambda rows, tell: tell("sum", sum(rows), sensitivity=1), "moves by 9 when one unit is removed; its noise is for 1"),
        (lambda rows, tell: tell("rows", rows, sensitivity=9), r"its shape is \(2,\) with it and \(1,\) without"),
        (lambda rows, tell: tell(f"of {len(rows)}", 0, sensitivity=1), "the question is of 2 with it and of 1 without"),
        (lambda rows, tell: tell("sum", 0, sensitivity=max(rows)), "its sensitivity is"),
        (lambda rows, tell: [tell(f"{i}", 0, sensitivity=1) for i in range(len(rows))], "2 values are released, without it 1"),
        (lambda rows, tell: [tell(f"{i}", 0, sensitivity=1) for i in range(4 - len(rows))], "released as well"),
        (lambda rows, tell: tell("sum", float("nan"), sensitivity=1), "not a finite number"),
    ],
)
def test_what_depends_on_the_unit_without_noise_is_refuted(mechanism, words):
    with pytest.raises(ClaimRefuted, match=words):
        replay(mechanism, [1, 9], [1])


def test_rounding_is_forgiven_and_more_is_not():
    for gap, good in ((1.0005, True), (1.002, False)):
        mechanism = lambda rows, tell, gap=gap: tell("sum", gap * len(rows), sensitivity=1)  # noqa: E731
        if good:
            assert replay(mechanism, [1, 1], [1])[0].holds
        else:
            with pytest.raises(ClaimRefuted):
                replay(mechanism, [1, 1], [1])


@pytest.mark.parametrize("wrong", [{"norm": "l3"}, {"sensitivity": -1}, {"sensitivity": float("nan")}])
def test_a_question_that_makes_no_sense(wrong):
    with pytest.raises(InvalidValue):
        replay(lambda rows, tell: tell("sum", 0, **{"sensitivity": 1, **wrong}), [1], [])
