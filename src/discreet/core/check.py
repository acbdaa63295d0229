"""One way to check arguments: the message names the argument, the value found and what is allowed."""

from __future__ import annotations

import math
from numbers import Integral, Real
from typing import Any

from discreet.errors import InvalidValue


def real(name: str, value: Any) -> float:
    """A finite number, as a float."""
    if isinstance(value, bool) or not isinstance(value, Real):
        raise InvalidValue(f"{name} must be a number; got {_shown(value)}.")
    try:
        number = float(value)
    except OverflowError:
        raise InvalidValue(f"{name} must fit a float; got an integer of {len(str(value))} digits.") from None
    if not math.isfinite(number):
        raise InvalidValue(f"{name} must be finite; got {number}.")
    return number


def positive(name: str, value: Any) -> float:
    """A number above zero."""
    number = real(name, value)
    if number <= 0:
        raise InvalidValue(f"{name} must be above 0; got {number:g}.")
    return number


def nonnegative(name: str, value: Any) -> float:
    """A number that is zero or above."""
    number = real(name, value)
    if number < 0:
        raise InvalidValue(f"{name} must be 0 or above; got {number:g}.")
    return number


def fraction(name: str, value: Any) -> float:
    """A number in [0, 1]."""
    number = real(name, value)
    if not 0 <= number <= 1:
        raise InvalidValue(f"{name} must be between 0 and 1; got {number:g}.")
    return number


def small_fraction(name: str, value: Any) -> float:
    """A number in [0, 1): what a delta may be."""
    number = real(name, value)
    if not 0 <= number < 1:
        raise InvalidValue(f"{name} must be at least 0 and below 1; got {number:g}.")
    return number


def open_fraction(name: str, value: Any) -> float:
    """A number in (0, 1): what a confidence may be."""
    number = real(name, value)
    if not 0 < number < 1:
        raise InvalidValue(f"{name} must be above 0 and below 1; got {number:g}.")
    return number


def whole(name: str, value: Any, *, least: int = 1) -> int:
    """A whole number, at least `least`. A float that is whole (as JSON may hold) counts."""
    if isinstance(value, bool) or not isinstance(value, Real):
        raise InvalidValue(f"{name} must be a whole number; got {_shown(value)}.")
    if not isinstance(value, Integral):
        number = real(name, value)
        if number != int(number):
            raise InvalidValue(f"{name} must be a whole number; got {number:g}.")
        value = int(number)
    if value < least:
        raise InvalidValue(f"{name} must be at least {least}; got {value}.")
    return int(value)


def word(name: str, value: Any, allowed: tuple[str, ...] = ()) -> str:
    """A non-empty string, one of `allowed` where that is given."""
    if not isinstance(value, str) or not value:
        raise InvalidValue(f"{name} must be a non-empty string; got {_shown(value)}.")
    if allowed and value not in allowed:
        raise InvalidValue(f"{name} must be one of {', '.join(allowed)}; got {_shown(value)}.")
    return value


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
