"""Check that a ledger file has one name: SQLite's log and locks, and our notes, belong to a name and not to a file.

Under two names of one file two processes have two write-ahead logs and two locks, and each spends the whole budget unseen
by the other. A hard link is a second name; so is a file that is mounted by itself, as `docker -v ledger.db:/data/ledger.db`
does it.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

from discreet.errors import LedgerError

MOUNTS = "/proc/self/mountinfo"
_ESCAPED = re.compile(rb"\\([0-7]{3})")  # blanks and backslashes in the table of mounts


class Place:
    """The place of an open ledger file, and which file was there."""

    __slots__ = ("_file", "path")

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file: tuple[int, int] | None = None

    def enter(self) -> None:
        """Refuse a file that has another name, or is a mount point; accept one that does not exist yet."""
        if not self.path.is_file():
            return
        if _is_mounted(self.path):
            raise LedgerError(
                f"{self.path} is a file that is mounted by itself. Where it comes from it has another name, with a "
                "write-ahead log and locks of its own, so each side could spend the whole budget. Mount the folder that it "
                "is in, on every side, and name the ledger in that."
            )
        self._file = None
        self.check()

    def check(self) -> None:
        """Refuse a file that got another name, or was exchanged, since it was opened: before every write."""
        try:
            status = os.stat(self.path)
        except FileNotFoundError:
            raise self._exchanged("is not there any more") from None
        if status.st_nlink > 1:
            raise LedgerError(
                f"{self.path} has {status.st_nlink} names (hard links). Each has a write-ahead log and locks of its own, so "
                "each could spend the whole budget. Close the ledger everywhere, and remove the other names (find them with "
                f"find -samefile {self.path.name}). To reach it from elsewhere, use a symbolic link."
            )
        file = status.st_dev, status.st_ino
        if self._file is None:
            self._file = file
        elif file != self._file:
            raise self._exchanged("is another file now")

    def _exchanged(self, change: str) -> LedgerError:
        return LedgerError(
            f"{self.path} {change}: it was moved or replaced while it was open here, so nothing is charged. Put the newest "
            "file back with its -wal, close the ledger everywhere, and open it again: Ledger(...)."
        )


def _is_mounted(path: Path) -> bool:
    """Whether a resolved path is a mount point; without a table of mounts, one of another device is seen."""
    try:
        with open(MOUNTS, "rb") as table:
            mounts = [line.split(b" ")[4] for line in table if line.count(b" ") > 4]
    except OSError:
        return os.path.ismount(path)
    return os.fsencode(path) in {_ESCAPED.sub(lambda match: bytes([int(match[1], 8)]), mount) for mount in mounts}
