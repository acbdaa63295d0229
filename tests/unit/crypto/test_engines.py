"""The second engine beside the first: sums under it, keys that say who made them, and what it cannot do."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from discreet import crypto
from discreet.core import Unit
from discreet.crypto.container import pack, read_file
from discreet.crypto.leak import key_from_decryption
from discreet.crypto.model import Layer
from discreet.crypto.sums import SumMessage, SumPlan, SumServer, decrypt_sum, encrypt_update
from discreet.errors import InvalidDocument, InvalidValue, MissingExtra

PLAN = SumPlan(size=5000, clients=10, clip_norm=1.0, granularity=2.0**-16, sigma=2.0**-16)


@pytest.fixture
def other() -> str:
    pytest.importorskip("seal", reason="seal-python is not installed")
    return "seal-python"


def test_sums_under_the_second_engine(other: str) -> None:
    secret, public = crypto.keygen("sum", features=1, engine=other)
    server, updates = SumServer(public, PLAN), np.random.default_rng(0).normal(0, 0.005, (3, 5000))
    for update in updates:
        server.add(SumMessage.from_bytes(encrypt_update(public, PLAN, update).to_bytes()))
    found = decrypt_sum(
        secret, server.noisy_sum(), plan=PLAN, unit=Unit("client", "zero_out", rows=1), source="clients", ledger=None
    )
    wanted = sum(PLAN.rounded(update) for update in updates) * PLAN.granularity
    assert np.abs(found.value - wanted).max() <= 12 * PLAN.sigma  # 5,000 normal numbers: further once in 1e29


def test_one_server_scores_for_keys_of_both_engines(other: str) -> None:
    model = crypto.Model((Layer(np.array([[1.0, -2.0]]), np.array([0.25])),), "identity")
    scorer = crypto.Scorer(model)
    for engine in ("tenseal", other, "tenseal"):
        secret, public = crypto.keygen("linear", features=2, engine=engine)
        for rows in ([0.5, 1.0], [[0.5, 1.0], [1.0, 0.0]]):
            found = crypto.decrypt(secret, scorer.score(public, crypto.encrypt(secret, rows)))
            assert np.abs(found - model(rows)).max() < 1e-3


def test_what_the_second_engine_cannot_do(other: str) -> None:
    with pytest.raises(InvalidValue, match="Use the engine tenseal"):
        crypto.keygen("training", features=5, engine=other)
    secret, public = crypto.keygen("linear", features=2, engine=other)
    with pytest.raises(InvalidValue, match="engine='tenseal'"):
        key_from_decryption(public.cipher, secret.encrypt_plain(public.cipher.encode(0.5, 0, 2.0**26)), np.zeros(4096))


def test_ciphertexts_of_the_other_engine_are_refused(other: str) -> None:
    first, _ = crypto.keygen("linear", features=2, engine="tenseal")
    secret, public = crypto.keygen("linear", features=2, engine=other)
    foreign = crypto.encrypt(first, [0.5, 1.0])
    for context, part in ((public, foreign.parts[0]), (first.public, crypto.encrypt(secret, [0.5, 1.0]).parts[0])):
        with pytest.raises(InvalidDocument, match="does not belong to these parameters"):
            context.cipher.from_bytes("Ciphertext", part)


def test_keys_say_which_engine_made_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    from discreet.crypto import engine

    _, public = crypto.keygen("linear", features=2, engine="tenseal")
    header, parts = read_file(public.save(tmp_path / "public.key"), "public-key")
    assert header["engine"] == "tenseal"
    with pytest.raises(InvalidDocument, match="engine that this discreet does not know"):
        crypto.PublicContext.from_bytes(pack("public-key", {**header, "engine": "rot13"}, parts))
    with pytest.raises(InvalidValue, match="engine"):
        crypto.keygen("linear", features=2, engine="rot13")
    engine.open_cipher.cache_clear()
    monkeypatch.setitem(sys.modules, "seal", None)
    with pytest.raises(MissingExtra, match=r"discreet-privacy\[seal\]"):
        crypto.PublicContext.from_bytes(pack("public-key", {**header, "engine": "seal-python"}, parts))


def test_the_second_engine_is_taken_where_the_first_is_not_installed(other: str, monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    assert crypto.keygen("linear", features=2)[1].cipher.name == "tenseal"
    monkeypatch.setitem(sys.modules, "tenseal.sealapi", None)
    assert crypto.keygen("linear", features=2)[1].cipher.name == other
