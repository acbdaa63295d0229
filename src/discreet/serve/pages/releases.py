"""Releases: the list, and each as its report."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from typing import Any

from discreet.core import Release
from discreet.errors import DiscreetError, MissingExtra
from discreet.ledger import Ledger
from discreet.report.account import budgets
from discreet.report.sentences import RECOVERED
from discreet.serve import answer, reports, tables
from discreet.serve.routes import EVERYONE, READERS, File, Page, Refused, Reply, Request, Route, number_in
from discreet.serve.store import Card, ReleaseStore, seen_by

ON_A_PAGE = 100
PATIENCE = 3.0  # seconds in which releases are judged for a list


def releases(request: Request) -> Reply:
    """All releases, newest first; words of the filter must all occur in name, title, source or attacks."""
    words = request.query.get("filter", "")[:200]
    source = request.query.get("source", "")[:200]
    cards = [_seen(request, card) for card in request.state.store.cards()]
    sources = sorted({card["source"] for card in cards if card["source"]})
    kept = [card for card in cards if _matches(card, words.lower().split()) and source in ("", card["source"])]
    page = number_in(request.query.get("page", "1")) or 1
    start = ON_A_PAGE * (page - 1)
    data: dict[str, Any] = {"releases": kept[start : start + ON_A_PAGE], "count": len(kept), "all": len(cards), "filter": words,
            "source": source, "sources": sources, "page": page,
            "pages": max(1, -(-len(kept) // ON_A_PAGE))}  # fmt: skip
    verdicts, waiting = _verdicts(request, data["releases"]) if request.user.role != "analyst" else ({}, 0)
    worst = min(verdicts, key=lambda name: verdicts[name]["rank"], default=None)
    for each in data["releases"]:
        each["verdict"] = verdicts.get(each["name"], {}).get("status")
    first = None if worst is None else {"name": worst, **verdicts[worst]}
    data["worst"] = first and {name: first[name] for name in ("name", "status", "number", "meaning", "action")}
    titles = {each["name"]: each["title"] for each in cards}
    more = {"worst_title": titles.get(worst or "", ""), "judged": len(verdicts), "waiting": waiting}
    return Page("releases.html", data, more, part="parts/releases.html")


def _verdicts(request: Request, cards: list[dict[str, Any]]) -> tuple[dict[str, Any], int]:
    """What the first page of each report says, and how many wait until the page asks again, since the others took too long.

    Those come first that may be the worst: without a ceiling, or attacked.
    """
    last = tuple(entry.id for entry in request.state.ledger.history()[-1:])
    store, ledger, end = request.state.store, request.state.ledger, time.monotonic() + PATIENCE
    found: dict[str, Any] = {}
    waiting = 0
    likely = sorted(cards, key=lambda each: (each["epsilon"] is not None, not each["attacks"]))
    for name in (each["name"] for each in likely if each["fault"] is None):
        if time.monotonic() > end and not store.remembers(name, ("verdict", *last)):
            waiting += 1
            continue
        with suppress(DiscreetError):
            found[name] = store.remember(name, ("verdict", *last), partial(_verdict, store, name, ledger))
    return found, waiting


def _verdict(store: ReleaseStore, name: str, ledger: Ledger) -> dict[str, Any]:
    return reports.verdict(store.load(name), ledger)


def _seen(request: Request, card: Card) -> dict[str, Any]:
    data = card.to_json()
    return {**data, "attacks": []} if request.user.role == "analyst" else data


def _matches(card: dict[str, Any], words: list[str]) -> bool:
    text = " ".join([card["name"], card["title"], card["source"], *card["attacks"]]).lower()
    return all(word in text for word in words)


def _release(request: Request) -> Release[Any]:
    """The release as this user may see it."""
    return seen_by(request.user.role, _whole(request))


def _whole(request: Request) -> Release[Any]:
    try:
        return request.state.store.load(request.path["name"])
    except DiscreetError as error:
        raise Refused(404, str(error)) from None


def _ledger(request: Request) -> Ledger | None:
    """The ledger; None for analysts, who may not see entries and accounts of others."""
    return None if request.user.role == "analyst" else request.state.ledger


def release(request: Request) -> Reply:
    """One release as its report; as JSON, what the report says."""
    seen, name = _release(request), request.path["name"]
    less, deltas = _less(seen, _whole(request)), budgets(request.state.ledger)
    if request.wants == "json":
        return Page("", {"name": name, **reports.document(seen, _ledger(request), withheld=less, deltas=deltas)})
    columns = answer.columns(_columns(request, seen))
    bar = {"name": name, "heads": columns, "lines": answer.rows(columns), "picture": answer.picture(columns),
           "question": _question(seen), "bounding": seen.facts.get("bounding", ""), "entry": seen.entry,
           "targets": _targets(request, name), "pdf": reports.has_pdf(),
           "table": tables.preview(request.state.store, name, seen),
           "less": less, "empty": answer.why_empty(seen, columns), "unsigned": _unsigned(request)}  # fmt: skip
    parts = request.state.store.remember(
        name, _moment(request), lambda: reports.parts(seen, _ledger(request), withheld=less, deltas=deltas)
    )
    return Page("release.html", {"name": name}, {**bar, **parts}, headers={"content-security-policy": reports.POLICY})


def _less(seen: Release[Any], whole: Release[Any]) -> bool:
    """Whether attacks were run of which this user sees nothing."""
    facts = any(name in whole.facts and name not in seen.facts for name in RECOVERED)
    return facts or len(seen.evidence) < len(whole.evidence)


def _unsigned(request: Request) -> str:
    """What is said of the signature beside the document, where it is there and does not fit, or is not there."""
    from discreet.report.signature import check_release

    return request.state.store.without_paths(check_release(request.state.store.path(request.path["name"])).fault or "")


def _question(release: Release[Any]) -> dict[str, str] | None:
    """The question of an answer, for a link that asks it again. The file may hold anything, so its types are checked."""
    question = release.facts.get("question")
    if not isinstance(question, Mapping) or not isinstance(question.get("sql"), str):
        return None
    return {"source": release.source, **{name: str(question.get(name, "")) for name in ("sql", "epsilon", "delta")}}


def _moment(request: Request) -> tuple[str, ...]:
    """What a report depends on beside its release: the role of its reader, and the last entry of the ledger."""
    ledger = _ledger(request)
    last = ledger.history()[-1:] if ledger is not None else []
    return ("report", "less" if ledger is None else "all", *(entry.id for entry in last))


def _columns(request: Request, release: Release[Any]) -> dict[str, Any]:
    """The columns of an answer, from the document or from the table beside it."""
    table = request.state.store.table(request.path["name"], release)
    value = release.value if table is None else {"columns": answer.plain(table)}
    columns = value.get("columns") if isinstance(value, dict) else None
    if not isinstance(columns, dict) or len({len(each) if isinstance(each, list) else -1 for each in columns.values()}) != 1:
        return {}
    return columns


def _targets(request: Request, name: str) -> list[str]:
    return (
        [target.name for target in request.state.settings.targets.values() if target.release == name]
        if request.user.role != "analyst"
        else []
    )


def export(request: Request) -> Reply:
    """The report as a file to keep or to sign."""
    return exported(request, [_release(request)], request.path["name"])


def exported(request: Request, releases: list[Release[Any]], name: str, title: str | None = None) -> Reply:
    """A report on releases as a file; with `annex`, what an impact assessment asks."""
    kind, annex = request.path["kind"], request.query.get("annex", "") == "yes"
    if kind not in reports.EXPORTS:
        raise Refused(404, f"A report is exported as {', '.join(reports.EXPORTS)}.")
    try:
        body = reports.export(releases, request.state.ledger, kind, annex=annex, title=title)
    except MissingExtra as error:
        raise Refused(501, str(error)) from None
    request.state.users.note(request.user.name, "exported", name, kind=kind, annex=annex)
    return File(body, reports.EXPORTS[kind], f"{name}.{kind}")


def document(request: Request) -> Reply:
    """The release itself, with its raw scores."""
    release = _release(request)
    request.state.users.note(request.user.name, "exported", request.path["name"], kind="release.json")
    return File(
        json.dumps(release.to_json(), allow_nan=False).encode(), "application/json", f"{request.path['name']}.release.json"
    )


ROUTES = (
    Route("/releases", releases, EVERYONE, work="heavy"),
    Route("/releases/{name}", release, EVERYONE, work="heavy"),
    Route("/releases/{name}/document", document, READERS, work="heavy", json=False),
    Route("/releases/{name}/export/{kind}", export, READERS, work="heavy", json=False),
)
