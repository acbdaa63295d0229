"""The clipped sum of a batch: each unit's gradient, shortened to the clip norm, added to the noise of the step.

All examples are computed at once where they are proven to be independent, each unit by itself otherwise (path.py).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from discreet.errors import DiscreetError, InvalidValue
from discreet.learn.sgd.checks import TRIED, length
from discreet.learn.sgd.clipping import Clipping, Encoded
from discreet.learn.sgd.distributed import Alone as OneProcess
from discreet.learn.sgd.engine import Engine
from discreet.learn.sgd.engine.graphed import Graphed
from discreet.learn.sgd.engine.probe import check_training_mode, checked, probe
from discreet.learn.sgd.engine.tape import Layout
from discreet.learn.sgd.fixed_point import Grid, GridEngine
from discreet.learn.sgd.isolated import Alone, Isolated, Unchanged
from discreet.learn.sgd.path import Apart, Path, code_of, several
from discreet.learn.sgd.plan import Plan
from discreet.learn.sgd.proof.python import put_back
from discreet.learn.sgd.quantile import Quantile
from discreet.learn.sgd.rows import OfBatch, Rows, call, made_up, shapes, split

Loss = Callable[[Any, Any], Tensor]


class ClippedSum:
    """Computes clipped sums for one model and loss into `buffer`, which a step begins by filling with noise."""

    def __init__(
        self, model: nn.Module, loss: Loss, rows: Rows, clipping: Clipping, group: OneProcess, *, path: str | None
    ) -> None:  # fmt: skip
        self.model, self.rows, self.clipping = model, rows, clipping
        self._loss, self._group = loss, group
        self.engine = group.engine(model, rows.rows)
        self.buffer = self.engine.buffer()
        self.device = self.buffer.device
        self.paths = Path(model, self._raw, code_of(loss), path, engine=self.engine, varied=self._varied)
        self.isolated = Isolated(self.engine, self._raw, code_of(loss))
        self.graphed: Graphed | None = None
        self.changes_rows = False  # whether model or loss change the rows of a batch in place
        self._current = self.engine  # computes the batch that a loop of the user's own was given
        self._layouts: dict[Any, Layout] = {}  # by the shapes of a row, where a collate function makes different ones
        self._tried, self._in_eval = self.engine, list[nn.Module]()
        self._frozen = [p for p in model.parameters() if not p.requires_grad]

    @property
    def _varied(self) -> bool:
        """Whether rows differ in shape."""
        return self.rows.loading.collate is not None

    # ---- before anything is charged ----------------------------------------------------------------------------------

    def prepare(self, plan: Plan) -> None:
        """Try the model on made-up rows, prove its independence across examples where possible, and restore it."""
        with Unchanged(self.model, refuse=False), put_back(self.model, code_of(self._loss)):
            self._try()
            self.rows.probe_augment(self.device, torch.Generator().manual_seed(0))
            self._choose_path()
        if isinstance(self.clipping, Encoded):
            self._check_words(plan)
        if plan.fixed_point:
            self._use_fixed_point(plan)
        elif self.device.type == "cuda" and type(self.engine) is Engine and not self._varied:
            moving = isinstance(self.clipping, (Quantile, Encoded))
            self.graphed = None if moving else Graphed(self.engine, self.proven_losses, self.clipping)

    def _try(self, like: Any = None) -> None:
        """Check, on made-up rows, that the model treats every example independently in its current mode."""
        engine, generator = self._tried, torch.Generator().manual_seed(0)
        first = self.rows.first() if like is None else like  # a row that cannot be read is the data's fault, not the model's
        self._layouts[shapes(first)] = engine.tape.layout

        def make(examples: int) -> Any:
            return made_up(first, examples, self.device, generator)

        try:
            alone = self.paths.asked == "isolated"
            self.changes_rows = not probe(engine, self.losses, make, alone=alone)
            if not alone:
                check_training_mode(engine, self.losses, make)
        except DiscreetError:
            raise
        except Exception as error:
            error.add_note(TRIED)
            raise
        self._in_eval = [module for module in self.model.modules() if not module.training]

    def try_shape(self, batch: Any) -> None:
        """Try another shape of rows: the engine's layout of a model is for one shape."""
        if not self._varied:
            return
        layout = self._layouts.get(shapes(batch))
        self._tried.tape.layout = Layout() if layout is None else layout
        if layout is None:
            with put_back(self.model, code_of(self._loss)):
                self._try(batch)

    def check_model(self) -> None:
        """Check that no parameter was unfrozen since the trial; a changed train or eval mode is tried again."""
        if any(p.requires_grad for p in self._frozen):
            raise InvalidValue(
                "A parameter that was fixed when the run began is trained now; its gradient would have neither clipping nor "
                "noise. Fix it again (requires_grad_(False)), and begin another run to train it."
            )
        if any(module.training for module in self._in_eval):
            self._try()

    def _choose_path(self) -> None:
        """Choose the fast path where independence is proven for such rows; otherwise check the isolated path."""
        if self.rows.augment is not None:
            self.rows.apart = Apart(self.rows.augment, self.rows.rows)
        batch = self.rows.like(2 * self.rows.rows, self.device, torch.Generator().manual_seed(0))
        if self.paths.fast(batch):
            return
        if self._group.split:
            raise InvalidValue(f"A model under fully_shard is computed at once, but {self.paths.sentence()}")
        self.isolated.try_on(batch)

    def _check_words(self, plan: Plan) -> None:
        """Check that the code words in the claim are those that replace gradients."""
        if self._group.world > 1:
            raise InvalidValue("Encoded clipping works in one process only. Use another, or train in one process.")
        if plan.word is not None and sum(plan.word[1]) != self.engine.size:
            raise InvalidValue(
                f"The model had {sum(plan.word[1]):,} trained numbers when the words of the code were made, and has "
                f"{self.engine.size:,} now. Make the run again."
            )

    def _use_fixed_point(self, plan: Plan) -> None:
        self.isolated.way = self.isolated.tried = "one by one"
        if self._group.world > 1:
            raise InvalidValue("FixedPoint clipping works in one process only. Use another, or train in one process.")
        grid = Grid(clip_norm=plan.clip_norm, noise_multiplier=plan.noise_multiplier, size=self.engine.size)
        self.engine = self.isolated.engine = GridEngine(self.engine, grid)

    # ---- one step ----------------------------------------------------------------------------------------------------

    def add(self, batch: Any, weight: Tensor | None, scale: float) -> None:
        """Add the clipped sum of a batch, times `scale`, on the path that is proven for it."""
        if not self._fast(batch):
            self.isolated.add(batch, weight, self._clip(None), self.buffer, scale)
            return
        batch, weight = several(batch, weight)
        if self.graphed is not None and self.graphed.add(batch, weight, self.buffer, scale):
            return
        with self.engine.recording(length(batch)):
            self._add(self.engine, self.proven_losses(batch), weight, scale)

    def batches(self, pieces: Iterator[tuple[Any, Tensor | None]]) -> Iterator[tuple[Any, Tensor | None]]:
        """Batches for a loop of the user's own: whole ones on the fast path, one unit at a time otherwise."""
        size = self.rows.rows
        for batch, weight in pieces:
            if self._fast(batch):
                self._current = self.engine
                yield several(batch, weight)
                continue
            self._current = self.engine if isinstance(self.engine, GridEngine) else Alone(self.model, size)
            for start in range(0, length(batch), size):
                part = slice(start, start + size)
                with self.isolated.checked():
                    yield pytree.tree_map(lambda leaf, part=part: leaf[part], batch), None if weight is None else weight[part]

    def recording(self, batch: Any) -> Any:
        """A context in which a user's own loop computes the losses of a batch."""
        return self._current.recording(length(batch))

    def add_losses(self, losses: Any, weight: Tensor | None, scale: float) -> None:
        """Add the clipped sum of the batch that such a loop was given last."""
        self._add(self._current, checked(losses, self._current.tape.examples), weight, scale)

    def _add(self, engine: Engine, losses: Tensor, weight: Tensor | None, scale: float) -> None:
        weighted = losses if weight is None else losses * weight
        engine.add(weighted, self._clip(weight), self.buffer, scale)

    def _fast(self, batch: Any) -> bool:
        """Whether this batch may be computed at once."""
        return self.paths.name == "fast" if self.engine.armed else self.paths.fast(batch)

    def _clip(self, weight: Tensor | None) -> Clipping:
        """The clipping; an adaptive one does not count units of which no row has a weight."""
        if isinstance(self.clipping, Quantile):
            self.clipping.present = None if weight is None else (weight != 0).view(-1, self.rows.rows).any(1)
        return self.clipping

    def losses(self, batch: Any) -> Tensor:
        return checked(self._raw(batch), length(batch))

    def proven_losses(self, batch: Any) -> Tensor:
        """The losses of private rows: on the fast path by the proven program, not by the model's code."""
        return checked((self.paths.program(batch) or self._raw)(batch), length(batch))

    def _raw(self, batch: Any) -> Tensor:
        """The output of model and loss for a batch, before any check."""
        if isinstance(self._loss, OfBatch):
            return self._loss.losses(batch)
        inputs, target = split(batch)
        return self._loss(call(self.model, inputs), target)
