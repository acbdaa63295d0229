"""Attack models learned from shadows, and the data of those shadows: other rows, marginals, synthesised rows out of nothing."""

from __future__ import annotations

import numpy as np
import pytest
from torch import nn

import discreet
from discreet.attack.membership import from_marginals, marginals, query_synthesis, splits, train_shadows
from discreet.attack.membership.shokri import features, shokri
from discreet.audit import roc
from discreet.errors import InvalidValue
from discreet.models import Recipe, predict

WIDTH, CLASSES = 40, 4
CENTRES = np.random.default_rng(0).random((CLASSES, WIDTH))


def bits(rows, seed):
    """Binary rows, each class with its own probabilities, a good deal of noise in them."""
    rng = np.random.default_rng(seed)
    y = rng.integers(0, CLASSES, rows)
    chance = 0.5 + 0.45 * (CENTRES[y] - 0.5)
    return (rng.random((rows, WIDTH)) < chance).astype(np.float32), y


def build():
    return nn.Sequential(nn.Linear(WIDTH, 48), nn.ReLU(), nn.Linear(48, CLASSES))


RECIPE = Recipe(build, epochs=40, batch_size=50, learning_rate=1e-2)
X, Y = bits(600, 1)
MEMBERS, OTHERS = (X[:300], Y[:300]), (X[300:], Y[300:])


@pytest.fixture(scope="module")
def target():
    """A model that memorised the first 300 rows."""
    import torch

    torch.manual_seed(7)
    model = build()
    optimizer = torch.optim.Adam(model.parameters(), 1e-2)
    rows, labels = torch.from_numpy(X[:300]), torch.from_numpy(Y[:300])
    for _ in range(150):
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(rows), labels).backward()
        optimizer.step()
    return model


def area(evidence):
    return evidence.auc()


def test_attack_models_learned_from_shadows_find_members(target):
    found = discreet.attack.membership(target, RECIPE, MEMBERS, OTHERS, attacks=["shokri", "loss"], shadows=8)
    # The area of useless scores over 300 and 300 rows has a spread of 0.024: 0.62 is five of them, 3e-7.
    assert area(found["shokri"]) > 0.62
    assert area(found["shokri"]) > area(found["loss"]) - 0.05


def test_an_attacker_with_other_rows_only(target):
    found = discreet.attack.membership(
        target, RECIPE, MEMBERS, OTHERS, attacks=["shokri", "lira_offline", "calibrated"], shadows=8, population=bits(600, 2)
    )
    assert all(area(one) > 0.62 for one in found.values())
    with pytest.raises(InvalidValue, match="bayes_lira needs models trained on the rows in question"):
        discreet.attack.membership(target, RECIPE, MEMBERS, OTHERS, attacks=["bayes_lira"], population=bits(60, 2))
    with pytest.raises(InvalidValue, match="population has inputs of shape"):
        discreet.attack.membership(target, RECIPE, MEMBERS, OTHERS, attacks=["shokri"], population=(X[:, :5], Y))


def test_an_attacker_with_marginals_only(target):
    rows = from_marginals(target, marginals(X[300:], noise=0.1), 600, seed=3)
    assert rows[0].shape == (600, WIDTH)
    assert np.array_equal(rows[1], predict.labels(target, rows[0]))
    # Each column's mean is that of its marginal within six deviations: 40 columns, below 1e-7 together.
    wanted = 0.9 * X[300:].mean(0) + 0.05
    assert (np.abs(rows[0].mean(0) - wanted) < 6 * np.sqrt(0.25 / 600)).all()
    found = discreet.attack.membership(target, RECIPE, MEMBERS, OTHERS, attacks=["shokri"], shadows=8, population=rows)
    assert area(found["shokri"]) > 0.62


@pytest.mark.filterwarnings("ignore:The shadows are right")  # rows the target is sure of are easier than real ones
def test_an_attacker_with_nothing(target):
    made = query_synthesis(target, np.arange(600) % CLASSES, np.full(WIDTH, 2), confidence=0.6, seed=4)
    assert len(made.X) == made.wanted == 600
    assert made.queries >= 600
    found = discreet.attack.membership(
        target, RECIPE, MEMBERS, OTHERS, attacks=["shokri"], shadows=8, population=(made.X, made.y)
    )
    assert area(found["shokri"]) > 0.62


