"""Exact noise by name: what users and mechanisms call."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any, overload

import numpy as np
from numpy.typing import NDArray

from discreet.core import check
from discreet.errors import InvalidValue
from discreet.noise import exact
from discreet.noise.digits import GaussianDistribution, LaplaceDistribution
from discreet.noise.fast import WIDEST, cells
from discreet.noise.source import Source, open_source

Ints = NDArray[np.int64]
Size = int | tuple[int, ...]
Number = int | float | Fraction

FEW = 64  # up to this many values are drawn one by one: building a table would take longer
MOST = 1 << 30  # values in one call
LONGEST = 4096  # bits in the numerator or denominator of a parameter


@overload
def discrete_laplace(scale: Number, size: None = None) -> int: ...
@overload
def discrete_laplace(scale: Number, size: Size) -> Ints: ...
def discrete_laplace(scale: Number, size: Size | None = None) -> int | Ints:
    """Whole-number noise with Pr[x] ~ exp(-|x| / scale), exactly; a float scale is the rational it stands for.

    Added to a count that one person moves by at most d, it gives epsilon = d / scale (Ghosh, Roughgarden &
    Sundararajan 2009). One int without `size`, an int64 array with it.

    >>> discrete_laplace(10.0, size=(2, 3)).shape
    (2, 3)
    """
    distribution = LaplaceDistribution(rational("scale", scale))
    source = open_source()
    return exact.laplace(distribution.scale, source) if size is None else _array("scale", distribution, size, source)


@overload
def discrete_gaussian(sigma: Number, size: None = None) -> int: ...
@overload
def discrete_gaussian(sigma: Number, size: Size) -> Ints: ...
def discrete_gaussian(sigma: Number, size: Size | None = None) -> int | Ints:
    """Whole-number noise with Pr[x] ~ exp(-x^2 / 2 sigma^2), exactly (Canonne, Kamath & Steinke 2020).

    One int without `size`, an int64 array with it.

    >>> discrete_gaussian(10, size=4).dtype
    dtype('int64')
    """
    distribution = GaussianDistribution(rational("sigma", sigma))
    source = open_source()
    return exact.gaussian(distribution.sigma, source) if size is None else _array("sigma", distribution, size, source)


@overload
def uniform(bound: int, size: None = None) -> int: ...
@overload
def uniform(bound: int, size: Size) -> Ints: ...
def uniform(bound: int, size: Size | None = None) -> int | Ints:
    """A whole number from 0 to bound - 1, all equally likely, without the bias of a remainder.

    >>> uniform(1)
    0
    """
    bound = check.whole("bound", bound, most=1 << LONGEST)
    source = open_source()
    if size is None:
        return source.below(bound)
    if bound > 1 << 63:
        raise InvalidValue(f"bound must be at most 2^63 for an array; got {float(bound):g}. Leave out size for one integer.")
    shape, count = _shape(size)
    return source.many_below(bound, count).reshape(shape)


def bernoulli(probability: Number) -> bool:
    """True with this probability exactly; a float is the rational it stands for.

    >>> bernoulli(1)
    True
    """
    p = rational("probability", probability, least=0)
    if p > 1:
        raise InvalidValue(f"probability must be between 0 and 1; got {float(p):g}.")
    return exact.bernoulli(p, open_source())


def bernoulli_exp(exponent: Number) -> bool:
    """True with probability exp(-exponent) exactly, for exponent >= 0 (Canonne, Kamath & Steinke 2020, algorithm 1).

    >>> bernoulli_exp(0)
    True
    """
    return exact.bernoulli_exp(rational("exponent", exponent, least=0), open_source())


def draw(distribution: LaplaceDistribution | GaussianDistribution, count: int, source: Source) -> Ints:
    """`count` values of a distribution that fits int64."""
    if count > FEW:
        return cells(distribution).draw(count, source)
    return np.array([draw_one(distribution, source) for _ in range(count)], np.int64)


def draw_one(distribution: LaplaceDistribution | GaussianDistribution, source: Source) -> int:
    """One value of a distribution, as a Python int of any size."""
    if isinstance(distribution, LaplaceDistribution):
        return exact.laplace(distribution.scale, source)
    return exact.gaussian(distribution.sigma, source)


def fits(name: str, distribution: LaplaceDistribution | GaussianDistribution) -> None:
    """Refuse a distribution whose values might not fit int64."""
    if distribution.spread > WIDEST:
        raise InvalidValue(
            f"{name} must be at most 2^50 for an array, so that every value fits int64; got about 2^"
            f"{math.floor(distribution.spread).bit_length() - 1}. Draw one value at a time (a Python int has no limit), "
            "or use a coarser unit."
        )


def rational(name: str, value: Any, *, least: int | None = None) -> Fraction:
    """A parameter as the exact rational it is: above 0, or at least `least` where that is given."""
    if isinstance(value, Fraction) and not isinstance(value, bool):
        number = value
    else:
        check.real(name, value)
        number = Fraction(int(value)) if value == int(value) else Fraction(float(value))
    if max(abs(number.numerator).bit_length(), number.denominator.bit_length()) > LONGEST:
        raise InvalidValue(f"{name} must be a fraction of at most {LONGEST} bits; got a longer one. Round it first.")
    if least is None and number <= 0:
        raise InvalidValue(f"{name} must be above 0; got {_short(number)}.")
    if least is not None and number < least:
        raise InvalidValue(f"{name} must be at least {least}; got {_short(number)}.")
    return number


def float_below(name: str, number: Fraction) -> float:
    """The largest float at most `number`: claims round noise down, and so the loss up."""
    try:
        near = float(number)
    except OverflowError:
        raise InvalidValue(f"{name} must fit a float to be claimed; got a larger number. Use a coarser unit.") from None
    return near if near <= number else math.nextafter(near, -math.inf)


def float_above(name: str, number: Fraction) -> float:
    """The least float at least `number`."""
    return -float_below(name, -number)


def _array(name: str, distribution: LaplaceDistribution | GaussianDistribution, size: Size, source: Source) -> Ints:
    shape, count = _shape(size)
    fits(name, distribution)
    return draw(distribution, count, source).reshape(shape)


def _shape(size: Any) -> tuple[tuple[int, ...], int]:
    if not isinstance(size, (int, np.integer, tuple, list)):
        raise InvalidValue(f"size must be a whole number or a tuple of them; got {type(size).__name__}.")
    shape = tuple(size) if isinstance(size, (tuple, list)) else (size,)
    shape = tuple(check.whole("size", item, least=0) for item in shape)
    count = math.prod(shape)
    if count > MOST or len(shape) > 32:
        raise InvalidValue(f"size must ask for at most 2^30 values in at most 32 dimensions; got {len(shape)} dimensions, "
                           f"{float(min(count, 10**300)):g} values. Draw them in parts.")  # fmt: skip
    return shape, count


def _short(number: Fraction) -> str:
    try:
        return f"{float(number):g}"
    except OverflowError:
        return "a number beyond the floats"
