from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from discreet.errors import InvalidValue
from discreet.learn.sgd.stream import BLOCK, Stream

KEY = bytes(range(32))


def drawn(count: int, *, step: int = 0, offset: int = 0, scale: float = 1.0, key: bytes = KEY) -> torch.Tensor:
    return Stream(key).fill(torch.empty(count), step=step, offset=offset, scale=scale)


@given(st.lists(st.integers(0, 3 * BLOCK), max_size=6), st.integers(0, 2**40))
def test_any_split_gives_the_same_bits(cuts: list[int], step: int) -> None:
    whole = drawn(3 * BLOCK, step=step)
    edges = [0, *sorted(cuts), 3 * BLOCK]
    parts = [drawn(b - a, step=step, offset=a) for a, b in pairwise(edges)]
    assert torch.equal(torch.cat(parts), whole)


def test_neither_seed_nor_threads_reach_it() -> None:
    before, threads = drawn(1000), torch.get_num_threads()
    state = torch.random.get_rng_state()
    try:
        torch.manual_seed(7)
        torch.set_num_threads(1)
        assert torch.equal(drawn(1000), before)
    finally:
        torch.set_num_threads(threads)
        torch.random.set_rng_state(state)


def test_key_step_and_position_each_matter() -> None:
    base = drawn(1000)
    for other in (drawn(1000, step=1), drawn(1000, offset=1), drawn(1000, key=bytes(32))):
        assert (base == other).float().mean() < 0.01


def test_far_positions_and_late_steps() -> None:
    far = drawn(100, step=(1 << 48) - 1, offset=(1 << 53) - 101)
    assert torch.isfinite(far).all()
    assert torch.equal(drawn(90, step=(1 << 48) - 1, offset=(1 << 53) - 91), far[10:])


def test_scale_multiplies() -> None:
    assert torch.allclose(drawn(1000, scale=0.37), drawn(1000) * 0.37, rtol=1e-5)
    assert not drawn(10, scale=0.0).any()


def test_looks_normal() -> None:
    x = drawn(200_000).double().numpy()
    assert abs(x.mean()) < 0.012  # 5.4 standard deviations: false alarm below 1e-7
    assert abs(x.var() - 1) < 0.017
    assert np.isfinite(x).all()


@pytest.mark.parametrize("key", [b"short", bytes(33), "x" * 32, None])
def test_keys_of_another_kind_are_refused(key: object) -> None:
    with pytest.raises(InvalidValue, match="32 bytes"):
        Stream(key)  # type: ignore[arg-type]


@pytest.mark.parametrize("out", [torch.empty(4, dtype=torch.float64), torch.empty(2, 2), torch.empty(8)[::2]])
def test_tensors_of_another_kind_are_refused(out: torch.Tensor) -> None:
    with pytest.raises(InvalidValue, match="flat contiguous float32"):
        Stream(KEY).fill(out, step=0)


@pytest.mark.parametrize("arguments", [{"step": -1}, {"step": 1 << 48}, {"step": 0, "offset": -1}, {"step": 0, "scale": -1.0}])
def test_numbers_out_of_range_are_refused(arguments: dict[str, float]) -> None:
    with pytest.raises(InvalidValue):
        Stream(KEY).fill(torch.empty(4), **arguments)  # type: ignore[arg-type]
