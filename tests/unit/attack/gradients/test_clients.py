"""What is read out of a client's several steps, of text, and by a server that chooses the weights."""

import numpy as np
import pytest
import torch
from torch import nn
from torch.func import functional_call

from benches import bench
from discreet.attack.gradients import federated, gradients, server
from discreet.attack.gradients.network import Network
from discreet.attack.gradients.update import checked
from discreet.errors import InvalidValue

CROSS_ENTROPY = nn.functional.cross_entropy


def sent(model: nn.Module, rows: torch.Tensor, labels: torch.Tensor) -> dict[str, torch.Tensor]:
    made = torch.autograd.grad(CROSS_ENTROPY(model(rows), labels), list(model.parameters()))
    return dict(zip(dict(model.named_parameters()), made))


def trained(model, rows, labels, epochs, learning_rate, batch_size):
    """A client of federated averaging, by the optimiser of the library: the slow obvious way."""
    first = {name: value.detach().clone() for name, value in model.named_parameters()}
    own = {name: value.clone().requires_grad_() for name, value in first.items()}
    optimizer = torch.optim.SGD(own.values(), lr=learning_rate)
    for _ in range(epochs):
        for place in torch.arange(len(rows)).split(batch_size):
            optimizer.zero_grad()
            CROSS_ENTROPY(functional_call(model, own, (rows[place],)), labels[place]).backward()
            optimizer.step()
    return {name: own[name].detach() - first[name] for name in first}


def perceptron(inputs=12, width=40, classes=4) -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(inputs, width), nn.Tanh(), nn.Linear(width, classes))


def test_the_simulated_steps_are_those_of_the_optimiser():
    model, rows, labels = perceptron().double(), torch.rand(6, 12).double(), torch.arange(6) % 4
    local = federated.Local(3, 0.1, 2)
    network = Network(model, nn.CrossEntropyLoss())
    made = federated.change(network, rows[None].repeat(3, 1, 1), labels, local)
    for one, other in zip(made, trained(model, rows, labels, 3, 0.1, 2).values()):
        assert torch.allclose(one, other, atol=1e-12)


def test_label_counts_of_a_client_of_several_steps():
    model, rows, labels = perceptron(), torch.rand(20, 12), torch.tensor([0] * 9 + [1] * 6 + [3] * 5)
    order = torch.randperm(20, generator=torch.Generator().manual_seed(1))
    update = checked(model, trained(model, rows[order], labels[order], 3, 0.05, 5))
    network = Network(model, nn.CrossEntropyLoss())
    counts = federated.label_counts(network, update, 20, torch.rand(200, 12), federated.Local(3, 0.05, 5))
    assert counts.tolist() == [9, 6, 0, 5]


def test_rows_of_several_local_steps_come_closer_than_guessing():
    torch.manual_seed(3)
    model, labels = perceptron(), torch.tensor([0, 1, 2, 3])
    rows = torch.rand(4, 12)
    update = trained(model, rows, labels, 2, 0.1, 2)
    schema = {f"n{index}": (0.0, 1.0) for index in range(12)}
    found = gradients(
        model, update, batch=4, data=schema, epochs=2, learning_rate=0.1, batch_size=2,
        labels=labels, steps=300, seconds=30,
    )  # fmt: skip
    assert found.method == "federated"
    assert not bool(found.exact.any())
    guessed = float(((rows - 0.5) ** 2).mean()) ** 0.5
    apart = float(((found.matched(rows) - rows) ** 2).mean()) ** 0.5
    assert apart < 0.4 * guessed


def test_one_local_step_is_one_gradient():
    model, row, label = perceptron(), torch.rand(1, 12), torch.tensor([2])
    update = {name: -0.3 * value for name, value in sent(model, row, label).items()}
    found = gradients(model, update, batch=1, shape=(12,), epochs=1, learning_rate=0.3, batch_size=8)
    assert found.method == "closed"
    assert bool(found.exact.all())
    assert found.distance(row[0]) < 1e-5


def test_the_prior_sees_means_and_no_order():
    rows = torch.rand(1, 5, 3)
    same = torch.cat([rows, rows[:, torch.randperm(5)]])
    assert float(federated.epochs_apart(same)) < 1e-12
    other = torch.cat([rows, rows + 0.5])
    pairs = [((a.mean(0) - b.mean(0)) ** 2).mean() for a in other for b in other]
    assert float(federated.epochs_apart(other)) == pytest.approx(float(sum(pairs)) / 4, rel=1e-4)


