"""Encrypted logistic regression: each step within the stated error of the plain one, and what is refused.

Noise comes from the operating system: one weight is beyond the stated error less than once in 1e13.
"""

from __future__ import annotations

import runpy
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from discreet import Ledger, crypto, record
from discreet.crypto.container import pack
from discreet.crypto.descent import Trainer
from discreet.crypto.disclosure import disclose_weights, disclosed
from discreet.crypto.messages import TrainingMessage
from discreet.crypto.packing import (
    automorphisms,
    coefficients,
    everywhere,
    exponents,
    monomial,
    packed,
    shared,
    slots,
    unpacked,
)  # fmt: skip
from discreet.crypto.plan import Plan
from discreet.crypto.training import KeyHolder
from discreet.errors import InvalidDocument, InvalidValue

rng = np.random.default_rng(0)
X = (rng.standard_normal((300, 4)) * 0.4).clip(-1, 1)
Y = (X[:, 0] - X[:, 1] + 0.2 * rng.standard_normal(300) > 0).astype(int)
PLAN = Plan(5, 300, 3, 2.0, 1.0)
Keys = tuple[crypto.SecretContext, crypto.PublicContext]


@pytest.fixture(scope="module")
def keys() -> Keys:
    return crypto.keygen("training", features=5)


@pytest.fixture(scope="module")
def rows(keys: Keys) -> TrainingMessage:
    return KeyHolder(keys[0], PLAN).encrypt(X, Y)


def sent(message: TrainingMessage) -> TrainingMessage:
    return TrainingMessage.from_bytes(message.to_bytes())


@pytest.mark.parametrize("nesterov", [True, False])
def test_every_step_is_the_plain_one(keys: Keys, nesterov: bool) -> None:
    secret, public = keys
    plan = replace(PLAN, nesterov=nesterov)
    holder, ones = KeyHolder(secret, plan), np.column_stack([X, np.ones(300)])
    trainer = Trainer(crypto.PublicContext.from_bytes(public.to_bytes()), sent(holder.encrypt(X, Y)))
    bound, weights, before = plan.error_bound(public.cipher.moduli), holder.start(), np.zeros(5)
    assert bound < 2e-4
    for momentum in plan.momentum:
        now = holder.weights
        wanted = plan.step(ones, Y, now + momentum * (now - before))
        weights, before = holder.refresh(sent(trainer.step(sent(weights)))), now
        assert 0 < np.abs(holder.weights - wanted).max() < bound
    assert holder.refreshes == plan.iterations
    off = np.abs(plan.plain(ones, Y) - holder.weights).max()
    assert off < plan.run_error(public.cipher.moduli) < plan.carried(plan.iterations).sum() * 1.5 * bound


def test_what_momentum_makes_of_the_noise_of_many_steps() -> None:
    """On plain numbers: noise of deviation 1 in each step of descent on a convex quadratic, flat in one direction, stays within
    the 2-norm of what `run_error` says is carried on; without momentum the factor is the root of the number of steps.
    """
    for nesterov, iterations in ((True, 60), (False, 60), (True, 3)):
        plan = Plan(5, 300, iterations, 1.0, 1.0, nesterov=nesterov)
        factor = float(np.linalg.norm(plan.carried(iterations)))
        assert nesterov or factor == pytest.approx(60**0.5)
        draws, slopes = (
            np.random.default_rng(3).standard_normal((iterations, 4000, 6)),
            np.array([0.0, 0.01, 0.1, 0.4, 0.8, 1.0]),
        )
        now = before = np.zeros((4000, 6))
        for momentum, noise in zip(plan.momentum, draws, strict=True):
            point = now + momentum * (now - before)
            now, before = point - slopes * point + noise, now
        assert now[:, 0].std() == pytest.approx(factor, rel=0.06)  # 5 standard errors
        assert (now.std(axis=0)[1:] < factor).all()


def test_a_full_size_step_is_stated_to_be_within_1e_5(keys: Keys) -> None:
    moduli = keys[1].cipher.moduli
    assert Plan(196, 8192, 32, 1.0, 1.0).error_bound(moduli) < 1e-5


