"""The forms of a report: page, Markdown, JSON, PDF and model card."""

from __future__ import annotations

import io
import json
import re
import subprocess
import sys
import time
from dataclasses import replace
from html import escape
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import pyarrow as pa
import pytest

from discreet import report
from discreet.core import Claim, Evidence, Game, NonPrivate, Pure, Release, record
from discreet.errors import InvalidValue
from discreet.ledger import Ledger
from discreet.report.page import CUT, LARGEST
from reports import COUNT, broken, evidence, leaky, ledger, private

SCHEMA = json.loads((Path(__file__).parents[3] / "docs/reference/report.schema.json").read_text())
HOSTILE = "</title><script>alert(1)</script>\"'><img src=x onerror=alert(1)>{{1234567*9}}|`**x**`[a](http://x.example)\n# H"
ORDER = ["verdict", "plot", "claims", "evidence", "exposed", "ledger", "untried", "reproduce"]


class Page(HTMLParser):
    """Tags, ids, addresses, attributes that run code, and what is left open."""

    VOID = frozenset({"meta", "link", "img", "br", "hr", "input", "path", "rect"})

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.ids: list[str] = []
        self.addresses: list[str] = []
        self.handlers: list[str] = []
        self.open: list[str] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.ids += [value or "" for name, value in attrs if name == "id"]
        self.addresses += [value or "" for name, value in attrs if name in ("href", "src", "srcset", "action", "data")]
        self.handlers += [name for name, _ in attrs if name.startswith("on")]
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag not in self.VOID:
            assert self.open.pop() == tag, tag


def checked(text: str) -> Page:
    """A page that is whole, small, and does nothing."""
    page = Page(text)
    assert text.startswith("<!doctype html>")
    assert page.open == []
    assert len(text.encode()) < LARGEST
    assert "script" not in page.tags
    assert "img" not in page.tags
    assert page.handlers == []
    assert [each for each in page.addresses if not each.startswith("#")] == ["data:,"]  # links within the page alone
    assert "url(" not in text
    assert "@import" not in text
    assert len(set(page.ids)) == len(page.ids)
    assert "nan" not in re.sub(r"<[^>]*>", " ", text).lower().split()
    return page


@pytest.mark.parametrize("make", [private, leaky, broken])
@pytest.mark.parametrize("annex", [False, True])
def test_a_page_is_one_small_file_in_the_promised_order(make: Any, annex: bool) -> None:
    text = report.html(make(), annex=annex)
    page = checked(text)
    assert [each for each in page.ids if each in ORDER] == ORDER
    assert ("annex" in page.ids) == annex
    assert text.count("<h1") == 1


def test_what_a_page_must_say() -> None:
    text = report.html(private()).replace("\N{NO-BREAK SPACE}", " ")
    for part in (
        "one record (1 row)", "added or removed", "every step of training", "1.861 at δ = 1e-5", "at δ = 1e-9",
        "1 % becomes at most", "10 % becomes at most", "50 % becomes at most",
        "Batches and gradients before noise were shown to nobody.",
        "mislabelled canaries", "canaries", "found at 0.1 % FPR", "found at 1 % FPR", "ε at least (95 % sure)",
        "Released: a model, beside this document. Made from hospital.", "95 % confidence",
        "class: readmitted", "AUC", "ε at least", "No ledger was given", "Side channels", "2.13.0",
        "discreet attack model model.safetensors",
    ):  # fmt: skip
        assert part in text, part


def test_no_ceiling_is_said_plainly() -> None:
    text = report.html(leaky())
    assert "No ceiling: nothing is claimed" in text
    assert "Nothing is promised: there is no ceiling" in text
    empty = report.html(Release(value=1, source="people", claims=()))
    checked(empty)
    assert "Nothing is claimed about this release: there is no ceiling" in empty
    assert "No attack was run: nothing here is measured." in empty
    assert "there is nothing to draw" in empty


def test_a_warning_stands_beside_the_table() -> None:
    warned = replace(private(), evidence=(evidence(3.0),))
    assert "this warns and cannot refute" in report.html(warned)
    assert "this warns and cannot refute" in report.markdown(warned)


ROWS = [{"ward": "A", "n": 1234.5}, {"ward": "B", "n": None}]
COLUMNS = {"ward": ["A", "B"], "n": [1234.5, None]}


