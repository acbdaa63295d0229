"""Decrypted scores that others get: the key recovered from raw ones, and not from rounded ones; counted in the ledger."""

from __future__ import annotations

import threading
from pathlib import Path

import numpy as np
import pytest

from discreet import Ledger, Release, Unit, crypto, record, user
from discreet.core import Zero
from discreet.crypto.accuracy import error_under, least_error
from discreet.crypto.descent import Trainer
from discreet.crypto.disclosure import ciphertext_claim, disclose_weights, disclosed
from discreet.crypto.leak import key_from_decryption
from discreet.crypto.model import Layer
from discreet.crypto.packed import opened
from discreet.crypto.parameters import PURPOSES
from discreet.crypto.plan import Plan
from discreet.crypto.polynomial import fit
from discreet.crypto.training import KeyHolder
from discreet.errors import InvalidDocument, InvalidValue

MODEL = crypto.Model((Layer(np.array([[1.0, -0.5]]), np.array([0.25])),), "identity")
ROWS = np.random.default_rng(0).uniform(-1, 1, (40, 2))
ROW = record("replace")
Keys = tuple[crypto.SecretContext, crypto.PublicContext]


@pytest.fixture(scope="module")
def keys() -> Keys:
    return crypto.keygen("linear", features=2)


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    made = Ledger(tmp_path / "ledger.db")
    made.open("clinic", unit=ROW, epsilon=1.0, delta=1e-6)
    return made


def test_one_raw_decryption_gives_the_key_and_rounding_or_noise_does_not(keys: Keys) -> None:
    secret, public = keys
    cipher = public.cipher
    true = secret._secret.data().dyn_array()
    key = [true.at(place) for place in range(cipher.parameters.degree)]
    fresh = secret.encrypt_plain(cipher.encode(np.array([0.5, -0.25]), 0, 2.0**26))
    (answer,) = crypto.Scorer(MODEL).score(public, crypto.encrypt(secret, ROWS)).parts
    for ciphertext in (fresh, answer):
        raw = secret.slots(ciphertext)
        assert key_from_decryption(cipher, ciphertext, raw) == key
        grid = 64 * crypto.error_bound(MODEL, public)
        assert key_from_decryption(cipher, ciphertext, np.round(raw / grid) * grid) is None
        noise = np.random.default_rng(1).normal(0, grid, raw.shape)
        assert key_from_decryption(cipher, ciphertext, raw + noise) is None


def test_a_disclosed_score_is_a_release_with_one_claim_and_no_claim_for_the_answer(keys: Keys, ledger: Ledger) -> None:
    secret, public = keys
    request = crypto.encrypt(secret, ROWS)
    answer, error = crypto.Scorer(MODEL).score(public, request), crypto.error_bound(MODEL, public)
    grid = 2.0**-4
    found = crypto.disclose(secret, answer, grid=grid, error=error, unit=ROW, source="clinic", ledger=ledger, request=request)
    assert np.abs(found.value - MODEL(ROWS)).max() <= grid / 2 + error
    assert np.array_equal(found.value / grid, np.round(found.value / grid))
    (claim,) = found.claims
    assert (claim.game.view, claim.event) == (frozenset({"ciphertexts"}), Zero())
    text = " ".join(claim.assumptions)
    assert all(words in text for words in ("CKKS", "degree 8192", "120 bits", "security 128 bits", "ring learning with errors"))
    again = Release.from_json(found.to_json())
    assert again.claims == found.claims
    assert ledger.payment(found).fault is None
    assert disclosed(ledger, secret.id) == 40
    assert disclosed(ledger, "another") == 0


def test_a_score_of_zero_does_not_show_the_sign_of_the_noise(keys: Keys, ledger: Ledger) -> None:
    secret, public = keys
    model = crypto.Model((Layer(np.array([[1.0, -1.0]]), np.zeros(1)),), "identity")
    request = crypto.encrypt(secret, np.repeat(ROWS[:, :1], 2, axis=1))  # the exact score of each is 0
    answer, error = crypto.Scorer(model).score(public, request), crypto.error_bound(model, public)
    found = crypto.disclose(secret, answer, grid=1 / 16, error=error, unit=ROW, source="clinic", ledger=ledger, request=request)
    assert np.signbit(crypto.decrypt(secret, answer)).any()
    assert not found.value.any()
    assert not np.signbit(found.value).any()


