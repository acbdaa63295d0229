"""Membership inference: shadows trained together equal those trained alone; scores equal slow references."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from scipy import stats
from torch import nn

import discreet
from discreet.attack.membership import ATTACKS, signals, splits, train_shadows
from discreet.attack.membership.bayes_lira import paired
from discreet.audit import epsilon_at_least, roc, tpr_interval
from discreet.errors import DiscreetError, InvalidDocument, InvalidValue
from discreet.models import Recipe


def blobs(rows=300, width=10, classes=3, seed=0, noise=2.0):
    rng = np.random.default_rng(seed)
    y = rng.integers(0, classes, rows)
    X = rng.normal(size=(classes, width))[y] + noise * rng.normal(size=(rows, width))
    return X.astype(np.float32), y


def mlp():
    return nn.Sequential(nn.Linear(10, 32), nn.Tanh(), nn.Linear(32, 3))


class Odd(nn.Module):
    """Not a chain: goes through vmap."""

    def __init__(self):
        super().__init__()
        self.one, self.two = nn.Linear(10, 16), nn.Linear(16, 3)

    def forward(self, x):
        return self.two(torch.relu(self.one(x))) + x[:, :3]


def convolutional():
    """Goes one after another; what batches say of each other is kept apart from model to model."""
    first = nn.Conv2d(1, 4, 2, bias=False)
    return nn.Sequential(nn.Unflatten(1, (1, 2, 5)), first, nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(16, 3))


def frozen():
    """Only what comes after a fixed layer learns."""
    model = mlp()
    model[0].requires_grad_(False)
    return model


def tied():
    """One layer in two places."""
    again = nn.Linear(8, 8)
    return nn.Sequential(nn.Linear(10, 8), nn.Tanh(), again, nn.Tanh(), again, nn.Tanh(), nn.Linear(8, 3))


def hooked():
    model = mlp()
    model[0].register_forward_hook(lambda layer, given, made: 2 * made)
    return model


def alone(recipe, X, y, chosen, seed, asked):
    """One model, the obvious way: its own seed, its own order, torch's own optimizer."""
    torch.manual_seed(seed)
    model = recipe.build()
    rate = recipe.learning_rate
    if recipe.optimizer == "sgd":
        optimizer = torch.optim.SGD(model.parameters(), rate, recipe.momentum, weight_decay=recipe.weight_decay)
    else:
        optimizer = {"adam": torch.optim.Adam, "adamw": torch.optim.AdamW}[recipe.optimizer](
            model.parameters(), rate, weight_decay=recipe.weight_decay)  # fmt: skip
    order = torch.Generator().manual_seed(seed)
    rows = torch.from_numpy(np.flatnonzero(chosen))
    for epoch in range(recipe.epochs):
        for group in optimizer.param_groups:
            group["lr"] = recipe.rate(epoch)
        for batch in rows[torch.randperm(len(rows), generator=order)].split(recipe.batch_size):
            optimizer.zero_grad()
            F.cross_entropy(model(torch.from_numpy(X)[batch]), torch.from_numpy(y)[batch]).backward()
            optimizer.step()
    return model.eval()(torch.from_numpy(asked)).detach().numpy()


@pytest.mark.parametrize("build", [mlp, Odd, convolutional, frozen, tied, hooked])
@pytest.mark.parametrize(
    "how",
    [
        {"optimizer": "sgd", "learning_rate": 0.1, "momentum": 0.9, "weight_decay": 1e-3},
        {"optimizer": "adam", "learning_rate": 1e-2},
        {"optimizer": "adamw", "learning_rate": 1e-2, "weight_decay": 0.1, "schedule": "cosine"},
    ],
)
def test_models_trained_together_are_those_trained_alone(build, how):
    X, y = blobs(120)
    recipe = Recipe(build, epochs=4, batch_size=25, **how)
    inside = splits(len(X), 5, seed=3)
    found = train_shadows(recipe, X, y, inside, seed=11, group=3)
    for k in range(5):
        wanted = alone(recipe, X, y, inside[k], 11 + k, X)
        assert np.allclose(found.scores[k], wanted, atol=2e-3 * np.abs(wanted).max())


