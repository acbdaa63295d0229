"""Routes: every address of the server, the roles that may use it, and the page behind it.

A page is a plain function of a request. Authentication, roles and the check against forged forms are the same for all routes,
and come before the page.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from discreet.core import check
from discreet.errors import BudgetExceeded, DiscreetError, EngineFailed, InvalidValue, LedgerError
from discreet.serve.show import in_the_browser
from discreet.serve.users import Session, User

if TYPE_CHECKING:
    from discreet.serve.state import AppState

ANYONE: frozenset[str] = frozenset()
EVERYONE = frozenset({"owner", "analyst", "officer"})
OWNER = frozenset({"owner"})
READERS = frozenset({"owner", "officer"})
ASKERS = frozenset({"owner", "analyst"})


@dataclass(frozen=True, slots=True)
class Request:
    """What a page needs of an HTTP request."""

    state: AppState
    route: Route
    wants: str  # "html", "part" (of a page, for htmx) or "json"
    path: Mapping[str, str]
    query: Mapping[str, str]
    form: Mapping[str, str]
    address: str
    session: Session | None = None
    bearer: User | None = None
    cookies: Mapping[str, str] = field(default_factory=dict)
    at: str = "/"
    url: str = "/"  # path and query, to come back to after a login
    origin: str = ""  # scheme and host that the browser used, for links that are sent to somebody

    @property
    def user(self) -> User:
        """Who sent it; only for routes that need a role."""
        user = self.optional_user
        assert user is not None
        return user

    @property
    def optional_user(self) -> User | None:
        return self.session.user if self.session else self.bearer

    def text(self, name: str, default: str | None = None, *, longest: int = 20_000) -> str:
        """A field of the form, without the space around it."""
        value = self.form.get(name, "").strip()
        if not value and default is None:
            raise InvalidValue(f"{name} is missing; fill it in.")
        if len(value) > longest:
            raise InvalidValue(f"{name} has {len(value)} characters; it may have {longest}.")
        return value or (default or "")

    def number(self, name: str) -> float:
        """A number from the form."""
        value = self.text(name)
        try:
            number = float(value)
        except ValueError:
            number = math.nan
        if not math.isfinite(number):
            raise InvalidValue(f"{name} must be a number; got {value[:40]!r}.")
        return number

    def maybe(self, name: str) -> float | None:
        """A number from the form, or None where the field was left empty."""
        return self.number(name) if self.text(name, "") else None

    def whole(self, name: str) -> int | None:
        """A whole number from the form, or None where the field was left empty."""
        value = self.maybe(name)
        if value is not None and (abs(value) > 10**15 or value != int(value)):
            raise InvalidValue(f"{name} must be a whole number; got {value:g}.")
        return None if value is None else int(value)


@dataclass(frozen=True, slots=True)
class Page:
    """A page: `data` is what its .json says; `more` is for the template alone. `part` is the template for htmx."""

    template: str
    data: Mapping[str, Any]
    more: Mapping[str, Any] = field(default_factory=dict)
    part: str | None = None
    status: int = 200
    cookies: Mapping[str, str | None] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Go:
    """After a form: look at another page."""

    to: str
    data: Mapping[str, Any] = field(default_factory=dict)
    cookies: Mapping[str, str | None] = field(default_factory=dict)
    encoded: bool = False  # an address as a browser sent it, with its query


@dataclass(frozen=True, slots=True)
class File:
    """Bytes of some type, shown or (with a name) saved."""

    body: bytes
    type: str
    name: str | None = None
    headers: Mapping[str, str] = field(default_factory=dict)


Reply = Page | Go | File


@dataclass(frozen=True, slots=True)
class Route:
    """An address and the roles that may use it. `work` names the queue in which the page waits: light, heavy or password."""

    path: str
    page: Callable[[Request], Reply]
    roles: frozenset[str]
    method: str = "GET"
    work: str = "light"
    json: bool = True


class Refused(Exception):
    """A request that is refused, with an HTTP status and a sentence."""

    def __init__(
        self, status: int, message: str, *, headers: Mapping[str, str] | None = None, request: Request | None = None
    ) -> None:
        super().__init__(message)
        self.status, self.message, self.headers, self.request = status, message, dict(headers or {}), request


def status_of(error: DiscreetError) -> int:
    """What an error of ours is in HTTP."""
    known = ((BudgetExceeded, 409), (EngineFailed, 502), (LedgerError, 503))
    return next((status for kind, status in known if isinstance(error, kind)), 400)


def message_for(user: User | None, error: DiscreetError) -> str:
    """The message of an error for this user: only owners see faults of the ledger's file."""
    if isinstance(error, LedgerError) and (user is None or user.role != "owner"):
        return "The ledger cannot be used now, so nothing was done; an owner sees why."
    return in_the_browser(str(error))


def fields(kind: str, body: bytes) -> dict[str, str]:
    """The fields of a form, or the members of a flat JSON object, as text."""
    from urllib.parse import parse_qsl

    if not body:
        return {}
    try:
        if kind == "application/json":
            members = json.loads(body)
            if not isinstance(members, dict) or not all(
                isinstance(v, (str, int, float, bool, type(None))) for v in members.values()
            ):
                raise Refused(400, "The body must be a flat JSON object: names with texts, numbers, true, false or null.")
            return _readable({str(name): _text(value) for name, value in members.items()})
        if kind in ("application/x-www-form-urlencoded", ""):
            pairs = parse_qsl(body.decode("utf-8"), keep_blank_values=True, max_num_fields=100, strict_parsing=False)
            return _readable(dict(pairs))
    except (ValueError, RecursionError):
        raise Refused(400, "The body cannot be read.") from None
    raise Refused(415, "Send a form (application/x-www-form-urlencoded) or JSON (application/json).")


def _readable(members: dict[str, str]) -> dict[str, str]:
    """Fields without characters that no document can hold: refused here, before anything is done or spent."""
    for name, value in members.items():
        try:
            f"{name}{value}".encode()
        except UnicodeEncodeError:
            message = f"The field {check.shown(name)} holds half a character (a lone surrogate). Nothing was done."
            raise Refused(400, message) from None
    return members


def number_in(text: str, *, least: int = 1, most: int = 10**9) -> int | None:
    """A whole number from an address, or None where it is none within reason."""
    good = text.isascii() and text.isdecimal() and len(text) <= 18
    return int(text) if good and least <= int(text) <= most else None


def _text(value: Any) -> str:
    return "" if value is None else "yes" if value is True else "" if value is False else str(value)
