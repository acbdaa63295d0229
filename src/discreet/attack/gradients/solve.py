"""The first layers of a ReLU convolutional network, solved for the images by Gauss-Newton.

Known are the gradient at the output of the last of these layers, which of its outputs are on, and their values. The equations:
outputs that are on have their values, outputs that are off are not positive, and the weight gradients of all layers but the
first are those that were sent (the first one's jumps whenever a neuron switches, which stalls the search).
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from discreet.attack.gradients.network import Network, certified
from discreet.attack.gradients.update import Update

if TYPE_CHECKING:
    from discreet.attack.gradients.convolutions import Layer

_State = tuple[list[Tensor], Tensor, list[Tensor]]  # which neurons are on, which outputs count, the gradients
ROUNDS, INNER = 25, 120  # Gauss-Newton steps, conjugate-gradient steps of each
STARTS = 3


@dataclass(frozen=True, slots=True)
class Rest:
    """Which outputs are on, the gradient there and their values; `sure` are the outputs of which that is known."""

    on: Tensor
    delta: Tensor
    value: Tensor
    sure: Tensor | None


def solved(
    network: Network, update: Update, labels: Tensor, layers: Sequence[Layer], rest: Rest, *, seconds: float
) -> Tensor:  # fmt: skip
    """The images with the least residual over a few starts; the search ends where one is certified."""
    begin, best = time.process_time(), (float("inf"), torch.empty(0))
    for start in range(STARTS):
        problem = _Problem(layers, rest)
        first = torch.full((len(rest.on), *layers[0].inside), 0.5)
        image = problem.descend(first, smoothing=0.03 if start else 0.0, rounds=ROUNDS + (15 if start else 0))
        for _ in range(3 if start else 1):
            residual = network.residual(image.double(), labels, update)
            if residual < best[0]:
                best = residual, image
            if certified(best[0], update) or time.process_time() - begin > seconds:
                break
            image = problem.descend(image, damping=1e-4, gradients=False)
            again = _Problem(layers, _switched(network, labels, layers, image, rest))
            image = again.descend(image, damping=1e-4)
        residual = network.residual(image.double(), labels, update)
        if residual < best[0]:
            best = residual, image
        if certified(best[0], update) or time.process_time() - begin > seconds:
            break
    return best[1].double()


def _switched(network: Network, labels: Tensor, layers: Sequence[Layer], image: Tensor, rest: Rest) -> Rest:
    """What is known of the last of these layers, with the neurons that are on for this image."""
    convolutions = [module for module in network.model.modules() if isinstance(module, nn.Conv2d)]
    kept: list[Tensor] = []
    hook = convolutions[len(layers) - 1].register_forward_hook(lambda module, inputs, output: kept.append(output))
    try:
        value = network.loss(network.outputs(image.to(network.dtype)), labels).mean()
        (delta,) = torch.autograd.grad(value, kept)
    finally:
        hook.remove()
    output = kept[0].detach()
    on = (output > 0).double()
    if rest.sure is None:
        return Rest(rest.on, delta.double(), rest.value, None)
    return Rest(on, delta.double(), torch.where(rest.on > 0, rest.value, output.double()) * on, None)


class _Problem:
    """The equations in float32, their linearisation at an image with the neurons held, and its adjoint."""

    def __init__(self, layers: Sequence[Layer], rest: Rest) -> None:
        self.layers, self.last = layers, len(layers) - 1
        self.on, self.value, self.delta = rest.on.float(), rest.value.float(), rest.delta.float()
        self.sure = torch.ones_like(self.on) if rest.sure is None else rest.sure.float()
        self.size = float(self.value.norm()) or 1.0
        self.sizes = [float(layer.gradient.norm()) or 1.0 for layer in layers]
        self.sent = [(layer.gradient / size).float() for layer, size in zip(layers, self.sizes)]
        self.gradients, self.smoothing = rest.sure is None, 0.0

    def residuals(self, image: Tensor) -> tuple[list[Tensor], _State]:
        inputs, switches = [image], []
        for layer in self.layers[:-1]:
            output = layer.forward(inputs[-1])
            switches.append((output > 0).float())
            inputs.append(output * switches[-1])
        output = self.layers[-1].forward(inputs[-1])
        chosen = self.on + (self.sure - self.on).clamp(min=0.0) * (output > 0)
        deltas = [self.delta]
        for index in range(self.last, 0, -1):
            deltas.insert(0, self.layers[index].backward(deltas[0]) * switches[index - 1])
        parts = [chosen * (output - self.value) / self.size]
        if self.gradients:
            parts += [
                self.layers[index].weight_gradient(inputs[index], deltas[index]) / self.sizes[index] - self.sent[index]
                for index in range(1, self.last + 1)
            ]
        return [*parts, *self._rough(image)], (switches, chosen, deltas)

    def linear(self, direction: Tensor, state: _State) -> list[Tensor]:
        switches, chosen, deltas = state
        inputs = [direction]
        for layer, switch in zip(self.layers[:-1], switches):
            inputs.append(layer.forward(inputs[-1], biased=False) * switch)
        parts = [chosen * self.layers[-1].forward(inputs[-1], biased=False) / self.size]
        if self.gradients:
            parts += [
                self.layers[index].weight_gradient(inputs[index], deltas[index]) / self.sizes[index]
                for index in range(1, self.last + 1)
            ]
        return [*parts, *self._rough(direction)]

    def _rough(self, image: Tensor) -> list[Tensor]:
        if not self.smoothing:
            return []
        return [self.smoothing * (image[..., 1:] - image[..., :-1]), self.smoothing * (image[..., 1:, :] - image[..., :-1, :])]

    def adjoint(self, parts: list[Tensor], state: _State, like: Tensor) -> Tensor:
        direction = torch.zeros_like(like).requires_grad_()
        linear = self.linear(direction, state)
        return torch.autograd.grad(linear, direction, parts)[0]

    def descend(
        self, image: Tensor, *, damping: float = 1e-2, rounds: int = ROUNDS, smoothing: float = 0.0,
        gradients: bool | None = None,
    ) -> Tensor:  # fmt: skip
        """Damped Gauss-Newton; pixels stay in [0, 1], and the smoothing fades out."""
        kept = self.gradients
        self.gradients = kept if gradients is None else gradients
        self.smoothing = smoothing
        parts, state = self.residuals(image)
        value, failures = _squares(parts), 0
        for turn in range(rounds):
            if smoothing:
                self.smoothing = smoothing * 0.6**turn if turn < 16 else 0.0
                parts, state = self.residuals(image)
                value = _squares(parts)
            step = self._step(parts, state, image, damping * value)
            for length in (1.0, 0.5, 0.25, 0.1, 0.03):
                moved = (image + length * step).clamp(0.0, 1.0)
                new_parts, new_state = self.residuals(moved)
                new = _squares(new_parts)
                if new < value:
                    break
            else:
                damping, failures = damping * 10.0, failures + 1
                if failures > 2 and not self.smoothing:
                    break
                continue
            gained = (value - new) / value
            image, parts, state, value = moved, new_parts, new_state, new
            damping = max(damping * (0.3 if length == 1.0 else 1.0), 1e-6)
            if value < 1e-11 or (gained < 1e-3 and not self.smoothing):
                break
        self.gradients = kept
        return image

    def _step(self, parts: list[Tensor], state: _State, image: Tensor, damping: float) -> Tensor:
        """Conjugate gradients on the damped normal equations."""
        left = -self.adjoint(parts, state, image)
        step, direction = torch.zeros_like(image), left.clone()
        size = first = float((left**2).sum())
        for _ in range(INNER):
            if size <= 1e-6 * first or first == 0.0:
                break
            with torch.no_grad():
                made = self.linear(direction, state)
            curved = self.adjoint(made, state, image) + damping * direction
            length = size / float((direction * curved).sum())
            step, left = step + length * direction, left - length * curved
            new = float((left**2).sum())
            direction, size = left + (new / size) * direction, new
        return step


def _squares(parts: list[Tensor]) -> float:
    return float(sum((part.double() ** 2).sum() for part in parts))
