"""Audits of training itself: an observer of every update, and a replay of a run on neighbouring data.

An audit needs a unit with a known gradient: a canary, whose gradient has a direction of its own and the full clip norm. It
attains the sensitivity of the claim, so the audit is as tight as possible (Nasr et al. 2021 and 2023; Andrew et al. 2023; many
canaries in one run: Steinke et al. 2023).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from discreet.audit.replay import Question, Tell, replay
from discreet.core import Claim
from discreet.errors import InvalidValue
from discreet.learn.sgd.quantile import Quantile
from discreet.learn.sgd.run import Run
from discreet.noise.source import seeded_for_tests

Make = Callable[[Any], Run]  # a run, not yet begun, on the data it is given
Updates = NDArray[np.float32]  # [steps, trained numbers]: the noisy gradient of each step


class Training:
    """Training as a mechanism for `discreet.audit`: its output is the update of every step, as the optimizer is given it.

    `make(data)` makes a fresh run on the data; its claim must not depend on them.
    """

    def __init__(self, make: Make, data: Any) -> None:
        self._make = make
        self._claims = (make(data).plan.claim(),)

    def claims(self) -> tuple[Claim, ...]:
        return self._claims

    def run(self, data: Any) -> Updates:
        """Train once; what the optimizer was given at every step."""
        run = self._make(data)
        if run.plan.claim() != self._claims[0]:
            raise InvalidValue(
                "The claim of this run depends on its data: rate, steps and noise must be public numbers, the same in all runs."
            )
        updates: list[Updates] = []
        watch(run, lambda number, update: updates.append(update.numpy().copy()))
        for _ in run:
            pass
        return np.stack(updates)


class Aligned:
    """An attack: how far the updates moved along a target's direction, all steps together.

    A target is the number of a coordinate among the trained numbers, or a vector as long as they are.
    """

    name = "gradient canary"
    view = frozenset({"transcript"})

    def score(self, seen: Updates, targets: Sequence[Any]) -> NDArray[np.float64]:
        moved = seen.sum(0, dtype=np.float64)
        return np.array([moved[t] if isinstance(t, (int, np.integer)) else moved @ np.asarray(t) for t in targets], np.float64)


def watch(run: Run, look: Callable[[int, torch.Tensor], torch.Tensor | None]) -> None:
    """Call `look(step, update)` before every update, with the trained parameters' gradients as one vector.

    What it returns, if anything, takes the place of the update.
    """
    parameters = [p for p in run.model.parameters() if p.requires_grad]

    def before(optimizer: Any, args: Any, kwargs: Any) -> None:
        flat = torch.cat([p.grad.detach().flatten().float() for p in parameters if p.grad is not None]).cpu()
        other = look(run.number, flat)
        if other is not None:
            _put(parameters, other)

    run.optimizer.register_step_pre_hook(before)


def _put(parameters: Sequence[torch.Tensor], flat: torch.Tensor) -> None:
    for p, part in zip(parameters, flat.split([p.numel() for p in parameters])):
        p.grad = part.view(p.shape).to(p.device, p.dtype)


def replay_run(make: Make, with_unit: Any, without_unit: Any, *, seed: bytes = b"replay") -> tuple[Question, ...]:
    """Train on both with the same batches and the same noise; ClaimRefuted where one unit moves an update too far.

    The second run is given the updates of the first, so both have the same weights at every step. The unit that is not in
    `without_unit` must be the last: the others then keep their places, and with them their draws. The divisor must be
    public: a noisy count is a release of its own.
    """

    def mechanism(data: Any, tell: Tell) -> None:
        run = make(data)
        if run.divisor is None:
            raise InvalidValue("A replay needs a public divisor: pass divisor=rate * (about how many units there are).")
        if isinstance(run._sum.clipping, Quantile):
            raise InvalidValue("A replay needs a clip norm that stays: one that follows a quantile is released in every step.")
        if run._parts.postprocess.gradient is not None:
            raise InvalidValue("A replay looks at updates before they are post-processed: leave out Postprocess(gradient=…).")
        sensitivity = run.plan.clip_norm / run.divisor

        def look(step: int, update: torch.Tensor) -> Any:  # the sum itself: weights of a narrow type round what they are given
            return tell(f"update {step}", run._sum.buffer.cpu(), sensitivity=sensitivity, noise=torch.clone)

        watch(run, look)
        for _ in run:
            pass

    def seeded(data: Any, tell: Tell) -> None:
        with seeded_for_tests(seed), torch.random.fork_rng():
            torch.manual_seed(0)  # of weights and dropout, where make draws them; never of our noise
            mechanism(data, tell)

    return replay(seeded, with_unit, without_unit)
