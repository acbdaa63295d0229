"""Post-processing: averages, shrinking, encoding, projection; and copies that count as one row."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import discreet
from discreet.accounting import Gaussian, Poisson, Repeat, curve
from discreet.errors import InvalidValue
from discreet.learn import Augment, Postprocess
from discreet.learn.sgd.projected import bassily_noise
from discreet.learn.sgd.rows import Rows

EACH = nn.CrossEntropyLoss(reduction="none")


def made(seed=0, **more):
    torch.manual_seed(seed)
    model = nn.Linear(4, 3)
    data = torch.randn(300, 4), torch.randint(3, (300,))
    optimizer = torch.optim.SGD(model.parameters(), 1.0)
    plan = {
        "unit": discreet.record(),
        "noise_multiplier": 1.0,
        "delta": 1e-5,
        "rate": 0.1,
        "steps": 10,
        "clip_norm": 1.0,
        "divisor": 30,
    }
    return model, discreet.learn.train(model, optimizer, data, EACH, **{**plan, **more})


def test_the_average_of_noisy_weights_is_nearer_to_their_middle():
    torch.manual_seed(0)
    model = nn.Linear(100, 1)
    average = discreet.learn.Average(model, decay=0.98)
    for _ in range(200):
        model.weight.data.normal_(5.0, 1.0)
        average.update()
    last = float((model.weight.detach() - 5.0).abs().mean())
    average.copy_to(model)
    assert float((model.weight.detach() - 5.0).abs().mean()) < 0.3 * last


def test_shrinking_brings_noisy_gradients_nearer_to_the_truth():
    torch.manual_seed(0)
    truth = [torch.randn(500) * 0.3, torch.randn(500) * 5.0]
    noisy = [t + torch.randn(500) for t in truth]
    before = [float((n - t).norm()) for n, t in zip(noisy, truth)]
    discreet.learn.shrink(noisy, 1.0)
    after = [float((n - t).norm()) for n, t in zip(noisy, truth)]
    assert after[0] < 0.5 * before[0]
    assert after[1] < before[1]


@pytest.mark.parametrize("levels", [2, 16, 256])
def test_encoding_uses_few_values_and_keeps_the_direction(levels):
    torch.manual_seed(0)
    gradient = torch.randn(5000)
    kept = gradient.clone()
    discreet.learn.encode(levels)([gradient], 0.0)
    assert len(gradient.unique()) <= levels
    assert float(torch.cosine_similarity(gradient, kept, 0)) > 0.79  # two letters keep sqrt(2/pi) of it
    with pytest.raises(InvalidValue, match="levels"):
        discreet.learn.encode(1)


def test_post_processing_sees_the_noise_it_is_told_and_changes_the_update():
    seen = []

    def after(gradients, noise):
        seen.append(noise)
        for gradient in gradients:
            gradient.zero_()

    model, run = made(postprocess=Postprocess(gradient=after))
    before = model.weight.clone()
    for _ in run:
        pass
    assert seen == [1 / 30] * 10
    assert torch.equal(model.weight, before)


def test_weights_stay_in_the_ball():
    model, run = made(postprocess=Postprocess(radius=0.05))
    for _ in run:
        length = sum(float(p.detach().square().sum()) for p in model.parameters()) ** 0.5
        assert length <= 0.05 * (1 + 1e-5)


def test_the_published_noise_of_projected_descent_keeps_its_promise_with_room():
    noise = bassily_noise(lipschitz=1.0, size=1000, steps=1000, epsilon=1.0, delta=1e-5)
    assert curve(Repeat(Poisson(1e-3, Gaussian(noise)), 1000)).epsilon(1e-5) < 1.0
    torch.manual_seed(0)
    model = nn.Linear(4, 3)
    data = torch.randn(1000, 4), torch.randint(3, (1000,))
    run = discreet.learn.projected(
        model, data, EACH, unit=discreet.record(), size=1000, steps=200, epsilon=1.0, delta=1e-5, lipschitz=2.0, radius=1.0,
        learning_rate=0.1,
    )  # fmt: skip
    assert len(list(run)) == 200
    assert run.spent() < 1.0
    with pytest.raises(InvalidValue, match="up to 1"):
        bassily_noise(lipschitz=1.0, size=1000, steps=1000, epsilon=2.0, delta=1e-5)


def test_copies_of_a_row_count_as_that_row():
    torch.manual_seed(0)
    data = torch.randn(6, 4), torch.arange(6)
    seen = []

    def augment(inputs):
        seen.append(inputs)
        return inputs + 1.0

    rows = Rows(data, discreet.record(), augment=augment, copies=3)
    (inputs, target), weight = rows.take(torch.tensor([1, 4]).numpy(), torch.device("cpu"))
    assert target.tolist() == [1, 1, 1, 4, 4, 4]
    assert torch.allclose(inputs, data[0][[1, 1, 1, 4, 4, 4]] + 1.0)
    assert weight.tolist() == pytest.approx([1 / 3] * 6)
    assert rows.rows == 3
    with pytest.raises(InvalidValue, match="augment must be a function"):
        discreet.learn.Augment(None, copies=3)


def test_a_run_with_copies_moves_as_one_without_when_copies_do_not_differ():
    """The same key: the same batches and the same noise; a mean of equal gradients is that gradient."""
    from discreet.noise.source import seeded_for_tests

    ends = []
    for more in ({}, {"augment": Augment(lambda inputs: inputs, copies=3)}):
        with seeded_for_tests(b"copies"):
            model, run = made(**more)
            for _ in run:
                pass
        ends.append(model.weight.detach().clone())
    assert torch.allclose(*ends, atol=1e-6)


def test_an_average_is_not_put_into_another_model():
    average = discreet.learn.Average(nn.Sequential(nn.Linear(3, 2), nn.Linear(2, 2)), decay=0.5)
    for other in (nn.Linear(3, 2), nn.Sequential(nn.Linear(3, 2), nn.Linear(2, 1))):
        before = [p.clone() for p in other.parameters()]
        with pytest.raises(InvalidValue, match="other parameters"):
            average.copy_to(other)
        assert all(torch.equal(p, kept) for p, kept in zip(other.parameters(), before))
