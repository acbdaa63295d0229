"""The web app as a team uses it: a real server on loopback, a real browser, from the first start to the last log out."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from browser import program

pytest.importorskip("playwright.sync_api", reason="playwright is not installed: pip install 'discreet-privacy[test]'")
pytest.importorskip("starlette", reason="the web app is not installed: pip install 'discreet-privacy[serve]'")

from playwright.sync_api import Browser, Page, expect, sync_playwright

expect.set_options(timeout=30_000)  # a machine may be busy
LEGIBLE = Path(__file__).with_name("legible.js").read_text()
PASSWORD = "four words make one"
PAGES = (
    "/sources",
    "/sources/hospital",
    "/releases",
    "/releases/readmission",
    "/console",
    "/synthetic",
    "/attacks",
    "/policy",
    "/users",
    "/log",
    "/me",
)
QUESTION = "SELECT ward, COUNT(*) AS visits, AVG(age) AS age FROM visits GROUP BY ward"


def made(folder: Path) -> None:
    """A hospital of made-up visits, a small model with its rows, a configuration and a policy."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.parquet as parquet

    draw = np.random.default_rng(0)
    wards = draw.choice(["Cardiology", "Surgery", "Oncology"], 5000)
    visits = {"patient_id": draw.integers(0, 1500, 5000), "ward": wards, "age": draw.integers(0, 100, 5000)}
    parquet.write_table(pa.table(visits), folder / "visits.parquet")
    rows, label = draw.normal(size=(160, 4)), draw.integers(0, 2, 160)
    for name, half in (("train", slice(0, 80)), ("holdout", slice(80, 160))):
        parquet.write_table(
            pa.table({**{f"x{i}": rows[half, i] for i in range(4)}, "label": label[half]}), folder / f"{name}.parquet"
        )
    (folder / "recipe.py").write_text(
        "from torch import nn\nfrom discreet.models import Recipe\n"
        "recipe = Recipe(lambda: nn.Linear(4, 2), epochs=3, batch_size=16)\n"
    )
    (folder / "model.py").write_text(
        "from safetensors.torch import save_file\nfrom torch import nn\n"
        "save_file(nn.Linear(4, 2).state_dict(), 'model.safetensors')\n"
        "from discreet.core import Claim, Game, NonPrivate, Release, record\n"
        "import os\nos.makedirs('releases/readmission')\n"
        "claim = Claim(game=Game(record(), {'weights'}), event=NonPrivate())\n"
        "facts = {'title': 'Readmission model, trained as usual'}\n"
        "Release(value={'file': 'model.safetensors'}, source='hospital', claims=(claim,), facts=facts)"
        ".save('releases/readmission/release.json')\n"
    )
    subprocess.run([sys.executable, "model.py"], cwd=folder, check=True)
    (folder / "schema.toml").write_text(
        '[visits.ward]\nvalues = ["Cardiology", "Surgery", "Oncology"]\n[visits.age]\nbounds = [0, 120]\n'
    )
    (folder / "synth.toml").write_text(
        '[patient_id]\ntype = "omit"\n[ward]\ntype = "categorical"\nvalues = ["Cardiology", "Surgery", "Oncology"]\n'
        '[age]\ntype = "integer"\nbounds = [0, 120]\n'
    )
    (folder / "privacy.toml").write_text('[[rule]]\non = "release"\nrequire = ["evidence"]\n')
    (folder / "serve.toml").write_text(
        '[sources.hospital]\nlocation = "visits.parquet"\nunit = "user:patient_id"\nrows = 4\n'
        'schema = "schema.toml"\nsynth = "synth.toml"\n'
        '[attacks.readmission]\nrelease = "readmission"\nweights = "model.safetensors"\nrecipe = "recipe.py"\n'
        'members = "train.parquet"\nnonmembers = "holdout.parquet"\n'
    )


