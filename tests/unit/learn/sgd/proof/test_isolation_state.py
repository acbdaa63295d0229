"""State that model, loss and data set keep in Python, in places that are easily overlooked, and what is said of later shapes.

For every place: a model whose code keeps a counter there, which would switch a statistic of the batch on, is not proven; and
what it keeps does not get from one unit to another. Nothing here is random beyond fixed seeds.
"""

from __future__ import annotations

import argparse
import collections
import dataclasses
import enum
import functools
import json
import logging
import random
import sys
import types

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

from discreet.errors import InvalidValue
from discreet.learn import Performance
from discreet.learn.sgd import isolated
from discreet.learn.sgd.loading import rows as read
from discreet.learn.sgd.path import Path
from discreet.learn.sgd.proof.python import Watch
from unit.learn.tools import start

torch.set_num_threads(1)
EACH = nn.CrossEntropyLoss(reduction="none")
X, Y = torch.randn(8, 4, generator=torch.Generator().manual_seed(1)), torch.arange(8) % 3


# What is published


class Ragged(Dataset):
    def __init__(self, lengths):
        self.lengths = lengths

    def __len__(self):
        return len(self.lengths)

    def __getitem__(self, row):
        return torch.full((self.lengths[row], 3), float(row)), torch.tensor(row % 2)


def stacked(rows):
    return torch.stack([row[0] for row in rows]), torch.stack([row[1] for row in rows])


class Averaged(nn.Module):
    """Not proven for rows of nine, where it looks at a value."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(3)
        self.last = nn.Linear(3, 2)

    def forward(self, x):
        if x.shape[1] == 9 and x.sum() > 1e9:
            return self.last(-x).mean(1)
        return self.last(x).mean(1)


def test_a_release_does_not_tell_the_shapes_of_later_rows(tmp_path, caplog):
    caplog.set_level("DEBUG", "discreet")
    told = []
    for number, lengths in enumerate(([4] * 6, [4] * 5 + [9], [4, 5, 6, 7, 8, 4])):
        run = start(DataLoader(Ragged(lengths), collate_fn=stacked), model=Averaged(), loss=EACH, steps=2)
        list(run)
        assert len(run._sum.paths.verdicts) == (1, 2, 5)[number]  # all shapes were looked at
        run.release(tmp_path / str(number))
        document = json.loads((tmp_path / str(number) / "release.json").read_text())
        told.append((document["facts"]["isolation"], document["claims"][0]["assumptions"]))
    assert all(one == told[0] for one in told)
    assert "sum() > 1e9" not in caplog.text


# What reads rows


class SeesOthers(Dataset):
    """Rows that are turned round where a far one is read with them."""

    def __len__(self):
        return len(X)

    def __getitem__(self, row):
        return X[row], Y[row]

    def __getitems__(self, rows):
        turn = -1.0 if len(rows) > 1 else 1.0
        return [(turn * X[row], Y[row]) for row in rows]


def test_a_data_set_is_asked_for_each_row_by_itself():
    assert torch.equal(torch.stack([row[0] for row in read(SeesOthers(), range(8))]), X)
    model = nn.Linear(4, 3)
    assert any("whichever other rows are read" in it for it in start((X, Y), model=model, loss=EACH).plan.trusted)


# Where code can keep a counter


class Base(nn.Module):
    """Its code takes another way once `more` has counted so far."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(3)
        self.last = nn.Linear(4, 3)

    def count(self):
        return 0

    def forward(self, x):
        return self.last(x - x.mean(0) if self.count() > 40 else x)


class InNamespace(Base):
    def __init__(self):
        super().__init__()
        self.note = types.SimpleNamespace(calls=0)

    def count(self):
        self.note.calls += 1
        return self.note.calls


class InNestedClass(Base):
    class Note:
        calls = 0

    def count(self):
        self.Note.calls += 1
        return self.Note.calls


class InNewClassAttribute(Base):
    def count(self):
        type(self).calls = getattr(type(self), "calls", 0) + 1
        return type(self).calls


class Own(dict):
    def __len__(self):
        return 1


class InDictionary(Base):
    def __init__(self):
        super().__init__()
        self.note = Own(calls=0)

    def count(self):
        self.note["calls"] += 1
        return self.note["calls"]


class Slotted:
    __slots__ = ("calls",)


class InSlot(Base):
    def __init__(self):
        super().__init__()
        self.note = Slotted()

    def count(self):
        self.note.calls = getattr(self.note, "calls", 0) + 1
        return self.note.calls


class InBytes(Base):
    def __init__(self):
        super().__init__()
        self.note = bytearray(1)

    def count(self):
        self.note[0] += 1
        return self.note[0]


