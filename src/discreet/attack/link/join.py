"""Sweeney's join: a released table without names, a public list with them, and the columns they share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from discreet.columns import Columns, classes, columns
from discreet.core import Attack
from discreet.errors import InvalidValue


@dataclass(frozen=True, slots=True)
class Links:
    """What the join found: `candidates[i]` people of the list fit released row i; `match[i]` is the one, or -1.

    A match is made where one row and one person are alone with their values. It is right if the list holds everybody.
    """

    candidates: NDArray[np.int64]
    match: NDArray[np.int64]

    @property
    def hits(self) -> int:
        """Rows with exactly one person who fits."""
        return int((self.match >= 0).sum())

    @property
    def share(self) -> float:
        """The share of rows with exactly one person who fits."""
        return self.hits / len(self.match)

    def right(self, released: Any, people: Any) -> int:
        """How many matches are right, given the truth: who each row and each person of the list is."""
        one, other = np.asarray(released), np.asarray(people)
        matched = self.match >= 0
        return int((one[matched] == other[self.match[matched]]).sum())


def linked(released: Any, people: Any, on: Sequence[str]) -> Links:
    """Join a released table to a list of people on the columns `on`.

    >>> patients = {"zip": [2138, 2139], "born": ["1945-07-31", "1950-01-01"], "illness": ["secret", "flu"]}
    >>> voters = {"zip": [2138, 2138, 2139], "born": ["1945-07-31", "1950-02-02", "1960-03-03"], "name": ["W", "X", "Y"]}
    >>> linked(patients, voters, ["zip", "born"]).match.tolist()
    [0, -1]
    """
    ours, theirs = columns(released, on), columns(people, on)
    label = _together(ours, theirs)
    rows = len(next(iter(ours.values())))
    count = int(label.max()) + 1
    here, there = np.bincount(label[:rows], minlength=count), np.bincount(label[rows:], minlength=count)
    place = np.full(count, -1, dtype=np.int64)
    place[label[rows:]] = np.arange(len(label) - rows)
    sure = (here == 1) & (there == 1)
    return Links(there[label[:rows]].astype(np.int64), np.where(sure, place, -1)[label[:rows]])


def _together(ours: Columns, theirs: Columns) -> NDArray[np.int64]:
    """One class number per row of both tables, equal where the values are equal."""
    both = []
    for name, one in ours.items():
        other = theirs[name]
        if (one.dtype.kind in "iufb") != (other.dtype.kind in "iufb"):
            raise InvalidValue(
                f"Column {name!r} holds numbers in one table and text in the other, so nothing can match; make them the same."
            )
        if one.dtype == object or other.dtype == object:
            one, other = one.astype(object), other.astype(object)
        both.append(np.concatenate([one, other]))
    return classes(both)[0]


class Join(Attack[Any]):
    """Is this person in the released table? Scores each target by the rows that fit over the people of the list who fit.

    A target is a place in `people`, the public list. 1 says that everybody with these values is in the table.

    >>> voters = {"zip": [1, 1, 2], "sex": ["f", "f", "m"]}
    >>> Join(voters, ["zip", "sex"]).score({"zip": [1, 2], "sex": ["f", "m"]}, [0, 1, 2]).tolist()
    [0.5, 0.5, 1.0]
    """

    view = frozenset({"table"})

    def __init__(self, people: Any, on: Sequence[str], *, name: str = "join on quasi-identifiers") -> None:
        self.people = columns(people, on)
        self.on = list(on)
        self.name = name

    def score(self, seen: Any, targets: Sequence[int]) -> NDArray[np.float64]:
        released = columns(seen, self.on)
        label = _together(released, self.people)
        rows = len(next(iter(released.values())))
        count = int(label.max()) + 1
        here, there = np.bincount(label[:rows], minlength=count), np.bincount(label[rows:], minlength=count)
        fit = label[rows:][np.asarray(targets)]
        return np.asarray(here[fit] / there[fit], dtype=np.float64)
