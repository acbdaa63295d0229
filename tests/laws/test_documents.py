"""Whatever stands in a document, the command that reads it answers or refuses, with an exit code that is documented."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as parquet
import pytest
from click.testing import CliRunner
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from discreet.cli import app
from discreet.core import Claim, Evidence, Game, Gaussian, Release, record

PROMISED = {0, 1, 2, 3}
QUIET: dict[str, str | None] = {"GITHUB_ACTIONS": None, "GITHUB_STEP_SUMMARY": None}
HOSTILE: tuple[Any, ...] = (
    10**400,
    -(10**400),
    10**5000,
    float("nan"),
    float("inf"),
    -1,
    0,
    1,
    0.5,
    1e308,
    1e-320,
    "",
    "\ud800",
    "x" * 5000,
    "\0",
    "1e999",
    "٣",
    True,
    None,
    [],
    {},
    [None],
    [[[[]]]],
    {"a": 1},
    ["x", 1],
    [1e999, 1],
    [5, 1],
    [1, 2, 3],
    "2024-13-45",
)


@dataclass(frozen=True)
class Kind:
    """A kind of document: a good one, how it is written, and the command that reads it."""

    good: Any
    form: str
    command: Callable[[Path, Path], list[str]]


KINDS = {
    "history": Kind(
        None, "lines", lambda file, at: ["report", str(at / "v1.json"), "--history", str(file), "-o", str(at / "r.md")]
    ),
    "kept": Kind(
        None,
        "lines",
        lambda file, at: ["gate", str(at / "v1.json"), "--policy", str(at / "privacy.toml"), "--history", str(file)],
    ),
    "release": Kind(None, "json", lambda file, at: ["show", str(file)]),
    "gated": Kind(None, "json", lambda file, at: ["gate", str(file), "--policy", str(at / "privacy.toml")]),
    "reported": Kind(None, "json", lambda file, at: ["report", str(file), "-o", str(at / "r.md")]),
    "event": Kind(
        {"kind": "poisson", "rate": 0.1, "event": {"kind": "laplace", "noise_multiplier": 2.0}},
        "json",
        lambda file, at: ["account", "event", str(file)],
    ),
    "policy": Kind(
        {
            "strict": True,
            "rule": [
                {"on": "attack.*", "tpr": {"at_fpr": 0.01, "max": 0.5}, "name": "low"},
                {"on": "claim", "epsilon": {"at_delta": 1e-6, "max": 3.0, "unit": "record"}},
                {"on": "release", "require": ["evidence"]},
            ],
            "refute": {"confidence": 0.99},
        },
        "toml",
        lambda file, at: ["gate", str(at / "v1.json"), "--policy", str(file)],
    ),
    "schema": Kind(
        {"p": {"age": {"bounds": [0, 99], "required": True, "type": "integer"}, "ward": {"values": ["A", "B"]}}},
        "toml",
        lambda file, at: [
            "query",
            str(at / "p.parquet"),
            "SELECT SUM(age) AS s FROM p",
            "--epsilon",
            "1",
            "--schema",
            str(file),
            "--dry-run",
        ],
    ),
}


def _release() -> Release[Any]:
    game, inside = Game(record(), {"scores"}), np.arange(40) % 2 == 0
    seen = Evidence(game=game, attack="lira", score=np.arange(40.0), inside=inside, run=np.zeros(40, int), design="post_hoc")
    facts = {"title": "Readmission", "version": "v1", "seeds": {"shadows": 0}}
    return Release(value=1, source="people", claims=(Claim(game=game, event=Gaussian(2.0)),), evidence=(seen,), facts=facts)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    at = tmp_path_factory.mktemp("documents")
    _release().save(at / "v1.json")
    (at / "privacy.toml").write_text('[[rule]]\non = "release"\nrequire = ["evidence"]\n')
    CliRunner().invoke(app, KINDS["kept"].command(at / "history.jsonl", at), env=QUIET)
    parquet.write_table(pa.table({"age": list(range(20, 60)), "ward": ["A", "B"] * 20}), at / "p.parquet")
    return at


def paths(document: Any, here: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The places of a document: the whole, and those in it."""
    yield here
    items = document.items() if isinstance(document, dict) else enumerate(document[:3]) if isinstance(document, list) else ()
    for key, inside in items:
        yield from paths(inside, (*here, key))


