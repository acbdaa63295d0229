"""Attacks on k-anonymous tables: homogeneity, background knowledge, intersection of releases, and repeated rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from discreet.audit.worlds import coins
from discreet.columns import codes, columns, like
from discreet.core import Attack, check
from discreet.errors import InvalidValue
from discreet.heuristic.kanonymity.diversity import counted
from discreet.heuristic.kanonymity.mondrian import Anonymised

_CERTAIN = 50.0  # a log-odds beyond what any class of a real table reaches


@dataclass(frozen=True, slots=True)
class Exposed:
    """How many `people` of how many `rows` have lost their secret to whoever finds their class."""

    people: int
    rows: int

    @property
    def share(self) -> float:
        """The share of rows exposed."""
        return self.people / self.rows

    def __str__(self) -> str:
        return f"{self.people} of {self.rows} rows exposed ({self.share:.1%})"


def homogeneity(table: Any, quasi: Sequence[str], sensitive: str) -> Exposed:
    """Rows whose class has a single sensitive value, which everyone who finds the class then knows.

    >>> str(homogeneity({"zip": [1, 1, 2, 2], "illness": ["a", "a", "a", "b"]}, ["zip"], "illness"))
    '2 of 4 rows exposed (50.0%)'
    """
    return background(table, quasi, sensitive, ruled_out=0)


def background(table: Any, quasi: Sequence[str], sensitive: str, *, ruled_out: int) -> Exposed:
    """Rows exposed to someone who can rule out `ruled_out` values for them, whichever those are.

    One who knows that the neighbour does not have the flu has ruled out one.

    >>> background({"zip": [1, 1, 2, 2], "illness": ["a", "a", "a", "b"]}, ["zip"], "illness", ruled_out=1).people
    4
    """
    check.whole("ruled_out", ruled_out, least=0)
    counts = counted(table, quasi, sensitive)
    open_classes = (counts > 0).sum(axis=1) - 1 <= ruled_out
    return Exposed(int(counts[open_classes].sum()), int(counts.sum()))


def intersection(releases: Sequence[Anonymised], people: Any, sensitive: str) -> NDArray[np.int64]:
    """How many sensitive values are left for each person who is in all of the releases (Ganta, Kasiviswanathan & Smith 2008).

    1 means that the value is known, though each release alone may leave many.
    """
    if not releases:
        raise InvalidValue("There must be at least one release to look at; got none.")
    if any(sensitive not in release.published for release in releases):
        raise InvalidValue(f"Each release must publish the column {sensitive!r}; anonymise with sensitive={sensitive!r}.")
    values = sorted({value for release in releases for value in codes(np.asarray(release.published[sensitive]))[1]}, key=str)
    possible = None
    for release in releases:
        in_release = (release.fits(people).astype(np.float64) @ _by_class(release, sensitive, values)) > 0
        possible = in_release if possible is None else possible & in_release
    assert possible is not None
    return np.asarray(possible.sum(axis=1), dtype=np.int64)


def _by_class(release: Anonymised, sensitive: str, values: list[Any]) -> NDArray[np.float64]:
    """How often each of the values occurs in each class."""
    place = {value: number for number, value in enumerate(values)}
    code, names = codes(np.asarray(release.published[sensitive]))
    code = np.array([place[value] for value in names])[code]
    counts = np.bincount(release.group * len(values) + code, minlength=len(release.low) * len(values))
    return counts.reshape(len(release.low), len(values)).astype(np.float64)


def repeat_rows(table: Any, k: int) -> Any:
    """Repeat every row k times: formally k-anonymous, and nothing is hidden.

    >>> repeat_rows({"name": ["Weld"], "illness": ["secret"]}, 2)["name"].tolist()
    ['Weld', 'Weld']
    """
    check.whole("k", k)
    return like(table, {name: np.repeat(column, k) for name, column in columns(table).items()})


class ClassReading(Attack[Any]):
    """Has this person the sensitive `value`? Scores each target (a row of `people`) by the log-odds in its classes.

    With several releases the log-odds add up; a class in which all or none have the value settles it.
    """

    view = frozenset({"table"})

    def __init__(self, people: Any, sensitive: str, value: Any, *, name: str = "reading the class") -> None:
        self.people = people
        self.sensitive = sensitive
        self.value = value
        self.name = name

    def score(self, seen: Anonymised | Sequence[Anonymised], targets: Sequence[int]) -> NDArray[np.float64]:
        releases = [seen] if isinstance(seen, Anonymised) else list(seen)
        total = np.sum([self._odds(release) for release in releases], axis=0)
        return np.asarray(np.clip(total, -_CERTAIN, _CERTAIN)[np.asarray(targets)])

    def _odds(self, release: Anonymised) -> NDArray[np.float64]:
        has = np.asarray(release.published[self.sensitive]) == self.value
        counts = np.stack(
            [np.bincount(release.group, weights=rows, minlength=len(release.low)) for rows in (has, ~has)], axis=1
        )
        yes, no = (release.fits(self.people).astype(np.float64) @ counts).T
        with np.errstate(divide="ignore", invalid="ignore"):
            odds = np.log(yes) - np.log(no)
        return np.asarray(np.nan_to_num(odds, nan=0.0, posinf=4 * _CERTAIN, neginf=-4 * _CERTAIN))


@dataclass(frozen=True, slots=True, eq=False)
class SecretColumn:
    """Worlds: every row of `table` gets 1 or 0 in the column `sensitive` by a fair coin, and is a target."""

    table: Any
    sensitive: str
    seed: int | None = None

    def draw(self, run: int) -> tuple[dict[str, Any], Sequence[int], NDArray[np.bool_]]:
        arrays = columns(self.table)
        rows = len(next(iter(arrays.values())))
        bits = coins(run, rows, self.seed)
        return {**arrays, self.sensitive: bits.astype(np.int64)}, range(rows), bits
