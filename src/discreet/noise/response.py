"""Randomised response: each person randomises their own answer before anyone sees it."""

from __future__ import annotations

from collections.abc import Sequence as Seq
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from discreet.core import Claim, Event, RandomizedResponse, Repeat, Unit, check
from discreet.errors import InvalidValue
from discreet.noise.additive import answers, as_array, fix
from discreet.noise.digits import Bounds, exp_bounds
from discreet.noise.fast import flips
from discreet.noise.samplers import Number, float_above, rational
from discreet.noise.source import open_source


def randomized_response(value: Any, categories: int | Seq[Any], epsilon: Number) -> Any:
    """The truth with odds e^epsilon against each other category (Warner 1965; k categories: Kairouz et al. 2014).

    `categories` is a number k, for answers 0 ... k - 1 (then `value` may be an array of answers, one per person), or a
    list of labels. Epsilon-DP when one answer is replaced, with no trusted collector. Every answer takes the same draws
    whatever the truth is.

    **An answer that is no category counts as the first one**: an error would reveal that somebody gave such an answer. The
    mapping depends on that person's answer alone, so the guarantee is the same (docs/theory/noise-response.md). To count such
    answers separately, let the first category be "other".

    >>> randomized_response("yes", ["yes", "no"], epsilon=3) in ("yes", "no")
    True
    >>> randomized_response("perhaps", ["other", "yes", "no"], epsilon=60)
    'other'
    """
    labels = None if isinstance(categories, int) else _labels(categories)
    k = check.whole("categories", categories, least=2) if labels is None else len(labels)
    rate = rational("epsilon", epsilon)
    truth = _indices(value, k) if labels is None else np.array([_index(value, labels)])
    source = open_source()
    truthful = flips(partial(_truth_bounds, rate, k), truth.size, source).reshape(truth.shape)
    moved = 1 + source.many_below(k - 1, truth.size).reshape(truth.shape)
    reported = np.where(truthful, truth, (truth + moved) % k)
    if labels is not None:
        return labels[int(reported[0])]
    return reported if isinstance(value, (np.ndarray, list, tuple)) else int(reported)


@dataclass(frozen=True, slots=True)
class RandomResponse:
    """Randomised response over k categories, one answer per row: an array of answers 0 ... k - 1 in, as many out.

    An answer that is none of them counts as 0; see `randomized_response`.

    The unit's relation is "replace": it hides what someone answered, not that they answered. A unit of several rows
    pays once per row.

    >>> from discreet.core import record
    >>> poll = RandomResponse(epsilon=1.0, categories=4, unit=record("replace"))
    >>> poll.run([0, 1, 2, 3]).shape
    (4,)
    """

    epsilon: Fraction
    categories: int
    unit: Unit

    def __init__(self, epsilon: Number, categories: int, unit: Unit) -> None:
        fix(self, epsilon=rational("epsilon", epsilon), categories=check.whole("categories", categories, least=2), unit=unit)
        self.claims()

    def claims(self) -> tuple[Claim, ...]:
        if not isinstance(self.unit, Unit):
            raise InvalidValue(f"unit must be a Unit, such as discreet.record('replace'); got {type(self.unit).__name__}.")
        if self.unit.relation != "replace" or self.unit.rows is None:
            raise InvalidValue(
                f"Randomised response hides what someone answered, not that they did; got the unit {self.unit}. "
                "Use a unit with relation='replace' and a bound on its rows, such as record('replace')."
            )
        event: Event = RandomizedResponse(float_above("epsilon", self.epsilon), self.categories)
        return answers(self.unit, event if self.unit.rows == 1 else Repeat(event, self.unit.rows))

    def run(self, data: Any) -> NDArray[np.int64] | int:
        reported: NDArray[np.int64] | int = randomized_response(data, self.categories, self.epsilon)
        return reported


def _truth_bounds(epsilon: Fraction, k: int, bits: int) -> Bounds:
    """Bounds on 2^bits times 1 / (1 + (k - 1) exp(-epsilon)), the probability of the truth."""
    p = bits + k.bit_length() + 8
    lo, hi = exp_bounds(epsilon, p)
    return (1 << (p + bits)) // ((1 << p) + (k - 1) * hi), -(-(1 << (p + bits)) // ((1 << p) + (k - 1) * lo))


def _labels(categories: Any) -> list[Any]:
    if isinstance(categories, (str, bytes)) or not isinstance(categories, (list, tuple)):
        raise InvalidValue(f"categories must be a whole number or a list of labels; got {type(categories).__name__}.")
    labels = list(categories)
    if not all(isinstance(label, (str, int)) for label in labels):
        raise InvalidValue("categories must be strings or whole numbers; some label is neither.")
    if len(labels) < 2 or len(set(labels)) < len(labels):
        raise InvalidValue(f"categories must hold at least 2 labels, all different; got {len(labels)} labels.")
    return labels


def _index(value: Any, labels: list[Any]) -> int:
    """The place of a label, 0 for what is none of them; only several answers at once are refused."""
    if isinstance(value, (list, tuple, np.ndarray)) and np.ndim(as_array(value)):
        raise InvalidValue("With labels, value is one answer; for several at once, number the categories from 0.")
    answer = value.item() if isinstance(value, (np.generic, np.ndarray)) else value
    return next((place for place, label in enumerate(labels) if type(answer) is type(label) and answer == label), 0)


def _indices(value: Any, k: int) -> NDArray[np.int64]:
    """Whole numbers below k as they are, 0 for all else; what is refused depends on the type of the whole alone."""
    if k > 1 << 62:
        raise InvalidValue("categories must be at most 2^62; got more.")
    array = as_array(value) if isinstance(value, (list, tuple, np.ndarray, np.generic)) else _alone(value)
    if array.dtype.kind not in "iufbO" or (array.ndim == 0 and isinstance(value, (list, tuple))):
        raise InvalidValue(f"value must be whole numbers from 0 to {k - 1}, or categories a list of labels.")
    return categories_of(array, k)


def _alone(value: Any) -> NDArray[Any]:
    """One answer of whatever type, as an array of no dimensions."""
    array = np.empty((), dtype=object)
    array[()] = value
    return array


def categories_of(array: NDArray[Any], k: int) -> NDArray[np.int64]:
    """Each entry as a category from 0 to k - 1: the whole number that it is, and 0 for whatever is no such number."""
    if array.dtype == object:
        places = [_category(item, k) for item in array.flat]
        return np.array(places, dtype=np.int64).reshape(array.shape)
    with np.errstate(invalid="ignore"):  # NaN is no category
        fits = (
            (array >= 0) & (array < k) & (array == np.floor(array)) if array.dtype.kind == "f" else (array >= 0) & (array < k)
        )
        return np.where(fits, array, np.zeros_like(array)).astype(np.int64)


def _category(item: Any, k: int) -> int:
    if isinstance(item, (np.generic, np.ndarray)):
        item = item.item() if item.size == 1 else None
    whole = isinstance(item, int) or (isinstance(item, float) and item.is_integer())
    return int(item) if whole and 0 <= item < k else 0
