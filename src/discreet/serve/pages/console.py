"""The console: a question in SQL, its cost and error before anything is spent, then its answer, kept as a release."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

from discreet.core.facts import made
from discreet.errors import DiscreetError, InvalidValue
from discreet.serve import answer
from discreet.serve.routes import ASKERS, Page, Refused, Reply, Request, Route, message_for, status_of
from discreet.serve.store import plain_name

FIELDS = ("source", "sql", "epsilon", "delta", "groups", "title")
LONGEST = 10_000  # characters of a question


def console(request: Request) -> Reply:
    """The form; its fields may be in the address, so that a question can be sent to somebody."""
    asked = {name: request.query.get(name, "")[:LONGEST] for name in FIELDS}
    return Page("console.html", {"asked": asked, **_offered(request, asked["source"])}, _nothing())


def _nothing() -> dict[str, Any]:
    return {"cost": None, "answered": None, "refusal": None}


def _offered(request: Request, chosen: str) -> dict[str, Any]:
    """The sources that this user may query, with their columns and what is left to spend."""
    state = request.state
    sources = []
    for name in state.registry.open_to(request.user):
        account = state.registry.account(request.user, name)
        balance = state.ledger.balance(name, account)
        sources.append({"name": name, "account": account, "left": balance.epsilon_left,
                      "delta": balance.delta, "tables": _tables(request, name)})  # fmt: skip
    return {"sources": sources, "chosen": chosen or (sources[0]["name"] if sources else "")}


def _tables(request: Request, name: str) -> Any:
    try:
        return request.state.registry.tables(name)
    except DiscreetError as error:
        return {f"cannot be opened: {error}" if request.user.role == "owner" else "cannot be opened now": {}}


def _question(request: Request) -> dict[str, str]:
    return {name: request.text(name, "", longest=LONGEST) for name in FIELDS}


def _told(request: Request, asked: dict[str, str], error: DiscreetError) -> Reply:
    """A refused question with its reason; for programs as an HTTP error."""
    message = message_for(request.user, error)
    request.state.users.note(request.user.name, "refused", asked["source"], sql=asked["sql"][:2000], reason=message[:500])
    if request.wants == "json":
        raise Refused(status_of(error), message)
    more = {**_nothing(), "refusal": message}
    return Page(
        "console.html", {"asked": asked, **_offered(request, asked["source"])}, more, part="parts/refusal_of_question.html"
    )


def _counted(request: Request) -> None:
    wait = request.state.asked.wait(request.user.name)
    if wait > 0:
        raise Refused(429, f"Too many questions at once. Try again in {math.ceil(wait)} seconds.",
                      headers={"retry-after": str(math.ceil(wait))})  # fmt: skip
    request.state.asked.mark(request.user.name)


def _how(request: Request) -> dict[str, Any]:
    groups = request.whole("groups")
    return {
        "epsilon": request.number("epsilon"),
        "delta": request.maybe("delta"),
        **({"groups": groups} if groups is not None else {}),
    }


def explain(request: Request) -> Reply:
    """What the answer would cost and how wrong it may be; nothing is read and nothing spent."""
    _counted(request)
    asked = _question(request)
    try:
        database = request.state.registry.database(request.user, request.text("source", longest=80))
        explained = database.explain(request.text("sql", longest=LONGEST), **_how(request))
        headroom = request.state.registry.headroom(str(database.source), str(database.account), explained.event)
    except DiscreetError as error:
        return _told(request, asked, error)
    cost = {
        "epsilon": explained.epsilon, "delta": explained.delta, "errors": dict(explained.errors),
        "groups": explained.keys, "units": explained.plan, "bounding": explained.bounding,
        "account": database.account, "free": explained.free, "fits": headroom.fits or explained.free,
        "refusal": None if explained.free else headroom.refusal, "left_before": headroom.left_before,
        "left_after": headroom.left_after if headroom.fits and not explained.free else headroom.left_before,
    }  # fmt: skip
    if request.wants == "json":
        return Page("console.html", {"cost": cost})
    data = {"asked": asked, **_offered(request, asked["source"]), "cost": cost}
    return Page("console.html", data, {"answered": None, "refusal": None}, part="parts/cost.html")


def ask(request: Request) -> Reply:
    """Spend, and answer. The same question again has the same answer, and costs nothing."""
    _counted(request)
    asked = _question(request)
    try:
        database = request.state.registry.database(request.user, request.text("source", longest=80))
        if not asked["sql"]:
            raise InvalidValue("There is no question yet: write SQL.")
        release = database.sql(asked["sql"], **_how(request))
    except DiscreetError as error:
        return _told(request, asked, error)
    name, values = _keep(request, release, asked)
    request.state.users.note(request.user.name, "asked", release.source, sql=asked["sql"][:4000], entry=release.entry,
                            epsilon=asked["epsilon"], release=name)  # fmt: skip
    columns = answer.columns(values)
    balance = request.state.ledger.balance(release.source, database.account)
    answered = {"release": name, "entry": release.entry, "source": release.source, "columns": values,
                "bounding": release.facts.get("bounding", ""),
                "left": {"epsilon": balance.epsilon_left}}  # fmt: skip
    if request.wants == "json":
        return Page("console.html", {"answer": answered})
    more = {"cost": None, "refusal": None, "answered": answered, "heads": columns, "lines": answer.rows(columns),
            "picture": answer.picture(columns), "empty": answer.why_empty(release, columns)}  # fmt: skip
    return Page("console.html", {"asked": asked, **_offered(request, asked["source"])}, more, part="parts/answered.html")


def _keep(request: Request, release: Any, asked: dict[str, str]) -> tuple[str, dict[str, list[Any]]]:
    """Save the answer under the entry that paid for it: asked again, it is the same release."""
    table = release.value
    values = answer.plain(table)
    title = asked["title"][:200] or " ".join(asked["sql"].split())[:120]
    question = {"sql": asked["sql"], "epsilon": asked["epsilon"], "delta": asked["delta"], "by": request.user.name}
    facts = {**release.facts, "title": title, "question": question, "made": made("discreet serve")}
    small = sum(map(len, values.values())) <= answer.INLINE
    kept = replace(release.map(lambda _: {"columns": values}) if small else release, facts=facts)
    name = f"{plain_name(release.source)}-{str(release.entry)[:24]}"
    return request.state.store.save(name, kept, table), values


ROUTES = (
    Route("/console", console, ASKERS, work="heavy"),
    Route("/console/explain", explain, ASKERS, "POST", work="heavy"),
    Route("/console/ask", ask, ASKERS, "POST", work="heavy"),
)
