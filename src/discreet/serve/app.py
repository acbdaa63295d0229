"""The ASGI application: the routes, one guard that admits every request, and the headers of every response."""

from __future__ import annotations

import hmac
import json
import logging
import math
import traceback
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

import anyio
import anyio.to_thread
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.requests import Request as HTTPRequest
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route as HTTPRoute
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from discreet import __version__
from discreet.errors import DiscreetError
from discreet.serve.pages import ROUTES
from discreet.serve.pages.entry import login_url
from discreet.serve.routes import File, Go, Page, Refused, Reply, Request, Route, fields, message_for, number_in, status_of
from discreet.serve.show import FILTERS
from discreet.serve.state import AppState

LARGEST_BODY = 64 * 1024
BODY_WITHIN = 10.0  # seconds in which a body must have come
AT_ONCE = {"light": 16, "heavy": 16, "password": 2}
WAITING = {"light": 2000, "heavy": 1000, "password": 200}  # requests that may wait for a thread
HERE = Path(__file__).parent
log = logging.getLogger("discreet.serve")

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; form-action 'self'; "
    "base-uri 'none'; frame-ancestors 'none'"
)
HEADERS = {
    "x-content-type-options": "nosniff", "referrer-policy": "same-origin", "x-frame-options": "DENY",
    "cache-control": "no-store", "cross-origin-opener-policy": "same-origin", "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=()", "content-security-policy": POLICY,
}  # fmt: skip


def make_app(state: AppState) -> ASGIApp:
    """The application for one `AppState`; its shutdown closes the state."""
    guard = Guard(state)

    @asynccontextmanager
    async def life(_: Starlette) -> AsyncIterator[None]:
        guard.begin()
        try:
            yield
        finally:
            await anyio.to_thread.run_sync(state.close)

    routes = [HTTPRoute(path, partial(guard.handle, route), methods=[route.method]) for path, route in addresses()]
    app = Starlette(routes=routes, lifespan=life, exception_handlers={HTTPException: guard.not_found})  # type: ignore[dict-item]
    return Shield(app, state.settings.hosts, https=state.settings.https)


def addresses() -> list[tuple[str, Route]]:
    """Every path with its route. A page's .json comes first, since a name in a path could also match the ending."""
    return [(f"{route.path}.json", route) for route in ROUTES if route.json] + [(route.path, route) for route in ROUTES]


class Shield:
    """Refuses hosts that are not ours (a name that somebody else points at us), and puts the headers on every answer."""

    def __init__(self, app: ASGIApp, hosts: frozenset[str], *, https: bool) -> None:
        self._app, self._hosts = app, hosts
        more = {"strict-transport-security": "max-age=31536000"} if https else {}
        self._headers = {name.encode(): value.encode() for name, value in (HEADERS | more).items()}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def dressed(message: Message) -> None:
            if message["type"] == "http.response.start":
                have = {name.lower() for name, _ in message["headers"]}
                message["headers"] = [*message["headers"], *(pair for pair in self._headers.items() if pair[0] not in have)]
            await send(message)

        hosts = [value.decode("latin-1") for name, value in scope["headers"] if name == b"host"]
        if len(hosts) != 1 or (_host(hosts[0]) not in self._hosts and "*" not in self._hosts):
            message = "This server does not answer to that name. Its owner can allow it: discreet serve --allow-host NAME\n"
            await Response(message, 400, media_type="text/plain")(scope, receive, dressed)
            return
        await self._app(scope, receive, dressed)


