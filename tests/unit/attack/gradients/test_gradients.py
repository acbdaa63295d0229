"""What a gradient gives away: each reconstruction on networks of its kind, and what is refused."""

import math

import numpy as np
import pytest
import torch
from torch import nn

import discreet
from discreet.attack.gradients import gradients, last
from discreet.attack.gradients.labels import rounded
from discreet.attack.gradients.layout import Layout
from discreet.attack.gradients.tables import isotonic, pool, right_cells
from discreet.core import record
from discreet.errors import InvalidValue

SCHEMA = {f"c{width}": [str(value) for value in range(width)] for width in (9, 16, 7, 15, 6, 5, 2)} | {
    f"n{index}": (0.0, 1.0) for index in range(6)
}
LAYOUT = Layout.of(SCHEMA)
CROSS_ENTROPY = nn.functional.cross_entropy


def sent(model: nn.Module, rows: torch.Tensor, labels: torch.Tensor, loss=CROSS_ENTROPY) -> dict[str, torch.Tensor]:
    names = [name for name, _ in model.named_parameters()]
    return dict(zip(names, torch.autograd.grad(loss(model(rows), labels), model.parameters())))


def mlp(width: int = 100, activation: type[nn.Module] = nn.ReLU, inputs: int = LAYOUT.width) -> nn.Sequential:
    return nn.Sequential(nn.Linear(inputs, width), activation(), nn.Linear(width, width), activation(), nn.Linear(width, 2))


