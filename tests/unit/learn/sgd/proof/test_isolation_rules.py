"""Ways by which the size of the batch, the place of an example in it, or another example reached a proof by a rule too wide.

Each function of rows below does something else to a row when other rows come or go. None may be proven.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from discreet.learn.sgd.proof import NotProven, traced
from discreet.learn.sgd.proof.recurrent import is_torchs
from discreet.learn.sgd.proof.values import known, reshaped

torch.set_num_threads(1)
N = 30
ATEN = torch.ops.aten


def size(x):
    return x.shape[0]


def places(x):
    return torch.arange(size(x), dtype=torch.float32)


def heads(x):
    return x[:, None, :2, None].expand(-1, -1, -1, 4)


def alike(*shape):
    return torch.arange(40.0).view(shape)


def first_rows(x, k):
    """Changes the first k rows in place."""
    y = x.clone()
    y[:k].mul_(-1)
    return y


def first_half(x):
    h = torch.zeros(2 * size(x))
    h.view(2, size(x))[0].fill_(1.0)
    return h.view(size(x), 2)


def by_kernel(x):
    """torch asks for the same number to choose how to convolve."""
    x = F.conv1d(x[:, None], torch.ones(1, 1, 1))[:, 0]
    return -x if size(x) >= 16 else x


SIZES = {
    "slice": lambda x: x[:, : size(x)],
    "slice of the rest": lambda x: x[:, size(x) // 10 :],
    "split": lambda x: x.split(size(x), 1)[0],
    "chunk": lambda x: x.chunk(1 + size(x) // 24, 1)[0],
    "roll": lambda x: x.roll(size(x), 1),
    "avg_pool1d": lambda x: F.avg_pool1d(x[:, None], 1 + size(x) // 24)[:, 0],
    "max_pool1d": lambda x: F.max_pool1d(x[:, None], 1 + size(x) // 24)[:, 0],
    "adaptive_avg_pool1d": lambda x: F.adaptive_avg_pool1d(x[:, None], size(x) // 10)[:, 0],
    "unfold": lambda x: x.unfold(1, size(x) // 12, 1).sum(-1),
    "dropout": lambda x: F.dropout(x, 1 / size(x)),
    "attention": lambda x: F.scaled_dot_product_attention(heads(x), heads(x), heads(x), scale=1 / size(x))[:, 0, 0],
    "diagonal": lambda x: torch.diagonal(x[:, :, None].expand(-1, -1, N), size(x) // 10, 1, 2),
    "round": lambda x: x.round(decimals=size(x) // 30),
    "one_hot": lambda x: F.one_hot((x[:, 0] > 0).long(), size(x) // 10).float(),
    "triu": lambda x: torch.triu(x[:, None].expand(-1, N, -1), size(x) // 10)[:, 0],
    "group_norm": lambda x: F.group_norm(x, size(x) // 12),
    "stride": lambda x: F.conv1d(x[:, None], torch.ones(1, 1, 3), stride=size(x) // 10)[:, 0],
    "topk": lambda x: x.topk(size(x) // 10, 1)[0],
    "narrow": lambda x: x.narrow(1, 0, size(x) // 10),
    "select": lambda x: x.select(1, size(x) // 10)[:, None],
    "descending": lambda x: torch.sort(x, 1, descending=size(x) > 20)[0],
    "unbiased": lambda x: torch.std(x, 1, unbiased=size(x) > 20)[:, None],
    "tensor of it": lambda x: x * torch.tensor(size(x)),
    "fill": lambda x: x + torch.full((size(x), 1), size(x)),
    "pad": lambda x: F.pad(x, (0, size(x)))[:, :N],
    "slice_backward": lambda x: ATEN.slice_backward(x[:, :2], [size(x), N], 1, size(x) - 37, size(x) - 35, 1),
    "rows moved by slice_backward": lambda x: ATEN.slice_backward(x, [2 * size(x), N], 0, 1, size(x) + 1, 1).view(2, -1, N)[0],
    "asked by a kernel before": by_kernel,
}
PARTS = {
    **{f"in place below {k}": lambda x, k=k: first_rows(x, k) for k in (41, 50, 59)},
    **{f"split by {k}": lambda x, k=k: torch.cat([p * (j + 1) for j, p in enumerate(x.split(k))]) for k in (41, 50, 59)},
    "chunks": lambda x: torch.cat([p * (j + 1) for j, p in enumerate(x.chunk(50))]),
    "half": first_half,
}
PLACES = {
    "fourier": lambda x: torch.fft.fft(torch.arange(size(x)).float()[:, None], dim=1).real,
    "slice_scatter": lambda x: torch.slice_scatter(places(x)[:, None].expand(-1, 2), torch.zeros(size(x), 1), 1, 0, 1),
    "select_scatter": lambda x: torch.select_scatter(places(x)[:, None].expand(-1, 2), torch.zeros(size(x)), 1, 0),
    "select_scatter of whole numbers": lambda x: torch.select_scatter(
        torch.arange(size(x))[:, None].expand(-1, 2), torch.zeros(size(x), dtype=torch.long), 1, 0
    ),
    "both axes": lambda x: (lambda a: alike(40).expand(size(x), 40)[a, a][:, None])(torch.arange(size(x))),
    "wrapped": lambda x: x[torch.arange(size(x), dtype=torch.int8).long()],
    "wrapped later": lambda x: x[torch.arange(size(x)).to(torch.int8).long()],
    "gather": lambda x: x.gather(1, torch.arange(size(x))[:, None]),
    "view_as_complex": lambda x: torch.view_as_complex(places(x)[:, None].expand(-1, 2).contiguous()).real[:, None],
    "pad": lambda x: F.pad(places(x)[:, None], (0, 1)),
    "copied": lambda x: torch.zeros(size(x)).copy_(places(x))[:, None],
    "margin": lambda x: F.multi_margin_loss(x, torch.arange(size(x)), reduction="none")[:, None],
    "attention": lambda x: ATEN._scaled_dot_product_flash_attention_for_cpu_backward(
        *[heads(x)] * 5, places(x)[:, None, None].expand(-1, 1, 2), 0.0, False
    )[0][:, 0, 0],
    "cell": lambda x: ATEN._thnn_fused_lstm_cell(
        places(x)[:, None].expand(-1, 4), torch.zeros(size(x), 4), torch.zeros(size(x), 1)
    )[0],
}
ZERO = torch.zeros(1, 1, dtype=torch.long)
WRITTEN = {
    "scatter": lambda x: torch.zeros(size(x), 1).scatter(1, ZERO, 1.0),
    "scatter of many": lambda x: torch.ones(size(x), 1).scatter(1, torch.zeros(20, 1, dtype=torch.long), 5.0),
    "scatter_add": lambda x: torch.zeros(size(x), 1).scatter_add(1, ZERO, torch.ones(1, 1)),
    "scatter_reduce": lambda x: torch.zeros(size(x), 1).scatter_reduce(1, ZERO, torch.ones(1, 1), "sum"),
    "index_add": lambda x: x.index_add(1, torch.tensor([0]), torch.ones(1, 1)),
    "index_copy": lambda x: x.index_copy(1, torch.tensor([0]), torch.ones(1, 1)),
    "diagonal_scatter": lambda x: torch.diagonal_scatter(x.t(), torch.full((N,), 9.0), 0, 0, 1).t(),
}
ALIKE = {
    "expand": lambda x: alike(40, 1).expand(40, 2 * size(x)).reshape(2 * size(x), 40).view(size(x), 80),
    "times": lambda x: (torch.ones(2 * size(x)).view(2, size(x)) * torch.tensor([[1.0], [2.0]])).reshape(size(x), 2),
    "repeat": lambda x: alike(40, 1).repeat(1, 2 * size(x)).reshape(2 * size(x), 40).view(size(x), 80),
}


def proven(function):
    """Whether a network that multiplies by what a function makes of rows is proven."""
    torch.manual_seed(0)
    model = nn.Linear(N, 1)
    try:
        traced(model, lambda batch: (model(batch) * function(batch).sum(1, keepdim=True))[:, 0], torch.zeros(2, N))
    except NotProven:
        return False
    return True


@pytest.mark.parametrize("name", SIZES)
def test_the_size_of_the_batch_is_no_argument(name):
    assert not proven(SIZES[name])


@pytest.mark.parametrize("name", PARTS)
def test_a_part_of_the_batch_is_nothing_that_depends_on_its_size(name):
    assert not proven(PARTS[name])


@pytest.mark.parametrize("name", PLACES)
def test_the_place_of_an_example_is_no_number(name):
    assert not proven(PLACES[name])


@pytest.mark.parametrize("name", WRITTEN)
def test_what_is_written_is_written_for_every_example(name):
    assert not proven(WRITTEN[name])


@pytest.mark.parametrize("name", ALIKE)
def test_entries_are_alike_only_along_their_axis(name):
    assert not proven(ALIKE[name])


HONEST = {
    "own entry": lambda x: x[torch.arange(size(x)), (x[:, 0] > 0).long()][:, None],
    "own entry of a table": lambda x: x.view(-1, 5, 6)[torch.arange(size(x))[:, None], (x[:, :2] > 0).long()].flatten(1),
    "one-hot": lambda x: torch.zeros(size(x), 4).scatter(1, (x[:, :1] > 0).long(), 1.0),
    "index_add": lambda x: x.index_add(1, torch.tensor([0]), x[:, 1:2]),
    "halves": lambda x: torch.cat([x, 2 * x]).chunk(2)[1],
    "pieces": lambda x: torch.cat([x, 2 * x, x]).split(size(x))[2],
    "one half": lambda x: torch.cat([x, 2 * x])[size(x) :],
    "zeros in any shape": lambda x: torch.zeros(2 * size(x)).view(2, size(x)).t() + x[:, :2],
    "ones by example": lambda x: torch.ones(2 * size(x)).view(size(x), 2) + x[:, :2],
    "heads": lambda x: x.view(size(x), 5, 6).transpose(0, 1).reshape(5, size(x) * 6).view(5, size(x), 6).sum(0),
    "convolution": lambda x: F.conv1d(x[:, None], torch.ones(2, 1, 3)).flatten(1),
    "group_norm": lambda x: F.group_norm(x, 3),
    "repeat": lambda x: alike(40).repeat(size(x), 1) * x[:, :1],
}


@pytest.mark.parametrize("name", HONEST)
def test_what_keeps_examples_apart_is_still_proven(name):
    assert proven(HONEST[name])


def test_a_free_axis_stays_one_when_other_axes_vary():
    """Entries alike along an axis of 2·B are not alike once other axes are laid into it."""
    seen = []

    def look(batch):
        wide = torch.arange(4.0)[:, None].expand(4, 2 * size(batch))
        layout = known(wide).layout
        assert layout.free
        for shape in ((2 * size(batch), 4), (size(batch), 8), (8, size(batch)), (2, 2, 2 * size(batch))):
            try:
                seen.append(reshaped(layout, wide.shape, shape).free)
            except NotProven:
                seen.append(None)
        return batch

    traced(nn.Module(), look, torch.zeros(2, N), backward=False)
    assert seen == [None, None, None, True]


# What the engine assumes of its layers


class Layers(nn.Module):
    """One layer for rows, and one that is given them as a function says."""

    def __init__(self, given, layer=None):
        super().__init__()
        torch.manual_seed(0)
        self.l, self.m, self.given = nn.Linear(N, 1), layer or nn.Linear(1, 1), given

    def forward(self, x):
        return (self.l(x) + self.given(self.m, x))[:, 0]


class Own(nn.Module):
    """A module without a layer of the engine's."""

    def __init__(self):
        super().__init__()
        self.w = nn.Parameter(torch.ones(1))

    def forward(self, x):
        return x * self.w


