"""Keys and signatures: what they cover, and that every change to it is found."""

from __future__ import annotations

import json
import os
import re
import shutil
from pathlib import Path
from typing import Any

import pytest

from discreet import Ledger, record
from discreet.accounting import Gaussian
from discreet.core import Claim, ExternalValue, Game, Release
from discreet.errors import InvalidValue
from discreet.report.keys import check_public, make_key, named_key, private_key, public_text
from discreet.report.signature import check_head, check_release, sign_head, sign_release

CLAIM = Claim(game=Game(record(), {"answers"}), event=Gaussian(50.0))


@pytest.fixture
def key(tmp_path: Path) -> Path:
    make_key(tmp_path / "our.key")
    return tmp_path / "our.key"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A release with its value in files beside it."""
    folder = tmp_path / "model"
    (folder / "parts").mkdir(parents=True)
    (folder / "model.safetensors").write_bytes(bytes(1000))
    (folder / "parts" / "tokens.json").write_text("{}")
    Release(value=ExternalValue("Net"), source="people", claims=(CLAIM,)).save(folder / "release.json")
    return folder


def test_a_key_is_for_its_owner_alone_and_is_never_written_over(tmp_path: Path) -> None:
    path = tmp_path / "our.key"
    public = make_key(path)
    assert path.stat().st_mode & 0o777 == 0o600
    assert public == public_text(private_key(path)) == named_key(str(path)) == check_public("key", public)
    before = path.read_bytes()
    with pytest.raises(InvalidValue, match="is there already; a key is never written over"):
        make_key(path)
    assert path.read_bytes() == before
    (tmp_path / "our.pub").write_text(f"{public}\n")
    assert named_key(str(tmp_path / "our.pub")) == named_key(public) == public
    with pytest.raises(InvalidValue, match="cannot be written"):
        make_key(tmp_path / "nowhere" / "our.key")


def test_a_key_that_others_can_read_is_refused(key: Path) -> None:
    key.chmod(0o640)
    with pytest.raises(InvalidValue, match=r"others can read it. Run chmod 600"):
        private_key(key)


def test_what_is_no_key_of_ours_is_refused(tmp_path: Path) -> None:
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, generate_private_key
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    form = (serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8)
    other = generate_private_key(SECP256R1()).private_bytes(*form, serialization.NoEncryption())
    locked = Ed25519PrivateKey.generate().private_bytes(*form, serialization.BestAvailableEncryption(b"word"))
    for content, told in ((other, "of another kind"), (locked, "with a password"), (b"hello", "holds no private key")):
        path = tmp_path / "some.key"
        path.write_bytes(content)
        path.chmod(0o600)
        with pytest.raises(InvalidValue, match=told):
            private_key(path)
    for text in ("ed25519:", "ed25519:abc", "rsa:AAAA", f"ed25519:{'A' * 60}"):
        with pytest.raises(InvalidValue, match="32 bytes in base64"):
            check_public("key", text)
    with pytest.raises(InvalidValue, match="neither a public key"):
        named_key("nobody.pub")


def test_a_signed_folder_can_be_moved_and_written_with_other_spaces(folder: Path, key: Path, tmp_path: Path) -> None:
    assert check_release(folder).there is False
    sign_release(folder, key)
    moved = tmp_path / "elsewhere"
    shutil.move(folder, moved)
    text = json.dumps(dict(reversed(json.loads((moved / "release.json").read_text()).items())), indent=4)
    (moved / "release.json").write_text(text)
    found = check_release(moved, [named_key(str(key))])
    assert (found.fault, found.unknown, found.key) == (None, (), named_key(str(key)))


def edit_claims(folder: Path) -> None:
    path = folder / "release.json"
    path.write_text(path.read_text().replace("50.0", "60.0"))


def edit_signature(folder: Path, member: str, value: Any) -> None:
    path = folder / "release.json.sig"
    document = json.loads(path.read_text())
    document[member] = value(document[member]) if callable(value) else value
    path.write_text(json.dumps(document))


CHANGES = {
    "release.json was changed": edit_claims,
    "'model.safetensors' was changed": lambda folder: (folder / "model.safetensors").write_bytes(bytes(999) + b"\1"),
    "'parts/tokens.json', which was signed with it, is not there": lambda folder: (folder / "parts/tokens.json").unlink(),
    "is not by the key that it names": lambda folder: edit_signature(folder, "signed", lambda old: {**old, "files": {}}),
    "was changed$": lambda folder: edit_signature(folder, "signature", "A" * 86 + "=="),
    "not by the key": lambda folder: edit_signature(folder, "signature", "no base64"),
    "format is not": lambda folder: edit_signature(folder, "version", 2),
    "no signature that can be read": lambda folder: (folder / "release.json.sig").write_text("{"),
    "32 bytes": lambda folder: edit_signature(folder, "key", "ed25519:AA=="),
}


@pytest.mark.parametrize("told", CHANGES)
def test_every_change_is_found(folder: Path, key: Path, told: str) -> None:
    sign_release(folder, key)
    assert check_release(folder, [named_key(str(key))]).fault is None
    CHANGES[told](folder)
    found = check_release(folder, [named_key(str(key))])
    assert found.there
    assert found.fault is not None
    assert re.search(told, found.fault)


def test_a_new_signature_by_somebody_else_is_a_stranger_s(folder: Path, key: Path, tmp_path: Path) -> None:
    sign_release(folder, key)
    edit_claims(folder)
    make_key(tmp_path / "their.key")
    sign_release(folder, tmp_path / "their.key")
    assert "none of the keys that count" in str(check_release(folder, [named_key(str(key))]).fault)
    blind = check_release(folder)  # without the key that is expected, this cannot be known; and that is said
    assert blind.fault is None
    assert "whoever changes something can sign it again" in blind.unknown[0]


def test_files_that_came_later_are_named(folder: Path, key: Path) -> None:
    sign_release(folder, key)
    (folder / "report.html").write_text("late")
    found = check_release(folder, [named_key(str(key))])
    assert found.fault is None
    assert found.unknown == ("Not signed: 'report.html'.",)


def test_a_value_elsewhere_must_be_covered(folder: Path, key: Path, tmp_path: Path) -> None:
    with pytest.raises(InvalidValue, match="no file was named that holds it"):
        sign_release(folder / "release.json", key)
    sign_release(folder / "release.json", key, [str(folder / "model.safetensors")])
    assert check_release(folder / "release.json").fault is None
    (folder / "model.safetensors").write_bytes(b"other")
    assert "was changed" in str(check_release(folder / "release.json").fault)
    with pytest.raises(InvalidValue, match="does not lie beside the release"):
        sign_release(folder / "release.json", key, [str(key)])


def test_a_signature_cannot_name_files_elsewhere(folder: Path, key: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from discreet.report import signature

    monkeypatch.setattr(signature, "_name", lambda file, folder: f"../{folder.name}/{file.name}")
    sign_release(folder / "release.json", key, [str(folder / "model.safetensors")])
    assert "is not there" in str(check_release(folder / "release.json").fault)


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    ledger = Ledger(tmp_path / "ledger.db")
    ledger.open("people", unit=record(), epsilon=1.0, delta=1e-6)
    ledger.reserve("people", CLAIM)
    return ledger


def test_the_head_of_a_ledger(ledger: Ledger, key: Path, tmp_path: Path) -> None:
    head = sign_head(ledger, key, tmp_path / "head.sig")
    ledger.reserve("people", CLAIM)
    ours = [named_key(str(key))]
    assert check_head(ledger, head, ours).fault is None
    assert "is not signed" in check_head(ledger, head, ours).unknown[-1]
    assert "cannot be known" in check_head(ledger, head).unknown[0]
    make_key(tmp_path / "their.key")
    assert "none of the keys" in str(check_head(ledger, head, [named_key(str(tmp_path / "their.key"))]).fault)
    with Ledger(tmp_path / "other.db") as other:
        with pytest.raises(InvalidValue, match="nothing to sign"):
            sign_head(other, key, tmp_path / "other.sig")
        other.open("people", unit=record(), epsilon=1.0, delta=1e-6)
        other.reserve("people", CLAIM)
        assert "which was noted earlier" in str(check_head(other, head, ours).fault)


def test_one_kind_of_signature_is_not_taken_for_the_other(ledger: Ledger, folder: Path, key: Path, tmp_path: Path) -> None:
    head = sign_head(ledger, key, tmp_path / "head.sig")
    os.replace(head, folder / "release.json.sig")
    assert check_release(folder).fault is not None
    sign_release(folder, key)
    assert check_head(ledger, folder / "release.json.sig").fault is not None
