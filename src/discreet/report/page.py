"""The report as one HTML page: inline SVG and CSS, no script, nothing fetched, small enough for e-mail."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from markupsafe import Markup

from discreet import charts
from discreet.audit.appraisal import CONFIDENCE
from discreet.charts import Plot
from discreet.core import Claim
from discreet.figures import percent_up, rate, up
from discreet.report import annex as annexes
from discreet.report import tables, text
from discreet.report.assessment import Assessment, Ceiling, ReleaseLike
from discreet.report.decision import CONFIDENTIAL, decide, ordered
from discreet.report.extraction import MemorisedText
from discreet.report.federated import FederatedModel
from discreet.report.inference import AttributeInference
from discreet.report.model import Report, build
from discreet.report.recovered import RecoveredPictures, SharesOfRows
from discreet.report.section import SectionKind, filled
from discreet.report.sentences import MARKS
from discreet.report.stealing import StolenModel
from discreet.report.synthetic import SyntheticTable

if TYPE_CHECKING:
    from discreet.ledger import LedgerLike

SECTIONS: tuple[SectionKind, ...] = (
    SyntheticTable(), AttributeInference(), RecoveredPictures(), MemorisedText(), SharesOfRows(), StolenModel(),
    FederatedModel(),
)  # fmt: skip
LARGEST = 150_000  # bytes of a page
CUT = "Left out so that the page stays small: plots and details of some releases. The JSON form has all."
_MOST = {3: 24, 2: 24, 1: 12, 0: 4}  # releases shown in full, by level of detail
_PLOTS = {3: 12, 2: 8, 1: 4, 0: 2}  # and plots of attacks
_LINES = {3: 20, 2: 12, 1: 8, 0: 4}  # and attacks in each
_CLAIMS = {3: 8, 2: 8, 1: 4, 0: 2}  # and claims of each release


def html(
    releases: ReleaseLike | Iterable[ReleaseLike], *, ledger: LedgerLike | None = None, title: str | None = None,
    annex: bool = False, confidence: float = CONFIDENCE, sections: Iterable[SectionKind] = (),
) -> str:  # fmt: skip
    """The report on one or more releases as a page: releases as such, or the names of their files.

    With a `ledger` it tells what was spent and what is left; with `annex` it ends with what a data protection impact assessment
    asks, filled where the releases know the answer. `confidence` is that of intervals and floors. `sections` are shown beside
    those that every report has (see `discreet.report.section`).

    >>> from discreet.core import Claim, Game, Laplace, Release, record
    >>> claim = Claim(game=Game(record(), {"answers"}), event=Laplace(2.0))
    >>> page = html(Release(value=41, source="people", claims=(claim,)))
    >>> "62.3" in page and "<script" not in page
    True
    """
    return render(build(releases, ledger=ledger, title=title, confidence=confidence, sections=sections), annex=annex)


@dataclass(frozen=True)
class Parts:
    """A report in pieces for a page of one's own: text for the title, CSS, and HTML above and below the details."""

    title: str
    style: str
    summary: str
    details: str


def parts(
    releases: ReleaseLike | Iterable[ReleaseLike], *, ledger: LedgerLike | None = None, title: str | None = None,
    annex: bool = False, confidence: float = CONFIDENCE, sections: Iterable[SectionKind] = (), withheld: bool = False,
    deltas: Mapping[str, float] | None = None,
) -> Parts:  # fmt: skip
    """The pieces of the page that `html` makes, for a page that has its own head and navigation.

    `withheld` says that there is evidence which the reader of this page may not see; `deltas` has the delta of each source's
    budget, for a reader who is not shown its ledger.

    >>> from discreet.core import Release
    >>> parts(Release(value=41, source="people", claims=())).title
    'Release from people · privacy report'
    """
    report = build(
        releases, ledger=ledger, title=title, confidence=confidence, sections=sections, withheld=withheld, deltas=deltas
    )  # fmt: skip
    return _fitting(report, annex)[0]


def render(report: Report, *, annex: bool = False) -> str:
    """The page, with as much detail as fits."""
    return _fitting(report, annex)[1]


