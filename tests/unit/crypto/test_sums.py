"""Encrypted sums with noise inside, and the number of common items with noise: exact before it, and what is refused."""

from __future__ import annotations

import threading
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from discreet import Ledger, crypto, record
from discreet.core import Unit, Zero
from discreet.crypto import sums
from discreet.crypto.sums import EncryptedSum, SumMessage, SumPlan, SumServer, decrypt_sum, encrypt_update
from discreet.errors import BudgetExceeded, InvalidDocument, InvalidValue

PLAN = SumPlan(size=5000, clients=10, clip_norm=1.0, granularity=2.0**-16, sigma=0.25)
CLIENT = Unit("client", "zero_out", rows=1)
rng = np.random.default_rng(0)
UPDATES = [0.01 * rng.standard_normal(5000) for _ in range(4)]


@pytest.fixture(scope="module")
def keys() -> tuple[crypto.SecretContext, crypto.PublicContext]:
    return crypto.keygen("sum", features=1)


def test_the_sum_is_exact_but_for_the_noise(keys: tuple, monkeypatch: pytest.MonkeyPatch) -> None:
    secret, public = keys
    exact = sum(PLAN.rounded(update) for update in UPDATES)

    def noisy() -> np.ndarray:
        server = SumServer(crypto.PublicContext.from_bytes(public.to_bytes()), PLAN)
        for update in UPDATES:
            server.add(SumMessage.from_bytes(encrypt_update(public, PLAN, update).to_bytes()))
        return sums._decrypted(secret, PLAN, SumMessage.from_bytes(server.noisy_sum().to_bytes())) / PLAN.granularity

    noise = (noisy() - exact) * PLAN.granularity
    assert 0.23 < noise.std() < 0.27  # 5,000 draws: outside less than once in 1e14
    assert np.abs(noise).max() < 2.5
    monkeypatch.setattr(sums, "discrete_gaussian", lambda sigma, size: np.zeros(size, np.int64))
    assert np.array_equal(noisy(), exact)


def test_one_release_with_two_claims(keys: tuple, tmp_path: Path) -> None:
    secret, public = keys
    ledger = Ledger(tmp_path / "ledger.db")
    ledger.open("clients", unit=CLIENT, epsilon=40.0, delta=1e-6)
    server = SumServer(public, PLAN)
    for update in UPDATES:
        server.add(encrypt_update(public, PLAN, update))
    total = server.noisy_sum()
    found = decrypt_sum(secret, total, plan=PLAN, unit=CLIENT, source="clients", ledger=ledger)
    noisy, hidden = found.claims
    assert (noisy.game.view, hidden.game.view) == (frozenset({"aggregate"}), frozenset({"ciphertexts"}))
    assert noisy.event.rho == pytest.approx(1 / (2 * 0.25**2))  # type: ignore[attr-defined]
    assert hidden.event == Zero()
    assert "BFV; degree 4096" in hidden.assumptions[0]
    assert not any("BFV" in line for line in noisy.assumptions)
    assert ledger.payment(found).fault is None
    ledger.open("others", unit=CLIENT, epsilon=1.0, delta=1e-6)
    with pytest.raises(BudgetExceeded):
        decrypt_sum(secret, total, plan=PLAN, unit=CLIENT, source="others", ledger=ledger)


@pytest.mark.parametrize(
    "update", [np.full(7, 1e300), np.full(7, 3.0), np.array([1.0] + [0.0] * 6), np.full(7, 1 / 7**0.5), -np.full(7, 1e-9)]
)
def test_rounded_updates_never_reach_further_than_stated(update: np.ndarray) -> None:
    for granularity in (2.0**-16, 0.001, 0.3):
        plan = SumPlan(size=7, clients=2, clip_norm=1.0, granularity=granularity, sigma=1.0)
        steps = plan.rounded(update)
        assert sum(int(step) ** 2 for step in steps) <= plan.reach**2
        assert (np.abs(steps * granularity) <= np.abs(update)).all()


def test_an_update_that_is_no_number_is_zeros(keys: tuple) -> None:
    for bad in (np.nan, np.inf):
        update = np.ones(5000)
        update[7] = bad
        assert not PLAN.rounded(update).any()
    assert np.isfinite(EncryptedSum(PLAN, CLIENT).run([np.full(5000, np.nan), UPDATES[0]])).all()


def test_an_update_of_another_form_changes_one_contribution() -> None:
    """The client that encrypts it is told; behind a charge an error would tell everybody."""
    plan = SumPlan(size=3, clients=4, clip_norm=8.0, granularity=2.0**-8, sigma=1e-4)
    for bad in (["a", "b", "c"], [1.0], None, {}, [[1, 2], [3]]):
        with pytest.raises(InvalidValue, match="updates of 3 numbers"):
            plan.rounded(bad)
        assert np.array_equal(EncryptedSum(plan, CLIENT).run([[1.0, 2.0, 3.0], bad]), [1.0, 2.0, 3.0])


