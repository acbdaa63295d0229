"""The report as Markdown: for job summaries, wikis and terminals. Names from documents cannot break out of it."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from discreet.figures import percent_up, rate, up
from discreet.report import annex as annexes
from discreet.report import page, tables, words
from discreet.report.findings import CONFIDENCE, Given
from discreet.report.gathered import Report, made
from discreet.report.sentences import label

if TYPE_CHECKING:
    from discreet.ledger import Ledger

_SPECIAL = re.compile(r"([\\`*{}\[\]<>|~&$^]|(?<!\w)_|_(?!\w)|^[-+#])")


def markdown(
    releases: Given | Iterable[Given], *, ledger: Ledger | None = None, title: str | None = None, annex: bool = False,
    confidence: float = CONFIDENCE,
) -> str:  # fmt: skip
    """The report as Markdown; see `html` for what it takes.

    >>> from discreet.core import Release
    >>> print(markdown(Release(value=41, source="people", claims=())).splitlines()[0])
    # Release from people
    """
    return rendered(made(releases, ledger=ledger, title=title, confidence=confidence), annex=annex)


def rendered(report: Report, *, annex: bool = False) -> str:
    from discreet import __version__

    text: str = _environment().get_template("report.md").render(
        report=report, one=report.found[0] if len(report.found) == 1 else None, version=__version__, tables=tables, words=words,
        label=label, compared=labelled(tables.compared(report), 1),
        evidence=[(item.title, labelled(tables.evidence(item, report.confidence), -1)) for item in report.found if item.floors],
        claimed=page.claims_of(report.found, 1000, 100)[0],
        drawn=page.drawn(report.found, 12), undrawn=page.undrawn(report.found), untried=page.untried(report.found),
        annex=annexes.parts(report) if annex else None,
    )  # fmt: skip
    return re.sub(r"\n{3,}", "\n\n", text).strip() + "\n"


def labelled(table: tables.Table, column: int) -> tables.Table:
    """A table whose statuses are told as a reader sees them."""
    place = column % len(table.heads)
    rows = tuple(tuple(label(cell) if at == place else cell for at, cell in enumerate(row)) for row in table.rows)
    return replace(table, rows=rows)


def md(value: Any) -> str:
    """Text that Markdown and the HTML in it take literally.

    >>> print(md("<b>|*x* is some_name (or -1)"))
    \\<b\\>\\|\\*x\\* is some_name (or -1)
    """
    return _SPECIAL.sub(r"\\\1", words.short(value, 2_000))


def code(value: Any) -> str:
    """Text as code: a run of backticks longer than any inside."""
    text = words.short(value, 400)
    fence = "`" * (max((len(run) for run in re.findall(r"`+", text)), default=0) + 1)
    return f"{fence} {text} {fence}" if "`" in text else f"{fence}{text}{fence}"


@lru_cache(1)
def _environment() -> Any:
    from jinja2 import Environment, PackageLoader, StrictUndefined

    found = Environment(
        loader=PackageLoader("discreet.report"),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        autoescape=False,
    )
    found.filters.update(
        md=md, code=code, up=up, percent_up=percent_up, rate=rate, small=words.small, short=words.short, stopped=words.stopped
    )
    return found