class Server:
    """`discreet serve` in a process of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.start()
        self.link: str = self.facts["owner_link"]

    def start(self) -> None:
        ready = self.folder / "ready.json"
        ready.unlink(missing_ok=True)
        command = [sys.executable, "-m", "discreet.cli", "serve", "--ledger", "ledger.db", "--config", "serve.toml", "--policy",
                   "privacy.toml", "--port", "0", "--ready-file", "ready.json"]  # fmt: skip
        with (self.folder / "server.log").open("a") as log:
            self.process = subprocess.Popen(command, cwd=self.folder, stderr=log)
        end = time.monotonic() + 60
        while not ready.exists():
            assert self.process.poll() is None, (self.folder / "server.log").read_text()
            assert time.monotonic() < end
            time.sleep(0.05)
        self.facts: dict[str, Any] = json.loads(ready.read_text())
        self.url: str = self.facts["url"]

    def stop(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(60)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    program()
    folder = tmp_path_factory.mktemp("serve")
    made(folder)
    running = Server(folder)
    yield running
    if running.process.poll() is None:
        running.process.kill()
        running.process.wait(60)


@pytest.fixture(scope="module")
def browser(server: Server) -> Iterator[Browser]:
    flags = ["--no-sandbox", "--disable-gpu", "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1"]
    with sync_playwright() as play:
        found = play.chromium.launch(executable_path=program(), args=flags)
        yield found
        found.close()


class Watched:
    """A page of a new visitor; what it asks for and complains of is kept."""

    def __init__(self, browser: Browser, **how: Any) -> None:
        self.context = browser.new_context(**{"viewport": {"width": 1180, "height": 900}, **how})
        self.page: Page = self.context.new_page()
        self.page.set_default_timeout(30_000)
        self.asked: list[str] = []
        self.said: list[str] = []
        self.page.on("request", lambda request: self.asked.append(request.url))
        self.page.on("console", lambda message: self.said.append(f"{message.type}: {message.text}"))
        self.page.on("pageerror", lambda error: self.said.append(f"error: {error}"))

    def is_quiet(self, url: str) -> None:
        assert [each for each in self.said if not each.startswith(("verbose", "debug"))] == []
        assert [each for each in self.asked if not each.startswith((f"{url}/", "data:"))] == []
        self.context.close()


def log_in(page: Page, url: str, name: str) -> None:
    page.goto(f"{url}/login")
    page.get_by_label("Name").fill(name)
    page.get_by_label("Password").fill(PASSWORD)
    page.get_by_role("button", name="Log in").click()
    expect(page.get_by_role("button", name="Log out")).to_be_visible()


def choose_password(page: Page) -> None:
    page.get_by_label("Password").fill(PASSWORD)
    page.get_by_label("The same again").fill(PASSWORD)
    page.get_by_role("button", name="Come in").click()


@pytest.fixture(scope="module")
def owned(server: Server, browser: Browser) -> Server:
    """The first start: the printed link makes an owner, who opens a budget, shares it and lets an analyst in."""
    seen = Watched(browser)
    page, url = seen.page, server.url
    page.goto(server.link)
    page.get_by_label("Name").fill("ada")
    choose_password(page)
    expect(page).to_have_url(f"{url}/sources")
    page.get_by_label("ε").fill("3")
    page.get_by_label("δ").fill("1e-6")
    page.get_by_label("Why").fill("the study of 2026")
    page.get_by_role("button", name="Open it").click()
    expect(page).to_have_url(f"{url}/sources/hospital")
    page.get_by_label("Account").fill("ann")
    page.get_by_label("Percent of the whole budget").fill("50")
    page.get_by_role("button", name="Share").click()
    expect(page.get_by_role("row").filter(has_text="ann").first).to_contain_text("ε 1.5")
    page.get_by_role("link", name="Users").click()
    for name, role in (("ann", "analyst"), ("olga", "officer")):
        page.goto(f"{url}/users")
        page.locator("form.fields input[name=name]").fill(name)
        page.locator("form.fields select[name=role]").select_option(role)
        page.get_by_role("button", name="Make a link").click()
        link = page.locator(".secret code").inner_text()
        other = Watched(browser)
        other.page.goto(link)
        choose_password(other.page)
        expect(other.page.get_by_role("button", name="Log out")).to_be_visible()
        other.is_quiet(url)
    page.get_by_role("button", name="Log out").click()
    expect(page).to_have_url(re.compile(re.escape(f"{url}/login")))
    seen.is_quiet(url)
    return server


def test_the_owners_link_works_once(owned: Server, browser: Browser) -> None:
    seen = Watched(browser)
    found = seen.page.goto(owned.link.replace(owned.link.partition("/welcome")[0], owned.url))
    assert found is not None
    assert found.status == 404
    seen.context.close()


def test_an_analyst_asks_and_is_refused(owned: Server, browser: Browser) -> None:
    seen = Watched(browser)
    page, url = seen.page, owned.url
    log_in(page, url, "ann")
    expect(page).to_have_url(f"{url}/console")
    page.get_by_label("Question, in SQL").fill(QUESTION)
    page.get_by_label("ε").fill("0.5")
    page.get_by_role("button", name="What would it cost?").click()
    expect(page.get_by_role("heading", name="It would cost ε 0.5")).to_be_visible()
    expect(page.locator(".cost")).to_contain_text("95 of 100 answers")
    before = page.locator("#columns details[open] p").first.inner_text()
    assert "left in one more answer" in before
    page.get_by_role("button", name="Spend it and answer").click()
    expect(page.get_by_role("heading", name="The answer")).to_be_visible()
    expect(page.locator(".answer tbody tr")).to_have_count(3)
    expect(page.locator(".answer .dot")).to_have_count(3)
    expect(page.locator("#columns details[open] p").first).not_to_have_text(before)
    expect(page.locator("#columns details[open] p").first).to_contain_text("left in one more answer")
    page.get_by_label("Question, in SQL").fill("SELECT * FROM visits")
    page.get_by_role("button", name="What would it cost?").click()
    expect(page.get_by_role("heading", name="Not answered")).to_be_visible()
    page.get_by_label("Question, in SQL").fill("SELECT COUNT(*) AS n FROM visits")
    page.get_by_label("ε").fill("2")
    page.get_by_role("button", name="What would it cost?").click()
    expect(page.locator(".cost .refusal")).to_contain_text("account ann")
    expect(page.get_by_role("button", name="Spend it and answer")).to_have_count(0)
    page.get_by_role("link", name="Releases").click()
    page.get_by_role("link", name=re.compile("SELECT ward")).click()
    expect(page.get_by_role("heading", level=1)).to_be_visible()
    expect(page.locator(".answer tbody tr")).to_have_count(3)
    assert page.get_by_role("navigation", name="Pages").get_by_role("link", name="Attacks").count() == 0
    page.get_by_role("button", name="Log out").click()
    page.goto(f"{url}/console")
    expect(page).to_have_url(re.compile(re.escape(f"{url}/login")))
    seen.is_quiet(url)


def test_an_owner_prices_makes_and_downloads_a_synthetic_table(owned: Server, browser: Browser) -> None:
    seen = Watched(browser)
    page, url = seen.page, owned.url
    log_in(page, url, "ada")
    page.get_by_role("link", name="Synthetic tables").click()
    page.get_by_label("ε", exact=False).first.fill("0.4")
    page.get_by_label("δ").fill("1e-8")
    page.get_by_label("Rows").fill("500")
    page.get_by_label("ε for fidelity").fill("0.1")
    page.get_by_role("button", name="What would it cost?").click()
    expect(page.get_by_role("heading", name="It would cost ε 0.4")).to_be_visible()
    expect(page.locator(".cost")).to_contain_text("ward (4)")
    page.get_by_role("button", name="Spend it and make the table").click()
    expect(page.get_by_role("heading", name="500 synthetic rows")).to_be_visible()
    expect(page.locator(".answer tbody tr")).to_have_count(12)
    expect(page.locator("#result")).to_contain_text("Mean total variation")
    with page.expect_download() as waited:
        page.get_by_role("link", name="Download CSV").click()
    lines = Path(waited.value.path()).read_text().splitlines()
    assert lines[0] == '"ward","age"'
    assert len(lines) == 501
    page.get_by_role("link", name="Its report").first.click()
    expect(page.get_by_role("heading", name="The synthetic table")).to_be_visible()
    expect(page.get_by_role("heading", name="500 synthetic rows")).to_be_visible()
    page.goto(f"{url}/log")
    expect(page.locator("main")).to_contain_text("synthesised")
    seen.is_quiet(url)


def test_an_officer_reads_a_report_and_starts_an_attack(owned: Server, browser: Browser) -> None:
    seen = Watched(browser)
    page, url = seen.page, owned.url
    log_in(page, url, "olga")
    page.get_by_role("link", name="Releases").click()
    page.get_by_placeholder("Filter by words").press_sequentially("readmission")
    expect(page.locator("#list tbody tr")).to_have_count(1)
    page.locator("#list tbody").get_by_role("link", name="Readmission model").click()
    expect(page.get_by_role("heading", level=1)).to_contain_text("Readmission model")
    with page.expect_download() as waited:
        page.get_by_role("link", name="HTML").click()
    assert Path(waited.value.path()).stat().st_size > 2000
    page.get_by_role("link", name="Attack it").click()
    page.get_by_label("Attacks").fill("bayes_lira,loss")
    page.get_by_label("Shadow models").fill("4")
    page.get_by_role("button", name="Start").click()
    expect(page).to_have_url(re.compile(r"/attacks/\d+$"))
    page.get_by_role("link", name="What it found").click(timeout=120_000)
    expect(page.get_by_role("heading", level=1)).to_contain_text("attacked")
    expect(page.locator("main")).to_contain_text("bayes_lira")
    page.get_by_role("link", name="Policy").click()
    expect(page.locator("main")).to_contain_text("holds")
    seen.is_quiet(url)


def test_an_attack_is_cancelled(owned: Server, browser: Browser) -> None:
    seen = Watched(browser)
    page, url = seen.page, owned.url
    log_in(page, url, "ada")
    page.goto(f"{url}/attacks")
    page.get_by_label("Attacks").fill("bayes_lira")
    page.get_by_label("Shadow models").fill("256")
    page.get_by_role("button", name="Start").click()
    page.get_by_role("button", name="Cancel").click()
    expect(page.locator("#job .word")).to_have_text("cancelled", timeout=60_000)
    seen.is_quiet(url)


def test_everything_can_be_done_with_the_keyboard(owned: Server, browser: Browser) -> None:
    """From the login to an answer and out again without a mouse; what has the focus can be seen."""
    seen = Watched(browser)
    page, url = seen.page, owned.url
    page.goto(f"{url}/login")
    page.keyboard.type("ada")  # the first field has the focus
    page.keyboard.press("Tab")
    page.keyboard.type(PASSWORD)
    page.keyboard.press("Enter")
    expect(page).to_have_url(f"{url}/sources")
    reach(page, "link", "Console")
    page.keyboard.press("Enter")
    expect(page).to_have_url(f"{url}/console")
    reach(page, "textbox", "Question, in SQL")
    page.keyboard.type("SELECT COUNT(*) AS n FROM visits")
    page.keyboard.press("Tab")
    page.keyboard.type("0.1")
    reach(page, "button", "What would it cost?")
    page.keyboard.press("Enter")
    expect(page.locator(".cost")).to_be_visible()
    reach(page, "button", "Spend it and answer")
    page.keyboard.press("Space")
    expect(page.get_by_role("heading", name="The answer")).to_be_visible()
    page.goto(f"{url}/sources")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "Skip to the page"
    reach(page, "button", "Log out")
    page.keyboard.press("Enter")
    expect(page).to_have_url(re.compile(re.escape(f"{url}/login")))
    seen.is_quiet(url)


BROKEN_WORDS = """[...document.querySelectorAll('td a, td button')].filter(e => e.offsetParent && e.textContent.trim() &&
    e.getBoundingClientRect().width < 2 * parseFloat(getComputedStyle(e).fontSize)).map(e => e.textContent)"""
OUT_OF_SIGHT = """[...document.querySelectorAll('main a, main button, main input, main select')].filter(e =>
    e.checkVisibility() && e.getBoundingClientRect().right > innerWidth + 1).map(e => e.outerHTML.slice(0, 80))"""


def reach(page: Page, role: str, name: str) -> None:
    """Press Tab until the element has the focus, and see that it shows it."""
    wanted = page.get_by_role(role, name=name).first  # type: ignore[arg-type]
    expect(wanted).to_be_visible()
    for _ in range(80):
        page.keyboard.press("Tab")
        if wanted.evaluate("it => it === document.activeElement"):
            assert wanted.evaluate("it => getComputedStyle(it).outlineStyle") != "none"
            return
    raise AssertionError(f"the keyboard does not reach {role} {name!r}")


SIZES: dict[str, dict[str, Any]] = {
    "light": {"viewport": {"width": 1280, "height": 900}},
    "dark": {"viewport": {"width": 1280, "height": 900}, "color_scheme": "dark"},
    "phone": {"viewport": {"width": 360, "height": 740}},
    "phone, dark": {"viewport": {"width": 390, "height": 844}, "color_scheme": "dark", "is_mobile": True, "has_touch": True},
}


@pytest.mark.parametrize("size", SIZES)
def test_every_page_fits_and_can_be_read(owned: Server, browser: Browser, size: str, tmp_path: Path) -> None:
    seen = Watched(browser, **SIZES[size])
    page, url = seen.page, owned.url
    log_in(page, url, "ada")
    for path in PAGES:
        page.goto(url + path)
        assert page.locator("h1").count() == 1, path
        assert page.locator("main").count() == 1, path
        assert page.evaluate("document.documentElement.scrollWidth") <= page.evaluate("innerWidth"), f"{path} is too wide"
        assert page.evaluate(LEGIBLE) == {"unnamed": [], "faint": []}, path
        assert page.evaluate(BROKEN_WORDS) == [], path
        assert page.evaluate(OUT_OF_SIGHT) == [], path
        page.screenshot(path=str(tmp_path / f"{path.strip('/').replace('/', '-')}.png"), full_page=True)
    seen.is_quiet(url)


ON_PAPER = """[...document.querySelectorAll('form, button, input, header nav')].filter(e => e.checkVisibility())
    .map(e => e.outerHTML.slice(0, 80))"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_page_prints_in_ink_on_paper(owned: Server, browser: Browser, scheme: str) -> None:
    """What somebody reads in the dark is printed on white; nothing that only a screen can do is on paper."""
    seen = Watched(browser, viewport={"width": 794, "height": 1123}, color_scheme=scheme)
    page, url = seen.page, owned.url
    log_in(page, url, "ada")
    for path in PAGES:
        page.goto(url + path)
        page.emulate_media(media="print", color_scheme=scheme)  # type: ignore[arg-type]
        assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)", path
        assert page.evaluate("document.documentElement.scrollWidth") <= page.evaluate("innerWidth"), f"{path} is too wide"
        assert page.evaluate(LEGIBLE) == {"unnamed": [], "faint": []}, path
        assert page.evaluate(ON_PAPER) == [], path
        page.emulate_media(media="screen", color_scheme=scheme)  # type: ignore[arg-type]
    seen.is_quiet(url)


