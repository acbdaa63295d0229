"""The one-time pad: correct, perfectly secret, bounded by Shannon, malleable."""

from __future__ import annotations

from fractions import Fraction
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from discreet.crypto import OneTimePad, possible_messages, secrecy, tamper, xor
from discreet.errors import InvalidValue


@given(st.binary(min_size=1, max_size=200))
def test_decryption_undoes_encryption(message: bytes) -> None:
    pad = OneTimePad.random(len(message))
    assert OneTimePad(pad.key).decrypt(pad.encrypt(message)) == message


@given(st.integers(2, 5), st.integers(1, 3))
def test_every_message_has_the_same_distribution_of_ciphertexts(size: int, length: int) -> None:
    texts = list(product(range(size), repeat=length))
    table = secrecy(lambda m, k: tuple((a + b) % size for a, b in zip(m, k, strict=True)), texts, texts)
    uniform = dict.fromkeys(texts, Fraction(1, len(texts)))
    assert all(row == uniform for row in table.values())


def test_all_pads_of_one_byte() -> None:
    keys = [bytes([k]) for k in range(256)]
    table = secrecy(lambda m, k: OneTimePad(k).encrypt(m), keys, keys)
    assert all(len(row) == 256 and set(row.values()) == {Fraction(1, 256)} for row in table.values())


@given(st.integers(2, 12).flatmap(lambda size: st.tuples(st.just(size), st.integers(1, size - 1))))
def test_fewer_keys_than_messages_rule_a_message_out(sizes: tuple[int, int]) -> None:
    size, keys = sizes
    for ciphertext in range(size):
        assert len(possible_messages(lambda c, k: (c - k) % size, ciphertext, range(keys))) <= keys < size
    table = secrecy(lambda m, k: (m + k) % size, range(size), range(keys))
    assert len({frozenset(row.items()) for row in table.values()}) > 1


@given(st.binary(min_size=4, max_size=4), st.binary(min_size=4, max_size=4))
def test_who_guesses_the_message_can_replace_it(message: bytes, other: bytes) -> None:
    pad = OneTimePad.random(4)
    assert pad.decrypt(tamper(pad.encrypt(message), message, other)) == other


def test_a_pad_is_for_one_message() -> None:
    pad = OneTimePad.random(3)
    first = pad.encrypt(b"one")
    with pytest.raises(InvalidValue, match="has encrypted a message already"):
        pad.encrypt(b"two")
    assert pad.decrypt(first) == b"one"
    assert pad.key.hex() not in repr(pad)


@pytest.mark.parametrize("length", [0, -1])
def test_a_pad_has_a_length(length: int) -> None:
    with pytest.raises(InvalidValue, match="at least 1 byte"):
        OneTimePad.random(length)


def test_lengths_must_agree() -> None:
    pad = OneTimePad.random(3)
    with pytest.raises(InvalidValue, match="5 bytes and the key 3"):
        pad.encrypt(b"hello")
    assert not pad.used
    with pytest.raises(InvalidValue, match="same length"):
        xor(b"a", b"ab")
    with pytest.raises(InvalidValue, match="at least one key"):
        secrecy(lambda m, k: m, [1], [])
