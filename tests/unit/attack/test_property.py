"""What share of the training rows has a property."""

import numpy as np
import pytest

from discreet.attack.inversion import PropertyInference
from discreet.errors import InvalidValue


def population(count, rng):
    """Two groups whose labels depend on the columns in different ways."""
    has = rng.random(count) < 0.5
    X = rng.normal(size=(count, 4))
    y = X[:, 0] + np.where(has, 1.0, -1.0) * X[:, 1] + 0.5 * rng.normal(size=count)
    return X, y, has


def fit(X, y, rng):
    slope = np.linalg.lstsq(np.c_[X, np.ones(len(X))], y, rcond=None)[0]
    return lambda rows: np.c_[rows, np.ones(len(rows))] @ slope


def test_the_interval_holds_the_share_as_often_as_it_says():
    """60 models at 90 %: fewer than 44 hits happen once in 10,000 times where coverage is 90 %."""
    rng = np.random.default_rng(1)
    X, y, has = population(4000, rng)
    probes = rng.normal(size=(20, 4))
    hits, widths = 0, []
    for turn in range(60):
        share = rng.uniform(0.1, 0.9)
        mine, told, marks = population(4000, rng)
        kept = np.r_[np.flatnonzero(marks)[: round(300 * share)], np.flatnonzero(~marks)[: 300 - round(300 * share)]]
        attack = PropertyInference(300, shadows=60, seed=turn)
        found = attack.infer(fit(mine[kept], told[kept], rng), fit, X, y, has, probes, confidence=0.9)
        hits += found.low <= share <= found.high
        widths.append(found.high - found.low)
    assert hits >= 44
    assert np.mean(widths) < 0.3  # without the model about 0.85


def test_a_model_that_does_not_depend_on_the_property_tells_nothing():
    """The twin: labels that are the same for both groups."""
    rng = np.random.default_rng(2)
    X, _, has = population(4000, rng)
    found = PropertyInference(300, shadows=60).infer(
        lambda rows: rows[:, 0], lambda rows, y, draw: lambda asked: asked[:, 0], X, X[:, 0], has, rng.normal(size=(20, 4))
    )  # fmt: skip
    assert found.high - found.low >= 2 * found.blind * 0.9


def test_what_cannot_be_inferred_is_said():
    X, y, has = population(50, np.random.default_rng(3))
    attack = PropertyInference(20, shadows=40)
    with pytest.raises(InvalidValue, match="do not give an interval"):
        attack.infer(lambda rows: rows, fit, X, y, has, X, confidence=0.99)
    with pytest.raises(InvalidValue, match="rows that have not"):
        attack.infer(lambda rows: rows, fit, X, y, np.ones(50), X)
    with pytest.raises(InvalidValue, match="answer alike"):
        attack.infer(lambda rows: rows, fit, X, y, has, X)
    with pytest.raises(InvalidValue, match="not finite"):
        attack.infer(lambda rows: rows[:, 0] * np.nan, fit, X, y, has, X)
    with pytest.raises(InvalidValue, match="must lie below"):
        PropertyInference(20, least=0.9, most=0.1)


def test_shadows_that_are_not_like_the_model_tell_nothing():
    """A model of another kind is refused: its interval would lie outside of all shares."""
    rng = np.random.default_rng(4)
    X, y, has = population(4000, rng)
    own = fit(X[:300], y[:300], rng)
    attack = PropertyInference(300, shadows=60)
    with pytest.raises(InvalidValue, match="not trained as they were"):
        attack.infer(lambda rows: 50 * own(rows) + 9, fit, X, y, has, rng.normal(size=(20, 4)))


@pytest.mark.parametrize("share", [0.2, 0.8])
def test_shadows_that_are_trained_as_one_job(share):
    """A `Trainer` in the place of a function: the same attack on torch models."""
    from torch import nn

    from discreet.models import Recipe, Trainer

    rng = np.random.default_rng(5)
    X, y, has = population(1500, rng)
    X, y = X.astype(np.float32), (y > 0).astype(np.int64)
    trainer = Trainer(Recipe(lambda: nn.Linear(4, 2), epochs=5, learning_rate=0.05))
    mine, told, marks = population(1500, rng)
    count = round(300 * share)
    rows = np.r_[np.flatnonzero(marks)[:count], np.flatnonzero(~marks)[: 300 - count]]
    model = trainer.one(mine[rows].astype(np.float32), (told[rows] > 0).astype(np.int64), seed=9)
    attack = PropertyInference(300, shadows=60)
    found = attack.infer(model, trainer, X, y, has, X[:40], confidence=0.9)
    assert found.low <= share <= found.high
    assert found.high - found.low < 0.6 < 2 * found.blind
    with pytest.raises(InvalidValue, match="Narrow them"):
        attack.infer(model, trainer, X[:300], y[:300], has[:300], X[:40])