def test_without_script_everything_still_works(owned: Server, browser: Browser) -> None:
    seen = Watched(browser, java_script_enabled=False)
    page, url = seen.page, owned.url
    log_in(page, url, "ada")
    page.goto(f"{url}/console")
    page.get_by_label("Question, in SQL").fill("SELECT COUNT(*) AS n FROM visits")
    page.get_by_label("ε").fill("0.13")  # another question than those before
    page.get_by_role("button", name="What would it cost?").click()
    page.get_by_role("button", name="Spend it and answer").click()
    expect(page.get_by_role("heading", name="The answer")).to_be_visible()
    page.get_by_role("link", name="Its report").click()
    expect(page.get_by_role("heading", level=1)).to_be_visible()
    page.get_by_role("button", name="Log out").click()
    expect(page).to_have_url(re.compile(re.escape(f"{url}/login")))
    seen.is_quiet(url)


def test_it_stops_and_starts_and_forgets_nothing(owned: Server, browser: Browser) -> None:
    """After SIGTERM the ledger is whole, and people and releases are as they were."""
    from discreet.figures import up
    from discreet.ledger import Ledger

    assert owned.stop() == 0
    assert "Stopped" in (owned.folder / "server.log").read_text()
    with Ledger(owned.folder / "ledger.db") as ledger:
        ledger.verify()
        spent = ledger.balance("hospital").epsilon_spent
    assert spent > 0
    owned.start()
    assert "owner_link" not in owned.facts
    seen = Watched(browser)
    log_in(seen.page, owned.url, "ada")
    seen.page.goto(f"{owned.url}/sources/hospital")
    expect(seen.page.locator("dl")).to_contain_text(f"All answers togetherε {up(spent)}")
    seen.is_quiet(owned.url)
    assert "Traceback" not in (owned.folder / "server.log").read_text()