@pytest.mark.parametrize("kept", ["rows", "columns", "arrow"])
@pytest.mark.parametrize("asked", ["query", "question", "console"])
def test_sql_and_its_answer_are_told_whoever_kept_them(kept: str, asked: str) -> None:
    """The library keeps `query` and an Arrow table, the console `question` and columns, others rows: the page has them all."""
    value: Any = {"rows": ROWS, "columns": {"columns": COLUMNS}, "arrow": pa.table(COLUMNS)}[kept]
    sql = "SELECT ward, COUNT(*) AS n FROM visits GROUP BY ward -- <b>"
    facts = {"question": {"sql": sql}} if asked == "console" else {asked: sql}
    release = Release(value=value, source="people", claims=(), facts=facts)
    page, text = report.html(release), report.markdown(release)
    assert escape(sql) in page
    assert f"`{sql}`" in text
    for told in ("1,234.5", "NULL"):
        assert told in page
        assert told in text
    checked(page)


@pytest.mark.parametrize(
    "value", [[{"a": 1}, {"b": 1}], [{"a": 1}, 2], {"columns": {"a": [1], "b": [1, 2]}}, {"columns": {}}, []]
)
def test_what_is_no_table_is_no_answer(value: Any) -> None:
    release = Release(value=value, source="people", claims=(), facts={"query": "SELECT 1"})
    assert "Questions and answers" in report.html(release)
    assert "Questions and answers" in report.markdown(release)


def test_releases_side_by_side(tmp_path: Path) -> None:
    text = report.html([leaky(), private()])
    page = checked(text)
    assert (text.count('class="tradeoff"'), text.count('class="tradeoff plain"')) == (2, 2)
    assert "each" in page.ids
    assert "test accuracy" in text
    paid, visits = ledger(tmp_path)
    with paid:
        four = report.html([leaky(), private(), visits, broken()], ledger=paid, title="All of it", annex=True)
    checked(four)
    assert "<h1>All of it</h1>" in four
    assert "paid for" in four
    assert "Visits" in four
    assert "refused" in four
    assert "has no such entry" not in four
    assert "all that hospital paid for amounts to ε = 1.5 at δ = 1e-6" in four.replace("\N{NO-BREAK SPACE}", " ")
    assert "no ledger was given that counts it" in text


def test_a_claim_made_for_several_releases_is_told_once() -> None:
    counts = [
        Release(value=number, source="people", claims=(COUNT,), facts={"title": f"How many {number}?"}) for number in range(9)
    ]
    text = report.html(counts)
    assert text.count("one record moves the count by at most 1") == 1
    assert "How many 5?; and 3 more" in text
    assert "<b>How many 0?</b>" in text
    told = report.markdown(counts)
    assert told.count("one record moves the count by at most 1") == 1


def test_controls_that_came_out_wrong_are_warned_of() -> None:
    wrong = [
        {"name": "lira on a leaky twin", "kind": "positive", "found": False},
        {"name": "loss on others", "kind": "negative", "found": True},
    ]
    text = report.html(replace(leaky(), facts={"controls": wrong}))
    assert "lira on a leaky twin: found nothing where there is something to find" in text
    assert "loss on others: “finds” people where there are none to find" in text
    assert "**Warning:** lira on a leaky twin" in report.markdown(replace(leaky(), facts={"controls": wrong}))
    assert "means nothing" not in report.html(leaky())


def test_the_interval_of_a_group_is_told() -> None:
    group = {"by": "ward", "group": "A", "tpr": {"0.01": 0.2, "0.001": 0.1}, "low": 0.15, "high": 0.25}
    text = report.markdown(replace(leaky(), facts={"groups": [group]}))
    assert "| ward: A | 10 % | 20 % (15 % to 25 %) |" in text


def test_columns_in_which_nothing_stands_are_left_out() -> None:
    text = report.markdown(replace(leaky(), facts={"groups": [{"by": "ward", "group": "A", "tpr": {"0.01": 0.2}}]}))
    assert "| group | found at 1 % FPR |" in text


def test_what_is_left_is_told(tmp_path: Path) -> None:
    paid, visits = ledger(tmp_path)
    with paid:
        text = report.html(visits, ledger=paid).replace("\N{NO-BREAK SPACE}", " ")
        assert "62.5 %" in text
        assert 'class="burn-down"' in text
        strange = report.markdown(replace(visits, entry="999-0123456789abcdef"), ledger=paid)
        assert "this ledger has no such entry" in strange
        unpaid = report.markdown(replace(visits, entry=None), ledger=paid)
        assert "its loss is counted nowhere" in unpaid
        told = report.document(visits, ledger=paid)
    (account,) = told["ledger"]
    assert account["left"]["epsilon"] == pytest.approx(2.5)
    assert [line["paid"] for line in account["entries"] if line["paid"]] == ["Visits"]
    assert "of a ledger that this report was not given" in report.markdown(visits)