def _fitting(report: Report, annex: bool) -> tuple[Parts, str]:
    """The parts and the page made of them, with the most detail that keeps the page small."""
    from discreet import __version__

    whole = _environment().get_template("report.html")
    for detail in (3, 2, 1, 0):
        pieces = _parts(report, annex, detail)
        page: str = whole.render(
            title=pieces.title, style=pieces.style, summary=Markup(pieces.summary), details=Markup(pieces.details),
            version=__version__,
        )  # fmt: skip
        if len(page.encode()) < LARGEST:
            break
    return pieces, page


def _parts(report: Report, annex: bool, detail: int) -> Parts:
    most = _MOST[detail]
    decision = decide(report)
    report = replace(report, assessments=tuple(ordered(report.assessments)))  # the worst first
    if detail == 0:
        report = _first(report, 200)
    several = report.assessments[:most] if detail else report.assessments[:2]
    claimed, unclaimed = claims_of(report.assessments, most, _CLAIMS[detail])
    from discreet import __version__

    evidence = [
        (item.title, tables.evidence(item, report.confidence, 40 if detail else 8))
        for item in report.assessments[:most]
        if item.floors
    ]
    context = {
        "decision": decision, "confidential": CONFIDENTIAL, "versions": tables.versions(report),
        "questions": tables.questions(several) if detail else [],
        "report": report, "one": report.assessments[0] if len(report.assessments) == 1 else None, "most": most,
        "detail": detail, "version": __version__, "tables": tables, "text": text, "marks": MARKS,
        "compared": tables.compared(report), "evidence": evidence,
        "drawn": drawn(report.assessments, _PLOTS[detail], _LINES[detail]), "claimed": claimed, "unclaimed": unclaimed,
        "untold": sum(bool(item.floors) for item in report.assessments[most:]), "undrawn": undrawn(report.assessments),
        "untried": untried(several), "sections": filled((*SECTIONS, *report.sections), several, plots=detail > 1),
        "steps": _of(several, "spending", charts.steps) if detail > 1 else [],
        "errors": _errors(report.assessments) if detail > 1 else [],
        "marginals": _of(several, "marginal_errors", charts.marginals) if detail > 1 else [],
        "histograms": _histograms(report.assessments) if detail > 2 else [],
        "plain": drawn(report.assessments, 4, log=False) if detail > 2 else [],
        "annex": annexes.parts(replace(report, assessments=several)) if annex else None,
        "cut": "" if detail > 1 else CUT,
    }  # fmt: skip
    templates = _environment()
    return Parts(
        title=_together(f"{report.title} · privacy report"), style=_style(),
        summary=templates.get_template("summary.html").render(context),
        details=templates.get_template("details.html").render(context),
    )  # fmt: skip


def _first(report: Report, count: int) -> Report:
    return replace(report, assessments=report.assessments[:count], warnings=report.warnings[:10], accounts=report.accounts[:5])


def drawn(assessments: tuple[Assessment, ...], most: int, lines: int = 20, *, log: bool = True) -> list[tuple[str, Plot]]:
    """The plots of releases that were attacked; of few releases, also of those that have a ceiling alone."""
    few = len(assessments) <= 2
    chosen = [item for item in assessments if item.floors or (few and item.bounded)][:most]
    return [(item.title, roc_of(item, legend=False, most=lines, log=log)) for item in chosen]


def roc_of(assessment: Assessment, *, legend: bool, most: int = 20, log: bool = True) -> Plot:
    """The plot of one release, attacks that went through a ceiling in their own colour."""
    curves = list({item.claim.event: item.curve for item in assessment.bounded}.values())
    title = f"Ceiling and attacks{'' if log else ', plain axes'}: {assessment.title}"
    return charts.roc(
        assessment.release, title=title, floors=assessment.floors, legend=legend, curves=curves, most=most, log=log
    )  # fmt: skip


