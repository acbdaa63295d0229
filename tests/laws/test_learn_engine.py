"""The engine's clipped sums equal those of the units taken one by one, over generated layers and shapes."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any
from unittest import mock

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import nn

from discreet.learn.layers import RectifiedGroupNorm, StandardizedConv2d
from discreet.learn.sgd.engine import tune
from gradients import Slow, agree, copies, fused

torch.set_num_threads(1)
few = settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
seeds = st.integers(0, 2**31)
rows = st.integers(1, 2)


def frozen(module: nn.Module, which: str) -> nn.Module:
    """The module with some parameters fixed: none of them, or the weight, or the bias."""
    for name, p in module.named_parameters():
        p.requires_grad_(which not in name)
    if not any(p.requires_grad for p in module.parameters()):
        module.requires_grad_(True)
    return module


class Twice(nn.Module):
    """A layer used several times, between others."""

    def __init__(self, layer: nn.Module, times: int) -> None:
        super().__init__()
        self.layer, self.times = layer, times

    def forward(self, *given: torch.Tensor) -> Any:
        outputs = [self.layer(*(x * (i + 1) for x in given)) for i in range(self.times)]
        return outputs


@few
@given(
    seeds, rows, st.integers(1, 3), st.integers(1, 2), st.integers(1, 3), st.integers(1, 2), st.integers(1, 2),
    st.sampled_from([0, 1, 2, "same", "valid"]), st.sampled_from(["zeros", "circular", "reflect", "replicate"]),
    st.booleans(), st.sampled_from(["none", "weight", "bias"]), st.integers(1, 2), st.integers(3, 6),
    st.sampled_from(["windows", "patches", "groups", "gram"]),
)  # fmt: skip
@pytest.mark.filterwarnings("ignore:Using padding='same'")
def test_convolutions(seed, rows, axes, groups, kernel, stride, dilation, padding, mode, bias, fixed, times, size, way):
    torch.manual_seed(seed)
    stride = 1 if padding == "same" else stride
    size = size + dilation * kernel
    make = {1: nn.Conv1d, 2: nn.Conv2d, 3: nn.Conv3d}[axes]
    if axes == 3:
        size = min(size, 7)
    layer = make(2 * groups, 3 * groups, kernel, stride, padding, dilation, groups, bias, mode)
    with tune.only(way):
        agree(Twice(frozen(layer, fixed), times), lambda n: torch.randn(n, 2 * groups, *(size,) * axes), rows)


@few
@given(
    seeds, rows, st.integers(1, 2), st.integers(2, 3), st.integers(1, 2), st.integers(1, 2),
    st.sampled_from([0, 1, "same", "valid"]), st.sampled_from(["zeros", "circular"]), st.booleans(),
    st.sampled_from(["none", "weight", "bias", "gain"]), st.integers(1, 2), st.booleans(),
    st.sampled_from(["", "fused", "kept"]),
)  # fmt: skip
@pytest.mark.filterwarnings("ignore:Using padding='same'")
def test_standardised_convolutions(seed, rows, groups, kernel, stride, dilation, padding, mode, bias, fixed, times, tiny, way):
    torch.manual_seed(seed)
    stride = 1 if padding == "same" else stride
    layer = StandardizedConv2d(4 * groups, 3 * groups, kernel, stride, padding, dilation, groups, bias, mode)
    with torch.no_grad():
        layer.gain.normal_()
        layer.gain[0] = 0.0
        if tiny:
            layer.weight[1] *= 1e-4  # too short to be made longer
    with fused(kept=way == "kept") if way else nullcontext():
        agree(Twice(frozen(layer, fixed), times), lambda n: torch.randn(n, 4 * groups, 6, 6) + 0.3, rows, over=5e-4)


@pytest.mark.parametrize("told", [0, 1, 2])
def test_a_fused_kernel_that_tells_half_of_something_is_found(told):
    """Of squares, sums and products, each of which the norm of a standardised kernel needs."""
    torch.manual_seed(0)
    layer = StandardizedConv2d(4, 3, 2)
    right = Slow.measured

    def wrong(*given):
        found, made = right(*given)
        return found * torch.where(torch.arange(3) == told, 0.5, 1.0)[:, None], made

    with fused(), mock.patch.object(Slow, "measured", wrong), pytest.raises(AssertionError):
        agree(layer, lambda n: torch.randn(n, 4, 6, 6) + 0.3, 1)


@few
@given(seeds, rows, st.sampled_from([(5,), (2, 4), (1, 3), (3, 1, 2)]), st.integers(0, 2), st.booleans(), st.booleans())
def test_layer_norm_over_several_axes(seed, rows, shape, more, bias, flat):
    torch.manual_seed(seed)
    layer = nn.LayerNorm(shape, bias=bias)
    with torch.no_grad():
        layer.weight.normal_()
    before = (2,) * more

    class Flat(nn.Module):
        """[examples x positions, ...], as some models have it inside."""

        def __init__(self):
            super().__init__()
            self.layer = layer

        def forward(self, x):
            y = self.layer(x.flatten(0, more))
            return y.unflatten(0, x.shape[: more + 1])

    agree(Flat() if flat else layer, lambda n: torch.randn(n, *before, *shape), rows)


@few
@given(
    seeds, rows, st.integers(0, 3), st.sampled_from(["group", "rectified", "instance", "rms"]),
    st.sampled_from(["none", "weight", "bias"]),
)  # fmt: skip
def test_other_normalisations(seed, rows, axes, kind, fixed):
    torch.manual_seed(seed)
    if kind == "instance":
        axes = max(axes, 1)
        layer = {1: nn.InstanceNorm1d, 2: nn.InstanceNorm2d, 3: nn.InstanceNorm3d}[axes](4, affine=True)
    else:
        makes = {"group": lambda: nn.GroupNorm(2, 4), "rectified": lambda: RectifiedGroupNorm(2, 4)}
        layer = makes.get(kind, lambda: nn.RMSNorm((4,) + (3,) * axes))()
    for p in layer.parameters():
        nn.init.normal_(p)
    agree(Twice(frozen(layer, fixed), 2), lambda n: torch.randn(n, 4, *(3,) * axes), rows)


class Attending(nn.Module):
    def __init__(self, alike: str, first: bool, masked: str, weights: bool, **options: Any) -> None:
        super().__init__()
        self.attend = nn.MultiheadAttention(8, 2, batch_first=first, **options)
        self.alike, self.first, self.masked, self.weights = alike, first, masked, weights

    def forward(self, x: torch.Tensor, y: torch.Tensor, z: torch.Tensor) -> Any:
        q, k, v = {"all": (x, x, x), "key and value": (x, y, y), "none": (x, y, z)}[self.alike]
        masks: dict[str, Any] = {}
        if self.masked == "padding":
            masks["key_padding_mask"] = torch.zeros(k.shape[:2], dtype=torch.bool).index_fill(1, torch.tensor(0), True)
        if self.masked in ("bool", "both"):
            masks["attn_mask"] = torch.ones(q.shape[1], k.shape[1]).triu(1).bool()
        if self.masked in ("float", "both"):
            masks["attn_mask"] = torch.linspace(-1, 1, q.shape[1] * k.shape[1]).view(q.shape[1], k.shape[1])
        if self.masked == "both":
            masks["key_padding_mask"] = torch.linspace(-1, 1, k.shape[1]).expand(k.shape[:2])
        if self.masked == "each":
            masks["attn_mask"] = (
                torch.linspace(-1, 1, q.shape[1] * k.shape[1]).view(q.shape[1], k.shape[1]).repeat(2 * len(x), 1, 1)
            )
        if not self.first:
            made = {id(t): t.transpose(0, 1) for t in (q, k, v)}
            q, k, v = (made[id(t)] for t in (q, k, v))
        out, weights = self.attend(q, k, v, need_weights=self.weights, **masks)
        return [out if self.first else out.transpose(0, 1)] + ([weights] if self.weights else [])


@few
@given(
    seeds, rows, st.sampled_from(["all", "key and value", "none"]), st.booleans(),
    st.sampled_from(["", "padding", "bool", "float", "both", "each"]), st.booleans(), st.booleans(), st.booleans(),
    st.booleans(), st.booleans(), st.sampled_from(["none", "in_proj_weight", "bias", "out_proj", "in_proj"]),
)  # fmt: skip
def test_attention(seed, rows, alike, first, masked, weights, bias, more_keys, zero, widths, fixed):
    torch.manual_seed(seed)
    options = {"bias": bias, "add_bias_kv": more_keys, "add_zero_attn": zero}
    widths = widths and alike == "none"
    if widths:
        options |= {"kdim": 5, "vdim": 3}
    model = frozen(Attending(alike, first, masked, weights, **options), fixed)
    for p in model.parameters():
        if p.ndim == 1:
            nn.init.normal_(p)

    def make(n):
        return torch.randn(n, 4, 8), torch.randn(n, 5, 5 if widths else 8), torch.randn(n, 5, 3 if widths else 8)

    assert copies(agree(model, make, rows)) == []


@few
@given(
    seeds, rows, st.sampled_from(["LSTM", "GRU", "RNN", "relu"]), st.integers(1, 2), st.booleans(), st.booleans(),
    st.booleans(), st.booleans(), st.sampled_from(["none", "weight_ih", "weight_hh", "bias"]), st.integers(1, 6), st.booleans(),
)  # fmt: skip
@pytest.mark.filterwarnings("ignore:LSTM with projections")
def test_recurrent(seed, rows, kind, layers, both_ways, first, bias, short, fixed, length, begins):
    torch.manual_seed(seed)
    options = {"num_layers": layers, "bidirectional": both_ways, "batch_first": first, "bias": bias}
    options |= {"proj_size": 2} if short and kind == "LSTM" else {}
    options |= {"nonlinearity": "relu"} if kind == "relu" else {}
    layer = frozen(getattr(nn, kind if kind != "relu" else "RNN")(3, 4, **options), fixed)

    class Reads(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = layer

        def forward(self, x, h, c):
            x = x if first else x.transpose(0, 1)
            state = [s.transpose(0, 1).contiguous() for s in (h, c)]
            given = (tuple(state) if kind == "LSTM" else state[0],) if begins else ()
            y, end = self.layer(x, *given)
            ends = end if isinstance(end, tuple) else (end,)
            return [y if first else y.transpose(0, 1), *(s.transpose(0, 1) for s in ends)]

    count, width = layers * (1 + both_ways), options.get("proj_size", 4)
    agree(Reads(), lambda n: (torch.randn(n, length, 3), torch.randn(n, count, width), torch.randn(n, count, 4)), rows)


class Tied(nn.Module):
    def __init__(self, bias: bool, padding: int | None, uses: int) -> None:
        super().__init__()
        self.table = nn.Embedding(7, 4, padding_idx=padding)
        self.middle = nn.Linear(4, 4)
        self.head = nn.Linear(4, 7, bias=bias)
        self.head.weight, self.uses = self.table.weight, uses

    def forward(self, x):
        h = self.table(x)
        for _ in range(self.uses - 1):
            h = h + self.table((x + 1) % 7)
        return self.head(torch.tanh(self.middle(h)))


@few
@given(seeds, rows, st.booleans(), st.sampled_from([None, 0]), st.integers(1, 3), st.integers(1, 6))
def test_a_head_tied_to_its_table(seed, rows, bias, padding, uses, length):
    torch.manual_seed(seed)
    agree(Tied(bias, padding, uses), lambda n: torch.randint(7, (n, length)), rows)


@pytest.mark.parametrize("kind", ["LSTMCell", "GRUCell", "RNNCell"])
@pytest.mark.parametrize("bias", [True, False])
def test_a_cell_used_position_by_position(kind, bias):
    torch.manual_seed(0)

    class Loop(nn.Module):
        def __init__(self):
            super().__init__()
            self.cell = getattr(nn, kind)(3, 4, bias=bias)

        def forward(self, x):
            state = None
            for t in range(x.shape[1]):
                state = self.cell(x[:, t], state)
            return list(state) if isinstance(state, tuple) else state

    for rows in (1, 2):
        agree(Loop(), lambda n: torch.randn(n, 5, 3), rows)
