"""Resuming after an interruption: no noise is used for two sums, and whatever is released twice is charged twice.

A run has one key at a time, which draws the batches and the noise of the steps from `start` on. Where a released step differs
when it is repeated, the key is abandoned: the rounds released under it stay spent, a fresh key begins at this step, and rounds
beyond the plan are charged before anything is drawn. docs/theory/learn-resume.md has the accounting.
"""

from __future__ import annotations

import hmac
import os
from pathlib import Path
from typing import NoReturn

from torch import Tensor

from discreet.accounting import curve
from discreet.errors import InvalidDocument, InvalidValue
from discreet.figures import up
from discreet.learn.sgd.clipping import Clipping
from discreet.learn.sgd.distributed import Alone
from discreet.learn.sgd.journal import Journal, beside, fingerprint, together
from discreet.learn.sgd.options import Checkpoint
from discreet.learn.sgd.paying import Payments
from discreet.learn.sgd.plan import State
from discreet.learn.sgd.quantile import Quantile
from discreet.learn.sgd.sampling import Poisson
from discreet.noise.source import open_source


class Recovery:
    """Decides whether a noisy sum may be released, and abandons a key whose noise was released with another sum."""

    def __init__(
        self, state: State, clipping: Clipping, group: Alone, payments: Payments, checkpoint: Checkpoint | None
    ) -> None:  # fmt: skip
        self._state, self._clipping, self._group, self._payments = state, clipping, group, payments
        self._checkpoint = checkpoint
        self._journal = None if checkpoint is None else Journal(beside(checkpoint.file))
        self._copies: list[Journal] = []  # of checkpoints written by hand
        self._given_up: int | None = None  # how many steps a key has released that may not go on
        self._seen, self._process = -1, os.getpid()  # the last step whose noisy sum was seen, and by which process

    # ---- no noise serves two sums ------------------------------------------------------------------------------------

    def check_once(self) -> None:
        """The journal beside a checkpoint compares sums; without one, no step is taken twice."""
        if os.getpid() != self._process:
            raise InvalidValue(
                "This process was forked from the one that began the run, and both would add the same noise to sums of their "
                "own. Begin a run in each process, or iterate this one where it began."
            )
        if self._journal is None and self._state.number <= self._seen:
            raise InvalidValue(
                f"Step {self._state.number + 1} failed after its noisy sum had been computed; taken again, it would put the "
                "same noise on another sum. Train again, or give runs a checkpoint, beside which such sums are compared."
            )

    def admit(self, buffer: Tensor) -> bool:
        """Whether the noisy sum in the buffer may be released: it is new, or equal to the one this step released before.

        Otherwise the step is repeated under a fresh key, which is charged; a run that does not pay stops.
        """
        if self._same(buffer):
            self._seen = self._state.number
            return True
        if self._checkpoint is None or not self._checkpoint.pays:
            self.refuse("this step was released before and now comes out otherwise")
        self.renew(self._released())
        return False

    def _same(self, buffer: Tensor) -> bool:
        own, state, group = self._journal, self._state, self._group
        if own is None and not self._copies:
            return True
        count = group.total(self._clipping.counted()) if isinstance(self._clipping, Quantile) else None
        tag = fingerprint(state.key, state.number, buffer, count)
        tag = together(group.gathered(tag) if group.split else [tag])
        if own is not None and not group.first(lambda: own.admit(state.key, state.number, tag)):
            return False
        if not all(copy.admit(state.key, state.number, tag) for copy in self._copies):
            raise InvalidDocument(
                f"Another run went on from a checkpoint of this one and released another step {state.number + 1} with the same "
                "noise. This step is not taken. Go on from one checkpoint in one place only."
            )
        return True

    # ---- a fresh key -------------------------------------------------------------------------------------------------

    def _extra(self, released: int) -> int:
        """The rounds beyond the plan if a fresh key begins at the current step after the present key released so many
        steps."""
        state = self._state
        rounds, steps = state.plan.sampler.rounds, state.plan.steps
        return state.used + rounds(state.start, max(released, state.number)) + rounds(state.number, steps) - rounds(0, steps)

    def _released(self) -> int:
        """The number of steps released under the present key by the journal; all of them where it is unknown."""
        known = self._noted()
        return self._state.plan.steps if known is None else known

    def _noted(self) -> int | None:
        """The journal's number of released steps, if it has every line that it had when the checkpoint was written."""
        own, state = self._journal, self._state
        return None if own is None else self._group.first(lambda: own.released(state.key, state.noted))

    def resumed(self, same_rows: bool) -> None:
        """After a checkpoint was read, decide whether the run may continue under its key.

        A key continues if the journal is complete, and the sampler has no memory or the units are known to be the same: a unit
        that takes another's number could take part twice in one pass.
        """
        if self._state.done:
            return
        complete = self._noted() is not None
        if complete and (same_rows or isinstance(self._state.plan.sampler, Poisson)):
            return
        pays = self._checkpoint is not None and self._checkpoint.pays
        if not pays and self._extra(self._released()) > self._state.extra:
            lost = "the file of released steps beside it is missing or was cut back"
            self.refuse("its rows are not known to be the same" if complete else lost)
        self._given_up = self._released()

    def refuse(self, why: str) -> NoReturn:
        """Refuse, with the most that resuming could cost: all the rounds released after the checkpoint."""
        state = self._state
        rounds = max(0, self._extra(self._released()) - state.extra)
        cost = "no step was lost, so that costs nothing"
        if rounds:
            epsilon = curve(state.plan.again(rounds)).epsilon(state.plan.delta)
            cost = f"for at most epsilon {up(epsilon)} more at delta {state.plan.delta:g} by itself"
        place = None if self._checkpoint is None else self._checkpoint.path
        raise InvalidDocument(
            f"{place} cannot be continued at step {state.number + 1} with the noise it began with: {why}, and the same "
            "noise on two sums would show what it hides. Start over with another checkpoint file, and pay for it, go on just "
            'as the run began, or ask for Checkpoint(…, resume="pay"): steps that come out otherwise then get fresh noise and '
            f"are paid for ({cost})."
        )

    def renew_if_given_up(self) -> bool:
        """Abandon the key of a checkpoint that may not continue."""
        if self._given_up is None:
            return False
        spent, self._given_up = self._given_up, None
        self.renew(spent)
        return True

    def renew(self, spent: int) -> None:
        """Abandon the key, which has released `spent` steps: charge the rounds beyond the plan, and draw another."""
        state = self._state
        old_key, rounds = state.key, self._extra(spent) - state.extra

        def pay() -> tuple[bytes, bool, tuple[str, ...]]:
            entries = self._payments.again(state.plan, rounds)
            source = open_source()
            return hmac.digest(old_key, b"discreet: fresh key" + source.take(32), "sha256"), source.repeatable, entries

        state.key, repeatable, entries = self._group.first(pay)
        state.entries += entries
        state.repeatable = state.repeatable or repeatable
        state.used += state.plan.sampler.rounds(state.start, max(spent, state.number))
        state.start, state.extra, state.noted = state.number, state.extra + rounds, 0
        if isinstance(self._clipping, Quantile):
            self._clipping.restart()

    # ---- journals ----------------------------------------------------------------------------------------------------

    def copy_to(self, checkpoint: Path) -> None:
        """A checkpoint by hand: every step released after it gets its line beside it, too."""
        if self._group.rank == 0 and all(copy.path != beside(checkpoint) for copy in self._copies):
            self._copies.append(Journal(beside(checkpoint)))

    def keep(self) -> None:
        """From here on every journal has a line for each step released under the key; those released before have theirs."""
        if self._group.rank != 0:
            return
        for journal in self._journals():
            if self._journal is not None and self._journal is not journal:
                journal.take_over(self._journal)
            journal.begin(self._state.key)

    def lines(self, checkpoint: Path) -> int:
        """How many lines about the key the journal beside a checkpoint has."""
        if self._group.rank != 0:
            return 0
        matching = [journal for journal in self._journals() if journal.path == beside(checkpoint)]
        return max((journal.lines(self._state.key) for journal in matching), default=0)

    def _journals(self) -> list[Journal]:
        return [*([] if self._journal is None else [self._journal]), *self._copies]