class Guard:
    """Who comes in, and how the answer goes out."""

    def __init__(self, state: AppState) -> None:
        self.state = state
        self._limits: dict[str, anyio.CapacityLimiter] = {}
        self._waiting = dict.fromkeys(AT_ONCE, 0)
        self._templates = Environment(loader=FileSystemLoader(HERE / "templates"), autoescape=True, undefined=StrictUndefined,
                                      trim_blocks=True, lstrip_blocks=True)  # fmt: skip
        self._templates.filters.update(FILTERS)
        self.cookie = "__Host-discreet" if state.settings.https else "discreet"
        self.form_cookie = f"{self.cookie}-form"

    def begin(self) -> None:
        self._limits = {work: anyio.CapacityLimiter(count) for work, count in AT_ONCE.items()}

    async def handle(self, route: Route, http: HTTPRequest) -> Response:
        """Admit a request, run its page in a thread, and answer."""
        wants = "json" if http.url.path.endswith(".json") and route.json else "part" if "hx-request" in http.headers else "html"
        request = Request(
            self.state, route, wants, http.path_params, dict(http.query_params), {}, _address(http), url=_url(http)
        )  # fmt: skip
        try:
            body = await _body(http) if route.method == "POST" else b""
            request, reply = await self._turn(route.work, partial(self._serve, route, http, wants, body))
            return self._answer(request, reply)
        except Refused as refused:
            return self._told(refused.request or request, refused)
        except ClientDisconnect:
            return Response(status_code=400)
        except Exception as error:
            self._fault(http, error)
            return self._told(request, Refused(500, "This is a fault in discreet. What happened is in the log of the server."))

    async def _turn(self, work: str, function: Any) -> Any:
        if self._waiting[work] >= WAITING[work]:
            raise Refused(503, "Too many are waiting already. Try again in a moment.", headers={"retry-after": "5"})
        self._waiting[work] += 1
        try:
            return await anyio.to_thread.run_sync(function, limiter=self._limits[work])
        finally:
            self._waiting[work] -= 1

    def _serve(self, route: Route, http: HTTPRequest, wants: str, body: bytes) -> tuple[Request, Reply]:
        form = fields(http.headers.get("content-type", "").split(";")[0].strip().lower(), body)
        request = self._known(route, http, wants, form)
        try:
            self._may(request)
            return request, route.page(request)
        except Refused as refused:
            refused.request = request
            raise
        except DiscreetError as error:
            raise Refused(status_of(error), message_for(request.optional_user, error), request=request) from error

    def _known(self, route: Route, http: HTTPRequest, wants: str, form: Mapping[str, str]) -> Request:
        """The request with its user, from a bearer token or a session cookie."""
        scheme, _, secret = http.headers.get("authorization", "").partition(" ")
        session = bearer = None
        if scheme.lower() == "bearer":
            bearer = self.state.users.bearer(secret.strip())
            if bearer is None:
                raise Refused(401, "This token opens nothing: it was withdrawn, has ended, or never was.")
        elif key := http.cookies.get(self.cookie):
            session = self.state.users.session(key)
        if route.method == "POST" and bearer is None and (session is not None or not route.roles):  # else `_may` refuses it
            self._ours(http, form, session)
        return Request(self.state, route, wants, http.path_params, dict(http.query_params), form, _address(http), session,
                     bearer, http.cookies, _at(http), _url(http), self._origin(http))  # fmt: skip

    def _origin(self, http: HTTPRequest) -> str:
        return f"{'https' if self.state.settings.https else http.url.scheme}://{http.headers.get('host', '')}"

    def _ours(self, http: HTTPRequest, form: Mapping[str, str], session: Any) -> None:
        """A form counts only if this server made it for this browser, and it was sent from one of our pages."""
        origin = http.headers.get("origin")
        if origin is not None and urlsplit(origin).netloc != http.headers.get("host"):
            raise Refused(403, "This form was sent from another site. Nothing was done.")
        if http.headers.get("sec-fetch-site", "same-origin") not in ("same-origin", "none"):
            raise Refused(403, "This form was sent from another site. Nothing was done.")
        proof = http.headers.get("x-proof") or form.get("proof", "")
        wanted = session.proof if session else self.form_proof(http.cookies.get(self.form_cookie, ""))
        if not wanted or not hmac.compare_digest(proof.encode(), wanted.encode()):
            raise Refused(403, "This form is too old, or not one of ours. Load the page again, and send it again.")

    def form_proof(self, cookie: str) -> str:
        """What a form before the login must bring: only this server can work it out from the cookie."""
        return hmac.new(self.state.secret, cookie.encode(), sha256).hexdigest() if cookie else ""

    def _may(self, request: Request) -> None:
        roles = request.route.roles
        if not roles:
            return
        if request.optional_user is None:
            raise Refused(401, "Log in first.")
        role, allowed = request.optional_user.role, " and ".join(f"{name}s" for name in sorted(roles))
        if role not in roles:
            raise Refused(403, f"This is for {allowed}; you are here as {role}.")

    def _answer(self, request: Request, reply: Reply) -> Response:
        if isinstance(reply, File):
            headers = dict(reply.headers)
            if reply.name is not None:
                headers["content-disposition"] = f"attachment; filename*=UTF-8''{quote(reply.name)}"
            return Response(reply.body, media_type=reply.type, headers=headers)
        response: Response
        if request.wants == "json":
            status = reply.status if isinstance(reply, Page) else 200
            response = Response(_json(reply.data), status, media_type="application/json")
        elif isinstance(reply, Go):
            place = reply.to if reply.encoded else quote(reply.to, safe="/%:@")
            response = Response(headers={"hx-redirect": place}) if request.wants == "part" else RedirectResponse(place, 303)
        else:
            response = self._page(request, reply)
        for name, value in reply.cookies.items():
            self._bake(response, self.cookie if name == "session" else self.form_cookie, value)
        return response

    def _page(self, request: Request, reply: Page) -> Response:
        cookie = request.cookies.get(self.form_cookie, "")
        fresh = None
        if request.session is None and not cookie:
            import secrets

            fresh = cookie = secrets.token_urlsafe(24)
        proof = request.session.proof if request.session else self.form_proof(cookie)
        template = reply.part if request.wants == "part" and reply.part else reply.template
        status = 200 if request.wants == "part" and reply.part else reply.status
        text = self._render(template, request, proof, **{**reply.data, **reply.more})
        response = Response(text, status, media_type="text/html", headers=dict(reply.headers))
        if fresh is not None:
            self._bake(response, self.form_cookie, fresh)
        return response

    def _render(self, template: str, request: Request, proof: str, **data: Any) -> str:
        users = {"me": request.optional_user, "proof": proof, "at": request.at, "version": __version__}
        return self._templates.get_template(template).render(**data, **users)

    def _bake(self, response: Response, name: str, value: str | None) -> None:
        how: dict[str, Any] = {"path": "/", "httponly": True, "samesite": "lax", "secure": self.state.settings.https}
        response.delete_cookie(name, **how) if value is None else response.set_cookie(name, value, **how)

    def _told(self, request: Request, refused: Refused) -> Response:
        """A refusal in the form that was asked for: JSON, a part of a page, a page, or a redirect to the login."""
        if request.wants == "json":
            document = {"error": refused.message, "status": refused.status}
            return Response(_json(document), refused.status, media_type="application/json", headers=refused.headers)
        if refused.status == 401 and request.route.method == "GET" and request.wants == "html":
            return RedirectResponse(login_url(request), 303)
        if refused.status == 401 and request.wants == "part":
            return Response(status_code=401, headers={"hx-redirect": login_url(request)})
        part = request.wants == "part"
        proof = request.session.proof if request.session else ""
        text = self._render("parts/refusal.html" if part else "refused.html", request, proof, message=refused.message,
                            status=refused.status, login=login_url(request) if refused.status == 401 else "")  # fmt: skip
        mended = part and isinstance(refused.__cause__, DiscreetError)  # an answer to the form, and no error of the browser's
        return Response(text, 200 if mended else refused.status, media_type="text/html", headers=refused.headers)

    async def not_found(self, http: HTTPRequest, error: HTTPException) -> Response:
        """An address that leads nowhere, or a method it does not know."""
        message = "There is nothing at this address." if error.status_code == 404 else "This address is not used that way."
        wants = "json" if http.url.path.endswith(".json") else "html"
        request = Request(self.state, ROUTES[0], wants, {}, {}, {}, _address(http))
        return self._told(request, Refused(error.status_code, message, headers=dict(error.headers or {})))

    @staticmethod
    def _fault(http: HTTPRequest, error: BaseException) -> None:
        """Where it happened and what kind it was; never the message, which may hold a value from the data."""
        places = [f"{Path(frame.filename).name}:{frame.lineno}" for frame in traceback.extract_tb(error.__traceback__)[-6:]]
        log.error("%s %s: %s at %s", http.method, http.url.path[:200], type(error).__name__, " < ".join(reversed(places)))


