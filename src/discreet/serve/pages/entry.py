"""Coming in and going out: the login, one-time links, and the files that every page needs."""

from __future__ import annotations

import math
from functools import cache
from pathlib import Path

from discreet.errors import InvalidValue
from discreet.serve.doors import ANYONE, EVERYONE, Door, File, Go, Page, Refused, Reply, Visit
from discreet.serve.people import Person

TYPES = {
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
    ".txt": "text/plain",
}


def home(visit: Visit) -> Reply:
    """To the page that this visitor came for."""
    if visit.someone is None:
        return Go("/login")
    return Go("/console" if visit.person.role == "analyst" else "/sources")


def login_form(visit: Visit) -> Reply:
    return _login(visit)


def _login(visit: Visit, name: str = "", fault: str = "", status: int = 200, headers: dict[str, str] | None = None) -> Page:
    data = {"name": name, "fault": fault, "owner": visit.house.people.has_owner()}
    return Page("login.html", data, status=status, headers=headers or {})


def login(visit: Visit) -> Reply:
    """A name and a password. Failures are counted before the password is looked at, and all sound the same."""
    house = visit.house
    name, password = visit.text("name", "", longest=100), visit.form.get("password", "")[:1000]
    both = f"{name} {visit.address}"
    limits = ((house.by_both, both), (house.by_address, visit.address), (house.by_name, name))
    wait = max(limit.wait(key) for limit, key in limits)
    if wait > 0:
        told = f"Too many failed logins. Try again in {math.ceil(wait / 60)} minutes."
        if visit.wants == "json":
            raise Refused(429, told, headers={"retry-after": str(math.ceil(wait))})
        return _login(visit, name, told, 429, {"retry-after": str(math.ceil(wait))})
    for limit, key in limits:
        limit.mark(key)  # before the password is looked at: many at once must not all pass the count
    person = house.people.check_password(name, password)
    if person is None:
        house.people.note(name if house.people.find(name) else "unknown", "login failed", visit.address)
        if visit.wants == "json":
            raise Refused(401, "No such name with this password.")
        return _login(visit, name, "No such name with this password.", 401)
    house.by_both.forget(both)
    return _enter(visit, person)


def _enter(visit: Visit, person: Person) -> Go:
    if visit.session is not None:
        visit.house.people.leave(visit.session.key)
    session = visit.house.people.enter(person)
    visit.house.people.note(person.name, "login", visit.address)
    return Go("/", {"name": person.name, "role": person.role}, cookies={"session": session.key})


def logout(visit: Visit) -> Reply:
    if visit.session is not None:
        visit.house.people.leave(visit.session.key)
        visit.house.people.note(visit.person.name, "logout")
    return Go("/login", cookies={"session": None, "form": None})


def welcome_form(visit: Visit) -> Reply:
    """Where a one-time link leads: choose a password."""
    good, whose = visit.house.people.invited(visit.path["secret"])
    if not good:
        raise Refused(404, "This link was used, is older than a day, or never was. Ask an owner for a new one.")
    return Page("welcome.html", {"name": whose, "fault": ""})


def welcome(visit: Visit) -> Reply:
    people, secret = visit.house.people, visit.path["secret"]
    wait = visit.house.by_address.wait(visit.address)
    if wait > 0:
        raise Refused(429, "Too many tries. Wait a few minutes.", headers={"retry-after": str(math.ceil(wait))})
    good, whose = people.invited(secret)
    if not good:
        visit.house.by_address.mark(visit.address)
        raise Refused(404, "This link was used, is older than a day, or never was. Ask an owner for a new one.")
    try:
        if visit.form.get("password", "") != visit.form.get("again", ""):
            raise InvalidValue("The two passwords are not the same.")
        person = people.join(secret, visit.text("name", whose or ""), visit.form.get("password", ""))
    except InvalidValue as error:
        if visit.wants == "json":
            raise
        return Page("welcome.html", {"name": whose, "fault": str(error)}, status=400)
    people.note(person.name, "joined", person.role)
    return _enter(visit, person)


@cache
def _files() -> dict[str, tuple[bytes, str]]:
    folder = Path(__file__).parents[1] / "static"
    return {file.name: (file.read_bytes(), TYPES[file.suffix]) for file in folder.iterdir() if file.suffix in TYPES}


def static(visit: Visit) -> Reply:
    """Style, script and icon: read once, so that no name leads anywhere else."""
    found = _files().get(visit.path["file"])
    if found is None:
        raise Refused(404, "There is no such file.")
    return File(found[0], found[1], headers={"cache-control": "public, max-age=3600"})


def health(visit: Visit) -> Reply:
    """For those who watch the server: it answers, and its ledger can be read."""
    visit.house.ledger.sources()
    return File(b"ok\n", "text/plain")


DOORS = (
    Door("/", home, ANYONE, json=False),
    Door("/login", login_form, ANYONE),
    Door("/login", login, ANYONE, "POST", work="password"),
    Door("/logout", logout, EVERYONE, "POST"),
    Door("/welcome/{secret}", welcome_form, ANYONE, json=False),
    Door("/welcome/{secret}", welcome, ANYONE, "POST", work="password", json=False),
    Door("/static/{file}", static, ANYONE, json=False),
    Door("/health", health, ANYONE, json=False),
)
