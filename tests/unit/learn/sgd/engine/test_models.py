"""Models as people bring them: what runs has the clipped sum of the units one by one, what does not run says why."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.utils import prune
from torch.utils import _pytree as pytree

import discreet
from discreet.errors import InvalidValue
from discreet.learn import Augment, Performance, train
from discreet.learn.sgd.clipping import Flat
from discreet.learn.sgd.engine import Engine

torch.set_num_threads(1)

EACH = nn.CrossEntropyLoss(reduction="none")
COUNT = 12
GENERATOR = torch.Generator().manual_seed(4)
X, Y = torch.randn(COUNT, 6, generator=GENERATOR), torch.arange(COUNT) % 3
FRAMES = torch.randn(COUNT, 3, 1, 4, 4, generator=GENERATOR)
BAGS = torch.randint(0, 9, (COUNT, 5), generator=GENERATOR)
BAGS[:, 3] = BAGS[:, 4]  # a row that is read twice
BAGS[2] = 0  # nothing but padding


def begun(model, data=(X, Y), loss=EACH, **options):
    given = {"unit": discreet.record(), "delta": 1e-5, "rate": 0.5, "steps": 2, "clip_norm": 1.0, "noise_multiplier": 1.0,
             "divisor": 6.0, **options}  # fmt: skip
    return train(model, torch.optim.SGD(model.parameters(), 0.01), data, loss, **given)


def agrees(run):
    """The engine's clipped sum of real rows is that of the units one by one, and steps can be taken."""
    engine, rows = run._sum.engine, run._parts.rows.rows
    units = min(5, run._parts.rows.units)
    batch, weight = run._parts.rows.take(np.arange(units), run._sum.device)
    weight = torch.ones(units * rows) if weight is None else weight
    gradients = []
    for unit in range(units):
        own = slice(unit * rows, (unit + 1) * rows)
        losses = run._sum.losses(pytree.tree_map(lambda leaf, own=own: leaf[own], batch))
        gradients.append(engine.gradient((losses * weight[own]).sum()))
    norms = torch.stack([flat.norm() for flat in gradients])
    for clip in (float(norms.max()) * 2, float(norms.median()), float(norms[norms > 0].min()) / 3):
        clipping, found = Flat(clip), engine.buffer()
        wanted = torch.stack([flat * clipping.factors(flat.square().sum()) for flat in gradients]).sum(0)
        with engine.recording(units * rows):
            engine.add(run._sum.losses(batch) * weight, clipping, found)
        assert torch.allclose(found, wanted, rtol=0.0, atol=1e-4 * float(wanted.norm())), clip
    assert [step.number for step in run] == [1, 2]


class Frames(nn.Module):
    """All frames of all examples are one batch for the layers of images."""

    def __init__(self):
        super().__init__()
        self.one, self.norm, self.bend = nn.Conv2d(1, 4, 3, padding=1), nn.GroupNorm(2, 4), nn.PReLU(4)
        self.up, self.own = nn.ConvTranspose2d(4, 2, 2, 2), nn.InstanceNorm2d(2, affine=True)
        self.line, self.head = nn.Conv1d(8, 4, 3), nn.Linear(4 * 14, 3)

    def forward(self, x):
        h = self.own(self.up(self.bend(self.norm(self.one(x.flatten(0, 1))))))
        h = self.line(h.flatten(2).transpose(1, 2).reshape(len(h), 8, 16))
        return self.head(h.flatten(1)).unflatten(0, x.shape[:2]).mean(1)


class Pairs(nn.Module):
    """One network for two images of every example, given side by side, or first all of one kind."""

    def __init__(self, together):
        super().__init__()
        self.together, self.net = together, nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(16, 3))

    def forward(self, x):
        if self.together:
            both = self.net(x[:, :2].flatten(0, 1)).unflatten(0, (-1, 2))
            return both[:, 0] - both[:, 1]
        one, other = self.net(torch.cat((x[:, 0], x[:, 1]))).chunk(2)
        return one - other


class Bag(nn.Module):
    def __init__(self, offsets=False, weights=False, **more):
        super().__init__()
        self.offsets, self.weights = offsets, weights
        self.table, self.head = nn.EmbeddingBag(9, 4, **more), nn.Linear(4, 3)

    def forward(self, x):
        if self.offsets:
            return self.head(self.table(x.flatten(), torch.arange(0, x.numel(), x.shape[1])))
        return self.head(self.table(x, per_sample_weights=x.float().cos() if self.weights else None))


