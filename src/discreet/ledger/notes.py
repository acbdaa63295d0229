"""The note beside a ledger file: how far it is on the disk, so that a group syncs once and an older copy is recognised.

It is written after the write-ahead log was synced, and never before. So whatever a crash leaves of note and ledger, the ledger
holds what the note says; one that does not is an older copy, or has lost the end of its log. A note that was half written
when the machine stopped has a wrong checksum, and is no note.
"""

from __future__ import annotations

from typing import NamedTuple
from zlib import crc32

from discreet.ledger.store import Transaction

LONGEST = 300  # bytes of a note that are read
_EXTENT = "SELECT number, hash, (SELECT coalesce(max(place), 0) FROM started)"
_HELD = f"{_EXTENT}, (SELECT hash FROM entry WHERE number = ?) FROM head"


class Note(NamedTuple):
    """The last entry and the last start on the disk; `number` and `hash` are those of an entry among them.

    `era` is a random name: a process that sees it for the first time looks for that entry in the ledger.
    """

    era: str
    entries: int
    starts: int
    number: int
    hash: str

    def to_bytes(self) -> bytes:
        """A line of fixed length for each era: a later note covers an earlier one whole.

        >>> note = Note("e", 7, 0, 7, "ab")
        >>> Note.from_bytes(note.to_bytes()) == note, Note.from_bytes(note.to_bytes().replace(b"7", b"8", 1))
        (True, None)
        """
        text = f"{self.era} {self.entries:020d} {self.starts:020d} {self.number:020d} {self.hash}"
        return f"{text} {_checksum(text)}\n".encode("ascii")

    @classmethod
    def from_bytes(cls, data: bytes) -> Note | None:
        """The note, or None where there is none that was written whole."""
        try:
            text, _, checksum = data.partition(b"\n")[0].decode("ascii").rpartition(" ")
            era, entries, starts, number, mark = text.split(" ")
            if checksum != _checksum(text):
                return None
            return cls(era, int(entries), int(starts), int(number), mark)
        except ValueError:
            return None

    def held_by(self, transaction: Transaction) -> bool:
        """Whether a ledger has all of this; it may have more."""
        last, _, starts, stored_hash = transaction.execute(_HELD, (self.number,)).fetchone()
        return bool((stored_hash == self.hash or not self.number) and last >= self.entries and starts >= self.starts)

    def further(self, head: tuple[int, str] | None, start: int) -> Note:
        """This, after an entry and a start were written; None and 0 where there was none."""
        number, mark = (self.number, self.hash) if head is None else head
        return Note(self.era, max(self.entries, number), max(self.starts, start), number, mark)


NOTHING = Note("", 0, 0, 0, "")


def extent(transaction: Transaction) -> Note:
    """The ledger's current extent, without an era, since it does not say what is on the disk."""
    number, mark, starts = transaction.execute(f"{_EXTENT} FROM head").fetchone()
    return Note("", number, starts, number, mark)


def _checksum(text: str) -> str:
    return f"{crc32(text.encode('ascii')):08x}"
