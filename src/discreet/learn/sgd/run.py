"""A run: sampling, clipping, noise and accounting in one object, so that what ran is what is claimed."""

from __future__ import annotations

import hmac
import math
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from discreet.accounting import curve
from discreet.core import Release
from discreet.core.facts import made as made_with
from discreet.errors import DiscreetError, InvalidValue, LedgerError
from discreet.learn.sgd import checkpoint as checkpoints
from discreet.learn.sgd import files, rowcheck, settings
from discreet.learn.sgd import resume as resume_from
from discreet.learn.sgd.banded import Banded, Correlated
from discreet.learn.sgd.checks import TRIED, length, same_parameters, whole_gpu
from discreet.learn.sgd.clipping import Clipping, Flat
from discreet.learn.sgd.distributed import joined, local
from discreet.learn.sgd.draws import batches
from discreet.learn.sgd.engine import Engine
from discreet.learn.sgd.engine.graphed import Graphed
from discreet.learn.sgd.engine.heap import give_back, keep_what_is_freed
from discreet.learn.sgd.engine.probe import checked, probe
from discreet.learn.sgd.engine.tape import Layout
from discreet.learn.sgd.engine.training import shares
from discreet.learn.sgd.failures import charged, without_values
from discreet.learn.sgd.grid import Grid, GridEngine, GridStream
from discreet.learn.sgd.isolated import Alone, Isolated, Unchanged
from discreet.learn.sgd.journal import Journal, beside
from discreet.learn.sgd.kept import Kept
from discreet.learn.sgd.path import Apart, code_of, several
from discreet.learn.sgd.path import Path as Way
from discreet.learn.sgd.paying import Payments
from discreet.learn.sgd.plan import Plan
from discreet.learn.sgd.progress import shown
from discreet.learn.sgd.proof.python import put_back
from discreet.learn.sgd.quantile import Quantile
from discreet.learn.sgd.quantile import split as quantiles
from discreet.learn.sgd.rows import OfBatch, Rows, call, made_up, shapes, split
from discreet.learn.sgd.sampling import Poisson
from discreet.learn.sgd.smooth import After
from discreet.learn.sgd.stream import Stream
from discreet.noise import discrete_laplace
from discreet.noise.source import open_source, refuse_seeded

Loss = Callable[[Any, Any], Tensor]
LOOK = 50  # steps between looks at whether the weights are still numbers


@dataclass(frozen=True)
class Step:
    """One step that was taken. Nothing in it depends on private rows except through the released weights."""

    number: int
    steps: int


