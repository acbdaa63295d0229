"""Playing the game: draw worlds, run the mechanism, score the targets, keep the scores."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.typing import NDArray

from discreet.audit.worlds import checked
from discreet.core import Attack, Evidence, Game, Mechanism, Unit, Worlds, check
from discreet.errors import InvalidValue, RunFailed

_NEEDS = {
    "mechanism": "something with claims() and run(data)",
    "attack": "something with name, view and score(seen, targets)",
    "worlds": "something with draw(run), such as Pair or Canaries",
}


def audit(
    mechanism: Mechanism[Any, Any],
    attack: Attack[Any],
    worlds: Worlds[Any],
    *,
    runs: int,
    unit: Unit | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Evidence:
    """Play `runs` rounds: draw a world, run the mechanism on it, let the attack score every target.

    The evidence is in the game of the attack's view and of the unit the mechanism claims about (`unit` says which, should
    its claims differ). `progress(done, runs)` is called after every run.

    >>> from discreet.audit import Pair, Readout
    >>> from discreet.core import record
    >>> from discreet.noise import LaplaceNoise
    >>> audit(LaplaceNoise(scale=1, sensitivity=1, unit=record()), Readout(), Pair(1, 0), runs=8).design
    'paired'
    """
    runs = check.whole("runs", runs)
    for name, part, kind in (("mechanism", mechanism, Mechanism), ("attack", attack, Attack), ("worlds", worlds, Worlds)):
        if not isinstance(part, kind):
            raise InvalidValue(f"{name} must be {_NEEDS[name]}; got {type(part).__name__}.")
    game = Game(unit or _claimed_unit(mechanism), attack.view)
    scores: list[NDArray[np.float64]] = []
    truths: list[NDArray[np.bool_]] = []
    for run in range(runs):
        with stays():
            data, targets, inside = checked(worlds.draw(run))
            seen = mechanism.run(data)
        scores.append(scored(attack, seen, targets))
        truths.append(inside)
        if progress is not None:
            progress(run + 1, runs)
    sizes = [len(item) for item in truths]
    return Evidence(
        game=game, attack=attack.name, score=np.concatenate(scores), inside=np.concatenate(truths),
        run=np.repeat(np.arange(runs), sizes), design="paired" if max(sizes) == 1 else "canary",
    )  # fmt: skip


@contextmanager
def stays() -> Iterator[None]:
    """A stranger's code must not end the program: `SystemExit` and its like would end an audit without a verdict.

    Only whoever is at the keyboard may. What else is no Exception becomes one.
    """
    try:
        yield
    except (Exception, KeyboardInterrupt):
        raise
    except BaseException as error:
        raise RunFailed(
            f"What was audited raised {type(error).__name__}, which would end the program without a verdict. It must answer, "
            "or raise an Exception."
        ) from error


def scored(attack: Attack[Any], seen: Any, targets: Sequence[Any]) -> NDArray[np.float64]:
    """The attack's scores, one finite number per target."""
    with stays():
        found = np.asarray(attack.score(seen, targets))
    if found.shape != (len(targets),) or found.dtype.kind not in "fiub":
        raise InvalidValue(
            f"{attack.name} must give one number per target; got {found.dtype} of shape {found.shape} "
            f"for {len(targets)} targets."
        )
    numbers: NDArray[np.float64] = found.astype(np.float64)
    if not np.isfinite(numbers).all():
        raise InvalidValue(f"{attack.name} must give finite scores; {int((~np.isfinite(numbers)).sum())} are NaN or infinite.")
    return numbers


def _claimed_unit(mechanism: Mechanism[Any, Any]) -> Unit:
    with stays():
        units = {claim.game.unit for claim in mechanism.claims()}
    if len(units) != 1:
        raise InvalidValue(
            f"The mechanism claims about {len(units)} different units; say which one the worlds differ in: unit=record()."
        )
    return units.pop()
