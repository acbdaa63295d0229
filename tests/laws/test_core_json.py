"""Laws of the documents: what is written is read back, matches the published schema, and nothing else gets in."""

from __future__ import annotations

import copy
import dataclasses
import json
import pickle
import sys
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from discreet.core import Claim, Event, Evidence, Release, event_from_json
from discreet.core.document import parse_json
from discreet.core.event import DEEPEST, Gaussian, Repeat
from discreet.errors import InvalidDocument, InvalidValue
from strategies import claims, events, evidences, json_values, releases, text

SCHEMA = json.loads((Path(__file__).parents[2] / "docs/reference/release.schema.json").read_text())
WHOLE = jsonschema.Draft202012Validator(SCHEMA)
slow = settings(suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large], deadline=None)


def part(name: str) -> jsonschema.Draft202012Validator:
    return jsonschema.Draft202012Validator({**SCHEMA["$defs"][name], "$defs": SCHEMA["$defs"]})


EVENT, CLAIM, EVIDENCE = part("event"), part("claim"), part("evidence")


def through_text(document: Any) -> Any:
    return parse_json(json.dumps(document, allow_nan=False))


def test_schema_is_valid() -> None:
    jsonschema.Draft202012Validator.check_schema(SCHEMA)


@slow
@given(events)
def test_events_round_trip(event: Event) -> None:
    document = through_text(event.to_json())
    assert event_from_json(document) == event
    EVENT.validate(document)
    assert pickle.loads(pickle.dumps(event)) == event  # noqa: S301
    assert hash(copy.deepcopy(event)) == hash(event)


@slow
@given(claims)
def test_claims_round_trip(claim: Claim) -> None:
    document = through_text(claim.to_json())
    assert Claim.from_json(document) == claim
    CLAIM.validate(document)


@slow
@given(evidences())
def test_evidence_round_trips(evidence: Evidence) -> None:
    document = through_text(evidence.to_json())
    assert Evidence.from_json(document) == evidence
    EVIDENCE.validate(document)
    assert pickle.loads(pickle.dumps(evidence)) == evidence  # noqa: S301


@slow
@given(releases)
def test_releases_round_trip(release: Release[Any]) -> None:
    document = through_text(release.to_json())
    assert Release.from_json(document) == release
    WHOLE.validate(document)
    assert pickle.loads(pickle.dumps(release.facts)) == copy.deepcopy(release.facts) == release.facts  # noqa: S301


@slow
@given(st.lists(text, min_size=2, max_size=4))
def test_several_entries_round_trip_and_each_pays_once(names: list[str]) -> None:
    given_entries = {"value": 1, "source": "people", "claims": (), "entry": names[0], "also": names[1:]}
    if len(set(names)) < len(names):
        with pytest.raises(InvalidValue, match="an entry pays once"):
            Release(**given_entries)
        return
    release = Release(**given_entries)
    document = through_text(release.to_json())
    assert (document["version"], document["entry"]) == (3, names)
    WHOLE.validate(document)
    again = Release.from_json(document)
    assert (again, again.entries, hash(again)) == (release, tuple(names), hash(release))
    assert again != Release(**{**given_entries, "also": ()})
    for broken in ({"version": 2}, {"entry": names[:1]}, {"entry": [names[0], names[0]]}, {"entry": []}):
        assert not WHOLE.is_valid({**document, **broken})
        with pytest.raises(InvalidDocument):
            Release.from_json({**document, **broken})


@slow
@given(releases)
def test_the_first_version_is_still_read(release: Release[Any]) -> None:
    document = {name: part for name, part in release.to_json().items() if name != "facts"}
    with pytest.raises(InvalidDocument, match="lacks facts"):
        Release.from_json(document)
    first = {**document, "version": 1}
    WHOLE.validate(first)
    assert Release.from_json(first) == dataclasses.replace(release, facts={})
    with pytest.raises(InvalidDocument, match="unknown members: 'facts'"):
        Release.from_json({**first, "facts": {}})
    with pytest.raises(jsonschema.ValidationError):
        WHOLE.validate({**first, "facts": {}})


