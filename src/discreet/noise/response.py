"""Randomised response: each person's own answer is noised before anyone sees it."""

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

    >>> randomized_response("yes", ["yes", "no"], epsilon=3) in ("yes", "no")
    True
    """
    labels = None if isinstance(categories, int) else _labels(categories)
    k = check.whole("categories", categories, least=2) if labels is None else len(labels)
    rate = rational("epsilon", epsilon)
    truth = _indices(value, k) if labels is None else np.array([_index(value, labels)])
    source = open_source()
    kept = flips(partial(_truth_bounds, rate, k), truth.size, source).reshape(truth.shape)
    moved = 1 + source.many_below(k - 1, truth.size).reshape(truth.shape)
    told = np.where(kept, truth, (truth + moved) % k)
    if labels is not None:
        return labels[int(told[0])]
    return told if isinstance(value, (np.ndarray, list, tuple)) else int(told)


@dataclass(frozen=True, slots=True)
class RandomResponse:
    """Randomised response over k categories, one answer per row: an array of answers 0 ... k - 1 in, as many out.

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
        told: NDArray[np.int64] | int = randomized_response(data, self.categories, self.epsilon)
        return told


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
    if not any(type(value) is type(label) and value == label for label in labels):
        raise InvalidValue(f"value must be one of the {len(labels)} categories; it is none of them. Add a category 'other'.")
    return labels.index(value)


def _indices(value: Any, k: int) -> NDArray[np.int64]:
    array = as_array(value)
    if array.dtype == object and array.ndim and all(type(item) is int and abs(item) < 1 << 62 for item in array.flat):
        array = array.astype(np.int64)
    if k > 1 << 62:
        raise InvalidValue("categories must be at most 2^62; got more.")
    if array.dtype.kind not in "iu" or (array.size and (int(array.min()) < 0 or int(array.max()) >= k)):
        raise InvalidValue(f"value must be whole numbers from 0 to {k - 1}, or categories a list of labels.")
    return array.astype(np.int64)
