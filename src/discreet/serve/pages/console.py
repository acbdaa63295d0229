"""The console: a question in SQL, its cost and error before anything is spent, then its answer, kept as a release."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

from discreet.core.facts import made
from discreet.errors import DiscreetError, InvalidValue
from discreet.serve import answer
from discreet.serve.doors import ASKERS, Door, Page, Refused, Reply, Visit, status_of, told_to
from discreet.serve.shelf import plain_name

FIELDS = ("source", "sql", "epsilon", "delta", "groups", "title")
LONGEST = 10_000  # characters of a question


def console(visit: Visit) -> Reply:
    """The form; its fields may be in the address, so that a question can be sent to somebody."""
    asked = {name: visit.query.get(name, "")[:LONGEST] for name in FIELDS}
    return Page("console.html", {"asked": asked, **_offered(visit, asked["source"])}, _nothing())


def _nothing() -> dict[str, Any]:
    return {"cost": None, "answered": None, "refusal": None}


def _offered(visit: Visit, chosen: str) -> dict[str, Any]:
    """The sources this person may ask, with their columns and what is left to spend."""
    house = visit.house
    found = []
    for name in house.desk.open_to(visit.person):
        account = house.desk.account(visit.person, name)
        balance = house.ledger.balance(name, account)
        found.append({"name": name, "account": account, "left": balance.epsilon_left, "part": 1 - min(1.0, _spent(balance)),
                      "delta": balance.delta, "tables": _tables(visit, name)})  # fmt: skip
    return {"sources": found, "chosen": chosen or (found[0]["name"] if found else "")}


def _spent(balance: Any) -> float:
    return float(max(balance.part_spent, balance.whole.part_spent if balance.whole is not None else 0.0))


def _tables(visit: Visit, name: str) -> Any:
    try:
        return visit.house.desk.tables(name)
    except DiscreetError as error:
        return {f"cannot be opened: {error}" if visit.person.role == "owner" else "cannot be opened now": {}}


def _question(visit: Visit) -> dict[str, str]:
    return {name: visit.text(name, "", longest=LONGEST) for name in FIELDS}


def _told(visit: Visit, asked: dict[str, str], error: DiscreetError) -> Reply:
    """A question that was refused, and why; for programs with the status that says so."""
    told = told_to(visit.person, error)
    visit.house.people.note(visit.person.name, "refused", asked["source"], sql=asked["sql"][:2000], reason=told[:500])
    if visit.wants == "json":
        raise Refused(status_of(error), told)
    more = {**_nothing(), "refusal": told}
    return Page(
        "console.html", {"asked": asked, **_offered(visit, asked["source"])}, more, part="parts/refusal_of_question.html"
    )


def _counted(visit: Visit) -> None:
    wait = visit.house.asked.wait(visit.person.name)
    if wait > 0:
        raise Refused(429, f"Too many questions at once. Try again in {math.ceil(wait)} seconds.",
                      headers={"retry-after": str(math.ceil(wait))})  # fmt: skip
    visit.house.asked.mark(visit.person.name)


def _how(visit: Visit) -> dict[str, Any]:
    groups = visit.whole("groups")
    return {
        "epsilon": visit.number("epsilon"),
        "delta": visit.maybe("delta"),
        **({"groups": groups} if groups is not None else {}),
    }


def explain(visit: Visit) -> Reply:
    """What the answer would cost and how wrong it may be; nothing is read and nothing spent."""
    _counted(visit)
    asked = _question(visit)
    try:
        database = visit.house.desk.database(visit.person, visit.text("source", longest=80))
        told = database.explain(visit.text("sql", longest=LONGEST), **_how(visit))
        room = visit.house.desk.room(str(database.source), str(database.account), told.event)
    except DiscreetError as error:
        return _told(visit, asked, error)
    cost = {
        "epsilon": told.epsilon, "delta": told.delta, "errors": dict(told.errors), "groups": told.keys, "units": told.plan,
        "account": database.account, "fits": room.fits, "refusal": room.refusal,
        "left_before": room.left_before, "left_after": room.left_after if room.fits else room.left_before,
    }  # fmt: skip
    if visit.wants == "json":
        return Page("console.html", {"cost": cost})
    data = {"asked": asked, **_offered(visit, asked["source"]), "cost": cost}
    return Page("console.html", data, {"answered": None, "refusal": None}, part="parts/cost.html")


def ask(visit: Visit) -> Reply:
    """Spend, and answer. The same question again has the same answer, and costs nothing."""
    _counted(visit)
    asked = _question(visit)
    try:
        database = visit.house.desk.database(visit.person, visit.text("source", longest=80))
        if not asked["sql"]:
            raise InvalidValue("There is no question yet: write SQL.")
        release = database.sql(asked["sql"], **_how(visit))
    except DiscreetError as error:
        return _told(visit, asked, error)
    name, found = _keep(visit, release, asked)
    visit.house.people.note(visit.person.name, "asked", release.source, sql=asked["sql"][:4000], entry=release.entry,
                            epsilon=asked["epsilon"], release=name)  # fmt: skip
    columns = answer.columns(found)
    balance = visit.house.ledger.balance(release.source, database.account)
    answered = {"release": name, "entry": release.entry, "source": release.source, "columns": found,
                "left": {"epsilon": balance.epsilon_left, "part": 1 - _spent(balance)}}  # fmt: skip
    if visit.wants == "json":
        return Page("console.html", {"answer": answered})
    more = {"cost": None, "refusal": None, "answered": answered, "heads": columns, "lines": answer.rows(columns),
            "picture": answer.picture(columns)}  # fmt: skip
    return Page("console.html", {"asked": asked, **_offered(visit, asked["source"])}, more, part="parts/answered.html")


def _keep(visit: Visit, release: Any, asked: dict[str, str]) -> tuple[str, dict[str, list[Any]]]:
    """Save the answer under the entry that paid for it: asked again, it is the same release."""
    table = release.value
    found = answer.plain(table)
    title = asked["title"][:200] or " ".join(asked["sql"].split())[:120]
    question = {"sql": asked["sql"], "epsilon": asked["epsilon"], "delta": asked["delta"], "by": visit.person.name}
    facts = {**release.facts, "title": title, "question": question, "made": made("discreet serve")}
    small = sum(map(len, found.values())) <= answer.INLINE
    kept = replace(release.map(lambda _: {"columns": found}) if small else release, facts=facts)
    name = f"{plain_name(release.source)}-{str(release.entry)[:24]}"
    return visit.house.shelf.save(name, kept, table), found


DOORS = (
    Door("/console", console, ASKERS, work="heavy"),
    Door("/console/explain", explain, ASKERS, "POST", work="heavy"),
    Door("/console/ask", ask, ASKERS, "POST", work="heavy"),
)
