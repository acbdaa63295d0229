"""SELENA: no model teaches a row that it saw, every row is taught, and members no longer stand out."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from discreet.core import NonPrivate
from discreet.errors import InvalidValue
from discreet.heuristic.defences import selena
from discreet.heuristic.defences.selena import dealt, soft_labels
from discreet.models import Recipe, Shadows, Trainer


@given(st.integers(1, 200), st.integers(2, 30), st.data())
@settings(max_examples=60, deadline=None)
def test_rows_are_dealt_evenly(rows: int, models: int, data: st.DataObject) -> None:
    left_out = data.draw(st.integers(1, models - 1))
    inside = dealt(rows, models, left_out, seed=rows)
    assert inside.shape == (models, rows)
    assert len(set(inside.sum(1).tolist())) == 1  # as many for each model, or they could not be trained together
    assert ((~inside).sum(0) >= left_out).all()  # every row has teachers
    if rows % models == 0:
        assert ((~inside).sum(0) == left_out).all()
        assert (inside.sum(1) == rows * (models - left_out) // models).all()


@given(st.integers(1, 40), st.integers(2, 8), st.integers(0, 2**20))
@settings(max_examples=60, deadline=None)
def test_a_row_is_taught_by_models_that_never_saw_it(rows: int, models: int, seed: int) -> None:
    """What those that saw it say does not change what is taught, and what is taught is the mean of the others."""
    draw = np.random.default_rng(seed)
    inside = dealt(rows, models, 1 + seed % (models - 1), seed)
    scores = draw.normal(size=(models, rows, 3)).astype(np.float32)
    wild = np.where(inside[:, :, None], 50.0 * draw.normal(size=scores.shape), scores)
    assert np.allclose(soft_labels(wild, inside), soft_labels(scores, inside), atol=1e-6)
    slow = [torch.as_tensor(scores[~inside[:, i], i]).softmax(1).mean(0).numpy() for i in range(rows)]
    assert np.allclose(soft_labels(scores, inside), slow, atol=1e-6)


def test_the_student_never_learns_what_was_memorised(monkeypatch: pytest.MonkeyPatch) -> None:
    """Models that memorised the rows they saw, and answer class 0 for others, teach class 0 alone."""
    X, y = np.random.default_rng(0).normal(size=(50, 2)), np.full(50, 2)
    kept: dict[str, Any] = {}

    def many(trainer: Trainer, X: np.ndarray, y: np.ndarray, inside: np.ndarray, *, seed: int = 0) -> Shadows:
        kept["inside"] = inside
        scores = np.where(inside[:, :, None], 100.0 * np.eye(3)[y], 100.0 * np.eye(3)[np.zeros_like(y)])
        return Shadows(scores, inside)

    def one(trainer: Trainer, X: np.ndarray, y: np.ndarray, *, seed: int = 0) -> nn.Module:
        kept.update(taught=y, epochs=trainer.recipe.epochs)
        return nn.Linear(X.shape[1], 3)

    monkeypatch.setattr(Trainer, "many", many)
    monkeypatch.setattr(Trainer, "one", one)
    model = selena(Recipe(lambda: nn.Linear(2, 3), epochs=3), models=5, left_out=2).recipe.build(X, y)
    assert kept["inside"].any(0).all()  # every row was seen by some
    assert np.allclose(kept["taught"], np.eye(3)[np.zeros(50, int)])  # and taught by none of them
    assert kept["epochs"] == 12
    assert model(X).shape == (50, 3)


def test_members_stand_out_less_at_a_small_price() -> None:
    draw = np.random.default_rng(0)
    y = draw.integers(0, 4, 1200)
    X = (0.3 * draw.normal(size=(4, 20))[y] + draw.normal(size=(1200, 20))).astype(np.float32)
    plain = Recipe(
        lambda: nn.Sequential(nn.Linear(20, 64), nn.ReLU(), nn.Linear(64, 4)), epochs=30, batch_size=32, learning_rate=5e-3
    )
    defence = selena(plain, models=10, left_out=4, epochs=30)
    assert [claim.event for claim in defence.claims()] == [NonPrivate()]
    state = torch.get_rng_state()
    model = defence.recipe.fit_one(X[:300], y[:300], 0)
    assert torch.equal(state, torch.get_rng_state())
    right = model(X).argmax(1) == y
    bare = Trainer(plain).one(X[:300], y[:300])(torch.as_tensor(X)).argmax(1).numpy() == y
    assert bare[:300].mean() - bare[300:].mean() > 0.3  # there is something to defend
    assert right[:300].mean() - right[300:].mean() < 0.15
    assert right[300:].mean() > bare[300:].mean() - 0.04
    assert np.array_equal(model(X), defence.recipe.fit_one(X[:300], y[:300], 1)(X))  # it follows from its rows


def test_wrong_use() -> None:
    plain = Recipe(lambda: nn.Linear(2, 2))
    with pytest.raises(InvalidValue, match="left out by some of 5 models and seen by others; got left_out 5"):
        selena(plain, models=5, left_out=5)
    with pytest.raises(InvalidValue, match="epochs"):
        selena(plain, epochs=-1)
    with pytest.raises(InvalidValue, match="needs a Recipe that builds one"):
        selena(Recipe(lambda X, y: None, kind="fit"))
