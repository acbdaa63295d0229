"""Normalisations with a scale and a shift per channel: their gradients are small, so each unit's is written out.

LayerNorm, GroupNorm and InstanceNorm run by torch's fused kernels, forward and backward. Others are a plain normalisation
followed by a scale.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.instancenorm import _InstanceNorm

from discreet.errors import InvalidValue
from discreet.learn import layers
from discreet.learn.layers import RectifiedGroupNorm
from discreet.learn.sgd.engine.tape import Forward, Record, Tape

_layer_back = torch.ops.aten.native_layer_norm_backward
_group_back = torch.ops.aten.native_group_norm_backward
MOST_GROUPS = 65_535  # of one call on a GPU


# ---- over the last axes ----------------------------------------------------------------------------------------------


class _Layer(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None, record: LayerRecord, shape: tuple[int, ...], eps: float
    ) -> Tensor:
        x = _wide(x).contiguous()
        y, mean, sharpness = torch.native_layer_norm(x, shape, weight, bias, eps)
        ctx.record, ctx.shape = record, shape
        ctx.save_for_backward(x, weight, bias, mean, sharpness)
        return y

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        x, weight, bias, mean, sharpness = ctx.saved_tensors
        ctx.record.keep(x, gradient, mean, sharpness)
        back: Tensor | None = None
        if ctx.needs_input_grad[0]:
            back = _layer_back(gradient.contiguous(), x, ctx.shape, mean, sharpness, weight, bias, [True, False, False])[0]
        return back, None, None, None, None, None


class Small(Record):
    """A scale and a shift, trained or not, whose gradients are small: every unit's is written out during the backward."""

    gradient: Tensor

    def __init__(self, tape: Tape, weight: Tensor | None, bias: Tensor | None) -> None:
        self.tape = tape
        self.weight, self.bias = (p if p is not None and p.requires_grad else None for p in (weight, bias))
        self.parameters = [p for p in (self.weight, self.bias) if p is not None]
        self._known: dict[Tensor, Tensor] = {}

    def instantiate(self) -> dict[Tensor, Tensor]:
        return self._known


class LayerRecord(Small):
    """Positions [units, positions, width], each normalised over its width by a mean and 1 / deviation (`sharpness`)."""

    def keep(self, x: Tensor, g: Tensor, mean: Tensor, sharpness: Tensor) -> None:
        """Each unit's gradient at once: it is small, and what it comes from need not wait for the end of the backward."""
        mean, sharpness = (t.reshape(self.tape.units, -1, 1) for t in (mean, sharpness))
        x, g = (t.reshape(*mean.shape[:2], -1) for t in (x, g))
        if self.weight is not None:
            met, sharp = torch.sub(x, mean).mul_(g).float(), sharpness.float()
            with torch.autocast(x.device.type, enabled=False):
                gradient = sharp * met if mean.shape[1] == 1 else sharp.mT @ met
            self.gradient = self._known[self.weight] = gradient.view(-1, *self.weight.shape)
        if self.bias is not None:
            self.gradient = self._known[self.bias] = g.sum(1, dtype=torch.float32).view(-1, *self.bias.shape)


def layer_norm(module: nn.Module, tape: Tape) -> Callable[..., Tensor]:
    assert isinstance(module, nn.LayerNorm)

    def forward(x: Tensor) -> Tensor:
        record = LayerRecord(tape, module.weight, module.bias)
        tape.add(record)
        shape = tuple(module.normalized_shape)
        return _Layer.apply(tape.batched(module, x), module.weight, module.bias, record, shape, module.eps)

    return forward


# ---- over groups of channels -----------------------------------------------------------------------------------------


def _per_example(
    g: Tensor, x: Tensor, mean: Tensor, sharpness: Tensor, weight: Tensor, mask: list[bool]
) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
    """The backward of a GroupNorm, where scale and shift have a gradient for every example, [examples, channels].

    The batch is treated as the groups of a single example, so the kernel for the input's gradient gives these too.
    """
    results: list[tuple[Tensor | None, ...]] = []
    most = _most(x, mean.shape[1])
    for part in range(0, len(x), most):
        piece = [t[part : part + most] for t in (g, x, mean, sharpness)]
        count, channels = piece[1].shape[:2]
        merged = [t.reshape(1, -1, *t.shape[2:]) for t in piece]
        sizes = (1, count * channels, x[0, 0].numel(), count * mean.shape[1])
        back, scale, shift = _group_back(*merged, weight.repeat(count), *sizes, mask)
        results.append((
            back.view(piece[1].shape) if mask[0] else None,
            scale.view(count, channels) if mask[1] else None,
            shift.view(count, channels) if mask[2] else None,
        ))  # fmt: skip
    parts = results[0] if len(results) == 1 else tuple(torch.cat(its) if its[0] is not None else None for its in zip(*results))
    return parts[0], parts[1], parts[2]


