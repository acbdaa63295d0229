"""Whatever a release holds, a report of it is whole, small and harmless, in every form."""

from __future__ import annotations

import json
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import jsonschema
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from discreet.core import ExternalValue, Release
from discreet.report import modelcard
from discreet.report.files import as_document
from discreet.report.markdown import render as render_markdown
from discreet.report.model import build
from discreet.report.page import LARGEST
from discreet.report.page import render as page_of
from strategies import claims_of, events, evidences, facts, json_values, leaves, text

SCHEMA = jsonschema.Draft202012Validator(
    json.loads((Path(__file__).parents[2] / "docs/reference/report.schema.json").read_text())
)
VOID = frozenset({"meta", "link", "path", "rect"})
few = settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))


class Page(HTMLParser):
    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: set[str] = set()
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        assert not any(name.startswith("on") for name, _ in attrs)
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag not in VOID:
            assert self.open.pop() == tag


# Events within events are bounded elsewhere, and take long; here their words matter, and those of leaves are as strange.
plain = claims_of(leaves | events.filter(lambda event: len(repr(event)) < 60))
given_releases = st.builds(
    Release, value=json_values | st.builds(ExternalValue, text), source=text, claims=st.lists(plain, max_size=2).map(tuple),
    entry=st.none() | text, evidence=st.lists(evidences(), max_size=2).map(tuple), facts=facts,
)  # fmt: skip


@few
@given(given_releases)
def test_every_form_of_every_release(release: Release[Any]) -> None:
    whole = build(release)
    shown = page_of(whole, annex=True)
    page = Page(shown)
    assert page.open == []
    assert not page.tags & {"script", "img", "iframe", "object", "form", "input"}
    assert len(shown.encode()) < LARGEST
    SCHEMA.validate(json.loads(json.dumps(as_document(whole, annex=True), allow_nan=False)))
    render_markdown(whole, annex=True).encode()
    modelcard.render(whole.assessments[0], 0.95).encode()
