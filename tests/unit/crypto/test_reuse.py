"""A key used twice: cribs, and both messages found by a model of English."""

from __future__ import annotations

import lzma
import re
from pathlib import Path

import pytest

from discreet.crypto import LetterModel, OneTimePad, drag, separate, xor
from discreet.errors import InvalidValue

CORPUS = Path(__file__).parents[3].parent / "shared" / "data" / "wikitext2" / "wiki.valid.tokens.xz"
FIRST = (
    b"the meeting with the new contact will take place on thursday near the old railway station, and he will carry a newspaper"
)
SECOND = (
    b"our scientists have finished the second report on the project, which describes the metal and the shape of the lens in it"
)


def english() -> str:
    if not CORPUS.exists():
        pytest.skip("needs the WikiText-2 text in ../shared/data")
    text = re.sub(r"@(.)@", r"\1", lzma.decompress(CORPUS.read_bytes()).decode()).replace("<unk>", "").lower()
    return re.sub(r" ([.,])", r"\1", re.sub(r"\s+", " ", re.sub(r"[^a-z .,]", " ", text)))


def test_a_right_crib_uncovers_the_other_message() -> None:
    key = OneTimePad.random(len(FIRST)).key
    shown = dict(drag(xor(FIRST, key), xor(SECOND, key), b" contact will "))
    at = FIRST.index(b" contact will ")
    assert shown[at] == SECOND[at : at + 14]


def test_two_english_messages_are_separated() -> None:
    key = OneTimePad.random(len(FIRST)).key
    found = separate(xor(FIRST, key), xor(SECOND, key), LetterModel.learn(english()), beam=400)
    right = max(sum(a == b for a, b in zip(first, FIRST, strict=True)) for first in found)
    assert xor(*found) == xor(FIRST, SECOND)
    assert right >= 0.9 * len(FIRST)


def test_fresh_keys_are_not_separated() -> None:
    first, second = (xor(text, OneTimePad.random(len(text)).key) for text in (FIRST, SECOND))
    with pytest.raises(InvalidValue, match="No two characters of the corpus differ"):
        separate(first, second, LetterModel.learn("abc def. " * 10, order=3))


def test_bad_input() -> None:
    with pytest.raises(InvalidValue, match="1 to 3 bytes"):
        drag(b"abc", b"xyz", b"toolong")
    with pytest.raises(InvalidValue, match="at least that many characters"):
        LetterModel.learn("abc", order=6)
