"""The way in: three changed lines make a torch loop private."""

from __future__ import annotations

import inspect
import os
from pathlib import Path
from typing import Any

import torch
from torch import nn

from discreet.core import Unit, check
from discreet.errors import InvalidValue
from discreet.learn.sgd.banded import Banded
from discreet.learn.sgd.clipping import CLIPPINGS
from discreet.learn.sgd.plan import Sampler, planned
from discreet.learn.sgd.quantile import Quantile
from discreet.learn.sgd.rows import Augment, Rows
from discreet.learn.sgd.run import Loss, Run
from discreet.learn.sgd.sampling import BallsInBins, Poisson
from discreet.learn.sgd.smooth import After


def train(
    model: nn.Module, optimizer: torch.optim.Optimizer, data: Any, loss: Loss, *, unit: Unit, delta: float, rate: float,
    steps: int, clip_norm: float, epsilon: float | None = None, noise_multiplier: float | None = None,
    divisor: float | None = None, owners: Any = None, sampling: str = "poisson", bands: int = 1, clipping: str = "flat",
    augment: Augment | None = None, copies: int = 1,
    after: After | None = None, radius: float | None = None, microbatch: int | None = None, ledger: Any = None,
    source: str = "data", account: str | None = None, checkpoint: str | os.PathLike[str] | None = None, every: int = 100,
    grid: bool = False, progress: bool = False, scheduler: Any = None, resume: str = "exact", check_rows: bool = True,
    path: str | None = None,
) -> Run:  # fmt: skip
    """A run that trains `model` privately when iterated.

    `rate` is the share of units in one batch and `steps` the number of batches: public numbers, like `divisor`, by which the
    noisy sum of clipped gradients is divided. Without a divisor the units are counted with noise, for a fiftieth of epsilon.
    `loss(model(inputs), target)` gives one number per example. `epsilon` decides the noise, or `noise_multiplier` the epsilon.

    `sampling` draws each unit on its own in every step ("poisson"), or puts it into one step of every pass of 1 / rate steps
    ("balls_in_bins"). `bands` above 1 makes noise that later steps take back (BandMF). `clipping` is "flat", "per_layer",
    "automatic", or "quantile": a norm that follows the median length of the gradients, from `clip_norm` on, and is paid for.

    `owners` says whose row each row is, where a unit owns several. `augment(inputs)` changes inputs at random, example by
    example; each row is used `copies` times and counts once. `after` may change the noisy gradient (see `shrink`), `radius`
    keeps the weights in a ball: post-processing, like anything done between steps. `microbatch` bounds the units computed at
    once and changes speed and memory only. A run with a `checkpoint` writes it `every` so many steps and goes on from it; steps
    that are then taken again come out the same, or the run stops, unless `resume="pay"`: they get fresh noise and are paid for.
    A `scheduler` is stepped after every step and is in the checkpoint. `data` is a Dataset, columns as tensors, or a
    DataLoader, which says how rows are read and not in which order. Rows are looked at before anything is charged, unless
    `check_rows` is False: a run that could not end does not begin.

    All examples are computed at once where it is proven that they leave each other alone, each unit by itself otherwise; `path`
    demands one of the two ("fast", which is refused without a proof, or "isolated"), and `run.path` tells which it is.
    With `grid` sums are whole numbers and noise is exact: a claim that survives floating point, at a backward for each unit.

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
    if ledger is not None and not hasattr(ledger, "reserve"):
        raise InvalidValue(f"ledger must be a Ledger, such as discreet.Ledger('ledger.db'); got {type(ledger).__name__}.")
    if checkpoint is not None and not Path(checkpoint).absolute().parent.is_dir():
        raise InvalidValue(f"checkpoint is to be written to {checkpoint}, whose folder does not exist. Make the folder first.")
    how = {**CLIPPINGS, "quantile": Quantile}[check.word("clipping", clipping, ("quantile", *CLIPPINGS))]
    if grid and (clipping != "flat" or bands != 1):
        raise InvalidValue('grid=True goes with clipping="flat" and bands=1; leave out the other, or grid.')
    sampler = _sampler(sampling, rate, steps, bands, optimizer)
    plan = planned(
        unit=unit, sampler=sampler, rate=sampler.rate, steps=steps, clip_norm=clip_norm, delta=delta,
        epsilon=epsilon, noise_multiplier=noise_multiplier, counted=divisor is None, grid=grid,
    )  # fmt: skip
    return Run(
        model, optimizer, Rows(data, unit, owners, augment, copies), loss, plan, how(clip_norm),
        divisor=None if divisor is None else check.positive("divisor", divisor),
        microbatch=1 if grid else None if microbatch is None else check.whole("microbatch", microbatch),
        ledger=ledger, source=check.word("source", source), account=account, checkpoint=checkpoint,
        every=check.whole("every", every), after=after, radius=None if radius is None else check.positive("radius", radius),
        progress=progress, scheduler=_steps_alone(scheduler), resume=check.word("resume", resume, ("exact", "pay")),
        check_rows=check_rows, path=path,
    )  # fmt: skip


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
    """An optimizer that could not take a step would fail when the run is paid for."""
    name = type(optimizer).__name__
    if inspect.signature(optimizer.step).parameters.get("closure", _FREE).default is inspect.Parameter.empty:
        raise InvalidValue(f"{name} computes gradients again inside a step, which no noise covers. Use SGD or Adam, say.")
    if isinstance(optimizer, torch.optim.SparseAdam):
        raise InvalidValue("Noise is on every number, so gradients are never sparse, and SparseAdam takes no others. Use Adam.")


_FREE = inspect.Parameter("closure", inspect.Parameter.KEYWORD_ONLY, default=None)


def _sampler(sampling: str, rate: float, steps: int, bands: int, optimizer: torch.optim.Optimizer) -> Sampler:
    """Who draws the batches; correlated noise brings its own sampling."""
    check.word("sampling", sampling, ("poisson", "balls_in_bins"))
    if check.whole("bands", bands) > 1:
        if sampling != "poisson":
            raise InvalidValue("bands above 1 is accounted for Poisson batches only; leave out sampling, or bands.")
        return Banded(rate, steps=steps, bands=bands, momentum=min(float(optimizer.defaults.get("momentum") or 0.0), 0.99))
    if sampling == "poisson":
        return Poisson(rate)
    bins = 1 / check.fraction("rate", rate) if rate else 0.0
    if not bins or abs(bins - round(bins)) > 1e-9 * bins:
        raise InvalidValue(f"balls_in_bins has whole passes of 1 / rate steps; got rate {rate:g}. Try {_near(rate)}.")
    return BallsInBins(round(bins))


def _near(rate: float) -> str:
    return f"1 / {max(1, round(1 / rate))}" if rate else "1 / 100"
