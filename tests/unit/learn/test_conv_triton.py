"""The fused kernel of convolutions against patches copied out, in float64. Runs where there is a GPU; needs no pytest there."""

from __future__ import annotations

import torch

from discreet.learn.sgd.engine.layers import patches
from discreet.learn.sgd.engine.layers.patches import Kernel

try:
    import pytest

    pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
except ImportError:  # a GPU machine may have nothing but torch
    pass

# units, rows of each, height, width, kernel
CASES = (
    (3, 1, 8, 9, Kernel((16, 3, 3, 3), (1, 1), (1, 1), (1, 1), 1)),
    (2, 2, 9, 10, Kernel((40, 16, 3, 3), (2, 2), (1, 1), (1, 1), 1)),
    (2, 1, 7, 8, Kernel((24, 20, 3, 5), (1, 2), (0, 2), (2, 1), 1)),
    (5, 1, 8, 8, Kernel((8, 8, 1, 1), (2, 2), (0, 0), (1, 1), 1)),
    (40, 3, 4, 4, Kernel((20, 130, 3, 3), (1, 1), (1, 1), (1, 1), 1)),
    (70, 1, 8, 8, Kernel((200, 64, 3, 3), (1, 1), (1, 1), (1, 1), 1)),
)
NEAR = {torch.float32: 1e-5, torch.bfloat16: 5e-3}  # products of bfloat16 are exact; gradients that are kept are rounded to it


def far(found: torch.Tensor, truth: torch.Tensor) -> float:
    return float((found.double() - truth).abs().max() / truth.abs().max())


def test_norms_gradients_and_sums() -> None:
    from discreet.learn.sgd.engine.layers import conv_triton

    torch.manual_seed(0)
    for units, rows, high, wide, kernel in CASES:
        x = torch.randn(units * rows, kernel.size[1], high, wide, device="cuda")
        weight = torch.randn(kernel.size, device="cuda")
        given = torch.conv2d(x, weight, None, kernel.stride, kernel.padding, kernel.dilation)
        factors = torch.rand(units, device="cuda")
        for dtype, near in NEAR.items():
            x, g = x.to(dtype), torch.randn_like(given).to(dtype)
            truth = patches.by_patches(x.double(), g.double(), kernel, rows)[0].each
            squares = truth.flatten(1).square().sum(1)
            for keep in (True, False):
                found, blocks = conv_triton.gradients(x, g, kernel, rows, keep)
                assert far(found, squares) < near
                assert len(blocks) == keep
            each, part = conv_triton.gradients(x, g, kernel, rows, keep=True)[1][0]
            assert all(far(one, part(whole)) < near for one, whole in zip(each, truth))
            total = torch.einsum("n,npchw->pchw", factors.double(), truth)
            assert far(conv_triton.summed(x, g, factors, kernel, rows), total) < 1e-5
            x = x.float()
    print("the fused kernel agrees")


if __name__ == "__main__":
    torch.set_float32_matmul_precision("highest")
    torch.backends.cudnn.allow_tf32 = False
    test_norms_gradients_and_sums()
