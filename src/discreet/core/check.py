"""One way to check arguments: the message names the argument, the value found and what is allowed."""

from __future__ import annotations

import math
from numbers import Integral, Real
from typing import Any

from discreet.errors import InvalidValue

UNSURE = 1e-15  # the least that a confidence and what it leaves may be
LARGEST_WHOLE = 2**53 - 1  # the largest whole number that every reader of JSON agrees on


def real(name: str, value: Any) -> float:
    """A finite number, as a float."""
    if isinstance(value, bool) or not isinstance(value, Real):
        raise InvalidValue(f"{name} must be a number; got {shown(value)}.")
    try:
        number = float(value)
    except OverflowError:
        raise InvalidValue(f"{name} must fit a float, so at most about 1.8e308; got {shown(value)}.") from None
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
    """A number in (0, 1)."""
    number = real(name, value)
    if not 0 < number < 1:
        raise InvalidValue(f"{name} must be above 0 and below 1; got {number:g}.")
    return number


def confidence(value: Any) -> float:
    """What the confidence of an interval may be: so far from 0 and 1 that what it leaves can be divided among parts."""
    number = open_fraction("confidence", value)
    if not UNSURE <= number <= 1 - UNSURE:
        raise InvalidValue(f"confidence must be between {UNSURE:g} and 1 - {UNSURE:g}; got {number!r}.")
    return number


def whole(name: str, value: Any, *, least: int = 1, most: int = LARGEST_WHOLE) -> int:
    """A whole number from `least` to `most`. A float that is whole (as JSON may hold) counts."""
    if type(value) is int and least <= value <= most:  # almost always; the questions below are slow to ask in every step
        return value
    if isinstance(value, bool) or not isinstance(value, Real):
        raise InvalidValue(f"{name} must be a whole number; got {shown(value)}.")
    if not isinstance(value, Integral):
        as_float = real(name, value)
        if as_float != int(as_float):
            raise InvalidValue(f"{name} must be a whole number; got {as_float:g}.")
        value = as_float
    number = int(value)
    if number < least:
        raise InvalidValue(f"{name} must be at least {least}; got {shown(number)}.")
    if number > most:
        raise InvalidValue(f"{name} must be at most {most}; got {shown(number)}.")
    return number


def word(name: str, value: Any, allowed: tuple[str, ...] = ()) -> str:
    """A non-empty string that can be written as text, one of `allowed` where that is given."""
    if not isinstance(value, str) or not value:
        raise InvalidValue(f"{name} must be a non-empty string; got {shown(value)}.")
    if allowed and value not in allowed:
        raise InvalidValue(f"{name} must be one of {', '.join(allowed)}; got {shown(value)}.")
    if not value.isascii() and any("\ud800" <= letter <= "\udfff" for letter in value):
        raise InvalidValue(f"{name} must be text; {shown(value)} holds half of a character (a lone surrogate).")
    return str(value)


def items(name: str, value: Any, wanted: str) -> tuple[Any, ...]:
    """What an iterable holds; a string, or what cannot be iterated (an array of no dimensions, say), is refused."""
    try:
        if not isinstance(value, (str, bytes)):
            return tuple(value)
    except TypeError:
        pass
    raise InvalidValue(f"{name} must be {wanted}; got {shown(value)}.")


def shown(value: Any) -> str:
    """The value as a message may show it: short, printable, whatever it is.

    >>> shown("x" * 100)
    "'xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx..."
    """
    if isinstance(value, int) and abs(value) >= 10**50:
        return f"a whole number of about {int(value.bit_length() * math.log10(2)) + 1} digits"
    try:
        text = repr(value[:60] if isinstance(value, (str, bytes, list, tuple)) else value)
    except Exception:  # a broken or enormous repr must not hide the error that is being told
        return f"a {type(value).__name__}"
    return text if len(text) <= 60 else f"{text[:57]}..."
