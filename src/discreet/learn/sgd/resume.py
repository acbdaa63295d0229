"""Going on after an interruption: no noise serves two sums, and whatever is released twice is paid for twice.

A run has one key at a time, which draws the batches and the noise of the steps from `start` on. Where a step that was released
before comes out otherwise, the key is given up: the rounds released under it stay spent, a fresh key begins at this step, and
the rounds that the plan does not hold are charged before anything is drawn. docs/theory/learn-resume.md has the accounting.
"""

from __future__ import annotations

import hmac
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from discreet.accounting import curve
from discreet.errors import InvalidDocument
from discreet.figures import up
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
    known = _noted(run)
    return run.plan.steps if known is None else known


def _noted(run: Run) -> int | None:
    """What the journal says, if it has every line that it had when the checkpoint was written."""
    own, key, least = run._journal, run._key, run._noted
    assert own is not None
    assert key is not None
    return run._group.first(lambda: own.released(key, least))


def loaded(run: Run, same_rows: bool) -> int | None:
    """After a checkpoint: None if the run may go on under its key, else how many steps that key has released.

    A key goes on where the journal was kept, and where the sampler has no memory or the units are known to be the same: a unit
    that takes another's number could take part twice in one pass.
    """
    if run.number >= run.plan.steps:
        return None
    kept = _noted(run) is not None
    if kept and (same_rows or not run._remembers()):
        return None
    if not run._pays and extra(run, released(run)) > run._extra:
        lost = "the file of released steps beside it is missing or was cut back"
        refuse(run, "its rows are not known to be the same" if kept else lost)
    return released(run)


def refuse(run: Run, why: str) -> NoReturn:
    """Say what going on would cost at most: all the rounds that were released after the checkpoint."""
    rounds = max(0, extra(run, released(run)) - run._extra)
    cost = "no step was lost, so that costs nothing"
    if rounds:
        epsilon = curve(run.plan.again(rounds)).epsilon(run.plan.delta)
        cost = f"for at most epsilon {up(epsilon)} more at delta {run.plan.delta:g} by itself"
    raise InvalidDocument(
        f"{run._checkpoint} cannot be continued at step {run.number + 1} with the noise it began with: {why}, and the same "
        "noise on two sums would show what it hides. Start over with another checkpoint file, and pay for it, go on just as "
        f'the run began, or ask for resume="pay": steps that come out otherwise then get fresh noise and are paid for ({cost}).'
    )


def renew(run: Run, spent: int) -> None:
    """Give up the key, which has released `spent` steps: pay for what the plan does not hold, and draw another."""
    old_key, start, used = run._key, run._start, run._used
    assert old_key is not None
    rounds = extra(run, spent) - run._extra

    def pay() -> tuple[bytes, bool, tuple[str, ...]]:
        payments = run._payments
        entries = payments.again(run.plan, rounds) if payments.ledger is not None and rounds else payments.entries
        source = open_source()
        return hmac.digest(old_key, b"discreet: fresh key" + source.take(32), "sha256"), source.repeatable, entries

    run._key, repeatable, run._payments.entries = run._group.first(pay)
    run._repeatable = run._repeatable or repeatable
    run._used = used + run.plan.sampler.rounds(start, max(spent, run.number))
    run._start, run._extra, run._noted = run.number, run._extra + rounds, 0
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


def lines(run: Run, checkpoint: Path) -> int:
    """How many lines about the key the journal beside a checkpoint has."""
    own = [] if run._journal is None else [run._journal]
    assert run._key is not None
    return max((it.lines(run._key) for it in (*own, *run._copies) if it.path == journals.beside(checkpoint)), default=0)


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
