"""The game of the claim for ciphertexts: one row is there or blanked out, and the attacker sees the message.

Attackers without the key do not refute the claim. The broken twin breaks its last assumption: one raw decryption was handed
on, from which the key follows, and every message is read. False-alarm rate: 2e-6 for each of three attackers.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from discreet import crypto, record
from discreet.audit import verdict
from discreet.core import Evidence, Game
from discreet.crypto.disclosure import ciphertext_claim
from discreet.crypto.leak import key_from_decryption

ROW = record("zero_out")
TABLE = np.array([[0.9, -0.4], [0.3, 0.8], [0.5, 0.5]])
Keys = tuple[crypto.SecretContext, crypto.PublicContext]


@pytest.fixture(scope="module")
def keys() -> Keys:
    return crypto.keygen("linear", features=2, engine="tenseal")


def messages(secret: crypto.SecretContext, inside: np.ndarray) -> list[bytes]:
    """What the machine is sent in each run; outside, the first row is blanked out."""
    return [crypto.encrypt(secret, TABLE * np.array([there, 1, 1])[:, None]).to_bytes() for there in inside]


@pytest.fixture(scope="module")
def sent(keys: Keys) -> tuple[np.ndarray, list[bytes]]:
    inside = np.random.default_rng(7).random(250) < 0.5
    return inside, messages(keys[0], inside)


def evidence(name: str, inside: np.ndarray, scores: list[float]) -> Evidence:
    return Evidence(
        game=Game(ROW, {"ciphertexts"}), attack=name, score=np.array(scores), inside=inside, run=np.arange(len(inside)),
        design="paired",
    )  # fmt: skip


def size(secret: crypto.SecretContext, public: crypto.PublicContext) -> Callable[[bytes], float]:
    return len


def content(secret: crypto.SecretContext, public: crypto.PublicContext) -> Callable[[bytes], float]:
    """Everything but what is drawn anew for each message: the header's sizes, and how often each byte occurs."""

    def score(data: bytes) -> float:
        found = crypto.Encrypted.from_bytes(data)
        return float(found.rows + found.bound + np.bincount(np.frombuffer(data, np.uint8), minlength=256)[0])

    return score


def another_key(secret: crypto.SecretContext, public: crypto.PublicContext) -> Callable[[bytes], float]:
    """Decryption under a key of the attacker's own."""
    own, _ = crypto.keygen("linear", features=2, engine="tenseal")

    def score(data: bytes) -> float:
        return float(own.slots(crypto.Encrypted.from_bytes(data).ciphertexts(public.cipher)[0]).real[0])

    return score


@pytest.mark.parametrize("attack", [size, content, another_key])
def test_attackers_without_the_key_do_not_refute_the_claim(
    keys: Keys, sent: tuple[np.ndarray, list[bytes]], attack: Callable[..., Callable[[bytes], float]]
) -> None:
    (secret, public), (inside, seen) = keys, sent
    scores = list(map(attack(secret, public), seen))
    claim = ciphertext_claim(secret.parameters, ROW)
    found = verdict(claim, evidence(attack.__name__, inside, scores), confidence=0.999998)
    assert found.outcome in ("holds", "inconclusive")


def test_whoever_got_one_raw_decryption_refutes_it(keys: Keys) -> None:
    """The mean over all slots is the constant coefficient of c0 + c1 s, which needs no transform."""
    secret, public = keys
    cipher, inside = public.cipher, np.random.default_rng(8).random(60) < 0.5
    leaked = secret.encrypt_plain(cipher.encode(np.array([0.5]), 0, 2.0**26))
    key = key_from_decryption(cipher, leaked, secret.slots(leaked))
    assert key is not None
    prime, degree = cipher.moduli[0], secret.parameters.degree

    def read(data: bytes) -> float:
        first = crypto.Encrypted.from_bytes(data).ciphertexts(cipher)[0]  # kept: its array is not
        parts = first.dyn_array()
        total = sum(parts.at(place) + parts.at(degree + place) * key[place] for place in range(degree)) % prime
        mean = total * pow(degree, -1, prime) % prime
        return float(mean if mean < prime // 2 else mean - prime)

    found = verdict(
        ciphertext_claim(secret.parameters, ROW),
        evidence("the key from a raw decryption", inside, [read(data) for data in messages(secret, inside)]),
        confidence=0.9999,
    )
    assert found.outcome == "refuted"
