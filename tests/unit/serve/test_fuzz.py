"""Whatever is sent, to whichever route: an answer that was meant, never a fault, and no page that runs what was sent."""

from __future__ import annotations

from collections.abc import Iterator
from urllib.parse import quote

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from discreet.serve.app import addresses
from discreet.serve.routes import Route
from webapp import Served, fill, serving

ROUTES = addresses()
GETS = [route for route in ROUTES if route[1].method == "GET" and not route[0].startswith(("/static", "/welcome"))]
POSTS = [
    route for route in ROUTES if route[1].method == "POST" and not route[0].startswith(("/logout", "/login", "/me/password"))
]
FIELDS = [
    "source", "sql", "epsilon", "delta", "groups", "title", "reason", "unit", "rows", "failure", "account", "percent", "target",
    "attacks", "shadows", "seed", "name", "role", "label", "days", "filter", "page", "before", "who", "what", "annex",
]  # fmt: skip
LIKELY = [
    "hospital", "visits", "1", "0", "-1", "1e-6", "1e400", "nan", "record", "user:id", "any", "ann", "analyst", "'", "\x00",
    "\ud7ff", "%", "../x", "9" * 30, "SELECT COUNT(*) AS n FROM visits",
]  # fmt: skip
TEXTS = st.one_of(
    st.text(max_size=40),
    st.sampled_from(LIKELY),
    st.floats().map(str),
    st.integers().map(str),
)
FORMS = st.dictionaries(st.sampled_from(FIELDS), TEXTS, max_size=8)
OFTEN = settings(max_examples=12, suppress_health_check=[HealthCheck.function_scoped_fixture])


def told(route: tuple[str, Route]) -> str:
    return f"{route[1].method} {route[0]}"


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with serving(tmp_path_factory.mktemp("fuzz"), targets={}) as made:
        yield made


def meant(status: int) -> None:
    assert status < 500 or status in (501, 502, 503), status


@pytest.mark.parametrize("route", POSTS, ids=told)
@OFTEN
@given(form=FORMS, part=st.booleans())
def test_forms(served: Served, route: tuple[str, Route], form: dict[str, str], part: bool) -> None:
    meant(served.post(fill(route[0]), "ada", form, headers={"hx-request": "true"} if part else {}).status_code)


@pytest.mark.parametrize("route", GETS, ids=told)
@OFTEN
@given(query=FORMS, piece=st.text(min_size=1, max_size=30))
def test_addresses(served: Served, route: tuple[str, Route], query: dict[str, str], piece: str) -> None:
    path, first, rest = route[0].partition("{")
    whole = path + quote(piece, safe="") + rest.partition("}")[2].replace("{kind}", "html") if first else route[0]
    for who in ("olga", "ann"):
        meant(served.get(whole, who, params=query).status_code)


@OFTEN
@given(
    body=st.binary(max_size=200),
    kind=st.sampled_from(["application/json", "application/x-www-form-urlencoded", "text/plain", "", "x"]),
)
def test_bodies(served: Served, body: bytes, kind: str) -> None:
    token = served.state.users.new_token(served.sessions["ann"].user, "fuzz")
    served.client.cookies.clear()
    head = {"authorization": f"Bearer {token}", "content-type": kind}
    meant(served.client.post("/console/explain.json", content=body, headers=head).status_code)
    served.state.users.end_token("ann", served.state.users.tokens("ann")[-1]["number"])


@OFTEN
@given(value=st.text(alphabet=st.characters(min_codepoint=33, max_codepoint=126), max_size=60))
def test_cookies_and_tokens(served: Served, value: str) -> None:
    served.client.cookies.clear()
    for head in (
        {"cookie": f"discreet={value}"},
        {"authorization": f"Bearer {value}"},
        {"authorization": value},
        {"host": value or "x"},
    ):
        status = served.client.get("/users.json", headers=head, follow_redirects=False).status_code
        assert status in (400, 401)
