"""Whole models out of the layers: transformers, class tokens, strangers' modules, and what is refused."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence
from torch.utils.checkpoint import checkpoint

from discreet.errors import InvalidValue
from discreet.learn.sgd.clipping import Flat
from discreet.learn.sgd.engine import Engine
from discreet.learn.sgd.engine.layers import find, named, norm
from discreet.learn.sgd.engine.probe import probe
from discreet.learn.sgd.engine.tied import Joined
from gradients import agree, copies, engine_for, losses, one_by_one, summed

torch.set_num_threads(1)


def sequences(n):
    return torch.randn(n, 4, 8)


class Encoder(nn.Module):
    def __init__(self, first, **options):
        super().__init__()
        layer = nn.TransformerEncoderLayer(8, 2, 12, dropout=0.0, batch_first=first, **options)
        self.encoder, self.first = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False), first

    def forward(self, x):
        y = self.encoder(x if self.first else x.transpose(0, 1))
        return y if self.first else y.transpose(0, 1)


@pytest.mark.parametrize("first", [True, False])
@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("rows", [1, 2])
def test_transformer_encoders_run_without_vmap(first, training, rows):
    torch.manual_seed(0)
    model = Encoder(first, norm_first=training).train(training)
    assert copies(agree(model, sequences, rows)) == []


@pytest.mark.parametrize("first", [True, False])
def test_a_transformer_decoder_attends_to_itself_and_to_a_memory(first):
    torch.manual_seed(0)

    class Decoder(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.TransformerDecoderLayer(8, 2, 12, dropout=0.0, batch_first=first)

        def forward(self, x, memory):
            mask = nn.Transformer.generate_square_subsequent_mask(4)
            if first:
                return self.layer(x, memory, tgt_mask=mask, tgt_is_causal=True)
            return self.layer(x.transpose(0, 1), memory.transpose(0, 1), tgt_mask=mask, tgt_is_causal=True).transpose(0, 1)

    assert copies(agree(Decoder(), lambda n: (sequences(n), torch.randn(n, 5, 8)))) == []


@pytest.mark.parametrize("rows", [1, 2])
def test_positions_first_from_the_table_to_the_head(rows):
    """[positions, examples, width], the default of torch's transformers."""
    torch.manual_seed(0)

    class Words(nn.Module):
        def __init__(self):
            super().__init__()
            self.table, self.head = nn.Embedding(11, 8), nn.Linear(8, 11)
            self.place = nn.Embedding(4, 8)
            self.layer = nn.TransformerEncoderLayer(8, 2, 12, dropout=0.0)

        def forward(self, x):
            hidden = self.table(x.T) + self.place(torch.arange(4)[:, None].expand(4, len(x)))
            return self.head(self.layer(hidden)).transpose(0, 1)

    assert copies(agree(Words(), lambda n: torch.randint(11, (n, 4)), rows, units=4)) == []


