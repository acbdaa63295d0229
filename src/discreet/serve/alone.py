"""One server for one set of files: a second one on the same users or releases is refused when it starts.

Two servers would each count failed logins, number attacks and clear away the other's work. The lock is the operating
system's, so that it ends with the process, however that ends.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import IO

from discreet.errors import InvalidValue


class Alone:
    """Locks on files, held until `close`."""

    def __init__(self, places: Iterable[Path]) -> None:
        self._held: list[IO[str]] = []
        try:
            for place in places:
                self._held.append(_locked(place))
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        for file in self._held:
            file.close()
        self._held = []


def _locked(place: Path) -> IO[str]:
    """The open file, locked; it holds the number of the process."""
    try:
        file = os.fdopen(os.open(place, os.O_RDWR | os.O_CREAT, 0o600), "r+", encoding="utf-8")
    except OSError as error:
        raise InvalidValue(f"{place} cannot be written, so a second server could not be kept away: {error.strerror}.") from None
    try:
        if os.name == "posix":
            import fcntl

            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        who = file.read(20).strip()
        file.close()
        name = place.name.removeprefix(".").removesuffix(".lock")
        raise InvalidValue(
            f"Another server{f' (process {who})' if who.isdecimal() else ''} uses the same {name}. Stop it, or name other "
            "files with --users and --releases: two servers would not know of each other's logins and attacks."
        ) from None
    file.truncate(0)
    file.write(str(os.getpid()))
    file.flush()
    return file