@pytest.mark.parametrize(("size", "features"), [(4100, 2), (50, 1)])
def test_several_groups_of_rows_and_a_single_feature(size: int, features: int) -> None:
    draw = np.random.default_rng(1)
    table = draw.uniform(-1, 1, (size, features))
    labels = (table[:, 0] + 0.3 * draw.standard_normal(size) > 0.1).astype(int)
    found = crypto.fit_logistic(table, labels, iterations=3, learning_rate=4.0, bound=1.0)
    plain = found.plan.plain(np.column_stack([table, np.ones(size)]), labels)
    assert np.abs(np.append(found.coefficients, found.intercept) - plain).max() < found.error < 2e-3
    assert found.refreshes == 2
    right = ((np.column_stack([table, np.ones(size)]) @ plain > 0) == labels).mean()
    assert (found.predict(table) == labels).mean() == pytest.approx(right, abs=1 / size)
    assert right > 0.8
    assert "coefficients" not in repr(found)


def test_a_training_is_without_the_polynomials_error_nothing_but_logistic_regression() -> None:
    ones = np.column_stack([X, np.ones(300)])
    plan = Plan(5, 300, 30, 2.0, 1.0)
    exact = np.zeros(5)
    for _ in range(2000):
        exact -= 2.0 * ones.T @ (1 / (1 + np.exp(-ones @ exact)) - Y) / 300
    agree = ((ones @ plan.plain(ones, Y) > 0) == (ones @ exact > 0)).mean()
    assert agree > 0.97


def test_digits_are_told_apart_as_the_plain_run_tells_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """3 against 8, the benchmark's data, 600 rows of it: the same accuracy on the test digits."""
    root = Path(__file__).parents[3]
    data = root.parent / "shared/data"
    if not (data / "mnist").is_dir():
        pytest.skip("needs MNIST in ../shared/data")
    monkeypatch.syspath_prepend(str(root / "bench"))
    bench = runpy.run_path(str(root / "bench/crypto.py"))
    table, labels = (part[:600] for part in bench["digits"](data, "train"))
    test, wanted = bench["digits"](data, "t10k")
    found = crypto.fit_logistic(table, labels, iterations=6, learning_rate=1.0, bound=1.0)
    plain = found.plan.plain(np.column_stack([table, np.ones(600)]), labels)
    right = ((np.column_stack([test, np.ones(len(test))]) @ plain > 0) == wanted).mean()
    assert right > 0.9
    assert abs((found.predict(test) == wanted).mean() - right) < 0.005
    assert found.refreshes == 5


def test_packing() -> None:
    element = rng.standard_normal(8192)
    assert np.allclose(coefficients(8192, slots(8192, element)), element)
    for size in (1, 2, 5, 98, 197):
        weights = rng.standard_normal(size)
        assert np.allclose(unpacked(8192, packed(8192, weights), size), weights)


@pytest.mark.parametrize("columns", [4, 3])
def test_images_of_a_block_give_the_traces_that_the_tree_would(columns: int) -> None:
    """In a small ring, on plain slots: the sum of s_j times the trace of x_j o over the group."""
    degree, o = 64, slots(64, rng.standard_normal(64))
    block = [slots(degree, rng.standard_normal(degree)) for _ in range(columns)]

    def image(element: np.ndarray, exponent: int) -> np.ndarray:
        return everywhere(degree, element)[exponents(degree) * exponent % (2 * degree)]

    group = automorphisms(2)
    assert len(set(group)) == 4
    found = sum(part * image(o, exponent) for part, exponent in zip(shared(degree, block, 2), group, strict=True))
    wanted = sum(
        monomial(degree, place * 8) * sum(image(x * o, exponent) for exponent in group)
        for place, x in zip((0, 2, 1, 3), block, strict=False)
    )
    assert np.allclose(found, wanted)


def test_the_computing_machine_holds_no_secret(keys: Keys, rows: TrainingMessage) -> None:
    secret, public = keys
    trainer = Trainer(crypto.PublicContext.from_bytes(public.to_bytes()), sent(rows))
    names = {type(value).__name__ for value in (*vars(trainer).values(), trainer.public.cipher, *trainer._labels)}
    assert not names & {"SecretKey", "Decryptor", "SecretContext", "KeyHolder"}
    raw = public.cipher.to_bytes(secret._secret)
    data = rows.to_bytes()
    assert raw[-2000:] not in data
    for part in rows.parts:  # seeded: two ciphertexts of the same number share nothing
        assert rows.parts.count(part) == 1


