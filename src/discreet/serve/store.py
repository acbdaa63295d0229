"""The folder of releases: listed, read, added to; nothing outside it is ever opened."""

from __future__ import annotations

import re
import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import lru_cache
from pathlib import Path
from typing import Any

from discreet.accounting.effort import effort
from discreet.core import Claim, Event, NonPrivate, Release, check
from discreet.core.facts import SHAPES
from discreet.core.release import ExternalValue
from discreet.errors import DiscreetError, InvalidValue

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.@-]{0,119}")
LARGEST = 256 << 20  # bytes of a document that is shown
MOST_EFFORT = 1000  # of the claims of a release that is shown: 4 seconds of CPU, once
MOST_ROWS = 5000  # of a table that is shown
DELTA = 1e-6  # at which a list tells epsilon of a source without a budget
PUBLIC = frozenset({  # facts that do not depend on rows, or were paid for; all others that a report knows were measured on rows
    "title", "made", "seeds", "hashes", "spending", "tried", "not_tried", "synthetic", "fidelity",
})  # fmt: skip
MEASURED = frozenset(SHAPES) - PUBLIC


@dataclass(frozen=True, slots=True)
class Card:
    """One line of the list."""

    name: str
    title: str
    source: str
    made: str
    entry: str | None
    epsilon: float | None  # of its claims at `delta`; None: nothing is claimed
    delta: float  # of the source's budget
    claims: int
    attacks: tuple[str, ...]
    fault: str | None = None

    def to_json(self) -> dict[str, Any]:
        return {
            "name": self.name, "title": self.title, "source": self.source, "made": self.made, "entry": self.entry,
            "epsilon": self.epsilon, "delta": self.delta, "claims": self.claims, "attacks": list(self.attacks),
            "fault": self.fault,
        }  # fmt: skip


