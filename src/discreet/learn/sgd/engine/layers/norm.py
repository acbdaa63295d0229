"""Normalisations with a scale and a shift per channel: their gradients are small, so each unit's is written out."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.modules.instancenorm import _InstanceNorm

from discreet.errors import InvalidValue
from discreet.learn.sgd.engine.tape import Forward, Record, Tape


class _Scale(torch.autograd.Function):
    """y = x * weight + bias, the channels along `axis` on."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None, record: ScaleRecord) -> Tensor:
        shape = record.spread
        ctx.record = record
        ctx.save_for_backward(x, weight)
        y = x * weight.view(shape)
        return (y if bias is None else y.add_(bias.view(shape))).to(x.dtype)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, None, None, None]:
        ctx.record.gradient = gradient
        ctx.record.x, weight = ctx.saved_tensors
        return (gradient * weight.view(ctx.record.spread) if ctx.needs_input_grad[0] else None), None, None, None


class ScaleRecord(Record):
    """A scale and a shift of shape `spread` (1 where they are repeated) on activations [examples, ...]."""

    x: Tensor
    gradient: Tensor

    def __init__(self, tape: Tape, weight: Tensor | None, bias: Tensor | None, spread: tuple[int, ...]) -> None:
        self.tape, self.weight, self.bias, self.spread = tape, weight, bias, spread
        self.parameters = [p for p in (weight, bias) if p is not None]
        self._known: dict[Tensor, Tensor] = {}

    def instantiate(self) -> dict[Tensor, Tensor]:
        if not self._known:
            g = self.gradient
            if self.weight is not None:
                self._known[self.weight] = self._summed(g * self.x, self.weight)
            if self.bias is not None:
                self._known[self.bias] = self._summed(g, self.bias)
        return self._known

    def _summed(self, g: Tensor, like: Tensor) -> Tensor:
        shape = (1,) * (g.ndim - len(self.spread)) + self.spread
        repeated = [i for i in range(1, g.ndim) if shape[i] == 1]
        each = g.sum(repeated, dtype=torch.float32) if repeated else g.float()
        return each.reshape(self.tape.units, -1, *like.shape).sum(1)


def scaled(tape: Tape, x: Tensor, weight: Tensor, bias: Tensor | None, spread: tuple[int, ...]) -> Tensor:
    moving, shift = (p if p is not None and p.requires_grad else None for p in (weight, bias))
    record = ScaleRecord(tape, moving, shift, spread)
    tape.add(record)
    return _Scale.apply(x, weight, bias, record)


def layer_norm(module: nn.Module, tape: Tape) -> Callable[..., Tensor]:
    assert isinstance(module, nn.LayerNorm)
    weight, bias, shape = module.weight, module.bias, tuple(module.normalized_shape)
    return lambda x: scaled(tape, F.layer_norm(tape.batched(module, x), shape, eps=module.eps), weight, bias, shape)


def rms_norm(module: nn.Module, tape: Tape) -> Callable[..., Tensor]:
    assert isinstance(module, nn.RMSNorm)
    weight, shape = module.weight, tuple(module.normalized_shape)
    return lambda x: scaled(tape, F.rms_norm(tape.batched(module, x), shape, eps=module.eps), weight, None, shape)


def group_norm(module: nn.Module, tape: Tape) -> Callable[..., Tensor]:
    assert isinstance(module, nn.GroupNorm)

    def forward(x: Tensor) -> Tensor:
        spread = (module.num_channels,) + (1,) * (x.ndim - 2)
        plain = F.group_norm(x, module.num_groups, eps=module.eps)
        return scaled(tape, plain, module.weight, module.bias, spread)

    return forward


def instance_norm(module: nn.Module, tape: Tape) -> Callable[..., Tensor]:
    assert isinstance(module, _InstanceNorm)

    def forward(x: Tensor) -> Tensor:
        module._check_input_dim(x)
        if x.ndim == module._get_no_batch_dim():
            raise InvalidValue(
                f"{type(module).__name__} was given {tuple(x.shape)}, which is one example; give it [examples, channels, …]."
            )
        spread = (module.num_features,) + (1,) * (x.ndim - 2)
        own = module.training or not module.track_running_stats
        plain = F.instance_norm(x, module.running_mean, module.running_var, None, None, own, module.momentum or 0.0, module.eps)
        return scaled(tape, plain, module.weight, module.bias, spread)

    return forward


LAYERS: dict[Any, Forward] = {
    nn.LayerNorm.forward: layer_norm, nn.RMSNorm.forward: rms_norm, nn.GroupNorm.forward: group_norm,
    nn.InstanceNorm2d.forward: instance_norm,  # that of one, two and three axes
}  # fmt: skip
