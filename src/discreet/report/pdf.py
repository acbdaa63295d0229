"""The report as PDF, by WeasyPrint from the same page; nothing is fetched while it is made."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from discreet.audit.appraisal import CONFIDENCE
from discreet.errors import DiscreetError, MissingExtra
from discreet.report import page
from discreet.report.assessment import ReleaseLike
from discreet.report.model import Report, build
from discreet.report.section import SectionKind

if TYPE_CHECKING:
    from discreet.ledger import LedgerLike


def pdf(
    releases: ReleaseLike | Iterable[ReleaseLike], *, ledger: LedgerLike | None = None, title: str | None = None,
    annex: bool = False, confidence: float = CONFIDENCE, sections: Iterable[SectionKind] = (),
) -> bytes:  # fmt: skip
    """The report as a tagged PDF (PDF/UA); see `html` for what it takes. Needs the extra `pdf`."""
    return render(build(releases, ledger=ledger, title=title, confidence=confidence, sections=sections), annex=annex)


def render(report: Report, *, annex: bool = False) -> bytes:
    weasyprint = _printer()
    text = page.render(report, annex=annex)
    written = weasyprint.HTML(string=text, url_fetcher=_refused, media_type="print").write_pdf(pdf_variant="pdf/ua-1")
    return bytes(written)


def _printer() -> Any:
    try:
        import weasyprint  # type: ignore[import-untyped, unused-ignore]
    except ImportError:
        raise MissingExtra("weasyprint", "pdf", "A report as PDF") from None
    except OSError:  # its Python is there, the library behind it is not
        raise DiscreetError(
            "A report as PDF needs the Pango library, which pip cannot bring. Install it: apt-get install libpango-1.0-0 "
            "libpangoft2-1.0-0 (or brew install pango); or write the report as HTML and print it from a browser."
        ) from None
    return weasyprint


def _refused(url: str, *_: Any, **__: Any) -> Any:
    raise ValueError("a report fetches nothing")
