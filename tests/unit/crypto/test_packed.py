"""Packed ciphertexts: scores against the plain model within the stated error, keys and files, and what is refused.

Noise comes from the operating system: one of 4,096 slots is beyond the stated error less than once in 1e10. Some 20 tables:
false alarms below 1e-8.
"""

from __future__ import annotations

import pickle
from pathlib import Path

import numpy as np
import pytest
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from discreet import crypto
from discreet.crypto.container import MAGIC, pack
from discreet.crypto.links import applied
from discreet.crypto.parameters import LIMITS, PURPOSES
from discreet.crypto.polynomial import ACTIVATIONS, fit
from discreet.errors import InvalidDocument, InvalidValue, MissingExtra

rng = np.random.default_rng(0)
ROWS = rng.standard_normal((120, 5)).clip(-4, 4)
TWO, THREE = (ROWS[:, 0] - ROWS[:, 1] > 0).astype(int), np.digitize(ROWS[:, 0] + ROWS[:, 2], [-0.7, 0.7])


@pytest.fixture(scope="module", params=["tenseal", "seal-python"])
def engine(request: pytest.FixtureRequest) -> str:
    module = {"tenseal": "tenseal", "seal-python": "seal"}[request.param]
    pytest.importorskip(module, reason=f"{request.param} is not installed")
    return str(request.param)


@pytest.fixture(scope="module")
def keys(engine: str) -> dict[str, tuple[crypto.SecretContext, crypto.PublicContext]]:
    return {purpose: crypto.keygen(purpose, features=5, engine=engine) for purpose in ("linear", "logistic", "network")}


def scored(keys: dict, model: crypto.Model, rows: np.ndarray) -> np.ndarray:
    secret, public = keys[model.purpose]
    request = crypto.encrypt(secret, rows)
    answer = crypto.Scorer(model).score(public, crypto.Encrypted.from_bytes(request.to_bytes()))
    return crypto.decrypt(secret, crypto.Encrypted.from_bytes(answer.to_bytes()), request=request)


@pytest.mark.parametrize("rows", [ROWS, ROWS[3]], ids=["rows", "row"])
def test_linear_logistic_and_softmax_models_of_scikit_learn(keys: dict, rows: np.ndarray) -> None:
    table = np.atleast_2d(rows)
    linear = LinearRegression().fit(ROWS, ROWS @ [1, -2, 0.5, 0, 1] + 0.3)
    model = crypto.convert(linear)
    bound = crypto.error_bound(model, keys["linear"][1])
    assert bound < 1e-3
    assert np.abs(scored(keys, model, rows)[:, 0] - linear.predict(table)).max() < bound
    two = LogisticRegression().fit(ROWS, TWO)
    assert np.abs(scored(keys, crypto.convert(two), rows)[:, 0] - two.predict_proba(table)[:, 1]).max() < bound
    three = LogisticRegression().fit(ROWS, THREE)
    assert np.abs(scored(keys, crypto.convert(three), rows) - three.predict_proba(table)).max() < 10 * bound


@pytest.mark.parametrize("rows", [ROWS, ROWS[3]], ids=["rows", "row"])
def test_the_sigmoid_on_ciphertexts(keys: dict, rows: np.ndarray) -> None:
    fitted = LogisticRegression(C=0.1).fit(ROWS, TWO)
    radius = float(np.abs(fitted.decision_function(ROWS)).max())
    model = crypto.convert(fitted, radius=radius, encrypted_sigmoid=True)
    found = scored(keys, model, rows)
    bound = crypto.error_bound(model, keys["logistic"][1])
    assert bound < 1e-3
    assert np.abs(found - model(rows).clip(0, 1)).max() < bound
    exact = fitted.predict_proba(np.atleast_2d(rows))[:, 1:]
    assert np.abs(found - exact).max() < model.layers[-1].activation.error + bound  # type: ignore[union-attr]
    assert f"error at most {model.layers[-1].activation.error:.3g}" in model.approximation[0]  # type: ignore[union-attr]


def test_a_network_of_scikit_learn(keys: dict) -> None:
    fitted = MLPClassifier((4,), activation="tanh", solver="lbfgs", alpha=1.0, random_state=0, max_iter=2000).fit(ROWS, TWO)
    model = crypto.convert(fitted, radius=6.0)
    for rows in (ROWS[:20], ROWS[3]):
        found, wanted = scored(keys, model, rows), 1 / (1 + np.exp(-model(rows)))
        assert np.abs(found - wanted).max() < crypto.error_bound(model, keys["network"][1]) < 1e-2


def test_a_network_of_torch_with_two_hidden_layers(keys: dict) -> None:
    import torch

    torch.manual_seed(0)
    net = torch.nn.Sequential(
        torch.nn.Linear(5, 3),
        torch.nn.ReLU(),
        torch.nn.Linear(3, 3),
        torch.nn.SiLU(),
        torch.nn.Linear(3, 2),
        torch.nn.Softmax(dim=1),
    )
    model = crypto.convert(net, radius=4.0)
    assert (model.purpose, model.link, len(model.approximation)) == ("network", "softmax", 2)
    scores = model(ROWS[:10])
    wanted = np.exp(scores) / np.exp(scores).sum(axis=1, keepdims=True)
    assert np.abs(scored(keys, model, ROWS[:10]) - wanted).max() < crypto.error_bound(model, keys["network"][1]) < 1e-2


