"""Whole batches, exactly, from a network that begins with a linear layer and a ReLU.

For that layer dL/dW = Dᵀ X: one column of D per row of the batch, and a neuron that was off for a row has a 0 there. From a
singular value decomposition Dᵀ = L Q with Q unknown. A direction q with (L q) = 0 on all neurons that were off for row i gives
that row's column, and r - 1 such neurons determine q, r being the rank (Dimitrov et al. 2024, SPEAR). What is added here:

- neurons are not drawn evenly but by how often they are off for rows of the public prior, since one that is rarely on is
  likely to be off for a row (about a hundred times fewer draws for a batch of 16);
- the gradient of the next linear layer is Eᵀ A with the activations A, which are 0 for the same neurons. A true q has a partner
  there with the same zeros, a chance one has not, so false directions are thrown away at once;
- the partner is the row's activation, so W x + b is known up to a scale where it is positive. With x in the row space of dL/dW,
  each row is recovered by itself, with a certificate of its own, before the others are found;
- the gradient of a row that was found is subtracted from the update, and the search goes on with a batch that is smaller.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from discreet.attack.gradients.network import Network, chain
from discreet.attack.gradients.update import Update

Array = NDArray[np.float64]
CHUNK = 1024  # draws of neurons at a time
SHARPNESS = (2.0, 3.0, 5.0)  # how strongly rarely active neurons are preferred, in turn
SPARE, FEW = 2, 4  # neurons that must be off beyond those drawn, once more than a few rows are left
REDUNDANT, FITTING, FALLING = 4, 1e-3, 1e-2  # of a row that is sure: spare equations, their error, the rank's distance
ALIKE = 1e-3  # relative distance under which two rows are one


@dataclass(slots=True)
class Found:
    """The rows that were recovered, their labels, and of which it is sure that they are rows.

    A row is sure where it explains more neurons than it has unknowns, by at least `REDUNDANT`, and subtracting its gradient
    takes just one off the rank, both to far below what chance allows.
    """

    rows: list[Tensor] = field(default_factory=list)
    labels: list[int] = field(default_factory=list)
    sure: list[bool] = field(default_factory=list)
    draws: int = 0
    seconds: float = 0.0


def applies(model: nn.Module) -> bool:
    """Is this a chain that begins with a linear layer with a bias, a ReLU, and another linear layer?"""
    layers = [layer for _, layer in chain(model) or [] if not isinstance(layer, (nn.Flatten, nn.Identity, nn.Dropout))]
    return (
        len(layers) >= 3 and isinstance(layers[0], nn.Linear) and layers[0].bias is not None
        and isinstance(layers[1], nn.ReLU) and isinstance(layers[2], nn.Linear)
    )  # fmt: skip


def rows_of(
    network: Network, update: Update, batch: int, classes: int, prior: Tensor, *, seconds: float, seed: int,
    progress: Callable[[int, int], None] | None = None,
) -> Found:  # fmt: skip
    """The rows of the batch, as many as are found within the CPU seconds; `prior` are public rows of the same kind."""
    search = _Search(network, update, batch, classes, prior, seed)
    start = time.process_time()
    while len(search.found.rows) < batch and search.rank > 0 and time.process_time() - start < seconds:
        before = len(search.found.rows)
        search.draw()
        if progress is not None and len(search.found.rows) > before:
            progress(len(search.found.rows), batch)
    search.found.seconds = time.process_time() - start
    return search.found


class _Search:
    """What is left of the update, and the search for a direction of one more row in it."""

    def __init__(self, network: Network, update: Update, batch: int, classes: int, prior: Tensor, seed: int) -> None:
        linear = [layer for _, layer in chain(network.model) or [] if isinstance(layer, nn.Linear)]
        names = [name for name, layer in chain(network.model) or [] if isinstance(layer, nn.Linear)]
        self.first, self.second = (f"{name}.weight" for name in names[:2])
        self.weight, self.bias = linear[0].weight.detach().double().cpu(), linear[0].bias.detach().double().cpu()
        self.network, self.batch, self.classes, self.update = network, batch, classes, update
        self.left = {name: value.clone() for name, value in update.values.items()}
        self.random = np.random.default_rng(seed)
        with torch.no_grad():
            on = (prior.double().reshape(len(prior), -1) @ self.weight.T + self.bias > 0).double().mean(0).numpy()
        self.off = np.log(np.maximum(1.0 - on, 0.02))
        self.found, self.turn = Found(), 0
        self._decompose()

    def _decompose(self) -> None:
        """The column and row spaces of what is left."""
        gradient = self.left[self.first].numpy()
        scale = float(self.update.values[self.first].norm()) * self.update.rounding
        left, singular, right = np.linalg.svd(gradient, full_matrices=False)
        rank = int((singular > max(10.0 * scale, 1e-12 * singular[0])).sum())
        self.rank = min(rank, self.batch - len(self.found.rows))
        self.columns, self.space = left[:, : self.rank] * singular[: self.rank], right[: self.rank]
        norms = np.linalg.norm(self.columns, axis=1)
        self.live = np.flatnonzero(norms > 1e-3 * norms.max()) if norms.any() else np.zeros(0, np.int64)
        self.unit = self.columns[self.live] / norms[self.live, None]
        partner = np.linalg.svd(self.left[self.second].numpy(), full_matrices=False)[2][: self.rank].T[self.live]
        self.partner = partner
        self.mapped = self.weight.numpy()[self.live] @ self.space.T
        self.tested: set[bytes] = set()

    def draw(self) -> None:
        """One chunk of draws, and every row that they show."""
        if self.rank == 1:
            candidates = [~np.isin(np.arange(len(self.off)), self.live)]
        else:
            candidates = self._candidates()
        for off in candidates:
            row = self._row(off[self.live]) if self.rank else None
            if row is not None:
                self._peel(*row)

    def _candidates(self) -> list[NDArray[np.bool_]]:
        """Sets of neurons that are off together along some direction, the largest first."""
        rank, count = self.rank, len(self.live)
        spare = SPARE if rank > FEW else 0
        if count < rank + spare:
            self.rank = 0
            return []
        keys = self.off[self.live] * SHARPNESS[self.turn % len(SHARPNESS)] + self.random.gumbel(size=(CHUNK, count))
        self.turn += 1
        drawn = np.argpartition(-keys, rank - 1, axis=1)[:, : rank - 1]
        last = self.random.normal(size=(CHUNK, 1, rank))
        unit = np.zeros((rank, 1))
        unit[-1] = 1.0
        try:
            direction = np.linalg.solve(np.concatenate([self.unit[drawn], last], 1), np.broadcast_to(unit, (CHUNK, rank, 1)))
        except np.linalg.LinAlgError:
            return []
        direction = direction[..., 0] / np.linalg.norm(direction[..., 0], axis=1, keepdims=True)
        self.found.draws += CHUNK
        off = np.abs(direction @ self.unit.T) < self._zero
        counts = off.sum(1)
        fresh = []
        for index in np.argsort(-counts):
            if counts[index] < rank - 1 + spare:
                break
            key = off[index].tobytes()
            if key not in self.tested:
                self.tested.add(key)
                all_off = np.ones(len(self.off), bool)
                all_off[self.live] = off[index]
                fresh.append(all_off)
        return fresh

    @property
    def _zero(self) -> float:
        return max(1e-4, 100.0 * self.update.rounding)

    def _row(self, off: NDArray[np.bool_]) -> tuple[Tensor, bool] | None:
        """The row whose neurons are off in this set, where the next layer knows one and the first explains it; is it sure?"""
        activation = self._activation(off)
        if activation is None:
            return None
        on = ~off
        system = np.concatenate([self.mapped[on], -activation[on, None]], 1)
        bias = self.bias.numpy()[self.live]
        if on.sum() < self.rank + 1:
            return None
        solution = np.linalg.lstsq(system, -bias[on], rcond=None)[0]
        if solution[-1] <= 0:
            return None
        error = np.abs(system @ solution + bias[on]).max() / np.abs(system * solution).sum(1).max()
        row = torch.as_tensor(self.space.T @ solution[:-1])
        active = ((self.weight @ row + self.bias)[torch.as_tensor(self.live)] > 0).numpy()
        if error >= self._zero * 10 or (active == on).mean() <= 0.95:
            return None
        return row, bool(on.sum() > self.rank + REDUNDANT and error < FITTING)

    def _activation(self, off: NDArray[np.bool_]) -> Array | None:
        """The activations, up to a scale, of a row with exactly these neurons off; None where no row has."""
        if self.rank == 1:
            activation = self.partner[:, 0]
        else:
            sizes, directions = np.linalg.eigh(self.partner[off].T @ self.partner[off])
            if sizes[0] > self._zero**2 * sizes[-1]:
                return None
            activation = np.where(off, 0.0, self.partner @ directions[:, 0])
        return activation if activation.sum() >= 0 else -activation

    def _peel(self, row: Tensor, sure: bool) -> bool:
        """Subtract the row's own gradient, with the label that fits; False where none does, or the row is known."""
        if any(float((row - known).norm()) < ALIKE * float(known.norm()) for known in self.found.rows):
            return False
        best: tuple[float, int, dict[str, Tensor]] | None = None
        for label in range(self.classes):
            made = self.network.gradient(row[None].to(self.network.dtype), torch.tensor([label]))
            ours = {name: value.double() / self.batch for name, value in zip(self.network.names, made)}
            left = self._off_space(ours[self.first])
            if best is None or left < best[0]:
                best = left, label, ours
        assert best is not None
        if best[0] > 1e3 * self._zero:
            return False
        self.found.rows.append(row)
        self.found.labels.append(best[1])
        self.found.sure.append(sure and best[0] < FALLING)
        for name, value in best[2].items():
            self.left[name] -= value
        self._decompose()
        return True

    def _off_space(self, gradient: Tensor) -> float:
        """How far the rank is from falling by one when this gradient is subtracted: 1 - dᵀ G⁺ x, by Wedderburn's formula."""
        column = gradient.numpy()[self.live]
        left, singular, right = np.linalg.svd(column, full_matrices=False)
        if singular[0] == 0.0:
            return np.inf
        inverse = np.linalg.pinv(self.columns[self.live])  # G = columns @ space, so G⁺ = spaceᵀ columns⁺
        return float(abs(1.0 - singular[0] * (right[0] @ self.space.T) @ (inverse @ left[:, 0])))
