"""Sources: budgets, what is left of them, who may spend which part; owners open, raise and share."""

from __future__ import annotations

from typing import Any

from markupsafe import Markup

from discreet.charts import burn_down
from discreet.core import Unit
from discreet.core.claim import game_from_json
from discreet.errors import InvalidValue
from discreet.ledger import Entry, Ledger
from discreet.serve import desk
from discreet.serve.doors import EVERYONE, OWNER, READERS, Door, Go, Page, Refused, Reply, Visit
from discreet.serve.pages.releases import exported
from discreet.serve.reports import has_pdf
from discreet.serve.settings import unit_of
from discreet.serve.shelf import plain_name

RECENT = 200  # entries that a picture goes back
REPORTED = 200  # releases in one report
SHOWN = 50  # entries that a page lists


def unit_in(ledger: Ledger, source: str) -> Unit:
    """The unit that a source's budget is for."""
    first = ledger.history(source)[0]
    return game_from_json({"unit": first.body["unit"], "view": ["answers"]}).unit


def _facts(visit: Visit, name: str) -> dict[str, Any]:
    ledger = visit.house.ledger
    found = ledger.balance(name)
    mine = visit.house.desk.account(visit.person, name) if name in visit.house.settings.sources else None
    shown = ledger.accounts(name) if visit.person.role != "analyst" else [mine] if mine is not None else []
    accounts = [desk.facts(ledger.balance(name, account)) for account in shown]
    return {
        **desk.facts(found), "unit": str(unit_in(ledger, name)), "accounts": accounts, "may_ask": mine is not None,
        "configured": name in visit.house.settings.sources,
    }  # fmt: skip


def sources(visit: Visit) -> Reply:
    """All budgets at a glance."""
    ledger = visit.house.ledger
    names = ledger.sources()
    found = [_facts(visit, name) for name in names]
    pictures = {each["source"]: _picture(ledger, each) for each in found}
    missing = sorted(set(visit.house.settings.sources) - set(names))
    units = {name: str(visit.house.settings.sources[name].unit) for name in missing}
    return Page("sources.html", {"sources": found, "not_open": missing}, {"pictures": pictures, "units": units})


def _picture(ledger: Ledger, found: dict[str, Any]) -> Markup:
    if found["by_period"]:
        return Markup()
    entries = ledger.history(found["source"])[-RECENT:]
    return Markup(burn_down(ledger.balance(found["source"]), entries, compact=True).svg)


def source(visit: Visit) -> Reply:
    """One source: its accounts and its last entries."""
    name, ledger = visit.path["source"], visit.house.ledger
    if name not in ledger.sources():
        raise InvalidValue(f"The ledger has no source {name[:80]!r}.")
    found = _facts(visit, name)
    entries = [_entry(each) for each in reversed(ledger.history(name)[-SHOWN:])]
    if visit.person.role == "analyst":
        entries = [each for each in entries if each["account"] in (None, visit.person.account)]
    people = [each.account for each in visit.house.people.everyone() if each.active and each.role == "analyst"]
    accounts = sorted(set(people) | {each["account"] for each in found["accounts"]} - {desk.DEFAULT})
    return Page(
        "source.html", {**found, "entries": entries}, {"picture": _picture(ledger, found), "known": accounts, "pdf": has_pdf()}
    )


def _entry(entry: Entry) -> dict[str, Any]:
    body = entry.body
    kinds = [str(claim["event"]["kind"]) for claim in body.get("claims", [])]
    told = [*kinds, *(str(body[name]) for name in ("outcome", "by", "reason") if body.get(name))]
    if "epsilon" in body:
        told.append(f"ε {body['epsilon']:g} at δ {body['delta']:g}")
    return {"id": entry.id, "at": entry.at, "kind": entry.kind, "account": body.get("account"), "about": "; ".join(told)}


def export(visit: Visit) -> Reply:
    """One report on all that was released from a source; of very many, the newest."""
    name, shelf = visit.path["source"], visit.house.shelf
    found = [shelf.load(card.name) for card in shelf.cards() if card.source == name and card.fault is None][:REPORTED]
    if not found:
        raise Refused(404, f"Nothing was released from {name[:80]!r} yet.")
    return exported(visit, found, plain_name(name), f"All releases of {name}")


def open_source(visit: Visit) -> Reply:
    """Give a source its budget."""
    name, reason = visit.text("source", longest=80), visit.text("reason", longest=500)
    known = visit.house.settings.sources.get(name)
    unit = known.unit if known else unit_of("The budget", visit.text("unit", "record", longest=80), _rows(visit))
    epsilon, delta = visit.number("epsilon"), visit.number("delta")
    visit.house.ledger.open(name, unit=unit, epsilon=epsilon, delta=delta, failure=visit.maybe("failure"))
    visit.house.people.note(visit.person.name, "opened", name, epsilon=epsilon, delta=delta, unit=str(unit), reason=reason)
    return Go(f"/sources/{name}", {"source": name})


def _rows(visit: Visit) -> Any:
    return "any" if visit.text("rows", "", longest=20) == "any" else visit.whole("rows")


def raise_source(visit: Visit) -> Reply:
    """Grant a larger budget, in the open."""
    name, reason = visit.path["source"], visit.text("reason", longest=500)
    epsilon, delta = visit.number("epsilon"), visit.number("delta")
    visit.house.ledger.raise_budget(name, epsilon=epsilon, delta=delta, by=visit.person.name, reason=reason)
    visit.house.people.note(visit.person.name, "raised", name, epsilon=epsilon, delta=delta, reason=reason)
    return Go(f"/sources/{name}", {"source": name})


def share_source(visit: Visit) -> Reply:
    """Give an account a part of the budget."""
    name, account = visit.path["source"], visit.text("account", longest=80)
    part = visit.number("percent") / 100
    visit.house.ledger.share(name, account, part, by=visit.person.name)
    visit.house.people.note(visit.person.name, "shared", name, account=account, part=part)
    return Go(f"/sources/{name}", {"source": name})


DOORS = (
    Door("/sources", sources, EVERYONE),
    Door("/sources", open_source, OWNER, "POST"),
    Door("/sources/{source}", source, EVERYONE),
    Door("/sources/{source}/export/{kind}", export, READERS, work="heavy", json=False),
    Door("/sources/{source}/raise", raise_source, OWNER, "POST"),
    Door("/sources/{source}/share", share_source, OWNER, "POST"),
)