@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("radius", [1.0, 6.0])
def test_the_error_of_a_polynomial_is_an_upper_bound(activation: str, radius: float) -> None:
    fitted = fit(activation, radius)
    points = np.random.default_rng(1).uniform(-radius, radius, 50_000)
    found = np.abs(fitted(points) - ACTIVATIONS[activation][0](points)).max()
    assert 0.9 * fitted.error - 1e-4 < found <= fitted.error


def test_files(tmp_path: Path, keys: dict) -> None:
    secret, public = keys["linear"]
    secret.save(tmp_path / "secret.key")
    public.save(tmp_path / "public.key")
    assert (tmp_path / "secret.key").stat().st_mode & 0o777 == 0o600
    loaded, model = crypto.SecretContext.load(tmp_path / "secret.key"), crypto.convert(LinearRegression().fit(ROWS, TWO))
    crypto.encrypt(loaded, ROWS).save(tmp_path / "rows.ct")
    answer = crypto.Scorer(model).score(
        crypto.PublicContext.load(tmp_path / "public.key"), crypto.Encrypted.load(tmp_path / "rows.ct")
    )
    assert np.abs(crypto.decrypt(secret, answer) - model(ROWS)).max() < 1e-3
    model.save(tmp_path / "model.json")
    assert np.array_equal(crypto.Model.load(tmp_path / "model.json")(ROWS), model(ROWS))


def test_the_secret_side_is_not_sent(tmp_path: Path, keys: dict) -> None:
    secret, public = keys["linear"]
    with pytest.raises(InvalidValue, match="not pickled"):
        pickle.dumps(public)
    assert not hasattr(secret, "to_bytes")
    raw = public.cipher.to_bytes(secret._secret)
    assert raw[-2000:] not in public.to_bytes()
    secret.save(tmp_path / "secret.key")
    with pytest.raises(InvalidDocument, match="holds a secret key"):
        crypto.PublicContext.load(tmp_path / "secret.key")
    with pytest.raises(InvalidDocument, match="holds a secret key"):
        crypto.PublicContext.from_bytes((tmp_path / "secret.key").read_bytes())


