"""Attacks by what they see: labels alone, scores without a shadow, the weights."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

import discreet
from discreet.attack.membership import high_loss_screen, label, run, whitebox
from discreet.attack.membership.quantile import quantile
from discreet.audit import roc
from discreet.errors import InvalidValue
from discreet.models import Recipe, gradients, small

ROWS, WIDTH, CLASSES = 400, 40, 3
RNG = np.random.default_rng(0)
Y = RNG.integers(0, CLASSES, ROWS)
X = (RNG.normal(size=(CLASSES, WIDTH))[Y] + 4.0 * RNG.normal(size=(ROWS, WIDTH))).astype(np.float32)
INSIDE = np.arange(ROWS) < ROWS // 2
MEMBERS, OTHERS = (X[INSIDE], Y[INSIDE]), (X[~INSIDE], Y[~INSIDE])
# The area of scores that say nothing has a spread of 0.029 over 200 and 200 rows. Five are 3e-7, six 1e-9.
CHANCE = 0.029


def learn(model, steps, rows=INSIDE):
    optimizer = torch.optim.Adam(model.parameters(), 1e-2)
    x, y = torch.from_numpy(X[rows]), torch.from_numpy(Y[rows])
    for _ in range(steps):
        optimizer.zero_grad()
        F.cross_entropy(model(x), y).backward()
        optimizer.step()
    return model


def fresh(seed=0):
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(WIDTH, 64), nn.Tanh(), nn.Linear(64, CLASSES))


@pytest.fixture(scope="module")
def leaky():
    return learn(fresh(), 150)


@pytest.fixture(scope="module")
def found(leaky):
    names = ["label", "noise", "boundary", "quantile", "loss", "gradient", "whitebox"]
    return discreet.attack.membership(leaky, None, MEMBERS, OTHERS, attacks=names)


def test_every_access_finds_members_of_a_leaky_model(found):
    areas = {name: evidence.auc() for name, evidence in found.items()}
    assert areas.pop("label") > 0.55
    assert min(areas.values()) > 0.5 + 5 * CHANCE, areas
    assert {name: set(evidence.game.view) for name, evidence in found.items()} == {
        "label": {"labels"}, "noise": {"labels"}, "boundary": {"labels"}, "quantile": {"scores"}, "loss": {"scores"},
        "gradient": {"weights"}, "whitebox": {"weights"},
    }  # fmt: skip


def test_disturbed_copies_tell_more_than_the_label_alone(found):
    assert found["noise"].auc() > found["label"].auc()
    assert found["boundary"].auc() > found["label"].auc()


def test_what_learns_is_no_worse_than_the_simple_attacks(found):
    assert found["whitebox"].auc() > max(found["gradient"].auc(), found["loss"].auc()) - 2 * CHANCE


@pytest.mark.parametrize("name", ["noise", "boundary", "quantile", "gradient", "whitebox"])
def test_a_model_that_saw_nothing_is_not_accused(name):
    found = discreet.attack.membership(fresh(3), None, MEMBERS, OTHERS, attacks=[name], seed=1)
    assert abs(found[name].auc() - 0.5) < 6 * CHANCE


def test_noise_asks_for_labels_only():
    """The target gives labels alone, as scores that know nothing else; bits are flipped, not blurred."""
    bits = (X > 0).astype(np.float32)

    def labels(rows):
        assert np.isin(rows, (0, 1)).all()
        return np.eye(2)[(rows.sum(1) > WIDTH / 2).astype(int)]

    y = labels(bits).argmax(1)
    score = label.kept(labels, bits, y, copies=16)
    edge = np.abs(bits.sum(1) - WIDTH / 2)
    assert score[edge > 3].mean() > score[edge <= 1].mean() + 0.1
    assert (label.kept(labels, bits, 1 - y, copies=4) == 0).all()


def test_augmentations_of_the_users_are_asked_about():
    seen = []

    def mirrored(rows, rng):
        seen.append(len(rows))
        return -rows

    score = label.kept(lambda rows: np.concatenate([rows, -rows], 1), np.array([[1.0], [-1.0]]), np.array([0, 1]),
                       copies=3, augment=mirrored)  # fmt: skip
    assert score.tolist() == [0.0, 0.0]
    assert seen == [2, 2, 2]


def test_the_distance_to_a_plane_is_found():
    """Along a random direction u the plane x0 = 0 lies at x0 / |u0|; only directions towards it meet it."""
    rows = np.zeros((40, 2), np.float32)
    rows[:, 0], rows[:, 1] = np.linspace(0.5, 3.0, 40), np.random.default_rng(0).normal(size=40)

    def plane(asked):
        return np.stack([asked[:, 0], -asked[:, 0]], 1)

    far = label.boundary(plane, rows, np.zeros(40, int), directions=256, steps=18, reach=1e3)
    assert np.corrcoef(far, rows[:, 0])[0, 1] > 0.9
    wrong = label.boundary(plane, rows, np.ones(40, int), directions=9, steps=6)
    assert (wrong < 0).all()


def test_quantiles_are_learned_without_the_row_itself():
    rng = np.random.default_rng(1)
    inputs = rng.normal(size=(1500, 3))
    inside = np.arange(1500) < 500
    margin = 3 * inputs[:, 0] + np.exp(0.5 * inputs[:, 1]) * rng.normal(size=1500) + 1.5 * inside
    none = np.zeros(1500, int)
    score = quantile(margin, inputs, none, ~inside)
    assert roc(score, inside).area() > roc(margin, inside).area() + 0.05
    above = quantile(margin, inputs, none, ~inside, level=0.9) > 0
    # 1000 rows outside, a tenth of them above: 0.1 +- 6 * 0.0095, and the network's own error beside it.
    assert abs(above[~inside].mean() - 0.1) < 0.06 + 0.03
    with pytest.raises(InvalidValue, match="at least 50 of them; got 20"):
        quantile(margin, inputs, none, np.arange(1500) < 20)


def test_the_high_loss_screen_shows_memorisation(leaky):
    told = high_loss_screen(leaky, MEMBERS, OTHERS, level=0.05, confidence=1 - 1e-6)
    assert told.memorised
    assert told.low > 0.05
    assert "members were memorised" in str(told)
    assert "bounds nothing" in str(told)
    # A model that saw nothing: the interval of a confidence of 1 - 1e-6 reaches down to the level, but for 1e-6 and for the
    # threshold's own scatter over 200 members, which six deviations of 0.015 cover.
    blank = high_loss_screen(fresh(5), MEMBERS, OTHERS, level=0.05, confidence=1 - 1e-6)
    assert blank.low < 0.05 + 6 * 0.0155
    assert "400 are needed" not in str(blank)
    assert "too few members" in str(high_loss_screen(fresh(5), MEMBERS, OTHERS, level=0.001))
    assert "memorised" in str(high_loss_screen(leaky, MEMBERS, OTHERS, level=0.001))


def test_shadows_teach_what_gradients_of_members_look_like(leaky):
    recipe = Recipe(fresh, epochs=40, batch_size=50, learning_rate=1e-2)
    score = whitebox.from_shadows(leaky, recipe, X, Y, shadows=2)
    assert roc(score, INSIDE).area() > 0.5 + 5 * CHANCE
    rows = np.random.default_rng(7).permutation(ROWS)
    other = whitebox.from_shadows(leaky, recipe, X, Y, shadows=2, population=(X[rows][:, ::-1].copy(), Y[rows]))
    assert roc(other, INSIDE).area() > 0.5 + 5 * CHANCE


def test_all_leaves_out_what_would_ask_for_hours(leaky, monkeypatch):
    monkeypatch.setattr(run, "MOST_QUERIED", 1e6)
    with pytest.warns(UserWarning, match=r"boundary \(145 questions for each row\) left out of \"all\""):
        found = discreet.attack.membership(leaky, None, MEMBERS, OTHERS, attacks="all")
    assert "boundary" not in found
    assert "noise" in found


def test_gradients_are_those_of_each_row_alone(leaky):
    norms, projected = whitebox.gradient_norms(leaky, X[:5], Y[:5], project=2, seed=4)
    assert norms.shape == (5, 4)
    assert projected.shape == (5, 8)
    for i in range(5):
        leaky.zero_grad()
        F.cross_entropy(leaky(torch.from_numpy(X[i : i + 1])), torch.from_numpy(Y[i : i + 1])).backward()
        assert np.allclose(norms[i], [float(p.grad.norm()) for p in leaky.parameters()], rtol=1e-3, atol=1e-7)
    more, _ = whitebox.gradient_norms(leaky, X[:5], Y[:5])
    assert np.allclose(more, norms)


def test_a_convolution_with_running_means_is_seen_too():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(1, 3, 3), nn.BatchNorm2d(3), nn.ReLU(), nn.Flatten(), nn.Linear(12, 2))
    images = np.random.default_rng(0).normal(size=(6, 1, 4, 4)).astype(np.float32)
    few, many = whitebox.features(model, images, np.array([0, 1] * 3))
    assert np.isfinite(few).all()
    assert np.isfinite(many).all()
    assert model.training
    frozen = nn.Linear(2, 2).requires_grad_(False)
    with pytest.raises(InvalidValue, match="no parameters that can be learned"):
        whitebox.gradient_norms(frozen, np.ones((2, 2)), np.zeros(2, int))


class Twice(nn.Module):
    def __init__(self):
        super().__init__()
        self.one = nn.Linear(12, 12)

    def forward(self, x):
        return self.one(torch.relu(self.one(x.flatten(1))))


@pytest.mark.parametrize("build", [
    lambda: nn.Sequential(
        nn.Conv2d(3, 5, 3, stride=2, padding=1, bias=False), nn.BatchNorm2d(5), nn.ReLU(inplace=True), nn.Flatten(),
        nn.Linear(5, 3),
    ),
    lambda: nn.Sequential(nn.Conv2d(3, 4, 2, groups=1), nn.Flatten(), nn.Linear(4, 6), nn.BatchNorm1d(6), nn.Linear(6, 3)),
    Twice,
])  # fmt: skip
def test_gradients_caught_on_the_way_are_those_of_torch_func(build, monkeypatch):
    torch.manual_seed(1)
    model = build()
    for layer in model.modules():
        if isinstance(layer, (nn.BatchNorm1d, nn.BatchNorm2d)):
            layer.running_mean.normal_()
            layer.running_var.uniform_(0.5, 2.0)
    images = np.random.default_rng(0).normal(size=(6, 3, 2, 2)).astype(np.float32)
    caught = whitebox.gradient_norms(model, images, np.array([0, 1, 2] * 2), project=3)
    monkeypatch.setattr(gradients, "known", lambda model: False)
    wanted = whitebox.gradient_norms(model, images, np.array([0, 1, 2] * 2), project=3)
    for a, b in zip(caught, wanted):
        assert np.allclose(a, b, rtol=1e-4, atol=1e-6)


def test_no_row_is_judged_by_its_own_truth():
    """Features that say nothing, truth drawn at random: a network that saw it would repeat it."""
    rng = np.random.default_rng(2)
    seen, inside = rng.normal(size=(400, 60)), rng.random(400) < 0.5
    assert abs(roc(whitebox.crossfitted(seen[:, :2], seen[:, 2:], inside), inside).area() - 0.5) < 6 * CHANCE
    known = np.arange(400) < 200
    assert np.isfinite(whitebox.crossfitted(seen[:, :2], seen[:, 2:], inside, known=known)).all()
    with pytest.raises(InvalidValue, match="at least 20 inside and outside"):
        whitebox.crossfitted(seen[:, :2], seen[:, 2:], inside, known=np.arange(400) < 9)


def test_networks_trained_together_learn_apart():
    rng = np.random.default_rng(3)
    seen = rng.normal(size=(600, 2))
    wanted = np.where(np.arange(600) < 300, seen[:, 0] > 0, seen[:, 0] < 0)
    nets = small.fit(seen, wanted, [np.arange(300), np.arange(300, 600)], small.member)
    first, second = nets(seen, 0)[:, 0], nets(seen, 1)[:, 0]
    assert ((first > 0) == (seen[:, 0] > 0)).mean() > 0.9
    assert ((second > 0) == (seen[:, 0] < 0)).mean() > 0.9
    assert np.allclose(nets.each(seen, np.arange(600) // 300)[:, 0], np.concatenate([first[:300], second[300:]]), atol=1e-5)