def test_the_answer_to_a_ciphertexts_claim_is_not_covered(keys: Keys, ledger: Ledger) -> None:
    """Evidence about answers is not judged by the claim for ciphertexts: two claims that are never mixed up."""
    from discreet.audit import verdict
    from discreet.core import Evidence, Game

    inside = np.arange(200) % 2 == 0
    claim = ciphertext_claim(keys[0].parameters, ROW)
    for view, outcome in (("answers", "incomparable"), ("ciphertexts", "refuted")):
        seen = Evidence(
            game=Game(ROW, {view}), attack="reads it", score=inside.astype(float), inside=inside, run=np.arange(200),
            design="paired",
        )  # fmt: skip
        assert verdict(claim, seen, confidence=0.99).outcome == outcome


def test_decryptions_are_counted_and_end(keys: Keys, ledger: Ledger) -> None:
    secret, public = crypto.keygen("linear", features=2)
    request = crypto.encrypt(secret, ROWS)
    answer, error = crypto.Scorer(MODEL).score(public, request), crypto.error_bound(MODEL, public)
    how = {"error": error, "unit": ROW, "source": "clinic", "ledger": ledger}
    with pytest.raises(InvalidValue, match="below 64 times the error"):
        crypto.disclose(secret, answer, grid=error, **how)  # type: ignore[arg-type]
    assert disclosed(ledger, secret.id) == 0
    allowed = 100  # values on this grid, of which two hand-overs of 40 fit
    grid = 2 * error * allowed
    problems: list[InvalidValue] = []

    def hand_over() -> None:
        try:
            crypto.disclose(secret, answer, grid=grid, **how)  # type: ignore[arg-type]
        except InvalidValue as problem:
            problems.append(problem)

    threads = [threading.Thread(target=hand_over) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(problems) == 2  # each counts those that reserved before it, so no more and no fewer are refused
    assert "new keys" in str(problems[0])
    assert disclosed(ledger, secret.id) == 80  # what was refused before it was decrypted is given back
    ledger.open("another clinic", unit=ROW, epsilon=1.0, delta=1e-6)
    with pytest.raises(InvalidValue, match="120 values"):  # one key under two names is one key
        crypto.disclose(secret, answer, grid=grid, **{**how, "source": "another clinic"})  # type: ignore[arg-type]
    assert str(np.round(MODEL(ROWS)[0, 0], 3)) not in str(problems)


def test_each_value_counts_by_its_own_grid(ledger: Ledger) -> None:
    """Fine grids first and coarse ones later: what the fine ones have used up stays used up."""
    secret, public = crypto.keygen("linear", features=2)
    answer, error = crypto.Scorer(MODEL).score(public, crypto.encrypt(secret, ROWS)), crypto.error_bound(MODEL, public)
    how = {"unit": ROW, "source": "clinic", "ledger": ledger}
    crypto.disclose(secret, answer, grid=2 * error * 40.2, error=error, **how)  # type: ignore[arg-type]  # 40 of 40.2
    with pytest.raises(InvalidValue, match="80 values"):  # 40 / 40.2 + 40 / 400
        crypto.disclose(secret, answer, grid=2 * error * 400, error=error, **how)  # type: ignore[arg-type]
    with pytest.raises(InvalidValue, match="80 values"):  # a smaller error stated now does not make up for it
        crypto.disclose(secret, answer, grid=2 * error * 400, error=error / 10, **how)  # type: ignore[arg-type]
    crypto.disclose(secret, answer, grid=2 * error * 40_000, error=error, **how)  # type: ignore[arg-type]  # room for that


def test_what_is_refused_counts_where_it_was_decrypted_and_only_there(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    secret, public = crypto.keygen("linear", features=2)
    request = crypto.encrypt(secret, ROWS)
    answer, error = crypto.Scorer(MODEL).score(public, request), crypto.error_bound(MODEL, public)
    how = {"unit": ROW, "source": "clinic", "ledger": ledger}
    with pytest.raises(InvalidValue, match="Nothing was decrypted or counted"):  # 40 of 39
        crypto.disclose(secret, answer, grid=2 * error * 39, error=error, **how)  # type: ignore[arg-type]
    with pytest.raises(InvalidDocument, match="another request"):
        crypto.disclose(secret, answer, grid=1.0, error=error, request=crypto.encrypt(secret, ROWS), **how)  # type: ignore[arg-type]
    assert disclosed(ledger, secret.id) == 0
    assert [entry.kind for entry in ledger.history()] == ["open", "reserve", "cancel"]
    crypto.disclose(secret, answer, grid=2 * error * 100, error=error, request=request, **how)  # type: ignore[arg-type]
    assert disclosed(ledger, secret.id) == 40
    with pytest.raises(InvalidValue, match="more noise"):
        crypto.disclose(secret, answer, grid=1.0, error=1.01 * least_error(answer.parameters), **how)  # type: ignore[arg-type]
    assert disclosed(ledger, secret.id) == 80

    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("discreet.crypto.disclosure._handed", stop)
    with pytest.raises(KeyboardInterrupt):
        crypto.disclose(secret, answer, grid=1.0, error=error, **how)  # type: ignore[arg-type]
    monkeypatch.undo()
    assert disclosed(ledger, secret.id) == 80


def test_an_error_that_no_computation_has_is_refused(keys: Keys, ledger: Ledger) -> None:
    """A false server states next to none, so that a fine grid would pass and show the noise."""
    secret, public = keys
    answer = crypto.Scorer(MODEL).score(public, crypto.encrypt(secret, ROWS))
    with pytest.raises(InvalidValue, match="less than any computation"):
        crypto.disclose(secret, answer, grid=1e-12, error=1e-15, unit=ROW, source="clinic", ledger=ledger)
    for purpose in ("linear", "logistic", "network"):
        parameters = PURPOSES[purpose]
        tiny = crypto.Model((Layer(np.array([[1e-9, 0.0]]), np.array([0.0])),), "identity")
        assert least_error(parameters) < error_under(tiny, parameters, 1e-9)


@pytest.mark.parametrize("stated", [1e-9, 1e-7, 1e-6])
def test_noise_that_the_stated_error_does_not_have_is_noticed(ledger: Ledger, stated: float) -> None:
    """A server that states less than it has: on so fine a grid the noise would show. Its weights make the noise of a score
    a thousand times that of a feature.
    """
    secret, public = crypto.keygen("linear", features=2)
    steep = crypto.Model((Layer(np.array([[1000.0, -500.0]]), np.array([0.0])),), "identity")
    request = crypto.encrypt(secret, ROWS / 8, bound=0.125)
    answer = crypto.Scorer(steep).score(public, request)
    with pytest.raises(InvalidValue, match="more noise than an error"):
        crypto.disclose(secret, answer, grid=100 * stated, error=stated, unit=ROW, source="clinic", ledger=ledger)
    error = crypto.error_bound(steep, public, bound=0.125)
    assert np.abs(crypto.decrypt(secret, answer) - steep(ROWS / 8)).max() < error
    assert 8 * opened(secret, answer, request)[1] < error
    other = crypto.keygen("linear", features=2)
    answer = crypto.Scorer(steep).score(other[1], crypto.encrypt(other[0], ROWS / 8, bound=0.125))
    crypto.disclose(other[0], answer, grid=128 * error, error=error, unit=ROW, source="clinic", ledger=ledger)


@pytest.mark.parametrize("purpose", ["linear", "logistic", "network"])
def test_imaginary_parts_have_the_noise_of_the_real_ones(purpose: str) -> None:
    """4,000 errors of scores, less what is a smooth function of the score: rounded weights and factors."""
    secret, public = crypto.keygen(purpose, features=2)
    weights, bias = MODEL.layers[0].weights, MODEL.layers[0].bias
    last = Layer(np.array([[2.0]]), np.array([1.0]))
    model = {
        "linear": MODEL,
        "logistic": crypto.Model((Layer(weights, bias, fit("sigmoid", 8.0)),), "probability"),
        "network": crypto.Model((Layer(weights, bias, fit("tanh", 4.0)), last), "identity"),
    }[purpose]
    rows = np.random.default_rng(4).uniform(-1, 1, (4000, 2))
    scores, noise = opened(secret, crypto.Scorer(model).score(public, crypto.encrypt(secret, rows)), None)
    wanted = model(rows)[:, 0]
    off = scores[:, 0] - wanted
    assert noise / 3 < np.std(off - np.polyval(np.polyfit(wanted, off, 3), wanted)) < 3 * noise
    assert 8 * noise < crypto.error_bound(model, public)


def test_a_claim_for_ciphertexts_is_not_about_how_many_there_are(keys: Keys, ledger: Ledger) -> None:
    """The header says how many rows there are. For a unit that is added or removed that tells which world it is."""
    seen = [crypto.Encrypted.from_bytes(crypto.encrypt(keys[0], ROWS[: 3 + there]).to_bytes()).rows for there in (0, 1)]
    assert seen == [3, 4]
    with pytest.raises(InvalidValue, match="Messages show how many"):
        ciphertext_claim(keys[0].parameters, record())
    ledger.open("counted", unit=record(), epsilon=1.0, delta=1e-6)
    answer = crypto.Scorer(MODEL).score(keys[1], crypto.encrypt(keys[0], ROWS))
    with pytest.raises(InvalidValue, match="Messages show how many"):
        crypto.disclose(keys[0], answer, grid=0.1, error=1e-4, unit=record(), source="counted", ledger=ledger)
    assert disclosed(ledger, keys[0].id) == 0


def test_weights_of_a_training_are_handed_on_rounded(ledger: Ledger) -> None:
    rows = np.random.default_rng(0).uniform(-1, 1, (50, 1))
    plan = Plan(2, 50, 1, 1.0, 1.0)
    secret, public = crypto.keygen("training", features=2)
    holder = KeyHolder(secret, plan)
    how = {"unit": ROW, "source": "clinic", "ledger": ledger}
    with pytest.raises(InvalidValue, match="No step"):
        disclose_weights(holder, grid=0.1, **how)  # type: ignore[arg-type]
    trainer = Trainer(public, holder.encrypt(rows, (rows[:, 0] > 0).astype(int)))
    holder.receive(trainer.step(holder.start()))
    with pytest.raises(InvalidValue, match="below 64 times"):
        disclose_weights(holder, grid=1e-6, **how)  # type: ignore[arg-type]
    found = disclose_weights(holder, grid=2.0**-6, **how)  # type: ignore[arg-type]
    assert np.array_equal(found.value * 64, np.round(holder.weights * 64))
    assert [claim.game.view for claim in found.claims] == [frozenset({"ciphertexts"})]
    assert disclosed(ledger, secret.id) == 2


def test_what_is_not_handed_over(keys: Keys, ledger: Ledger) -> None:
    secret, public = keys
    request = crypto.encrypt(secret, ROWS)
    answer = crypto.Scorer(MODEL).score(public, request)
    how = {"grid": 0.1, "error": 1e-4, "unit": ROW, "source": "clinic"}
    with pytest.raises(InvalidValue, match="counted in it"):
        crypto.disclose(secret, answer, ledger=None, **how)  # type: ignore[arg-type]
    with pytest.raises(InvalidValue, match="belong to key"):
        crypto.disclose(crypto.keygen("linear", features=2)[0], answer, ledger=ledger, **how)  # type: ignore[arg-type]
    with pytest.raises(InvalidDocument, match="another request"):
        crypto.disclose(secret, answer, ledger=ledger, request=crypto.encrypt(secret, ROWS), **how)  # type: ignore[arg-type]
    with pytest.raises(InvalidValue, match="no source"):
        crypto.disclose(secret, answer, ledger=ledger, **{**how, "source": "other"})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "unit", [record(), user("name", rows=1, relation="replace"), user("name", rows=None, relation="replace")]
)
def test_ciphertexts_show_how_many_rows_there_are(unit: Unit) -> None:
    with pytest.raises(InvalidValue, match="how many rows"):
        ciphertext_claim(PURPOSES["linear"], unit)


@pytest.mark.parametrize("unit", [record("replace"), record("zero_out"), user("name", rows=None, relation="zero_out")])
def test_of_what_keeps_their_number_nothing_is_told(unit: Unit) -> None:
    assert ciphertext_claim(PURPOSES["linear"], unit).game.unit == unit