def spots(document: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Where something could be changed."""
    inner = document.items() if isinstance(document, dict) else enumerate(document) if isinstance(document, list) else ()
    return [path, *(spot for key, value in inner for spot in spots(value, (*path, key)))]


def changed(document: Any, path: tuple[Any, ...], value: Any) -> Any:
    if not path:
        return value
    copied = copy.copy(document)
    copied[path[0]] = changed(document[path[0]], path[1:], value)
    return copied


@slow
@given(releases, json_values, st.data())
def test_a_changed_document_is_refused_or_matches_the_schema(release: Release[Any], value: Any, data: st.DataObject) -> None:
    document = release.to_json()
    spot = data.draw(st.sampled_from(spots(document)))
    mutant = changed(document, spot, value)
    try:
        Release.from_json(mutant)
    except InvalidDocument:
        return
    WHOLE.validate(mutant)


@slow
@given(releases, st.data())
def test_a_cut_document_is_refused(release: Release[Any], data: st.DataObject) -> None:
    text = json.dumps(release.to_json())
    with pytest.raises(InvalidDocument):
        parse_json(text[: data.draw(st.integers(0, len(text) - 1))])


@slow
@given(json_values)
def test_other_json_is_refused(document: Any) -> None:
    for read in (Release.from_json, Claim.from_json, Evidence.from_json, event_from_json):
        with pytest.raises(InvalidDocument):
            read(document)


HOSTILE = [
    "", "{", "[1,", "null", "NaN", "[Infinity]", '{"a": 1, "a": 2}', "[" * 100_000, '{"a":' * 50_000, "1" * 5000, "\ufeff{}",
    '{"kind": "os.system", "command": "true"}', '{"kind": "builtins.eval"}', '{"kind": ["gaussian"]}', '{"kind": null}',
    '{"kind": "gaussian", "noise_multiplier": 1e999}', '{"kind": "gaussian", "noise_multiplier": true}',
    '{"kind": "gaussian", "noise_multiplier": "1"}', '{"kind": "gaussian", "noise_multiplier": -1}', '{"kind": "gaussian"}',
    '{"kind": "gaussian", "noise_multiplier": 1, "__class__": "x"}', '{"kind": "repeat", "times": 1}',
    '{"kind": "repeat", "times": 1.5, "event": {"kind": "zero"}}', '{"kind": "repeat", "times": 0, "event": {"kind": "zero"}}',
    '{"kind": "sequence", "events": []}', '{"kind": "sequence", "events": {}}', '{"kind": "sequence", "events": "zero"}',
    '{"kind": "poisson", "rate": 2, "event": {"kind": "zero"}}', '{"kind": "zero", "\\ud800": 1}', '{"kind": "_value"}',
    '{"kind": "repeat", "times": 1e300, "event": {"kind": "zero"}}', '{"kind": "approximate", "epsilon": 1, "delta": 1}',
]  # fmt: skip


@pytest.mark.parametrize("text", HOSTILE, ids=lambda text: text[:40])
def test_hostile_documents_are_refused_and_import_nothing(text: str) -> None:
    before = set(sys.modules)
    with pytest.raises(InvalidDocument) as caught:
        event_from_json(parse_json(text))
    str(caught.value).encode()
    assert len(str(caught.value)) < 500
    assert {name for name in set(sys.modules) - before if "hypothesis" not in name} == set()


def test_deep_events_are_refused_when_made_and_when_read() -> None:
    event: Any = Gaussian(1.0)
    for _ in range(DEEPEST):
        event = Repeat(event, 1)
    assert event_from_json(through_text(event.to_json())) == event
    with pytest.raises(InvalidValue, match="nested"):
        Repeat(event, 1)
    with pytest.raises(InvalidDocument, match="nested"):
        event_from_json({"kind": "repeat", "times": 1, "event": event.to_json()})
