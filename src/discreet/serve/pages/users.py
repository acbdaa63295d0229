"""Users: owners invite them, change their role and account, and deactivate them."""

from __future__ import annotations

from discreet.errors import InvalidValue
from discreet.serve.registry import DEFAULT
from discreet.serve.routes import OWNER, Go, Page, Reply, Request, Route
from discreet.serve.users import ROLES, User


def users(request: Request) -> Reply:
    return Page(
        "users.html", {"users": [each.to_json() for each in request.state.users.everyone()]}, {"roles": ROLES, "link": None}
    )


def _with_link(request: Request, name: str, secret: str) -> Reply:
    """Show a one-time link; its secret is not stored."""
    found = [each.to_json() for each in request.state.users.everyone()]
    data = {"users": found, "link": {"name": name, "path": f"/welcome/{secret}", "url": f"{request.origin}/welcome/{secret}"}}
    return Page("users.html", data, {"roles": ROLES}, part="parts/link.html")


def invite(request: Request) -> Reply:
    name, role = request.text("name", longest=80), request.text("role", longest=20)
    account = request.text("account", DEFAULT if role == "owner" else name, longest=80)
    if account == DEFAULT and role != "owner":
        raise InvalidValue("The account default is what nobody was given; only owners spend from it.")
    secret = request.state.users.invite(name, role, account=account)
    request.state.users.note(request.user.name, "invited", name, role=role, account=account)
    return _with_link(request, name, secret)


def _other(request: Request) -> User:
    found = request.state.users.find(request.path["name"])
    if found is None:
        raise InvalidValue(f"There is no person {request.path['name'][:80]!r}.")
    return found


def change(request: Request) -> Reply:
    """Change role or account."""
    old = _other(request)
    role = request.text("role", old.role, longest=20)
    account = request.text("account", old.account, longest=80)
    if account == DEFAULT and role != "owner":
        account = old.name
    new = request.state.users.change(old.name, role=role, account=account)
    request.state.users.note(request.user.name, "changed", new.name, role=new.role, account=new.account)
    return Go("/users", new.to_json())


def turn(request: Request) -> Reply:
    """Deactivate a user, or activate them again."""
    old = _other(request)
    new = request.state.users.change(old.name, active=not old.active)
    request.state.users.note(request.user.name, "activated" if new.active else "deactivated", new.name)
    return Go("/users", new.to_json())


def reset(request: Request) -> Reply:
    """A new link for someone who lost the password."""
    old = _other(request)
    secret = request.state.users.reset(old.name)
    request.state.users.note(request.user.name, "reset", old.name)
    return _with_link(request, old.name, secret)


ROUTES = (
    Route("/users", users, OWNER),
    Route("/users", invite, OWNER, "POST"),
    Route("/users/{name}", change, OWNER, "POST"),
    Route("/users/{name}/turn", turn, OWNER, "POST"),
    Route("/users/{name}/reset", reset, OWNER, "POST"),
)