def test_shadows_that_say_nothing_teach_nothing():
    rng = np.random.default_rng(5)
    scores, inside = rng.normal(size=(4, 500, CLASSES)), rng.random((4, 500)) < 0.5
    y = rng.integers(0, CLASSES, 500)
    truth = np.arange(500) < 250
    # Six spreads of 0.026 of useless scores: 1e-9.
    assert abs(roc(shokri(scores[0] + 0.1, y, scores[1:], y, inside[1:]), truth).area() - 0.5) < 0.16


def test_features_hold_the_probabilities_in_order():
    scores = np.log(np.array([[0.2, 0.7, 0.1]]))
    assert np.allclose(features(scores, np.array([0]))[0], [np.log(0.7), np.log(0.2), np.log(0.1), np.log(0.2 / 0.8), 0.0])
    assert np.isfinite(features(np.array([[900.0, -900.0]]), np.array([1]))).all()


def test_a_class_with_few_rows_is_left_to_a_model_of_all():
    y = np.where(np.arange(600) < 10, 3, Y % 3)
    shadows = train_shadows(RECIPE, X, y, splits(600, 2, 0))
    found = shokri(shadows.scores[0], y, shadows.scores[1:], y, shadows.inside[1:])
    assert np.isfinite(found).all()


def test_climbed_rows_are_sure_and_in_range(target):
    sizes = np.array([2, 3, 5, 9] * 10)
    weights = np.random.default_rng(6).normal(size=(WIDTH, CLASSES))

    def sees(rows):
        assert ((rows >= 0) & (rows < sizes)).all()
        assert (rows == rows.round()).all()
        return rows @ weights / 4

    made = query_synthesis(sees, np.arange(50) % CLASSES, sizes, confidence=0.9, batch=16, seed=0)
    assert made.y.tolist() == (np.arange(50) % CLASSES).tolist()
    p = np.exp(sees(made.X))
    p /= p.sum(1, keepdims=True)
    assert (p[np.arange(50), made.y] > 0.9).all()
    again = query_synthesis(sees, np.arange(50) % CLASSES, sizes, confidence=0.9, batch=16, seed=0)
    assert np.array_equal(made.X, again.X)


def test_one_climber_does_what_the_algorithm_says():
    """Confidence never falls; after `patience` rejections in a row half as many features change, down to `least`."""
    seen = []

    def sees(rows):
        seen.append(rows[0].copy())
        level = rows.sum(1) / 4 - 8
        return np.stack([level, np.zeros(len(rows))], 1)

    made = query_synthesis(sees, [0], np.full(64, 2), confidence=0.95, most=32, least=2, patience=3, seed=1)
    best, kept, change, rejected = -1.0, seen[0], 32, 0
    for row in seen:
        assert (row != kept).sum() <= (change if best >= 0 else 0)
        sure = 1 / (1 + np.exp(8 - row.sum() / 4))
        if sure >= best:
            best, kept, rejected = sure, row, 0
        else:
            rejected += 1
            if rejected > 3:
                change, rejected = max(2, -(-change // 2)), 0
    assert np.array_equal(made.X[0], kept)
    assert made.queries == len(seen)
    assert best > 0.95


def test_climbers_give_up():
    made = query_synthesis(lambda rows: np.zeros((len(rows), 2)), [0, 1, 0], np.full(6, 2), steps=20)
    assert made.X.shape == (0, 6)
    assert made.queries == 60
    assert repr(made) == "Synthesised(0 of 3 rows, 60 queries)"


@pytest.mark.parametrize(
    ("classes", "values", "sees", "told"),
    [
        ([0], [1, 2], lambda rows: rows, "at least 2"),
        ([], [2, 2], lambda rows: rows, "classes must be a list of labels"),
        ([2], [2, 2], lambda rows: rows, "up to class 2"),
        ([1], [2, 2], lambda rows: rows * np.nan, "NaN or infinite"),
    ],
)
def test_climbing_refuses(classes, values, sees, told):
    with pytest.raises(InvalidValue, match=told):
        query_synthesis(sees, np.array(classes, int), np.array(values), steps=3)


def test_marginals_must_be_probabilities():
    with pytest.raises(InvalidValue, match=r"summing to 1; got 0\.5"):
        from_marginals(lambda rows: rows, [(np.arange(2), np.array([0.25, 0.25]))], 3)
