"""Noise added to whole numbers: counts, and sums of whole numbers."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from discreet.core import Claim, DiscreteGaussian, DiscreteLaplace, Event, Game, Repeat, Unit, check
from discreet.errors import InvalidValue
from discreet.noise.digits import GaussianDistribution, LaplaceDistribution
from discreet.noise.samplers import Number, draw, draw_one, fits, float_below, rational
from discreet.noise.source import open_source

Ints = NDArray[np.int64]

FARTHEST = 1 << 62  # arrays are clipped to this magnitude, so that no sum with noise leaves int64


@dataclass(frozen=True, slots=True)
class LaplaceNoise:
    """Discrete Laplace noise on whole numbers that one unit moves by at most `sensitivity` in l1, all together.

    epsilon = sensitivity / scale, and the loss takes just the values the event says: the noise is exact. One int in,
    one int out; an array of them in, an int64 array out, clipped to +-2^62 first (clipping never moves two inputs apart).

    >>> from discreet.core import record
    >>> counts = LaplaceNoise(scale=2.0, sensitivity=1, unit=record())
    >>> counts.claims()[0].event
    DiscreteLaplace(scale=2.0, sensitivity=1)
    >>> type(counts.run(41))
    <class 'int'>
    """

    scale: Fraction
    sensitivity: int
    unit: Unit

    def __init__(self, scale: Number, sensitivity: int, unit: Unit) -> None:
        fix(self, scale=rational("scale", scale), sensitivity=check.whole("sensitivity", sensitivity), unit=unit)
        self.claims()

    def claims(self) -> tuple[Claim, ...]:
        event = DiscreteLaplace(float_below("scale", self.scale), self.sensitivity)
        return answers(self.unit, event, f"one unit moves the numbers by at most {self.sensitivity} in l1")

    def run(self, data: Any) -> int | Ints:
        return add(LaplaceDistribution(self.scale), "scale", whole_numbers(data))


@dataclass(frozen=True, slots=True)
class GaussianNoise:
    """Discrete Gaussian noise on `size` whole numbers, each of which one unit moves by at most `sensitivity`.

    A vector of discrete Gaussians is not one discrete Gaussian (Canonne, Kamath & Steinke 2020, section 2), so the claim
    composes one event per number. `size` is public: it does not depend on the data.

    >>> from discreet.core import record
    >>> GaussianNoise(sigma=10, sensitivity=1, size=3, unit=record()).run([4, 5, 6]).shape
    (3,)
    """

    sigma: Fraction
    sensitivity: int
    size: int
    unit: Unit

    def __init__(self, sigma: Number, sensitivity: int, size: int, unit: Unit) -> None:
        fix(self, sigma=rational("sigma", sigma), sensitivity=check.whole("sensitivity", sensitivity))
        fix(self, size=check.whole("size", size), unit=unit)
        self.claims()

    def claims(self) -> tuple[Claim, ...]:
        event: Event = DiscreteGaussian(float_below("sigma", self.sigma), self.sensitivity)
        event = event if self.size == 1 else Repeat(event, self.size)
        return answers(self.unit, event, f"one unit moves each of {self.size} numbers by at most {self.sensitivity}")

    def run(self, data: Any) -> int | Ints:
        numbers = whole_numbers(data)
        count_is(numbers, self.size)
        return add(GaussianDistribution(self.sigma), "sigma", numbers)


def fix(mechanism: Any, **fields: Any) -> None:
    """Set the fields of a frozen dataclass, once, while it is being made."""
    for name, value in fields.items():
        object.__setattr__(mechanism, name, value)


def answers(unit: Unit, event: Event, *assumptions: str) -> tuple[Claim, ...]:
    """The claim of a mechanism whose adversary sees its output alone."""
    return (Claim(game=Game(unit, {"answers"}), event=event, assumptions=assumptions),)


def add(distribution: LaplaceDistribution | GaussianDistribution, name: str, numbers: int | Ints) -> int | Ints:
    """Fresh noise on each number."""
    source = open_source()
    if isinstance(numbers, int):
        return numbers + draw_one(distribution, source)
    fits(name, distribution)
    return numbers + draw(distribution, numbers.size, source).reshape(numbers.shape)


def whole_numbers(data: Any) -> int | Ints:
    """A Python int as it is, or an int64 array clipped to +-2^62. What is refused depends on types alone, not on values."""
    if isinstance(data, (int, np.integer)) and not isinstance(data, (bool, np.bool_)):
        return int(data)
    array = as_array(data)
    if array.dtype == object and array.ndim and all(_is_whole(item) for item in array.flat):
        clipped = [min(max(int(item), -FARTHEST), FARTHEST) for item in array.flat]
        array = np.array(clipped, dtype=np.int64).reshape(array.shape)
    if array.dtype.kind not in "iu":
        raise InvalidValue(
            f"data must be whole numbers; got {type(data).__name__} of {array.dtype}. "
            "For real numbers use a mechanism with a granularity, such as GridLaplace."
        )
    if array.dtype.kind == "u":
        array = np.minimum(array, np.asarray(min(FARTHEST, int(np.iinfo(array.dtype).max)), array.dtype))
    return np.clip(array.astype(np.int64), -FARTHEST, FARTHEST)


def _is_whole(item: Any) -> bool:
    return type(item) is int or isinstance(item, np.integer)


def as_array(data: Any) -> NDArray[Any]:
    """Lists stay lists of objects: numpy would turn some whole numbers into floats. What cannot be an array is None."""
    try:
        return np.array(data, dtype=object) if isinstance(data, (list, tuple)) else np.asarray(data)
    except (ValueError, TypeError, OverflowError):
        return np.asarray(None)


def count_is(numbers: int | Ints, size: int) -> None:
    """Refuse data whose length is not the public one that the claim was made for."""
    count = 1 if isinstance(numbers, int) else numbers.size
    if count != size:
        raise InvalidValue(f"data must hold {size} numbers, as claimed; got {count}.")