def test_text_comes_out_token_by_token():
    text = bench("_text")
    torch.manual_seed(0)
    model, generator = text.GPT(300, width=96, heads=4, length=8), torch.Generator().manual_seed(1)
    windows = torch.randint(0, 300, (4, 9), generator=generator)
    update = text.sent(model, windows)
    found = gradients(model, update, batch=4, data="text", shape=(8,), seconds=60)
    assert found.method == "text"
    assert bool(found.exact.all())
    assert sorted(found.rows.tolist()) == sorted(windows[:, :-1].tolist())
    noisy = {
        name: value + 1e-3 * value.norm() * torch.randn(value.shape, generator=generator) for name, value in update.items()
    }
    with pytest.raises(InvalidValue, match="spans everything"):
        gradients(model, noisy, batch=4, data="text", shape=(8,), seconds=60)


def test_a_batch_with_as_many_tokens_as_the_layer_is_wide_is_refused():
    text = bench("_text")
    model = text.GPT(300, width=32, heads=4, length=8)
    windows = torch.randint(0, 300, (8, 9), generator=torch.Generator().manual_seed(1))
    with pytest.raises(InvalidValue, match="spans everything"):
        gradients(model, text.sent(model, windows), batch=8, data="text", shape=(8,))


@pytest.mark.parametrize("clients", [1, 4])
def test_an_imprint_layer_reads_rows_through_a_sum_of_clients(clients):
    generator = torch.Generator().manual_seed(2)
    rows, public = torch.rand(16, 30, generator=generator), torch.rand(500, 30, generator=generator)
    torch.manual_seed(0)
    model = server.imprint(perceptron(30), (30,), public, bins=100)
    parts = [sent(model, part, torch.arange(len(part)) % 4) for part in rows.chunk(clients)]
    total = {name: sum(part[name] for part in parts) for name in parts[0]}
    found, _ = server.read(model, total, (30,))
    read = [float((found - row).abs().max(1).values.min()) < 1e-3 for row in rows]
    assert np.mean(read) >= 0.6
    honest, _ = server.read(perceptron(30), sent(perceptron(30), rows, torch.arange(16) % 4), (30,))
    assert not any(float((honest - row).abs().max(1).values.min()) < 1e-3 for row in rows if len(honest))


def test_neurons_that_agree_have_singled_a_row_out():
    generator = torch.Generator().manual_seed(4)
    rows, public = torch.rand(12, 30, generator=generator), torch.rand(500, 30, generator=generator)
    torch.manual_seed(1)
    model = nn.Sequential(nn.Linear(30, 400), nn.ReLU(), nn.Linear(400, 4))
    changed = server.single_out(model, (30,), public, rows=12)
    found, agreed = server.read(changed, sent(changed, rows, torch.arange(12) % 4), (30,))
    assert int(agreed.sum()) >= 6
    for row in found[agreed]:
        assert float((rows.double() - row).abs().max(1).values.min()) < 1e-3


def test_a_wrong_batch_is_noticed_and_said():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(30, 100), nn.ReLU(), nn.Linear(100, 100), nn.ReLU(), nn.Linear(100, 2))
    rows = torch.rand(4, 30)
    update = sent(model, rows, torch.tensor([0, 1, 0, 1]))
    schema = {f"n{index}": (0.0, 1.0) for index in range(30)}
    found = gradients(model, update, batch=3, data=schema, seconds=3, steps=5)
    assert "rank of 4 rows, not of 3" in found.notes[-1]
    assert len(found) == 4
    assert bool(found.exact.all())


def refused(**named) -> str:
    model = perceptron()
    update = sent(model, torch.rand(1, 12), torch.tensor([1]))
    with pytest.raises(InvalidValue) as error:
        gradients(model, update, **{"batch": 1, "shape": (12,), **named})
    return str(error.value)


def test_what_does_not_fit_is_said():
    assert "all three" in refused(epochs=2)
    assert "learning_rate" in refused(epochs=2, learning_rate=0.0, batch_size=1)
    assert "length of one sequence" in refused(data="text", shape=None)
    assert "causal transformer" in refused(data="text", shape=(4,))
    assert "needs epochs" in refused(method="federated")
    if not torch.cuda.is_available():
        assert "no CUDA device" in refused(device="cuda")
    with pytest.raises(InvalidValue, match="at least two rows of the shape"):
        server.imprint(perceptron(), (12,), torch.rand(5, 3), bins=4)


def test_batch_normalisation_without_statistics_is_said():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(12, 40), nn.BatchNorm1d(40), nn.Tanh(), nn.Linear(40, 4)).eval()
    update = sent(model, torch.rand(1, 12), torch.tensor([1]))
    assert "has seen no batch" in gradients(model, update, batch=1, shape=(12,)).notes[-1]