def test_periods_have_budgets_of_their_own(tmp_path: Path) -> None:
    with Ledger(tmp_path / "periods.db") as kept:
        kept.open("visits", unit=record(), epsilon=1.0, delta=1e-6, by_period=True)
        kept.renew("visits", period="2026-11", by="owner", reason="a new month")
        with kept.reserve("visits@2026-11", COUNT) as entry:
            pass
        one = Release(value=4, source="visits", claims=(COUNT,), entry=entry)
        text = report.html(one, ledger=kept)
        checked(text)
        assert "Budget of visits@2026-11" in text
        told = report.document(replace(one, entry=None), ledger=kept)
    assert told["ledger"][0]["by_period"]
    assert told["ledger"][0]["left"] is None


def test_what_a_release_says_was_tried_is_told() -> None:
    release = replace(leaky(), facts={"tried": ["asking nicely"]})
    assert "<li>asking nicely</li>" in report.html(release)
    assert "- asking nicely" in report.markdown(release)


def hostile() -> Release[Any]:
    """Every text that a stranger chooses tries to become code."""
    game = Game(replace(record(), name=HOSTILE, key=HOSTILE), {"scores"})
    one = evidence(0.5)
    found = Evidence(game=game, attack=HOSTILE, score=one.score, inside=one.inside, run=one.run, design="post_hoc")
    facts = {
        "title": HOSTILE, "made": {"when": HOSTILE, "command": HOSTILE, "packages": {HOSTILE: HOSTILE}}, "seeds": {HOSTILE: 1},
        "hashes": {HOSTILE: HOSTILE}, "groups": [{"by": HOSTILE, "group": HOSTILE, "n": 3, "tpr": {"0.01": 0.5}}],
        "controls": [{"name": HOSTILE, "kind": "positive"}], "quality": {HOSTILE: 0.5}, "marginal_errors": {HOSTILE: 0.5},
        "not_tried": [HOSTILE], "tried": [HOSTILE], "spending": [[0, 0], [1, 1]],
    }  # fmt: skip
    claim = Claim(game=game, event=Pure(1.0), assumptions=(HOSTILE,))
    return Release(value=HOSTILE, source=HOSTILE, claims=(claim,), entry=HOSTILE, evidence=(found,), facts=facts)


@pytest.mark.parametrize("count", [1, 2])
def test_names_cannot_become_code(count: int) -> None:
    text = report.html([hostile()] * count, annex=True)
    checked(text)
    assert "<script" not in text
    assert "&lt;script&gt;" in text
    assert "11111103" not in text  # no template is run twice


def test_names_cannot_become_markdown() -> None:
    text = report.markdown(hostile(), annex=True)
    prose = re.sub(r"(`+) .*? \1(?!`)", "", text)  # within code everything is literal
    assert not re.search(r"(?<!\\)<(script|img|/title)", prose)
    assert "\n# H" not in text
    assert not re.search(r"(?<!\\)\]\(http", prose)
    before = 0
    for line in text.splitlines():
        bars = len(re.findall(r"(?<!\\)\|", line)) if line.startswith("|") else 0
        assert not before or bars in (0, before), line  # no name adds a cell to its line
        before = bars


def test_a_million_scores_make_a_small_page_in_seconds() -> None:
    random = np.random.default_rng(0)
    size = 1_000_000
    inside = random.random(size) < 0.5
    big = Evidence(
        game=Game(record(), {"scores"}), attack="lira", score=random.normal(size=size) + inside, inside=inside,
        run=np.zeros(size, int), design="post_hoc",
    )  # fmt: skip
    began = time.process_time()
    checked(report.html(replace(leaky(), evidence=(big,))))
    assert time.process_time() - began < 60  # it takes some 3 s; nothing that grows with the square of a million is this quick


def test_many_releases_fit_one_page() -> None:
    attacks = tuple(evidence(1.0, attack=name, targets=1000) for name in ("lira", "loss", "gradient"))
    many = [replace(leaky(), evidence=attacks, facts={"title": f"Model {number}"}) for number in range(30)]
    text = report.html(many, annex=True)
    checked(text)
    assert CUT in text
    assert "Model 29" in text
    counts = [Release(value=number, source="people", claims=(COUNT,)) for number in range(120)]
    checked(report.html(counts))


