"""A DataLoader as a source: workers, prefetching, collate functions; the run still draws its own batches."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, TensorDataset

import discreet
from discreet.core.event import Gaussian, Poisson, Repeat
from discreet.errors import InvalidValue
from discreet.learn import Checkpoint, Performance, evaluate, train
from discreet.learn.sgd.clipping import SLACK
from discreet.learn.sgd.loading import Reader
from discreet.noise.source import seeded_for_tests
from unit.learn.tools import updates

torch.set_num_threads(1)

GENERATOR = torch.Generator().manual_seed(3)
X, Y = torch.randn(50, 4, generator=GENERATOR), torch.arange(50) % 3
WORDS = [torch.randint(1, 9, (2 + i % 4,), generator=GENERATOR) for i in range(50)]
EACH = nn.CrossEntropyLoss(reduction="none")


def run_of(data, model=None, **options):
    torch.manual_seed(5)
    model = model() if model else nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Dropout(0.2), nn.Linear(6, 3))
    given = {"unit": discreet.record(), "rate": 0.3, "steps": 6, "noise_multiplier": 1.0} | options
    return train(model, torch.optim.SGD(model.parameters(), 0.5), data, EACH, delta=1e-5, clip_norm=1.0, divisor=15.0, **given)


def seeded(data, **options):
    with seeded_for_tests(b"loading"):
        return updates(run_of(data, **options))


@pytest.mark.parametrize("microbatch", [None, 4])
@pytest.mark.parametrize("workers", [0, 2])
def test_a_loader_gives_what_its_data_set_gives(workers, microbatch):
    """Bit for bit: order, batch size and shuffling of the loader are not used."""
    data = TensorDataset(X, Y)
    loader = DataLoader(data, batch_size=7, shuffle=True, num_workers=workers, prefetch_factor=2 if workers else None)
    assert (
        seeded(loader, performance=Performance(microbatch=microbatch))
        == seeded(data, performance=Performance(microbatch=microbatch))
    ).all()
    run = run_of(loader)
    assert run.plan.event() == Repeat(Poisson(0.3, Gaussian(1.0)), 6)


def test_owners_and_a_loader():
    given = {"unit": discreet.user("who", rows=3), "owners": np.arange(50) % 20, "rate": 0.5}
    data = TensorDataset(X, Y)
    wanted = seeded(data, **given)
    assert (seeded(DataLoader(data, num_workers=1), **given) == wanted).all()
    padded = seeded(DataLoader(data, collate_fn=lambda rows: torch.utils.data.default_collate(rows)), **given)
    assert np.allclose(padded, wanted, atol=1e-6)


class Texts(Dataset):
    """Rows of unequal length."""

    def __len__(self):
        return 50

    def __getitem__(self, row):
        return WORDS[row], int(Y[row])


class Bag(nn.Module):
    """The mean over all positions, padding included: a model that padding to the longest of a batch would change."""

    def __init__(self):
        super().__init__()
        self.table, self.last = nn.Embedding(9, 5), nn.Linear(5, 3)

    def forward(self, x):
        return self.last(self.table(x).mean(1))


def pad(rows):
    longest = max(len(x) for x, _ in rows)
    return (
        torch.stack([nn.functional.pad(x, (0, longest - len(x))) for x, _ in rows]),
        torch.tensor([y for _, y in rows]),
    )


@pytest.mark.parametrize("workers", [0, 2])
def test_rows_of_unequal_length_are_padded_by_themselves(workers):
    """Each unit's gradient is that of its row alone, which a loop of autograd over single rows shows."""
    loader = DataLoader(Texts(), collate_fn=pad, num_workers=workers)
    with seeded_for_tests(b"ragged"):
        run = run_of(loader, model=Bag, rate=0.5, steps=1, noise_multiplier=1e-6)
        run._begin()
        chosen = run.plan.sampler.draw(run._state.key, 0, 50)
        wanted = sum(clipped(run.model, WORDS[i][None], Y[i][None]) for i in chosen) / 15.0
        assert np.allclose(updates(run)[0], wanted.numpy(), atol=1e-5)


def clipped(model, x, y):
    gradients = torch.autograd.grad(EACH(model(x), y).sum(), list(model.parameters()))
    flat = torch.cat([g.flatten() for g in gradients])
    return flat * torch.clamp(1.0 / (1 + SLACK) / flat.norm(), max=1.0)


def test_units_of_one_shape_are_computed_together():
    parts = Reader(Texts(), pad)[0, np.arange(50)[:, None]]
    assert sorted(len(places) for places, _ in parts) == [12, 12, 13, 13]
    assert sorted(int(place) for places, _ in parts for place in places) == list(range(50))
    for places, (x, y) in parts:
        for place, row, label in zip(places, x, y, strict=True):
            assert torch.equal(row, WORDS[place])
            assert label == Y[place]


