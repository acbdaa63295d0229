"""Stated errors hold for rows and models that somebody chose for the largest error, in each layout and at each operation.

Noise comes from the operating system. Each of 80,000 comparisons is passed less than once in 2^48: false alarms below 1e-9.
"""

from __future__ import annotations

import numpy as np
import pytest

from discreet import crypto
from discreet.crypto.accuracy import error_under, fresh, gaussian, product, rescaling, switching
from discreet.crypto.model import Layer
from discreet.crypto.packing import coefficients, randomly_rounded, slots
from discreet.crypto.parameters import PURPOSES, WEIGHT_BITS
from discreet.crypto.plan import Plan
from discreet.crypto.polynomial import fit
from discreet.errors import InvalidValue

FEATURES = 784
WEIGHTS = 0.05 * np.random.default_rng(0).standard_normal((1, FEATURES))


def off(model: crypto.Model, rows: np.ndarray, bound: float) -> tuple[float, float]:
    """The error of encrypted scores before their link, and what is stated."""
    secret, public = crypto.keygen(model.purpose, features=model.features)
    request = crypto.encrypt(secret, rows, bound=bound)
    answer = crypto.Scorer(model).score(public, crypto.Encrypted.from_bytes(request.to_bytes()))
    scores = np.stack([secret.slots(item) for item in answer.ciphertexts(public.cipher)], axis=1).real[: answer.rows]
    return float(np.abs(scores - model(rows)).max()), crypto.error_bound(model, public, bound=bound)


@pytest.mark.parametrize("bound", [1.0, 8.0])
def test_a_row_that_follows_the_rounding_of_the_weights(bound: float) -> None:
    """Every feature at its limit, with the sign of what the encoding cuts off its weight: in either layout."""
    steps = WEIGHTS[0] * 2.0**WEIGHT_BITS
    row = bound * np.sign(steps - np.rint(steps))
    model = crypto.Model((Layer(WEIGHTS, np.array([0.1])),), "identity")
    for rows in (row, np.stack([row, -row])):
        error, stated = off(model, rows, bound)
        assert stated / 2 < error < stated < 1e-4 * (1 + bound)


def test_a_row_that_follows_the_rounding_of_weights_in_slots() -> None:
    """Keys with levels have a row in slots, where each weight is off by the rounding of all coefficients."""
    model = crypto.Model((Layer(WEIGHTS, np.array([0.1]), fit("sigmoid", 30.0)),), "probability")
    secret, public = crypto.keygen("logistic", features=FEATURES)
    cipher, scale = public.cipher, float(public.cipher.moduli[3])
    tiled = np.tile(np.pad(WEIGHTS[0], (0, 1024 - FEATURES)), 4)
    cut = cipher.decode(cipher.encode(tiled, 0, scale)).real[:FEATURES] - WEIGHTS[0]
    row = 0.25 * np.sign(cut)
    assert abs(model.layers[0].weights[0] @ row) < 30
    request = crypto.encrypt(secret, row)
    found = crypto.decrypt(secret, crypto.Scorer(model).score(public, request), request=request)
    assert np.abs(found - model(row)).max() < crypto.error_bound(model, public, bound=0.25)


