"""Gradient canaries beside a real training: one run, as many trials as there are canaries.

A canary is a row whose gradient has the full clip norm in one parameter of its own, which is added to the model. A fair coin
decides whether the canary is among the rows. Its parameter gets noise like all others, so an observer of the updates learns as
much about the canary as the claim allows, while the model learns its task from the other rows. Under the claim (independent
noise on each parameter, rows drawn independently) canaries are independent trials. Without that assumption, score them as one
run (`together`): this bounds epsilon whatever ran.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from discreet.accounting import curve
from discreet.audit import verdict
from discreet.core import Claim, Evidence, Game, Unit, Verdict, check, record
from discreet.errors import InvalidValue
from discreet.learn.sgd.run import Run

Floats = NDArray[np.float64]
SEEDS = (*range(100), 123, 1234, 12345, 1337, 2020, 2021, 2022, 2023, 2024, 2025, 2026)  # that people set
LEFT = 0.1  # noise assumed after known noise was subtracted, for rounding and other residues


class Marked(nn.Module):
    """A model with one parameter more for each canary. Rows with a pull of 0 are ordinary ones."""

    def __init__(self, model: nn.Module, canaries: int) -> None:
        super().__init__()
        self.table = nn.Embedding(canaries, 1)  # before the model: its noise is the first that is drawn in a step
        self.model = model

    def forward(self, *inputs: Tensor) -> tuple[Any, Tensor, Tensor]:
        *ordinary, which, pull = inputs
        return self.model(*ordinary), self.table(which)[:, 0] * pull, pull


@dataclass
class GradientCanaries:
    """`model`, `data` and `loss` with canaries, to train instead of the originals; then `evidence` or `verdict`."""

    model: Marked
    data: tuple[Tensor, ...]
    loss: Callable[[Any, Any], Tensor]
    inside: NDArray[np.bool_]
    seen: list[NDArray[np.float32]] = field(default_factory=list)

    def watch(self, optimizer: torch.optim.Optimizer) -> None:
        """Keep what the optimizer is given for the canaries' numbers, step by step; for any trainer, ours or another's."""

        def before(*_: Any) -> None:
            gradient = self.model.table.weight.grad
            assert gradient is not None
            self.seen.append(gradient.detach().float().cpu().numpy()[:, 0].copy())

        optimizer.register_step_pre_hook(before)

    def trained(self, run: Run) -> GradientCanaries:
        """Train, and see every update."""
        if run.model is not self.model:
            raise InvalidValue(
                "This run trains another model; give train(…) the model, data and loss of inject_gradient_canaries(…)."
            )
        self.watch(run.optimizer)
        for _ in run:
            pass
        return self

    def evidence(
        self, *, rate: float, noise_multiplier: float, step: float, unit: Unit | None = None, together: bool = False
    ) -> Evidence:
        """Evidence from the updates: each canary's log-likelihood ratio, after noise that can be known was subtracted.

        `step` is what one clipped row adds to an update: clip norm / divisor. `together` makes it one run of many canaries,
        instead of trials that the claim makes independent.
        """
        if not self.seen:
            raise InvalidValue("Nothing was seen of the canaries: call watch(optimizer), or trained(run), before training.")
        moved = np.stack(self.seen) / check.positive("step", step)
        shapes = [p.shape for p in self.model.parameters() if p.requires_grad]
        known = without_known_noise(moved, check.positive("noise_multiplier", noise_multiplier), shapes)
        score = likelihood(*known, check.fraction("rate", rate))
        runs = np.zeros(len(score), np.int64) if together else np.arange(len(score))
        return Evidence(
            game=Game(unit or record(), {"transcript"}), attack="gradient canaries", score=score, inside=self.inside, run=runs,
            design="canary",
        )  # fmt: skip

    def of(self, run: Run, *, together: bool = False) -> Evidence:
        """The same for a run of ours, which knows its rate, noise and divisor."""
        plan = run.plan
        if run.divisor is None:
            raise InvalidValue("Nothing has been trained yet: call trained(run) first.")
        if plan.student is not None:
            raise InvalidValue("The likelihoods of gradient canaries are those of Gaussian noise; this run has Student's t.")
        step = plan.clip_norm / run.divisor
        return self.evidence(
            rate=plan.sampler.rate, noise_multiplier=plan.noise_multiplier, step=step, unit=plan.unit, together=together
        )

    def verdict(self, run: Run, *, confidence: float = 0.95) -> Verdict:
        """The verdict on this run's claim; `refuted` is wrong with probability at most 1 - confidence."""
        return judged(run.plan.claim(), self.of(run), confidence=confidence)


