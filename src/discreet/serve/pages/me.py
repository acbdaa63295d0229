"""Oneself: the password, and tokens for programs."""

from __future__ import annotations

import math

from discreet.errors import InvalidValue
from discreet.serve.doors import EVERYONE, Door, Go, Page, Refused, Reply, Visit


def me(visit: Visit) -> Reply:
    data = {"person": visit.person.to_json(), "tokens": visit.house.people.tokens(visit.person.name)}
    return Page("me.html", data, {"secret": None})


def password(visit: Visit) -> Reply:
    name = visit.person.name
    limit = visit.house.by_both
    if wait := limit.wait(f"{name} password"):
        raise Refused(
            429, f"Too many tries. Wait {math.ceil(wait / 60)} minutes.", headers={"retry-after": str(math.ceil(wait))}
        )
    new = visit.form.get("new", "")
    if new != visit.form.get("again", ""):
        raise InvalidValue("The two new passwords are not the same.")
    limit.mark(f"{name} password")
    visit.house.people.set_password(name, visit.form.get("old", ""), new, keep=visit.session.key if visit.session else None)
    limit.forget(f"{name} password")
    visit.house.people.note(name, "new password")
    return Go("/me", {"changed": True})


def new_token(visit: Visit) -> Reply:
    """A token, told once. One token cannot make another: whoever finds one should not be able to stay."""
    if visit.session is None:
        raise Refused(403, "Tokens are made in the browser, not with a token.")
    label = visit.text("label", longest=80)
    secret = visit.house.people.new_token(visit.person, label, visit.maybe("days"))
    visit.house.people.note(visit.person.name, "new token", label)
    data = {"person": visit.person.to_json(), "tokens": visit.house.people.tokens(visit.person.name), "secret": secret}
    return Page("me.html", data, part="parts/secret.html")


def end_token(visit: Visit) -> Reply:
    number = visit.path["number"]
    if not number.isdecimal() or len(number) > 9:
        raise InvalidValue("There is no such token.")
    visit.house.people.end_token(visit.person.name, int(number))
    visit.house.people.note(visit.person.name, "withdrew token", number)
    return Go("/me", {"withdrawn": int(number)})


DOORS = (
    Door("/me", me, EVERYONE),
    Door("/me/password", password, EVERYONE, "POST", work="password"),
    Door("/me/tokens", new_token, EVERYONE, "POST"),
    Door("/me/tokens/{number}/end", end_token, EVERYONE, "POST"),
)
