"""Lightning: the module and the Trainer stay, the steps become private.

Lightning's own loop feeds a module batches from a loader. A loader shuffles, drops the last batch and repeats epochs, none of
which is the Poisson sampling that the claim accounts for. So the loop receives one empty ticket for each step, and the step
draws its own batch. Callbacks, loggers, devices, precision and validation work as usual.

Neither `lightning` nor `pytorch_lightning` is imported here: whoever has a Trainer has one of them.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import DataLoader

from discreet.errors import InvalidValue
from discreet.learn.sgd.rows import OfBatch
from discreet.learn.sgd.run import Run, Step
from discreet.learn.sgd.train import train

HALF = ("16", "16-mixed", "16-true")  # these scale the loss, and with it the gradients that are clipped


def fit(trainer: Any, module: Any, data: Any, *, val_dataloaders: Any = None, **plan: Any) -> Run:
    """Fit a LightningModule privately and return the run, for `.spent()` and `.release(path)`.

    `data` is what `discreet.learn.train` takes (a Dataset, tensors or a DataLoader), or a LightningDataModule, whose training
    loader says how rows are read, not in which order; `plan` is the rest of what it takes: unit, epsilon, delta, rate, steps,
    clip_norm, … `training_step` must return one loss for each example of its batch (or a dict with them as "loss"), as with
    `reduction="none"`. What it logs is left out, since no noise covers it; log in `validation_step`, on data that is not
    private.
    """
    _check(trainer, module)
    rows, validation = _rows(data)
    steps = _Steps(trainer, module, rows, plan)
    with _patched(module, training_step=steps.take, automatic_optimization=False), _one_epoch(trainer):
        trainer.fit(module, train_dataloaders=_Tickets(steps.count), val_dataloaders=val_dataloaders or validation)
    return steps.run()


class _Tickets:
    """What Lightning's loop iterates over: one number for each private step, empty batches included."""

    def __init__(self, count: int) -> None:
        self._count = count

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[int]:
        return iter(range(self._count))


class _Steps:
    """A training_step that takes one private step, drawing its own batch and stepping the optimizer."""

    def __init__(self, trainer: Any, module: Any, rows: Any, plan: dict[str, Any]) -> None:
        self._trainer, self._module, self._rows, self._plan = trainer, module, rows, plan
        self._plain: Callable[..., Any] = module.training_step
        self._run: Run | None = None
        self._left: Iterator[Step] = iter(())
        self.count = int(plan.get("steps", 0))

    def take(self, batch: Any, batch_idx: int) -> None:
        """One ticket. The number of the batch is all Lightning sees of it."""
        with torch.enable_grad():
            if self._run is None:
                self._begin()
            if next(self._left, None) is None:  # a resumed run has taken some of the steps already
                self._trainer.should_stop = True

    def _begin(self) -> None:
        """When the module is on its device and has its optimizer."""
        wrapped = self._module.optimizers(use_pl_optimizer=True)
        if isinstance(wrapped, list):
            raise InvalidValue(f"configure_optimizers gave {len(wrapped)} optimizers; a private run has one.")
        self._epochs()
        schedule = _Schedule(self._trainer.lr_scheduler_configs) if self._trainer.lr_scheduler_configs else None
        self._run = train(self._module, wrapped.optimizer, self._rows, OfBatch(self._losses), scheduler=schedule, **self._plan)
        self._run.optimizer = wrapped  # so that Lightning counts the steps
        self._left = iter(self._run)

    def _losses(self, batch: Any) -> Tensor:
        with _patched(self._module, log=_unlogged, log_dict=_unlogged):
            output = self._plain(batch, 0)
        losses: Tensor = output["loss"] if isinstance(output, dict) else output
        return losses

    def _epochs(self) -> None:
        for config in self._trainer.lr_scheduler_configs:
            if config.interval != "step" or config.reduce_on_plateau:
                raise InvalidValue(
                    "A private run counts steps, not epochs, and has no training loss to wait for: give the scheduler as "
                    '{"scheduler": …, "interval": "step"}, and none that reduces on a plateau.'
                )

    def run(self) -> Run:
        if self._run is None:
            raise InvalidValue("The trainer stopped before its first step, so there is no run; nothing was spent.")
        return self._run


class _Schedule:
    """The schedulers of a module as one that the run steps and saves."""

    def __init__(self, configs: Any) -> None:
        self._configs, self._count = configs, 0

    def step(self) -> None:
        self._count += 1
        for config in self._configs:
            if self._count % config.frequency == 0:
                config.scheduler.step()

    def state_dict(self) -> dict[str, Any]:
        return {"count": self._count, "schedulers": [config.scheduler.state_dict() for config in self._configs]}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._count = state["count"]
        for config, its in zip(self._configs, state["schedulers"], strict=True):
            config.scheduler.load_state_dict(its)


def _unlogged(*args: Any, **kwargs: Any) -> None:
    warnings.warn(
        "What training_step logs is left out: it is computed from private rows, and no noise covers it.",
        UserWarning,
        stacklevel=2,
    )


def _check(trainer: Any, module: Any) -> None:
    for name, part, wanted in (("trainer", trainer, "fit"), ("module", module, "training_step")):
        if not hasattr(part, wanted):
            raise InvalidValue(f"{name} must be Lightning's (with a method {wanted}); got {type(part).__name__}.")
    if not module.automatic_optimization:
        raise InvalidValue("The module steps its own optimizer (automatic_optimization=False); let the private run step it.")
    if trainer.accumulate_grad_batches != 1:
        raise InvalidValue(
            f"accumulate_grad_batches={trainer.accumulate_grad_batches}: a private step has a batch of its own, as large as "
            "rate says, and one noise. Leave it out; Performance(microbatch=64) computes at most 64 units at a time."
        )
    if str(trainer.precision) in HALF:
        raise InvalidValue(f"precision={trainer.precision!r} scales the loss; use 'bf16-mixed' or '32-true'.")


def _rows(data: Any) -> tuple[Any, Any]:
    """The rows to learn from, and what a data module has to validate with."""
    if not hasattr(data, "train_dataloader"):
        return data, None
    data.prepare_data()
    data.setup("fit")
    loader = data.train_dataloader()
    if not isinstance(loader, DataLoader):
        raise InvalidValue(
            f"The data module's training loader must be a DataLoader, which says how rows are read; got "
            f"{type(loader).__name__}. Give the dataset instead."
        )
    from_base = getattr(type(data).val_dataloader, "__module__", "").split(".")[0] in ("lightning", "pytorch_lightning")
    return loader, None if from_base else data.val_dataloader()


@contextmanager
def _patched(thing: Any, **others: Any) -> Iterator[None]:
    """Replace attributes of the module, and restore them afterwards."""
    properties = {name: getattr(thing, name) for name in others if isinstance(getattr(type(thing), name, None), property)}
    before = {**{name: thing.__dict__[name] for name in others if name in thing.__dict__}, **properties}
    try:
        for name, value in others.items():
            setattr(thing, name, value)
        yield
    finally:
        for name in others:
            if name in before:
                setattr(thing, name, before[name])
            else:
                del thing.__dict__[name]


@contextmanager
def _one_epoch(trainer: Any) -> Iterator[None]:
    """All steps are one epoch to Lightning; a Trainer without a limit would ask for a thousand."""
    before = trainer.fit_loop.max_epochs
    trainer.fit_loop.max_epochs = trainer.current_epoch + 1
    try:
        yield
    finally:
        trainer.fit_loop.max_epochs = before
