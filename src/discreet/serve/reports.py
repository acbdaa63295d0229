"""Releases as reports: the pieces that a page of the app shows, and the files it exports."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from typing import Any

from markupsafe import Markup

from discreet import report
from discreet.core import Release
from discreet.ledger import Ledger
from discreet.report import model
from discreet.report.account import budgets
from discreet.report.decision import decide, rank

EXPORTS = {"html": "text/html; charset=utf-8", "pdf": "application/pdf", "md": "text/markdown; charset=utf-8"}
POLICY = (  # a report carries its own style, and no script
    "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data:; connect-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)


def parts(
    release: Release[Any], ledger: Ledger | None, *, withheld: bool = False, deltas: Mapping[str, float] | None = None
) -> dict[str, Any]:
    """The pieces of a report that a page of the app shows around the answer."""
    pieces = report.parts(release, ledger=_that_knows(release, ledger), withheld=withheld, deltas=deltas)
    return {
        "title": pieces.title,
        "style": Markup(pieces.style),
        "summary": Markup(pieces.summary),
        "details": Markup(pieces.details),
    }


def _that_knows(release: Release[Any], ledger: Ledger | None) -> Ledger | None:
    """The ledger, if the release is of one of its sources, or names an entry: then it must be an entry of this ledger."""
    return ledger if ledger is not None and (release.entry or release.source in ledger.sources()) else None


def document(
    release: Release[Any], ledger: Ledger | None, *, withheld: bool = False, deltas: Mapping[str, float] | None = None
) -> dict[str, Any]:
    """What a report says, as data."""
    return model.document(model.build(release, ledger=_that_knows(release, ledger), withheld=withheld, deltas=deltas))


def verdict(release: Release[Any], ledger: Ledger) -> dict[str, Any]:
    """How bad a release is, in one word and one number, and what to do now: what the first page of its report says."""
    built = model.build(release, ledger=_that_knows(release, ledger), deltas=budgets(ledger))
    first = decide(built)
    return {
        "status": built.status, "number": first.number, "meaning": first.meaning, "action": first.actions[0],
        "rank": rank(first.worst),
    }  # fmt: skip


def export(
    releases: Sequence[Release[Any]], ledger: Ledger, kind: str, *, annex: bool = False, title: str | None = None
) -> bytes:
    """A report as a file: on one release, or on several side by side."""
    known = next((ledger for release in releases if _that_knows(release, ledger)), None)
    if kind == "pdf":
        return report.pdf(releases, ledger=known, annex=annex, title=title)
    return (report.html if kind == "html" else report.markdown)(releases, ledger=known, annex=annex, title=title).encode()


def has_pdf() -> bool:
    """Whether reports can be made as PDF here."""
    return find_spec("weasyprint") is not None
