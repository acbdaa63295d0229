"""The protocols that other packages implement: mechanisms, attacks and worlds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol, TypeVar, runtime_checkable

import numpy as np
from numpy.typing import ArrayLike, NDArray

from discreet.core.claim import Claim

D_contra = TypeVar("D_contra", contravariant=True)
D_co = TypeVar("D_co", covariant=True)
T_co = TypeVar("T_co", covariant=True)
T_contra = TypeVar("T_contra", contravariant=True)


@runtime_checkable
class Mechanism(Protocol[D_contra, T_co]):
    """Makes something from data; says beforehand what it claims."""

    def claims(self) -> tuple[Claim, ...]:
        """The ceilings, known before a row is read."""
        ...

    def run(self, data: D_contra) -> T_co:
        """One release, with fresh noise."""
        ...


@runtime_checkable
class Attack(Protocol[T_contra]):
    """Gives every target a score; statistics are made elsewhere."""

    name: str
    view: frozenset[str]

    def score(self, seen: T_contra, targets: Sequence[Any]) -> ArrayLike:
        """One number per target, higher where it seems more to have been inside."""
        ...


@runtime_checkable
class Worlds(Protocol[D_co]):
    """Draws the world of each run."""

    def draw(self, run: int) -> tuple[D_co, Sequence[Any], NDArray[np.bool_]]:
        """The data, the targets, and which of them are inside it: each by its own fair coin."""
        ...
