"""What changes after a run has begun: gradients without noise never reach the optimizer, and errors tell no private number."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.utils.data import Dataset

import discreet
from discreet.errors import InvalidValue
from discreet.learn import train

EACH = nn.CrossEntropyLoss(reduction="none")
X, Y = torch.randn(23, 6, generator=torch.Generator().manual_seed(0)), torch.arange(23) % 3


def net():
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(6, 4), nn.Tanh(), nn.Linear(4, 3))


def begin(model, optimizer=None, loss=EACH, data=(X, Y), **more):
    plan = {
        "unit": discreet.record(), "noise_multiplier": 1.0, "delta": 1e-5, "rate": 0.5, "steps": 4, "clip_norm": 1.0,
        "divisor": 10,
    }  # fmt: skip
    return train(model, optimizer or torch.optim.SGD(model.parameters(), 0.1), data, loss, **{**plan, **more})


@pytest.mark.parametrize("which", ["0.weight", "0.bias"])
def test_a_parameter_that_is_thawed_meanwhile_is_refused(which):
    """Its gradient would come straight from the rows: it was not there when the engine was made."""
    model = net()
    frozen = model.get_parameter(which).requires_grad_(False)
    before = frozen.clone()
    run = begin(model)
    steps = iter(run)
    next(steps)
    frozen.requires_grad_(True)
    with pytest.raises(InvalidValue, match="was fixed when the run began"):
        next(steps)
    assert run.number == 1
    assert torch.equal(frozen, before)


def test_a_layer_that_is_put_in_meanwhile_is_refused():
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    steps = iter(begin(model, optimizer))
    next(steps)
    model[2] = nn.Linear(4, 3)
    before = model[2].weight.clone()
    optimizer.add_param_group({"params": list(model[2].parameters())})
    with pytest.raises(InvalidValue, match="gradients that are not of this run"):
        next(steps)
    assert torch.equal(model[2].weight, before)
    assert all(p.grad is None for p in model.parameters())


def test_a_gradient_from_before_is_refused():
    model = net()
    EACH(model(X), Y).sum().backward()
    model[0].requires_grad_(False)
    with pytest.raises(InvalidValue, match=r"0\.weight.*zero_grad"):
        begin(model)
    model.zero_grad()
    before = model[0].weight.clone()
    for _ in begin(model):
        pass
    assert torch.equal(model[0].weight, before)


@pytest.mark.parametrize("affine", [True, False])
def test_a_frozen_batch_norm_that_is_woken_is_refused(affine):
    """model.train() after a look at the test rows wakes it."""
    model = nn.Sequential(nn.Linear(6, 4), nn.BatchNorm1d(4, affine=affine), nn.Linear(4, 3))
    model[1].eval()
    steps = iter(begin(model))
    next(steps)
    model.train()
    with pytest.raises(InvalidValue, match="BatchNorm1d"):
        next(steps)
    assert not model[1].running_mean.any()


def test_a_model_that_is_woken_and_mixes_nothing_goes_on():
    """As pretrained ones come in eval mode and are trained in the other."""
    model = nn.Sequential(nn.Linear(6, 4), nn.Dropout(0.5), nn.Linear(4, 3)).eval()
    run = begin(model)
    for _ in run:
        model.train()
    assert run.number == 4


@pytest.mark.parametrize("grid", [False, True])
def test_a_model_that_mixes_examples_once_it_is_awake_is_refused(grid):
    class Late(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(6, 3)

        def forward(self, x):
            return self.layer(x - x.mean(0)) if self.training and len(x) > 1 else self.layer(x)

    model = Late().eval()
    steps = iter(begin(model, **({"clip_norm": None, "clipping": discreet.learn.FixedPoint(1.0)} if grid else {})))
    next(steps)
    model.train()
    with pytest.raises(InvalidValue, match="changes when another example"):
        next(steps)


@pytest.mark.parametrize("by", [lambda x: 1 / len(x), lambda x: float(len(x)), lambda x: len(x) ** -0.5])
def test_a_loss_that_knows_the_size_of_its_batch_is_refused(by):
    """Clipped all the same, so the sum looks right; but one unit more changes what all others add."""
    with pytest.raises(InvalidValue, match="beside other examples"):
        begin(net(), loss=lambda output, target: EACH(output, target) * by(target))


class Shrinking(Dataset):
    rows = 23

    def __len__(self):
        return self.rows

    def __getitem__(self, i):
        return X[i], Y[i]


def test_errors_tell_nothing_of_how_many_rows_there_are():
    data = Shrinking()
    told = []
    steps = iter(begin(net(), data=data))
    next(steps)
    data.rows = 22
    with pytest.raises(InvalidValue, match="another number of rows") as error:
        next(steps)
    told.append(str(error.value))
    for owners in (range(22), range(24), [[1]] * 23):
        with pytest.raises(InvalidValue, match="one key for each row") as error:
            begin(net(), unit=discreet.user("who", rows=1), owners=list(owners))
        told.append(str(error.value))
    with pytest.raises(InvalidValue, match="as many rows each") as error:
        begin(net(), data=(X, Y[:22]))
    told.append(str(error.value))
    assert not any(number in text for text in told for number in ("22", "23", "24"))


@pytest.mark.parametrize("wrong", [torch.Tensor.mean, lambda each: each[:-1], lambda each: each[:, None]])
def test_errors_tell_nothing_of_how_many_rows_a_batch_has(wrong):
    run = begin(net(), rate=1.0)
    loop = run.batches()
    x, y = next(loop)
    with pytest.raises(InvalidValue, match="one number for each example") as error:
        run.step(wrong(EACH(run.model(x), y)))
    loop.close()
    assert "23" not in str(error.value)
    assert "22" not in str(error.value)
