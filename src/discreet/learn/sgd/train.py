"""The entry point: three changed lines make a torch loop private."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable
from typing import Any, TypeVar

import torch
from torch import nn

from discreet.core import Unit, check
from discreet.errors import InvalidValue
from discreet.learn.sgd.banded import Banded, BandMF
from discreet.learn.sgd.clipped_sum import Loss
from discreet.learn.sgd.clipping import Encoded, FixedPoint, Flat
from discreet.learn.sgd.options import Augment, Checkpoint, Performance, Postprocess, StudentNoise
from discreet.learn.sgd.paying import Payments
from discreet.learn.sgd.plan import Sampler, planned
from discreet.learn.sgd.quantile import Quantile
from discreet.learn.sgd.rows import Change, Rows
from discreet.learn.sgd.run import Run
from discreet.learn.sgd.sampling import BallsInBins, Poisson
from discreet.ledger import LedgerLike, as_ledger

V = TypeVar("V")
Sampling = Poisson | BallsInBins | BandMF


def train(
    model: nn.Module, optimizer: torch.optim.Optimizer, data: Any, loss: Loss, *, unit: Unit, delta: float, steps: int,
    epsilon: float | None = None, noise_multiplier: float | None = None, rate: float | None = None,
    sampling: Sampling | None = None, clip_norm: float | None = None, clipping: Flat | None = None,
    divisor: float | None = None, owners: Any = None, augment: Augment | Change | None = None,
    noise: StudentNoise | None = None, postprocess: Postprocess | None = None, scheduler: Any = None,
    ledger: LedgerLike | None = None, source: str = "data",
    account: str | None = None, checkpoint: Checkpoint | str | os.PathLike[str] | None = None,
    performance: Performance | None = None,
) -> Run:  # fmt: skip
    """A run that trains `model` privately when iterated.

    `rate` is the share of units in one batch and `steps` the number of batches: public numbers, like `divisor`, by which the
    noisy sum of clipped gradients is divided. Without a divisor the units are counted with noise, for a fiftieth of epsilon.
    `loss(model(inputs), target)` gives one number per example. `epsilon` decides the noise, or `noise_multiplier` the epsilon.

    `rate` stands for `sampling=Poisson(rate)`: each unit is drawn on its own in every step. `BallsInBins(bins)` puts it into
    one step of every pass of `bins` steps; `BandMF(rate, bands)` adds noise that later steps take back. `clip_norm` stands for
    `clipping=Flat(clip_norm)`; others are `PerLayer`, `Automatic`, `Adaptive` (the norm follows the median length of the
    gradients, which is paid for), `FixedPoint` (sums are whole numbers and noise is exact: a claim that survives floating
    point), and `Encoded` (each gradient becomes a word of a code). `noise=StudentNoise(degrees)` takes the place of Gaussian
    noise.

    `data` is a Dataset, columns as tensors, or a DataLoader, which says how rows are read and not in which order. `owners` says
    whose row each row is, where a unit owns several. `augment` changes inputs at random (`Augment(change, copies=…)` uses each
    row several times and counts it once). `postprocess` changes the noisy gradient or the weights, which costs nothing. A
    `scheduler` is stepped after every step. A run with a `checkpoint` goes on from it where it exists; see `Checkpoint`.
    `performance` holds what changes speed and memory only. Rows are checked before anything is charged.

    >>> import discreet
    >>> model = nn.Linear(3, 2)
    >>> data = torch.randn(200, 3), torch.randint(2, (200,))
    >>> run = train(model, torch.optim.SGD(model.parameters(), 0.5), data, nn.CrossEntropyLoss(reduction="none"),
    ...             unit=discreet.record(), epsilon=2.0, delta=1e-5, rate=0.1, steps=20, clip_norm=1.0)
    >>> for step in run:
    ...     pass
    >>> step.number, 1.9 < run.spent() <= 2.0
    (20, True)
    """
    ledger = as_ledger(ledger)
    _check_kinds(model, optimizer, loss, unit)
    _check_value("clipping", clipping, Flat, "discreet.learn.Automatic(1.0)")
    _check_value("postprocess", postprocess, Postprocess, "discreet.learn.Postprocess(radius=10.0)")
    _check_value("performance", performance, Performance, "discreet.learn.Performance(microbatch=64)")
    sampler = _sampler(_either("rate", rate, "sampling", sampling, Poisson), steps, optimizer)
    clip = _either("clip_norm", clip_norm, "clipping", clipping, Flat)
    if isinstance(clip, FixedPoint) and isinstance(sampler, Banded):
        raise InvalidValue("FixedPoint clipping has exact noise in every step, BandMF correlated noise; use one of them.")
    _check_value("noise", noise, StudentNoise, "discreet.learn.StudentNoise(degrees=4)")
    _goes_with_student(noise, clip, sampler)
    numbers = sum(p.numel() for p in model.parameters() if p.requires_grad)
    plan = planned(
        unit=unit, sampler=sampler, rate=sampler.rate, steps=steps, clip_norm=clip.norm, delta=delta, epsilon=epsilon,
        noise_multiplier=noise_multiplier, counted=divisor is None, fixed_point=isinstance(clip, FixedPoint),
        student=noise, word=clip.word(numbers) if isinstance(clip, Encoded) and numbers else None,
    )  # fmt: skip
    change = Augment.of(augment)
    rows = Rows(data, unit, owners) if change is None else Rows(data, unit, owners, change.change, change.copies)
    return Run(
        model, optimizer, rows, loss, plan, clip, divisor=None if divisor is None else check.positive("divisor", divisor),
        payments=Payments(ledger, check.word("source", source), account), scheduler=_steps_alone(scheduler),
        checkpoint=Checkpoint.of(checkpoint), performance=performance or Performance(),
        postprocess=postprocess or Postprocess(),
    )  # fmt: skip


def _either(short: str, number: float | None, name: str, value: V | None, plain: Callable[[float], V]) -> V:
    """The value, or the default kind built from the number given in its place."""
    if (number is None) == (value is None):
        state = "neither" if value is None else "both"
        raise InvalidValue(f"Say either {short} or {name}; {short} stands for {name}={plain.__name__}({short}); got {state}.")
    return plain(number) if value is None else value  # type: ignore[arg-type]


def _goes_with_student(noise: StudentNoise | None, clip: Flat, sampler: Sampler) -> None:
    """Refuse combinations with noise of Student's t that are not proven."""
    if noise is not None and (
        isinstance(clip, FixedPoint) or isinstance(clip.begin(), Quantile) or isinstance(sampler, Banded)
    ):
        named = "BandMF" if isinstance(sampler, Banded) else type(clip).__name__
        raise InvalidValue(
            f"StudentNoise is proven for clipping by Flat, PerLayer, Automatic and Encoded and for noise of its own in every "
            f"step, not for {named}. Use one of these, or leave noise out."
        )