class ReleaseStore:
    """Releases by name: a folder NAME with release.json in it, or a file NAME.json."""

    def __init__(self, folder: Path, delta_of: Callable[[str], float] = lambda source: DELTA) -> None:
        """`delta_of` gives the delta of a source's budget, at which the epsilon of its releases is told."""
        self.folder, self._delta_of = folder.resolve(), delta_of
        self._cards: dict[str, tuple[tuple[int, int], Card]] = {}
        self._read: OrderedDict[tuple[str, int, int], Release[Any]] = OrderedDict()
        self._kept: OrderedDict[Hashable, Any] = OrderedDict()
        self._lock = threading.Lock()

    def path(self, name: str) -> Path:
        """Where the document of a release is; refused unless it is within the folder."""
        if NAME.fullmatch(name) and ".." not in name:
            for place in (self.folder / name / "release.json", self.folder / f"{name}.json"):
                if place.is_file() and place.resolve().is_relative_to(self.folder):
                    return place
        raise InvalidValue(f"There is no release {check.shown(name)} here.")

    def names(self) -> list[str]:
        """The names of all releases."""
        names = set()
        for place in self.folder.iterdir():
            name = place.stem if place.suffix == ".json" and place.is_file() else place.name
            if NAME.fullmatch(name) and (place.suffix == ".json" or (place / "release.json").is_file()):
                names.add(name)
        return sorted(names)

    def cards(self) -> list[Card]:
        """All releases, newest first."""
        cards = []
        for name in self.names():
            try:
                cards.append(self.card(name))
            except (DiscreetError, OSError):
                continue  # taken away, or led outside, while we looked
        return sorted(cards, key=lambda card: (card.made, card.name), reverse=True)

    def card(self, name: str) -> Card:
        """The line of a release in the list; cached until its file changes."""
        place = self.path(name)
        about = place.stat()
        stamp = (about.st_mtime_ns, about.st_size)
        kept = self._cards.get(name)
        if kept is not None and kept[0] == stamp:
            return kept[1]
        written = datetime.fromtimestamp(about.st_mtime, UTC).isoformat(timespec="seconds")
        try:
            release = self.load(name)
            card = _card(name, release, written, self._delta_of(release.source))
        except DiscreetError as error:
            card = Card(name, name, "", written, None, None, DELTA, 0, (), str(error))
        self._cards[name] = (stamp, card)
        return card

    def load(self, name: str) -> Release[Any]:
        """Load a release; the last few are cached."""
        place = self.path(name)
        about = place.stat()
        if about.st_size > LARGEST:
            raise InvalidValue(f"{name} is larger than {LARGEST >> 20} MiB, too large to be shown here.")
        key = (name, about.st_mtime_ns, about.st_size)
        with self._lock:
            if key in self._read:
                self._read.move_to_end(key)
                return self._read[key]
        try:
            release: Release[Any] = Release.load(place)
        except DiscreetError as error:
            raise InvalidValue(self.without_paths(str(error))) from None
        if effort(claim.event for claim in release.claims) > MOST_EFFORT:
            raise InvalidValue(
                f"{name} composes too many different mechanisms in its claims, or samples compositions of them, to be "
                "accounted for while somebody waits (4 that are sampled, or 25 others). Its report can be made apart: "
                "discreet report."
            )
        with self._lock:
            self._read[key] = release
            while len(self._read) > 16:
                self._read.popitem(last=False)
        return release

    def without_paths(self, message: str) -> str:
        """A message without the place of the folder on this machine, which is nobody's business in a browser."""
        return message.replace(f"{self.folder}/", "").replace(str(self.folder), "the folder of releases")

    def remember(self, name: str, what: Hashable, make: Callable[[], Any]) -> Any:
        """The result of a slow function of a release, cached until its file changes."""
        key = self._stamped(name, what)
        if key not in self._kept:
            value = make()
            with self._lock:
                self._kept[key] = value
                while len(self._kept) > 1000:
                    self._kept.popitem(last=False)
            return value
        return self._kept[key]

    def remembers(self, name: str, what: Hashable) -> bool:
        return self._stamped(name, what) in self._kept

    def _stamped(self, name: str, what: Hashable) -> Hashable:
        about = self.path(name).stat()
        return (name, about.st_mtime_ns, about.st_size, what)

    def table(self, name: str, release: Release[Any]) -> Any:
        """The table in the folder of an answer that is too large for its document; None for every other release."""
        file = self.path(name).with_name("table.parquet")
        private = [claim for claim in release.claims if not isinstance(claim.event, NonPrivate)]
        answers = private and all(claim.game.view == {"answers"} for claim in release.claims)
        if not isinstance(release.value, ExternalValue) or len(private) < len(release.claims) or not answers:
            return None
        if file.parent == self.folder or not file.is_file() or not file.resolve().is_relative_to(self.folder):
            return None
        import pyarrow
        import pyarrow.parquet as parquet

        try:
            parquet_file = parquet.ParquetFile(file)
            return parquet_file.read() if parquet_file.metadata.num_rows <= MOST_ROWS else None
        except (pyarrow.ArrowException, OSError):
            return None

    def save(self, name: str, release: Release[Any], table: Any = None) -> str:
        """Add a release under a name; if it is there already nothing changes, since the same entry paid for both."""
        if not NAME.fullmatch(name):
            raise InvalidValue(f"A release cannot have the name {check.shown(name)}.")
        folder = self.folder / name
        if not (folder / "release.json").exists():
            try:
                folder.mkdir(exist_ok=True)
                if table is not None:
                    import pyarrow.parquet as parquet

                    parquet.write_table(table, folder / "table.parquet")
            except OSError as error:
                raise InvalidValue(f"The release {name} cannot be written: {error.strerror or error}.") from None
            try:
                release.save(folder / "release.json")
            except DiscreetError as error:
                raise InvalidValue(self.without_paths(str(error))) from None
        return name


def plain_name(text: str) -> str:
    """A text as part of the name of a file."""
    plain = "".join(each if each.isascii() and (each.isalnum() or each in "_.@-") else "_" for each in text)
    return plain[:80].lstrip("_.@-") or "release"


def seen_by(role: str, release: Release[Any]) -> Release[Any]:
    """The release as a role may see it. Evidence was measured on the rows without noise, so analysts do not see it."""
    if role != "analyst":
        return release
    rest = {name: fact for name, fact in release.facts.items() if name not in MEASURED}
    return replace(release, evidence=(), facts=rest)


def _card(name: str, release: Release[Any], written: str, delta: float) -> Card:
    when = release.facts.get("made", {}).get("when")
    return Card(
        name, release.facts.get("title") or name, release.source, when if isinstance(when, str) else written,
        release.entry, epsilon_of(release.claims_on_value, delta), delta, len(release.claims),
        tuple(item.attack for item in release.evidence),
    )  # fmt: skip


def epsilon_of(claims: tuple[Claim, ...], delta: float = DELTA) -> float | None:
    """The largest epsilon among the claims, at delta; None if nothing is claimed, or there is no ceiling."""
    if any(isinstance(claim.event, NonPrivate) for claim in claims):
        return None
    try:
        return max((float(_epsilon(claim.event, delta)) for claim in claims), default=None)
    except DiscreetError:
        return None


@lru_cache(4096)
def _epsilon(event: Event, delta: float) -> float:
    """Cached: many answers share few events."""
    from discreet.audit.judge import ceiling_of

    return ceiling_of(event).epsilon(delta)
