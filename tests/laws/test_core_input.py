"""Whatever is passed to a public function of core, it works or says why in one of our own errors."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from discreet import core
from discreet.core import Claim, Evidence, Facts, Game, Gaussian, Release, Unit, Verdict, check, record, user
from discreet.core.event import KINDS
from discreet.core.facts import SHAPES
from discreet.errors import DiscreetError
from strategies import strange

GAME = Game(record(), {"answers"})
CLAIM = Claim(game=GAME, event=Gaussian(1.0))


def works_or_says_why(function: Any, *args: Any, **kwargs: Any) -> None:
    try:
        function(*args, **kwargs)
    except DiscreetError as error:
        message = str(error)
        message.encode()
        assert 10 < len(message) < 400, message


MOST_FIELDS = max(len(fields(cls)) for cls in KINDS.values())


@given(st.sampled_from(sorted(KINDS)), st.lists(strange, min_size=MOST_FIELDS, max_size=MOST_FIELDS))
def test_events(kind: str, args: list[Any]) -> None:
    cls: Any = KINDS[kind]
    works_or_says_why(cls, *args[: len(fields(cls))])


@given(strange, strange, strange, strange)
def test_units_and_games(a: Any, b: Any, c: Any, d: Any) -> None:
    works_or_says_why(Unit, a, b, c, d)
    works_or_says_why(Unit, "user", "replace", c, d)
    works_or_says_why(record, a)
    works_or_says_why(user, a, rows=b, relation=c)
    works_or_says_why(Game, a, b)
    works_or_says_why(Game, record(), b)


@given(strange, strange, strange)
def test_claims_and_releases(a: Any, b: Any, c: Any) -> None:
    works_or_says_why(Claim, game=a, event=b, assumptions=c)
    works_or_says_why(Claim, game=GAME, event=Gaussian(1.0), assumptions=c)
    works_or_says_why(Release, value=a, source=b, claims=c)
    works_or_says_why(Release, value=a, source="x", claims=(), entry=b, evidence=c)
    works_or_says_why(Release, value=a, source="x", claims=(CLAIM,))
    works_or_says_why(core.ExternalValue, a)


@settings(deadline=None)
@given(strange, strange, strange, strange)
def test_evidence(a: Any, b: Any, c: Any, d: Any) -> None:
    works_or_says_why(Evidence, game=a, attack=b, score=[1.0], inside=[True], run=[0], design=c)
    works_or_says_why(Evidence, game=GAME, attack="x", score=a, inside=b, run=c, design="paired")
    works_or_says_why(Evidence, game=GAME, attack="x", score=[a], inside=[b], run=[c], design="paired")
    works_or_says_why(Evidence, game=GAME, attack="x", score=[1.5, d], inside=[True, b], run=[1, c], design="canary")


@given(strange, strange, strange)
def test_verdicts(a: Any, b: Any, c: Any) -> None:
    works_or_says_why(Verdict, outcome=a, reason=b, confidence=c, delta=0.0, ceiling=1.0, floor=0.0)
    works_or_says_why(Verdict, outcome="holds", reason="so it is", confidence=a, delta=b, ceiling=1.0, floor=0.0)
    works_or_says_why(Verdict, outcome="holds", reason="so it is", confidence=0.9, delta=0.0, ceiling=a, floor=b)


@given(strange)
def test_documents(a: Any) -> None:
    for read in (core.event_from_json, Claim.from_json, Evidence.from_json, Release.from_json):
        works_or_says_why(read, a)
    for name in ("value", "source", "claims", "version", "format", "entry", "evidence", "facts"):
        works_or_says_why(Release.from_json, {**Release(value=1, source="x", claims=(CLAIM,)).to_json(), name: a})
    for name in (*SHAPES, "of one's own"):
        works_or_says_why(Facts, {name: a})
        works_or_says_why(Facts, {name: [a]})
        works_or_says_why(Facts, {name: {"x": a, "by": a, "n": a, "tpr": {"0.01": a}}})
    assert len(Release(value=a, source="x", claims=()).to_json()["value"]) == 1


@pytest.mark.parametrize(
    "name", ["real", "positive", "nonnegative", "fraction", "small_fraction", "open_fraction", "whole", "word"]
)
@given(strange)
def test_checks(name: str, a: Any) -> None:
    works_or_says_why(getattr(check, name), "it", a)
