"""The kernels of RectifiedGroupNorm and of shifts against torch's own operations, in float64.

Runs where there is a GPU, or with Triton's interpreter (TRITON_INTERPRET=1); needs no pytest there:
PYTHONPATH=src:tests python tests/unit/learn/sgd/engine/test_layers_triton.py
"""

from __future__ import annotations

from itertools import product
from unittest import mock

import torch
from torch import nn

from discreet.learn import layers
from discreet.learn.layers import RectifiedGroupNorm, StandardizedConv2d, rectified
from discreet.learn.sgd.clipping import Flat
from discreet.learn.sgd.engine import Engine
from discreet.learn.sgd.engine.layers import conv
from triton_kernels import WHERE, marks

pytestmark = marks

# images [examples, channels, height, width], groups
CASES = (
    ((3, 16, 32, 32), 16), ((2, 64, 32, 32), 16), ((3, 128, 16, 16), 16), ((3, 256, 8, 8), 16), ((2, 12, 5, 7), 3),
    ((2, 32, 1, 9), 2), ((2, 8, 6, 1), 8), ((4, 16, 1, 1), 2),
)  # fmt: skip
NEAR = {torch.float32: 1e-5, torch.bfloat16: 1e-2}  # what is returned is rounded to the type
LAYOUTS = (torch.contiguous_format, torch.channels_last)


def far(found: torch.Tensor, truth: torch.Tensor) -> float:
    return float((found.detach().double() - truth).abs().max() / truth.abs().max().clamp_min(1e-3))


def truth(x: torch.Tensor, g: torch.Tensor, layer: RectifiedGroupNorm) -> tuple[torch.Tensor, ...]:
    """The output, and the gradients of the input and, for every example, of scale and shift."""
    wide = x.double().requires_grad_()
    made = torch.nn.functional.group_norm(wide.relu(), layer.num_groups, eps=layer.eps)
    weight, bias = layer.weight.double()[:, None, None], layer.bias.double()[:, None, None]
    y = made * weight + bias
    (back,) = torch.autograd.grad(y, wide, g.double())
    return y.detach(), back, (made * g).sum((2, 3)).detach(), g.double().sum((2, 3))


def test_output_and_gradients() -> None:
    from discreet.learn import layers_triton

    torch.manual_seed(0)
    for shape, groups in CASES:
        layer = RectifiedGroupNorm(groups, shape[1], device=WHERE)
        torch.nn.init.normal_(layer.weight)
        torch.nn.init.normal_(layer.bias)
        for dtype, near in NEAR.items():
            for x_layout in LAYOUTS:
                for g_layout in LAYOUTS:
                    x = torch.randn(shape, device=WHERE).to(dtype, memory_format=x_layout).requires_grad_()
                    g = torch.randn(shape, device=WHERE).to(dtype, memory_format=g_layout)
                    kept: list[torch.Tensor] = []
                    y = rectified(x, layer, layers_triton, lambda *its, kept=kept: kept.extend(its))
                    (back,) = torch.autograd.grad(y, x, g)
                    assert y.dtype == back.dtype == dtype
                    assert y.stride() == back.stride() == x.stride()
                    wanted = truth(x.detach(), g, layer)
                    assert all(far(one, other) < near for one, other in zip((y, back, *kept), wanted))
                    assert all(far(one, other) < 1e-5 for one, other in zip(kept, wanted[2:]))
    print("the norm's kernels agree")


def test_shifts_in_place() -> None:
    from discreet.learn import layers_triton

    torch.manual_seed(0)
    for shape, dtype, layout in product(((3, 64, 32, 32), (2, 24, 7, 5), (5, 3, 1, 1)), NEAR, LAYOUTS):
        y, bias = torch.randn(shape, device=WHERE).to(dtype, memory_format=layout), torch.randn(shape[1], device=WHERE)
        wanted = (y.float() + bias[:, None, None]).to(dtype)
        assert layers_triton.shifted(y, bias) is y
        assert far(y, wanted.double()) < NEAR[dtype]


def test_a_unit_that_is_not_finite_says_so() -> None:
    from discreet.learn import layers_triton

    x = torch.randn(2, 16, 4, 4, device=WHERE)
    x[1, 3, 2, 2] = float("nan")
    layer = RectifiedGroupNorm(4, 16, device=WHERE)
    y = rectified(x, layer, layers_triton, lambda *its: None)
    assert bool(y[0].isfinite().all())
    assert bool(y[1, :4].isnan().all())


def network() -> nn.Module:
    torch.manual_seed(0)
    made = nn.Sequential(
        StandardizedConv2d(3, 16, 3, padding=1), RectifiedGroupNorm(4, 16), StandardizedConv2d(16, 16, 3, 2, 1),
        RectifiedGroupNorm(16, 16), StandardizedConv2d(16, 8, 1, 2, bias=False), nn.Flatten(), nn.Linear(32, 3),
    ).to(WHERE)  # fmt: skip
    with torch.no_grad():
        made[0].gain.normal_()
        made[2].gain[0] = 0.0
        made[2].weight[1] *= 1e-4  # too short to be made longer
    return made


def trained(fast: bool, rows: int = 0) -> torch.Tensor:
    """The gradient of a plain step, or the clipped sum of a private one over units of so many rows."""
    from discreet.learn import layers_triton

    torch.set_float32_matmul_precision("highest")  # TF32 keeps ten bits: what is compared is the kernels, not tensor cores
    torch.backends.cudnn.allow_tf32 = False
    torch.manual_seed(1)
    model = network()
    x = torch.randn(12, 3, 8, 8).to(WHERE, memory_format=torch.channels_last)
    there = mock.patch.object(layers, "_kernels", return_value=layers_triton if fast else None)
    with there, mock.patch.object(conv, "fits", return_value=fast):
        if not rows:
            model(x).square().sum().backward()
            return torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None])
        engine = Engine(model, rows)
        found = engine.buffer()
        with engine.recording(len(x)):
            engine.add(model(x).square().sum(1), Flat(0.3), found)
        return found


def test_networks_with_the_kernels_and_without() -> None:
    for rows in (0, 1, 3):
        for kept in (conv.KEPT, 0):
            with mock.patch.object(conv, "KEPT", kept):
                wanted = trained(False, rows)
                assert float((trained(True, rows) - wanted).norm() / wanted.norm()) < 1e-5


if __name__ == "__main__":
    test_networks_with_the_kernels_and_without()
    test_output_and_gradients()
    test_shifts_in_place()
    test_a_unit_that_is_not_finite_says_so()
