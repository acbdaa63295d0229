"""Images from the gradient of a chain of convolutions and ReLUs that ends in a linear layer.

The linear layer gives its input (last.py), and with it the gradient at the last ReLU: a neuron is on where its activation
is positive. From there each convolution is peeled: its weight gradient is linear in its input, and the same linear system
serves all input channels. What that system leaves open (its null space) is fixed by the outputs that are on, whose values are
known. Where a layer has more unknowns than equations, the layers that are left are solved together for the image by
Gauss-Newton (solve.py). The result counts as exact only where its whole gradient is the update, up to rounding.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from discreet.attack.gradients import last
from discreet.attack.gradients.network import Network, chain
from discreet.attack.gradients.solve import Rest, solved
from discreet.attack.gradients.update import Update

RANK = 1e-4  # singular values below this share of the largest say nothing, at float32
CONDITION = 1e6  # of the system that fixes the null space
MOST = 4000  # unknowns of it


@dataclass(frozen=True, slots=True)
class Layer:
    """A convolution in float64, the gradient of its weight, and the shapes of its input and output."""

    weight: Tensor
    bias: Tensor
    gradient: Tensor
    stride: int
    padding: int
    kernel: int
    inside: tuple[int, int, int]
    outside: tuple[int, int, int]

    def forward(self, rows: Tensor, *, biased: bool = True) -> Tensor:
        bias = self.bias.to(rows) if biased else None
        return F.conv2d(rows, self.weight.to(rows), bias, self.stride, self.padding)

    def backward(self, delta: Tensor) -> Tensor:
        """The gradient at the input, given the gradient at the output."""
        extra = (self.inside[1] + 2 * self.padding - self.kernel) % self.stride
        return F.conv_transpose2d(delta, self.weight.to(delta), stride=self.stride, padding=self.padding, output_padding=extra)

    def weight_gradient(self, rows: Tensor, delta: Tensor) -> Tensor:
        windows = F.unfold(rows, self.kernel, padding=self.padding, stride=self.stride)
        return torch.einsum("bop,bkp->ok", delta.flatten(2), windows).reshape(self.weight.shape)


def applies(model: nn.Module, shape: Sequence[int]) -> bool:
    """Convolutions with square kernels and biases, a ReLU after each, then one linear layer."""
    if len(shape) != 3:
        return False
    layers = [layer for _, layer in chain(model) or [] if not isinstance(layer, (nn.Flatten, nn.Identity, nn.Dropout))]
    if len(layers) < 3 or len(layers) % 2 == 0 or not isinstance(layers[-1], nn.Linear) or layers[-1].bias is None:
        return False
    return shape[1] == shape[2] and all(
        isinstance(first, nn.Conv2d) and isinstance(then, nn.ReLU) and _plain(first)
        for first, then in zip(layers[0:-1:2], layers[1:-1:2])
    )


def _plain(layer: nn.Conv2d) -> bool:
    return (
        layer.bias is not None and layer.groups == 1 and layer.padding_mode == "zeros" and not isinstance(layer.padding, str)
        and len({*layer.kernel_size}) == len({*layer.stride}) == len({*layer.padding}) == 1 and set(layer.dilation) == {1}
    )  # fmt: skip


def layers_of(model: nn.Module, update: Update, shape: Sequence[int]) -> tuple[list[Layer], nn.Linear, Tensor, Tensor]:
    """The convolutions, the linear layer, and the gradients of its weight and bias."""
    names = chain(model) or []
    inside, layers = (int(shape[0]), int(shape[1]), int(shape[2])), []
    linear, weight, bias = None, None, None
    for name, layer in names:
        if isinstance(layer, nn.Conv2d):
            kernel, stride, padding = layer.kernel_size[0], layer.stride[0], int(layer.padding[0])
            size = (inside[1] + 2 * padding - kernel) // stride + 1
            outside = (layer.out_channels, size, size)
            assert layer.bias is not None
            layers.append(Layer(
                layer.weight.detach().double().cpu(), layer.bias.detach().double().cpu(), update.values[f"{name}.weight"],
                stride, padding, kernel, inside, outside,
            ))  # fmt: skip
            inside = outside
        elif isinstance(layer, nn.Linear):
            linear, weight, bias = layer, update.values[f"{name}.weight"], update.values[f"{name}.bias"]
    assert linear is not None
    assert weight is not None
    assert bias is not None
    return layers, linear, weight, bias


def images(
    network: Network, update: Update, labels: Tensor | None, shape: Sequence[int], batch: int, *, seconds: float
) -> tuple[Tensor, Tensor] | None:
    """The images and their labels, as well as they can be had; the certificate is the residual of their gradient."""
    layers, linear, weight, bias = layers_of(network.model, update, shape)
    split = last.rows_of(weight, bias, batch)
    if split is None:
        return None
    activation = split.inputs.reshape(batch, *layers[-1].outside)
    gradient = (split.deltas @ linear.weight.detach().double().cpu()).reshape(activation.shape)
    labels = split.deltas.argmin(1) if labels is None or batch > 1 else labels
    tolerance = max(3.0 * float(-activation.min()), 1e-6 * float(activation.abs().max()))
    for index in range(len(layers) - 1, -1, -1):
        layer, on = layers[index], (activation > tolerance).double()
        delta, output = gradient * on, activation * on
        peeled = _peel(layer, delta, output, on)
        if peeled is None:
            rest = Rest(on, delta, output, None)
            return solved(network, update, labels, layers[: index + 1], rest, seconds=seconds), labels
        inputs, sure = peeled
        if index == 0:
            if bool(sure.all()):
                return inputs, labels
            return solved(network, update, labels, layers[:1], Rest(on, delta, output, None), seconds=seconds), labels
        gradient = layer.backward(delta)
        tolerance = max(3.0 * float(-(inputs * sure).min()), 1e-7 * float(inputs.max()))
        activation = inputs.clamp(min=0.0)
        if not bool(sure.all()):
            on = (activation > tolerance).double() * sure
            rest = Rest(on, gradient * on, activation * on, sure)
            return solved(network, update, labels, layers[:index], rest, seconds=seconds), labels
    return None


def _peel(layer: Layer, delta: Tensor, output: Tensor, on: Tensor) -> tuple[Tensor, Tensor] | None:
    """The input of a convolution and which of its entries are determined; None where there are too few equations."""
    channels, height, width = layer.inside
    batch, places = len(delta), height * width
    covered = _covered(layer)
    system = torch.cat([_system(layer, one)[:, covered] for one in delta], 1)
    left, singular, right = torch.linalg.svd(system, full_matrices=True)
    rank = int((singular > RANK * singular[0]).sum())
    free = batch * int(covered.sum()) - rank
    if free * channels > int(on.sum()) or free * channels >= MOST:
        return None
    wide = torch.zeros(right.shape[0], batch, places, dtype=torch.float64)
    wide[:, :, covered] = right.reshape(len(right), batch, -1)
    wide = wide.flatten(1)
    wanted = layer.gradient.permute(0, 2, 3, 1).reshape(-1, channels)
    inputs = wide[:rank].T @ ((left[:, :rank].T @ wanted) / singular[:rank, None])
    sure = covered.double().repeat(batch)[:, None].expand(-1, channels)
    if free:
        inputs, open_share = _with_null_space(layer, inputs, wide[rank:], output, on)
        sure = sure * (open_share < 1e-12).double()
    return tuple(part.reshape(batch, height, width, channels).permute(0, 3, 1, 2) for part in (inputs, sure))  # type: ignore[return-value]


def _with_null_space(
    layer: Layer, inputs: Tensor, null: Tensor, output: Tensor, on: Tensor
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """Fix the null space by the outputs that are on; also how much of each entry stays undetermined."""
    channels, height, width = layer.inside
    batch = len(output)
    base = layer.forward(inputs.reshape(batch, height, width, channels).permute(0, 3, 1, 2))
    missing = (output - base)[on > 0]
    windows = F.unfold(null.reshape(-1, 1, height, width), layer.kernel, padding=layer.padding, stride=layer.stride)
    windows = windows.reshape(len(null), batch, *windows.shape[1:])
    weight = layer.weight.reshape(layer.outside[0], channels, -1)
    response = torch.einsum("kbtl,oit->bolik", windows, weight).reshape(-1, channels * len(null))[on.reshape(-1) > 0]
    _, singular, right = torch.linalg.svd(response, full_matrices=True)
    determined = int((singular > singular[0] / CONDITION).sum())
    basis, size = right[:determined], singular[:determined, None]
    shares = (basis.T @ ((basis @ (response.T @ missing[:, None])) / size**2)).reshape(channels, len(null))
    undetermined = right[determined:].reshape(-1, channels, len(null))
    open_share = torch.einsum("qik,kp->pi", undetermined**2, null**2)
    return inputs + null.T @ shares.T, open_share


def _covered(layer: Layer) -> Tensor:
    """Which entries of an input channel any window sees."""
    ones = torch.ones(1, 1, *layer.outside[1:], dtype=torch.float64)
    kernel = torch.ones(1, 1, layer.kernel, layer.kernel, dtype=torch.float64)
    extra = (layer.inside[1] + 2 * layer.padding - layer.kernel) % layer.stride
    return (F.conv_transpose2d(ones, kernel, stride=layer.stride, padding=layer.padding, output_padding=extra) > 0).reshape(-1)


def _system(layer: Layer, delta: Tensor) -> Tensor:
    """The matrix that takes one input channel to the weight gradient of that channel, the same for every channel."""
    _, height, width = layer.inside
    numbers = torch.arange(1, height * width + 1, dtype=torch.float64).reshape(1, 1, height, width)
    place = F.unfold(numbers, layer.kernel, padding=layer.padding, stride=layer.stride)[0].long()
    rows = delta.reshape(layer.outside[0], -1)
    matrix = torch.zeros(layer.outside[0], layer.kernel**2, height * width + 1, dtype=torch.float64)
    for offset in range(layer.kernel**2):
        matrix[:, offset].index_add_(1, place[offset], rows)
    return matrix[:, :, 1:].reshape(-1, height * width)