def test_replays_and_other_runs(keys: Keys, rows: TrainingMessage) -> None:
    secret, public = keys
    holder = KeyHolder(secret, PLAN)
    trainer, first = Trainer(public, rows), holder.start()
    step = trainer.step(first)
    with pytest.raises(InvalidValue, match="replay"):
        trainer.step(first)
    second = holder.refresh(step)
    with pytest.raises(InvalidDocument, match="replayed"):
        holder.refresh(step)
    with pytest.raises(InvalidValue, match="fresh weights are needed"):
        trainer.step(step)
    with pytest.raises(InvalidValue, match="another plan"):
        trainer.step(replace(second, plan=replace(PLAN, learning_rate=3.0)))
    other, other_public = crypto.keygen("training", features=5)
    with pytest.raises(InvalidValue, match="belong to key"):
        trainer.step(KeyHolder(other, PLAN).start())
    with pytest.raises(InvalidValue, match="belong to key"):
        Trainer(other_public, rows)
    with pytest.raises(InvalidValue, match="keys for training with 5"):
        Trainer(crypto.keygen("linear", features=5)[1], rows)
    with pytest.raises(InvalidValue, match="needs keys for training"):
        KeyHolder(secret, replace(PLAN, features=6))


def test_garbage_from_the_machine(keys: Keys, rows: TrainingMessage) -> None:
    """Valid ciphertexts of something else, ciphertexts of another form, and damaged messages."""
    secret, public = keys
    cipher = public.cipher
    other, _ = crypto.keygen("training", features=5)

    def answer(context: crypto.SecretContext, level: int, scale: float) -> TrainingMessage:
        holder.start()
        part = context.seeded(cipher.encode(rng.uniform(-1, 1, 4096), level, scale))
        return TrainingMessage("step", secret.id, PLAN, 1, (part,), holder._last)

    holder = KeyHolder(secret, PLAN)
    with pytest.raises(InvalidDocument, match="do not decrypt to numbers"):
        holder.refresh(answer(other, 2, PLAN.packed_scale))
    holder = KeyHolder(secret, PLAN)
    for level, scale in ((0, PLAN.packed_scale), (2, 2.0**30)):
        with pytest.raises(InvalidDocument, match="another level or scale"):
            holder.refresh(answer(secret, level, scale))
    data = rows.to_bytes()
    with pytest.raises(InvalidDocument, match="truncated"):
        TrainingMessage.from_bytes(data[:-100])
    with pytest.raises(InvalidDocument, match="holds ciphertexts"):
        TrainingMessage.from_bytes(pack("ciphertext", {}, []))
    good = {"what": "step", "key": "0" * 32, "plan": PLAN.to_json(), "step": 1, "message": "1" * 32, "answers": None}
    for change in ({"what": "all"}, {"step": "1"}, {"key": 3}, {"plan": {}}, {"plan": {**PLAN.to_json(), "rows": 10**9}}):
        with pytest.raises(InvalidDocument):
            TrainingMessage.from_bytes(pack("training", {**good, **change}, [b""]))
    with pytest.raises(InvalidDocument, match="0 ciphertexts are not"):
        TrainingMessage.from_bytes(pack("training", good, []))


def test_values_are_checked_before_encryption(keys: Keys) -> None:
    holder = KeyHolder(keys[0], PLAN)
    for table, labels, text in (
        (X * 9, Y, "outside"), (X[:, :2], Y, "and an intercept"), (X, Y[:-1], "and an intercept"), (X, Y * 2, "0 and 1"),
        (X * np.nan, Y, "finite"),
    ):  # fmt: skip
        with pytest.raises(InvalidValue, match=text):
            holder.encrypt(table, labels)
    for change in ({"learning_rate": 1e-9}, {"bound": 5000.0}, {"rows": 0}, {"learning_rate": 1e7}, {"nesterov": 1}):
        with pytest.raises(InvalidValue):
            replace(PLAN, **change)


def test_a_training_that_diverges_is_noticed() -> None:
    draw = np.random.default_rng(2)
    table = draw.uniform(-8, 8, (60, 1))
    with pytest.raises(InvalidDocument, match="diverged"):
        crypto.fit_logistic(table, (table[:, 0] > 0).astype(int), iterations=6, learning_rate=16.0, radius=4.0)


