"""Clipped sums of every layer on a GPU, eager and replayed, against units one by one."""

from __future__ import annotations

import itertools

import torch
from tests.gpu.networks import DRAWING, PLAIN, made
from tests.gpu.tools import CLIP, apart, cases, exact_products, one_by_one, sums


@cases(PLAIN)
def test_sum_is_that_of_units_one_by_one(case: str) -> None:
    exact_products()
    model, x, y = made(PLAIN[case])
    seen, _ = sums(model, x, y)
    truth = one_by_one(model, x, y)
    assert all(apart(each, truth) < 2e-4 for each in seen), [apart(each, truth) for each in seen]


@cases(PLAIN)
def test_narrow_products_stay_near(case: str) -> None:
    """bfloat16 keeps 8 bits; what must not happen is a sum that is wrong by the whole of a unit."""
    model, x, y = made(PLAIN[case])
    seen, _ = sums(model, x, y, autocast=torch.bfloat16)
    truth = one_by_one(model, x, y)
    assert all(apart(each, truth) < 0.15 for each in seen), [apart(each, truth) for each in seen]


@cases(PLAIN)
def test_tf32_stays_near(case: str) -> None:
    model, x, y = made(PLAIN[case])
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = True
    try:
        seen, _ = sums(model, x, y)
    finally:
        exact_products()
    truth = one_by_one(model, x, y)
    assert all(apart(each, truth) < 0.02 for each in seen), [apart(each, truth) for each in seen]


@cases(DRAWING)
def test_models_that_draw_are_clipped_and_draw_anew(case: str) -> None:
    model, x, y = made(DRAWING[case])
    seen, _ = sums(model, x, y, steps=8)
    assert all(float(each.norm()) <= len(y) * CLIP * 1.001 and bool(torch.isfinite(each).all()) for each in seen)
    assert all(not torch.equal(one, other) for one, other in itertools.pairwise(seen))
