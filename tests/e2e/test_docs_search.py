"""The documentation that is opened from a disk can be searched: no server, nothing fetched but files beside it."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from browser import program

ROOT = Path(__file__).parents[2]
PAGE = """<!doctype html><meta charset="utf-8"><title>Docs</title><input id="__search" type="checkbox">
<div data-md-component="search" hidden><form><input class="md-search__input"></form>
<div class="md-search-result__meta"></div><ol class="md-search-result__list"></ol></div>
<script id="__config" type="application/json">{"base": ".."}</script><script src="../assets/file-search.js"></script>"""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A site as the theme makes it, in what the search needs of it; documents.js is written by the hook of the real build."""
    sys.path.insert(0, str(ROOT / "docs"))
    import commands

    place = tmp_path_factory.mktemp("site")
    for folder in ("search", "assets", "guides"):
        (place / folder).mkdir()
    (place / "assets/file-search.js").write_text((ROOT / "docs/assets/file-search.js").read_text())
    documents = [
        {"location": "a.html", "title": "Budgets", "text": "<p>A period is renewed.</p><script>alert(1)</script>"},
        {"location": "b.html#noise", "title": "Noise </script><b>", "text": "exact numbers"},
    ]
    (place / "search/search_index.json").write_text(json.dumps({"config": {}, "docs": documents}))
    commands.on_post_build({"site_dir": str(place)})
    (place / "guides/page.html").write_text(PAGE)
    return place


def test_search_works_from_a_file(site: Path) -> None:
    sync = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    with sync.sync_playwright() as play:
        browser = play.chromium.launch(executable_path=program(), args=["--no-sandbox"])
        page, asked, wrong = browser.new_page(), [], []
        page.on("request", lambda request: asked.append(request.url))
        page.on("pageerror", lambda error: wrong.append(str(error)))
        page.goto((site / "guides/page.html").as_uri())
        assert not any("documents.js" in url for url in asked)  # the index is read by those who search
        assert _hits(page, "RENEWED period") == ["../a.html"]
        assert _hits(page, "noise") == ["../b.html#noise"]
        assert page.inner_text(".md-search-result__meta") == "1 matching section"
        assert _hits(page, "renewed nothing") == []
        assert [url for url in asked if not url.startswith("file:")] == wrong == []
        browser.close()


def _hits(page: Any, words: str) -> list[str]:
    page.click(".md-search__input")
    page.fill(".md-search__input", words)
    page.wait_for_function("window.__search_documents && document.querySelector('.md-search-result__meta').textContent")
    found: list[str] = page.evaluate(
        "[...document.querySelectorAll('.md-search-result__link')].map(e => e.getAttribute('href'))"
    )
    return found


def test_the_site_loads_it() -> None:
    assert "extra_javascript: [assets/file-search.js]" in (ROOT / "mkdocs.yml").read_text()