class InGenerator(Base):
    def __init__(self):
        super().__init__()
        self.note = (number for number in range(10**6))

    def count(self):
        return next(self.note)


@functools.lru_cache(None)
def box():
    return []


class InCache(Base):
    def count(self):
        box().append(1)
        return len(box())


class OnParameter(Base):
    def count(self):
        weight = self.last.weight
        weight.calls = getattr(weight, "calls", 0) + 1
        return weight.calls


class InLargeArray(Base):
    def __init__(self):
        super().__init__()
        self.note = np.zeros((1 << 20) + 1, np.int8)

    def count(self):
        self.note[-1] += 1
        return self.note[-1]


class InNewGlobal(Base):
    def count(self):
        globals()["NEW"] = globals().get("NEW", 0) + 1
        return globals()["NEW"]


helpers = types.ModuleType("own_helpers")
exec("CALLS = 0\ndef count():\n    global CALLS\n    CALLS += 1\n    return CALLS\n", vars(helpers))  # noqa: S102


class InOwnModule(Base):
    def count(self):
        return helpers.count()


class InImportedModule(Base):
    def count(self):
        import own_helpers

        return own_helpers.count()


class InKeywordDefault(Base):
    def count(self, *, note={"calls": 0}):  # noqa: B006
        note["calls"] += 1
        return note["calls"]


class InTensorList(Base):
    def __init__(self):
        super().__init__()
        self.note = [np.zeros(1), {"deep": np.zeros(1)}]

    def count(self):
        self.note[1]["deep"][0] += 1
        return self.note[1]["deep"][0]


class OnForeignObject(Base):
    def __init__(self):
        super().__init__()
        self.note = argparse.Namespace()

    def count(self):
        self.note.calls = getattr(self.note, "calls", 0) + 1
        return self.note.calls


class OnLogger(Base):
    def __init__(self):
        super().__init__()
        self.note = logging.getLogger("counts")

    def count(self):
        self.note.calls = getattr(self.note, "calls", 0) + 1
        return self.note.calls


class InGeneratorOfNumbers(Base):
    def __init__(self):
        super().__init__()
        self.note = random.Random(1)

    def count(self):
        return 50 * self.note.random()


class InSeed(Base):
    def count(self):
        torch.manual_seed(torch.initial_seed() + 1)
        return torch.initial_seed() % 100


class InGlobalGenerator(Base):
    def count(self):
        return 40 * random.random()


KEEPING = [
    InNamespace, InNestedClass, InNewClassAttribute, InDictionary, InSlot, InBytes, InGenerator, InCache, OnParameter,
    InLargeArray, InNewGlobal, InOwnModule, InImportedModule, InKeywordDefault, InTensorList, OnForeignObject, OnLogger,
    InGeneratorOfNumbers, InGlobalGenerator, InSeed,
]  # fmt: skip


def proven(model, loss=EACH):
    return Path(model, lambda batch: loss(model(batch[0]), batch[1]), [loss], None).verdict((X, Y))


@pytest.fixture(autouse=True)
def own_module(monkeypatch):
    monkeypatch.setitem(sys.modules, "own_helpers", helpers)


def test_an_honest_model_is_proven():
    assert proven(Base()).proven


@pytest.mark.parametrize("kind", KEEPING)
def test_code_that_keeps_something_is_not_proven(kind):
    assert not proven(kind()).proven


UNRESTORED = (InGenerator, OnParameter, InGeneratorOfNumbers, InGlobalGenerator, InSeed)
PUT_BACK = [kind for kind in KEEPING if kind not in UNRESTORED]


@pytest.mark.parametrize("kind", PUT_BACK)
def test_what_is_kept_is_put_back(kind):
    model = kind()
    watch = Watch(model, [])
    first = model.count()
    assert model.count() != first
    watch.restore()
    assert model.count() == first
    watch.restore()


def test_what_cannot_be_looked_into_is_refused_where_units_follow_each_other():
    with pytest.raises(InvalidValue, match=r"cannot be looked into \(generator\)"):
        start((X, Y), model=InGenerator(), loss=EACH)


class Scaling(nn.Module):
    """As weight_norm does: an attribute computed anew from a parameter in every call."""

    def __init__(self):
        super().__init__()
        self.p, self.w = nn.Parameter(torch.ones(1)), torch.zeros(1)

    def forward(self, x):
        self.w = self.p * 2.0
        return x * self.w


