"""Private set intersection: right on random sets, refuses what is no point, reveals nothing to a party without the exponent."""

from __future__ import annotations

import pickle
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from discreet import record
from discreet.crypto import LookupServer, Party, Question, intersect
from discreet.crypto.intersection import IntersectionSize
from discreet.errors import InvalidValue

items = st.sets(st.binary(max_size=6), max_size=12).map(sorted)


@settings(max_examples=20)
@given(items, items)
def test_the_intersection_is_that_of_sets(mine: list[bytes], theirs: list[bytes]) -> None:
    assert intersect(mine, theirs) == [item for item in mine if item in set(theirs)]


def test_what_is_sent_says_nothing_without_the_exponent() -> None:
    first, second = Party().blinded([b"ann", b"ben"]), Party().blinded([b"ann", b"ben"])
    assert not set(first) & set(second)  # fresh exponents
    assert all(len(value) == 32 for value in first)


def test_lookup() -> None:
    server = LookupServer([b"123456", b"qwerty"])
    for item, there in ((b"qwerty", True), (b"Qwerty", False), (b"123456", True)):
        question, again = Question(item), Question(item)
        assert question.found(server.answer(question.sent), server.table) is there
        assert question.sent != again.sent  # the same item twice cannot be linked
    with pytest.raises(InvalidValue, match="coordinate of a point"):
        server.answer(b"no point")


def test_a_party_is_for_one_run() -> None:
    """Two runs with one exponent could be linked: equal items would be equal values."""
    party = Party()
    sent = party.blinded([b"ann"])
    with pytest.raises(InvalidValue, match="new Party"):
        party.blinded([b"ann", b"ben"])
    party.raised(sent)
    with pytest.raises(InvalidValue, match="new Party"):
        party.raised(sent)


def test_exponents_are_drawn_and_not_given() -> None:
    """A party with a given exponent would be a second run of it."""
    with pytest.raises(TypeError):
        Party(5)  # type: ignore[call-arg]
    assert not any("exponent" in name or "key" in name for name in dir(Party()) if not name.startswith("_"))


def test_bad_input_does_not_use_a_party_up() -> None:
    party = Party()
    with pytest.raises(InvalidValue, match="must differ"):
        party.blinded([b"a", b"a"])
    with pytest.raises(InvalidValue, match="coordinate"):
        party.raised([b"no point"])
    assert len(party.raised(party.blinded([b"a", b"b"]))) == 2


@pytest.mark.parametrize("value", [b"", b"short", b"\xff" * 32, b"\x00" * 33, "text", None])
def test_what_is_no_point_is_refused(value: object) -> None:
    with pytest.raises(InvalidValue, match="coordinate of a point"):
        Party().raised([value])  # type: ignore[list-item]


def test_items_are_distinct_bytes() -> None:
    with pytest.raises(InvalidValue, match="must differ"):
        Party().blinded([b"a", b"a"])
    with pytest.raises(InvalidValue, match="found str"):
        intersect(["ann"], [b"ann"])  # type: ignore[list-item]


def test_a_party_is_not_pickled() -> None:
    with pytest.raises(InvalidValue, match="secret"):
        pickle.dumps(Party())


@pytest.mark.parametrize("odd", [b"ann", "ann", None, 3, b""])
@pytest.mark.parametrize("side", [0, 1])
def test_no_item_decides_whether_a_noisy_size_is_released(odd: Any, side: int) -> None:
    lists: list[list[Any]] = [[b"ann", b"ben"], [b"ann", b"cem"]]
    lists[side].append(odd)
    assert IntersectionSize(scale=Fraction(1, 50), unit=record()).run((lists[0], lists[1])) == 1  # noise at e^-50
    assert isinstance(IntersectionSize(scale=1, unit=record()).run(([], lists[1])), int)
