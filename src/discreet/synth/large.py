"""The dual of an estimation on torch tensors: the same numbers as by numpy, for cliques of millions of cells, on CPU or GPU.

Everything is float64, as by numpy; sums are taken in another order, so results agree to rounding.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from discreet.core import check
from discreet.errors import InvalidValue, MissingExtra
from discreet.synth.dual import Problem
from discreet.synth.junction import Floats, JunctionTree, onto, spread
from discreet.synth.measure import Measurement


def ready(device: str) -> Any:
    """The torch device of that name; raises before anything is spent if it is missing or lacks float64.

    >>> ready("cpu").type
    'cpu'
    """
    try:
        import torch
    except ImportError:
        raise MissingExtra("torch", "torch", "Estimation on a device") from None
    try:
        torch_device = torch.device(device)
        torch.zeros(1, dtype=torch.float64, device=torch_device)
    except (RuntimeError, TypeError, AssertionError) as error:
        reason = str(error).splitlines()[0][:200]
        raise InvalidValue(f"device must be one that torch has here, with float64, such as cpu or cuda; got "
                           f"{check.shown(device)}: {reason}") from None  # fmt: skip
    return torch_device


class TensorProblem(Problem):
    """`dual.Problem` with its potentials on a device. Each evaluation transfers one number per measured cell in and out."""

    def __init__(
        self, tree: JunctionTree, start: Sequence[Floats], measurements: Sequence[Measurement], total: float, device: str
    ) -> None:  # fmt: skip
        import torch

        super().__init__(tree, start, measurements, total)
        self._torch, self._device = torch, ready(device)
        self._start = [self._tensor(potential) for potential in self.start]
        self._wanted = [self._tensor(wanted) for _, _, wanted, _, _ in self.parts]

    def at(self, z: Floats, strength: float) -> tuple[float, Floats, float, list[Any]]:
        self.evaluations += 1
        point = self._tensor(z)
        potentials = [potential.clone() for potential in self._start]
        for home, columns, wanted, weight, cells in self.parts:
            away = (weight / strength) * point[cells].reshape(wanted.shape)
            potentials[home] -= spread(away, columns, self.tree.cliques[home])
        conditionals, log_total = self._conditionals(potentials)
        beliefs = self.tree.beliefs(conditionals)
        residuals, inner = [], point.new_zeros(2)  # z . wanted and z . found, by their weights
        for (home, columns, _, weight, cells), wanted in zip(self.parts, self._wanted):
            marginal = onto(beliefs[home], self.tree.cliques[home], columns)
            residuals.append(weight * (marginal - wanted).reshape(-1))
            inner += weight * self._torch.stack([point[cells] @ wanted.reshape(-1), point[cells] @ marginal.reshape(-1)])
        residual = self._torch.cat(residuals)
        of_wanted, of_found = (float(part) for part in inner)
        fit = 0.5 * float(residual @ residual)
        divergence = self.log_start - log_total
        value = -strength * divergence + 0.5 * float(point @ point) + of_wanted
        gradient: Floats = (point - residual).cpu().numpy()
        return value, gradient, fit + strength * (divergence - of_found / strength), conditionals

    def plain(self, conditionals: Sequence[Any]) -> list[Floats]:
        return [table.cpu().numpy() for table in conditionals]

    def _tensor(self, array: Floats) -> Any:
        return self._torch.from_numpy(np.ascontiguousarray(array, np.float64)).to(self._device)

    def _conditionals(self, potentials: list[Any]) -> tuple[list[Any], float]:
        """As `JunctionTree.conditionals`; potentials are used up."""
        tree, torch = self.tree, self._torch
        log_total = 0.0
        for i in range(len(potentials) - 1, -1, -1):
            clique, separator = tree.cliques[i], tree.separators[i]
            axes = tuple(place for place, column in enumerate(clique) if column not in separator)
            top = potentials[i].amax(dim=axes, keepdim=True)
            top = torch.where(torch.isfinite(top), top, 0.0)
            conditional = potentials[i].sub_(top).exp_()
            total = conditional.sum(dim=axes, keepdim=True)
            conditional.div_(torch.where(total > 0, total, 1.0))
            message = total.log_() + top
            if tree.parents[i] < 0:
                log_total += float(message.reshape(-1)[0])
            else:
                potentials[tree.parents[i]] += spread(message.squeeze(axes), separator, tree.cliques[tree.parents[i]])
        return potentials, log_total