def inject_gradient_canaries(
    model: nn.Module, data: Sequence[Tensor], loss: Callable[[Any, Any], Tensor], *, canaries: int, clip_norm: float,
    seed: int | None = None,
) -> GradientCanaries:  # fmt: skip
    """Model, data and loss with so many gradient canaries, each among the rows by a fair coin.

    >>> import discreet
    >>> from discreet.learn import train
    >>> x, y = torch.randn(200, 3), torch.randint(2, (200,))
    >>> loss = nn.CrossEntropyLoss(reduction="none")
    >>> injected = inject_gradient_canaries(nn.Linear(3, 2), (x, y), loss, canaries=2000, clip_norm=1.0)
    >>> run = train(injected.model, torch.optim.SGD(injected.model.parameters(), 0.5), injected.data, injected.loss,
    ...             unit=discreet.record(), epsilon=2.0, delta=1e-5, rate=0.25, steps=4, clip_norm=1.0, divisor=300)
    >>> injected.trained(run).verdict(run, confidence=0.999999).outcome
    'holds'
    """
    count = check.whole("canaries", canaries, least=2)
    if not isinstance(data, (tuple, list)) or len(data) < 2 or not all(isinstance(column, Tensor) for column in data):
        raise InvalidValue(
            "inject_gradient_canaries takes data as tensors, (inputs…, target): canaries are added as rows of the same shape."
        )
    coins = np.random.default_rng(secrets.randbits(128) if seed is None else seed)
    inside = coins.random(count) < 0.5
    chosen = torch.from_numpy(np.flatnonzero(inside))
    rows, more = data[0].shape[0], len(chosen)
    *inputs, target = (torch.cat([column, column.new_zeros((more, *column.shape[1:]))]) for column in data)
    which = torch.cat([torch.zeros(rows, dtype=torch.long), chosen])
    pull = torch.cat([torch.zeros(rows), torch.full((more,), 100.0 * check.positive("clip_norm", clip_norm))])

    def losses(output: tuple[Any, Tensor, Tensor], wanted: Any) -> Tensor:
        usual, pulled, pulls = output
        return torch.where(pulls == 0, loss(usual, wanted), pulled)

    return GradientCanaries(Marked(model, count), (*inputs, which, pull, target), losses, inside)


def judged(claim: Claim, evidence: Evidence, *, confidence: float) -> Verdict:
    """The claim at two deltas: that of epsilon 0, where guesses are counted, and one that few sure guesses can refute."""
    least = 0.1 / len(evidence)
    return verdict(claim, evidence, confidence=confidence, delta=(least, max(curve(claim.event).delta(0.0), least)))


def likelihood(moved: NDArray[np.floating[Any]], noise: float, rate: float) -> Floats:
    """The log-likelihood ratio of each canary's updates: taking part at this rate against being absent."""
    far = (moved.astype(np.float64) - 0.5) / noise**2
    return np.logaddexp(np.log1p(-rate), np.log(rate) + far).sum(0) if rate < 1 else far.sum(0)


def without_known_noise(
    moved: Any, noise: float, shapes: Sequence[torch.Size], seeds: Iterable[int] = SEEDS
) -> tuple[Any, float]:
    """The updates less the noise that an observer can know, and the noise that is then left.

    Noise that repeats in every step gives steps that are equal for most canaries. Noise from torch's generator under a common
    seed can be reproduced for all parameters in their order. Neither test uses which canaries are inside, so scores stay fair.
    """
    if len(moved) > 1 and _same(moved[0], moved[1], noise):
        return moved - moved.min(0), LEFT
    for seed in seeds:
        first = torch.randn(shapes[0], generator=torch.Generator().manual_seed(seed)).flatten().numpy()
        if _same(moved[0], noise * first, noise):
            return moved - noise * _drawn(seed, shapes, len(moved)), LEFT
    return moved, noise


def _drawn(seed: int, shapes: Sequence[torch.Size], steps: int) -> NDArray[np.float32]:
    """The canaries' part of the noise of a trainer that seeds once and goes through the parameters in order."""
    generator = torch.Generator().manual_seed(seed)
    drawn = []
    for _ in range(steps):
        first, *_others = [torch.randn(shape, generator=generator) for shape in shapes]
        drawn.append(first.flatten().numpy())
    return np.stack(drawn)


def _same(value: Any, other: Any, noise: float) -> bool:
    """Whether they agree, but for canaries that took part: for fresh noise one in a hundred comes so close."""
    return float((np.abs(value - other) < 0.01 * noise).mean()) > 0.25
