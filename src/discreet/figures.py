"""Numbers and texts as people read them: a loss is never rounded down, a floor never up."""

from __future__ import annotations

import math
from collections.abc import Iterable
from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal
from pathlib import PurePath
from urllib.parse import urlsplit

_DIGITS = 4


def up(value: float, digits: int = _DIGITS) -> str:
    """A loss, a power or a delta: rounded up.

    >>> up(1.00001), up(0.5), up(1e-9), up(float("inf"))
    ('1.001', '0.5', '1e-9', '∞')
    """
    return _text(value, digits, ROUND_CEILING)


def down(value: float, digits: int = _DIGITS) -> str:
    """A floor: rounded down.

    >>> down(0.99999), down(2.0)
    ('0.9999', '2')
    """
    return _text(value, digits, ROUND_FLOOR)


def percent_up(value: float, digits: int = 3) -> str:
    """A power or a belief as a percentage, rounded up.

    >>> percent_up(0.0271828), percent_up(1.0)
    ('2.72 %', '100 %')
    """
    return f"{_text(value, digits, ROUND_CEILING, scale=100)} %"


def percent_down(value: float, digits: int = 3) -> str:
    """A measured rate as a percentage, rounded down."""
    return f"{_text(value, digits, ROUND_FLOOR, scale=100)} %"


def rate(value: float) -> str:
    """A rate that was chosen, not measured, as a percentage: nothing is rounded.

    >>> rate(0.001), rate(0.95)
    ('0.1 %', '95 %')
    """
    return f"{value * 100:.10g} %"


def short(text: object, most: int = 300) -> str:
    """A text as a page shows it: one line of at most `most` characters.

    >>> short("a  b", 3)
    'a b'
    >>> short("abcdef", 3)
    'ab…'
    """
    whole = str(text)
    start = whole[: 4 * most]  # a text of a million letters is not read to its end
    line = " ".join("".join(letter if letter.isprintable() else " " for letter in start).split())
    return line if len(line) <= most and len(start) == len(whole) else f"{line[: most - 1]}…"


def place_name(place: str) -> str:
    """A file or an address as a release names it: without folders, user, password and query, which may hold a secret.

    >>> place_name("data/people.csv"), place_name("https://me:secret@example.org/a/score?key=secret")
    ('people.csv', 'https://example.org/score')
    """
    if "://" not in place:
        return PurePath(place).name or place
    try:
        parts = urlsplit(place)
    except ValueError:
        return f"{place.partition('://')[0]}://…"
    end = PurePath(parts.path).name
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{f'/{end}' if end else ''}"


def listed(items: Iterable[str], last: str = "and") -> str:
    """Items in a sentence.

    >>> listed(["a", "b", "c"])
    'a, b and c'
    """
    known = list(items)
    return known[0] if len(known) == 1 else f"{', '.join(known[:-1])} {last} {known[-1]}" if known else "nothing"


def _text(value: float, digits: int, rounding: str, scale: int = 1) -> str:
    if not math.isfinite(value):
        return "unknown" if math.isnan(value) else "∞" if value > 0 else "-∞"
    number = Context(prec=digits, rounding=rounding).multiply(Decimal(repr(float(value))), scale)
    if number == 0:
        return "0"
    exponent = number.adjusted()
    if -4 <= exponent < 7:
        plain = f"{number:f}"
        return plain.rstrip("0").rstrip(".") if "." in plain else plain
    mantissa = f"{number.scaleb(-exponent):f}"
    return f"{mantissa.rstrip('0').rstrip('.') if '.' in mantissa else mantissa}e{exponent}"