def batch(size: int, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return LAYOUT.sample(size, generator).float(), torch.randint(0, 2, (size,), generator=generator)


def pictures(count: int, size: int, seed: int = 0) -> torch.Tensor:
    """Smooth colour pictures of our own making."""
    generator = torch.Generator().manual_seed(seed)
    coarse = torch.rand(count, 3, 4, 4, generator=generator)
    return nn.functional.interpolate(coarse, size=(size, size), mode="bilinear").clamp(0, 1)


def convolutional(activation: type[nn.Module], width: int = 32) -> nn.Sequential:
    def block(inputs: int, outputs: int, stride: int) -> list[nn.Module]:
        return [nn.Conv2d(inputs, outputs, 3, stride, 1), activation()]

    return nn.Sequential(
        *block(3, width, 1), *block(width, width, 2), *block(width, 2 * width, 2), nn.Flatten(), nn.Linear(2 * width * 16, 10)
    )


def test_one_row_behind_a_linear_layer_comes_out_whatever_follows():
    torch.manual_seed(0)
    model, (rows, labels) = mlp(20, nn.Sigmoid), batch(1, 0)
    found = gradients(model, sent(model, rows, labels), batch=1, data=SCHEMA)
    assert found.method == "closed"
    assert found.distance(rows[0]) < 1e-6
    assert bool(found.exact.all())
    assert found.labels.tolist() == labels.tolist()
    truth = LAYOUT.decoded(rows)
    for name, column in found.columns().items():
        assert column == truth[name] if name.startswith("c") else np.allclose(column, truth[name], atol=1e-5)


@pytest.mark.parametrize("size", [2, 8, 16])
def test_whole_batches_of_a_relu_network_are_exact(size):
    torch.manual_seed(size)
    model, (rows, labels) = mlp(), batch(size, size)
    found = gradients(model, sent(model, rows, labels), batch=size, data=SCHEMA, seconds=30)
    assert found.method == "sparse"
    assert len(found) == size
    assert bool(found.exact.all())
    assert found.residual < 1e-5
    order = torch.cdist(rows.double(), found.rows).argmin(1)
    assert max(found.distance(row) for row in rows) < 1e-4
    assert sorted(order.tolist()) == list(range(size))
    assert found.labels[order].tolist() == labels.tolist()


def test_noise_on_the_update_ends_the_certificate():
    """The broken twin: the same attack on an update with noise must not call a row exact."""
    torch.manual_seed(1)
    model, (rows, labels) = mlp(), batch(4, 1)
    update = sent(model, rows, labels)
    size = math.sqrt(sum(float((value**2).sum()) for value in update.values()))
    generator = torch.Generator().manual_seed(5)
    noisy = {name: value + 0.05 * size * torch.randn(value.shape, generator=generator) for name, value in update.items()}
    found = gradients(model, noisy, batch=4, data=SCHEMA, seconds=1, steps=20)
    assert not bool(found.exact.any())
    assert min(found.distance(row) for row in rows) > 1e-3


def test_an_image_of_a_relu_network_is_peeled_layer_by_layer():
    torch.manual_seed(3)
    model, image, label = convolutional(nn.ReLU), pictures(1, 16, 3), torch.tensor([7])
    found = gradients(model, sent(model, image, label), batch=1, shape=(3, 16, 16), seconds=30)
    assert found.method == "convolutions"
    assert bool(found.exact.all())
    assert found.distance(image[0]) < 1e-3
    assert found.labels.tolist() == [7]


def test_smooth_networks_give_images_away_by_matching():
    torch.manual_seed(4)
    model, image, label = convolutional(nn.Tanh, 8), pictures(1, 16, 4), torch.tensor([2])
    found = gradients(model, sent(model, image, label), batch=1, shape=(3, 16, 16), seconds=20, steps=400)
    assert found.method == "second_order"
    assert found.distance(image[0]) < 1e-2  # 40 dB


def test_tables_without_exactness_come_with_their_doubt():
    torch.manual_seed(5)
    schema = {"a": ["x", "y", "z"], "b": ["u", "v"], "c": (0.0, 1.0)}
    layout = Layout.of(schema)
    rows = layout.sample(2, torch.Generator().manual_seed(1)).float()
    model, labels = mlp(40, nn.LeakyReLU, layout.width), torch.tensor([0, 1])
    found = gradients(model, sent(model, rows, labels), batch=2, data=schema, method="tables", seconds=8, steps=300)
    assert found.confidence.shape == (2, 3)
    assert bool(((found.confidence >= 0) & (found.confidence <= 1 + 1e-9)).all())
    right = [found.columns()[name][index] == layout.decoded(rows)[name][index] for name in ("a", "b") for index in (0, 1)]
    assert sum(right) >= 3  # 4 cells; guessing gets 1.7


def test_starts_that_disagree_leave_doubt():
    layout = Layout.of({"a": ["x", "y"]})
    one, other = torch.tensor([[1.0, 0.0]]).double(), torch.tensor([[0.0, 1.0]]).double()
    labels = torch.tensor([0])
    assert float(pool([(1e-3, one), (1e-3, one)], labels, layout).confidence) == 1.0
    torn = pool([(1e-3, one), (1e-3, other)], labels, layout)
    assert float(torn.confidence) == pytest.approx(0.5)
    assert float(torn.entropy) == pytest.approx(1.0)


def test_label_counts_sum_to_the_batch():
    assert rounded(torch.tensor([1.6, -0.2, 2.5]), 4).tolist() == [2, 0, 2]


def test_evidence_tells_rows_of_the_batch_from_others():
    torch.manual_seed(6)
    model, (rows, labels), (others, _) = mlp(), batch(6, 6), batch(6, 60)
    found = gradients(model, sent(model, rows, labels), batch=6, data=SCHEMA, seconds=20)
    evidence = found.evidence([*rows, *others], [True] * 6 + [False] * 6, unit=record())
    assert evidence.auc() == 1.0
    assert evidence.design == "post_hoc"
    assert discreet.attack.gradients is not None
    assert evidence.game.view == frozenset({"updates"})


def refused(model, update, **named) -> str:
    with pytest.raises(InvalidValue) as error:
        gradients(model, update, **{"batch": 1, "data": SCHEMA, **named})
    return str(error.value)


def test_what_is_not_an_update_of_this_model_is_refused():
    torch.manual_seed(7)
    model, (rows, labels) = mlp(10), batch(1, 7)
    update = sent(model, rows, labels)
    first = next(iter(update))
    assert "no value for 1 of 6" in refused(model, {name: value for name, value in update.items() if name != first})
    assert "another model" in refused(model, {**update, "9.weight": torch.zeros(1)})
    assert "another model" in refused(model, {**update, first: torch.zeros(3, 3)})
    assert "all zeros" in refused(model, {name: torch.zeros_like(value) for name, value in update.items()})
    assert "NaN or infinite" in refused(model, {**update, first: torch.full_like(update[first], torch.nan)})
    assert "undo the quantisation" in refused(model, {**update, first: torch.ones_like(update[first]).to(torch.int8)})
    assert "one row" in refused(model, update, data="image")
    assert "does not take rows" in refused(model, update, data={"a": ["x", "y"]})
    assert "labels has 2 entries" in refused(model, update, labels=[0, 1])
    assert "training mode" in refused(
        nn.Sequential(nn.Dropout(0.5), *mlp(10)).train(),
        {f"{int(name[0]) + 1}{name[1:]}": value for name, value in update.items()},
    )


def test_an_update_in_half_precision_is_read_to_its_precision():
    torch.manual_seed(8)
    model, (rows, labels) = mlp(), batch(1, 8)
    half = {name: value.half() for name, value in sent(model, rows, labels).items()}
    found = gradients(model, half, batch=1, data=SCHEMA, method="closed")
    assert found.distance(rows[0]) < 1e-2


def test_the_last_layer_shows_each_row_of_a_batch():
    torch.manual_seed(9)
    layer = nn.Linear(400, 10)
    seen = torch.relu(torch.randn(4, 400)).double()
    given = torch.randn(4, 10).double()
    split = last.rows_of(given.T @ seen, given.sum(0), 4)
    assert split is not None
    order = torch.cdist(seen, split.inputs).argmin(1)
    assert sorted(order.tolist()) == [0, 1, 2, 3]
    assert float((split.inputs[order] - seen).abs().max()) < 1e-5
    assert float((split.deltas[order] - given).abs().max()) < 1e-5
    assert last.rows_of(torch.randn(10, 400).double(), layer.bias.detach().double(), 4) is None


def test_calibration_never_falls_and_is_the_share_that_is_right():
    generator = torch.Generator().manual_seed(0)
    said = torch.rand(4000, generator=generator).double()
    right = (torch.rand(4000, generator=generator).double() < said**2).double()
    asked = torch.linspace(0, 1, 50).double()
    mapped = isotonic(said, right, asked)
    assert bool((mapped.diff() >= 0).all())
    assert float((mapped - asked**2).abs().max()) < 0.15  # blocks of about 100: three deviations


def test_public_rows_calibrate_the_doubt_of_a_table():
    torch.manual_seed(11)
    schema = {"a": ["x", "y", "z"], "b": ["u", "v"], "c": (0.0, 1.0)}
    layout, model = Layout.of(schema), mlp(10, nn.Tanh, 6)
    rows, labels = layout.sample(6, torch.Generator().manual_seed(2)).float(), torch.tensor([0, 1] * 3)
    public = layout.sample(50, torch.Generator().manual_seed(3))
    update = {name: value + 0.05 * value.norm() * torch.randn_like(value) for name, value in sent(model, rows, labels).items()}
    attack = {"batch": 6, "data": schema, "method": "tables", "seconds": 1, "steps": 40, "labels": labels}
    plain, mapped = gradients(model, update, **attack), gradients(model, update, public=public, **attack)
    right = right_cells(rows.double(), mapped.matched(rows), layout).double()
    gap = [abs(float(right.mean()) - float(found.confidence.mean())) for found in (plain, mapped)]
    assert bool(((mapped.confidence > 0) & (mapped.confidence < 1)).all())
    assert gap[1] < max(gap[0], 0.3)


HALVES = [torch.float32, torch.float16, torch.bfloat16]


@pytest.mark.parametrize("dtype", HALVES, ids=str)
def test_rows_that_an_update_does_not_determine_are_not_certified(dtype: torch.dtype) -> None:
    """A linear model adds rows up, so that many batches have the same gradient; a search finds one of them."""
    torch.manual_seed(0)
    model, (rows, labels) = nn.Linear(LAYOUT.width, 2), batch(3, 0)
    for method, net in (("tables", model), ("second_order", nn.Sequential(model, nn.Tanh()))):
        update = {name: value.to(dtype) for name, value in sent(net, rows, labels).items()}
        found = gradients(net, update, batch=3, data=SCHEMA, method=method, steps=100, seconds=1, labels=labels)
        assert not bool(found.exact.any())


def test_the_mean_of_two_rows_is_not_certified_as_one() -> None:
    """For two rows that a linear model scores alike their mean has the gradient of both."""
    model, row = nn.Linear(5, 2), torch.tensor([[1.0, 0.0, 0.0, 0.3, 0.7]])
    with torch.no_grad():
        model.weight[:, :3] = torch.tensor([[0.2], [-0.1]])
    rows = torch.cat([row, row[:, [1, 0, 2, 3, 4]]])
    schema = {"a": ["x", "y", "z"], "b": (0.0, 1.0), "c": (0.0, 1.0)}
    found = gradients(model, sent(model, rows, torch.tensor([1, 1])), batch=1, data=schema, steps=20, seconds=0.5)
    assert not bool(found.exact.any())


def test_images_of_more_pixels_than_the_update_has_values_are_not_certified() -> None:
    """One filter leaves most of an image open; some other image has the same gradient."""
    for seed in range(3):
        torch.manual_seed(seed)
        layers = nn.Conv2d(3, 1, 3, stride=2, padding=1), nn.ReLU(), nn.Conv2d(1, 1, 3, stride=2, padding=1), nn.ReLU()
        model, image = nn.Sequential(*layers, nn.Flatten(), nn.Linear(9, 10)), pictures(1, 12, seed)
        update = sent(model, image, torch.tensor([3]))
        found = gradients(model, update, batch=1, shape=(3, 12, 12), method="convolutions", seconds=1)
        assert not bool(found.exact.any())


@pytest.mark.parametrize("dtype", HALVES, ids=str)
def test_rows_of_few_neurons_are_certified_only_where_they_are_rows(dtype: torch.dtype) -> None:
    """As many equations as unknowns hold for rows that never were."""
    for seed in range(6):
        torch.manual_seed(seed)
        few = nn.Sequential(nn.Linear(LAYOUT.width, 3 + seed % 4), nn.ReLU(), nn.Linear(3 + seed % 4, 2))
        rows, labels = batch(2 + seed % 2, seed)
        update = {name: value.to(dtype) for name, value in sent(few, rows, labels).items()}
        try:
            found = gradients(few, update, batch=len(rows), data=SCHEMA, method="sparse", seconds=0.3)
        except InvalidValue:
            continue  # it found nothing
        truth = rows.double()
        for row in found.rows[found.exact]:
            assert float((truth - row).abs().amax(1).min()) < 0.02


def test_alike_rows_in_half_precision_are_not_taken_for_one() -> None:
    torch.manual_seed(1)
    model = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2))
    rows, labels = torch.tensor([[0.4, 0.5, 0.6], [0.45, 0.5, 0.55]]), torch.tensor([0, 0])
    update = {name: value.half() for name, value in sent(model, rows, labels).items()}
    found = gradients(model, update, batch=2, data={"a": (0, 1), "b": (0, 1), "c": (0, 1)}, steps=50, seconds=1)
    assert not bool(found.exact.any())
