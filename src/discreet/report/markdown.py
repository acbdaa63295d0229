"""The report as Markdown: for job summaries, wikis and terminals. Names from documents cannot break out of it."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from discreet.audit.appraisal import CONFIDENCE
from discreet.figures import percent_up, rate, up
from discreet.report import annex as annexes
from discreet.report import page, tables, text
from discreet.report.assessment import ReleaseLike
from discreet.report.decision import decide, ordered
from discreet.report.model import Report, build
from discreet.report.section import SectionKind, filled

if TYPE_CHECKING:
    from discreet.ledger import LedgerLike

_SPECIAL = re.compile(r"([\\`*{}\[\]<>|~&$^]|(?<!\w)_|_(?!\w)|^[-+#])")


def markdown(
    releases: ReleaseLike | Iterable[ReleaseLike], *, ledger: LedgerLike | None = None, title: str | None = None,
    annex: bool = False, confidence: float = CONFIDENCE, sections: Iterable[SectionKind] = (),
) -> str:  # fmt: skip
    """The report as Markdown; see `html` for what it takes.

    >>> from discreet.core import Release
    >>> print(markdown(Release(value=41, source="people", claims=())).splitlines()[0])
    # Release from people
    """
    return render(build(releases, ledger=ledger, title=title, confidence=confidence, sections=sections), annex=annex)


def render(report: Report, *, annex: bool = False) -> str:
    from discreet import __version__

    decision = decide(report)
    report = replace(report, assessments=tuple(ordered(report.assessments)))
    several = report.assessments
    page_text: str = _environment().get_template("report.md").render(
        decision=decision, report=report, one=several[0] if len(several) == 1 else None, version=__version__, tables=tables,
        text=text, compared=tables.compared(report),
        evidence=[(item.title, tables.evidence(item, report.confidence)) for item in several if item.floors],
        claimed=page.claims_of(several, 1000, 100)[0], drawn=page.drawn(several, 12), undrawn=page.undrawn(several),
        versions=tables.versions(report), questions=tables.questions(several),
        untried=page.untried(several), sections=filled((*page.SECTIONS, *report.sections), several),
        annex=annexes.parts(report) if annex else None,
    )  # fmt: skip
    return re.sub(r"\n{3,}", "\n\n", page_text).strip() + "\n"


def md(value: Any) -> str:
    """Text that Markdown and the HTML in it take literally.

    >>> print(md("<b>|*x* is some_name (or -1)"))
    \\<b\\>\\|\\*x\\* is some_name (or -1)
    """
    return _SPECIAL.sub(r"\\\1", text.short(value, 2_000))


def code(value: Any) -> str:
    """Text as code: a run of backticks longer than any inside."""
    line = text.short(value, 400)
    fence = "`" * (max((len(run) for run in re.findall(r"`+", line)), default=0) + 1)
    return f"{fence} {line} {fence}" if "`" in line else f"{fence}{line}{fence}"


@lru_cache(1)
def _environment() -> Any:
    from jinja2 import Environment, PackageLoader, StrictUndefined

    environment = Environment(
        loader=PackageLoader("discreet.report"),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        autoescape=False,
    )
    environment.filters.update(
        md=md, code=code, up=up, percent_up=percent_up, rate=rate, small=text.small, short=text.short, stopped=text.stopped
    )
    return environment