def test_many_attacks_groups_and_long_texts_fit_one_page() -> None:
    long = "x" * 100_000
    facts = {
        "title": long, "groups": [{"by": "ward", "group": f"{number}", "n": 1, "auc": 0.5} for number in range(5000)],
        "exposed": [{"index": number, "score": 1.0} for number in range(5000)], "not_tried": [long] * 50,
        "marginal_errors": {f"column {number}": 0.1 for number in range(500)}, "quality": {long: 1.0},
    }  # fmt: skip
    claim = Claim(game=Game(record(), {"scores"}), event=Pure(1.0), assumptions=(long,) * 50)
    attacks = tuple(evidence(0.1 * (number % 7), attack=f"attack {number}", targets=300) for number in range(45))
    text = report.html(Release(value=long, source=long, claims=(claim,) * 10, evidence=attacks, facts=facts), annex=True)
    checked(text)


@pytest.mark.parametrize(
    "score", [[0.0, 0.0], [1e308, -1e308], [5e-324, 0.0], [1.0, np.nextafter(1.0, 2.0)], [1e300, 1e300]], ids=str
)
def test_strange_scores_are_drawn(score: list[float]) -> None:
    inside = [True, False]
    strange = Evidence(game=Game(record(), {"scores"}), attack="x", score=score, inside=inside, run=[0, 0], design="post_hoc")
    checked(report.html(replace(private(), evidence=(strange,))))


def test_json_is_the_document_and_matches_its_schema(tmp_path: Path) -> None:
    jsonschema.Draft202012Validator.check_schema(SCHEMA)
    check = jsonschema.Draft202012Validator(SCHEMA)
    paid, visits = ledger(tmp_path)
    with paid:
        for given in ([private()], [leaky(), broken(), visits], [Release(value=1, source="x", claims=())], [hostile()]):
            told = report.document(given, ledger=paid, annex=True)
            check.validate(json.loads(json.dumps(told, allow_nan=False)))
    told = report.document(leaky())
    assert told["releases"][0]["claims"][0]["ceiling"] is False
    assert [each["attack"] for each in told["releases"][0]["evidence"]] == ["lira", "loss", "gradient"]
    assert "annex" not in told


def test_the_extension_picks_the_form(tmp_path: Path) -> None:
    release = private()
    assert report.write(release, tmp_path / "r.html").read_text().startswith("<!doctype html>")
    assert report.write(release, str(tmp_path / "r.md")).read_text().startswith("# Readmission model, trained privately\n")
    assert json.loads(report.write([release], tmp_path / "r.json").read_text())["format"] == "discreet-report"
    for wrong in ("report", "report.docx", "report.htm"):
        with pytest.raises(InvalidValue, match=r"ends in \.html, \.pdf, \.md, \.json"):
            report.write(release, tmp_path / wrong)
    with pytest.raises(InvalidValue, match="cannot be written"):
        report.write(release, tmp_path / "no" / "r.html")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["r.html", "r.json", "r.md"]


def test_a_pdf_has_the_same_words(tmp_path: Path) -> None:
    pytest.importorskip("pypdf")
    try:
        path = report.write([leaky(), private()], tmp_path / "r.pdf", annex=True)
    except Exception as error:
        if "Pango" in str(error) or "weasyprint" in str(error):
            pytest.skip(str(error))
        raise
    import pypdf

    read = pypdf.PdfReader(path)
    text = " ".join(" ".join(page.extract_text() for page in read.pages).split())
    assert read.metadata is not None
    assert read.metadata.title == "Releases from hospital · privacy report"
    assert 4 <= len(read.pages) <= 16
    for part in ("What is claimed", "mislabelled canaries", "TO BE FILLED IN BY PEOPLE", "Opinion 28/2024", "Poisson sampling"):
        assert part.lower() in text.lower(), part
    assert read.trailer["/Root"]["/MarkInfo"]["/Marked"]  # tagged, so that a screen reader can follow it
    assert path.stat().st_size < 1_000_000
    with pytest.raises(InvalidValue, match="cannot be written"):
        report.write(hostile(), tmp_path / "no" / "r.pdf")


def test_nothing_is_wider_than_the_paper(tmp_path: Path) -> None:
    weasyprint = pytest.importorskip("weasyprint", exc_type=(ImportError, OSError))
    paid, visits = ledger(tmp_path)
    with paid:
        text = report.html([leaky(), private(), visits], ledger=paid)
    for page in weasyprint.HTML(string=text, media_type="print").render().pages:
        boxes = [box for box in page._page_box.descendants() if type(box).__name__ == "TextBox"]
        assert max(box.position_x + box.width for box in boxes) < page.width - 40  # its margin is 64


def test_names_cannot_become_links_in_a_pdf() -> None:
    pypdf = pytest.importorskip("pypdf")
    pytest.importorskip("weasyprint", exc_type=(ImportError, OSError))
    read = pypdf.PdfReader(io.BytesIO(report.pdf(replace(hostile(), evidence=()))))
    links = [each.get_object() for page in read.pages for each in page.get("/Annots", ())]
    assert all("/Dest" in each or each.get("/A", {}).get("/S") == "/GoTo" for each in links)  # within the document alone
    assert "/Names" not in read.trailer["/Root"] or "/JavaScript" not in read.trailer["/Root"]["/Names"]


