"""A section of a report from outside the package: shown in every form, for the releases that it is about."""

from __future__ import annotations

from dataclasses import dataclass

from discreet import report
from discreet.core import Release
from discreet.report.assessment import Assessment
from discreet.report.section import Section
from discreet.report.tables import Table


@dataclass(frozen=True)
class Licence:
    """Under which licence the source was collected."""

    name: str = "licence"
    heading: str = "Licence <of> the source"

    def section(self, item: Assessment, plots: bool) -> Section | None:
        if item.release.source != "people":
            return None
        table = Table(("source", "licence"), ((item.release.source, "CC0 <b>"),))
        return Section(
            item.title, pairs=(("Collected", "in 2026"),), tables=(("What may be done", table),), notes=("Ask *us*.",)
        )


def released(source: str) -> Release[int]:
    return Release(value=41, source=source, claims=())


def test_a_section_from_outside_is_shown_in_every_form() -> None:
    page = report.html(released("people"), sections=[Licence()])
    assert '<h2 id="licence">Licence &lt;of&gt; the source</h2>' in page
    assert "<dt>Collected</dt><dd>in 2026</dd>" in page
    assert "CC0 &lt;b&gt;" in page
    text = report.markdown(released("people"), sections=[Licence()])
    assert "## Licence \\<of\\> the source" in text
    assert "Ask \\*us\\*." in text


def test_it_is_absent_where_it_has_nothing_to_tell() -> None:
    assert "licence" not in report.html(released("others"), sections=[Licence()])
    assert "Licence" not in report.html(released("people"))
    both = report.html([released("people"), released("others")], sections=[Licence()])
    assert both.count('id="licence"') == 1
