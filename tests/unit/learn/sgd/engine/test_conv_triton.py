"""The fused kernel of convolutions against patches copied out, in float64.

Runs where there is a GPU, or with Triton's interpreter (TRITON_INTERPRET=1); needs no pytest there:
PYTHONPATH=src:tests python tests/unit/learn/sgd/engine/test_conv_triton.py
"""

from __future__ import annotations

import torch

from discreet.learn.sgd.engine.layers import patches
from discreet.learn.sgd.engine.layers.patches import Kernel
from triton_kernels import WHERE, marks

pytestmark = marks

# units, rows of each, height, width, kernel
CASES = (
    (3, 1, 8, 9, Kernel((16, 3, 3, 3), (1, 1), (1, 1), (1, 1), 1)),
    (2, 2, 9, 10, Kernel((40, 16, 3, 3), (2, 2), (1, 1), (1, 1), 1)),
    (2, 1, 7, 8, Kernel((24, 20, 3, 5), (1, 2), (0, 2), (2, 1), 1)),
    (2, 3, 7, 8, Kernel((24, 20, 2, 3), (1, 2), (0, 2), (2, 2), 1)),
    (5, 1, 8, 8, Kernel((8, 8, 1, 1), (2, 2), (0, 0), (1, 1), 1)),
    (3, 2, 6, 1, Kernel((8, 8, 3, 1), (1, 1), (1, 0), (1, 1), 1)),
    (11, 3, 4, 4, Kernel((20, 130, 3, 3), (1, 1), (1, 1), (1, 1), 1)),
)
LARGE = ((70, 1, 8, 8, Kernel((200, 64, 3, 3), (1, 1), (1, 1), (1, 1), 1)),)  # where it does not take minutes
NARROW = torch.bfloat16 if WHERE == "cuda" else torch.float16  # the interpreter has no products of bfloat16
NEAR = {torch.float32: 1e-5, NARROW: 5e-3}  # products of narrow numbers are exact; gradients that are kept are rounded
LAYOUTS = (torch.contiguous_format, torch.channels_last)


def far(found: torch.Tensor, truth: torch.Tensor) -> float:
    return float((found.double() - truth).abs().max() / truth.abs().max())


def agree(x: torch.Tensor, g: torch.Tensor, kernel: Kernel, rows: int, near: float) -> None:
    from discreet.learn.sgd.engine.layers import conv_triton

    along = torch.randn(kernel.size, device=WHERE)
    factors = torch.rand(len(x) // rows, device=WHERE)
    truth = patches.by_patches(x.double().contiguous(), g.double().contiguous(), kernel, rows)[0].each
    squares = truth.flatten(1).square().sum(1)
    for keep in (True, False):
        found, blocks = conv_triton.gradients(x, g, kernel, rows, keep)
        assert far(found, squares) < near
        assert len(blocks) == keep
        found, _ = conv_triton.measured(x, g, kernel, rows, keep, along)
        assert far(found[:, 0], truth.flatten(2).square().sum(2)) < near
        for one, wanted in ((found[:, 1], truth), (found[:, 2], truth * along)):  # these may cancel; of thousands the worst
            assert float((one - wanted.flatten(2).sum(2)).abs().max()) < 2 * near * float(wanted.flatten(2).norm(dim=2).max())
    each, part = conv_triton.gradients(x, g, kernel, rows, keep=True)[1][0]
    assert all(far(one, part(whole)) < near for one, whole in zip(each, truth))
    total = torch.einsum("n,npchw->pchw", factors.double(), truth)
    assert far(conv_triton.summed(x, g, factors, kernel, rows), total) < 1e-5


def test_norms_gradients_and_sums() -> None:
    torch.manual_seed(0)
    for units, rows, high, wide, kernel in CASES + LARGE * (WHERE == "cuda"):
        x = torch.randn(units * rows, kernel.size[1], high, wide, device=WHERE)
        weight = torch.randn(kernel.size, device=WHERE)
        g = torch.randn_like(torch.conv2d(x, weight, None, kernel.stride, kernel.padding, kernel.dilation))
        for dtype, near in NEAR.items():
            for layout in LAYOUTS:
                for other in LAYOUTS if dtype == NARROW else (layout,):
                    near_by = x.to(dtype, memory_format=layout), g.to(dtype, memory_format=other)
                    agree(*near_by, kernel, rows, near)
    print("the fused kernel agrees")


if __name__ == "__main__":
    torch.set_float32_matmul_precision("highest")
    torch.backends.cudnn.allow_tf32 = False
    test_norms_gradients_and_sums()