def test_damaged_files(tmp_path: Path, keys: dict) -> None:
    secret, _ = keys["linear"]
    whole = crypto.encrypt(secret, ROWS).to_bytes()
    for length in (3, 20, 60, len(whole) // 2, len(whole) - 1):
        with pytest.raises(InvalidDocument, match=r"truncated|not written by"):
            crypto.Encrypted.from_bytes(whole[:length])
    changed = bytearray(whole)
    changed[len(whole) // 2] ^= 1
    with pytest.raises(InvalidDocument, match="damaged"):
        crypto.Encrypted.from_bytes(bytes(changed))
    newer = bytearray(whole)
    newer[len(MAGIC)] = 9
    with pytest.raises(InvalidDocument, match="version 9"):
        crypto.Encrypted.from_bytes(bytes(newer))
    with pytest.raises(InvalidDocument, match="There is no file"):
        crypto.Encrypted.load(tmp_path / "missing")
    for header in ({}, {"rows": "many"}, {"key": 3}):
        with pytest.raises(InvalidDocument):
            crypto.Encrypted.from_bytes(pack("ciphertext", header, [b"x"]))


def test_other_keys_other_ciphertexts(keys: dict) -> None:
    secret, public = keys["linear"]
    other, _ = crypto.keygen("linear", features=5, engine=public.cipher.name)
    model, request = crypto.convert(LinearRegression().fit(ROWS, TWO)), crypto.encrypt(secret, ROWS)
    with pytest.raises(InvalidValue, match="belong to key"):
        crypto.Scorer(model).score(public, crypto.encrypt(other, ROWS))
    answer = crypto.Scorer(model).score(public, request)
    with pytest.raises(InvalidValue, match="belong to key"):
        crypto.decrypt(other, answer)
    with pytest.raises(InvalidDocument, match="another request"):
        crypto.decrypt(secret, answer, request=crypto.encrypt(secret, ROWS))
    with pytest.raises(InvalidValue, match="no scores"):
        crypto.decrypt(secret, request)
    with pytest.raises(InvalidValue, match="keys for linear; these are for network"):
        crypto.Scorer(model).score(keys["network"][1], crypto.encrypt(keys["network"][0], ROWS))


def test_an_answer_of_garbage_is_refused(keys: dict) -> None:
    """Valid bytes that decrypt to nothing: a ciphertext made under another key, with this key's name on it."""
    secret, public = keys["linear"]
    other, _ = crypto.keygen("linear", features=5, engine=public.cipher.name)
    request = crypto.encrypt(secret, ROWS)
    foreign = other.encrypt_plain(public.cipher.encode(np.ones(10), 0, 2.0**47))
    forged = crypto.Encrypted(
        secret.id, request.parameters, "scores", request.rows, 1, 8.0, (foreign,), answers=request.message
    )
    with pytest.raises(InvalidDocument, match="does not decrypt to scores"):
        crypto.decrypt(secret, forged, request=request)
    (small,) = crypto.encrypt(secret, ROWS[3]).ciphertexts(public.cipher)
    small.scale = 2.0**4  # decrypts to numbers that rounding to a grid would leave as they are, noise and all
    rescaled = crypto.Encrypted(secret.id, request.parameters, "scores", 120, 1, 8.0, (small,), answers=request.message)
    with pytest.raises(InvalidDocument, match="its scale would show the noise"):
        crypto.decrypt(secret, rescaled, request=request)
    noise = crypto.Encrypted(
        secret.id, request.parameters, "scores", request.rows, 1, 8.0, (b"\x5e\xa1" + bytes(5000),), answers=request.message
    )
    with pytest.raises(InvalidDocument, match="is damaged"):
        crypto.decrypt(secret, noise)


def test_values_are_checked_before_encryption(keys: dict) -> None:
    secret, _ = keys["linear"]
    for rows, text in (
        (ROWS * 100, "outside"), (ROWS[:, :3], "5 features; found 3"), ([[np.nan] * 5], "finite"), ([["a"] * 5], "numbers"),
        (np.zeros((5000, 5)), "4096 slots"), (np.zeros((0, 5)), "shape"),
    ):  # fmt: skip
        with pytest.raises(InvalidValue, match=text):
            crypto.encrypt(secret, rows)
    steep = crypto.Model((crypto.convert(LinearRegression().fit(ROWS, TWO * 1e4)).layers[0],), "identity")
    with pytest.raises(InvalidValue, match="the encoding holds"):
        crypto.Scorer(steep).score(keys["linear"][1], crypto.encrypt(secret, ROWS))


def test_levels_run_out(keys: dict) -> None:
    secret, public = keys["logistic"]
    cipher, value = public.cipher, secret.encrypt_plain(public.cipher.encode(0.5, 0, 2.0**33))
    for _ in range(3):
        value = cipher.rescale(cipher.relinearize(cipher.multiply(value, value), public.relin))
    with pytest.raises(InvalidValue, match="no level left: these parameters allow 3"):
        cipher.rescale(cipher.relinearize(cipher.multiply(value, value), public.relin))


def test_parameters_are_those_of_the_table() -> None:
    for parameters in PURPOSES.values():
        assert parameters.modulus_bits <= LIMITS[parameters.degree]
    with pytest.raises(InvalidValue, match="128 bits of security allow 109"):
        crypto.RingParameters("ckks", 4096, (60, 60), 26)
    for bad in (
        ("rsa", 4096, (50, 50), 26),
        ("ckks", 4000, (50, 50), 26),
        ("ckks", 4096, (50,), 26),
        ("ckks", 4096, (50, 50), 5),
    ):
        with pytest.raises(InvalidValue):
            crypto.RingParameters(*bad)  # type: ignore[arg-type]


def test_memory_is_stated_beforehand(keys: dict) -> None:
    for purpose, (_, public) in keys.items():
        needed = crypto.key_memory(purpose, features=5)
        assert (
            0.6 * needed < len(public.to_bytes()) < 1.02 * needed + 8 * public.parameters.degree
        )  # with an entry for each missing key
    with pytest.raises(InvalidValue, match="the limit is 1,000"):
        crypto.keygen("linear", features=5, memory_limit=1000)
    with pytest.raises(InvalidValue, match="4096 slots"):
        crypto.keygen("linear", features=5000)


def test_scores_far_out_stay_probabilities() -> None:
    with np.errstate(all="raise"):
        assert applied(np.array([[-2000.0], [0.0], [2000.0]]), "logistic").ravel().tolist() == [0.0, 0.5, 1.0]


def test_what_cannot_be_converted() -> None:
    import torch

    with pytest.raises(InvalidValue, match="cannot be converted"):
        crypto.convert(object())
    with pytest.raises(InvalidValue, match=r"encrypt pipeline\[:-1\]"):
        crypto.convert(make_pipeline(StandardScaler(), LinearRegression()).fit(ROWS, TWO))
    with pytest.raises(InvalidValue, match="Pass radius"):
        crypto.convert(MLPClassifier((2,), solver="lbfgs", alpha=1.0, max_iter=2000, random_state=0).fit(ROWS, TWO))
    with pytest.raises(InvalidValue, match="Conv1d"):
        crypto.convert(torch.nn.Sequential(torch.nn.Conv1d(1, 1, 1)), radius=2.0)
    with pytest.raises(InvalidValue, match="weights of 0"):
        crypto.convert(LinearRegression().fit(ROWS, np.zeros(len(ROWS))))


def test_a_missing_library_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    from discreet.crypto import engine

    engine.open_cipher.cache_clear()
    monkeypatch.setitem(sys.modules, "tenseal.sealapi", None)
    monkeypatch.setitem(sys.modules, "seal", None)
    with pytest.raises(MissingExtra, match=r"discreet-privacy\[fhe\]"):
        crypto.keygen("linear", features=3)
