"""Evidence: three columns, checked, kept as they were."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from discreet.audit import epsilon_at_least
from discreet.core import Evidence, Game, record
from discreet.errors import InvalidDocument, InvalidValue


def evidence(**changes: Any) -> Evidence:
    columns: dict[str, Any] = {"score": [1.0, 2.0], "inside": [True, False], "run": [0, 1]}
    return Evidence(**{"game": Game(record(), {"answers"}), "attack": "threshold", "design": "paired", **columns, **changes})


@pytest.mark.parametrize(
    ("column", "value", "said"),
    [
        ("score", [1.0], "lengths"),
        ("score", [1.0, float("nan")], "finite"),
        ("score", [1.0, float("inf")], "finite"),
        ("score", [1.0, 10**400], "numbers"),
        ("score", [[1.0, 2.0]], "flat"),
        ("score", [[1.0], 2.0], "flat"),
        ("score", ["a", "b"], "numbers"),
        ("score", 1.0, "flat"),
        ("inside", [0, 2], "true or false"),
        ("inside", [0.0, float("nan")], "true or false"),
        ("run", [0.5, 1.0], "run must hold"),
        ("run", [True, False], "run must hold"),
        ("run", np.array([0, 2**63], dtype=np.uint64), "below 2"),
        ("design", "guessed", "design must be one of"),
        ("attack", "", "attack must be"),
        ("game", None, "game must be a Game"),
    ],
)
def test_bad_columns_are_named(column: str, value: Any, said: str) -> None:
    with pytest.raises(InvalidValue, match=said):
        evidence(**{column: value})


def test_no_targets_is_an_error() -> None:
    with pytest.raises(InvalidValue, match="no targets"):
        evidence(score=[], inside=[], run=[])


def test_columns_are_copies_and_cannot_be_written() -> None:
    scores = np.array([1.0, 2.0])
    kept = evidence(score=scores)
    scores[0] = 9
    assert kept.score[0] == 1.0
    with pytest.raises(ValueError, match="read-only"):
        kept.score[0] = 5


def test_equality_is_of_values() -> None:
    assert evidence() == evidence(score=np.array([1, 2]))
    assert hash(evidence()) == hash(evidence())
    assert evidence() != evidence(attack="other")
    assert evidence() != "evidence"
    assert repr(evidence()) == "Evidence(threshold, paired: 1 inside, 1 outside, 2 runs)"


@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("inside", [1, 0]),
        ("score", [True, False]),
        ("score", "12"),
        ("run", [0.0, 1.0]),
        ("run", [True, False]),
        ("score", [None, 1]),
    ],
)
def test_documents_are_read_strictly(column: str, value: Any) -> None:
    with pytest.raises(InvalidDocument, match=column):
        Evidence.from_json({**evidence().to_json(), column: value})


def lopsided(members: int, count: int, design: str = "paired") -> Evidence:
    return evidence(score=np.zeros(count), inside=np.arange(count) < members, run=np.arange(count), design=design)


@pytest.mark.parametrize("design", ["paired", "canary"])
@pytest.mark.parametrize(("members", "count"), [(900, 1000), (100, 1000), (58, 60), (0, 40), (100, 100), (504_000, 1_000_000)])
def test_coins_that_were_not_fair_are_refused(design: str, members: int, count: int) -> None:
    with pytest.raises(InvalidValue, match=f"{members} of {count} targets were inside, but the design '{design}'"):
        lopsided(members, count, design)
    assert not lopsided(members, count, "post_hoc").randomised


@pytest.mark.parametrize(("members", "count"), [(1, 1), (0, 29), (560, 1000), (440, 1000), (502_900, 1_000_000)])
def test_coins_that_may_have_been_fair_are_not(members: int, count: int) -> None:
    """Fair coins come out like the first of these, and 0 of 29, in more than one of 10^9 tries."""
    assert lopsided(members, count).randomised


def test_the_tail_is_that_of_the_binomial() -> None:
    from discreet.core.evidence import _as_uneven

    for count in (1, 2, 7, 50):
        weights = [math.comb(count, k) for k in range(count + 1)]
        for members in range(count + 1):
            tail = sum(weights[: min(members, count - members) + 1])
            assert _as_uneven(members, count) == pytest.approx(min(1.0, 2 * tail / 2**count), rel=1e-9)


def test_uneven_coins_of_an_older_document_count_as_none() -> None:
    document = {**lopsided(900, 1000, "post_hoc").to_json(), "design": "paired"}
    old = Evidence.from_json(document)
    assert (old.design, old.randomised) == ("paired", False)
    assert old.to_json() == document
    assert epsilon_at_least(old, 0.0) == 0.0
    with pytest.raises(InvalidDocument, match="design must be one of"):
        Evidence.from_json({**document, "design": "guessed"})


def test_documents_written_under_an_earlier_name_of_an_attack_are_read() -> None:
    evidence = Evidence(
        game=Game(record(), {"scores"}), attack="bayes_lira", score=[1.0, 0.0], inside=[True, False], run=[0, 0],
        design="post_hoc",
    )  # fmt: skip
    before = {**evidence.to_json(), "attack": "student"}
    assert Evidence.from_json(before) == evidence
    assert Evidence.from_json(before).to_json() == evidence.to_json()
    assert Evidence.from_json({**before, "attack": "student of mine"}).attack == "student of mine"
