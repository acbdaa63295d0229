"""Passes in C over stacked chains: what torch makes of every model alone, for any shape; other text is never used."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import example, given, settings
from hypothesis import strategies as st
from torch import nn

from discreet import native
from discreet.attack.membership import Recipe, splits, train_shadows
from discreet.models import Trainer, chain
from discreet.models.layers import Layers
from mutants import compiled, mutated

needs_a_compiler = pytest.mark.skipif(chain.compiled() is None, reason="nothing was built here")
widths = st.sampled_from([1, 2, 3, 7, 15, 16, 17, 31, 33, 64, 65, 100])
OPTIMIZERS = {"sgd": torch.optim.SGD, "adam": torch.optim.Adam, "adamw": torch.optim.AdamW}


def layers(sizes: list[int], activation: type[nn.Module] | None, bias: bool) -> nn.Sequential:
    made: list[nn.Module] = []
    for one, two in pairwise(sizes):
        made += [nn.Linear(one, two, bias=bias), *([activation()] if activation else [])]
    return nn.Sequential(*(made[:-1] if activation else made)).double()


def by_torch(model: nn.Module, recipe: Recipe, rows: torch.Tensor, labels: torch.Tensor, order: torch.Tensor) -> None:
    how = {"momentum": recipe.momentum} if recipe.optimizer == "sgd" else {}
    optimizer = OPTIMIZERS[recipe.optimizer](
        model.parameters(), recipe.learning_rate, weight_decay=recipe.weight_decay, foreach=False, **how
    )
    for batch in order.split(recipe.batch_size):
        optimizer.zero_grad()
        F.cross_entropy(model(rows[batch].double()), labels[batch]).backward()
        optimizer.step()


@needs_a_compiler
@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 2**31), sizes=st.lists(widths, min_size=1, max_size=4), classes=st.integers(2, 40),
    activation=st.sampled_from([nn.Tanh, nn.ReLU, nn.Sigmoid, None]), bias=st.booleans(), count=st.integers(1, 30),
    batch=st.integers(1, 40), optimizer=st.sampled_from(sorted(OPTIMIZERS)), decay=st.sampled_from([0.0, 0.05]),
)  # fmt: skip
@example(0, [600, 128], 100, nn.Tanh, True, 250, 100, "sgd", 0.0)
@example(1, [446, 128], 30, nn.Tanh, True, 250, 64, "adam", 0.0)
@example(2, [300, 20], 2, nn.ReLU, True, 60, 20, "adamw", 0.1)
def test_a_pass_is_that_of_each_model_alone(seed, sizes, classes, activation, bias, count, batch, optimizer, decay):
    torch.manual_seed(seed)
    models = [layers([*sizes, classes], activation, bias) for _ in range(2)]
    recipe = Recipe(nn.Identity, batch_size=batch, optimizer=optimizer, learning_rate=0.02, momentum=0.9, weight_decay=decay)
    rows, labels = torch.randn(count + 3, sizes[0]), torch.randint(classes, (count + 3,))
    order = torch.stack([torch.randperm(count + 3)[:count] for _ in models])
    stack = Layers([layers([*sizes, classes], activation, bias).float() for _ in models], torch.device("cpu"))
    before = Layers(models, torch.device("cpu"))
    for ours, theirs in zip(stack.parameters, before.parameters):
        ours.data = theirs.detach().float()
    assert chain.Chain.fits(recipe, stack, rows, labels)
    chain.Chain(recipe, stack, rows, labels)(order, recipe.learning_rate)
    for model, mine in zip(models, order):
        by_torch(model, recipe, rows, labels, mine)
    with torch.no_grad():
        ours, wanted = stack(rows, training=False).double(), torch.stack([model(rows.double()) for model in models])
    # Adam moves a weight by its rate whatever the size of its gradient, so one that is zero but for rounding may go either way
    near = 1e-4 if optimizer == "sgd" else 1e-2
    assert torch.allclose(ours, wanted, rtol=near, atol=near * float(wanted.abs().max()))


@needs_a_compiler
@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("1.0f - out * out", "1.0f - out"),
        ("x[label] -= 1.0f / batch", "x[label] -= 1.0f"),
        ("how->momentum * first[i]", "first[i]"),
        ("* how->root", ""),
        ("more || k", "more"),
        ("out <= ALL(0.0f)", "out > ALL(0.0f)"),
        ("taken + b / batch + 1", "taken + 1"),
        ("made[i] +=", "made[i] ="),
        ("now.kept = 1.0 - how->rate * how->decay, ", ""),
    ],
)
def test_text_that_computes_something_else_is_not_used(right, wrong, monkeypatch):
    assert mutated(chain, "chain.c", right, wrong, monkeypatch) is None


@needs_a_compiler
@pytest.mark.parametrize("absent", [["__AVX512F__"], ["__AVX512F__", "__AVX2__"]])
def test_narrower_registers_do_as_well(absent, monkeypatch):
    text = (native.HERE / "chain.c").read_text()
    assert all(one in text for one in absent)
    monkeypatch.setattr(native, "library", lambda name: compiled(name, dict.fromkeys(absent, "ABSENT")))
    assert chain.compiled.__wrapped__() is not None


def test_without_a_compiler_models_are_trained_as_well(monkeypatch):
    draw = np.random.default_rng(0)
    X, y = draw.normal(size=(90, 6)).astype(np.float32), draw.integers(0, 3, 90)
    recipe = Recipe(lambda: nn.Sequential(nn.Linear(6, 20), nn.Tanh(), nn.Linear(20, 3)), epochs=3, batch_size=16)
    here = train_shadows(recipe, X, y, splits(90, 4, 0)).scores
    monkeypatch.setenv("DISCREET_NATIVE", "0")
    assert chain.compiled.__wrapped__() is None
    monkeypatch.setattr(chain, "compiled", lambda: None)
    assert np.allclose(train_shadows(recipe, X, y, splits(90, 4, 0)).scores, here, rtol=0, atol=1e-4)


@needs_a_compiler
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("optimizer", sorted(OPTIMIZERS))
def test_one_model_is_trained_as_torch_trains_it(optimizer, bias, monkeypatch):
    draw = np.random.default_rng(0)
    X, y = draw.normal(size=(90, 6)).astype(np.float32), draw.integers(0, 3, 90)
    how = {"epochs": 3, "batch_size": 16, "optimizer": optimizer, "momentum": 0.9, "schedule": "cosine"}
    recipe = Recipe(lambda: nn.Sequential(nn.Linear(6, 20, bias), nn.Tanh(), nn.Sequential(nn.Linear(20, 3))), **how)
    here = Trainer(recipe).one(X, y, seed=5)
    monkeypatch.setattr(chain, "compiled", lambda: None)
    for ours, theirs in zip(here.parameters(), Trainer(recipe).one(X, y, seed=5).parameters()):
        assert torch.allclose(ours, theirs, rtol=0, atol=1e-4)
    assert not here.training


@pytest.mark.parametrize(
    ("width", "labels", "recipe", "fit"),
    [
        (6, [0, 1, 2], {}, True),
        (5, [0, 1, 2], {}, False),
        (6, [0, 1, 3], {}, False),
        (6, [0, -1, 2], {}, False),
        (6, [0, 1, 2], {"label_smoothing": 0.1}, False),
        (6, [0, 1, 2], {"precision": "bfloat16"}, False),
    ],
)
def test_sizes_and_labels_that_do_not_fit_never_reach_c(width, labels, recipe, fit):
    stack = Layers([nn.Sequential(nn.Linear(6, 20), nn.Tanh(), nn.Linear(20, 3))], torch.device("cpu"))
    found = chain.Chain.fits(Recipe(nn.Identity, **recipe), stack, torch.zeros(3, width), torch.tensor(labels))
    assert found == (fit and chain.compiled() is not None)


@needs_a_compiler
@pytest.mark.parametrize("sizes", [(20, 19, 3), (2048, 2048, 1025)])
def test_layers_that_do_not_follow_each_other_or_are_large_never_reach_c(sizes):
    odd = Layers([nn.Sequential(nn.Linear(6, sizes[0]), nn.Tanh(), nn.Linear(*sizes[1:]))], torch.device("cpu"))
    assert not chain.Chain.fits(Recipe(nn.Identity), odd, torch.zeros(3, 6), torch.tensor([0, 1, 2]))


@needs_a_compiler
@pytest.mark.parametrize("activation", [nn.Tanh, nn.ReLU, nn.Sigmoid])
def test_a_row_that_is_no_number_shows_in_its_models_alone(activation):
    rows, labels = torch.randn(20, 4), torch.zeros(20, dtype=torch.long)
    rows[7] = torch.nan
    stack = Layers([layers([4, 5, 2], activation, True).float() for _ in range(2)], torch.device("cpu"))
    order = torch.stack([torch.arange(0, 10), torch.arange(10, 20)])
    chain.Chain(Recipe(nn.Identity, batch_size=5), stack, rows, labels)(order, 0.1)
    said = stack(torch.zeros(1, 4), training=False)
    assert said[0].isnan().all()
    assert said[1].isfinite().all()
