"""Releases and ledgers as commands take them: a file, a folder of releases, - for stdin; a ledger that is there."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Any

from discreet.errors import BudgetExceeded, InvalidValue

if TYPE_CHECKING:
    from discreet.core import Release
    from discreet.ledger import Ledger


_COMMAND = re.compile(
    r"discreet ledger (?:show|raise) (?:'[^']*'(?:\"'\"'[^']*')*|[\w@%+=:,./-]*[\w@%+=:/-])(?=[.;,]? |[.;,]?$)"
)


def place_of(path: str) -> str:
    """The file that a path names: of a folder its release.json."""
    if path == "-":
        return "/dev/stdin"
    return os.path.join(path, "release.json") if os.path.isdir(path) else path


def read_release(path: str) -> Release[Any]:
    """The release that a path names."""
    from discreet.core import Release

    return Release.load(place_of(path))


def releases_in(path: str) -> list[str]:
    """The files that a path names: itself, the release.json of a folder, or else all releases in the folder."""
    if path == "-" or not os.path.isdir(path):
        return [path]
    folder = Path(path)
    if (folder / "release.json").exists():
        return [path]
    files = [str(file) for file in sorted([*folder.glob("*.json"), *folder.glob("*/release.json")]) if _is_release(file)]
    if not files:
        raise InvalidValue(f"The folder {path!r} holds no release.json and no other release; name a file.")
    return files


def _is_release(path: Path) -> bool:
    try:
        with path.open("rb") as file:
            return b'"discreet-release"' in file.read(200)
    except OSError:
        return False


@contextmanager
def naming_ledger(place: str | None) -> Iterator[None]:
    """A refusal that ends with a command to run has the ledger in it, so that the command can be run as it is."""
    try:
        yield
    except BudgetExceeded as error:
        if place and "://" not in place:  # an address may hold a password
            error.args = (_COMMAND.sub(lambda found: f"{found[0]} --ledger {quote(place)}", str(error)),)
        raise


def there(place: str, otherwise: str = "make one: discreet ledger open") -> str:
    """The place of a ledger that exists: a mistyped name must not make an empty one."""
    if "://" not in place and not os.path.exists(place):
        raise InvalidValue(f"There is no ledger at {place}. Name another, or {otherwise}.")
    return place


def opened_ledger(place: str) -> Ledger:
    """A ledger that is there: one that is only looked at is not made."""
    from discreet.ledger import Ledger

    return Ledger(there(place, "leave --ledger out"))


def budget(ledger: str | None, source: str | None, account: str | None = None) -> dict[str, str]:
    """What pays for a release, as the library takes it: a ledger and a source in it, or nothing at all."""
    if ledger is None and source is None and account is None:
        return {}
    if ledger is None:
        raise InvalidValue("--ledger and --source go together: say with --ledger which ledger keeps the budget.")
    if source is None:
        raise InvalidValue(
            "--ledger needs --source, the name of the budget that pays; without it nothing would be charged. To charge "
            "nothing, leave --ledger out and unset DISCREET_LEDGER."
        )
    return {"ledger": there(ledger), "source": source} | ({} if account is None else {"account": account})
