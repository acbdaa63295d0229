"""What each layer of a network knows of a row's label, and what the white-box attack makes of it."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from discreet.attack.membership import probes, whitebox
from discreet.audit import roc
from discreet.models import Recipe, Trainer

ROWS, WIDTH, CLASSES = 1600, 40, 10
INSIDE = np.arange(ROWS) < ROWS // 2
# The area of scores that say nothing has a spread of 0.0144 over 800 and 800 rows. Five are 3e-7, six 1e-9.
CHANCE = 0.0144


def rows_of_all_kinds(seed=0):
    """Easy rows and hard ones; each class lies on two opposite sides, so that no plane through the inputs finds it."""
    rng = np.random.default_rng(seed)
    y = rng.integers(0, CLASSES, ROWS)
    strength = rng.choice([-1, 1], ROWS) * rng.uniform(0.0, 2.0, ROWS)
    X = strength[:, None] * rng.normal(size=(CLASSES, WIDTH))[y] + 1.5 * rng.normal(size=(ROWS, WIDTH))
    return X.astype(np.float32), y


X, Y = rows_of_all_kinds()


def build():
    between = (part for _ in range(2) for part in (nn.Linear(128, 128), nn.ReLU()))
    return nn.Sequential(nn.Linear(WIDTH, 128), nn.ReLU(), *between, nn.Linear(128, CLASSES))


@pytest.fixture(scope="module")
def overfit():
    return Trainer(Recipe(build, epochs=12, batch_size=50, learning_rate=2e-3)).one(X[INSIDE], Y[INSIDE], seed=3)


def test_the_weights_tell_more_than_the_outputs(overfit):
    """Both learn from the same rows by the same networks; the outputs are also told how hard a row is by its inputs alone."""
    said, _ = whitebox.outputs(overfit, X, Y)
    read = probes.probes(overfit, X, Y)[:, :2]
    plain = roc(whitebox.crossfitted(*said, INSIDE), INSIDE).area()
    black = roc(whitebox.crossfitted(np.concatenate([said[0], read], 1), said[1], INSIDE), INSIDE).area()
    white = roc(whitebox.whitebox(overfit, X, Y, INSIDE), INSIDE).area()
    assert white > max(plain, black) + 3 * CHANCE, (plain, black, white)


def test_truth_that_the_model_does_not_know_is_not_found(overfit):
    """Membership drawn at random: an attack that saw a row's own truth would repeat it."""
    drawn = np.random.default_rng(5).permutation(INSIDE)
    assert abs(roc(whitebox.whitebox(overfit, X, Y, drawn), drawn).area() - 0.5) < 6 * CHANCE


def test_later_layers_know_more_of_members(overfit):
    leads = probes.probes(overfit, X, Y)[:, 1::2]
    areas = [roc(lead, INSIDE).area() for lead in leads.T]
    assert areas == sorted(areas)
    assert abs(areas[0] - 0.5) < 6 * CHANCE  # the inputs know nothing of membership
    assert areas[-1] > 0.5 + 6 * CHANCE


def test_readers_are_those_of_a_regression_without_the_rows_they_read():
    rng = np.random.default_rng(1)
    a, y = rng.normal(size=(60, 7)), rng.integers(0, 3, 60)
    part = rng.permutation(60) % probes.PARTS
    found = probes._read(torch.as_tensor(a), torch.as_tensor(y), torch.as_tensor(part), 3).numpy()
    b = np.concatenate([(a - a.mean(0)) / a.std(0, ddof=1), np.ones((60, 1))], 1)
    for k in range(probes.PARTS):
        others = part != k
        ridge = probes.SHRINK * others.sum() * np.eye(8)
        weights = np.linalg.solve(b[others].T @ b[others] + ridge, b[others].T @ (np.eye(3)[y[others]] - 1 / 3))
        assert np.allclose(found[~others], b[~others] @ weights, atol=1e-5)


def test_a_rows_own_label_does_not_teach_its_reader():
    """Another label for one row changes which score is looked up, and no score of that row."""
    rng = np.random.default_rng(2)
    a, y = torch.as_tensor(rng.normal(size=(40, 5))), torch.as_tensor(rng.integers(0, 3, 40))
    part, other = torch.arange(40) % probes.PARTS, y.clone()
    other[7] = (y[7] + 1) % 3
    before, after = (probes._read(a, labels, part, 3) for labels in (y, other))
    assert torch.allclose(before[part == 7], after[part == 7])
    assert not torch.allclose(before[part == 6], after[part == 6])


class Folded(nn.Module):
    """Uses one layer twice, one on sequences, and one on a single row only."""

    def __init__(self):
        super().__init__()
        self.along, self.twice, self.once = nn.Conv1d(2, 6, 3), nn.Linear(6, 6), nn.Linear(6, 4)

    def forward(self, x):
        x = self.along(x).transpose(1, 2)
        x = self.twice(torch.relu(self.twice(x))).mean(1)
        return x + self.once(x[:1]).sum()


def test_layers_of_many_kinds_are_read():
    rows = np.random.default_rng(0).normal(size=(12, 2, 9)).astype(np.float32)
    assert [tuple(a.shape) for a in probes.layers(Folded(), rows)] == [(12, 4), (12, 6)]
    images = np.random.default_rng(0).normal(size=(5, 3, 8, 8)).astype(np.float32)
    many = (nn.Conv2d(3, 3, 3, padding=1) for _ in range(40))
    deep = nn.Sequential(*many, nn.Flatten(), nn.Linear(192, 600), nn.Linear(600, 2))
    seen = probes.layers(deep, images)
    assert len(seen) == probes.LAYERS
    assert [tuple(a.shape) for a in (seen[0], seen[-1])] == [(5, 12), (5, probes.WIDTH)]
    assert deep.training
    assert probes.probes(nn.BatchNorm1d(3), np.zeros((6, 3), np.float32), np.zeros(6, int)).shape == (6, 0)
