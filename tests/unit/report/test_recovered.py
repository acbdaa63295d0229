"""What was recovered from a model in a report: pictures, texts, shares and kinship; and that analysts never see any of it."""

from __future__ import annotations

import numpy as np
import pytest

from discreet import report
from discreet.attack.pictures import thumbnail
from discreet.core import Release
from discreet.core.facts import LARGEST_PICTURE, SHAPES
from discreet.errors import InvalidValue
from discreet.serve.store import PUBLIC, seen_by

PICTURE = thumbnail([np.random.default_rng(0).random((3, 8, 6, 1))])
RISK = {"attempts": 3, "members": 1.0, "control": 0.0, "baseline": 0.5, "share": 1.0, "low": 0.3, "high": 1.0,
        "confidence": 0.95}  # fmt: skip
FACTS = {
    "recreated": [{"method": "white-box", "prior": "public <b>", "classes": 3, "queries": 1200, "picture": PICTURE, **RISK}],
    "encodings": {"encodings": 500, "private": 10, "signs": True, "found": 9, "ssim": 0.91, "baseline": 0.2},
    "shares": [{"property": "sex F", "estimate": 0.31, "low": 0.2, "high": 0.4, "confidence": 0.9, "blind": 0.45}],
    "descent": {"suspect": "other.safetensors", "accused": True, "p": 0.0001, "level": 0.001, "similarity": {"a": 0.9}},
    "extraction": [{"samples": 1, "p": 0.5, "prompt": 8, "suffix": 8, "near": 0.2, "name": "extraction", **RISK}],
    "verbatim": ["my secret <script> is 1234"],
    "exposure": [{"repetitions": 8, "canaries": 4, "exact": 4, "first": 3, "bits": 29.5, "most_bits": 29.9}],
    "unprompted": {"texts": 60, "tokens": 48, "run": 24, "memorised": 7},
    "stealing": [{"method": "relu", "queries": 4005, "parameters": 193, "error": 1e-12}],
}


def released(**facts) -> Release[str]:
    return Release(value="model", source="people", claims=(), facts=facts)


def test_every_section_is_shown_to_the_owner() -> None:
    page = report.html(released(**FACTS))
    expected = (
        "public &lt;b&gt;", f"data:image/png;base64,{PICTURE}", "9 of 10", "nearest public picture 0.200", "sex F", "(20",
        "made from this model", "my secret &lt;script&gt; is 1234", "relu", "29.5", "told below", "in 7 of them",
    )  # fmt: skip
    for said in expected:
        assert said in page, said
    assert page.count("for the owner of the data alone") == 2
    text = report.markdown(released(**FACTS))
    assert "Picture (in the HTML form): Recreated" in text
    assert PICTURE not in text


def test_an_analyst_sees_nothing_that_was_measured_on_rows() -> None:
    """Whatever a report knows is withheld unless it is listed as public, so a new kind of fact is withheld until then."""
    seen = seen_by("analyst", released(**FACTS, title="A model", tried=["loss"]))
    assert set(seen.facts) == {"title", "tried"}
    assert set(FACTS) <= set(SHAPES) - PUBLIC
    assert set(SHAPES) >= PUBLIC
    page = report.html(seen)
    assert "secret" not in page
    assert "data:image" not in page
    assert set(seen_by("owner", released(**FACTS)).facts) == set(FACTS)


@pytest.mark.parametrize(
    "picture", ["", "PHN2Zz4=", 'iVBORw0KGgo" onerror="x', "iVBORw0KGgo" + "A" * LARGEST_PICTURE, "iVBORw0KGgoAAA\n"]
)
def test_what_is_no_small_png_is_refused(picture: str) -> None:
    with pytest.raises(InvalidValue):
        released(recreated=[{"method": "a", "prior": "b", "classes": 1, "queries": 1, "picture": picture}])


def test_a_picture_for_a_report_is_small() -> None:
    """Noise does not compress: fewer columns are shown, and none of two channels."""
    made = thumbnail([np.random.default_rng(1).random((20, 64, 64, 3))] * 2)
    assert made is not None
    assert 0 < len(made) <= LARGEST_PICTURE
    assert thumbnail([np.zeros((1, 8, 8, 2))]) is None
    assert thumbnail([np.random.default_rng(1).random((1, 256, 256, 3))]) is None
