"""A release: something made from sensitive data, with its ceiling and its floor."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Generic, TypeVar

from discreet.core import check
from discreet.core.claim import Claim
from discreet.core.document import members, read_json, write_whole
from discreet.core.evidence import Evidence
from discreet.core.facts import Facts
from discreet.errors import InvalidDocument, InvalidValue

T = TypeVar("T")
U = TypeVar("U")

FORMAT = "discreet-release"
VERSION = 3
_PARTS = ("format", "version", "source", "entry", "value", "claims", "evidence")
_ADDED = {1: (), 2: ("facts",), 3: ("facts",)}  # what each version asks beside them; 3 may name several entries


@dataclass(frozen=True, slots=True)
class ExternalValue:
    """Stands for a value that is not in the document, such as a model beside it; `type` says what it was."""

    type: str

    def __post_init__(self) -> None:
        check.word("type", self.type)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Release(Generic[T]):
    """Something made from sensitive data.

    `source` names the data set, `entry` the ledger entry that paid, `claims` the ceilings (one per game) and `evidence`
    the floors. `facts` are what a report tells beside them (`discreet.core.Facts` says which): they decide nothing. Where one
    entry did not pay for all of it, `also` names the others, and the claims compose what all of them paid for.

    >>> from discreet.core import Claim, Game, Laplace, record
    >>> claim = Claim(game=Game(record(), {"answers"}), event=Laplace(2.0))
    >>> count = Release(value=41, source="people", claims=(claim,))
    >>> count.map(lambda n: max(n, 0)).claims == count.claims
    True
    """

    value: T
    source: str
    claims: tuple[Claim, ...]
    entry: str | None = None
    evidence: tuple[Evidence, ...] = ()
    facts: Mapping[str, Any] = field(default_factory=Facts)
    also: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        check.word("source", self.source)
        if self.entry is not None:
            check.word("entry", self.entry)
        others = check.items("also", self.also, "a tuple of entries' ids, such as ('3-…',)")
        object.__setattr__(self, "also", tuple(check.word("also", item) for item in others))
        if self.also and len({None, *self.entries}) < 2 + len(self.also):
            raise InvalidValue("also must name entries beside entry, each of them once: an entry pays once.")
        for name, kind in (("claims", Claim), ("evidence", Evidence)):
            wanted = f"a tuple of {kind.__name__}, such as (item,)"
            items = check.items(name, getattr(self, name), wanted)
            if not all(isinstance(item, kind) for item in items):
                raise InvalidValue(f"{name} must be {wanted}; got {check.shown(items)}.")
            object.__setattr__(self, name, items)
        object.__setattr__(self, "facts", Facts(self.facts))

    @property
    def entries(self) -> tuple[str, ...]:
        """Every ledger entry that paid: `entry`, then `also`."""
        return () if self.entry is None else (self.entry, *self.also)

    @property
    def claims_on_value(self) -> tuple[Claim, ...]:
        """The claims about what is released.

        One whose adversary sees nothing but ciphertexts is about the machine that computed on them: it says nothing of a
        decrypted value. Only where there is no value are the ciphertexts all that there is.
        """
        if self.value is None:
            return self.claims
        return tuple(claim for claim in self.claims if claim.game.view != {"ciphertexts"})

    def map(self, function: Callable[[T], U]) -> Release[U]:
        """Post-processing: the same claims at no cost, whatever `function` does, as long as it sees only the value.

        The evidence stays too: it tests the claims' proof, which did not change.
        """
        return replace(self, value=function(self.value))  # type: ignore[arg-type, return-value]

    def add(self, *evidence: Evidence) -> Release[T]:
        """The same release with more evidence beside it."""
        return replace(self, evidence=(*self.evidence, *evidence))

    def to_json(self) -> dict[str, Any]:
        """The document; `docs/reference/release.schema.json` is its schema."""
        return {
            "format": FORMAT,
            "version": VERSION if self.also else 2,  # who reads version 2 knows one entry
            "source": self.source,
            "entry": list(self.entries) if self.also else self.entry,
            "value": _value_to_json(self.value),
            "claims": [claim.to_json() for claim in self.claims],
            "evidence": [item.to_json() for item in self.evidence],
            "facts": Facts(self.facts).to_json(),
        }

    @classmethod
    def from_json(cls, document: Any) -> Release[Any]:
        parts = members("release", document, required=_PARTS, optional=("facts",))
        if parts["format"] != FORMAT:
            raise InvalidDocument(f"This is not a release: its format is not {FORMAT!r}.")
        version = parts["version"]
        if not isinstance(version, (int, float)) or isinstance(version, bool) or version not in _ADDED:
            raise InvalidDocument(
                f"This release has version {check.shown(version)}; this discreet reads versions 1 to {VERSION}. "
                "Upgrade discreet, or write the release again with the version you have."
            )
        members("release", document, required=(*_PARTS, *_ADDED[int(version)]))
        for name in ("claims", "evidence"):
            if not isinstance(parts[name], list):
                raise InvalidDocument(f"{name} of a release must be a list; got {check.shown(parts[name])}.")
        entry, also = _entries_from_json(parts["entry"], int(version))
        try:
            return Release(
                value=_value_from_json(parts["value"]), source=parts["source"], entry=entry, also=also,
                claims=tuple(Claim.from_json(item) for item in parts["claims"]),
                evidence=tuple(Evidence.from_json(item) for item in parts["evidence"]), facts=parts.get("facts", {}),
            )  # fmt: skip
        except InvalidValue as error:
            raise InvalidDocument(f"The release is not valid: {error}") from None

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write the document as JSON; an existing file is replaced whole or not at all."""
        return write_whole(path, json.dumps(self.to_json(), allow_nan=False))

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Release[Any]:
        """Read a document written by `save`."""
        return cls.from_json(read_json(path))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Release):
            return NotImplemented
        mine, theirs = (
            (release.source, release.claims, release.entries, release.evidence, release.facts) for release in (self, other)
        )
        return mine == theirs and _same(self.value, other.value)

    def __hash__(self) -> int:
        return hash((self.source, self.claims, self.entries, self.evidence))

    def __repr__(self) -> str:
        return f"Release(of {self.source}: {len(self.claims)} claims, {len(self.evidence)} pieces of evidence)"


