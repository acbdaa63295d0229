"""Texts that others chose are shown as texts; values from the rows are shown nowhere."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from discreet.core import Release
from discreet.serve.app import addresses
from webapp import PLANTED, Served, fill, model, serving

NASTY = "<script>alert(1)</script><img src=x onerror=alert(2)>\"'><svg onload=alert(3)>{{7*7}}"


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    with serving(tmp_path) as made:
        yield made


class Tags(HTMLParser):
    """What a browser would run."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.bad: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        if tag == "script" and not str(given.get("src", "")).startswith("/static/htmx.min.js"):
            self.bad.append(tag)
        self.bad += [name for name in given if name.startswith("on")]
        self.bad += [f"{tag} {given['src']}" for _ in "x" if tag == "img" and given.get("src") == "x"]
        self.bad += [
            str(value)
            for name, value in attrs
            if name in ("href", "src", "action") and str(value).lower().startswith("javascript")
        ]


def harmless(text: str) -> None:
    assert Tags(text).bad == []
    assert "49" not in text.split("{{")[0][-3:]


def test_sql_is_text(served: Served) -> None:
    for path in ("/console/explain", "/console/ask"):
        for head in ({}, {"hx-request": "true"}):
            found = served.post(path, "ann", {"source": NASTY[:70], "sql": NASTY, "epsilon": "1", "title": NASTY}, headers=head)
            harmless(found.text)
    harmless(served.get("/log", "ada").text)
    harmless(served.get("/console", "ann", params={"sql": NASTY, "epsilon": NASTY, "title": NASTY, "source": NASTY}).text)


def test_titles_and_column_names_are_text(served: Served) -> None:
    sql = 'SELECT ward, COUNT(*) AS "<img src=x onerror=alert(2)>" FROM visits WHERE "<b>odd</b>" = 1 GROUP BY ward'
    found = served.post("/console/ask", "ann", {"source": "hospital", "sql": sql, "epsilon": "0.5", "title": NASTY})
    assert "The answer" in found.text
    harmless(found.text)
    assert "<b>odd" not in found.text
    for page in ("/releases", *(f"/releases/{name}" for name in served.state.store.names())):
        for who in ("ann", "olga"):
            harmless(served.get(page, who).text)
    harmless(served.get("/console", "ann").text)


def _made() -> dict[str, Any]:
    return {"when": NASTY, "discreet": NASTY, "python": NASTY, "packages": {NASTY: NASTY}, "command": NASTY}


def test_what_a_release_says_is_text(served: Served) -> None:
    release = model(NASTY)
    kept: Release[Any] = Release(value={"columns": {NASTY: [NASTY], "n": [1.0], "n_low": [0.0], "n_high": [2.0]}}, source=NASTY,
                                 claims=release.claims, evidence=release.evidence,
                                 facts={"title": NASTY, "question": {"sql": NASTY}, "made": _made()})  # fmt: skip
    served.state.store.save("nasty", kept)
    for page in ("/releases", "/releases/nasty", "/policy", "/releases/nasty/export/html"):
        harmless(served.get(page, "olga").text)
    harmless(served.get("/releases", "olga", params={"filter": NASTY, "source": NASTY}).text)


def test_addresses_are_text(served: Served) -> None:
    from urllib.parse import quote

    for path, route in addresses():
        if route.method == "GET" and "{" in path:
            nasty = path.split("{")[0] + quote(NASTY[:60], safe="") + path.partition("}")[2].replace("{kind}", "html")
            harmless(served.get(nasty, "ada").text)
    for path in ("/attacks", "/sources", "/users"):
        found = served.post(
            path, "ada", {"target": NASTY, "source": NASTY, "name": NASTY, "role": NASTY, "epsilon": NASTY, "reason": NASTY}
        )
        harmless(found.text)


def test_names_of_sources_and_reasons_are_text(served: Served) -> None:
    opened = {"source": "<b>x", "epsilon": "1", "delta": "1e-6", "reason": NASTY, "unit": "record"}
    assert served.post("/sources", "ada", opened).status_code == 303
    raised = {"epsilon": "2", "delta": "1e-6", "reason": NASTY}
    assert served.post("/sources/hospital/raise", "ada", {**raised, "epsilon": "9"}).status_code == 303
    for page in ("/sources", "/sources/hospital", "/log", "/sources/%3Cb%3Ex"):
        found = served.get(page, "ada")
        harmless(found.text)
        assert "<b>x" not in found.text


def test_no_page_and_no_log_ever_shows_a_value_of_a_row(
    served: Served, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    """One row holds a word that nobody wrote into a question: it must be nowhere that a person or a file can tell it.

    A group of one person is shown with a probability of at most delta, 1e-9, in each of two answers.
    """
    caplog.set_level(logging.DEBUG)
    texts = []
    for sql, delta in (
        ("SELECT note, COUNT(*) AS n FROM visits GROUP BY note", "1e-9"), ("SELECT MIN(note) FROM visits", ""),
        ("SELECT note FROM visits", ""), ("SELECT SUM(CAST(note AS INTEGER)) FROM visits", ""),
        ("SELECT COUNT(*) AS n FROM visits WHERE CAST(note AS DOUBLE) > 1", ""),
        ("SELECT MAX(LENGTH(note)) AS n FROM visits", ""),
    ):  # fmt: skip
        for path in ("/console/explain.json", "/console/ask.json", "/console/ask"):
            texts.append(served.post(path, "ann", {"source": "hospital", "sql": sql, "epsilon": "0.1", "delta": delta}).text)
    for path, route in addresses():
        if route.method == "GET":
            texts += [served.get(fill(path), who).text for who in ("ada", "ann", "olga")]
    texts += [served.get(f"/releases/{name}", "ada").text for name in served.state.store.names()]
    written = [file.read_bytes() for file in tmp_path.rglob("*") if file.is_file() and file.name != "visits.parquet"]
    assert [text for text in texts if PLANTED in text] == []
    assert [each for each in written if PLANTED.encode() in each] == []
    assert PLANTED not in caplog.text
    assert len(texts) > 60
