"""The proof is sound: whatever is proven of a function of rows holds of its numbers, over generated chains of operations.

Two rows of a batch are changed, or left out; where the proof says that rows are independent, the losses of the others and each
row's own gradient must be, up to rounding, what they were. A rule that claims too much fails here.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import nn

from discreet.learn.sgd.proof import NotProven, traced

torch.set_num_threads(1)
T, D = 3, 4  # positions and width of a row


def _moves():
    """Operations on a tensor whose first axis may or may not be that of the examples any more; none knows the batch size."""
    axis = st.integers(0, 2)
    pair = st.tuples(axis, axis)
    return st.one_of(
        pair.map(lambda p: (f"transpose{p}", lambda h: h.transpose(p[0] % h.ndim, p[1] % h.ndim))),
        axis.map(lambda a: (f"flatten{a}", lambda h: h.flatten(a % h.ndim, min(a % h.ndim + 1, h.ndim - 1)))),
        axis.map(lambda a: (f"softmax{a}", lambda h: h.softmax(a % h.ndim))),
        axis.map(lambda a: (f"mean{a}", lambda h: h - h.mean(a % h.ndim, keepdim=True))),
        axis.map(lambda a: (f"cumsum{a}", lambda h: h.cumsum(a % h.ndim))),
        axis.map(lambda a: (f"flip{a}", lambda h: h + h.flip(a % h.ndim))),
        axis.map(lambda a: (f"sort{a}", lambda h: h.sort(a % h.ndim)[0])),
        axis.map(lambda a: (f"roll{a}", lambda h: h.roll(1, a % h.ndim))),
        axis.map(lambda a: (f"cat{a}", lambda h: torch.cat([h, 2 * h], a % h.ndim))),
        axis.map(lambda a: (f"chunk{a}", lambda h: h.chunk(2, a % h.ndim)[0])),
        axis.map(lambda a: (f"stack{a}", lambda h: torch.stack([h, h.tanh()], a % (h.ndim + 1)))),
        axis.map(lambda a: (f"norm{a}", lambda h: nn.functional.normalize(h, dim=a % h.ndim))),
        axis.map(lambda a: (f"sum{a}", lambda h: h + 0.1 * h.sum(a % h.ndim, keepdim=True))),
        axis.map(lambda a: (f"index{a}", lambda h: h.index_select(a % h.ndim, torch.tensor([1, 0])))),
        axis.map(lambda a: (f"repeat{a}", lambda h: h.repeat_interleave(2, a % h.ndim))),
        st.just(("reshape", lambda h: h.reshape(-1, 2))),
        st.just(("reshape3", lambda h: h.reshape(-1, 2, 2))),
        st.just(("unflatten", lambda h: h.unflatten(0, (-1, 2)))),
        axis.map(lambda a: (f"gather{a}", lambda h: h.gather(a % h.ndim, h.argsort(a % h.ndim)))),
        axis.map(lambda a: (f"scatter{a}", lambda h: h.scatter_add(a % h.ndim, h.argsort(a % h.ndim), h))),
        axis.map(lambda a: (f"unfold{a}", lambda h: h.unfold(a % h.ndim, 2, 1).flatten(-2))),
        axis.map(lambda a: (f"most{a}", lambda h: h - h.amax(a % h.ndim, keepdim=True))),
        axis.map(lambda a: (f"top{a}", lambda h: h.topk(2, a % h.ndim)[0])),
        axis.map(lambda a: (f"deviation{a}", lambda h: h / (1 + h.std(a % h.ndim, keepdim=True)))),
        axis.map(lambda a: (f"difference{a}", lambda h: h.diff(dim=a % h.ndim))),
        axis.map(lambda a: (f"narrow{a}", lambda h: h.narrow(a % h.ndim, 0, 2))),
        axis.map(lambda a: (f"split{a}", lambda h: torch.cat(h.split(2, a % h.ndim)[::-1], a % h.ndim))),
        axis.map(lambda a: (f"fourier{a}", lambda h: torch.fft.rfft(h, dim=a % h.ndim).abs())),
        axis.map(lambda a: (f"unbound{a}", lambda h: sum(h.unbind(a % h.ndim)))),
        st.just(("conv", lambda h: F.conv1d(h, torch.ones(2, h.shape[1], 2)))),
        st.just(("convolved by itself", lambda h: F.conv1d(h, h[:, :, :2]))),
        st.just(("pooled", lambda h: F.avg_pool1d(h, 2, 1) + F.max_pool1d(h, 2, 1))),
        st.just(("adaptive", lambda h: F.adaptive_avg_pool1d(h, 2))),
        st.just(("group_norm", lambda h: F.group_norm(h, 1))),
        st.just(("instance_norm", lambda h: F.instance_norm(h))),
        st.just(("batch_norm", lambda h: F.batch_norm(h, None, None, training=True))),
        st.just(("fixed norm", lambda h: F.batch_norm(h, torch.zeros(h.shape[1]), torch.ones(h.shape[1])))),
        st.just(("attention", lambda h: F.scaled_dot_product_attention(*[h.unsqueeze(1)] * 3).squeeze(1))),
        st.just(("heads", lambda h: F.scaled_dot_product_attention(*[h.unsqueeze(0)] * 3).squeeze(0))),
        st.just(("padded", lambda h: F.pad(h, (1, 0, 0, 1)))),
        st.just(("outer", lambda h: h[..., None] * h[..., None, :])),
        st.just(("einsum", lambda h: torch.einsum("bij,bkj->bik", h, h))),
        st.just(("across", lambda h: torch.einsum("bij,kij->bk", h, h))),
        st.just(("distances", lambda h: torch.cdist(h, h))),
        st.just(("table", lambda h: F.embedding((h > 0).long(), torch.ones(2, 3)) * h[..., None])),
        st.just(("masked", lambda h: h.masked_fill(h > 1, 0.0))),
        st.just(("put", lambda h: torch.zeros(2, 1).index_put(((h > 0).long().flatten(),), h.reshape(-1, 1), True).sum() + h)),
        axis.map(lambda a: (f"renorm{a}", lambda h: h.renorm(2, a % h.ndim, 0.5))),
        st.just(("total", lambda h: h / (1 + h.detach().abs().sum()))),
        st.just(("tril", lambda h: h.tril())),
        st.just(("tanh", torch.tanh)),
        st.just(("detached", lambda h: h * h.detach().sigmoid())),
        st.just(("gram", lambda h: h @ h.mT if h.ndim > 1 else h)),
        st.just(("first", lambda h: h + h[:1])),
        st.just(("rows", lambda h: h.clone().index_put_((torch.arange(h.shape[0]),), h.tanh()))),
        st.just(("zeros", lambda h: torch.zeros_like(h).copy_(h))),
        st.just(("layer_norm", lambda h: nn.functional.layer_norm(h, h.shape[-1:]))),
    )  # fmt: skip


class Chain(nn.Module):
    def __init__(self, moves):
        super().__init__()
        torch.manual_seed(0)
        self.first, self.moves = nn.Linear(D, D), moves

    def forward(self, x):
        h = self.first(x)
        for _, move in self.moves:
            h = move(h)
        return h.tanh().reshape(x.shape[0], -1).square().sum(1) + h.reshape(x.shape[0], -1).sin().sum(1)


def each(model, x):
    """Losses of rows, and the gradients of each with all of them there."""
    losses = model(x)
    return losses.detach(), [torch.autograd.grad(it, list(model.parameters()), retain_graph=True) for it in losses]


@given(st.lists(_moves(), min_size=1, max_size=5))
@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
def test_what_is_proven_holds_of_the_numbers(moves):
    model, x = Chain(moves), torch.randn(6, T, D, generator=torch.Generator().manual_seed(1))
    try:
        traced(model, model, x[:2])
    except NotProven:
        return
    other = x.clone()
    other[4:] = 3 * other[4:].flip(2) - 1
    losses, gradients = each(model, x)
    for changed in (other, x[:4]):
        found, its = each(model, changed)
        assert torch.allclose(found[:4], losses[:4], rtol=1e-4, atol=1e-4), [name for name, _ in moves]
        for row in range(4):
            for one, two in zip(gradients[row], its[row]):
                assert torch.allclose(one, two, rtol=1e-3, atol=1e-4), [name for name, _ in moves]


def test_the_chains_are_neither_all_proven_nor_all_refused():
    """Each operation alone: those along the axis of the examples are not proven, those along another are."""
    proven = []
    for name, move in (
        ("softmax0", lambda h: h.softmax(0)), ("softmax1", lambda h: h.softmax(1)), ("cumsum0", lambda h: h.cumsum(0)),
        ("cumsum2", lambda h: h.cumsum(2)), ("flip0", lambda h: h + h.flip(0)), ("flip1", lambda h: h + h.flip(1)),
        ("cat0", lambda h: torch.cat([h, 2 * h]).chunk(2)[1]), ("turned", lambda h: h.transpose(0, 1).flatten(0, 1)),
        ("reshape", lambda h: h.reshape(-1, 2)), ("gram", lambda h: h @ h.mT), ("first", lambda h: h + h[:1]),
    ):  # fmt: skip
        model = Chain([(name, move)])
        try:
            traced(model, model, torch.randn(2, T, D))
            proven.append(name)
        except NotProven:
            continue
    assert proven == ["softmax1", "cumsum2", "flip1", "cat0", "reshape", "gram"]