def _check_kinds(model: Any, optimizer: Any, loss: Any, unit: Any) -> None:
    if not isinstance(model, nn.Module):
        raise InvalidValue(f"model must be a torch module; got {type(model).__name__}.")
    if not isinstance(optimizer, torch.optim.Optimizer):
        raise InvalidValue(
            f"optimizer must be a torch optimizer, such as torch.optim.SGD(model.parameters(), 0.1); "
            f"got {type(optimizer).__name__}."
        )
    _takes_dense_gradients(optimizer)
    if not isinstance(unit, Unit):
        raise InvalidValue(f"unit must be a Unit, such as discreet.record(); got {type(unit).__name__}.")
    if not callable(loss):
        raise InvalidValue(f"loss must be a function of (output, target); got {type(loss).__name__}.")


def _check_value(name: str, value: Any, kind: type | tuple[type, ...], example: str) -> None:
    if value is not None and not isinstance(value, kind):
        raise InvalidValue(f"{name} must be a value such as {example}; got {check.shown(value)}.")


def _steps_alone(scheduler: Any) -> Any:
    """A scheduler that the run can step, save and load: one that counts steps."""
    lacking = [name for name in ("step", "state_dict", "load_state_dict") if not callable(getattr(scheduler, name, None))]
    if scheduler is not None and lacking:
        raise InvalidValue(
            f"scheduler must have {', '.join(lacking)}, as torch.optim.lr_scheduler's do; got {type(scheduler).__name__}."
        )
    if isinstance(scheduler, torch.optim.lr_scheduler.ReduceLROnPlateau):
        raise InvalidValue(
            "ReduceLROnPlateau waits for a training loss, which a private run does not tell. Use another scheduler."
        )
    return scheduler


def _takes_dense_gradients(optimizer: torch.optim.Optimizer) -> None:
    """Refuse an optimizer that cannot take dense gradients, before the run is charged."""
    name = type(optimizer).__name__
    if inspect.signature(optimizer.step).parameters.get("closure", _FREE).default is inspect.Parameter.empty:
        raise InvalidValue(f"{name} computes gradients again inside a step, which no noise covers. Use SGD or Adam, say.")
    if isinstance(optimizer, torch.optim.SparseAdam):
        raise InvalidValue("Noise is on every number, so gradients are never sparse, and SparseAdam takes no others. Use Adam.")


_FREE = inspect.Parameter("closure", inspect.Parameter.KEYWORD_ONLY, default=None)


def _sampler(sampling: Any, steps: int, optimizer: torch.optim.Optimizer) -> Sampler:
    """What draws the batches; correlated noise brings its own sampling, for so many steps."""
    if isinstance(sampling, BandMF):
        return sampling.over(steps, min(float(optimizer.defaults.get("momentum") or 0.0), 0.99))
    _check_value("sampling", sampling, (Poisson, BallsInBins), "discreet.learn.BallsInBins(100)")
    return sampling