@pytest.mark.parametrize("kind", ["LSTM", "GRU"])
def test_a_recurrent_layer_used_twice(kind):
    torch.manual_seed(0)

    class Twice(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = getattr(nn, kind)(8, 8, batch_first=True, bidirectional=False)

        def forward(self, x):
            once, state = self.layer(x)
            return self.layer(once.flip(1), state)[0]

    agree(Twice(), sequences)
    agree(Twice(), sequences, rows=2)


def test_an_attention_used_on_one_and_on_several_tensors_adds_up_before_the_norm():
    torch.manual_seed(0)

    class Mixed(nn.Module):
        def __init__(self):
            super().__init__()
            self.attend = nn.MultiheadAttention(8, 2, batch_first=True)

        def forward(self, x):
            y, _ = self.attend(x, x, x)
            z, _ = self.attend(y, x, x)
            return z + self.attend(x, y, z)[0]

    agree(Mixed(), sequences)
    agree(Mixed(), sequences, rows=2)


@pytest.mark.parametrize("layer", [nn.LSTM, nn.GRU])
def test_a_packed_sequence_is_refused(layer):
    model = layer(3, 4, batch_first=True)
    packed = pack_padded_sequence(torch.randn(2, 5, 3), torch.tensor([5, 3]), batch_first=True)
    with Engine(model).recording(2), pytest.raises(InvalidValue, match="PackedSequence puts the positions of different"):
        model(packed)


@pytest.mark.parametrize(
    ("model", "x"),
    [
        (nn.LSTM(3, 4), torch.randn(5, 3)),
        (nn.GRUCell(3, 4), torch.randn(3)),
        (nn.InstanceNorm1d(3, affine=True), torch.randn(3, 5)),
    ],
)
def test_one_example_without_its_axis_is_refused(model, x):
    with Engine(model).recording(1), pytest.raises(InvalidValue, match=r"give it|Give it"):
        model(x)


def test_attention_over_one_sequence_is_refused():
    model, x = nn.MultiheadAttention(8, 2), torch.randn(4, 8)
    with Engine(model).recording(1), pytest.raises(InvalidValue, match="without an axis for examples"):
        model(x, x, x)


def test_a_tied_head_is_not_written_out(monkeypatch):
    torch.manual_seed(0)

    class Tied(nn.Module):
        def __init__(self):
            super().__init__()
            self.table, self.head = nn.Embedding(50, 8), nn.Linear(8, 50)
            self.head.weight = self.table.weight

        def forward(self, x):
            return self.head(torch.tanh(self.table(x)))

    def refuse(self):
        raise AssertionError("written out")

    monkeypatch.setattr(Joined, "instantiate", refuse)
    agree(Tied(), lambda n: torch.randint(50, (n, 4)))


class Patches(nn.Module):
    """A small vision transformer: class token and position embeddings are parameters of its own."""

    def __init__(self, repeats=False):
        super().__init__()
        self.token, self.place = nn.Parameter(torch.randn(1, 1, 8)), nn.Parameter(torch.randn(1, 5, 8))
        self.patch = nn.Conv2d(3, 8, 4, 4)
        self.layer = nn.TransformerEncoderLayer(8, 2, 12, dropout=0.1, batch_first=True)
        self.head, self.repeats = nn.Linear(8, 3), repeats

    def forward(self, x):
        patches = self.patch(x).flatten(2).mT
        token = self.token.repeat(len(x), 1, 1) if self.repeats else self.token.expand(len(x), -1, -1)
        return self.head(self.layer(torch.cat((token, patches), 1) + self.place)[:, 0])


def images(n):
    return torch.randn(n, 3, 8, 8)


@pytest.mark.parametrize("rows", [1, 2])
def test_class_tokens_and_positions_are_spread_over_the_examples(rows):
    torch.manual_seed(0)
    assert copies(agree(Patches().eval(), images, rows)) == []


def test_what_cannot_be_spread_goes_through_vmap():
    torch.manual_seed(0)
    model = Patches(repeats=True).eval()
    assert copies(agree(model, images)) == ["Patches"]


class Scaled(nn.Module):
    def __init__(self, *shape):
        super().__init__()
        self.gamma, self.shift, self.unused = (nn.Parameter(torch.randn(shape)) for _ in range(3))
        self.inner = nn.Linear(4, 4)

    def forward(self, x):
        return self.inner(x * self.gamma + self.shift)


@pytest.mark.parametrize(
    ("shape", "of"),
    [
        ((4,), (4,)),
        ((4,), (3, 4)),
        ((4,), (3, 3, 4)),
        ((3, 1, 1), (3, 2, 4)),
        ((1, 3, 1), (3, 4)),
        ((), (3, 4)),
        ((2, 4), (2, 4)),
    ],
)
def test_a_scale_of_any_shape_is_spread(shape, of):
    torch.manual_seed(0)
    assert copies(agree(Scaled(*shape), lambda n: torch.randn(n, *of))) == []


class First(nn.Module):
    """Spread over examples, only the first of its copies is read: the outputs are right and the gradients are not."""

    def __init__(self):
        super().__init__()
        self.gain = nn.Parameter(torch.randn(1, 4))

    def forward(self, x):
        return x * self.gain[0]


class Total(nn.Module):
    """Right alone; spread over examples each would reach the copies of all."""

    def __init__(self):
        super().__init__()
        self.gain = nn.Parameter(torch.randn(1, 4))

    def forward(self, x):
        return x * self.gain.mean(0)


@pytest.mark.parametrize("module", [First, Total])
def test_gradients_in_the_wrong_copies_are_noticed(module):
    torch.manual_seed(0)
    assert copies(agree(module(), lambda n: torch.randn(n, 4))) == [module.__name__]


@pytest.mark.parametrize("rows", [1, 2])
@pytest.mark.parametrize(
    "layer",
    [
        lambda: nn.ConvTranspose2d(3, 4, 3, 2, 1, 1),
        lambda: nn.ConvTranspose2d(3, 4, 2, 2, bias=False),
        lambda: nn.ConvTranspose2d(3, 6, (3, 2), (1, 2), (1, 0), groups=3),
        lambda: nn.ConvTranspose2d(3, 4, 3, 1, dilation=2, output_padding=1),
        lambda: nn.ConvTranspose2d(3, 4, 3, (2, 1), dilation=(3, 2), output_padding=(2, 1), padding=(2, 1)),
    ],
)
def test_transposed_convolutions_run_without_vmap(layer, rows):
    torch.manual_seed(0)
    assert copies(agree(nn.Sequential(layer(), nn.Tanh(), nn.Flatten(2)), images, rows)) == []


def test_a_transposed_convolution_that_is_told_the_size_of_its_output():
    class Sized(nn.Module):
        def __init__(self):
            super().__init__()
            self.up = nn.ConvTranspose2d(3, 2, 3, 2, 1)

        def forward(self, x):
            return self.up(x, output_size=[2 * x.shape[2], 2 * x.shape[3]])

    torch.manual_seed(0)
    assert copies(agree(Sized(), images)) == []


class Conv1D(nn.Module):
    """As transformers has it."""

    def __init__(self, nf, nx):
        super().__init__()
        self.nf, self.nx = nf, nx
        self.weight, self.bias = nn.Parameter(torch.randn(nx, nf)), nn.Parameter(torch.randn(nf))

    def forward(self, x):
        return torch.addmm(self.bias, x.view(-1, x.size(-1)), self.weight).view(*x.size()[:-1], self.nf)


Conv1D.forward.__module__ = "transformers.pytorch_utils"


@pytest.mark.parametrize("rows", [1, 2])
def test_a_linear_layer_stored_the_other_way_round_is_known_by_name(rows):
    torch.manual_seed(0)
    assert find(Conv1D(3, 8)) == (named.conv1d, False)
    agree(nn.Sequential(Conv1D(6, 8), nn.Tanh(), Conv1D(5, 6)), sequences, rows)
    shared = Conv1D(8, 8)
    agree(nn.Sequential(shared, nn.Tanh(), shared), sequences, rows)


@pytest.mark.parametrize(("layer", "of"), [(nn.BatchNorm1d, (4,)), (nn.BatchNorm1d, (4, 3)), (nn.BatchNorm2d, (4, 3, 3))])
def test_a_frozen_batch_norm_is_a_scale_and_a_shift(layer, of):
    torch.manual_seed(0)

    class Frozen(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm = layer(4)
            for t in (*self.norm.parameters(), self.norm.running_mean):
                nn.init.normal_(t)

        def train(self, mode=True):
            return super().train(False)

        def forward(self, x):
            return self.norm(x)

    for rows in (1, 2):
        assert copies(agree(Frozen().eval(), lambda n: torch.randn(n, *of), rows)) == []
    model = layer(4)
    with Engine(model).recording(2), pytest.raises(InvalidValue, match="mixes the examples"):
        model(torch.randn(2, *of))


class Listed(nn.Module):
    def __init__(self):
        super().__init__()
        self.scales = nn.ParameterList([nn.Parameter(torch.randn(8)) for _ in range(2)])
        self.shifts = nn.ParameterDict({"one": nn.Parameter(torch.randn(8))})
        self.inner = nn.Linear(8, 8)

    def forward(self, x):
        return self.inner(x * self.scales[0]) * self.scales[1] + self.shifts["one"]


def test_parameters_in_lists_belong_to_the_module_that_has_the_list():
    torch.manual_seed(0)
    assert copies(agree(Listed(), sequences)) == []


@pytest.mark.parametrize(
    ("model", "of", "through"),
    [
        (lambda: nn.PReLU(4), (4, 3), ["PReLU"]),
        (lambda: nn.ConvTranspose1d(4, 2, 3, 2, groups=2), (4, 6), ["ConvTranspose1d"]),
        (lambda: nn.utils.parametrizations.weight_norm(nn.Linear(8, 3)), (8,), ["ParametrizedLinear"]),
        (lambda: nn.LazyLinear(3), (8,), []),
    ],
)
@pytest.mark.filterwarnings("ignore:There is a performance drop")  # vmap has no rule for weight_norm
def test_other_modules(model, of, through):
    torch.manual_seed(0)
    made = nn.Sequential(model())
    made(torch.randn(2, *of))
    for rows in (1, 2):
        assert copies(agree(made, lambda n: torch.randn(n, *of), rows)) == through


@pytest.mark.parametrize("again", [False, True])
@pytest.mark.parametrize("inside", ["encoder", "stranger", "recurrent"])
def test_layers_inside_a_checkpoint(again, inside):
    torch.manual_seed(0)

    class Reads(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.GRU(8, 8, batch_first=True)

        def forward(self, x):
            return self.layer(x)[0]

    class Saving(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.last = nn.Linear(8, 8), nn.Linear(8, 3)
            self.middle = {"encoder": lambda: Encoder(True), "stranger": Listed, "recurrent": Reads}[inside]()

        def forward(self, x):
            return self.last(checkpoint(self.middle, self.first(x), use_reentrant=again))

    agree(Saving(), sequences)


@pytest.mark.parametrize("kind", ["LSTM", "GRU", "RNN"])
def test_dropout_between_recurrent_layers(kind):
    """With all of it dropped there is no chance in it: the second layer sees zeros, the first gets no gradient."""
    torch.manual_seed(0)

    class Reads(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = getattr(nn, kind)(8, 4, num_layers=2, batch_first=True, dropout=1.0)

        def forward(self, x):
            return self.layer(x)[0]

    agree(Reads(), sequences)
    agree(Reads().eval(), sequences)


def test_a_unit_that_is_not_a_number_adds_nothing_to_any_layer():
    torch.manual_seed(0)

    class All(nn.Module):
        def __init__(self):
            super().__init__()
            self.token = nn.Parameter(torch.randn(1, 1, 8))
            self.layer, self.lstm, self.conv = Encoder(True), nn.LSTM(8, 8, batch_first=True), nn.Conv1d(5, 5, 3, padding=1)

        def forward(self, x):
            x = torch.cat((self.token.expand(len(x), -1, -1), x), 1)
            return self.conv(self.lstm(self.layer(x))[0])

    model = All()
    engine = engine_for(model, sequences)
    x = sequences(5)
    spoiled = x.clone()
    spoiled[2] = float("nan")
    found, wanted = summed(engine, spoiled, Flat(0.5)), summed(engine, x[[0, 1, 3, 4]], Flat(0.5))
    assert torch.allclose(found, wanted, atol=1e-6)
    assert losses(model, x).shape == (5,)


def test_a_group_norm_in_pieces_is_the_same(monkeypatch):
    """A GPU takes so many groups at a time; here it is made to take few."""
    torch.manual_seed(0)
    g, x, mean = torch.randn(7, 4, 5), torch.randn(7, 4, 5), torch.randn(7, 2)
    given = (g, x, mean, mean.exp(), torch.randn(4), [True, True, True])
    whole = norm._per_example(*given)
    monkeypatch.setattr(norm, "_most", lambda x, groups: 3)
    assert all(torch.equal(one, other) for one, other in zip(whole, norm._per_example(*given)))


class Distances(nn.Module):
    """Attention as T5 has it: what a table says of every distance is turned, and added to the scores of all examples."""

    def __init__(self):
        super().__init__()
        self.q, self.v, self.table = nn.Linear(4, 6), nn.Linear(4, 6), nn.Embedding(7, 3)

    def forward(self, x):
        at = torch.arange(x.shape[1])
        bias = self.table((at[:, None] - at[None, :]).clamp(-3, 3) + 3).permute(2, 0, 1)[None]
        q, v = (layer(x).unflatten(2, (3, 2)).transpose(1, 2) for layer in (self.q, self.v))
        return ((q @ q.mT + bias).softmax(-1) @ v).flatten(1), None, bias


class Reader(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList([Distances()])
        self.head = nn.Linear(30, 2)

    def forward(self, x):
        seen, nothing, _ = self.blocks[0](x)
        assert nothing is None
        return self.head(seen)


@pytest.mark.parametrize("rows", [1, 2])
def test_a_table_read_once_for_all_examples_and_turned(rows):
    """The module around it runs example by example; layers further out do not."""
    torch.manual_seed(0)
    model = Reader()

    def make(n):
        return torch.randn(n, 5, 4)

    engine = Engine(model, rows)
    probe(engine, lambda x: losses(model, x), make)
    assert copies(engine) == ["Distances"]
    batch = make(4 * rows)
    norms, _ = one_by_one(engine, batch, Flat(1.0))
    clip = float(norms.median().sqrt())
    wanted = one_by_one(engine, batch, Flat(clip))[1]
    assert torch.allclose(summed(engine, batch, Flat(clip)), wanted, rtol=0.0, atol=1e-5 * float(wanted.norm()))


def test_what_no_enclosing_mends_is_told_as_it_was():
    class Broken(nn.Module):
        def __init__(self):
            super().__init__()
            self.table, self.head = nn.Embedding(5, 4), nn.Linear(4, 2)

        def forward(self, x):
            if torch._C._functorch.maybe_current_level() is not None:
                raise ValueError("not under vmap")
            return self.head(x @ self.table(torch.arange(5)).view(5, 4))

    model = Broken()
    with pytest.raises(RuntimeError, match="invalid for input of size"):
        probe(Engine(model), lambda x: losses(model, x), lambda n: torch.randn(n, 5))
