"""What `ledger=` takes wherever it is an argument: a Ledger, or the file or postgresql:// URL where one is kept."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import overload

from discreet.errors import InvalidValue
from discreet.ledger.ledger import Ledger

LedgerLike = Ledger | str | os.PathLike[str]


@overload
def as_ledger(ledger: LedgerLike) -> Ledger: ...
@overload
def as_ledger(ledger: LedgerLike | None) -> Ledger | None: ...
def as_ledger(ledger: LedgerLike | None) -> Ledger | None:
    """The ledger itself, or the one that is kept where a name says; None where none is given.

    A file that is not there is refused: `Ledger(path)` makes a new ledger, and a mistyped name must not.

    >>> as_ledger("no-such.db")
    Traceback (most recent call last):
    ...
    discreet.errors.InvalidValue: There is no ledger at no-such.db. ...
    """
    if ledger is None or hasattr(ledger, "reserve"):
        return ledger  # type: ignore[return-value]
    if not isinstance(ledger, (str, os.PathLike)):
        raise InvalidValue(
            f"ledger must be a discreet.Ledger, the name of its file or its postgresql:// URL; got {type(ledger).__name__}."
        )
    place = os.fspath(ledger)
    if "://" not in place and not os.path.exists(place):
        raise InvalidValue(f"There is no ledger at {place}. Name another, or open a budget there first.")
    return Ledger(place)


@overload
def opened(ledger: LedgerLike) -> AbstractContextManager[Ledger]: ...
@overload
def opened(ledger: LedgerLike | None) -> AbstractContextManager[Ledger | None]: ...
@contextmanager  # type: ignore[misc]
def opened(ledger: LedgerLike | None) -> Iterator[Ledger | None]:
    """The same for as long as it is needed: one that is named is closed afterwards, a Ledger stays open."""
    handle = as_ledger(ledger)
    try:
        yield handle
    finally:
        if handle is not None and handle is not ledger:
            handle.close()
