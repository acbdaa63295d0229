"""Reports in a real browser: what they look like, whether everyone can read them, and that they ask nobody for anything."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from browser import program

from discreet import report
from reports import broken, leaky, ledger, private

sync = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="axe-playwright-python is not installed")

MODES: dict[str, dict[str, Any]] = {
    "light": {"viewport": {"width": 1180, "height": 900}, "color_scheme": "light"},
    "dark": {"viewport": {"width": 1180, "height": 900}, "color_scheme": "dark"},
    "phone": {"viewport": {"width": 360, "height": 740}, "color_scheme": "light", "is_mobile": True, "has_touch": True},
    "phone, dark": {"viewport": {"width": 360, "height": 740}, "color_scheme": "dark", "is_mobile": True},
}


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("reports")
    kept, visits = ledger(folder)
    with kept:
        return {
            "one": report.write(private(), folder / "one.html", ledger=kept),
            "two": report.write([leaky(), private()], folder / "two.html"),
            "all": report.write([leaky(), private(), visits, broken()], folder / "all.html", ledger=kept, annex=True),
        }


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    path = program()
    with sync.sync_playwright() as play:
        started = play.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield started
        started.close()


def opened(browser: Any, path: Path, mode: str, asked: list[str], said: list[str]) -> Any:
    """A page in a mode; what it asks for and what the console says is kept."""
    context = browser.new_context(**MODES[mode], bypass_csp=True)
    page = context.new_page()
    page.on("request", lambda request: asked.append(request.url))
    page.on("console", lambda message: said.append(message.text))
    page.on("pageerror", lambda error: said.append(str(error)))
    page.goto(path.as_uri())
    return page


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", ["one", "two", "all"])
def test_everyone_can_read_it_and_nothing_is_fetched(name: str, mode: str, browser: Any, pages: dict[str, Path]) -> None:
    asked: list[str] = []
    said: list[str] = []
    page = opened(browser, pages[name], mode, asked, said)
    wide = page.evaluate("[document.documentElement.scrollWidth, window.innerWidth]")
    assert wide[0] <= wide[1], f"the page is {wide[0]} wide on a screen of {wide[1]}"
    for details in page.query_selector_all("details"):
        details.evaluate("each => each.open = true")  # what is folded in must be readable too
    found = axe.Axe().run(page, options={"runOnly": ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "best-practice"]})
    assert found.violations_count == 0, found.generate_report()
    assert asked == [pages[name].as_uri()]
    assert said == []
    page.context.close()


def test_headings_go_down_step_by_step(browser: Any, pages: dict[str, Path]) -> None:
    page = opened(browser, pages["all"], "light", [], [])
    levels = page.evaluate("[...document.querySelectorAll('h1,h2,h3,h4')].map(each => +each.tagName[1])")
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(after <= before + 1 for before, after in pairwise(levels))
    named = page.evaluate(
        "[...document.querySelectorAll('svg[role=img]')].every(e => e.getAttribute('aria-label') && e.querySelector('desc'))"
    )
    assert named
    page.context.close()


def pixels(page: Any, folder: Path) -> Any:
    from PIL import Image

    page.screenshot(path=folder / "seen.png")
    return np.asarray(Image.open(folder / "seen.png").convert("RGB")).astype(int)


def test_ceiling_and_attacks_are_drawn_in_colour(browser: Any, pages: dict[str, Path], tmp_path: Path) -> None:
    for mode, ceiling, paper in (("light", (0x2F, 0x62, 0xC9), 251), ("dark", (0x8D, 0xB0, 0xF7), 20)):
        page = opened(browser, pages["one"], mode, [], [])
        page.locator("#plot").scroll_into_view_if_needed()
        seen = pixels(page, tmp_path)
        near = (np.abs(seen - np.array(ceiling)).sum(-1) < 24).sum()
        assert near > 200, f"{near} pixels of the ceiling in {mode}"
        assert abs(int(seen[5, 5, 0]) - paper) < 4
        page.context.close()


def test_a_long_page_can_be_read_without_scrolling_sideways_on_the_smallest_phone(browser: Any, pages: dict[str, Path]) -> None:
    context = browser.new_context(viewport={"width": 320, "height": 600})
    page = context.new_page()
    page.goto(pages["all"].as_uri())
    assert page.evaluate("document.documentElement.scrollWidth") <= 320
    smallest = page.evaluate(
        """Math.min(...[...document.querySelectorAll('p,td,th,li,dd,dt,summary,text')]
        .filter(e => e.offsetParent || e.ownerSVGElement).map(e => {
            const svg = e.ownerSVGElement, size = parseFloat(getComputedStyle(e).fontSize)
            return svg ? size * svg.getBoundingClientRect().width / svg.viewBox.baseVal.width : size
        }))"""
    )
    assert smallest >= 8, f"some text is {smallest} pixels high"
    context.close()


def test_on_a_phone_every_part_of_a_cell_is_beside_its_head(browser: Any, pages: dict[str, Path]) -> None:
    """Intervals stood under the name of their column, where the names of the others are."""
    page = opened(browser, pages["all"], "phone, dark", [], [])
    astray = page.evaluate(
        """[...document.querySelectorAll('.wide td > *, .wide tbody th > *')].filter(e => e.offsetParent &&
        e.getBoundingClientRect().left < e.parentElement.getBoundingClientRect().left + 100).map(e => e.textContent)"""
    )
    assert astray == []


def test_it_prints_on_paper(browser: Any, pages: dict[str, Path]) -> None:
    page = opened(browser, pages["one"], "phone, dark", [], [])
    page.emulate_media(media="print")
    paper = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert paper == "rgb(255, 255, 255)"  # no ink for the night
    heads = page.evaluate("getComputedStyle(document.querySelector('table.wide thead')).position")
    assert heads == "static"  # tables are tables on paper, however narrow it is
    made = page.pdf(format="A4")
    assert made.startswith(b"%PDF")
    page.context.close()
