"""Re-identification in sparse data: the scoreboard of Narayanan & Shmatikov (2008)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from discreet.core import Attack, check
from discreet.errors import InvalidValue

RATING_SCALE, DATE_SCALE = 1.5, 30.0  # the paper's, for stars and days
SURE = 1.5  # standard deviations between the best and the second


class Known(NamedTuple):
    """What is known of one person, roughly: items by their place, with the ratings and the days (or None)."""

    items: Sequence[int]
    ratings: Sequence[float]
    days: Sequence[float] | None = None


@dataclass(frozen=True, slots=True)
class BestMatch:
    """Who fits best, by how many standard deviations more than the second, and the score."""

    user: int
    eccentricity: float
    score: float

    @property
    def sure(self) -> bool:
        """Whether the paper's rule names somebody at all."""
        return self.eccentricity >= SURE


class Ratings:
    """Sparse ratings as released, by item: who rated it, how, and on which day (a number).

    >>> seen = Ratings(user=[0, 0, 1], item=[0, 1, 1], rating=[5, 1, 4], day=[10, 11, 90])
    >>> seen.users, seen.items
    (2, 2)
    """

    def __init__(
        self, *, user: ArrayLike, item: ArrayLike, rating: ArrayLike, day: ArrayLike | None = None, users: int | None = None
    ) -> None:
        who, what = np.asarray(user, dtype=np.int64), np.asarray(item, dtype=np.int64)
        stars = np.asarray(rating, dtype=np.float64)
        days = None if day is None else np.asarray(day, dtype=np.float64)
        lengths = {len(part) for part in (who, what, stars, days) if part is not None}
        if len(lengths) != 1 or lengths == {0}:
            raise InvalidValue(f"user, item, rating and day must be equally long and not empty; got lengths {sorted(lengths)}.")
        if min(who.min(), what.min()) < 0:
            raise InvalidValue("user and item must be numbered from 0.")
        order = np.argsort(what, kind="stable")
        self.users = int(who.max()) + 1 if users is None else check.whole("users", users, least=int(who.max()) + 1)
        self.items = int(what.max()) + 1
        self._who, self._stars = who[order], stars[order]
        self._days = None if days is None else days[order]
        support = np.bincount(what, minlength=self.items)
        self._start = np.concatenate([[0], np.cumsum(support)])
        # log 1 = 0 would make an item that one person rated weigh infinitely much; two is as rare as it gets
        self._weight = 1.0 / np.log(np.maximum(support, 2))

    def scores(self, known: Known) -> NDArray[np.float64]:
        """How well every user fits: a sum over the known items of 1/log(support) times the closeness of rating and day."""
        lengths = {len(part) for part in known if part is not None}
        if len(lengths) != 1:
            raise InvalidValue(f"What is known must have a rating (and a day) for each item; got lengths {sorted(lengths)}.")
        items = np.asarray(known.items, dtype=np.int64)
        here = (items >= 0) & (items < self.items)
        counts = np.where(here, np.diff(self._start)[np.where(here, items, 0)], 0)
        entry = _ranges(self._start[np.where(here, items, 0)], counts)
        close = np.exp(
            -np.abs(self._stars[entry] - np.repeat(np.asarray(known.ratings, dtype=np.float64), counts)) / RATING_SCALE
        )
        if known.days is not None and self._days is not None:
            apart = np.abs(self._days[entry] - np.repeat(np.asarray(known.days, dtype=np.float64), counts))
            close += np.exp(-apart / DATE_SCALE)
        weight = np.repeat(np.where(here, self._weight[np.where(here, items, 0)], 0.0), counts)
        totals = np.bincount(self._who[entry], weights=weight * close, minlength=self.users)
        return totals.astype(np.float64)

    def find(self, known: Known) -> BestMatch:
        """Who it is, most likely. `sure` says whether that one stands out."""
        scores = self.scores(known)
        best = int(scores.argmax())
        second = float(np.delete(scores, best).max()) if self.users > 1 else 0.0
        spread = float(scores.std())
        return BestMatch(best, (float(scores[best]) - second) / spread if spread else 0.0, float(scores[best]))


def _ranges(start: NDArray[np.int64], count: NDArray[np.int64]) -> NDArray[np.int64]:
    """start[0], start[0]+1, …, for count[0] entries, and so on for each."""
    ends = np.cumsum(count)
    return np.asarray(np.arange(int(ends[-1]) if len(ends) else 0) + np.repeat(start - (ends - count), count))


class Scoreboard(Attack[Ratings]):
    """Is somebody of whom this is known in the released ratings? Scores each target (a `Known`) by its eccentricity."""

    view = frozenset({"table"})
    name = "scoreboard of sparse ratings"

    def score(self, seen: Ratings, targets: Sequence[Known]) -> NDArray[np.float64]:
        return np.array([seen.find(target).eccentricity for target in targets])


def approximate_knowledge(
    user: ArrayLike,
    item: ArrayLike,
    rating: ArrayLike,
    day: ArrayLike,
    who: int,
    *,
    count: int,
    random: np.random.Generator,
    days_off: float = 14.0,
    stars_off: int = 1,
    wrong: int = 0,
) -> Known:
    """What an acquaintance may know of `who`: `count` of their ratings, each off by some stars and days, `wrong` made up."""
    mine = np.flatnonzero(np.asarray(user) == who)
    if len(mine) < count or wrong > count:
        raise InvalidValue(f"{count} known ratings were asked, {wrong} of them wrong; this person has {len(mine)}.")
    taken = random.choice(mine, size=count, replace=False)
    items: NDArray[Any] = np.asarray(item)[taken].copy()
    stars = np.asarray(rating, dtype=np.float64)[taken] + random.integers(-stars_off, stars_off + 1, count)
    days = np.asarray(day, dtype=np.float64)[taken] + random.uniform(-days_off, days_off, count)
    items[:wrong] = random.integers(0, int(np.asarray(item).max()) + 1, wrong)
    return Known(items.tolist(), np.clip(stars, 1, 5).tolist(), days.tolist())