def _entries_from_json(document: Any, version: int) -> tuple[Any, tuple[Any, ...]]:
    """The first entry and the others, of which there are some since version 3."""
    if not isinstance(document, list):
        return document, ()
    if version < 3 or len(document) < 2:
        raise InvalidDocument(
            f"entry of a release is one id, or, since version 3, a list of several; got {check.shown(document)}"
        )
    return document[0], tuple(document[1:])


def _value_to_json(value: Any) -> dict[str, Any]:
    if isinstance(value, ExternalValue):
        return {"elsewhere": value.type}
    plain = _plain(value)
    return {"elsewhere": type(value).__name__} if plain is _NOT_PLAIN else {"inline": plain}


def _value_from_json(document: Any) -> Any:
    if isinstance(document, dict) and set(document) == {"elsewhere"}:
        return ExternalValue(document["elsewhere"])
    if not isinstance(document, dict) or set(document) != {"inline"}:
        raise InvalidDocument("value of a release must be {'inline': …} or {'elsewhere': 'type'}.")
    if _plain(document["inline"]) is _NOT_PLAIN:
        raise InvalidDocument("The inline value of the release holds a number that is not finite, or is nested too deeply.")
    return document["inline"]


_NOT_PLAIN = object()
_DEEPEST_VALUE = 100
_LONGEST_WHOLE = 10_000  # bits; Python refuses to write much longer whole numbers as text


def _plain(value: Any, depth: int = 0) -> Any:
    """The value as JSON data, or _NOT_PLAIN. Tuples and arrays become lists; NaN and infinities are not plain."""
    if value is None or isinstance(value, (bool, str)):
        return value
    if isinstance(value, int):
        return value if value.bit_length() <= _LONGEST_WHOLE else _NOT_PLAIN
    if isinstance(value, float):
        return value if math.isfinite(value) else _NOT_PLAIN
    if depth > _DEEPEST_VALUE:
        return _NOT_PLAIN
    if hasattr(value, "tolist") and type(value).__module__ == "numpy":
        return _plain(value.tolist(), depth + 1)
    if isinstance(value, (list, tuple)):
        items = [_plain(item, depth + 1) for item in value]
        return _NOT_PLAIN if any(item is _NOT_PLAIN for item in items) else items
    if isinstance(value, Mapping) and all(isinstance(key, str) for key in value):
        members = {key: _plain(item, depth + 1) for key, item in value.items()}
        return _NOT_PLAIN if any(item is _NOT_PLAIN for item in members.values()) else members
    return _NOT_PLAIN


def _same(value: Any, other: Any) -> bool:
    """Equality of any two values, arrays among them."""
    try:
        return bool(value == other)
    except ValueError:  # arrays compare entry by entry
        import numpy as np

        return bool(np.array_equal(value, other))