class Run:
    """Private training under way; `discreet.learn.train` makes one. Iterating it trains.

    Only what the noise covers can be seen: the weights after each step. Batches, their sizes and losses are not shown.
    """

    def __init__(
        self, model: nn.Module, optimizer: torch.optim.Optimizer, rows: Rows, loss: Loss, plan: Plan, clipping: Clipping, *,
        divisor: float | None, microbatch: int | None, ledger: Any, source: str, account: str | None,
        checkpoint: str | os.PathLike[str] | None, every: int, after: After | None = None, radius: float | None = None,
        progress: bool = False, scheduler: Any = None, resume: str = "exact", check_rows: bool = True, path: str | None = None,
    ) -> None:  # fmt: skip
        model, self._group = joined(model)
        self.model, self.optimizer, self.plan = model, optimizer, plan
        self.number = 0
        self._rows, self._loss, self._clipping, self._microbatch = rows, loss, clipping, microbatch
        self._divisor = divisor
        self._after, self._radius, self._progress = after, radius, progress and self._group.rank == 0
        self._ledger, self._source = ledger, source
        self._payments = Payments(ledger, source, account)
        self._settings = settings.given(optimizer, scheduler)  # as the run began; a checkpoint must be of the same
        self._key: bytes | None = None
        self._repeatable = False
        self._start, self._used, self._extra, self._noted = 0, 0, 0, 0  # of the key: see resume.py
        self._scheduler, self._pays, self._check_rows = scheduler, resume == "pay", check_rows
        self._checkpoint, self._every = (None if checkpoint is None else Path(checkpoint)), every
        self._journal = None if self._checkpoint is None else Journal(beside(self._checkpoint))
        self._feed: tuple[bytes | None, int, Any] = (None, 0, None)  # rows read ahead: the key and the step they are for
        self._copies: list[Journal] = []  # of checkpoints written by hand
        self._given_up: int | None = None  # how many steps a key has released that may not go on
        self._engine = self._group.engine(model, rows.rows)
        self._buffer = self._engine.buffer()
        self._device = self._buffer.device
        whole_gpu(self._device)
        keep_what_is_freed(model)
        self._pending: list[Any] | None = None
        self._shown, self._process = -1, os.getpid()  # the last step whose noisy sum was seen, and by whom
        self._turn: object = None  # of the loop whose noise is in the buffer
        self._now = self._engine  # what computes the batch that a loop of the user's own was given
        self._unsettled = 2  # steps in which ways to the same numbers are still compared
        self._made_up = False  # whether the rows at hand only keep this process in step with others
        fixed = not isinstance(clipping, Quantile) and not plan.grid and type(self._engine) is Engine
        fixed = fixed and rows.loading.collate is None
        self._graphed = Graphed(self._engine, self._computed, clipping) if self._device.type == "cuda" and fixed else None
        self._layouts: dict[Any, Layout] = {}  # by the shapes of a row, where a collate function makes different ones
        same_parameters(model, optimizer, self._engine.parameters)
        self._group.agree(self._facts())
        if after is not None and self._group.split:
            raise InvalidValue("after sees whole gradients, which a model under fully_shard never has. Leave it out.")
        if self._group.split and rows.loading.collate is not None:
            raise InvalidValue(
                "A collate_fn under fully_shard: processes would call the model differently often. Leave it out."
            )
        self._group.level(model)
        self._ours = {id(p) for p in self._engine.parameters}
        self._fixed = [p for p in model.parameters() if not p.requires_grad]
        self._title = f"{type(model).__name__}, trained privately"  # before a row is read: code may rename a class by one
        varied = rows.loading.collate is not None
        self._paths = Way(
            model, self._raw, code_of(loss), "isolated" if plan.grid else path, engine=self._engine, varied=varied
        )
        self._isolated = Isolated(self._engine, self._raw, code_of(loss))
        with Unchanged(model, refuse=False), put_back(model, code_of(loss)):  # a trial leaves the model as it was
            self._try(self._engine)
            rows.probe_augment(self._device, torch.Generator().manual_seed(0))
            self._choose()
        self.plan = replace(plan, trusted=self._paths.trusted())
        self._kept = Kept(model, self._engine.parameters)
        if plan.grid:
            self._engine = self._on_grid(self._engine)
        if self._checkpoint is not None and self._group.first(self._checkpoint.exists):
            self._given_up = resume_from.loaded(self, checkpoints.load(self._checkpoint, self))
            self._kept = Kept(model, self._engine.parameters)

    def _try(self, engine: Engine, like: Any = None) -> None:
        """See, on made-up rows, that the model treats every example on its own in the mode that it is in."""
        generator = torch.Generator().manual_seed(0)
        first = self._rows.first() if like is None else like  # a row that cannot be read is the data's fault, not the model's
        self._layouts[shapes(first)] = engine.tape.layout

        def make(examples: int) -> Any:
            return made_up(first, examples, self._device, generator)

        try:
            alone = self._paths.asked == "isolated"
            self._gentle = probe(engine, self._losses, make, alone=alone)
            if not alone:
                shares(engine, self._losses, make)
        except DiscreetError:
            raise
        except Exception as error:
            error.add_note(TRIED)
            raise
        self._tried, self._asleep = engine, [module for module in self.model.modules() if not module.training]

    def _shaped(self, batch: Any) -> None:
        """Rows of unequal length: what the engine knows of a model is about one shape, so each shape is tried by itself."""
        if self._rows.loading.collate is None:
            return
        layout = self._layouts.get(shapes(batch))
        self._tried.tape.layout = Layout() if layout is None else layout
        if layout is None:
            with put_back(self.model, code_of(self._loss)):
                self._try(self._tried, batch)

    def _choose(self) -> None:
        """Prove what can be proven of rows like these, before anything is charged; see that the other path works otherwise."""
        if self._rows.augment is not None:
            self._rows.apart = Apart(self._rows.augment, self._rows.rows)
        made = self._rows.like(2 * self._rows.rows, self._device, torch.Generator().manual_seed(0))
        if self._paths.fast(made):
            return
        if self._group.split:
            raise InvalidValue(f"A model under fully_shard is computed at once, but {self._paths.sentence()}")
        self._isolated.try_on(made)

    def _fast(self, batch: Any) -> bool:
        """Whether this batch may be computed at once; a loop that another one interrupts is refused later anyway."""
        return self.path == "fast" if self._engine.armed else self._paths.fast(batch)

    def _on_grid(self, engine: Engine) -> GridEngine:
        self._isolated.way = self._isolated.tried = "one by one"
        if self._group.world > 1:
            raise InvalidValue("grid=True works in one process only. Leave it out, or train in one process.")
        multiplier, norm = self.plan.noise_multiplier, self.plan.clip_norm
        made = GridEngine(engine, Grid(clip_norm=norm, noise_multiplier=multiplier, size=engine.size))
        self._isolated.engine = made
        return made

    def _facts(self) -> dict[str, Any]:
        """What all processes of one run must agree about."""
        return {
            "plan": self.plan.document(), "clipping": repr(vars(self._clipping)), "divisor": self._divisor,
            "number of units": self._rows.units, "microbatch": self._microbatch, "radius": self._radius, "every": self._every,
            "checkpoint": self._checkpoint is not None, "resume": self._pays,
            "parameters": [(name, tuple(p.shape), p.requires_grad) for name, p in self.model.named_parameters()],
            "optimizer": [{name: repr(it) for name, it in g.items() if name != "params"} for g in self.optimizer.param_groups],
        }  # fmt: skip

    # ---- before the first draw ---------------------------------------------------------------------------------------

    def _begin(self) -> None:
        """See that the rows can be used, pay, then draw the key. What was paid is never given back."""
        if self._key is not None:
            if self._given_up is not None:
                spent, self._given_up = self._given_up, None
                resume_from.renew(self, spent)
            return
        if self._check_rows:
            self._look_at_rows()
        self._key, self._repeatable, self._divisor, self._payments.entries = self._group.first(self._pay)
        self._save()

    def _look_at_rows(self) -> None:
        """See that model and loss take the rows. What that leaves behind is of private rows: it is put back or refused."""
        with Unchanged(self.model), nullcontext() if self._group.split else put_back(self.model, code_of(self._loss)):
            rowcheck.check(self)

    @property
    def _entry(self) -> str | None:
        """The ledger entry that paid for the plan."""
        return self._payments.entries[0] if self._payments.entries else None

    def _pay(self) -> tuple[bytes, bool, float, tuple[str, ...]]:
        """In the first process alone, where there are several."""
        if self._ledger is not None:
            refuse_seeded()
            self._payments.first(self.plan)
        source = open_source()
        key, divisor = source.take(32), self._divisor
        if divisor is None:
            assert self.plan.count_scale is not None
            noisy = self._rows.units + int(discrete_laplace(self.plan.count_scale, 1)[0])
            divisor = max(1.0, self.plan.sampler.rate * max(noisy, 1))
        return key, source.repeatable, divisor, self._payments.entries

    def _settle(self) -> None:
        """The run has ended: its charges are settled, which gives nothing back."""
        if self._ledger is not None and self._group.rank == 0:
            self._payments.settle()

    # ---- training ----------------------------------------------------------------------------------------------------

    def __iter__(self) -> Iterator[Step]:
        return shown(self._steps(), self) if self._progress else self._steps()

    def _steps(self) -> Iterator[Step]:
        while self.number < self.plan.steps:
            with charged(self):
                with without_values(), self._drawing():
                    for batch, weight in self._pieces(own=not self._gentle):
                        self._piece(batch, weight)
                taken = self._update()
            if taken:
                yield Step(self.number, self.plan.steps)

    def _piece(self, batch: Any, weight: Tensor | None) -> None:
        """Add the clipped sum of a part of a batch, on the path that is proven for it."""
        if not self._fast(batch):
            self._isolated.add(batch, weight, self._counting(), self._buffer, 1.0 / self._public_divisor())
            return
        batch, weight = several(batch, weight)
        if self._graphed is not None and self._graphed.add(batch, weight, self._buffer, 1.0 / self._public_divisor()):
            return
        with self._engine.recording(length(batch)):
            self._add(self._computed(batch), weight)

    def fit(self, *callbacks: Callable[[Step], Any]) -> Run:
        """Take the steps that are left. After each of them every callback is called with it; one that returns False ends it.

            run.fit(lambda step: print(step.number, run.spent()))

        A callback sees what a loop would: the number of the step, and the model. Stopping early gives nothing back.
        """
        for step in self:
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
        if self._key is None:
            self.plan = replace(self.plan, trusted=self._paths.trusted(own_loop=True))
        while self.number < self.plan.steps:
            with charged(self):
                with without_values(), self._drawing():
                    for batch, weight in self._units():
                        self._pending = [weight, self._turn]
                        with self._now.recording(length(batch)):
                            yield batch
                            if self._pending is not None:
                                raise InvalidValue("A batch was taken without run.step(losses); call it once for every batch.")
                self._update()

    def _units(self) -> Iterator[tuple[Any, Tensor | None]]:
        """Batches for a loop that is not ours: whole ones on the fast path, one unit at a time otherwise."""
        size = self._rows.rows
        for batch, weight in self._pieces():
            if self._fast(batch):
                self._now = self._engine
                yield several(batch, weight)
                continue
            self._now = self._engine if self.plan.grid else Alone(self.model, self._rows.rows)
            for start in range(0, length(batch), size):
                part = slice(start, start + size)
                with self._isolated.checked():
                    yield pytree.tree_map(lambda leaf, part=part: leaf[part], batch), None if weight is None else weight[part]

    def step(self, losses: Tensor) -> None:
        """The losses of the rows of the batch that `batches` gave last, one for each."""
        if self._pending is None or self._pending[1] is not self._turn:
            raise InvalidValue("run.step(losses) belongs inside `for batch in run.batches()`, once for every batch.")
        weight, self._pending = self._pending[0], None
        with charged(self), without_values():
            self._add(checked(losses, self._now.tape.examples), weight, self._now)

    def _pieces(self, own: bool = True) -> Iterator[tuple[Any, Tensor | None]]:
        """The noise of this step, then its batch in pieces of at most `microbatch` units."""
        self._begin()
        assert self._key is not None
        assert self._divisor is not None
        self._as_tried()
        self._only_once()
        turn = self._turn = object()
        self._group.noise(self._stream(), self._buffer, step=self.number, scale=self._scale())
        for batch, weight in batches(self, own):
            yield batch, weight
            if self._turn is not turn:  # its sums would be added to another's noise, some of them twice
                raise InvalidValue("Another loop over this run began meanwhile; only one may be under way at a time.")

    def _only_once(self) -> None:
        """No noise serves two sums: the journal beside a checkpoint compares them; without one, no step is taken twice."""
        if os.getpid() != self._process:
            raise InvalidValue(
                "This process was forked from the one that began the run, and both would add the same noise to sums of their "
                "own. Begin a run in each process, or iterate this one where it began."
            )
        if self._journal is None and self.number <= self._shown:
            raise InvalidValue(
                f"Step {self.number + 1} failed after its noisy sum had been computed; taken again, it would put the same "
                "noise on another sum. Train again, or give runs a checkpoint, beside which such sums are compared."
            )

    @contextmanager
    def _drawing(self) -> Iterator[None]:
        """What model, loss and augmentation draw in this step comes from the run's key.

        With a seed that somebody knows, the numbers that a unit gets tell its place in the batch, and so who is before it.
        """
        self._begin()
        assert self._key is not None
        step = hmac.digest(self._key, b"discreet: draws of model and loss" + self.number.to_bytes(8, "big"), "sha256")
        devices = [self._device] if self._device.type == "cuda" else []
        with torch.random.fork_rng(devices=devices):
            torch.manual_seed(int.from_bytes(step[:8], "big") >> 1)
            yield

    def _public_divisor(self) -> float:
        assert self._divisor is not None
        return self._divisor

    def _scale(self) -> float:
        """The standard deviation of the noise in what reaches the optimizer."""
        assert self._divisor is not None
        noise = self.plan.noise_multiplier
        if isinstance(self._clipping, Quantile):
            noise = quantiles(noise, self._count_noise())
        return noise * self._clipping.norm / self._divisor

    def _count_noise(self) -> float:
        """The noise of the count behind a clip norm that follows a quantile; sum and count together cost the plan's noise."""
        assert self._divisor is not None
        return max(self._divisor / 20, self.plan.noise_multiplier)

    def _follow(self, clipping: Quantile) -> None:
        """Move the clip norm by the noisy share of units that were not clipped."""
        assert self._key is not None
        assert self._divisor is not None
        counting = Stream(hmac.digest(self._key, b"discreet: count of the unclipped", "sha256"))
        noise = counting.fill(torch.empty(1), step=self.number, scale=self._count_noise())
        clipping.update(float(noise), batch=self._divisor, counted=self._group.total(clipping.counted()))

    @torch.no_grad()
    def _project(self, radius: float) -> None:
        """Bring weights that left the ball back to its surface."""
        square = sum(float(local(p).square().sum()) for p in self._engine.parameters)
        length = math.sqrt(self._group.total(square) if self._group.split else square)
        if length > radius:
            for p in self._engine.parameters:
                p.mul_(radius / length)

    def _stream(self) -> Stream | Correlated | GridStream:
        assert self._key is not None
        if isinstance(self._engine, GridEngine):
            return GridStream(self._key, self._engine)
        if not hasattr(self, "_noise"):
            plain = Stream(self._key, self._device)
            banded = isinstance(self.plan.sampler, Banded)
            self._noise = Correlated(self.plan.sampler, plain, self._start) if banded else plain  # type: ignore[arg-type]
        return self._noise

    def _forget_noise(self) -> None:
        """There is another key."""
        if hasattr(self, "_noise"):
            del self._noise

    def _remembers(self) -> bool:
        """Whether a unit's part in a step depends on its part in others, so that units must keep their numbers."""
        return not isinstance(self.plan.sampler, Poisson)

    def _rows_mark(self) -> str | None:
        return self._rows.mark(read=self._remembers())

    def _losses(self, batch: Any) -> Tensor:
        return checked(self._raw(batch), length(batch))

    def _computed(self, batch: Any) -> Tensor:
        """The losses of private rows: by the program that was proven, where the path is fast, and not by the model's code."""
        return checked((self._paths.program(batch) or self._raw)(batch), length(batch))

    def _raw(self, batch: Any) -> Tensor:
        """What model and loss make of a batch, with nothing asked about it yet."""
        if isinstance(self._loss, OfBatch):
            return self._loss.losses(batch)
        inputs, target = split(batch)
        return self._loss(call(self.model, inputs), target)

    def _add(self, losses: Tensor, weight: Tensor | None, engine: Engine | None = None) -> None:
        assert self._divisor is not None
        weighted = losses if weight is None else losses * weight
        (engine or self._engine).add(weighted, self._counting(weight), self._buffer, 1.0 / self._divisor)

    def _counting(self, weight: Tensor | None = None) -> Clipping:
        """The clipping; nobody counts made-up rows, nor units of which no row has a weight."""
        if self._made_up:
            return Flat(self._clipping.norm)
        if isinstance(self._clipping, Quantile):
            self._clipping.present = None if weight is None else (weight != 0).view(-1, self._rows.rows).any(1)
        return self._clipping

    def _update(self) -> bool:
        """Take the step, if its noisy sum may be seen; else it is to be taken again under a fresh key, which is paid for."""
        self._turn = None
        self._group.reduce(self._buffer)
        if not resume_from.admitted(self):
            if not self._pays:
                resume_from.refuse(self, "this step was released before and now comes out otherwise")
            resume_from.renew(self, resume_from.released(self))
            return False
        self._shown = self.number
        for parameter, view in self._engine.views(self._buffer).items():
            if parameter.requires_grad:  # one that was fixed meanwhile would be moved by noise alone
                parameter.grad = view if view.dtype == parameter.dtype else view.to(parameter.dtype)
        self._only_ours()
        if self._after is not None:
            self._after([p.grad for p in self._engine.parameters if p.grad is not None], self._scale())
        self.optimizer.step()
        for parameter in self._engine.parameters:
            parameter.grad = None
        if self._radius is not None:
            self._project(self._radius)
        if isinstance(self._clipping, Quantile):
            self._follow(self._clipping)
        self.number, self._unsettled = self.number + 1, self._unsettled - 1
        if not self._unsettled:
            give_back()
        if self.number % LOOK == 0 or self.number == self.plan.steps:
            self._look()
        if self._scheduler is not None:
            self._scheduler.step()
        if self._checkpoint is not None and (self.number % self._every == 0 or self.number == self.plan.steps):
            self._save()
        if self.number == self.plan.steps:
            with suppress(LedgerError):  # a release settles them too, and says what is wrong
                self._settle()
        return True

    def _as_tried(self) -> None:
        """The model is the one that was tried: nothing thawed, and what was in eval mode and is not now is tried again."""
        if any(p.requires_grad for p in self._fixed):
            raise InvalidValue(
                "A parameter that was fixed when the run began is trained now; its gradient would have neither clipping nor "
                "noise. Fix it again (requires_grad_(False)), and begin another run to train it."
            )
        if any(module.training for module in self._asleep):
            self._try(self._tried)

    def _only_ours(self) -> None:
        """A gradient that the engine did not make has neither been clipped nor has it noise: no step is taken with it."""
        held = [p for group in self.optimizer.param_groups for p in group["params"]]
        strange = [p for p in held if p.grad is not None and id(p) not in self._ours]
        if strange:
            for p in held:
                p.grad = None
            raise InvalidValue(
                f"The optimizer holds {len(strange)} parameters with gradients that are not of this run: they were added to "
                "the model or the optimizer after it began. Begin another run with the model as it is now."
            )

    def _look(self) -> None:
        if not self._group.every(all(bool(torch.isfinite(local(p)).all()) for p in self._engine.parameters)):
            raise DiscreetError(
                f"The weights are no longer finite numbers after step {self.number}: the run has diverged. Lower the learning "
                "rate; the gradients that reach the optimizer are clipped, so a diverging update comes from its own settings."
            )

    # ---- what may be told --------------------------------------------------------------------------------------------

    @property
    def path(self) -> str:
        """How gradients are computed: "fast" (all examples at once, proven independent) or "isolated" (each unit alone)."""
        return self._paths.name

    @property
    def why(self) -> str:
        """Why it is this path: what was proven, or the operation that stands in the way of a proof."""
        return self._paths.why

    def spent(self) -> float:
        """Epsilon at the plan's delta for the steps taken so far; the whole plan was paid for before the first."""
        if self._key is None:
            return 0.0
        rounds = self._used + self.plan.sampler.rounds(self._start, self.number)
        return float(curve(self.plan.of_rounds(rounds)).epsilon(self.plan.delta))

    def release(
        self, path: str | os.PathLike[str] | None = None, *, quality: Mapping[str, float] | None = None
    ) -> Release[nn.Module]:  # fmt: skip
        """The model with its claim, written to a folder where one is given: model.safetensors and release.json.

        The claim is that of the whole plan, also where the run stopped early: when it stopped may have depended on the data.
        `quality` is for the report: how useful the model is, as `discreet.learn.evaluate` measures it on data that are not
        private. Nothing covers what is told about these.
        """
        if self._key is None:
            raise InvalidValue("Nothing has been trained yet: iterate the run first (for step in run: …).")
        if self._repeatable:
            raise InvalidValue("This run drew its noise from a seeded source, which anyone can repeat. It cannot be released.")
        self._look()
        state = self.model.state_dict()  # asked for once: what is checked is what is written
        self._kept.check(self.model, state)
        self._settle()
        made = Release(
            value=self.model, source=self._source, claims=(self.plan.claim(self._extra),), entry=self._entry,
            also=self._payments.entries[1:],
            facts={
                "title": self._title, "made": made_with(), "spending": self.plan.spending(self._extra),
                "isolation": self._paths.facts(self._isolated),
                **({} if quality is None else {"quality": dict(quality)}),
            },
        )  # fmt: skip
        written = [made]
        if path is not None:
            state = self._group.whole(state)
            self._group.write(lambda: written.append(files.write(made, Path(path), state)))
        return written[-1]

    def save(self, path: str | os.PathLike[str]) -> Path:
        """A checkpoint to go on from. It holds the key of the noise: keep it as safe as the data, delete it afterwards."""
        self._begin()
        self._kept.check(self.model)
        return resume_from.saved(self, Path(path))

    def _save(self) -> None:
        resume_from.keep(self)
        if self._checkpoint is not None:
            self._kept.check(self.model)
            checkpoints.save(self._checkpoint, self)

    def __reduce_ex__(self, protocol: Any) -> Any:
        raise InvalidValue(
            "A run holds the key of its noise: a copy would release the same noise twice, which can then be taken away. Use "
            "run.save(path) to go on later, and train again, with new noise, to try other settings."
        )

    def __repr__(self) -> str:
        return (
            f"Run({type(self.model).__name__}: {self.number} of {self.plan.steps} steps, {self._rows.rows} rows a unit at most)"
        )