def timed(x):
    return x.view(-1, N, 1).transpose(0, 1)


ODD = {
    "time first, flattened": lambda m, x: m(timed(x).reshape(-1, 1)).view(N, -1).t().sum(1, keepdim=True),
    "gated": lambda m, x: (
        (x.abs().amax(1, keepdim=True) > 50) * 1e3 * m(timed(x).reshape(-1, 1)).view(N, -1).t().sum(1, keepdim=True)
    ),
    "both axes": lambda m, x: m(timed(x)).sum(0) + m(x.view(-1, N, 1)).sum(1),
    "shared as well": lambda m, x: m(x[:, :1]) + m(torch.ones(37, 1)).sum(),
    "third axis": lambda m, x: m(x.view(-1, 5, 6, 1).permute(1, 2, 0, 3)).sum((0, 1)),
}


def keeps(model):
    try:
        traced(model, model, torch.zeros(2, N))
    except NotProven:
        return False
    return True


@pytest.mark.parametrize("name", ODD)
def test_a_layer_whose_examples_the_engine_would_mistake_is_not_proven(name):
    assert not keeps(Layers(ODD[name]))


def test_a_module_without_a_layer_of_its_own_is_given_examples_first():
    assert not keeps(Layers(lambda m, x: m(timed(x)).sum(0), Own()))
    assert keeps(Layers(lambda m, x: m(x.view(-1, N, 1)).sum(1), Own()))


