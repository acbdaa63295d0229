"""A clip norm that follows a quantile of the gradients' lengths, and what that costs (Andrew et al. 2021)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from discreet.core import check
from discreet.core import event as events
from discreet.errors import InvalidValue
from discreet.learn.sgd.clipping import SLACK, Flat, clip_norm

FASTEST = 5.0  # the norm changes by at most this factor in one step, however large the noise of the count


def joint(noise_multiplier: float, count_noise: float) -> events.Gaussian:
    """The event of one step that releases a clipped sum and a count of the units that were not clipped.

    Of each unit u the step adds g_u, |g_u| <= C, to the sum, with noise of standard deviation noise_multiplier x C on every
    number, and b_u - 1/2 to the count, b_u = 1 if u was not clipped and 0 if it was, with noise of standard deviation
    count_noise. Divide each number by its own noise: what is released is one vector with standard normal noise, and one
    unit moves it by at most sqrt(1 / noise_multiplier^2 + (1/2)^2 / count_noise^2), since |b_u - 1/2| <= 1/2 always. So it
    is one Gaussian mechanism whose noise multiplier is one over that. The 1/2 matters: counting b_u itself would cost
    four times as much. Under sampling the step as a whole is sampled, so this event goes inside Poisson.

    >>> round(joint(1.0, 10.0).noise_multiplier, 4)
    0.9988
    """
    sums, counts = check.positive("noise_multiplier", noise_multiplier), check.positive("count_noise", count_noise)
    return events.Gaussian(1 / math.hypot(1 / sums, 0.5 / counts) * (1 - 4e-16))


def split(noise_multiplier: float, count_noise: float) -> float:
    """The noise multiplier of the sum with which sum and count together cost as much as `noise_multiplier` alone.

    (z^-2 - (2 count_noise)^-2)^(-1/2), rounded up: the inverse of `joint`.

    >>> round(split(1.0, 10.0), 4)
    1.0013
    """
    whole, counts = check.positive("noise_multiplier", noise_multiplier), check.positive("count_noise", count_noise)
    share = whole / (2 * counts)
    if share >= 1:
        raise InvalidValue(
            f"A count with noise {counts:g} costs more by itself than noise multiplier {whole:g}; "
            f"count_noise must be above {whole / 2:g}. A twentieth of the expected batch costs nearly nothing."
        )
    return whole / math.sqrt((1 - share) * (1 + share)) * (1 + 1e-12)


@dataclass(frozen=True)
class Adaptive(Flat):
    """Flat clipping to a norm that starts at `norm` and moves towards a `quantile` of the units' gradient lengths.

    In each step the units that were not clipped are counted with noise, which the run pays for together with the sum:
    C <- C e^{-speed (share of unclipped units - quantile)}.
    """

    quantile: float = 0.5
    speed: float = 0.2

    def __post_init__(self) -> None:
        super().__post_init__()
        check.open_fraction("quantile", self.quantile)
        check.positive("speed", self.speed)

    def begin(self) -> Quantile:
        return Quantile(self.norm, quantile=self.quantile, speed=self.speed)


class Quantile:
    """The moving norm of a run with adaptive clipping.

    In every step gradients are clipped, which counts them, and `update` is given the count with fresh noise, whether or not
    any unit took part. The norm may be shown: it is computed from what `joint` pays for.
    """

    kind = "Quantile"

    def __init__(self, norm: float, *, quantile: float = 0.5, speed: float = 0.2) -> None:
        self.norm = clip_norm(norm)
        self.quantile, self.speed = check.open_fraction("quantile", quantile), check.positive("speed", speed)
        self.present: Tensor | None = None  # which units of the batch are somebody's; None: all of them
        self._count: Tensor | float = 0.0

    def groups(self, records: Sequence[Any]) -> list[list[Any]]:
        return [list(records)]

    def factors(self, squared: Tensor) -> Tensor:
        length = (1 + SLACK) * squared.sum(0).sqrt()
        # NaN is not short: such a unit counts as clipped, so that none counts for more than one half, up or down. Rows that are
        # nobody's (they fill up a batch, or keep processes in step) count for nothing: their number depends on the batch.
        half = torch.where(length <= self.norm, 0.5, -0.5) * (length != 0)
        if self.present is not None:
            half = half * self.present
        self._count = self._count + half.sum(dtype=torch.float64)
        return torch.clamp(self.norm / length, max=1.0).expand_as(squared)

    def counted(self) -> float:
        """Half the units that were not clipped, less half of those that were, since the last update; private."""
        return float(self._count)

    def restart(self) -> None:
        """Reset the count: the current step was not taken."""
        self._count = 0.0

    def update(self, noise: float, *, batch: float, counted: float) -> None:
        """Move the norm; `noise` is one normal number times its public noise, `batch` the public expected number of units."""
        share = (counted + check.real("noise", noise)) / check.positive("batch", batch) + 0.5
        change = min(max(-self.speed * (share - self.quantile), -math.log(FASTEST)), math.log(FASTEST))
        self.norm *= math.exp(change)
        self._count = 0.0