def test_a_missing_library_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "weasyprint", None)
    with pytest.raises(ImportError, match=r"discreet-privacy\[pdf\]"):
        report.pdf(broken())


def test_the_annex_asks_people_what_only_they_know() -> None:
    text = report.markdown([leaky(), private()], annex=True)
    for part in (
        "GDPR Art. 35 (7) (a)", "GDPR Art. 35 (7) (b)", "GDPR Art. 35 (7) (c)", "GDPR Art. 35 (7) (d)", "EDPB Opinion 28/2024",
        "Art. 36", "data protection officer", "☐ **To be filled in by people:**", "Not tried: attribute inference",
        "Readmission model, trained plainly: Nothing bounds it: there is no ceiling.",
    ):  # fmt: skip
        assert part in text, part
    assert text.count("To be filled in by people") >= 15
    assert "EDPB" not in report.markdown(
        Release(value=1, source="people", claims=(COUNT,)), annex=True
    )  # no model, no such question
    assert "is anonymous" not in text


def test_a_model_card_is_read_by_hugging_face() -> None:
    cards = pytest.importorskip("huggingface_hub")
    for release in (private(), leaky(), hostile(), broken()):
        card = cards.ModelCard(report.card(release))
        told = card.data.to_dict()
        assert told["tags"][0] == "privacy"
        assert told["privacy"]["attacks"][0]["epsilon_at_least"] >= 0
        assert "## Privacy" in card.text
    told = cards.ModelCard(report.card(private())).data.to_dict()["privacy"]
    assert told["claims"][0]["epsilon"] == pytest.approx(1.861)
    assert told["claims"][0]["delta"] == 1e-5
    assert told["claims"][0]["sampling"].startswith("Poisson sampling")
    text = report.card(private())
    for part in ("δ = 1e-5", "one record (1 row), added or removed", "every intermediate checkpoint", "Poisson sampling"):
        assert part in text, part
    assert "differential-privacy" not in report.card(leaky())


def test_importing_reports_is_light() -> None:
    heavy = "('torch', 'starlette', 'weasyprint', 'jinja2', 'pandas')"
    code = f"import sys, discreet.report; print(*(name for name in {heavy} if name in sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""


def test_confidence_widens_intervals() -> None:
    wide, narrow = (
        report.document(leaky(), confidence=sure)["releases"][0]["evidence"][0]["rates"][1] for sure in (0.999, 0.5)
    )
    assert wide["low"] < narrow["low"] < narrow["high"] < wide["high"]
    with pytest.raises(InvalidValue, match="confidence"):
        report.html(leaky(), confidence=1.0)
    with pytest.raises(InvalidValue, match="title"):
        report.html(leaky(), title="")


def test_non_private_only_release_with_no_view_of_a_model() -> None:
    claim = Claim(game=Game(record(), {"table"}), event=NonPrivate())
    text = report.markdown(Release(value=io.StringIO, source="x", claims=(claim,)), annex=True)
    assert "Linkage with other tables" in text


def test_the_parts_are_those_of_the_page() -> None:
    """A page of one's own shows the same report: nothing is lost between the parts, and the title is plain text."""
    release = Release(value=41, source="a<b", claims=())
    parts, page = report.parts(release), report.html(release)
    assert parts.title == "Release from a<b · privacy report"
    assert f"<title>{escape(parts.title)}</title>" in page
    assert f"<style>{parts.style}</style>" in page
    body = page[page.index("<main>") : page.index("</main>")].removeprefix("<main>")
    assert body.strip() == f"{parts.summary}\n{parts.details}".strip()
    assert parts.summary.rstrip().endswith("</section>")
    assert 'class="verdict' in parts.summary
    assert 'class="verdict' not in parts.details
    assert "<footer>" in parts.details


def test_a_pdf_is_written_whole_and_to_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """PDF, too, is replaced whole or not at all, even if the machine stops: synced before it takes the old file's place."""
    import os

    synced: list[int] = []
    monkeypatch.setattr("discreet.report.files.render_pdf", lambda *_, **__: b"%PDF")
    monkeypatch.setattr("discreet.core.document.os.fsync", synced.append)
    path = report.write(Release(value=1, source="x", claims=()), tmp_path / "r.pdf")
    assert (path.read_bytes(), len(synced), os.listdir(tmp_path)) == (b"%PDF", 1, ["r.pdf"])
