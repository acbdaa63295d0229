"""What an engine is asked for, in whatever words: sums of whole numbers by group, and how many rows of a unit count in them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from discreet.query.operations import PlanKind, TermKind
from discreet.query.tree import Scalar, Select

SCALE = 1 << 20  # the weight of a whole row, in whole numbers
MOST_CODES = 60  # of one pass for contingency tables


@dataclass(frozen=True, slots=True)
class Plan:
    """How many rows of one unit count. `kind`: rows (a row is a unit), weighted, registered or sampled.

    weighted, registered: each row weighs min(1, rows / rows of its unit). sampled: a unit counts in at most `groups`
    groups, chosen at random for each unit, and in each as at most `each` rows (the mean of its rows there, times `each`).
    """

    kind: PlanKind
    rows: int
    groups: int = 0
    each: int = 0

    @property
    def scale(self) -> int:
        return SCALE if self.kind in (PlanKind.WEIGHTED, PlanKind.REGISTERED) else 1


@dataclass(frozen=True, slots=True)
class Term:
    """A whole number per row, to be added up: 1, `most` where `of` is known or beyond its bounds, or (of - centre) / step
    within +-most; or 1 for what was cut: a row that weighs less than a whole one, a unit of more than `each` rows in a group.
    Wide: the row as it weighs where a unit may have `most` times the rows.
    """

    kind: TermKind
    of: Scalar | None = None
    centre: float = 0.0
    step: float = 1.0
    most: int = 1


@dataclass(frozen=True, slots=True)
class Bins:
    """A histogram of `of`: equal parts of [low, high], numbered from 0."""

    of: Scalar
    low: float
    high: float
    parts: int


@dataclass(frozen=True, slots=True)
class Request:
    """What an engine is asked for: sums of terms by key, or a histogram by key."""

    rows: Select
    keys: tuple[Scalar, ...]
    plan: Plan
    terms: tuple[Term, ...] = ()
    bins: Bins | None = None


@dataclass(frozen=True, slots=True)
class Marginals:
    """Many contingency tables of the same rows, all from one pass over them.

    `codes` are whole numbers of a row, from 0 to below `sizes` and never NULL; each of `sets` names the codes of one table, in
    rising order. An engine answers with the columns s (which set: a binary digit for each code that occurs in any, the first
    the lowest), k (the cell, row-major) and s0 (its weight). At most MOST_CODES codes may occur.
    """

    rows: Select
    codes: tuple[Scalar, ...]
    sizes: tuple[int, ...]
    sets: tuple[tuple[int, ...], ...]
    plan: Plan

    @property
    def used(self) -> list[int]:
        """The codes that occur in any set."""
        return sorted({code for codes in self.sets for code in codes})


def columns_of(names: Sequence[str], rows: Sequence[Sequence[Any]]) -> Mapping[str, Sequence[Any]]:
    """The columns of what an engine answers; exact sums, which some engines write as decimals, in whole numbers."""
    columns = zip(*rows) if rows else [()] * len(names)
    return {name: [_whole(value) for value in column] for name, column in zip(names, columns)}


def _whole(value: Any) -> Any:
    return int(value) if isinstance(value, Decimal) else value