def test_columns_made_for_roundings_that_add_up() -> None:
    """Without the random part, each coefficient of this column is cut by almost a half, and all of it adds up in one slot."""
    secret, public = crypto.keygen("linear", features=1)
    cipher, degree, scale = public.cipher, public.parameters.degree, 2.0**public.parameters.scale_bits
    wave = coefficients(degree, np.eye(1, degree // 2, 7)[0] + 0j)  # what one slot sees, of a polynomial with real slots
    steps = np.rint(4e5 * np.random.default_rng(1).standard_normal(degree)) + 0.49 * np.sign(wave)
    half = np.concatenate([[0.0], steps[1 : degree // 2], [0.0], -steps[1 : degree // 2][::-1]])
    column = slots(degree, half).real / scale
    at_random = gaussian(0.25 * degree / 2) / scale
    assert np.abs(cipher.decode(cipher.encode(column, 0, scale)) - column).max() > 2 * at_random
    for _ in range(3):
        rounded = cipher.encode(randomly_rounded(degree, column, scale), 0, scale)
        assert np.abs(cipher.decode(rounded) - column).max() < at_random
    assert np.abs(column).max() < 8
    found = secret.slots(cipher.from_bytes("Ciphertext", secret.hidden(column, 0, scale)))
    assert np.abs(found - column).max() < fresh(degree) / scale


@pytest.mark.parametrize("purpose", ["linear", "logistic", "network", "training"])
def test_what_each_operation_adds(purpose: str) -> None:
    """Fresh noise, a rescaling and a switch of keys, in every slot, under a new key each time. The first slot is the worst for
    a switch, since its root is next to 1: there the mean of the digits multiplies the noise in the key.
    """
    parameters = PURPOSES[purpose]
    for _ in range(3):
        secret, public = crypto.keygen(purpose, features=2)
        cipher, degree, level = public.cipher, parameters.degree, min(1, parameters.levels)
        scale = 2.0**parameters.scale_bits
        item = cipher.from_bytes("Ciphertext", secret.hidden(np.zeros(3), 0, scale))
        before = secret.slots(item)
        assert np.abs(before * scale).max() < fresh(degree)
        if level:
            item = cipher.multiply_plain(item, cipher.encode(1.0, 0, float(cipher.moduli[parameters.levels])))
            cipher.rescale(item)
            item.scale = scale
            assert np.abs(secret.slots(item) - before).max() * scale < rescaling(degree)
        conjugate = secret.slots(item).conj()
        if purpose in ("linear", "training"):
            moved = secret.slots(cipher.automorphism(item, 2 * degree - 1, public.galois))
        else:
            conjugate = np.roll(secret.slots(item), -1)
            moved = secret.slots(cipher.rotate(item, 1, public.galois))
        added = np.abs(moved - conjugate) * scale
        assert added.max() < switching(parameters, level)
        if parameters.primes[0] == parameters.primes[-1]:  # where the digits are as large as the special prime
            assert added[0] > 3 * np.median(added)


def test_sums_of_products_with_a_common_factor_spread_further_than_normal_numbers() -> None:
    """Noise times the key in one slot: eight deviations of a normal number are passed in one of 4,096 slots under every
    thousandth key or so, and `product` is not. On plain numbers, 2e7 draws.
    """
    random = np.random.default_rng(5)
    one = random.standard_normal((2, 10_000_000)) * np.hypot(*random.standard_normal((2, 10_000_000)))
    deviation = one.std()
    assert (np.abs(one) > 5.3 * deviation).mean() > 1e-4  # of normal numbers, 1e-7
    assert np.abs(one).max() < product(1)
    sums = one[0].reshape(-1, 1000).sum(axis=1)
    assert sums.std() < np.abs(sums).max() < product(1000) < 13 * sums.std()


def test_what_stays_the_same_in_every_step_adds_up_in_full() -> None:
    """Noise of the encrypted rows is the same in each step, so that its squares do not tell how far it is carried."""
    plan = Plan(5, 300, 40, 1.0, 1.0)
    now = before = 0.0
    for momentum in plan.momentum:
        now, before = now + momentum * (now - before) + 1.0, now
    assert now == pytest.approx(plan.carried(40).sum())
    assert now > 4 * np.linalg.norm(plan.carried(40))


def test_a_table_is_stated_no_less_than_a_row() -> None:
    for purpose in ("linear", "logistic", "network"):
        parameters = PURPOSES[purpose]
        small, large = (
            error_under(crypto.Model((Layer(WEIGHTS, np.array([0.1])),), "identity"), parameters, bound) for bound in (1.0, 8.0)
        )
        assert 0 < small < large < 1e-2


def test_no_error_is_stated_for_a_bound_that_is_none_or_for_other_keys() -> None:
    model, public = crypto.Model((Layer(np.ones((1, 2)), np.zeros(1)),), "identity"), crypto.keygen("linear", features=2)[1]
    for bound in (-1.0, 0.0, float("nan"), 2000.0, "8", None):
        with pytest.raises(InvalidValue, match="bound must be"):
            crypto.error_bound(model, public, bound=bound)  # type: ignore[arg-type]
    with pytest.raises(InvalidValue, match="needs keys for linear; these are for logistic"):
        crypto.error_bound(model, crypto.keygen("logistic", features=2)[1])
