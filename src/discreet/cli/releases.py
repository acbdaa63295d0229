"""Releases as commands take them: a file, a folder that holds release.json, or - for stdin."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from discreet.errors import InvalidValue

if TYPE_CHECKING:
    from discreet.core import Release
    from discreet.ledger import Ledger


def place_of(path: str) -> str:
    """The file that is meant."""
    if path == "-":
        return "/dev/stdin"
    return os.path.join(path, "release.json") if os.path.isdir(path) else path


def read_release(path: str) -> Release[Any]:
    """The release that is meant."""
    from discreet.core import Release

    return Release.load(place_of(path))


def opened_ledger(place: str) -> Ledger:
    """A ledger that is there: one that is only looked at is not made."""
    from discreet.ledger import Ledger

    if "://" not in place and not os.path.exists(place):
        raise InvalidValue(f"There is no ledger at {place}. Name another, or leave --ledger out.")
    return Ledger(place)
