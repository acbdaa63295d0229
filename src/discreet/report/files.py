"""Reports as files: the extension picks the form."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from discreet import charts
from discreet.audit.appraisal import CONFIDENCE
from discreet.core import check
from discreet.core.document import write_whole
from discreet.errors import InvalidValue
from discreet.report import model, page
from discreet.report.assessment import ReleaseLike
from discreet.report.markdown import render as render_markdown
from discreet.report.model import Report, build
from discreet.report.pdf import render as render_pdf

if TYPE_CHECKING:
    from discreet.ledger import LedgerLike

FORMS = (".html", ".pdf", ".md", ".json")


def document(
    releases: ReleaseLike | Iterable[ReleaseLike], *, ledger: LedgerLike | None = None, title: str | None = None,
    annex: bool = False, confidence: float = CONFIDENCE,
) -> dict[str, Any]:  # fmt: skip
    """The report as JSON data (`docs/reference/report.schema.json`); see `html` for what it takes."""
    return as_document(build(releases, ledger=ledger, title=title, confidence=confidence), annex=annex)


def as_document(report: Report, *, annex: bool = False) -> dict[str, Any]:
    from dataclasses import asdict

    from discreet.report.annex import parts

    data = model.document(report)
    return {**data, "annex": json.loads(json.dumps([asdict(part) for part in parts(report)]))} if annex else data


def write(
    releases: ReleaseLike | Iterable[ReleaseLike], path: str | os.PathLike[str], *, ledger: LedgerLike | None = None,
    title: str | None = None, annex: bool = False, confidence: float = CONFIDENCE,
) -> Path:  # fmt: skip
    """Write the report to a file: .html, .pdf, .md or .json. An existing file is replaced whole or not at all."""
    check_form(path)
    return write_report(build(releases, ledger=ledger, title=title, confidence=confidence), path, annex=annex)


def check_form(path: str | os.PathLike[str]) -> str:
    """The extension of a file that a report can be written to."""
    form = Path(path).suffix.lower()
    if form not in FORMS:
        raise InvalidValue(f"A report is written to a file that ends in {', '.join(FORMS)}; got {check.shown(str(path))}.")
    return form


def write_report(report: Report, path: str | os.PathLike[str], *, annex: bool = False) -> Path:
    form = check_form(path)
    if form == ".pdf":
        return write_whole(path, render_pdf(report, annex=annex))
    if form == ".json":
        return write_whole(path, json.dumps(as_document(report, annex=annex), indent=2, allow_nan=False) + "\n")
    return write_whole(path, (page.render if form == ".html" else render_markdown)(report, annex=annex))


def write_plots(report: Report, folder: str | os.PathLike[str]) -> list[Path]:
    """Every plot of a report as an SVG file in a folder, which is made if it is not there."""
    where = Path(folder)
    try:
        where.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InvalidValue(f"The folder {check.shown(str(where))} cannot be made: {error.strerror}.") from None
    written = []
    for place, assessment in enumerate(report.assessments, 1):
        before = f"{place}-{_slug(assessment.title)}-" if len(report.assessments) > 1 else ""
        drawn = [page.roc_of(assessment, legend=True), *charts.all_plots(assessment.release)[1:]]
        written += [write_whole(where / f"{before}{plot.name}.svg", plot.file()) for plot in drawn]
    for account in report.accounts:
        if account.plot is not None:
            written.append(write_whole(where / f"burn_down-{_slug(account.source)}.svg", account.plot.file()))
    return written


def _slug(name: str) -> str:
    """A name for a file: nothing in it leads out of a folder."""
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")[:40] or "release"
