"""Gradients of kernels in C: what torch gives, for any shape; text that computes something else is never used."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from discreet.learn.sgd.engine.layers import kernels
from discreet.learn.sgd.engine.layers.patches import Kernel, by_patches
from mutants import mutated

needs_a_compiler = pytest.mark.skipif(kernels.compiled() is None, reason="nothing was built here")
two = st.tuples(st.integers(1, 3), st.integers(1, 3))


@needs_a_compiler
@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 2**31), c=st.integers(1, 4), p=st.sampled_from([1, 7, 8, 15, 16, 17, 33, 48]), rows=st.integers(1, 3),
    high=st.integers(1, 5), wide=st.integers(1, 19), stride=two, padding=st.tuples(st.integers(0, 3), st.integers(0, 3)),
    more=two, keep=st.booleans(), threads=st.sampled_from([1, 1, 2]), last=st.booleans(),
)  # fmt: skip
def test_gradients_are_those_of_torch(seed, c, p, rows, high, wide, stride, padding, more, keep, threads, last):
    kernel = Kernel((p, c, high, wide), stride, padding, (1, 1), 1)
    draw = torch.Generator().manual_seed(seed)
    x = torch.randn(3 * rows, c, high + more[0], wide + more[1], generator=draw)
    weight = torch.randn(p, c, high, wide, generator=draw)
    g = torch.randn(torch.conv2d(x, weight, None, stride, padding).shape, generator=draw)
    if last:
        x, g = x.to(memory_format=torch.channels_last), g.to(memory_format=torch.channels_last)
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        squares, made = kernels.gradients(x, g, kernel, rows, keep)
    finally:
        torch.set_num_threads(before)
    right = by_patches(x, g, kernel, rows)[0].each
    assert torch.allclose(squares, right.flatten(1).square().sum(1), rtol=1e-5, atol=1e-6)
    assert len(made) == keep
    for each, part in made:
        whole = torch.zeros(p, c, high, wide)
        part(whole).add_(each[1])
        assert torch.allclose(whole, right[1], rtol=0, atol=1e-5 * float(right.abs().max()))


@needs_a_compiler
@pytest.mark.parametrize(
    ("right", "wrong"),
    [("s->sw", "1"), ("+ s.ph)", ")"), ("sum[r * wide + i] +=", "sum[r * wide + i] ="), ("square += made", "square = made")],
)
def test_text_that_computes_something_else_is_not_used(right, wrong, monkeypatch):
    assert mutated(kernels, "kernels.c", right, wrong, monkeypatch) is None


def test_without_a_compiler_there_is_none(monkeypatch):
    monkeypatch.setenv("DISCREET_NATIVE", "0")
    assert kernels.compiled.__wrapped__() is None


def test_other_types_and_other_convolutions_go_other_ways():
    x = torch.zeros(2, 4, 5, 5)
    plain = Kernel((4, 4, 3, 3), (1, 1), (0, 0), (1, 1), 1)
    assert kernels.fits(x, plain) == (kernels.compiled() is not None)
    assert not kernels.fits(x.double(), plain)
    assert not kernels.fits(x, Kernel((4, 2, 3, 3), (1, 1), (0, 0), (1, 1), 2))
    assert not kernels.fits(x, Kernel((4, 4, 3, 3), (1, 1), (0, 0), (2, 1), 1))
