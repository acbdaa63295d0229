"""Facts beside a release: copied, read-only, checked where a report reads them."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import discreet
from discreet.core import Facts, Release
from discreet.core.facts import made
from discreet.errors import InvalidDocument, InvalidValue

FULL = {
    "title": "Readmission model, trained privately",
    "made": {
        "when": "2026-11-16T07:00:00Z",
        "discreet": "0.1",
        "python": "3.11.9",
        "packages": {"torch": "2.13.0"},
        "command": "x",
    },
    "seeds": {"shadows": 0},
    "hashes": {"model.safetensors": "sha256:00"},
    "groups": [{"by": "class", "group": "readmitted", "n": 12, "tpr": {"0.01": 0.2, "0.001": 0.1}, "auc": 0.7}],
    "exposed": [{"index": 7, "score": 3.5}],
    "controls": [{"name": "overfit twin", "kind": "positive", "auc": 0.9, "tpr": {"0.01": 0.5}, "found": True}],
    "quality": {"test accuracy": 0.81},
    "spending": [[0, 0.0], [100, 1.5]],
    "marginal_errors": {"age": 0.02},
    "tried": ["likelihood ratios"],
    "not_tried": ["attacks on the weights"],
    "anything else": [None, {"nested": True}],
}


def release(facts: Any) -> Release[int]:
    return Release(value=1, source="people", claims=(), facts=facts)


def test_facts_travel_with_a_release(tmp_path: Path) -> None:
    made_so = release(FULL)
    assert Release.load(made_so.save(tmp_path / "release.json")) == made_so
    assert json.loads((tmp_path / "release.json").read_text())["facts"] == FULL
    assert made_so.map(str).add().facts == made_so.facts
    assert release({}) != made_so
    assert release({}).facts == {}


def test_a_copy_is_kept_and_cannot_be_changed() -> None:
    mine: dict[str, Any] = {"groups": [{"by": "class", "group": "a"}]}
    kept = release(mine).facts
    mine["groups"].append("later")
    mine["groups"][0]["group"] = "b"
    assert [dict(item) for item in kept["groups"]] == [{"by": "class", "group": "a"}]
    with pytest.raises(TypeError):
        kept["title"] = "x"  # type: ignore[index]
    with pytest.raises(TypeError):
        kept["groups"][0]["group"] = "c"


def test_numbers_of_numpy_become_plain() -> None:
    found = Facts(
        {
            "quality": {"accuracy": np.float32(0.5)},
            "exposed": [{"index": np.int64(3), "score": np.float64(1)}],
            "x": np.arange(3),
        }
    )
    assert (
        json.dumps(found.to_json()) == '{"quality": {"accuracy": 0.5}, "exposed": [{"index": 3, "score": 1.0}], "x": [0, 1, 2]}'
    )


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (3, "facts must be"),
        ({1: "x"}, "facts must be plain JSON"),
        ({"x": float("nan")}, "facts must be finite"),
        ({"x": object()}, "plain JSON"),
        ({"x": "\ud800"}, "lone surrogate"),
        ({"\ud800": 1}, "lone surrogate"),
        ({"x": 10**30}, "at most"),
        ({"title": ""}, "title of the facts must be a non-empty string"),
        ({"title": ["x"]}, "title of the facts"),
        ({"made": "today"}, "made of the facts must be an object"),
        ({"made": {"packages": {"torch": 2}}}, "a member of packages of made of the facts"),
        ({"groups": {}}, "groups of the facts must be a list"),
        ({"groups": [{"by": "class"}]}, "lacks group"),
        ({"groups": [{"by": "class", "group": "a", "n": -1}]}, "n of an item of groups"),
        ({"groups": [{"by": "class", "group": "a", "tpr": {"0.01": 2}}]}, "between 0 and 1"),
        ({"groups": [{"by": "class", "group": "a", "tpr": {"often": 0.5}}]}, "false-positive rates, such as '0.01'"),
        ({"exposed": [{"index": 1.5, "score": 1}]}, "whole number"),
        ({"controls": [{"name": "twin", "kind": "other"}]}, "one of positive, negative"),
        ({"controls": [{"name": "twin", "kind": "positive", "found": 1}]}, "true or false"),
        ({"spending": [[1, 2, 3]]}, "a pair of a step and an epsilon"),
        ({"spending": [[1, -2]]}, "0 or above"),
        ({"not_tried": "weights"}, "not_tried of the facts must be a list"),
    ],
)  # fmt: skip
def test_what_a_report_could_not_read_is_refused(wrong: Any, said: str) -> None:
    with pytest.raises(InvalidValue, match=re.escape(said)):
        release(wrong)
    if isinstance(wrong, dict) and all(isinstance(key, str) for key in wrong):
        with pytest.raises(InvalidDocument):
            Release.from_json({**release({}).to_json(), "facts": wrong})


def test_a_loop_is_refused() -> None:
    loop: list[Any] = []
    loop.append(loop)
    with pytest.raises(InvalidValue, match="nested"):
        release({"x": loop})


def test_made_says_with_what() -> None:
    found = made("discreet report x.json")
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", found["when"])
    assert found["discreet"] == discreet.__version__
    assert found["packages"]["numpy"] == np.__version__
    assert release({"made": found}).facts["made"]["command"] == "discreet report x.json"
    assert "command" not in made()
