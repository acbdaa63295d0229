"""Sources: budgets, what is left of them, who may spend which part; owners open, raise and share."""

from __future__ import annotations

from typing import Any

from markupsafe import Markup

from discreet.charts import burn_down
from discreet.core import Unit
from discreet.core.claim import game_from_json
from discreet.errors import InvalidValue
from discreet.figures import up
from discreet.ledger import Entry, Ledger
from discreet.ledger.history import cost_in_words, kind_in_words
from discreet.ledger.summary import ADDS_UP, shares
from discreet.serve import registry
from discreet.serve.pages.releases import exported
from discreet.serve.reports import has_pdf
from discreet.serve.routes import EVERYONE, OWNER, READERS, Go, Page, Refused, Reply, Request, Route
from discreet.serve.settings import unit_of
from discreet.serve.show import in_the_browser
from discreet.serve.store import plain_name

RECENT = 200  # entries that a picture goes back
REPORTED = 200  # releases in one report
SHOWN = 50  # entries that a page lists


def unit_in(ledger: Ledger, source: str) -> Unit:
    """The unit that a source's budget is for."""
    first = ledger.history(source)[0]
    return game_from_json({"unit": first.body["unit"], "view": ["answers"]}).unit


def _facts(request: Request, name: str) -> dict[str, Any]:
    ledger = request.state.ledger
    balance = ledger.balance(name)
    mine = request.state.registry.account(request.user, name) if name in request.state.settings.sources else None
    shown = ledger.accounts(name) if request.user.role != "analyst" else [mine] if mine is not None else []
    accounts = [registry.facts(ledger.balance(name, account)) for account in shown]
    seen = [*shown, None] if request.user.role != "analyst" else shown
    found = registry.facts(balance) | {"shares": [each.to_json() for each in shares(balance) if each.account in seen]}
    if request.user.role == "analyst":  # left is what the reader may spend, here as in the console
        theirs = accounts[0] if accounts else {"spent": None, "left": {"epsilon": 0.0}}
        found |= {"spent": theirs["spent"], "left": theirs["left"]}
    return {
        **found, "unit": str(unit_in(ledger, name)), "accounts": accounts, "may_ask": mine is not None,
        "configured": name in request.state.settings.sources,
    }  # fmt: skip


def sources(request: Request) -> Reply:
    """All budgets at a glance."""
    ledger = request.state.ledger
    names = ledger.sources()
    facts = [_facts(request, name) for name in names]
    pictures = {each["source"]: _picture(request, each) for each in facts}
    missing = sorted(set(request.state.settings.sources) - set(names))
    units = {name: str(request.state.settings.sources[name].unit) for name in missing}
    return Page("sources.html", {"sources": facts, "not_open": missing}, {"pictures": pictures, "units": units})


def _picture(request: Request, facts: dict[str, Any]) -> Markup:
    """How the budget burned down; analysts do not see what others spent."""
    ledger = request.state.ledger
    if facts["by_period"] or request.user.role == "analyst":
        return Markup()
    entries = ledger.history(facts["source"])[-RECENT:]
    return Markup(burn_down(ledger.balance(facts["source"]), entries, compact=True).svg)


def source(request: Request) -> Reply:
    """One source: its accounts and its last entries."""
    name, ledger = request.path["source"], request.state.ledger
    if name not in ledger.sources():
        raise InvalidValue(f"The ledger has no source {name[:80]!r}.")
    facts = _facts(request, name)
    entries = [_entry(each) for each in reversed(ledger.history(name)[-SHOWN:])]
    if request.user.role == "analyst":
        entries = [each for each in entries if each["account"] in (None, request.user.account)]
    users = [each.account for each in request.state.users.everyone() if each.active and each.role == "analyst"]
    accounts = sorted(set(users) | {each["account"] for each in facts["accounts"]} - {registry.DEFAULT})
    more = {"picture": _picture(request, facts), "known": accounts, "pdf": has_pdf(), "adds_up": ADDS_UP}
    return Page("source.html", {**facts, "entries": entries}, more)


def _entry(entry: Entry) -> dict[str, Any]:
    body = entry.body
    cost = [cost_in_words(entry)] if entry.kind == "reserve" else []
    parts = [*cost, *(str(body[name]) for name in ("outcome", "by", "reason") if body.get(name))]
    if "epsilon" in body:
        parts.append(f"ε {body['epsilon']:g} at δ {up(body['delta'], 6)}")
    return {
        "id": entry.id,
        "at": entry.at,
        "kind": entry.kind,
        "what": kind_in_words(entry),
        "account": body.get("account"),
        "about": in_the_browser("; ".join(parts)),
    }


def export(request: Request) -> Reply:
    """One report on all that was released from a source; of very many, the newest."""
    name, store = request.path["source"], request.state.store
    found = [store.load(card.name) for card in store.cards() if card.source == name and card.fault is None][:REPORTED]
    if not found:
        raise Refused(404, f"Nothing was released from {name[:80]!r} yet.")
    return exported(request, found, plain_name(name), f"All releases of {name}")


def open_source(request: Request) -> Reply:
    """Give a source its budget."""
    name, reason = request.text("source", longest=80), request.text("reason", longest=500)
    known = request.state.settings.sources.get(name)
    unit = known.unit if known else unit_of("The budget", request.text("unit", "record", longest=80), _rows(request))
    epsilon, delta = request.number("epsilon"), request.number("delta")
    request.state.ledger.open(name, unit=unit, epsilon=epsilon, delta=delta, failure=request.maybe("failure"))
    request.state.users.note(request.user.name, "opened", name, epsilon=epsilon, delta=delta, unit=str(unit), reason=reason)
    return Go(f"/sources/{name}", {"source": name})


def _rows(request: Request) -> Any:
    return "any" if request.text("rows", "", longest=20) == "any" else request.whole("rows")


def raise_source(request: Request) -> Reply:
    """Grant a larger budget, in the open."""
    name, reason = request.path["source"], request.text("reason", longest=500)
    epsilon, delta = request.number("epsilon"), request.number("delta")
    request.state.ledger.raise_budget(name, epsilon=epsilon, delta=delta, by=request.user.name, reason=reason)
    request.state.users.note(request.user.name, "raised", name, epsilon=epsilon, delta=delta, reason=reason)
    return Go(f"/sources/{name}", {"source": name})


def share_source(request: Request) -> Reply:
    """Give an account a part of the budget."""
    name, account = request.path["source"], request.text("account", longest=80)
    part = request.number("percent") / 100
    request.state.ledger.share(name, account, part, by=request.user.name)
    request.state.users.note(request.user.name, "shared", name, account=account, part=part)
    return Go(f"/sources/{name}", {"source": name})


ROUTES = (  # a source may have a slash in its name
    Route("/sources", sources, EVERYONE),
    Route("/sources", open_source, OWNER, "POST"),
    Route("/sources/{source:path}/export/{kind}", export, READERS, work="heavy", json=False),
    Route("/sources/{source:path}/raise", raise_source, OWNER, "POST"),
    Route("/sources/{source:path}/share", share_source, OWNER, "POST"),
    Route("/sources/{source:path}", source, EVERYONE),
)
