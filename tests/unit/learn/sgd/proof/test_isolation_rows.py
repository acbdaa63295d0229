"""What rows bring with them: tensors with code of their own, attributes, another order in memory, another number of rows.

Nothing here is random beyond fixed seeds.
"""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

from discreet.errors import InvalidValue
from discreet.learn.sgd.loading import plain
from discreet.learn.sgd.path import Apart
from unit.learn.tools import start

torch.set_num_threads(1)
EACH = nn.CrossEntropyLoss(reduction="none")
X, Y = torch.randn(6, 4, generator=torch.Generator().manual_seed(1)), torch.arange(6) % 3


class Marked(torch.Tensor):
    """Its code sees all rows that it is stacked with."""

    seen: list[int] = []  # noqa: RUF012

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        cls.seen.append(1)
        return super().__torch_function__(func, types, args, kwargs or {})


class OfMarked(Dataset):
    def __len__(self):
        return len(X)

    def __getitem__(self, row):
        return X[row].as_subclass(Marked), Y[row]


class Plain(OfMarked):
    def __getitem__(self, row):
        return X[row], Y[row]


def stacked(rows):
    return torch.stack([row[0] for row in rows]), torch.stack([row[1] for row in rows])


def to_marked(rows):
    return tuple(part.as_subclass(Marked) for part in stacked(rows))


def attributes(x):
    marked = x.clone()
    marked.flag = True
    return marked


def inference():
    with torch.inference_mode():
        return X.clone()


SOURCES = {
    "columns": ((X.as_subclass(Marked), Y), None),
    "a data set": (OfMarked(), None),
    "a collate function": (DataLoader(Plain(), collate_fn=to_marked), None),
    "an augmentation": ((X, Y), lambda x: torch.stack(list(x)).as_subclass(Marked)),
    "an attribute": ((X, Y), attributes),
    "columns side by side": ((X.T.contiguous().T, Y), None),
    "a part of other memory": ((torch.cat([X, X])[6:], Y), None),
    "inference": ((inference(), Y), None),
}


@pytest.mark.parametrize("source", SOURCES)
def test_a_model_is_given_plain_tensors(source):
    data, augment = SOURCES[source]
    run = start(data, model=nn.Linear(4, 3), loss=EACH, augment=augment)
    batches = []
    run._sum.add = lambda batch, weight, scale: batches.append(batch[0])
    Marked.seen.clear()
    list(run)
    for x in batches:
        assert type(x) is torch.Tensor
        assert not vars(x)
        assert x.is_contiguous()
        assert not x.storage_offset()
        assert not x.is_inference()
    assert torch.equal(torch.cat(batches), X)
    assert source == "a collate function" or not Marked.seen  # its code is not asked about rows of several units


def test_what_is_no_memory_of_numbers_is_refused():
    with pytest.raises(InvalidValue, match="not numbers side by side"):
        plain((torch.eye(3).to_sparse(), Y))
    assert plain({"x": torch.zeros(2, dtype=torch.complex64).conj()})["x"].is_conj() is False


def more(x):
    return torch.cat([x, x]) if x[0, 0] > 50 else x


def fewer(x):
    return x[:0] if x[0, 0] > 50 else x


def one_of_two(parts):
    return {"a": parts["a"], "b": more(parts["b"])}


@pytest.mark.parametrize("augment", [more, fewer])
def test_an_augmentation_gives_every_unit_its_number_of_rows(augment):
    far = X.clone()
    far[2] = 60.0
    apart = Apart(augment, 1)
    assert torch.equal(apart(X), X)
    with pytest.raises(InvalidValue, match="neither add nor drop"):
        apart(far)


def test_in_every_tensor():
    far = X.clone()
    far[2] = 60.0
    with pytest.raises(InvalidValue, match="neither add nor drop"):
        Apart(one_of_two, 1)({"a": X, "b": far})
