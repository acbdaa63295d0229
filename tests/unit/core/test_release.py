"""Releases: post-processing, files, equality."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from discreet.core import Claim, Evidence, ExternalValue, Game, Laplace, Release, record
from discreet.core import document as documents
from discreet.core.document import read_json, write_whole
from discreet.errors import InvalidDocument, InvalidValue
from strategies import claims

GAME = Game(record(), {"answers"})
CLAIM = Claim(game=GAME, event=Laplace(1.0), assumptions=("rows are people",))
EVIDENCE = Evidence(game=GAME, attack="threshold", score=[0.5], inside=[True], run=[0], design="paired")


def release(value: Any = 41, **changes: Any) -> Release[Any]:
    return Release(**{"value": value, "source": "people", "claims": (CLAIM,), **changes})


@given(st.lists(claims, max_size=3), st.integers(), st.integers())
def test_map_is_post_processing(some: list[Claim], value: int, other: int) -> None:
    made = Release(value=value, source="people", claims=tuple(some), entry="e1", evidence=(EVIDENCE,))
    mapped = made.map(lambda number: number + other)
    assert mapped.value == value + other
    assert (mapped.claims, mapped.source, mapped.entry, mapped.evidence) == (made.claims, "people", "e1", (EVIDENCE,))
    assert made.map(lambda n: n).map(lambda n: n) == made


def test_claims_from_a_generator_are_kept() -> None:
    assert release(claims=(claim for claim in [CLAIM, CLAIM])).claims == (CLAIM, CLAIM)


@pytest.mark.parametrize("given_claims", [CLAIM, None, 3, ("x",), "x"])
def test_claims_must_be_claims(given_claims: Any) -> None:
    with pytest.raises(InvalidValue, match="claims must be a tuple of Claim"):
        release(claims=given_claims)


def test_add_puts_evidence_beside_it() -> None:
    assert release().add(EVIDENCE, EVIDENCE).evidence == (EVIDENCE, EVIDENCE)


@pytest.mark.parametrize(
    ("value", "kept"),
    [
        (np.array([1, 2]), [1, 2]),
        ((1, "a", None), [1, "a", None]),
        ({"n": np.float64(0.5)}, {"n": 0.5}),
        (float("nan"), ExternalValue("float")),
        (10**5000, ExternalValue("int")),
        ({1: 2}, ExternalValue("dict")),
        (b"bytes", ExternalValue("bytes")),
        (np.array([1j]), ExternalValue("ndarray")),
        ("\ud800", "\ud800"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_values_are_inline_or_elsewhere(value: Any, kept: Any, tmp_path: Path) -> None:
    assert Release.load(release(value).save(tmp_path / "release.json")).value == kept


def test_a_value_inside_itself_is_elsewhere() -> None:
    loop: list[Any] = []
    loop.append(loop)
    assert release(loop).to_json()["value"] == {"elsewhere": "list"}


def test_arrays_compare() -> None:
    assert release(np.array([1, 2])) == release(np.array([1, 2]))
    assert release(np.array([1, 2])) != release(np.array([1, 3]))
    assert hash(release([1])) == hash(release([1]))
    assert release() != "release"


def test_saving_replaces_whole_and_leaves_nothing_behind(tmp_path: Path) -> None:
    target = tmp_path / "release.json"
    target.write_text("old")
    assert release().save(target) == target
    assert Release.load(target) == release()
    assert os.listdir(tmp_path) == ["release.json"]


@pytest.mark.parametrize("path", ["/nowhere/release.json", "a\0b", ""])
def test_what_cannot_be_written_says_so(path: str) -> None:
    with pytest.raises(InvalidValue, match="cannot be written"):
        write_whole(path, "text")


def test_what_cannot_be_read_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "binary").write_bytes(b"\xff\xfe\x00")
    for path, said in (
        (tmp_path, "cannot be read"),
        (tmp_path / "none", "No such file"),
        ("a\0b", "not the name"),
        (tmp_path / "binary", "not text"),
    ):
        with pytest.raises(InvalidDocument, match=said):
            read_json(path)
    (tmp_path / "long").write_text('"' + "x" * 100 + '"')
    monkeypatch.setattr(documents, "LARGEST", 50)
    with pytest.raises(InvalidDocument, match="larger than"):
        read_json(tmp_path / "long")


def test_another_version_says_what_to_do() -> None:
    with pytest.raises(InvalidDocument, match=r"reads versions 1 to 3\. Upgrade"):
        Release.from_json({**release().to_json(), "version": 4})
    with pytest.raises(InvalidDocument, match="not a release"):
        Release.from_json({**release().to_json(), "format": "other"})
