"""State that model, loss and data set keep in Python, in places that are easily overlooked, and what is said of later shapes.

For every place: a model whose code keeps a counter there, which would switch a statistic of the batch on, is not proven; and what
it keeps does not get from one unit to another. Nothing here is random beyond fixed seeds.
"""

from __future__ import annotations

import json

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

from discreet.learn.sgd.loading import rows as read
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
        assert len(run._paths.verdicts) == (1, 2, 5)[number]  # all shapes were looked at
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