def _most(x: Tensor, groups: int) -> int:
    """Examples that one call can take."""
    return max(1, MOST_GROUPS // groups if x.is_cuda else len(x))


class _Group(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None, record: GroupRecord, groups: int, eps: float
    ) -> Tensor:
        x = _wide(x).contiguous()
        sizes = (x.shape[0], x.shape[1], x[0, 0].numel(), groups)
        y, mean, sharpness = torch.native_group_norm(x, weight, bias, *sizes, eps)
        ctx.record = record
        ctx.save_for_backward(x, weight, mean, sharpness)
        return y

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        x, weight, mean, sharpness = ctx.saved_tensors
        mask = [ctx.needs_input_grad[0], ctx.record.weight is not None, ctx.record.bias is not None]
        back, scale, shift = _per_example(gradient, x, mean, sharpness, weight, mask)
        ctx.record.keep(scale, shift)
        return back, None, None, None, None, None


class GroupRecord(Small):
    """A scale and a shift for every channel, whose gradients come for every example."""

    def keep(self, scale: Tensor | None, shift: Tensor | None) -> None:
        for parameter, gradient in ((self.weight, scale), (self.bias, shift)):
            if parameter is not None and gradient is not None:
                gradient = gradient.float()
                self._known[parameter] = gradient if self.tape.rows == 1 else gradient.unflatten(0, (-1, self.tape.rows)).sum(1)
                self.gradient = self._known[parameter]


def _grouped(tape: Tape, x: Tensor, weight: Tensor, bias: Tensor | None, groups: int, eps: float) -> Tensor:
    record = GroupRecord(tape, weight, bias)
    tape.add(record)
    return _Group.apply(x, weight, bias, record, groups, eps)


def group_norm(module: nn.Module, tape: Tape) -> Callable[..., Tensor]:
    assert isinstance(module, nn.GroupNorm)
    return lambda x: _grouped(tape, tape.batched(module, x), module.weight, module.bias, module.num_groups, module.eps)


def rectified(module: nn.Module, tape: Tape) -> Callable[..., Tensor]:
    assert isinstance(module, RectifiedGroupNorm)

    def forward(x: Tensor) -> Tensor:
        x = tape.batched(module, x)
        kernels = layers.fused_norm(module, x)
        if kernels is None:
            positive = F.relu(x).to(layers.wide(x))
            return _grouped(tape, positive, module.weight, module.bias, module.num_groups, module.eps).to(x.dtype)
        record = GroupRecord(tape, module.weight, module.bias)
        tape.add(record)
        return layers.rectified(x, module, kernels, record.keep)

    return forward


def instance_norm(module: nn.Module, tape: Tape) -> Callable[..., Tensor]:
    assert isinstance(module, _InstanceNorm)

    def forward(x: Tensor) -> Tensor:
        module._check_input_dim(x)
        if x.ndim == module._get_no_batch_dim():
            raise InvalidValue(
                f"{type(module).__name__} was given {tuple(x.shape)}, which is one example; give it [examples, channels, …]."
            )
        if not module.track_running_stats:
            return _grouped(tape, tape.whole(x), module.weight, module.bias, module.num_features, module.eps)
        plain = F.instance_norm(
            x, module.running_mean, module.running_var, None, None, module.training, module.momentum or 0.0, module.eps
        )
        return scaled(tape, plain, module.weight, module.bias, (module.num_features,) + (1,) * (x.ndim - 2))

    return forward


def _wide(x: Tensor) -> Tensor:
    """As autocast has it: on a GPU, norms are computed in float32."""
    return x.float() if x.is_cuda and torch.is_autocast_enabled("cuda") else x


# ---- a scale and a shift alone ---------------------------------------------------------------------------------------


class _Channels(torch.autograd.Function):
    """y = x * scale + shift per channel."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, scale: Tensor, shift: Tensor | None, record: GroupRecord) -> Tensor:
        shape = (-1,) + (1,) * (x.ndim - 2)
        scale = scale.to(x.dtype)  # all of one type: mixed ones take a slow way on a GPU
        ctx.record = record
        ctx.save_for_backward(x, scale)
        return x * scale.view(shape) if shift is None else torch.addcmul(shift.to(x.dtype).view(shape), x, scale.view(shape))

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, None, None, None]:
        """Gradients of scale and shift as those of a GroupNorm with mean 0 and deviation 1."""
        x, scale = ctx.saved_tensors
        kind = x.dtype if x.is_cuda else torch.float32
        zero, unit = (torch.full((x.shape[0], 1), value, dtype=kind, device=x.device) for value in (0.0, 1.0))
        _, *its = _per_example(gradient, x, zero, unit, unit.new_ones(x.shape[1]), [False, True, True])
        ctx.record.keep(*its)
        back = gradient * scale.view(-1, *(1,) * (x.ndim - 2)) if ctx.needs_input_grad[0] else None
        return back, None, None, None


def channels(x: Tensor, scale: Tensor, shift: Tensor | None, record: GroupRecord) -> Tensor:
    """x times a number and plus another for each channel; the record is not put on the tape."""
    return _Channels.apply(x, scale, shift, record)


def frozen_batch_norm(module: nn.Module, tape: Tape) -> Callable[..., Tensor]:
    """BatchNorm in eval mode mixes no examples: statistics from before, then a scale and a shift."""
    assert isinstance(module, _BatchNorm)

    def forward(x: Tensor) -> Tensor:
        if module.training or module.running_mean is None or module.running_var is None:
            raise InvalidValue(
                f"{type(module).__name__} takes its statistics from the batch, which mixes the examples. "
                "Freeze it with .eval(), or use nn.GroupNorm."
            )
        plain = F.batch_norm(x, module.running_mean, module.running_var, None, None, False, 0.0, module.eps)
        record = GroupRecord(tape, module.weight, module.bias)
        tape.add(record)
        return channels(tape.whole(plain), module.weight, module.bias, record)

    return forward


# ---- a scale behind something else -----------------------------------------------------------------------------------


class _Scale(torch.autograd.Function):
    """y = x * weight + bias, the channels along `axis` on."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None, record: ScaleRecord) -> Tensor:
        shape = record.spread
        ctx.record = record
        ctx.save_for_backward(x, weight)
        if bias is None:
            return (x * weight.view(shape)).to(x.dtype)
        return torch.addcmul(bias.view(shape), x, weight.view(shape)).to(x.dtype)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, None, None, None]:
        ctx.record.gradient = gradient
        ctx.record.x, weight = ctx.saved_tensors
        to_input = (gradient * weight.view(ctx.record.spread)).to(ctx.record.x.dtype) if ctx.needs_input_grad[0] else None
        return to_input, None, None, None


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
        reduced = g.sum(repeated, dtype=torch.float32) if repeated else g.float()
        return reduced.reshape(self.tape.units, -1, *like.shape).sum(1)


def scaled(tape: Tape, x: Tensor, weight: Tensor, bias: Tensor | None, spread: tuple[int, ...]) -> Tensor:
    moving, shift = (p if p is not None and p.requires_grad else None for p in (weight, bias))
    record = ScaleRecord(tape, moving, shift, spread)
    tape.add(record)
    return _Scale.apply(x, weight, bias, record)


def rms_norm(module: nn.Module, tape: Tape) -> Callable[..., Tensor]:
    assert isinstance(module, nn.RMSNorm)
    weight, shape = module.weight, tuple(module.normalized_shape)
    return lambda x: scaled(tape, F.rms_norm(tape.batched(module, x), shape, eps=module.eps), weight, None, shape)


LAYERS: dict[Any, Forward] = {
    nn.LayerNorm.forward: layer_norm, nn.RMSNorm.forward: rms_norm, nn.GroupNorm.forward: group_norm,
    RectifiedGroupNorm.forward: rectified,
    nn.InstanceNorm2d.forward: instance_norm, nn.BatchNorm2d.forward: frozen_batch_norm,  # of one, two and three axes
}  # fmt: skip