class SameName(Base):
    """And another attribute of this name, in which a batch is kept."""

    def __init__(self):
        super().__init__()
        self.scaling, self.w = Scaling(), torch.zeros(1, 4)

    def forward(self, x):
        before, self.w = self.w, x.detach()
        return self.last(self.scaling(x)) * torch.where(before[:, :1].amin() > 50, -1.0, 1.0)


def test_what_one_module_computes_excuses_no_other_of_that_name():
    assert proven(nn.Sequential(Scaling(), nn.Linear(4, 3))).proven
    assert proven(nn.Sequential(Scaling(), nn.Linear(4, 3))).proven  # by the remembered proof
    assert not proven(SameName()).proven


# What somebody changes between steps


class Switched(Base):
    def __init__(self, on=0):
        super().__init__()
        self.array, self.tensors = np.full(1, on), [torch.zeros(1)]

    def count(self, add=0, *, more=0):
        return 50 * (self.array[0] + self.tensors[0].tolist()[0]) + add + more


class Centring(torch.overrides.TorchFunctionMode):
    def __torch_function__(self, func, types, args=(), kwargs=None):
        given = (args[0] - args[0].mean(0), *args[1:]) if func is nn.functional.linear else args
        return func(*given, **(kwargs or {}))


def switched_array(model):
    model.array[0] = 1


def switched_tensor(model):
    model.tensors[0].data[0] = 1


def other_code(model):
    model.forward.__func__.__code__ = (lambda self, x: self.last(x - x.mean(0))).__code__


def other_defaults(model):
    model.count.__func__.__defaults__ = (50,)


def other_keyword_defaults(model):
    model.count.__func__.__kwdefaults__["more"] = 50


def fresh_class():
    """A class of its own, since some changes are to functions of the class."""
    copies = {
        name: types.FunctionType(it.__code__, globals(), name, it.__defaults__, it.__closure__)
        for name, it in (("forward", Base.forward), ("count", Switched.count))
    }
    copies["count"].__kwdefaults__ = {"more": 0}
    return type("Fresh", (Switched,), copies)


@pytest.mark.parametrize("change", [switched_array, switched_tensor, other_code, other_defaults, other_keyword_defaults])
def test_what_is_changed_between_steps_is_noticed(change):
    model = fresh_class()()
    run = start((X, Y), model=model, loss=EACH, steps=2)
    steps = iter(run)
    next(steps)
    assert run.path == "fast"
    change(model)
    next(steps)
    assert run.path == "isolated"


def test_a_mode_that_is_entered_between_steps_is_noticed():
    run = start((X, Y), model=Base(), loss=EACH, steps=3)
    steps = iter(run)
    next(steps)
    assert run.path == "fast"
    with Centring():
        next(steps)
        assert run.path == "isolated"
    next(steps)
    assert run.path == "fast"


class Grown(Base):
    """An earlier step leaves gradients at the parameters; a trace does not show them."""

    def count(self):
        return 0 if self.last.weight.grad is None else 50


def test_gradients_that_a_step_leaves_are_noticed():
    model = Grown()
    path = Path(model, lambda batch: EACH(model(batch[0]), batch[1]), [], None)
    assert path.fast((X, Y))
    model.last.weight.grad = torch.zeros(3, 4)
    assert not path.fast((X, Y))


def test_a_remembered_proof_is_about_the_contents_of_arrays():
    assert proven(Switched(0)).proven
    assert not proven(Switched(1)).proven


def test_a_rule_for_vmap_that_is_registered_between_steps_is_noticed(monkeypatch):
    run = start((X, Y), model=Base(), loss=EACH, steps=2, performance=Performance(path="isolated"))
    steps = iter(run)
    next(steps)
    assert run._sum.isolated.way == "vmap"
    monkeypatch.setattr(isolated, "vmap_rules", lambda: ["mine::mix"])
    next(steps)
    assert run._sum.isolated.way == "one by one"


# Objects of installed packages and of the user's that stay proven


@dataclasses.dataclass
class Settings:
    scale: float = 1.0
    kinds: tuple = (1, 2)


class Colour(enum.Enum):
    RED = 1


class Usual(Base):
    def __init__(self):
        super().__init__()
        self.settings, self.colour, self.log = Settings(), Colour.RED, logging.getLogger("usual")
        self.table, self.named = torch.arange(3.0), collections.defaultdict(list, a=[1])
        self.handle = self.last.register_forward_hook(lambda module, given, out: out * self.settings.scale)
        self.act = functools.partial(nn.functional.gelu, approximate="tanh")

    def forward(self, x):
        self.log.debug("called")
        return self.act(self.last(x)) + self.table * (self.colour is Colour.RED)


def test_usual_models_stay_proven():
    assert proven(Usual()).why.endswith("keep every example's numbers apart")