class Prompt(nn.Module):
    """Gives a parameter, and takes nothing."""

    def __init__(self):
        super().__init__()
        self.given = nn.Parameter(torch.randn(4, 6))

    def forward(self):
        return self.given.tanh()


class Prompted(nn.Module):
    def __init__(self):
        super().__init__()
        self.prompt, self.head = Prompt(), nn.Linear(6, 3)

    def forward(self, x):
        return self.head(torch.cat((self.prompt().expand(len(x), -1, -1), x[:, None]), 1)).square().mean(1)


class Window(nn.Module):
    """Attention inside windows, which are a batch of their own, with a table of distances that nobody gives examples to."""

    def __init__(self):
        super().__init__()
        self.all, self.near, self.out = nn.Linear(6, 18), Prompt(), nn.Linear(6, 6)

    def forward(self, x):
        q, k, v = self.all(x).chunk(3, -1)
        return self.out(torch.softmax(q @ k.mT + self.near()[:, :4], -1) @ v)


class Windows(nn.Module):
    def __init__(self):
        super().__init__()
        self.one, self.norm, self.two, self.head = Window(), nn.LayerNorm(6), Window(), nn.Linear(6, 3)

    def forward(self, x):
        h = x.reshape(-1, 4, 6)
        h = h + self.one(h)
        h = h + self.two(self.norm(h))
        return self.head(h.reshape(len(x), -1, 6).mean(1))


class Named(nn.Module):
    """Layers are called by the names of their arguments, and one entry of a table is for everybody."""

    def __init__(self):
        super().__init__()
        self.line, self.table, self.head = nn.Conv1d(1, 2, 3), nn.Embedding(4, 8), nn.Linear(8, 3)

    def forward(self, x):
        return self.head(input=self.line(input=x[:, None]).flatten(1) + self.table(torch.tensor(2)))


class Similar(nn.Module):
    """Cosines with learned directions, times a learned number."""

    def __init__(self):
        super().__init__()
        self.both, self.along, self.scale = (
            nn.Bilinear(6, 6, 4),
            nn.Parameter(torch.randn(3, 4)),
            nn.Parameter(torch.tensor(1.6)),
        )

    def forward(self, x):
        return self.scale.exp() * F.normalize(self.both(x, x), dim=1) @ F.normalize(self.along, dim=1).T


def pruned():
    model = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 3))
    prune.l1_unstructured(model[0], "weight", 0.4)
    return model


def weighed():
    return nn.Sequential(nn.utils.weight_norm(nn.Linear(6, 8)), nn.Tanh(), nn.Linear(8, 3))


RUN = {
    "frames": (Frames, FRAMES),
    "pairs side by side": (lambda: Pairs(True), FRAMES),
    "a sum of a bag": (lambda: Bag(mode="sum"), BAGS),
    "a mean of a bag": (lambda: Bag(padding_idx=0), BAGS),
    "the most of a bag": (lambda: Bag(mode="max", padding_idx=0), BAGS),
    "a weighted bag": (lambda: Bag(weights=True, mode="sum", padding_idx=0), BAGS),
    "a bag with offsets": (lambda: Bag(offsets=True), BAGS),
    "a sparse table": (lambda: nn.Sequential(nn.Embedding(9, 4, sparse=True), nn.Flatten(), nn.Linear(20, 3)), BAGS),
    "a prompt": (Prompted, X),
    "windows": (Windows, torch.randn(COUNT, 8, 6, generator=GENERATOR)),
    "named arguments": (Named, X),
    "directions": (Similar, X),
    "a pruned layer": (pruned, X),
    "weight_norm by a hook": (weighed, X),
}  # fmt: skip