def test_what_a_collate_function_must_give():
    for wrong in (lambda rows: "words", lambda rows: torch.zeros(3), lambda rows: []):
        with pytest.raises(InvalidValue, match=r"one entry for each|\(input, target\)|numbers and tensors|nothing"):
            updates(run_of(DataLoader(TensorDataset(X, Y), collate_fn=wrong)))


class Noisy(Dataset):
    """Draws at random what it gives, by three generators."""

    def __len__(self):
        return 50

    def __getitem__(self, row):
        import random

        return X[row] + torch.rand(4) + random.random() + np.random.rand(), Y[row]


@pytest.mark.parametrize("again", [1, 2])
def test_random_rows_of_workers_are_the_same_when_a_step_is_repeated(tmp_path, again):
    """Whichever worker reads them."""
    with seeded_for_tests(b"whole"):
        whole = updates(run_of(DataLoader(Noisy(), num_workers=2)))
    with seeded_for_tests(b"whole"):
        run = run_of(DataLoader(Noisy(), num_workers=2), checkpoint=Checkpoint(tmp_path / "run", every=2))
        run.fit(lambda step: step.number < 5)
    run = run_of(DataLoader(Noisy(), num_workers=again), checkpoint=Checkpoint(tmp_path / "run", every=2))
    assert run.number == 4
    assert (updates(run) == whole[4:]).all()


class OnDisk(Dataset):
    """Larger than memory: rows of a file that is only mapped."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.rows = np.load(path, mmap_mode="r")

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, row):
        return torch.from_numpy(self.rows[row].copy()), Y[row]


def test_rows_that_stay_on_disk(tmp_path):
    np.save(tmp_path / "rows.npy", X.numpy())
    assert (seeded(DataLoader(OnDisk(tmp_path / "rows.npy"), num_workers=1)) == seeded((X, Y))).all()


def test_a_loop_of_ones_own_and_a_broken_loop():
    def own(data):
        with seeded_for_tests(b"own"):
            run = run_of(data)
            for n, (x, y) in enumerate(run.batches()):
                if n == 2:
                    break
                run.step(EACH(run.model(x), y))
            for x, y in run.batches():
                run.step(EACH(run.model(x), y))
        return torch.cat([p.detach().flatten() for p in run.model.parameters()])

    data = TensorDataset(X, Y)
    assert torch.equal(own(data), own(DataLoader(data, num_workers=1)))


# ---- fit, and what is measured -------------------------------------------------------------------------------------------


def test_fit_takes_all_steps_and_calls_back():
    seen = []
    run = run_of((X, Y))
    assert run.fit(seen.append, lambda step: None) is run
    assert [step.number for step in seen] == [1, 2, 3, 4, 5, 6]
    run = run_of((X, Y)).fit(lambda step: step.number < 3)
    assert run.number == 3
    assert run.spent() == run.plan.epsilon(3)
    assert run.fit().number == 6


@pytest.mark.parametrize("classes", [1, 2, 3])
def test_measures_are_those_of_scikit_learn(classes):
    metrics = pytest.importorskip("sklearn.metrics")
    generator = torch.Generator().manual_seed(classes)
    x = torch.randn(200, 4, generator=generator).round(decimals=1)  # ties among them
    y = torch.randint(max(classes, 2), (200,), generator=generator)
    torch.manual_seed(0)
    model = nn.Linear(4, classes).train()
    found = evaluate(model, (x, y), batch=64)
    assert model.training
    scores = model(x).detach()
    if classes == 1:
        scores = torch.cat([torch.zeros_like(scores), scores], 1)
    guess, shares = scores.argmax(1), scores.double().softmax(1)
    two = max(classes, 2) == 2
    assert found["accuracy"] == pytest.approx(metrics.accuracy_score(y, guess))
    assert found["balanced accuracy"] == pytest.approx(metrics.balanced_accuracy_score(y, guess))
    assert found["F1"] == pytest.approx(metrics.f1_score(y, guess, average="binary" if two else "macro"))
    wanted = metrics.roc_auc_score(y, shares[:, 1] if two else shares, multi_class="ovr")
    assert found["AUC"] == pytest.approx(wanted)


def test_measures_of_a_regression_of_loaders_and_in_the_report(tmp_path):
    from discreet.report import html

    model = nn.Linear(4, 1)
    found = evaluate(model, (X, X[:, :1]))
    error = (model(X) - X[:, :1]).detach()
    assert found["mean absolute error"] == pytest.approx(float(error.abs().mean()), rel=1e-6)
    assert found["root mean square error"] == pytest.approx(float(error.square().mean().sqrt()), rel=1e-6)
    words = evaluate(Bag(), DataLoader(Texts(), collate_fn=pad))
    assert set(words) == {"accuracy", "balanced accuracy", "F1", "AUC"}
    run = run_of((X, Y)).fit()
    made = run.release(tmp_path / "model", quality=evaluate(run.model, (X, Y)))
    assert made.facts["quality"]["balanced accuracy"] == evaluate(run.model, (X, Y))["balanced accuracy"]
    assert "balanced accuracy" in html(made)