@pytest.mark.parametrize("processes", [1, 2, 3])
def test_groups_are_those_asked_for_but_every_process_has_one(processes, tmp_path):
    X, y = blobs(60)
    recipe, inside, told = Recipe(mlp, epochs=1), splits(60, 8, seed=0), []
    train_shadows(recipe, X, y, inside, group=8, processes=processes, progress=lambda done, of: told.append(done))
    assert len(told) == processes
    train_shadows(recipe, X, y, inside, group=4, processes=processes, folder=tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["models-00000-00004.npz", "models-00004-00008.npz"]


@pytest.mark.parametrize("build", [mlp, Odd, convolutional])
def test_half_precision_is_near_whole(build):
    X, y = blobs(120)
    recipe = Recipe(build, epochs=4, batch_size=20)
    inside = splits(len(X), 2, seed=3)
    whole, half = (
        train_shadows(replace(recipe, precision=how), X, y, inside, seed=11).scores for how in ("float32", "bfloat16")
    )
    assert np.isfinite(half).all()
    assert 0 < np.abs(half - whole).max() < 0.1 * np.abs(whole).max()


def test_halves_complete_each_other():
    inside = splits(101, 8, seed=0)
    assert inside.sum(1).tolist() == [50] * 8
    assert (inside.sum(0) <= 4).all()
    assert (inside.sum(0) >= 3).all()
    assert (splits(100, 8, 0).sum(0) == 4).all()


def test_a_killed_job_goes_on_after_its_last_group(tmp_path):
    X, y = blobs(60)
    inside = splits(len(X), 6, seed=0)
    built = []

    def build():
        built.append(1)
        return mlp()

    recipe = Recipe(build, epochs=1)
    first = train_shadows(recipe, X, y, inside, group=2, folder=tmp_path)
    (tmp_path / "models-00002-00004.npz").unlink()
    built.clear()
    again = train_shadows(recipe, X, y, inside, group=2, folder=tmp_path)
    assert len(built) == 5  # two models, one to see of what kind they are, and two to see that they can be trained
    assert np.array_equal(first.scores, again.scores)
    with pytest.raises(InvalidDocument, match="belongs to other data"):
        train_shadows(recipe, X, y, splits(len(X), 6, seed=1), group=2, folder=tmp_path)
    (tmp_path / "models-00000-00002.npz").write_bytes(b"PK")
    with pytest.raises(InvalidDocument, match="damaged"):
        train_shadows(recipe, X, y, inside, group=2, folder=tmp_path)


def test_several_processes_make_what_one_makes():
    X, y = blobs(80)
    recipe, inside = Recipe(lambda: mlp(), epochs=2), splits(80, 6, 0)
    one, two = (train_shadows(recipe, X, y, inside, group=2, processes=count) for count in (1, 2))
    assert np.array_equal(one.scores, two.scores)

    def fails(inputs, labels):
        raise ValueError("no")

    with pytest.raises(DiscreetError, match=r"failed: InvalidValue: .* with ValueError: no"):
        train_shadows(Recipe(fails, kind="fit"), X, y, inside, group=2, processes=2)


def test_a_ray_cluster_makes_what_one_process_makes():
    ray = pytest.importorskip("ray")
    X, y = blobs(80)
    recipe, inside = Recipe(mlp, epochs=1), splits(80, 4, 0)
    try:
        found = train_shadows(recipe, X, y, inside, group=2, ray="local")
    finally:
        ray.shutdown()
    assert np.array_equal(found.scores, train_shadows(recipe, X, y, inside, group=2).scores)


def test_estimators_and_functions_are_recipes_too():
    X, y = blobs(200)

    def fit(inputs, labels):
        centres = np.stack([inputs[labels == c].mean(0) for c in range(3)])
        return lambda asked: -((asked[:, None] - centres) ** 2).sum(2)

    found = train_shadows(Recipe(fit, kind="fit"), X, y, splits(len(X), 4, 0))
    assert found.scores.shape == (4, 200, 3)
    tree = pytest.importorskip("sklearn.tree").DecisionTreeClassifier()
    leaky = train_shadows(Recipe(tree), X, y, splits(len(X), 4, 0))
    right = leaky.scores.argmax(2) == y
    assert right[leaky.inside].all()
    assert right[~leaky.inside].mean() < 0.9


def test_signals_against_the_definition():
    rng = np.random.default_rng(0)
    scores, y = rng.normal(size=(4, 7, 5)) * 3, rng.integers(0, 5, 7)
    p = np.exp(scores) / np.exp(scores).sum(-1, keepdims=True)
    its = p[:, np.arange(7), y]
    assert np.allclose(signals.log_probability(scores, y), np.log(its))
    assert np.allclose(signals.margin(scores, y), np.log(its / (1 - its)))
    assert np.allclose(signals.tempered(scores, y), its)
    assert np.allclose(signals.tempered(scores, y, order=40), its, atol=1e-6)
    sure = np.array([[800.0, 0.0]])
    assert signals.margin(sure, np.array([0]))[0] == 800.0


def shadow_signals(models=12, rows=40, seed=0):
    rng = np.random.default_rng(seed)
    inside = rng.random((models, rows)) < 0.5
    return rng.normal(size=rows), rng.normal(size=(models, rows)) + inside, inside


def test_lira_equals_a_straightforward_reference():
    target, shadows, inside = shadow_signals()
    found = signals.lira(target, shadows, inside, fixed=False)
    for i in range(len(target)):
        logs = [
            stats.norm.logpdf(target[i], part.mean(), part.std(ddof=1))
            for part in (shadows[inside[:, i], i], shadows[~inside[:, i], i])
        ]
        assert found[i] == pytest.approx(logs[0] - logs[1], abs=1e-6)


def test_the_paired_ratio_is_lira_with_many_models_and_better_with_few():
    target, shadows, inside = shadow_signals(models=4000, rows=30)
    assert np.allclose(paired(target, shadows, inside), signals.lira(target, shadows, inside, fixed=False), atol=0.1)
    rng = np.random.default_rng(1)
    rows, member = 3 * rng.normal(size=4000), np.arange(4000) % 2 == 0
    inside = rng.random((2, 4000)) < 0.5  # half of the rows have models on one side only
    shadows = rows + 2.0 * inside + 0.5 * rng.normal(size=(2, 4000))
    target = rows + 2.0 * member + 0.5 * rng.normal(size=4000)
    few = paired(target, shadows, inside)
    assert np.isfinite(few).all()
    assert roc(few, member).area() > roc(signals.lira(target, shadows, inside, fixed=True), member).area() + 0.05


def test_rmia_counts_the_population_it_beats():
    target, shadows, inside = shadow_signals(models=6, rows=20)
    p, q = 1 / (1 + np.exp(-target)), 1 / (1 + np.exp(-shadows))
    found = signals.rmia(p, q, inside, p, q, gamma=1.5)
    for i in range(20):
        here, there = q[inside[:, i], i], q[~inside[:, i], i]
        both = [part.mean() for part in (here, there) if len(part)]
        ratio = p[i] / np.mean(both)
        wanted = np.mean([ratio / (p[z] / q[:, z].mean()) >= 1.5 for z in range(20)])
        assert found[i] == pytest.approx(wanted, abs=1e-6)


@pytest.fixture(scope="module")
def attacked():
    """A model that memorised its rows, and what every attack says of it."""
    X, y = blobs(400, seed=1, noise=3.0)
    recipe = Recipe(
        lambda: nn.Sequential(nn.Linear(10, 64), nn.ReLU(), nn.Linear(64, 3)), epochs=150, batch_size=50, learning_rate=1e-2
    )
    scores = train_shadows(recipe, X, y, (np.arange(400) < 200)[None], seed=99).scores[0]
    known = {row.tobytes(): score for row, score in zip(X, scores)}

    def target(inputs):
        return np.stack([known[row.tobytes()] for row in inputs])

    asked = [
        attack.name for attack in ATTACKS if attack.name not in ("noise", "boundary", "gradient", "whitebox")
    ]  # these ask about other rows
    return discreet.attack.membership(target, recipe, (X[:200], y[:200]), (X[200:], y[200:]), attacks=asked, shadows=16)


def test_shadows_find_what_a_threshold_does_not(attacked):
    assert attacked["bayes_lira"].auc() > attacked["loss"].auc() > 0.6
    assert attacked["bayes_lira"].auc() > 0.85
    assert all(evidence.design == "post_hoc" for evidence in attacked.values())
    assert attacked["label"].game.view == {"labels"}


def test_evidence_tells_rates_with_intervals(attacked):
    found = attacked["bayes_lira"]
    low, high = tpr_interval(found, 0.05)
    assert low <= found.tpr(0.05) <= high
    assert found.tpr(0.05) > 0.2
    assert epsilon_at_least(found, 1e-5) >= 0.0


def test_a_model_that_forgot_everything_is_not_accused():
    X, y = blobs(400, seed=2)
    recipe = Recipe(mlp, epochs=3)
    found = discreet.attack.membership(
        lambda inputs: np.zeros((len(inputs), 3)) + 0.0,
        recipe,
        (X[:200], y[:200]),
        (X[200:], y[200:]),
        attacks=["loss", "entropy"],
    )
    assert found["loss"].auc() == 0.5


def test_a_recipe_that_does_not_resemble_the_target_is_said():
    X, y = blobs(200)
    with pytest.warns(UserWarning, match="does not resemble"):
        discreet.attack.membership(
            lambda inputs: np.eye(3)[np.zeros(len(inputs), int)], Recipe(mlp, epochs=60, learning_rate=1e-2),
            (X[:100], y[:100]), (X[100:], y[100:]), attacks=["lira"], shadows=2,
        )  # fmt: skip


X, Y = blobs(60)
HALF = (X[:30], Y[:30])


@pytest.mark.parametrize(
    ("members", "nonmembers", "target", "told"),
    [
        (HALF, (X[29:], Y[29:]), mlp(), "1 of 31 nonmembers are members too"),
        (HALF, (X[30:, :5], Y[30:]), mlp(), "must be alike"),
        (HALF, (X[30:], Y[30:] + 7), mlp(), "knows 3 classes"),
        (HALF, (X[30:], Y[30:] - 7), mlp(), "whole numbers from 0"),
        (HALF, (X[30:], Y[31:]), mlp(), "as many labels as inputs"),
        (HALF, (X[:0], Y[:0]), mlp(), "at least one"),
        (HALF, (X[30:] * np.nan, Y[30:]), mlp(), "NaN or infinite inputs"),
        (HALF, (X[30:], Y[30:]), lambda inputs: np.full((len(inputs), 3), np.nan), "NaN or infinite scores for 60 of 60"),
        (HALF, (X[30:], Y[30:]), lambda inputs: inputs[:, 0], "a score for each class"),
        (HALF, (X[30:], Y[30:]), "model", "target must be"),
        (X, HALF, mlp(), "must be a pair"),
    ],
)
def test_bad_input_is_told(members, nonmembers, target, told):
    with pytest.raises(InvalidValue, match=told):
        discreet.attack.membership(target, None, members, nonmembers, attacks=["loss"])


def test_attacks_that_need_shadows_need_a_recipe():
    with pytest.raises(InvalidValue, match="bayes_lira needs models like the target"):
        discreet.attack.membership(mlp(), None, HALF, (X[30:], Y[30:]), attacks=["bayes_lira"])
    assert set(discreet.attack.membership(mlp(), None, HALF, (X[30:], Y[30:]), attacks="all")) == {
        "loss",
        "confidence",
        "entropy",
        "label",
        "noise",
        "boundary",
        "gradient",
        "whitebox",
    }
    with pytest.raises(InvalidValue, match="quantile learns from known rows: it needs at least 50"):
        discreet.attack.membership(mlp(), None, HALF, (X[30:], Y[30:]), attacks=["quantile"])
    with pytest.raises(InvalidValue, match="gradient needs to see the weights"):
        discreet.attack.membership(lambda rows: rows, None, HALF, (X[30:], Y[30:]), attacks=["gradient"])
    with pytest.raises(InvalidValue, match="attacks"):
        discreet.attack.membership(mlp(), None, HALF, (X[30:], Y[30:]), attacks=["guess"])