def _url(http: HTTPRequest) -> str:
    """Path and query as the browser sent them; of a page that htmx asks a part of, that page's."""
    query = f"?{http.url.query}" if http.url.query else ""
    return f"{quote(http.url.path)}{query}"


async def _body(http: HTTPRequest) -> bytes:
    """The body, if it is small and comes soon."""
    message = f"A body may have {LARGEST_BODY >> 10} KiB."
    length = http.headers.get("content-length", "0")
    if number_in(length, least=0, most=LARGEST_BODY) is None:
        raise Refused(413, message, headers={"connection": "close"})
    parts, size = [], 0
    try:
        with anyio.fail_after(BODY_WITHIN):
            async for chunk in http.stream():
                size += len(chunk)
                if size > LARGEST_BODY:
                    raise Refused(413, message, headers={"connection": "close"})
                parts.append(chunk)
    except TimeoutError:
        raise Refused(408, f"The body did not come within {BODY_WITHIN:g} seconds.", headers={"connection": "close"}) from None
    return b"".join(parts)


def _address(http: HTTPRequest) -> str:
    return http.client.host if http.client else "unknown"


def _at(http: HTTPRequest) -> str:
    return http.url.path.removesuffix(".json")


def _host(header: str) -> str:
    """A Host header without its port; an IPv6 address keeps its brackets."""
    if header.startswith("["):
        return header.partition("]")[0].lower() + "]"
    return header.partition(":")[0].lower().rstrip(".")


def _json(document: Any) -> str:
    """As JSON in which no character begins a tag, for browsers that guess what a file is."""
    return json.dumps(_finite(document), allow_nan=False, indent=1).replace("<", "\\u003c")


def _finite(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(key): _finite(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(item) for item in value]
    return value if value is None or isinstance(value, (bool, int, str)) else str(value)
