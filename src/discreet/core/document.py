"""JSON documents: read strictly, checked member by member, written whole or not at all."""

from __future__ import annotations

import json
import os
import sys
import tomllib
from contextlib import suppress
from pathlib import Path
from typing import Any

from discreet.core import check
from discreet.errors import InvalidDocument, InvalidValue

LARGEST = 1 << 30  # bytes of a document that is read at all
_LONGEST_NAME = 300  # letters of a path that an error shows in full
_LARGEST_NUMBER = int(sys.float_info.max)


def members(kind: str, document: Any, *, required: tuple[str, ...], optional: tuple[str, ...] = ()) -> dict[str, Any]:
    """The members of a JSON object, after checking that it has all it must and nothing unknown."""
    if not isinstance(document, dict):
        raise InvalidDocument(f"A {kind} must be a JSON object; got {type(document).__name__}.")
    lacking = [name for name in required if name not in document]
    if lacking:
        raise InvalidDocument(f"The {kind} lacks {', '.join(lacking)}.")
    extra = sorted(set(map(str, document)) - set(required) - set(optional))
    if extra:
        raise InvalidDocument(f"The {kind} has unknown members: {', '.join(map(check.shown, extra[:5]))}.")
    return document


def read_json(path: str | os.PathLike[str]) -> Any:
    """A JSON document from a file, with an error that says what is wrong with it."""
    return parse_json(read_text(path, LARGEST, "JSON document"), str(path))


def read_plain(path: str | os.PathLike[str]) -> Any:
    """A JSON document of settings or results from a file: see `parse_plain`."""
    return parse_plain(read_text(path, LARGEST, "JSON document"), str(path))


def read_toml(path: str | os.PathLike[str], otherwise: str = "") -> dict[str, Any]:
    """A TOML document from a file, with an error that says what is wrong; `otherwise` is what to do where there is no file."""
    if otherwise and not Path(path).exists():
        raise InvalidValue(f"There is no file {check.shown(str(path))}; {otherwise}")
    return parse_toml(read_text(path, LARGEST, "TOML document"), str(path))


def parse_toml(text: str, name: str, *, checked: bool = False) -> dict[str, Any]:
    """TOML in which every number fits a float, as each setting of ours does; `name` is what errors call it.

    Where each number is `checked` later on, with its line, that is left to them.
    """
    try:
        document = tomllib.loads(text)
        fits = checked or _fits(document)
    except RecursionError:
        raise InvalidDocument(f"{name} is not valid TOML: it is nested too deeply.") from None
    except ValueError as error:  # a number of thousands of digits is one, and no TOMLDecodeError
        raise InvalidDocument(f"{name} is not valid TOML: {_line(error)}.") from None
    if not fits:
        raise InvalidDocument(f"{name} holds a whole number beyond 1.8e308, the largest float; no setting takes that.")
    return document


def read_text(path: str | os.PathLike[str], largest: int, kind: str) -> str:
    """The text of a file of at most so many bytes; `what` names it where it is not that."""
    try:
        with open(path, "rb") as file:
            data = file.read(largest + 1)  # bounded, since a device or a pipe has no size to ask for
    except OSError as error:
        place = str(path) if len(str(path)) <= _LONGEST_NAME else check.shown(str(path))
        raise InvalidDocument(f"{place} cannot be read: {error.strerror}.") from None
    except ValueError:
        raise InvalidDocument(f"{check.shown(str(path))} is not the name of a file.") from None
    if len(data) > largest:
        raise InvalidDocument(f"{path} is larger than {largest >> 20} MiB; that is no {kind} of ours.")
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        raise InvalidDocument(f"{path} is not text in UTF-8; a {kind} was expected.") from None


_OURS = b"discreet-crypto\n"
KEYS = ((_OURS, b'"kind": "secret-key"'), (_OURS, b'"kind": "public-key"'), (b"-----BEGIN", b"PRIVATE KEY"))


SQLITE, OURS_SQLITE = b"SQLite format 3\0", (b"dscr", b"dspv")  # a ledger, and what the web app knows of its users
BESIDE = ("-wal", "-shm", "-journal", "-turn", "-sync")  # what stands beside such a file, and belongs to it


def _is_database(path: Path) -> bool:
    """Whether the file is a ledger or the web app's, by SQLite's header with our application_id, or stands beside one."""
    names = [path.name, *(path.name.removesuffix(ending) for ending in BESIDE if path.name.endswith(ending))]
    for place in (path.with_name(name) for name in names if name):
        with suppress(OSError, ValueError), place.open("rb") as file:
            start = file.read(72)
            if start.startswith(SQLITE) and start[68:72] in OURS_SQLITE:
                return True
    return False


def keep_keys(path: str | os.PathLike[str]) -> None:
    """Refuse to write over a key or a ledger, whatever is written: what it encrypted, signs or counted would be lost."""
    target = Path(path)
    if not target.is_file():
        return
    try:
        with target.open("rb") as file:
            start = file.read(300)
    except OSError:  # who cannot read it is told by the writing
        return
    if any(start.startswith(first) and mark in start for first, mark in KEYS):
        raise InvalidValue(f"{check.shown(target.name)} is a key, which is never written over. Name another file.")
    if _is_database(target):
        raise InvalidValue(f"{check.shown(target.name)} belongs to a ledger, which is never written over. Name another file.")


def write_whole(path: str | os.PathLike[str], content: str | bytes) -> Path:
    """Write a file, text as UTF-8; an existing one is replaced whole or not at all, even if the machine stops.

    Keys and ledgers stay.
    """
    target = Path(path)
    keep_keys(target)
    scratch = target.parent / f".{target.name[:100]}.{os.getpid()}.{os.urandom(4).hex()}.part"
    try:
        with open(scratch, "xb") as file:
            file.write(content.encode("utf-8") if isinstance(content, str) else content)
            file.flush()
            os.fsync(file.fileno())
        scratch.replace(target)
    except (OSError, ValueError) as error:
        _forget(scratch)
        reason = getattr(error, "strerror", None) or error
        raise InvalidValue(f"{check.shown(str(target))} cannot be written: {reason}.") from None
    return target


def _forget(scratch: Path) -> None:
    with suppress(OSError, ValueError):
        scratch.unlink()


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


def parse_plain(text: str, name: str = "The document") -> Any:
    """JSON, as strictly, of settings or results: every number fits a float, and every text can be written in UTF-8.

    A value that was released may hold others.
    """
    document = parse_json(text, name)
    try:
        json.dumps(document, ensure_ascii=False).encode("utf-8")
        fits = _fits(document)
    except UnicodeEncodeError:
        raise InvalidDocument(f"{name} holds half of a character (a lone surrogate), which is no text.") from None
    except RecursionError:
        raise InvalidDocument(f"{name} is nested too deeply to be a document of ours.") from None
    if not fits:
        raise InvalidDocument(f"{name} holds a number beyond 1.8e308, the largest float.")
    return document


def _fits(document: Any) -> bool:
    """Whether a float can hold each whole number inside (TOML has an infinity of its own)."""
    if isinstance(document, dict):
        return all(map(_fits, document.values()))
    if isinstance(document, list):
        return all(map(_fits, document))
    return not isinstance(document, int) or abs(document) <= _LARGEST_NUMBER


def _line(error: Exception) -> str:
    return " ".join(str(error).split())[:300]


def _refuse_constant(name: str) -> Any:
    raise InvalidDocument(f"it holds {name}, which JSON does not have")


def _no_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    merged = dict(pairs)
    if len(merged) != len(pairs):
        raise InvalidDocument("an object holds the same member twice")
    return merged
