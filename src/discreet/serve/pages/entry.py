"""Login and logout, one-time links, and static files."""

from __future__ import annotations

import math
from functools import cache
from pathlib import Path
from urllib.parse import urlencode

from discreet.errors import InvalidValue
from discreet.serve.routes import ANYONE, EVERYONE, File, Go, Page, Refused, Reply, Request, Route
from discreet.serve.users import User

LONGEST_PLACE = 20_000  # characters of an address to come back to
TYPES = {
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
    ".txt": "text/plain",
}


def home(request: Request) -> Reply:
    """Redirect to the first page of this user's role."""
    if request.optional_user is None:
        return Go("/login")
    return Go({"analyst": "/console", "officer": "/releases"}.get(request.user.role, "/sources"))


def login_url(request: Request) -> str:
    """The login, and after it the page that was asked for, with what was typed into the console."""
    if request.route.method == "GET":
        place = request.url
    else:
        page = "/" + request.route.path.split("/")[1]
        typed = {name: value for name, value in request.form.items() if name != "proof" and value}
        place = f"{page}?{urlencode(typed)}" if page == "/console" and typed else page
    return f"/login?{urlencode({'next': place})}" if len(place) <= LONGEST_PLACE and _ours(place) else "/login"


def _ours(place: str) -> bool:
    """Whether an address is a page of this server: never one that leads elsewhere."""
    return (
        place.startswith("/")
        and not place.startswith(("//", "/\\"))
        and place.isascii()
        and place.isprintable()
        and not place.startswith("/login")
    )


def login_form(request: Request) -> Reply:
    return _login(request)


def _login(request: Request, name: str = "", fault: str = "", status: int = 200, headers: dict[str, str] | None = None) -> Page:
    after = request.form.get("next", "") or request.query.get("next", "")
    data = {"name": name, "fault": fault, "owner": request.state.users.has_owner(), "next": after if _ours(after) else ""}
    return Page("login.html", data, status=status, headers=headers or {})


def login(request: Request) -> Reply:
    """Log in. Attempts are counted before the password is checked, and every failure has the same message."""
    state = request.state
    name, password = request.text("name", "", longest=100), request.form.get("password", "")[:1000]
    both = f"{name} {request.address}"
    limits = ((state.by_both, both), (state.by_address, request.address), (state.by_name, name))
    wait = max(limit.wait(key) for limit, key in limits)
    if wait > 0:
        message = f"Too many failed logins. Try again in {math.ceil(wait / 60)} minutes."
        if request.wants == "json":
            raise Refused(429, message, headers={"retry-after": str(math.ceil(wait))})
        return _login(request, name, message, 429, {"retry-after": str(math.ceil(wait))})
    for limit, key in limits:
        limit.mark(key)  # before the password is looked at: many at once must not all pass the count
    user = state.users.check_password(name, password)
    if user is None:
        state.users.note(name if state.users.find(name) else "unknown", "login failed", request.address)
        if request.wants == "json":
            raise Refused(401, "No such name with this password.")
        return _login(request, name, "No such name with this password.", 401)
    state.by_both.forget(both)
    state.by_address.unmark(request.address)  # only failures count against those who share an address or a name
    state.by_name.unmark(name)
    return _enter(request, user)


def _enter(request: Request, user: User) -> Go:
    if request.session is not None:
        request.state.users.leave(request.session.key)
    session = request.state.users.enter(user)
    request.state.users.note(user.name, "login", request.address)
    after = request.form.get("next", "")
    back = _ours(after) and len(after) <= LONGEST_PLACE
    return Go(
        after if back else "/", {"name": user.name, "role": user.role}, cookies={"session": session.key}, encoded=back
    )  # fmt: skip


def logout(request: Request) -> Reply:
    if request.session is not None:
        request.state.users.leave(request.session.key)
        request.state.users.note(request.user.name, "logout")
    return Go("/login", cookies={"session": None, "form": None})


def welcome_form(request: Request) -> Reply:
    """Where a one-time link leads: choose a password."""
    good, whose = request.state.users.invited(request.path["secret"])
    if not good:
        raise Refused(404, "This link was used, is older than a day, or never was. Ask an owner for a new one.")
    return Page("welcome.html", {"name": whose, "fault": ""})


def welcome(request: Request) -> Reply:
    users, secret = request.state.users, request.path["secret"]
    wait = request.state.by_address.wait(request.address)
    if wait > 0:
        raise Refused(429, "Too many tries. Wait a few minutes.", headers={"retry-after": str(math.ceil(wait))})
    good, whose = users.invited(secret)
    if not good:
        request.state.by_address.mark(request.address)
        raise Refused(404, "This link was used, is older than a day, or never was. Ask an owner for a new one.")
    try:
        if request.form.get("password", "") != request.form.get("again", ""):
            raise InvalidValue("The two passwords are not the same.")
        user = users.join(secret, request.text("name", whose or ""), request.form.get("password", ""))
    except InvalidValue as error:
        if request.wants == "json":
            raise
        return Page("welcome.html", {"name": whose, "fault": str(error)}, status=400)
    users.note(user.name, "joined", user.role)
    return _enter(request, user)


@cache
def _files() -> dict[str, tuple[bytes, str]]:
    folder = Path(__file__).parents[1] / "static"
    return {file.name: (file.read_bytes(), TYPES[file.suffix]) for file in folder.iterdir() if file.suffix in TYPES}


def static(request: Request) -> Reply:
    """Style, script and icon: read once, so that no name leads anywhere else."""
    content = _files().get(request.path["file"])
    if content is None:
        raise Refused(404, "There is no such file.")
    return File(content[0], content[1], headers={"cache-control": "public, max-age=3600"})


def health(request: Request) -> Reply:
    """Health check: the server answers and its ledger can be read."""
    request.state.ledger.sources()
    return File(b"ok\n", "text/plain")


ROUTES = (
    Route("/", home, ANYONE, json=False),
    Route("/login", login_form, ANYONE),
    Route("/login", login, ANYONE, "POST", work="password"),
    Route("/logout", logout, EVERYONE, "POST"),
    Route("/welcome/{secret}", welcome_form, ANYONE, json=False),
    Route("/welcome/{secret}", welcome, ANYONE, "POST", work="password", json=False),
    Route("/static/{file}", static, ANYONE, json=False),
    Route("/health", health, ANYONE, json=False),
)
