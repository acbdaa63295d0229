"""Going on after an interruption: no noise serves two sums, and whatever is released twice is paid for twice.

A run has one key at a time, which draws the batches and the noise of the steps from `start` on. Where a step that was released
before comes out otherwise, the key is given up: the rounds released under it stay spent, a fresh key begins at this step, and
the rounds that the plan does not hold are charged before anything is drawn. docs/theory/learn-resume.md has the accounting.
"""

from __future__ import annotations

import hmac
from pathlib import Path
from typing import TYPE_CHECKING

from discreet.accounting import curve
from discreet.core import Claim
from discreet.errors import InvalidDocument
from discreet.learn.sgd import checkpoint as checkpoints
from discreet.learn.sgd import journal as journals
from discreet.learn.sgd.quantile import Quantile
from discreet.noise.source import open_source

if TYPE_CHECKING:
    from discreet.learn.sgd.run import Run


def admitted(run: Run) -> bool:
    """Whether the noisy sum in the buffer may be seen: it is new, or the one that this step released before."""
    if run._journal is None and not run._copies:
        return True
    assert run._key is not None
    clipping = run._clipping
    count = run._group.total(clipping.counted()) if isinstance(clipping, Quantile) else None
    tag = journals.fingerprint(run._key, run.number, run._buffer, count)
    tag = journals.together(run._group.gathered(tag) if run._group.split else [tag])
    key, own = run._key, run._journal
    if own is not None and not run._group.first(lambda: own.admit(key, run.number, tag)):
        return False
    if not all(copy.admit(key, run.number, tag) for copy in run._copies):
        raise InvalidDocument(
            f"Another run went on from a checkpoint of this one and released another step {run.number + 1} with the same "
            "noise. This step is not taken. Go on from one checkpoint in one place only."
        )
    return True


def extra(run: Run, released: int) -> int:
    """The rounds beside the plan if a fresh key begins at the step at hand, when the present one has released so many steps."""
    rounds, steps = run.plan.sampler.rounds, run.plan.steps
    return run._used + rounds(run._start, max(released, run.number)) + rounds(run.number, steps) - rounds(0, steps)


def released(run: Run) -> int:
    """How many steps the journal says were released under the present key; all of them where it cannot tell."""
    own, key = run._journal, run._key
    assert own is not None
    assert key is not None
    known = run._group.first(lambda: own.released(key))
    return run.plan.steps if known is None else int(known)


def loaded(run: Run, same_rows: bool) -> int | None:
    """After a checkpoint: None if the run may go on under its key, else how many steps that key has released.

    A key goes on where the journal was kept, and where the sampler has no memory or the units are known to be the same: a unit
    that takes another's number could take part twice in one pass.
    """
    if run.number >= run.plan.steps:
        return None
    own, key = run._journal, run._key
    assert own is not None
    assert key is not None
    kept = run._group.first(lambda: own.released(key)) is not None
    if kept and (same_rows or not run._remembers()):
        return None
    if not run._pays and extra(run, released(run)) > run._extra:
        refuse(run, "the file of released steps beside it is missing" if not kept else "its rows are not known to be the same")
    return released(run)


def refuse(run: Run, why: str) -> None:
    """Say what going on would cost."""
    rounds = extra(run, released(run)) - run._extra
    epsilon = curve(run.plan.again(rounds)).epsilon(run.plan.delta)
    raise InvalidDocument(
        f"{run._checkpoint} cannot be continued at step {run.number + 1} with the noise it began with: {why}, and the same "
        "noise on two sums would show what it hides. Start over with another checkpoint file, go on just as the run began, or "
        f'ask for resume="pay": fresh noise from here on, for epsilon {epsilon:.3g} more at delta {run.plan.delta:g}.'
    )


def renew(run: Run, spent: int) -> None:
    """Give up the key, which has released `spent` steps: pay for what the plan does not hold, and draw another."""
    old_key, start, used = run._key, run._start, run._used
    assert old_key is not None
    rounds = extra(run, spent) - run._extra

    def pay() -> tuple[bytes, bool]:
        if run._ledger is not None and rounds:
            claim = run.plan.claim()
            again = Claim(game=claim.game, event=run.plan.again(rounds), assumptions=claim.assumptions)
            run._stack.enter_context(run._ledger.reserve(run._source, again, account=run._account))
        source = open_source()
        return hmac.digest(old_key, b"discreet: fresh key" + source.take(32), "sha256"), source.repeatable

    run._key, repeatable = run._group.first(pay)
    run._repeatable = run._repeatable or repeatable
    run._used = used + run.plan.sampler.rounds(start, max(spent, run.number))
    run._start, run._extra = run.number, run._extra + rounds
    run._forget_noise()
    if isinstance(run._clipping, Quantile):
        run._clipping.restart()
    run._save()


def saved(run: Run, path: Path) -> Path:
    """A checkpoint by hand: every step released after it gets its line beside it, too."""
    if run._checkpoint is not None and path.absolute() == run._checkpoint.absolute():
        run._save()
        return path
    if run._group.rank == 0 and all(copy.path != journals.beside(path) for copy in run._copies):
        run._copies.append(journals.Journal(journals.beside(path)))
    keep(run)
    return checkpoints.save(path, run)


def keep(run: Run) -> None:
    """From here on every journal has a line for each step released under the key; those released before have theirs."""
    if run._group.rank != 0:
        return
    assert run._key is not None
    own = [] if run._journal is None else [run._journal]
    for journal in (*own, *run._copies):
        for other in own:
            if other is not journal:
                journal.take_over(other)
        journal.begin(run._key)
