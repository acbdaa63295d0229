"""A run: sampling, clipping, noise and accounting in one object, so that what ran is what is claimed."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from discreet.core import Release
from discreet.core.facts import made as made_with
from discreet.errors import InvalidValue, LedgerError
from discreet.learn.sgd import checkpoint as checkpoints
from discreet.learn.sgd import checks, files, rowcheck
from discreet.learn.sgd.checkpoint import Parts
from discreet.learn.sgd.checks import UntrainedState
from discreet.learn.sgd.clipped_sum import ClippedSum, Loss
from discreet.learn.sgd.clipping import Flat
from discreet.learn.sgd.distributed import joined, project
from discreet.learn.sgd.draws import Draws, StepNoise
from discreet.learn.sgd.engine.allocator import keep_freed_memory, trim_memory
from discreet.learn.sgd.failures import charged, without_values
from discreet.learn.sgd.isolated import Unchanged
from discreet.learn.sgd.options import Checkpoint, Performance, Postprocess
from discreet.learn.sgd.path import code_of
from discreet.learn.sgd.paying import Payments
from discreet.learn.sgd.plan import Plan, State
from discreet.learn.sgd.progress import shown
from discreet.learn.sgd.proof.python import put_back
from discreet.learn.sgd.resume import Recovery
from discreet.learn.sgd.rows import Rows

LOOK = 50  # steps between checks whether the weights are still numbers
WARM_UP = 2  # steps of a process in which ways to the same numbers are still compared


@dataclass(frozen=True)
class Step:
    """One step that was taken. Nothing in it depends on private rows except through the released weights."""

    number: int
    steps: int


class Run:
    """A private training run, made by `discreet.learn.train`. Iterating it trains.

    Only what the noise covers can be seen: the weights after each step. Batches, their sizes and losses are not shown.
    """

    def __init__(
        self, model: nn.Module, optimizer: torch.optim.Optimizer, rows: Rows, loss: Loss, plan: Plan, clipping: Flat, *,
        divisor: float | None, payments: Payments, scheduler: Any, checkpoint: Checkpoint | None, performance: Performance,
        postprocess: Postprocess,
    ) -> None:  # fmt: skip
        model, group = joined(model)
        clip, state = clipping.begin(), State(plan, divisor=divisor or 0.0)
        path = "isolated" if plan.fixed_point else performance.path
        microbatch = 1 if plan.fixed_point else performance.microbatch
        self._state, self._payments, self._checkpoint, self._performance = state, payments, checkpoint, performance
        self._sum = ClippedSum(model, loss, rows, clip, group, path=path)
        self._parts = Parts(
            state, model, optimizer, scheduler, rows, loss, clip, postprocess, group, self._sum.device, payments.source
        )
        checks.whole_gpu(self._sum.device)
        keep_freed_memory(model)
        checks.same_parameters(model, optimizer, self._sum.engine.parameters)
        group.agree(self._parts.agreement(checkpoint, performance))
        checks.not_split(group.split, postprocess.gradient, rows.loading.collate)
        group.level(model)
        self._draws = Draws(rows, state, group, microbatch)
        self._noise = StepNoise(state, clip, group)
        self._recovery = Recovery(state, clip, group, payments, checkpoint)
        self._turn: object = None  # of the loop whose noise is in the buffer
        self._pending: tuple[Tensor | None, object] | None = (
            None  # the weights of a batch whose losses a loop owes, and its turn
        )
        self._warm_up = WARM_UP
        self._title = f"{type(model).__name__}, trained privately"  # before a row is read: code may rename a class by one
        self._sum.prepare(plan)
        state.plan = replace(plan, trusted=self._sum.paths.trusted())
        self._untrained = UntrainedState(model, self._sum.engine.parameters)
        if checkpoint is not None and group.first(checkpoint.file.exists):
            self._resume(checkpoint)

    def _resume(self, checkpoint: Checkpoint) -> None:
        """Go on from a checkpoint; refuse one of another plan, since its steps were paid for under other terms.

        Whatever else differs is refused too, unless the run pays for steps that come out otherwise.
        """
        document = self._parts.group.first(lambda: checkpoints.read(checkpoint.file))
        self._parts.check(checkpoint.file, document, paid=self._payments.ledger is not None)
        self._state.restore(document)
        differences = self._parts.differences(document)
        if differences and not checkpoint.pays:
            self._recovery.refuse(f"it was made with {', '.join(differences)}")
        self._parts.restore(checkpoint.file, document)
        self._recovery.resumed(self._parts.same_rows(document) and document["rows"] is not None)
        self._untrained = UntrainedState(self.model, self._sum.engine.parameters)

    # ---- before the first draw ---------------------------------------------------------------------------------------

    def _begin(self) -> None:
        """Check that the rows can be used, pay, then draw the key. What was paid is never given back."""
        if self._state.begun:
            if self._recovery.renew_if_given_up():
                self._save()
            return
        if self._performance.check_rows:
            self._check_rows()
        state, units = self._state, self._parts.rows.units
        begin = self._parts.group.first(lambda: self._payments.begin(state.plan, units, state.divisor))
        state.key, state.repeatable, state.divisor, state.entries = begin
        self._save()

    def _check_rows(self) -> None:
        """Check that model and loss accept the rows. State changed here depends on private rows: it is restored or refused."""
        split = self._parts.group.split
        with Unchanged(self.model), nullcontext() if split else put_back(self.model, code_of(self._parts.loss)):
            rowcheck.check(self._sum, split)

    # ---- training ----------------------------------------------------------------------------------------------------

    def __iter__(self) -> Iterator[Step]:
        while not self._state.done:
            with charged(self._state, self._parts.source):
                with without_values(), self._random_numbers():
                    for batch, weight in self._pieces(own=self._sum.changes_rows):
                        self._sum.add(batch, weight, 1.0 / self._state.divisor)
                accepted = self._update()
            if accepted:
                yield Step(self.number, self.plan.steps)

    def fit(self, *callbacks: Callable[[Step], Any], progress: bool = False) -> Run:
        """Take the steps that are left. After each of them every callback is called with it; one that returns False ends it.

            run.fit(lambda step: print(step.number, run.spent()))

        A callback sees what a loop would: the number of the step, and the model. Stopping early gives nothing back.
        `progress` shows a bar on stderr.
        """
        for step in shown(iter(self), self) if progress and self._parts.group.rank == 0 else self:
            answers = [callback(step) for callback in callbacks]
            if any(answer is False for answer in answers):
                break
        return self

    def __len__(self) -> int:
        return self.plan.steps

    def batches(self) -> Iterator[Any]:
        """For a loop of your own: batches of rows, after each of which `step` must be called with their losses.

        An empty batch is a step too, but there is nothing to compute, so it is taken without being shown. Where units own
        several rows, some rows of a batch only fill up; `step` gives them no weight. Of several processes each gets its part.
        """
        if not self._state.begun:
            self._state.plan = replace(self.plan, trusted=self._sum.paths.trusted(own_loop=True))
        while not self._state.done:
            with charged(self._state, self._parts.source):
                with without_values(), self._random_numbers():
                    for batch, weight in self._sum.batches(self._pieces()):
                        self._pending = (weight, self._turn)
                        with self._sum.recording(batch):
                            yield batch
                            if self._pending is not None:
                                raise InvalidValue("A batch was taken without run.step(losses); call it once for every batch.")
                self._update()

    def step(self, losses: Tensor) -> None:
        """The losses of the rows of the batch that `batches` gave last, one for each."""
        if self._pending is None or self._pending[1] is not self._turn:
            raise InvalidValue("run.step(losses) belongs inside `for batch in run.batches()`, once for every batch.")
        weight, self._pending = self._pending[0], None
        with charged(self._state, self._parts.source), without_values():
            self._sum.add_losses(losses, weight, 1.0 / self._state.divisor)

    def _pieces(self, own: bool = True) -> Iterator[tuple[Any, Tensor | None]]:
        """Fill the buffer with the noise of this step, then give its batch in pieces of at most `microbatch` units."""
        self._begin()
        self._sum.check_model()
        self._recovery.check_once()
        turn = self._turn = object()
        self._noise.fill(self._sum.buffer, self._sum.engine)
        for batch, weight in self._draws.batches(self._sum, own):
            yield batch, weight
            if self._turn is not turn:  # its sums would be added to another's noise, some of them twice
                raise InvalidValue("Another loop over this run began meanwhile; only one may be under way at a time.")

    def _random_numbers(self) -> AbstractContextManager[None]:
        self._begin()  # here, where errors are without values: it reads private rows
        return self._noise.random_numbers(self._sum.device)

    def _update(self) -> bool:
        """Take the step if its noisy sum may be released; otherwise it is repeated under a fresh key, which is charged."""
        state, parts, parameters = self._state, self._parts, self._sum.engine.parameters
        self._turn = None
        parts.group.reduce(self._sum.buffer)
        if not self._recovery.admit(self._sum.buffer):
            self._save()
            return False
        for parameter, view in self._sum.engine.views(self._sum.buffer).items():
            if parameter.requires_grad:  # one that was fixed meanwhile would be moved by noise alone
                parameter.grad = view if view.dtype == parameter.dtype else view.to(parameter.dtype)
        checks.only_gradients_of(parameters, parts.optimizer)
        if parts.postprocess.gradient is not None:
            parts.postprocess.gradient([p.grad for p in parameters if p.grad is not None], self._noise.scale())
        parts.optimizer.step()
        for parameter in parameters:
            parameter.grad = None
        if parts.postprocess.radius is not None:
            project(parameters, parts.postprocess.radius, parts.group)
        self._noise.adapt()
        state.number += 1
        self._after_step()
        return True

    def _after_step(self) -> None:
        """Work after each step: checks, the scheduler, a checkpoint, and at the end the ledger."""
        number, done, checkpoint = self.number, self._state.done, self._checkpoint
        self._warm_up -= 1
        if not self._warm_up:
            trim_memory()
        if number % LOOK == 0 or done:
            self._check_finite()
        if self._parts.scheduler is not None:
            self._parts.scheduler.step()
        if checkpoint is not None and (number % checkpoint.every == 0 or done):
            self._save()
        if done:
            with suppress(LedgerError):  # a release settles the charges too, and says what is wrong
                self._payments.settle(self._state.entries, self._parts.group.rank)

    def _check_finite(self) -> None:
        checks.finite(self._sum.engine.parameters, self._parts.group, self.number)

    # ---- what may be reported ----------------------------------------------------------------------------------------

    @property
    def model(self) -> nn.Module:
        return self._parts.model

    @property
    def optimizer(self) -> Any:
        return self._parts.optimizer

    @optimizer.setter
    def optimizer(self, optimizer: Any) -> None:
        """For trainers that wrap the optimizer, to count its steps."""
        self._parts.optimizer = optimizer

    @property
    def plan(self) -> Plan:
        """The plan of the run: everything that its privacy depends on."""
        return self._state.plan

    @property
    def number(self) -> int:
        """How many steps have been taken."""
        return self._state.number

    @property
    def divisor(self) -> float | None:
        """The divisor of the noisy sum; None until the units have been counted with noise."""
        return self._state.divisor or None

    @property
    def path(self) -> str:
        """How gradients are computed: "fast" (all examples at once, proven independent) or "isolated" (each unit alone)."""
        return self._sum.paths.name

    @property
    def why(self) -> str:
        """The reason for this path: what was proven, or the operation that prevents a proof."""
        return self._sum.paths.why

    def spent(self) -> float:
        """Epsilon at the plan's delta for the steps taken so far; the whole plan was paid for before the first."""
        return self._state.spent()

    def release(
        self, path: str | os.PathLike[str] | None = None, *, quality: Mapping[str, float] | None = None
    ) -> Release[nn.Module]:  # fmt: skip
        """The model with its claim, written to a folder where one is given: model.safetensors and release.json.

        The claim is that of the whole plan, also where the run stopped early: when it stopped may have depended on the data.
        `quality` is for the report: how useful the model is, as `discreet.learn.evaluate` measures it on data that are not
        private. Nothing covers what it reveals about these.
        """
        state, plan, group = self._state, self.plan, self._parts.group
        if not state.begun:
            raise InvalidValue("Nothing has been trained yet: iterate the run first (for step in run: …).")
        if state.repeatable:
            raise InvalidValue("This run drew its noise from a seeded source, which anyone can repeat. It cannot be released.")
        self._check_finite()
        weights = self.model.state_dict()  # asked for once: what is checked is what is written
        self._untrained.check(self.model, weights)
        self._payments.settle(state.entries, group.rank)
        facts = {"title": self._title, "made": made_with(), "spending": plan.spending(state.extra),
                 "isolation": self._sum.paths.facts(self._sum.isolated)}  # fmt: skip
        facts |= {} if quality is None else {"quality": dict(quality)}
        release = Release(
            value=self.model, source=self._parts.source, claims=(plan.claim(state.extra),),
            entry=state.entries[0] if state.entries else None, also=state.entries[1:], facts=facts,
        )  # fmt: skip
        written = [release]
        if path is not None:
            weights = group.whole(weights)
            group.write(lambda: written.append(files.write(release, Path(path), weights)))
        return written[-1]

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write a checkpoint from which to resume. It holds the noise key: keep it as safe as the data, and delete it later."""
        self._begin()
        self._untrained.check(self.model)
        place = Path(path)
        if self._checkpoint is None or place.absolute() != self._checkpoint.file.absolute():
            self._recovery.copy_to(place)
        self._write(place)
        return place

    def _save(self) -> None:
        if self._checkpoint is None:
            self._recovery.keep()
        else:
            self._write(self._checkpoint.file)

    def _write(self, path: Path) -> None:
        self._untrained.check(self.model)
        self._recovery.keep()
        document = self._parts.document(self._recovery.lines(path))
        self._parts.group.write(lambda: checkpoints.write(path, document))

    def __reduce_ex__(self, protocol: Any) -> Any:
        raise InvalidValue(
            "A run holds the key of its noise: a copy would release the same noise twice, which can then be taken away. Use "
            "run.save(path) to go on later, and train again, with new noise, to try other settings."
        )

    def __repr__(self) -> str:
        rows = self._parts.rows.rows
        return f"Run({type(self.model).__name__}: {self.number} of {self.plan.steps} steps, {rows} rows a unit at most)"
