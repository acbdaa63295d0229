"""The user's own page: password, and tokens for programs."""

from __future__ import annotations

import math

from discreet.errors import InvalidValue
from discreet.serve.routes import EVERYONE, Go, Page, Refused, Reply, Request, Route, number_in


def me(request: Request) -> Reply:
    data = {"person": request.user.to_json(), "tokens": request.state.users.tokens(request.user.name)}
    return Page("me.html", data, {"secret": None})


def password(request: Request) -> Reply:
    name = request.user.name
    limit = request.state.by_both
    if wait := limit.wait(f"{name} password"):
        raise Refused(
            429, f"Too many tries. Wait {math.ceil(wait / 60)} minutes.", headers={"retry-after": str(math.ceil(wait))}
        )
    new = request.form.get("new", "")
    if new != request.form.get("again", ""):
        raise InvalidValue("The two new passwords are not the same.")
    limit.mark(f"{name} password")
    request.state.users.set_password(
        name, request.form.get("old", ""), new, keep=request.session.key if request.session else None
    )
    limit.forget(f"{name} password")
    request.state.users.note(name, "new password")
    return Go("/me", {"changed": True})


def new_token(request: Request) -> Reply:
    """Create a token, shown once. A token cannot create another, so a stolen one cannot outlive its withdrawal."""
    if request.session is None:
        raise Refused(403, "Tokens are made in the browser, not with a token.")
    label = request.text("label", longest=80)
    secret = request.state.users.new_token(request.user, label, request.maybe("days"))
    request.state.users.note(request.user.name, "new token", label)
    data = {"person": request.user.to_json(), "tokens": request.state.users.tokens(request.user.name), "secret": secret}
    return Page("me.html", data, part="parts/secret.html")


def end_token(request: Request) -> Reply:
    number = number_in(request.path["number"])
    if number is None:
        raise InvalidValue("There is no such token.")
    request.state.users.end_token(request.user.name, number)
    request.state.users.note(request.user.name, "withdrew token", str(number))
    return Go("/me", {"withdrawn": number})


ROUTES = (
    Route("/me", me, EVERYONE),
    Route("/me/password", password, EVERYONE, "POST", work="password"),
    Route("/me/tokens", new_token, EVERYONE, "POST"),
    Route("/me/tokens/{number}/end", end_token, EVERYONE, "POST"),
)
