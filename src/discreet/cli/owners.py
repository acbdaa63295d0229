"""Whose row each row is: for models like one whose unit is a person, and for evidence about whole people."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from discreet.core import Evidence, Game, Release

if TYPE_CHECKING:
    from discreet.attack.membership.model_audit import Loaded

BY_OWNER = "by person"


@dataclass(frozen=True)
class Owners:
    """Owners of rows, found by what is in a row; rows that are alike are given their owners in turn.

    A model like the target is trained on half of the rows of members and others, so half of the rows of twice as many people.
    Two and two of them count as one there: as many people as the target had, each with about as many rows.

    >>> rows = np.array([[1.0], [2.0], [2.0]]), np.array([0, 1, 1])
    >>> Owners.of([rows], [np.array(["ann", "bob", "cid"])], people=3).find(*rows).tolist()
    [0, 1, 2]
    """

    known: dict[tuple[bytes, int], list[int]]
    people: int

    @classmethod
    def of(cls, pairs: Sequence[tuple[Any, Any]], owners: Sequence[Any], *, people: int) -> Owners:
        """Of pairs (inputs, labels), and the owners of all their rows; the first `people` are those of the target."""
        numbers: dict[str, int] = {}
        known: dict[tuple[bytes, int], list[int]] = defaultdict(list)
        keys = [key for X, y in pairs for key in _keys(X, y)]
        for key, name in zip(keys, np.concatenate(list(owners)).tolist(), strict=True):
            known[key].append(numbers.setdefault(str(name), len(numbers)))
        return cls(dict(known), people)

    def find(self, X: Any, y: Any) -> NDArray[np.int64]:
        """A number for the owner of each row."""
        turn: dict[tuple[bytes, int], int] = defaultdict(int)
        found = []
        for key in _keys(X, y):
            alike = self.known[key]
            found.append(alike[turn[key] % len(alike)] % self.people)
            turn[key] += 1
        return np.array(found, np.int64)


def _keys(X: Any, y: Any) -> list[tuple[bytes, int]]:
    return [(row.tobytes(), int(label)) for row, label in zip(np.ascontiguousarray(X), np.asarray(y).tolist())]


def about_people(release: Release[Any], loaded: Loaded) -> Release[Any]:
    """The release with evidence about whole people too, where its claim is about them: the mean score of their rows.

    Who has rows among the members and among the others is left out.
    """
    if loaded.owners is None or not release.claims:
        return release
    unit = release.claims[0].game.unit
    rows = [each for each in release.evidence if len(each.inside) == len(loaded.owners) and each.game.unit != unit]
    more = tuple(found for each in rows if (found := _of_people(each, loaded.owners, unit)) is not None)
    return replace(release, evidence=(*release.evidence, *more))


def _of_people(evidence: Evidence, owners: Any, unit: Any) -> Evidence | None:
    place = np.unique(owners, return_inverse=True)[1]
    count = np.bincount(place)
    share = np.bincount(place, evidence.inside) / count
    clear = (share == 0) | (share == 1)
    inside = share[clear] == 1
    if not inside.any() or inside.all():
        return None
    return Evidence(
        game=Game(unit, evidence.game.view), attack=f"{evidence.attack} {BY_OWNER}",
        score=(np.bincount(place, evidence.score) / count)[clear], inside=inside, run=np.zeros(len(inside), np.int64),
        design="post_hoc",
    )  # fmt: skip