USUAL = {
    "time first": lambda m, x: m(timed(x)).sum(0),
    "positions": lambda m, x: m(x.view(-1, N, 1)).sum(1),
    "laid beside": lambda m, x: m(x.view(-1, 1)).view(-1, N).sum(1, keepdim=True),
    "shared": lambda m, x: m(torch.ones(37, 1)).sum() * x[:, :1],
}


@pytest.mark.parametrize("name", USUAL)
def test_a_layer_given_its_examples_in_order_is_proven(name):
    assert keeps(Layers(USUAL[name]))


class Turned(nn.Module):
    """Given time first, with a parameter of its own inside that takes no examples."""

    def __init__(self):
        super().__init__()
        self.table = nn.Linear(1, 1)

    def forward(self, x):
        return x * self.table(torch.ones(5, 1)).sum()


def test_a_module_that_may_be_run_example_by_example_is_given_examples_first():
    assert not keeps(Layers(lambda m, x: m(timed(x)).sum(0), Turned()))
    assert keeps(Layers(lambda m, x: m(x.view(-1, N, 1)).sum(1), Turned()))


# What is read without a question


def tried(read):
    """Goes on as if nothing were, where reading fails."""

    def function(x):
        try:
            odd = bool(read(x))
        except Exception:
            odd = False
        return -x if odd else x

    return function


