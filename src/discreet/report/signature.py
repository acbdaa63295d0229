"""Signatures of releases and of a ledger's last entry: who vouches for them, and whether anything was changed since.

A signature is a small document of its own: NAME.sig beside a release NAME, wherever you like for a ledger. What is signed is
the canonical JSON of a statement, after a line that no other use of the key has. The statement on a release holds the hash of
the release's canonical JSON, and those of the files that go with it.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from discreet.core import ExternalValue, Release, check
from discreet.core.document import members, parse_json, read_json, read_text, write_whole
from discreet.errors import DiscreetError, InvalidDocument, InvalidValue, LedgerError
from discreet.ledger.chain import canonical
from discreet.report import keys

if TYPE_CHECKING:
    from discreet.ledger import Ledger

__all__ = ["Signed", "check_head", "check_release", "sign_head", "sign_release"]

FORMAT, VERSION = "discreet-signature", 1
ENDING = ".sig"
MOST_FILES = 10_000
_LARGEST = 1 << 24
_DOMAIN = b"discreet-signature 1\n"


@dataclass(frozen=True, slots=True)
class Signed:
    """What a signature shows. `fault` says why it shows nothing; `unknown` is what it cannot show, for people.

    `there` is whether there is a signature at all, be it good or bad; `entry` the last entry of the ledger that was signed.
    """

    key: str | None
    fault: str | None
    unknown: tuple[str, ...] = ()
    there: bool = True
    entry: str | None = None


def sign_release(path: str | os.PathLike[str], key: str | os.PathLike[str], files: Iterable[str] = ()) -> Path:
    """Sign a release with the key in a file; the signature is written beside it, as NAME.sig.

    For a folder with release.json in it, all files in the folder are covered. For a file, those named: a value that is not in
    the document must be among them.
    """
    place = _document(path)
    release: Release[Any] = Release.load(place)
    covered = _inside(Path(path), place) if Path(path).is_dir() else [Path(name) for name in files]
    if isinstance(release.value, ExternalValue) and not covered:
        raise InvalidValue(
            f"The value of this release, a {check.shown(release.value.type)}, is not in {place.name}, and no file was named "
            "that holds it. Sign the folder, or name the file: --with FILE."
        )
    hashes = {_name(file, place.parent): _hash(file) for file in covered}
    statement = {"about": "release", "document": _document_hash(place), "files": hashes, "at": _now()}
    return _write(place.with_name(place.name + ENDING), statement, key)


def sign_head(ledger: Ledger, key: str | os.PathLike[str], out: str | os.PathLike[str]) -> Path:
    """Verify a ledger, and sign its last entry: a head that is noted elsewhere, and that nobody else can note."""
    last = ledger.verify()
    if not last:
        raise InvalidValue("The ledger has no entry yet; there is nothing to sign.")
    entry = ledger.history()[int(last.partition("-")[0]) - 1]
    return _write(Path(out), {"about": "ledger", "entry": last, "hash": entry.hash, "at": _now()}, key)


def check_release(path: str | os.PathLike[str], expected: Sequence[str] = ()) -> Signed:
    """What the signature beside a release shows; `expected` are the public keys that count, as text."""
    place = _document(path)
    beside = place.with_name(place.name + ENDING)
    if not beside.is_file():
        return Signed(None, f"there is no signature beside it ({beside.name})", there=False)
    key, statement, fault = _read(beside, "release", ("document", "files"))
    if fault is None and statement["document"] != _document_hash(place):
        fault = f"{place.name} was changed after it was signed"
    if fault is None:
        fault = _changed(place.parent, statement["files"])
    fault = fault or _stranger(key, expected)
    if fault is not None:
        return Signed(key, fault)
    return Signed(key, None, (*_unknown(key, expected), *_uncovered(Path(path), place, statement["files"])))


def check_head(ledger: Ledger, path: str | os.PathLike[str], expected: Sequence[str] = ()) -> Signed:
    """Whether a ledger still holds the entry that a signature of its head says, after verifying all of it."""
    key, statement, fault = _read(Path(path), "ledger", ("entry", "hash"))
    fault = fault or _stranger(key, expected)
    if fault is None:
        try:
            ledger.verify(statement["entry"])
            entry = ledger.history()[int(str(statement["entry"]).partition("-")[0]) - 1]
            fault = None if entry.hash == statement["hash"] else f"entry {statement['entry']} is not the one that was signed"
        except LedgerError as error:
            fault = str(error).rstrip(".")
    if fault is not None:
        return Signed(key, fault)
    unknown = (*_unknown(key, expected), f"What was written after entry {statement['entry']} is not signed.")
    return Signed(key, None, unknown, entry=str(statement["entry"]))


def _read(path: Path, about: str, parts: tuple[str, ...]) -> tuple[str | None, dict[str, Any], str | None]:
    """The key, the statement, and why they are not to be believed."""
    try:
        text = read_text(path, _LARGEST, "signature")
        document = members(
            "signature", parse_json(text, str(path)), required=("format", "version", "signed", "key", "signature")
        )
        if (document["format"], document["version"]) != (FORMAT, VERSION):
            raise InvalidDocument(f"its format is not {FORMAT} of version {VERSION}.")
        statement = members("statement", document["signed"], required=("about", "at", *parts))
        key = keys.check_public("key", document["key"])
        signature = check.word("signature", document["signature"])
    except DiscreetError as error:
        return None, {}, f"{path.name} is no signature that can be read: {str(error).rstrip('.')}"
    if statement["about"] != about:
        return key, statement, f"{path.name} is a signature of a {check.shown(statement['about'])}, not of a {about}"
    if not keys.fits(key, signature, _message(statement)):
        return key, statement, f"the signature in {path.name} is not by the key that it names, or was changed"
    return key, statement, None


def _write(path: Path, statement: dict[str, Any], key: str | os.PathLike[str]) -> Path:
    private = keys.private_key(key)
    signature = base64.b64encode(private.sign(_message(statement))).decode("ascii")
    document = {
        "format": FORMAT, "version": VERSION, "signed": statement, "key": keys.public_text(private), "signature": signature
    }  # fmt: skip
    return write_whole(path, json.dumps(document, indent=1) + "\n")


def _message(statement: dict[str, Any]) -> bytes:
    return _DOMAIN + canonical(statement).encode("ascii")


def _stranger(key: str | None, expected: Sequence[str]) -> str | None:
    if expected and key not in expected:
        return f"it was signed with {key}, which is none of the keys that count"
    return None


def _unknown(key: str | None, expected: Sequence[str]) -> tuple[str, ...]:
    if expected:
        return ()
    return (
        f"No public key was given, so whose key {key} is cannot be known: whoever changes something can sign it again with "
        "a key of their own. Give the key that you expect.",
    )


def _uncovered(given: Path, place: Path, files: Any) -> tuple[str, ...]:
    """Files that came into a signed folder later."""
    late = (
        [name for file in _inside(given, place) if (name := _name(file, place.parent)) not in files] if given.is_dir() else []
    )
    return (f"Not signed: {', '.join(map(check.shown, late[:5]))}{' and others' if len(late) > 5 else ''}.",) if late else ()


def _changed(folder: Path, files: Any) -> str | None:
    """The first file that is not as it was signed."""
    if not isinstance(files, dict):
        return "its signature does not list files"
    for name, digest in files.items():
        file = folder / name
        if Path(name).is_absolute() or ".." in Path(name).parts or not file.is_file():
            return f"{check.shown(name)}, which was signed with it, is not there"
        if _hash(file) != digest:
            return f"{check.shown(name)} was changed after it was signed"
    return None


def _document(path: str | os.PathLike[str]) -> Path:
    return Path(path) / "release.json" if Path(path).is_dir() else Path(path)


def _inside(folder: Path, document: Path) -> list[Path]:
    """The files of a folder that go with its release: all but the release, its signature, and hidden ones."""
    own = {document, document.with_name(document.name + ENDING)}
    files = [
        file
        for file in sorted(folder.rglob("*"))
        if file.is_file() and file not in own and not any(part.startswith(".") for part in file.relative_to(folder).parts)
    ]
    if len(files) > MOST_FILES:
        raise InvalidValue(f"{folder} holds {len(files)} files; a release has at most {MOST_FILES}. Name them: --with FILE.")
    return files


def _name(file: Path, folder: Path) -> str:
    """The name of a file as seen from the release; it must lie beside or below it, so that both can be moved together."""
    try:
        return file.resolve().relative_to(folder.resolve()).as_posix()
    except ValueError:
        raise InvalidValue(f"{file} does not lie beside the release or below it, so it cannot be signed with it.") from None


def _hash(file: Path) -> str:
    try:
        with file.open("rb") as opened:
            return f"sha256:{hashlib.file_digest(opened, 'sha256').hexdigest()}"
    except OSError as error:
        raise InvalidValue(f"{check.shown(str(file))} cannot be read: {error.strerror}.") from None


def _document_hash(place: Path) -> str:
    """Of the canonical JSON, so that indentation and the order of members do not matter."""
    return f"sha256:{hashlib.sha256(canonical(read_json(place)).encode('ascii')).hexdigest()}"


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
