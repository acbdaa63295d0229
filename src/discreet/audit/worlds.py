"""Worlds: who is inside, decided by fair coins that nobody else sees."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from discreet.core import check
from discreet.errors import InvalidValue

D = TypeVar("D")


def coins(run: int, count: int, seed: int | None) -> NDArray[np.bool_]:
    """Fair coins for one run: fresh from the operating system, or repeatable when a seed is given."""
    generator = np.random.default_rng() if seed is None else np.random.default_rng([seed, run])
    return generator.random(count) < 0.5


@dataclass(frozen=True, slots=True)
class Pair(Generic[D]):
    """Two neighbouring data sets; each run takes one of them by a fair coin (design `paired`).

    `with_unit` holds the unit and `without_unit` does not, or holds another in its place. The one target of every run
    is `target`, whatever the attack wants to be told about the unit.

    >>> data, targets, inside = Pair([1, 1], [1], seed=3).draw(0)
    >>> data == ([1, 1] if inside[0] else [1])
    True
    """

    with_unit: D
    without_unit: D
    target: Any = None
    seed: int | None = None

    def __post_init__(self) -> None:
        _check_seed(self.seed)

    def draw(self, run: int) -> tuple[D, Sequence[Any], NDArray[np.bool_]]:
        inside = coins(run, 1, self.seed)
        return (self.with_unit if inside[0] else self.without_unit), [self.target], inside


@dataclass(frozen=True, slots=True)
class Canaries(Generic[D]):
    """Many targets in every run, each inside by its own fair coin (design `canary`).

    `insert(base, chosen)` makes the data; by default the chosen canaries are appended to a list or to the rows of an
    array. One run with many canaries is enough for a bound.

    >>> data, targets, inside = Canaries([0, 0], [7, 8, 9], seed=1).draw(0)
    >>> len(data) == 2 + int(inside.sum())
    True
    """

    base: D
    canaries: Sequence[Any]
    insert: Callable[[D, list[Any]], D] | None = field(default=None)
    seed: int | None = None

    def __post_init__(self) -> None:
        _check_seed(self.seed)
        if not hasattr(self.canaries, "__len__") or not len(self.canaries):
            raise InvalidValue("canaries must be a list of at least one target.")

    def draw(self, run: int) -> tuple[D, Sequence[Any], NDArray[np.bool_]]:
        inside = coins(run, len(self.canaries), self.seed)
        chosen = [canary for canary, here in zip(self.canaries, inside) if here]
        return (self.insert or _append)(self.base, chosen), self.canaries, inside


def _check_seed(seed: int | None) -> None:
    if seed is not None:
        check.whole("seed", seed, least=0)


def _append(base: Any, chosen: list[Any]) -> Any:
    if isinstance(base, np.ndarray):
        return np.concatenate([base, np.asarray(chosen, dtype=base.dtype).reshape(len(chosen), *base.shape[1:])])
    if isinstance(base, list):
        return [*base, *chosen]
    raise InvalidValue(
        f"canaries can be appended to a list or an array; the base is {type(base).__name__}. Pass insert=lambda base, chosen: …"
    )


def checked(draw: Any) -> tuple[Any, Sequence[Any], NDArray[np.bool_]]:
    """What a stranger's worlds drew: data, targets and as many truths."""
    try:
        data, targets, inside = draw
    except (TypeError, ValueError):
        raise InvalidValue("worlds.draw(run) must return three things: the data, the targets, and who is inside.") from None
    truth = np.asarray(inside)
    if truth.ndim != 1 or truth.dtype != np.bool_ or len(truth) != len(targets):
        raise InvalidValue(
            f"worlds.draw(run) must return one true or false per target; got {truth.dtype} of shape {truth.shape} "
            f"for {len(targets)} targets."
        )
    check.whole("number of targets", len(targets))
    return data, targets, truth