READ = {
    "repr": lambda x: "6.0000e+01" in repr(x),
    "str": lambda x: "60." in str(x),
    "format": lambda x: "60." in f"{x[0, 0]}",
    "complex": lambda x: complex(x[0, 0]).real > 50,
    "size as text": lambda x: str(x.shape[0]) == "24",
    "shape as text": lambda x: "24" in f"{tuple(x.shape)}",
    "size in a format": lambda x: f"{x.shape[0]}" == "24",
    "share as text": lambda x: str(x.shape[0] / 2) == "12.0",
    "dlpack": lambda x: torch._C._to_dlpack(x) is None,
    "dlpack by torch": lambda x: torch.from_dlpack(x).sum() > 5,
    "a part of a number": lambda x: getattr(x.shape[0], "numerator", 0) == 24,
    "bytes of a size": lambda x: x.shape[0].to_bytes(2, "big") == b"\0\x18",
    "another thread": lambda x: ThreadPoolExecutor(1).submit(lambda: bool((x == 60).any())).result(),
}


@pytest.mark.parametrize("name", READ)
def test_what_is_read_is_noticed(name):
    assert not proven(tried(READ[name]))


def lstm(x, *rest):
    return x


def test_a_function_of_the_same_name_is_not_torchs_layer():
    own = torch.nn.functional.embedding_bag
    assert is_torchs("lstm", torch._VF.lstm)
    assert is_torchs("embedding_bag", own)
    assert not is_torchs("lstm", lstm)


def test_a_recurrent_layer_is_no_function_of_the_size():
    layer = nn.LSTM(1, 1, batch_first=True)

    def read(x, p):
        weights, zero = layer._flat_weights, torch.zeros(1, size(x), 1)
        return torch._VF.lstm(x[:, :, None], (zero, zero), weights, True, 1, p, True, False, True)[0][:, :, 0]

    assert not proven(lambda x: read(x, 1.0 / size(x)))
    assert proven(lambda x: read(x, 0.0))


@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU, nn.RNN])
def test_where_weights_lie_in_memory_is_not_asked(kind, monkeypatch):
    """On a GPU recurrent layers ask for addresses, at any time."""
    monkeypatch.setattr(nn.RNNBase, "flatten_parameters", lambda self: [w.data_ptr() for w in self._flat_weights])

    class Flat(kind):
        def forward(self, *given):
            self.flatten_parameters()
            return super().forward(*given)

    assert keeps(Layers(lambda m, x: m(x[:, :, None])[0].sum(1), Flat(1, 1, batch_first=True)))


# Indices that a kernel does not look at


def images(x):
    return x.view(-1, 1, 5, 6)


def pooled(x, indices):
    y, found = F.max_pool2d(images(x.detach()), 1, return_indices=True)
    back = ATEN.max_pool2d_with_indices_backward(y, images(x.detach()), [1, 1], [1, 1], [0, 0], [1, 1], False, indices(found))
    return back.flatten(1)


INDICES = {
    "made up": lambda found: torch.zeros_like(found) + 40,
    "computed": lambda found: found + 30,
    "changed in place": lambda found: found.add_(30),
    "of larger images": lambda found: F.max_pool2d(torch.ones(found.shape[0], 1, 10, 12), 2, return_indices=True)[1],
}


@pytest.mark.parametrize("name", INDICES)
def test_entries_are_written_by_indices_that_pooling_found(name):
    assert not proven(lambda x: pooled(x, INDICES[name]))


def test_pooling_itself_is_proven():
    assert proven(lambda x: pooled(x, lambda found: found))
    assert proven(lambda x: F.max_pool2d(images(x), 2).flatten(1))
