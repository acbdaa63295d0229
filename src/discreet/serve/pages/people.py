"""People: owners let others in, change what they are, and let them out."""

from __future__ import annotations

from discreet.errors import InvalidValue
from discreet.serve.desk import DEFAULT
from discreet.serve.doors import OWNER, Door, Go, Page, Reply, Visit
from discreet.serve.people import ROLES, Person


def people(visit: Visit) -> Reply:
    return Page(
        "people.html", {"people": [each.to_json() for each in visit.house.people.everyone()]}, {"roles": ROLES, "link": None}
    )


def _with_link(visit: Visit, name: str, secret: str) -> Reply:
    """The one-time link, told once: it is not kept anywhere."""
    found = [each.to_json() for each in visit.house.people.everyone()]
    data = {"people": found, "link": {"name": name, "path": f"/welcome/{secret}"}}
    return Page("people.html", data, {"roles": ROLES}, part="parts/link.html")


def invite(visit: Visit) -> Reply:
    name, role = visit.text("name", longest=80), visit.text("role", longest=20)
    account = visit.text("account", DEFAULT if role == "owner" else name, longest=80)
    if account == DEFAULT and role != "owner":
        raise InvalidValue("The account default is what nobody was given; only owners spend from it.")
    secret = visit.house.people.invite(name, role, account=account)
    visit.house.people.note(visit.person.name, "invited", name, role=role, account=account)
    return _with_link(visit, name, secret)


def _other(visit: Visit) -> Person:
    found = visit.house.people.find(visit.path["name"])
    if found is None:
        raise InvalidValue(f"There is no person {visit.path['name'][:80]!r}.")
    return found


def change(visit: Visit) -> Reply:
    """Another role or account."""
    old = _other(visit)
    role = visit.text("role", old.role, longest=20)
    account = visit.text("account", old.account, longest=80)
    if account == DEFAULT and role != "owner":
        account = old.name
    new = visit.house.people.change(old.name, role=role, account=account)
    visit.house.people.note(visit.person.name, "changed", new.name, role=new.role, account=new.account)
    return Go("/people", new.to_json())


def turn(visit: Visit) -> Reply:
    """Out, or in again."""
    old = _other(visit)
    new = visit.house.people.change(old.name, active=not old.active)
    visit.house.people.note(visit.person.name, "let in" if new.active else "let out", new.name)
    return Go("/people", new.to_json())


def reset(visit: Visit) -> Reply:
    """A new link for someone who lost the password."""
    old = _other(visit)
    secret = visit.house.people.reset(old.name)
    visit.house.people.note(visit.person.name, "reset", old.name)
    return _with_link(visit, old.name, secret)


DOORS = (
    Door("/people", people, OWNER),
    Door("/people", invite, OWNER, "POST"),
    Door("/people/{name}", change, OWNER, "POST"),
    Door("/people/{name}/turn", turn, OWNER, "POST"),
    Door("/people/{name}/reset", reset, OWNER, "POST"),
)
