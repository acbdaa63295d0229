"""Logging in and out: one message for every failure, few tries, never a session that was brought along."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from webapp import PASSWORD, Served, serving


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    with serving(tmp_path) as made:
        yield made


def proof(page: str) -> str:
    found = re.search(r'name="proof" value="([^"]+)"', page)
    assert found
    return found[1]


def login(served: Served, name: str = "ada", password: str = PASSWORD, path: str = "/login") -> object:
    page = served.client.get("/login")
    fields = {"name": name, "password": password, "proof": proof(page.text)}
    return served.client.post(path, data=fields, follow_redirects=False)


def test_the_way_in_and_out(served: Served) -> None:
    found = login(served)
    assert (found.status_code, found.headers["location"]) == (303, "/")
    cookie = found.headers["set-cookie"]
    assert "HttpOnly" in cookie
    assert "SameSite=lax" in cookie
    assert "Secure" not in cookie
    page = served.client.get("/sources")
    assert page.status_code == 200
    key = served.client.cookies["discreet"]
    assert served.client.post("/logout", data={"proof": proof(page.text)}, follow_redirects=False).status_code == 303
    served.client.cookies.set("discreet", key)
    assert served.client.get("/sources", follow_redirects=False).headers["location"] == "/login?next=%2Fsources"


def test_behind_tls_cookies_are_for_tls_alone(tmp_path: Path) -> None:
    with serving(tmp_path, https=True) as made:
        found = made.client.get("/login")
        assert "Secure" in found.headers["set-cookie"]
        assert found.headers["set-cookie"].startswith("__Host-")
        assert found.headers["strict-transport-security"]


def test_a_session_that_was_brought_along_is_never_used(served: Served) -> None:
    served.client.get("/login")
    served.client.cookies.set("discreet", "chosen-by-somebody-else")
    found = login(served)
    assert found.status_code == 303
    assert "chosen-by-somebody-else" not in found.headers["set-cookie"]
    served.client.cookies.clear()
    served.client.cookies.set("discreet", "chosen-by-somebody-else")
    assert served.client.get("/sources", follow_redirects=False).status_code == 303


def test_logging_in_again_ends_the_session_before(served: Served) -> None:
    login(served)
    old = served.client.cookies["discreet"]
    page = served.client.get("/sources")
    fields = {"name": "ada", "password": PASSWORD, "proof": proof(page.text)}
    served.client.post("/login", data=fields, follow_redirects=False)
    assert served.client.cookies["discreet"] != old
    assert served.state.users.session(old) is None


def test_guessing_is_stopped(served: Served) -> None:
    told = {
        login(served, name, "wrong wrong wrong").text.count("No such name with this password") for name in ("ada", "nobody")
    }
    assert told == {1}
    for _ in range(4):
        assert login(served, password="wrong wrong wrong").status_code == 401
    found = login(served)  # even the right one, now
    assert found.status_code == 429
    assert int(found.headers["retry-after"]) > 0
    assert login(served, "olga", "x").status_code == 401  # others are not locked out with her
    assert "wrong wrong wrong" not in str(served.state.users.log())


def test_one_address_cannot_try_many_names(served: Served) -> None:
    found = [login(served, f"name{number}", "wrong wrong wrong").status_code for number in range(31)]
    assert found[:30] == [401] * 30
    assert found[30] == 429


def test_the_first_owner_comes_by_a_link(tmp_path: Path) -> None:
    from starlette.testclient import TestClient

    from discreet.serve import AppState, make_app
    from webapp import settings

    state = AppState(settings(tmp_path))
    link = f"/welcome/{state.users.first_link()}"
    with TestClient(make_app(state), base_url="http://127.0.0.1") as client:
        assert "Nobody owns this server yet" in client.get("/login").text
        page = client.get(link)
        fields = {"name": "ada", "password": PASSWORD, "again": PASSWORD + "x", "proof": proof(page.text)}
        assert "not the same" in client.post(link, data=fields).text
        fields["again"] = PASSWORD
        assert client.post(link, data=fields, follow_redirects=False).status_code == 303
        assert client.get("/users").status_code == 200
        assert client.get(link).status_code == 404
        assert client.get("/welcome/nothing").status_code == 404


def test_a_token_is_enough_for_a_program_and_for_nothing_else(served: Served) -> None:
    token = served.state.users.new_token(served.sessions["ann"].user, "notebook")
    head = {"authorization": f"Bearer {token}"}
    served.client.cookies.clear()
    assert served.client.get("/console.json", headers=head).status_code == 200
    assert served.client.get("/users.json", headers=head).status_code == 403
    assert served.client.post("/me/tokens.json", headers=head, data={"label": "another"}).status_code == 403
    asked = {"source": "hospital", "sql": "SELECT COUNT(*) AS n FROM visits", "epsilon": 0.1}
    found = served.client.post("/console/ask.json", headers=head, json=asked)
    assert found.status_code == 200
    assert set(found.json()["answer"]["columns"]) == {"n", "n_low", "n_high"}