def test_what_a_server_and_a_key_holder_refuse(keys: tuple) -> None:
    secret, public = keys
    other, other_public = crypto.keygen("sum", features=1)
    server, update = SumServer(public, PLAN), encrypt_update(public, PLAN, UPDATES[0])
    server.add(update)
    with pytest.raises(InvalidValue, match="replay"):  # the same ciphertexts under another name would count twice
        server.add(replace(update, message="0" * 32))
    with pytest.raises(InvalidValue, match="replay"):
        server.add(update)
    with pytest.raises(InvalidValue, match="belong to key"):
        server.add(encrypt_update(other_public, PLAN, UPDATES[0]))
    with pytest.raises(InvalidValue, match="is needed"):
        server.add(encrypt_update(public, replace(PLAN, sigma=1.0), UPDATES[0]))
    few = SumServer(public, replace(PLAN, clients=1))
    few.add(encrypt_update(public, replace(PLAN, clients=1), UPDATES[0]))
    with pytest.raises(InvalidValue, match="plan is for 1 updates"):
        few.add(encrypt_update(public, replace(PLAN, clients=1), UPDATES[0]))
    total = server.noisy_sum()
    with pytest.raises(InvalidValue, match="averaged"):
        server.noisy_sum()
    with pytest.raises(InvalidValue, match="given out already"):
        server.add(encrypt_update(public, PLAN, UPDATES[0]))
    how = {"plan": PLAN, "unit": CLIENT, "source": "x", "ledger": None}
    with pytest.raises(InvalidValue, match="belong to key"):
        decrypt_sum(other, total, **how)
    with pytest.raises(InvalidValue, match="; sum of"):
        decrypt_sum(secret, update, **how)
    forged = replace(total, parts=tuple(replace(encrypt_update(other_public, PLAN, UPDATES[0])).parts))
    with pytest.raises(InvalidDocument, match="does not decrypt"):
        decrypt_sum(secret, forged, **how)
    for seen in (record("replace"), record(), Unit("client", "add_remove", rows=1), Unit("client", "zero_out", rows=None)):
        with pytest.raises(InvalidValue, match="one client's update"):
            PLAN.claims(seen)
    with pytest.raises(InvalidValue, match="keys are for linear"):
        encrypt_update(crypto.keygen("linear", features=2)[1], PLAN, UPDATES[0])
    with pytest.raises(InvalidValue, match="updates of 5000"):
        encrypt_update(public, PLAN, [1.0])
    with pytest.raises(InvalidDocument, match="truncated"):
        SumMessage.from_bytes(total.to_bytes()[:-3])
    for change in ({"clients": 2000}, {"granularity": 1e-12}, {"granularity": 2.0}, {"sigma": 0.0}):
        with pytest.raises(InvalidValue):
            replace(PLAN, **change)


def test_one_sum_leaves_the_server_whoever_asks_at_once(keys: tuple, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two sums with noise of their own could be averaged: eight threads ask, and one gets it."""
    server, found = SumServer(keys[1], PLAN), []
    server.add(encrypt_update(keys[1], PLAN, UPDATES[0]))
    start = threading.Barrier(8)

    def ask() -> None:
        start.wait()
        with suppress(InvalidValue):
            found.append(server.noisy_sum())

    threads = [threading.Thread(target=ask) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 1


def test_the_server_of_sums_holds_no_secret(keys: tuple) -> None:
    server = SumServer(keys[1], PLAN)
    held = [
        type(value).__name__
        for value in (*vars(server).values(), *(getattr(server.public, n) for n in server.public.__slots__))
    ]
    assert not {"SecretKey", "Decryptor", "SecretContext"} & set(held)


def test_the_size_of_an_intersection() -> None:
    mine, theirs = [b"%d" % n for n in range(60)], [b"%d" % n for n in range(30, 200)]
    exact = crypto.IntersectionSize(scale=1e-3, unit=record())  # noise of 0, all but certainly
    assert exact.run((mine, theirs)) == 30
    (claim,) = crypto.IntersectionSize(scale=2.0, unit=record()).claims()
    assert "learns the exact number" in claim.assumptions[-1]
    with pytest.raises(InvalidValue, match="one item"):
        crypto.IntersectionSize(scale=2.0, unit=Unit("user", "add_remove", rows=3, key="id")).claims()


def test_the_counting_party_cannot_tell_which_items_match() -> None:
    """Both lists come back shuffled: the order says nothing of which items they belong to."""
    mine = [b"%d" % n for n in range(40)]
    counting, other = crypto.Party(), crypto.Party()
    sent = counting.blinded(mine)
    again = crypto.Party()
    again._key = other._key  # the same exponent, which no caller can set
    twice, ordered = other.raised(sent, shuffle=True), again.raised(sent)
    assert sorted(twice) == sorted(ordered)
    assert twice != ordered  # equal once in 40!