@pytest.mark.filterwarnings("ignore:.*weight_norm. is deprecated")
@pytest.mark.parametrize("owned", [False, True], ids=["records", "users"])
@pytest.mark.parametrize("case", RUN)
def test_the_clipped_sum_is_that_of_the_units_one_by_one(case, owned):
    torch.manual_seed(6)
    make, inputs = RUN[case]
    users = {"unit": discreet.user("who", rows=3), "owners": np.arange(COUNT) // 2} if owned else {}
    agrees(begun(make(), (inputs, Y), **users))


def test_a_table_read_in_bags_is_not_copied_for_every_example():
    run = begun(Bag(padding_idx=0), (BAGS, Y))
    assert "copied" not in [make.__name__ for _, make in run._sum.engine._modules]


def test_a_computed_weight_is_left_as_it_was():
    model = pruned()
    agrees(begun(model))
    assert type(model[0].weight) is torch.Tensor
    assert torch.equal(model[0](X), F.linear(X, model[0].weight_orig * model[0].weight_mask, model[0].bias))


# What is refused, and why


class Routed(nn.Module):
    """Each example goes through one of two layers, together with those that go there too."""

    def __init__(self):
        super().__init__()
        self.ways, self.head = nn.ModuleList([nn.Linear(6, 6), nn.Linear(6, 6)]), nn.Linear(6, 3)

    def forward(self, x):
        out = torch.zeros_like(x)
        for way, goes in zip(self.ways, (x[:, 0] > 5.0, x[:, 0] <= 5.0)):
            if goes.any():
                out[goes] = way(x[goes])
        return self.head(out)


class InPlace(nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.randn(6, 3))

    def forward(self, x):
        out = torch.zeros(3)
        return x @ self.scale + out.copy_((x @ self.scale)[0].detach()) * 0


class Steep(nn.Module):
    """Its output has the length of its own gradient in it."""

    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(6, 4), nn.Tanh(), nn.Linear(4, 3))

    @torch.enable_grad()
    def forward(self, x):
        x = x.detach().requires_grad_()
        out = self.net(x)
        return out + torch.autograd.grad(out.sum(), x, create_graph=True)[0].norm(dim=1, keepdim=True)


def penalised(model):
    return lambda out, y: EACH(out, y) + 0.1 * model.weight.square().sum()


class Waves(nn.Module):
    def __init__(self):
        super().__init__()
        self.waves = nn.Parameter(torch.randn(6, 3, dtype=torch.cfloat))

    def forward(self, x):
        return (x.to(torch.cfloat) @ self.waves).abs()


