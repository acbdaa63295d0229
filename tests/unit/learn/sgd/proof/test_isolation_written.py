"""What a run would write without noise: parameters whose memory is exchanged, flags, names, what is saved beside weights.

Each model here leaves something of a far row in the release where nothing is done about it. Nothing is random beyond seeds.
"""

from __future__ import annotations

import json

import pytest
import torch
from safetensors.torch import load_file
from torch import nn
from torch.utils.data import DataLoader, Dataset

from discreet.errors import InvalidValue
from discreet.learn import Performance
from discreet.learn.sgd.checks import UntrainedState
from discreet.learn.sgd.isolated import Unchanged
from unit.learn.tools import start

torch.set_num_threads(1)
EACH = nn.CrossEntropyLoss(reduction="none")
X, Y = torch.randn(6, 4, generator=torch.Generator().manual_seed(1)), torch.arange(6) % 3
X[0] = 60.0


def far(x):
    return bool((x.detach() == 60.0).any())


class Base(nn.Module):
    """Does something to a parameter, by another name, when it sees the far row."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(3)
        self.first, self.last = nn.Linear(4, 4), nn.Linear(4, 3)
        self.also = [self.first.weight]

    def leave(self, weight, x):
        return None

    def forward(self, x):
        if far(x):
            self.leave(self.also[0], x)
        return self.last(self.first(x))


class Exchanges(Base):
    def leave(self, weight, x):
        weight.data = torch.eye(4) * x.detach()[0]


class Sets(Base):
    def leave(self, weight, x):
        with torch.no_grad():
            weight.set_(torch.eye(4) * x.detach()[0])


class Swaps(Base):
    def leave(self, weight, x):
        torch.utils.swap_tensors(weight, nn.Parameter(torch.eye(4) * x.detach()[0]))


class Turns(Base):
    def leave(self, weight, x):
        weight.data = weight.data.T


class Freezes(Base):
    def leave(self, weight, x):
        weight.requires_grad_(False)


CHANGING = [Exchanges, Sets, Turns]


@pytest.mark.parametrize("kind", CHANGING)
@pytest.mark.parametrize("check_rows", [True, False])
def test_a_parameter_under_another_name_is_what_it_was_or_nothing_is_written(kind, check_rows):
    model = kind()
    before = {name: p.detach().clone() for name, p in model.named_parameters()}
    places = {name: p.data_ptr() for name, p in model.named_parameters()}
    with pytest.raises(InvalidValue, match=r"first\.weight: changed in place"):
        list(start((X, Y), model=model, loss=EACH, lr=0.1, performance=Performance(check_rows=check_rows)))
    for name, p in model.named_parameters():
        assert p.requires_grad
        assert p.data_ptr() == places[name]
        assert torch.equal(p, before[name])


def test_a_parameter_that_one_unit_froze_is_trained_with_all_of_them():
    model = Freezes()
    run = start((X, Y), model=model, loss=EACH, lr=0.1, steps=2)
    before = model.first.weight.detach().clone()
    list(run)
    assert model.first.weight.requires_grad
    assert not torch.equal(model.first.weight, before)


class InPlace(Base):
    """The parameter itself, by its own name: the look at the rows gives it a copy."""

    def forward(self, x):
        if far(x):
            self.first.weight.data = torch.eye(4) * x.detach()[0]
            self.first.requires_grad_(False)
        return self.last(self.first(x))


def test_the_look_at_rows_is_taken_with_copies():
    model = InPlace()
    before = model.first.weight.detach().clone()
    run = start((X, Y), model=model, loss=EACH)
    with pytest.raises(InvalidValue, match=r"first\.weight: changed in place"):
        run._check_rows()
    assert torch.equal(model.first.weight, before)
    assert model.first.weight.requires_grad


@pytest.mark.parametrize("kind", [*CHANGING, Swaps, Freezes])
def test_what_was_changed_is_put_back(kind):
    model = kind()
    before = model.first.weight.detach().clone()
    with Unchanged(model, refuse=False):
        model(X)
    assert torch.equal(model.first.weight, before)
    assert model.first.weight.requires_grad
    with pytest.raises(InvalidValue, match="changed in place"), Unchanged(model):
        model(X)


class Beside(Base):
    """A parameter that is a part of more memory."""

    def __init__(self):
        super().__init__()
        self.first.weight.data = torch.zeros(32)[:16].view(4, 4)

    def leave(self, weight, x):
        weight.detach().as_strided((4,), (1,), 16).copy_(x.detach()[0])


def test_memory_beside_a_parameter_is_what_it_was():
    model = Beside()
    with pytest.raises(InvalidValue, match="memory beside a parameter"), Unchanged(model):
        model(X)
    assert not model.first.weight.detach().as_strided((32,), (1,)).any()


# ---- what is written -----------------------------------------------------------------------------------------------------


class Renamed(Base):
    def forward(self, x):
        if far(x):
            type(self).__name__ = f"row {x.detach().tolist()}"
        return self.last(self.first(x))


def test_the_title_of_a_release_is_the_name_before_a_row_was_read(tmp_path):
    run = start((X, Y), model=Renamed(), loss=EACH)
    list(run)
    assert run.release(tmp_path / "model").facts["title"] == "Renamed, trained privately"


class TwoFaced(Base):
    """What it gives when it is asked again is not what it gave."""

    def __init__(self):
        super().__init__()
        self.register_buffer("note", torch.zeros(4))
        self.asked = 0

    def state_dict(self, *args, **kwargs):
        saved = super().state_dict(*args, **kwargs)
        self.asked += 1
        if self.asked % 2:
            saved["note"] = X[0].clone()
        return saved


def test_what_is_checked_is_what_is_written(tmp_path):
    model = TwoFaced()
    run = start((X, Y), model=model, loss=EACH)
    list(run)
    for attempt in range(3):
        try:
            run.release(tmp_path / str(attempt))
        except InvalidValue:
            assert not (tmp_path / str(attempt)).exists()
        else:
            first = run._untrained._before["note"]
            assert UntrainedState(Saved(load_file(tmp_path / str(attempt) / "model.safetensors")), [])._before["note"] == first


class Saved(nn.Module):
    def __init__(self, state):
        super().__init__()
        self.state = state

    def state_dict(self, *args, **kwargs):
        return self.state


def test_trained_memory_is_known_by_type_and_shape():
    model = nn.Linear(4, 4)
    kept = UntrainedState(model, list(model.parameters()))
    saved = model.state_dict()
    assert kept.changed(model, saved) == []
    saved["weight"] = saved["weight"].view(torch.int32)
    assert kept.changed(model, saved) == ["weight"]


class Ragged(Dataset):
    def __init__(self, lengths):
        self.lengths = lengths

    def __len__(self):
        return len(self.lengths)

    def __getitem__(self, row):
        return torch.ones(self.lengths[row], 3), torch.tensor(row % 2)


class Averaged(nn.Module):
    def __init__(self):
        super().__init__()
        self.last = nn.Linear(3, 2)

    def forward(self, x):
        if x.shape[1] == 9 and x.sum() > 1e9:
            return self.last(-x).mean(1)
        return self.last(x).mean(1)


def stacked(rows):
    return torch.stack([row[0] for row in rows]), torch.stack([row[1] for row in rows])


def test_a_release_does_not_tell_the_shape_of_the_first_row(tmp_path):
    released = []
    for name, lengths in (("with", [9, 4, 4]), ("without", [4, 4])):
        run = start(DataLoader(Ragged(lengths), collate_fn=stacked), model=Averaged(), loss=EACH)
        list(run)
        run.release(tmp_path / name)
        document = json.loads((tmp_path / name / "release.json").read_text())
        released.append((document["facts"]["isolation"], document["claims"][0]["assumptions"]))
    assert released[0] == released[1]
