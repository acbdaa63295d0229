"""What all frequency oracles share: a public list of categories, unbiased shares, and the claim."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from discreet.core import Claim, Event, Game, Pure, Shuffled, Unit, check
from discreet.errors import InvalidValue
from discreet.noise.additive import as_array
from discreet.noise.response import categories_of
from discreet.noise.samplers import float_above
from discreet.query.local.intervals import Frequencies, frequencies

MOST_CATEGORIES = 1 << 24  # categories
USER = Unit("user", "replace", rows=1)  # one person, whose whole value may be another
ONCE = "each user sends one report"

Ints = NDArray[np.int64]


class Reports:
    """What each user sends, by a local randomiser of their own: what it costs, for the collector and behind a shuffler."""

    __slots__ = ()
    epsilon: Fraction

    def encode(self, values: Any) -> NDArray[Any]:
        """One report per person."""
        raise NotImplementedError

    def event(self) -> Event:
        """What one report costs its sender."""
        return Pure(float_above("epsilon", self.epsilon))

    def claims(self) -> tuple[Claim, ...]:
        """The collector, who sees every report, learns at most this about one user's value."""
        return claimed(self.event())

    def shuffled(self, users: int) -> tuple[Claim, ...]:
        """The claim when at least `users` reports are shuffled before the collector sees them (docs/theory/shuffle.md)."""
        return claimed(Shuffled(self.event(), users))

    def run(self, data: Any) -> NDArray[Any]:
        """`encode`, by the name that audits call."""
        return self.encode(data)


class Oracle(Reports):
    """Encode on the client, estimate on the collector. A report supports the truth with probability p, others with q."""

    __slots__ = ()
    categories: int | tuple[Any, ...]
    p: Fraction
    q: Fraction

    @property
    def size(self) -> int:
        """How many categories there are."""
        return self.categories if isinstance(self.categories, int) else len(self.categories)

    @property
    def labels(self) -> Sequence[Any]:
        return range(self.categories) if isinstance(self.categories, int) else self.categories

    def encode(self, values: Any) -> NDArray[Any]:
        """One report per person. `values` is one category, or a list of them, one per person."""
        return self._encode(indices(values, self.categories))

    def estimate(self, reports: Any, confidence: float, *, together: bool = True) -> Frequencies:
        """Shares of all categories with their intervals, which hold all `together` or each by itself."""
        counts, people = self.supports(reports)
        return frequencies(self.labels, counts, people, float(self.p), float(self.q), confidence, together)

    def supports(self, reports: Any) -> tuple[Ints, int]:
        """How many reports support each category, and how many there are. Counts of several batches may be added."""
        table = np.asarray(reports)
        if not table.size:
            raise InvalidValue("reports must hold at least one report; got none.")
        return self._supports(table), len(table)

    def variance(self, people: int, share: float = 0.0) -> float:
        """The variance of one estimated share, for a category that this share of the people has.

        (f p (1 - p) + (1 - f) q (1 - q)) / (people (p - q)^2): Wang, Blocki, Li & Jha 2017, equation 6.
        """
        n, f = check.whole("people", people), check.fraction("share", share)
        p, q = self.p, self.q
        return float((Fraction(f) * p * (1 - p) + (1 - Fraction(f)) * q * (1 - q)) / (n * (p - q) ** 2))

    def cost(self) -> float:
        """Bits of a report, and the collector's steps for it: what decides between oracles of equal variance."""
        raise NotImplementedError

    def _encode(self, truth: Ints) -> NDArray[Any]:
        raise NotImplementedError

    def _supports(self, reports: NDArray[Any]) -> Ints:
        raise NotImplementedError


def claimed(event: Event) -> tuple[Claim, ...]:
    """The claim of reports that this event describes, each or shuffled."""
    trust: tuple[str, ...] = (ONCE,)
    if isinstance(event, Shuffled):
        trust = (ONCE, "the shuffler forgets who sent which report", f"at least {event.users} users report as they should")
    return (Claim(game=Game(USER, {"answers"}), event=event, assumptions=trust),)


def public(categories: Any) -> int | tuple[Any, ...]:
    """The categories as they are kept: their number, or the list of labels."""
    if isinstance(categories, (int, np.integer)) and not isinstance(categories, bool):
        return check.whole("categories", categories, least=2, most=MOST_CATEGORIES)
    labels = check.items("categories", categories, "a whole number or a list of labels")
    if not all(isinstance(label, (str, int)) for label in labels):
        raise InvalidValue("categories must be strings, whole numbers or booleans; some label is neither.")
    if not 2 <= len(labels) <= MOST_CATEGORIES or len(set(labels)) < len(labels):
        raise InvalidValue(f"categories must hold 2 to 2^24 labels, all different; got {len(labels)} labels.")
    return labels


def indices(values: Any, categories: int | tuple[Any, ...]) -> Ints:
    """The index of each person's category. A value outside the public list counts as the first category.

    Whether a report comes at all is seen by the collector, so nothing about one person's value may stop it. What a value counts
    as depends on that value alone; what is refused, on the type of the whole.
    """
    if isinstance(categories, int):
        array = several(values)
        if array.dtype.kind not in "iufbO" or array.ndim != 1:
            raise InvalidValue(f"values must be whole numbers from 0 to {categories - 1}, one per person.")
        return categories_of(array, categories)
    values = values.item() if isinstance(values, np.ndarray) and not values.ndim else values
    items = [values] if _is_one(values) else values
    items = items.tolist() if isinstance(items, np.ndarray) else check.items("values", items, "a category or a list of them")
    places = {label: (place, type(label)) for place, label in enumerate(categories)}
    return np.array([_place(value, places) for value in items], np.int64)


def several(values: Any) -> NDArray[Any]:
    """One person's value, whatever it is, or a list of them, as an array; what is neither has no dimensions."""
    array = as_array([values] if _is_one(values) else values)
    return array if array.dtype == object else np.atleast_1d(array)


def _is_one(values: Any) -> bool:
    return isinstance(values, (str, bytes)) or not hasattr(values, "__iter__")


def _place(value: Any, places: dict[Any, tuple[int, type]]) -> int:
    try:
        place, kind = places[value]
    except (KeyError, TypeError):  # no label, or nothing that can be one
        return 0
    return place if isinstance(value, kind) else 0


def _within(array: NDArray[Any], bound: int) -> bool:
    return int(array.min()) >= 0 and int(array.max()) < bound


def whole_reports(reports: NDArray[Any], columns: tuple[int, ...]) -> Ints:
    """Reports of whole numbers from 0 up to the bound of their column, or an error that says what was expected."""
    shape = (len(reports),) if len(columns) == 1 else (len(reports), len(columns))
    if reports.shape != shape or reports.dtype.kind not in "iu":
        raise InvalidValue(f"reports must be whole numbers, {len(columns)} per person; got {reports.dtype} of {reports.shape}.")
    parts = [reports] if len(columns) == 1 else list(reports.T)
    for part, bound in zip(parts, columns):
        if not _within(part, bound):
            raise InvalidValue(f"reports must lie between 0 and {bound - 1}; some do not. They come from another oracle.")
    return reports.astype(np.int64, copy=False)