def changed(document: Any, path: tuple[Any, ...], value: Any) -> Any:
    """The document with another value at this place; Ellipsis takes the place away."""
    if not path:
        return value
    whole = dict(document) if isinstance(document, dict) else list(document)
    if len(path) == 1 and value is ...:
        del whole[path[0]]
    else:
        whole[path[0]] = changed(whole[path[0]], path[1:], value)
    return whole


def written(document: Any, form: str) -> bytes:
    if form == "toml":
        return _toml(document).encode("utf-8", "surrogatepass")
    text = _digits(document)
    return f"{text}\n".encode()


def _digits(document: Any) -> str:
    import sys

    before = sys.get_int_max_str_digits()
    sys.set_int_max_str_digits(0)
    try:
        return json.dumps(document)
    finally:
        sys.set_int_max_str_digits(before)


def _toml(document: Any) -> str:
    """A document as TOML, its tables inline; None and what is no table at the top as they would be written wrongly."""
    if not isinstance(document, dict):
        return _inline(document)
    return "\n".join(f"{json.dumps(str(key))} = {_inline(value)}" for key, value in document.items())


def _inline(value: Any) -> str:
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{json.dumps(str(key))} = {_inline(it)}" for key, it in value.items()) + " }"
    if isinstance(value, list):
        return f"[{', '.join(map(_inline, value))}]"
    if isinstance(value, float) and value != value:
        return "nan"
    return {float("inf"): "inf"}.get(value, _digits(value)) if isinstance(value, float) else _digits(value)


def good(name: str, at: Path) -> Any:
    kind = KINDS[name]
    if kind.form == "lines":
        return json.loads((at / "history.jsonl").read_text().splitlines()[0])
    return json.loads((at / "v1.json").read_text()) if kind.good is None else kind.good


def answered(name: str, content: bytes, at: Path) -> None:
    kind = KINDS[name]
    file = at / f"{name}.{'toml' if kind.form == 'toml' else 'json'}"
    file.write_bytes(content if kind.form != "lines" else (at / "history.jsonl").read_bytes() + content)
    result = CliRunner().invoke(app, kind.command(file, at), env=QUIET)
    assert result.exit_code in PROMISED, (name, content[:300], result.output[-500:], result.exception)
    assert "Traceback" not in result.output


@pytest.mark.parametrize("name", KINDS)
def test_what_is_good_is_read(name: str, folder: Path) -> None:
    file = folder / f"{name}-good"
    file.write_bytes(written(good(name, folder), KINDS[name].form))
    result = CliRunner().invoke(app, KINDS[name].command(file, folder))
    assert result.exit_code in (0, 1 if name in ("gated", "policy", "kept") else 0), result.output


@pytest.mark.parametrize("name", KINDS)
@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_any_place_may_hold_anything(name: str, data: st.DataObject, folder: Path) -> None:
    document = good(name, folder)
    for _ in range(data.draw(st.integers(1, 2))):
        path = data.draw(st.sampled_from(list(paths(document))))
        document = changed(document, path, data.draw(st.sampled_from([*HOSTILE, ...] if path else HOSTILE)))
    answered(name, written(document, KINDS[name].form), folder)


@pytest.mark.parametrize("name", KINDS)
@settings(max_examples=5, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_bytes_may_be_cut_or_changed(name: str, data: st.DataObject, folder: Path) -> None:
    content = written(good(name, folder), KINDS[name].form)
    start = data.draw(st.integers(0, len(content)))
    end = data.draw(st.integers(start, min(len(content), start + 20)))
    answered(name, content[:start] + data.draw(st.binary(max_size=4)) + content[end:], folder)