LINEAR = nn.Linear(6, 3)
REFUSED = {
    "pairs one kind after the other": (lambda: Pairs(False), {"data": (FRAMES, Y)}, "along the first axis"),
    "vmap cannot": (InPlace, {}, "InPlace holds parameters.*vmap, where it fails.*in place"),
    "a gradient of a gradient": (Steep, {}, "create_graph=True"),
    "a penalty in the loss": (lambda: LINEAR, {"loss": penalised(LINEAR)}, "weight_decay"),
    "complex numbers": (Waves, {}, "complex64.*view_as_complex"),
    "lengths kept": (lambda: nn.Sequential(nn.Embedding(9, 4, max_norm=1.0), nn.Flatten(), nn.Linear(20, 3)),
                     {"data": (BAGS, Y)}, "max_norm"),
    "one tensor": (lambda: LINEAR, {"data": X}, "pair of tensors"),
    "rows as dictionaries": (lambda: LINEAR, {"data": [{"x": X[i], "y": Y[i]} for i in range(COUNT)]}, "got a dict"),
    "rows without a value": (lambda: LINEAR, {"data": [(X[i], None) for i in range(COUNT)]}, "NoneType"),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_refused_with_a_reason(case, tmp_path):
    torch.manual_seed(6)
    make, options, words = REFUSED[case]
    ledger = discreet.Ledger(tmp_path / "ledger.db")
    ledger.open("people", unit=discreet.record(), epsilon=1000.0, delta=1e-2)
    with pytest.raises(InvalidValue, match=words):
        begun(make(), ledger=ledger, source="people", **options)
    assert ledger.spent("people") == 0


@pytest.mark.filterwarnings("ignore:.*torch.jit")
def test_a_scripted_model_is_refused():
    with pytest.raises(InvalidValue, match="compiled by torch"):
        begun(torch.jit.script(nn.Sequential(nn.Linear(6, 3))))


def test_a_table_is_told_how_to_become_tensors():
    pandas = pytest.importorskip("pandas")
    with pytest.raises(InvalidValue, match="got a DataFrame"):
        begun(nn.Linear(6, 3), pandas.DataFrame(X.numpy()))


@pytest.mark.parametrize("rows", [1, 4])
def test_a_layer_that_is_given_part_of_a_batch_is_computed_unit_by_unit_though_nothing_made_up_went_there(rows):
    """Eight of sixteen rows of four users can be shared out among four, but to the wrong ones: the engine refuses to."""
    torch.manual_seed(6)
    x, y = torch.randn(16, 6).clamp(-1, 1), torch.arange(16) % 3
    x[::2, 0] = 6.0
    users = {"unit": discreet.user("who", rows=rows), "owners": np.arange(16) // rows}
    run = begun(Routed(), (x, y), rate=1.0, **users)
    assert run.path == "isolated"
    assert "goes.any()" in run.why
    assert len(list(run)) == run.plan.steps
    engine = Engine(Routed(), rows)
    with pytest.raises(InvalidValue, match="given part of the examples"), engine.recording(16):
        engine.add(EACH(engine.model(x), y), Flat(1.0), engine.buffer())
    with pytest.raises(InvalidValue, match=r"path='fast' was asked for.*goes\.any\(\)"):
        begun(Routed(), (x, y), rate=1.0, performance=Performance(path="fast"), **users)


class Training(nn.Module):
    """In training, a layer is given the examples in another order, or some of them."""

    def __init__(self, order):
        super().__init__()
        self.order, self.inner, self.head = order, nn.Linear(6, 6), nn.Linear(6, 3)
        nn.init.zeros_(self.head.weight)  # behind which nothing is seen

    def forward(self, x):
        order = self.order(len(x)) if self.training else torch.arange(len(x))
        return self.head(x.index_add(0, order, self.inner(x[order])))


ORDERS = {
    "reversed": lambda count: torch.arange(count).flip(0),
    "at random": torch.randperm,
    "some": lambda count: torch.randperm(count)[: max(1, 2 * count // 3)],
    "one for others": lambda count: torch.arange(count).clamp(count // 2),
}


@pytest.mark.parametrize("owned", [False, True], ids=["records", "users"])
@pytest.mark.parametrize("order", ORDERS)
def test_what_is_done_in_training_only_is_looked_at(order, owned):
    torch.manual_seed(6)
    users = {"unit": discreet.user("who", rows=3), "owners": np.arange(COUNT) // 2} if owned else {}
    model = Training(ORDERS[order])
    with pytest.raises(InvalidValue, match=r"In training mode|given part of the examples"):
        begun(model, **users)
    assert not model.head.weight.any()
    agrees(begun(model.eval(), **users))
    agrees(begun(Training(torch.arange), **users))


@pytest.mark.parametrize(
    ("model", "loss"),
    [
        (nn.Linear(6, 1), EACH),  # labels 0 and 1 for one class
        (nn.Sequential(nn.Linear(6, 1), nn.Flatten(0)), lambda out, y: EACH(out.squeeze(), y)),
    ],
)
def test_an_error_of_the_model_on_made_up_rows_says_so(model, loss):
    with pytest.raises((IndexError, RuntimeError, ValueError)) as caught:
        begun(model, loss=loss)
    assert "made-up rows" in caught.value.__notes__[0]


class Missing(torch.utils.data.Dataset):
    def __len__(self):
        return 3

    def __getitem__(self, i):
        raise FileNotFoundError("0.png")


def test_an_error_of_the_data_is_its_own():
    with pytest.raises(FileNotFoundError) as caught:
        begun(nn.Linear(6, 3), Missing())
    assert not hasattr(caught.value, "__notes__")


# Data


class Mixed(nn.Module):
    def __init__(self):
        super().__init__()
        self.line, self.kind, self.head, self.number = nn.Linear(6, 8), nn.Embedding(9, 8), nn.Linear(8, 3), nn.Linear(8, 1)

    def forward(self, line, kind):
        h = torch.tanh(self.line(line) + self.kind(kind))
        return {"class": self.head(h), "number": self.number(h)[:, 0]}


def both(out, target):
    return EACH(out["class"], target[0]) + (out["number"] - target[1]).square()


COLUMNS = {
    "a dictionary and a tuple": ({"line": X, "kind": BAGS[:, 0]}, (Y, X[:, 1])),
    "arrays": (X.numpy(), BAGS[:, 0].numpy(), (Y.numpy(), X[:, 1])),
    "rows": [({"line": X[i], "kind": BAGS[i, 0]}, (Y[i], X[i, 1])) for i in range(COUNT)],
}


@pytest.mark.parametrize("augment", [None, lambda inputs: pytree.tree_map(lambda leaf: leaf * 1, inputs)])
@pytest.mark.parametrize("case", COLUMNS)
def test_data_may_be_nested(case, augment):
    torch.manual_seed(6)
    more = {} if augment is None else {"augment": Augment(augment, copies=2)}
    agrees(begun(Mixed(), COLUMNS[case], both, **more))


def test_columns_of_different_lengths_are_refused_wherever_they_are():
    with pytest.raises(InvalidValue, match="as many rows each"):
        begun(Mixed(), ({"line": X, "kind": BAGS[:5, 0]}, (Y, X[:, 1])), both)