def claims_of(assessments: Sequence[Assessment], releases: int, most: int) -> tuple[list[tuple[str, Ceiling | None]], int]:
    """Every claim once, headed by the releases it is made for, and how many are left out; None where nothing is claimed."""
    headed: dict[Claim | str, tuple[list[str], Ceiling | None]] = {}
    for item in assessments:
        for place, ceiling in enumerate(item.ceilings, 1):
            name = f"{item.title}, claim {place}" if len(item.ceilings) > 1 else item.title
            headed.setdefault(ceiling.claim, ([], ceiling))[0].append(name)
        if not item.ceilings:
            headed.setdefault(item.title, ([item.title], None))
    shown = list(headed.values())[: releases if len(assessments) > 1 else most]
    if len(assessments) == 1 and len(assessments[0].ceilings) <= 1:
        return [("Claim", ceiling) for _, ceiling in shown], 0
    return [(_several(names), ceiling) for names, ceiling in shown], len(headed) - len(shown)


def _several(names: Sequence[str]) -> str:
    return "; ".join(names[:6]) + (f"; and {len(names) - 6} more" if len(names) > 6 else "")


def undrawn(assessments: tuple[Assessment, ...]) -> str:
    if any(item.withheld for item in assessments):
        return "What attacks reached is withheld here, so there is nothing to draw below the ceiling."
    if any(item.bounded for item in assessments):
        return (
            "No attack was run on these releases, so there is nothing to draw below their ceilings; the table above has them."
        )
    return "There is no ceiling, and no attack was run: there is nothing to draw."


def _errors(assessments: tuple[Assessment, ...]) -> list[tuple[str, Plot]]:
    """The claims as trade-offs between errors, where there are few of them."""
    drawn = [
        (item, curve) for item in assessments for curve in {each.claim.event: each.curve for each in item.bounded}.values()
    ]
    return [
        (item.title, _named(charts.tradeoff(curve), item, len(assessments)))
        for item, curve in drawn
        if curve and len(drawn) <= 2
    ]


def _of(assessments: Iterable[Assessment], name: str, draw: Any) -> list[tuple[str, Plot]]:
    chosen = [item for item in assessments if item.facts.get(name)][:4]
    return [(item.title, _named(draw(item.facts[name]), item, len(chosen))) for item in chosen]


def _named(plot: Plot, item: Assessment, count: int) -> Plot:
    return plot if count == 1 else replace(plot, title=f"{plot.title}: {item.title}")


def _histograms(assessments: tuple[Assessment, ...]) -> list[tuple[str, Plot]]:
    """The scores of the strongest attack on each release."""
    chosen = [(item, item.strongest) for item in assessments[:4]]
    several = sum(best is not None for _, best in chosen)
    return [
        (item.title, _named(charts.histogram(best.evidence, legend=False), item, several))
        for item, best in chosen
        if best is not None
    ]


def untried(assessments: Iterable[Assessment]) -> list[tuple[list[str], list[str]]]:
    """What was not tried; releases for which the list is the same share one list."""
    titles: dict[tuple[str, ...], list[str]] = {}
    for item in assessments:
        titles.setdefault(item.not_tried, []).append(item.title)
    return [(names, [text.short(sentence) for sentence in texts[:30]]) for texts, names in titles.items()]


@lru_cache(1)
def _style() -> str:
    from importlib.resources import files

    lines = files("discreet.report").joinpath("templates/style.css").read_text(encoding="utf-8").splitlines()
    return "\n".join(line.strip() for line in lines)


_PERCENT = re.compile(r"(?<=\d) (?=%)|(?<=[εδ]) (?=[=≤])|(?<=[εδ] [=≤]) ")


def _together(value: Any) -> Any:
    """A number and its sign stay on one line."""
    return _PERCENT.sub("\N{NO-BREAK SPACE}", value) if type(value) is str else value


@lru_cache(1)
def _environment() -> Any:
    from jinja2 import Environment, PackageLoader, StrictUndefined

    environment = Environment(
        loader=PackageLoader("discreet.report"), autoescape=True, undefined=StrictUndefined, trim_blocks=True,
        lstrip_blocks=True, finalize=_together,
    )  # fmt: skip
    environment.filters.update(up=up, percent_up=percent_up, rate=rate)
    environment.filters.update(short=text.short, small=text.small, stopped=text.stopped)
    return environment
