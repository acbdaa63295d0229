"""A release: something made from sensitive data, with its ceiling and its floor."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Generic, TypeVar

from discreet.core import check
from discreet.core.claim import Claim, members
from discreet.core.evidence import Evidence
from discreet.errors import InvalidDocument, InvalidValue

T = TypeVar("T")
U = TypeVar("U")

FORMAT = "discreet-release"
VERSION = 1
LARGEST = 1 << 30  # bytes of a release.json that is read at all


@dataclass(frozen=True, slots=True)
class Elsewhere:
    """Stands for a value that is not in the document, such as a model beside it; `type` says what it was."""

    type: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Release(Generic[T]):
    """Something made from sensitive data.

    `source` names the data set, `entry` the ledger entry that paid, `claims` the ceilings (one per game) and `evidence`
    the floors.

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

    def __post_init__(self) -> None:
        check.word("source", self.source)
        if self.entry is not None:
            check.word("entry", self.entry)
        for name, kind in (("claims", Claim), ("evidence", Evidence)):
            items = getattr(self, name)
            if isinstance(items, kind) or not all(isinstance(item, kind) for item in items):
                raise InvalidValue(f"{name} must be a tuple of {kind.__name__}; got {type(items).__name__}.")
            object.__setattr__(self, name, tuple(items))

    def map(self, function: Callable[[T], U]) -> Release[U]:
        """Post-processing: the same claims at no cost, whatever `function` does, as long as it sees only the value."""
        return replace(self, value=function(self.value))  # type: ignore[arg-type, return-value]

    def add(self, *evidence: Evidence) -> Release[T]:
        """The same release with more evidence beside it."""
        return replace(self, evidence=(*self.evidence, *evidence))

    def to_json(self) -> dict[str, Any]:
        """The document; `docs/reference/release.schema.json` is its schema."""
        return {
            "format": FORMAT,
            "version": VERSION,
            "source": self.source,
            "entry": self.entry,
            "value": _value_to_json(self.value),
            "claims": [claim.to_json() for claim in self.claims],
            "evidence": [item.to_json() for item in self.evidence],
        }

    @classmethod
    def from_json(cls, document: Any) -> Release[Any]:
        parts = members("release", document, required=("format", "version", "source", "entry", "value", "claims", "evidence"))
        if parts["format"] != FORMAT:
            raise InvalidDocument(f"This is not a release: its format is not {FORMAT!r}.")
        if parts["version"] != VERSION or isinstance(parts["version"], bool):
            raise InvalidDocument(
                f"This release has version {str(parts['version'])[:20]}; this discreet reads version {VERSION}. "
                "Upgrade discreet, or write the release again with the version you have."
            )
        for name in ("claims", "evidence"):
            if not isinstance(parts[name], list):
                raise InvalidDocument(f"{name} of a release must be a list; got {type(parts[name]).__name__}.")
        try:
            return Release(
                value=_value_from_json(parts["value"]), source=parts["source"], entry=parts["entry"],
                claims=tuple(Claim.from_json(item) for item in parts["claims"]),
                evidence=tuple(Evidence.from_json(item) for item in parts["evidence"]),
            )  # fmt: skip
        except InvalidValue as error:
            raise InvalidDocument(f"The release is not valid: {error}") from None

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write the document as JSON; an existing file is replaced whole or not at all."""
        target = Path(path)
        text = json.dumps(self.to_json(), allow_nan=False)
        scratch = target.with_name(f".{target.name}.{os.getpid()}.part")
        try:
            scratch.write_text(text, encoding="utf-8")
            scratch.replace(target)
        except OSError as error:
            scratch.unlink(missing_ok=True)
            raise InvalidValue(f"The release cannot be written to {target}: {error.strerror}.") from None
        return target

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Release[Any]:
        """Read a document written by `save`."""
        return cls.from_json(read_json(path))

    def __repr__(self) -> str:
        return f"Release(of {self.source}: {len(self.claims)} claims, {len(self.evidence)} pieces of evidence)"

    def _repr_html_(self) -> str:
        from discreet.core.card import release_card

        return release_card(self)


def read_json(path: str | os.PathLike[str]) -> Any:
    """A JSON document from a file, with an error that says what is wrong with it."""
    target = Path(path)
    try:
        if target.stat().st_size > LARGEST:
            raise InvalidDocument(f"{target} is larger than {LARGEST >> 20} MiB; that is no release.")
        text = target.read_text(encoding="utf-8")
    except OSError as error:
        raise InvalidDocument(f"{target} cannot be read: {error.strerror}.") from None
    except UnicodeDecodeError:
        raise InvalidDocument(f"{target} is not text; a JSON document was expected.") from None
    return parse_json(text, str(target))


def parse_json(text: str, name: str = "The document") -> Any:
    """JSON, strictly: no NaN, no Infinity, no member twice."""
    try:
        return json.loads(text, parse_constant=_refuse_constant, object_pairs_hook=_no_duplicates)
    except InvalidDocument as error:
        raise InvalidDocument(f"{name} is not valid JSON: {error}") from None
    except RecursionError:
        raise InvalidDocument(f"{name} is nested too deeply to be a document of ours.") from None
    except ValueError as error:
        raise InvalidDocument(f"{name} is not valid JSON ({error}); it may be cut short.") from None


def _refuse_constant(name: str) -> Any:
    raise InvalidDocument(f"it holds {name}, which JSON does not have")


def _no_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise InvalidDocument("an object holds the same member twice")
    return found


def _value_to_json(value: Any) -> dict[str, Any]:
    if isinstance(value, Elsewhere):
        return {"elsewhere": value.type}
    plain = _plain(value)
    return {"elsewhere": type(value).__name__} if plain is _NOT_PLAIN else {"inline": plain}


def _value_from_json(document: Any) -> Any:
    if isinstance(document, dict) and set(document) == {"inline"}:
        return document["inline"]
    if isinstance(document, dict) and set(document) == {"elsewhere"} and isinstance(document["elsewhere"], str):
        return Elsewhere(document["elsewhere"])
    raise InvalidDocument("value of a release must be {'inline': …} or {'elsewhere': 'type'}.")


_NOT_PLAIN = object()


def _plain(value: Any) -> Any:
    """The value as JSON data, or _NOT_PLAIN. Tuples and arrays become lists; NaN and infinities are not plain."""
    if value is None or isinstance(value, (bool, str)):
        return value
    if isinstance(value, int):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else _NOT_PLAIN
    if hasattr(value, "tolist") and type(value).__module__ == "numpy":
        return _plain(value.tolist())
    if isinstance(value, (list, tuple)):
        items = [_plain(item) for item in value]
        return _NOT_PLAIN if any(item is _NOT_PLAIN for item in items) else items
    if isinstance(value, Mapping) and all(isinstance(key, str) for key in value):
        members = {key: _plain(item) for key, item in value.items()}
        return _NOT_PLAIN if any(item is _NOT_PLAIN for item in members.values()) else members
    return _NOT_PLAIN