def test_a_message_that_comes_twice_at_once_is_answered_once(keys: Keys, rows: TrainingMessage) -> None:
    """By eight threads on each side; the run goes on with the one answer."""
    secret, public = keys
    holder = KeyHolder(secret, PLAN)
    trainer, weights = Trainer(public, rows), holder.start()
    for number in (1, 2):
        with ThreadPoolExecutor(8) as pool:
            steps = [future for future in [pool.submit(trainer.step, weights) for _ in range(8)] if future.exception() is None]
        assert (len(steps), trainer.done) == (1, number)
        with ThreadPoolExecutor(8) as pool:
            again = [pool.submit(holder.refresh, steps[0].result()) for _ in range(8)]
            fresh = [future for future in again if future.exception() is None]
        assert (len(fresh), holder.refreshes, holder.decrypted) == (1, number, number)
        assert all(isinstance(future.exception(), (InvalidDocument, type(None))) for future in again)
        weights = fresh[0].result()


@pytest.mark.parametrize(
    ("rate", "iterations", "bounded"), [(1.0, 4, True), (6.0, 4, True), (30.0, 8, False), (100.0, 4, False)]
)
def test_a_bound_is_stated_only_where_steps_do_not_magnify_noise(rate: float, iterations: int, bounded: bool) -> None:
    """Balanced labels of one small feature: weights stay near 0, and the intercept has curvature 1 times the slope there."""
    table, labels = np.full((50, 1), 0.02), np.arange(50) % 2
    found = crypto.fit_logistic(table, labels, iterations=iterations, learning_rate=rate, bound=1.0)
    plain = found.plan.plain(np.column_stack([table, np.ones(50)]), labels)
    assert np.isfinite(found.error) == bounded
    assert np.abs(np.append(found.coefficients, found.intercept) - plain).max() < found.error


@pytest.mark.parametrize(("iterations", "farthest"), [(3, 5.97), (6, 8.0), (8, np.inf)])
def test_no_bound_beyond_the_range_of_the_polynomial(iterations: int, farthest: float) -> None:
    """Few rows far out, on a range of 8: beyond 5.97 the slope of the polynomial is below 0, which the others make up for."""
    table = np.array([[-0.3], [0.3]] * 40 + [[-1.0], [1.0]])
    labels, ones = np.array([0, 1] * 41), np.column_stack([table, np.ones(82)])
    found = crypto.fit_logistic(table, labels, iterations=iterations, learning_rate=6.0, bound=1.0)
    before, last = (replace(found.plan, iterations=count).plain(ones, labels) for count in (iterations - 2, iterations - 1))
    point = last + found.plan.momentum[-1] * (last - before)  # of the last step
    assert min(each for each in (5.97, 8.0, np.inf) if np.abs(ones @ point).max() < each) == farthest
    assert np.isfinite(found.error) == (farthest <= 8)
    plain = found.plan.plain(ones, labels)
    assert np.abs(np.append(found.coefficients, found.intercept) - plain).max() < found.error


def test_curvature_below_0_lets_errors_grow() -> None:
    """The largest growth of a change under any constant curvature in the range, against the recursion for many of them."""
    plan = Plan(2, 50, 12, 1.0, 1.0)

    def recursion(growth: float) -> np.ndarray:
        columns = []
        for place in range(12):
            now = before = 0.0
            for step, factor in enumerate(plan.momentum):
                now, before = growth * ((1 + factor) * now - factor * before) + (step == place), now
            columns.append(now)
        return np.array(columns)

    for least in (0.0, -0.05, -0.3):
        most = plan.carried(12, 1 - least)
        for curvature in np.linspace(least, 1, 40):
            assert (np.abs(recursion(1 - curvature)) <= most + 1e-12).all()
    assert plan.carried(12, 1.3).sum() > 3 * plan.carried(12).sum()


def test_weights_without_a_bound_are_not_handed_on(tmp_path: Path) -> None:
    table, labels = np.full((50, 1), 0.02), np.arange(50) % 2
    secret, public = crypto.keygen("training", features=2)
    holder = KeyHolder(secret, Plan(2, 50, 2, 30.0, 1.0))
    trainer = Trainer(public, holder.encrypt(table, labels))
    holder.receive(trainer.step(holder.start()))
    ledger = Ledger(tmp_path / "ledger.db")
    ledger.open("clinic", unit=record("replace"), epsilon=1.0, delta=1e-6)
    with pytest.raises(InvalidValue, match="no bound for the error of these weights"):
        disclose_weights(holder, grid=1.0, unit=record("replace"), source="clinic", ledger=ledger)
    assert disclosed(ledger, secret.id) == 0
    assert KeyHolder(secret, Plan(2, 50, 2, 1.0, 1.0)).run_error() == np.inf  # it has seen no rows
