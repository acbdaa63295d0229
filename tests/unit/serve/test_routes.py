"""Every route of the server: which role may use it, with which proof, and what no request can bring through it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from discreet.serve.app import LARGEST_BODY, addresses
from discreet.serve.routes import Route
from webapp import Served, fill, serving

ROUTES = addresses()
PEOPLE = {"owner": "ada", "analyst": "ann", "officer": "olga"}
GUARDED = [(path, route) for path, route in ROUTES if route.roles]
POSTS = [(path, route) for path, route in ROUTES if route.method == "POST"]


def told(route: tuple[str, Route]) -> str:
    return f"{route[1].method} {route[0]}"


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with serving(tmp_path_factory.mktemp("routes")) as made:
        yield made


def knock(served: Served, path: str, route: Route, who: str | None, **more: object) -> int:
    if route.method == "GET":
        return int(served.get(fill(path), who, **more).status_code)
    return int(served.post(fill(path), who, {}, **more).status_code)


def test_the_table_has_what_the_pages_need() -> None:
    paths = {path for path, _ in ROUTES}
    for page in ("/sources", "/releases", "/console", "/synthetic", "/attacks", "/policy", "/users", "/log", "/me"):
        assert {page, f"{page}.json"} <= paths
    assert len(GUARDED) > 40


@pytest.mark.parametrize("route", GUARDED, ids=told)
def test_strangers_do_not_pass(served: Served, route: tuple[str, Route]) -> None:
    path, route = route
    found = served.get(fill(path)) if route.method == "GET" else served.post(fill(path), None, {})
    if route.method == "GET" and not path.endswith(".json"):
        assert (found.status_code, found.headers["location"].partition("?")[0]) == (303, "/login")
    else:
        assert found.status_code in (401, 403)
    assert "hospital" not in found.text


@pytest.mark.parametrize("route", GUARDED, ids=told)
def test_a_wrong_role_does_not_pass(served: Served, route: tuple[str, Route]) -> None:
    path, route = route
    for role, who in PEOPLE.items():
        if role not in route.roles:
            assert knock(served, path, route, who) == 403, f"{who} passed {told(route)}"


@pytest.mark.parametrize("route", GUARDED, ids=told)
def test_a_right_role_passes(served: Served, route: tuple[str, Route]) -> None:
    """So that the tests above do not hold because nobody passes at all."""
    path, route = route
    if path.startswith("/logout"):
        return  # would end the session that the other tests use
    for role, who in PEOPLE.items():
        if role in route.roles:
            assert knock(served, path, route, who) in (200, 303, 400, 404, 409, 501), told(route)


@pytest.mark.parametrize("route", GUARDED, ids=told)
def test_a_wrong_token_opens_nothing(served: Served, route: tuple[str, Route]) -> None:
    path, route = route
    head = {"authorization": "Bearer discreet_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"}
    assert knock(served, path, route, None, headers=head) in (
        (401,) if path.endswith(".json") or route.method == "POST" else (303,)
    )


@pytest.mark.parametrize("route", POSTS, ids=told)
def test_a_form_without_its_proof_does_nothing(served: Served, route: tuple[str, Route]) -> None:
    path, route = route
    before = len(served.state.users.log())
    for more in ({}, {"proof": "x"}, {"proof": served.sessions["bob"].proof}):
        assert served.post(fill(path), "ada", more, proof=False).status_code == 403
        assert served.post(fill(path), None, more).status_code == (401 if route.roles else 403)
    assert len(served.state.users.log()) == before


@pytest.mark.parametrize("route", POSTS, ids=told)
def test_a_form_from_another_site_does_nothing(served: Served, route: tuple[str, Route]) -> None:
    path, _ = route
    for head in ({"origin": "http://evil.example"}, {"sec-fetch-site": "cross-site"}, {"origin": "null"}):
        assert served.post(fill(path), "ada", headers=head).status_code == 403


@pytest.mark.parametrize("route", POSTS, ids=told)
def test_a_large_body_is_not_read(served: Served, route: tuple[str, Route]) -> None:
    path, _ = route
    found = served.client.post(fill(path), content=b"x" * (LARGEST_BODY + 1))
    assert found.status_code == 413

    def drops() -> Iterator[bytes]:  # no length is told before
        for _ in range(40):
            yield b"x" * 4096

    assert served.client.post(fill(path), content=drops()).status_code in (411, 413)


@pytest.mark.parametrize("route", ROUTES, ids=told)
def test_every_answer_has_the_headers(served: Served, route: tuple[str, Route]) -> None:
    path, route = route
    found = served.get(fill(path), "ada") if route.method == "GET" else served.post(fill(path), "ada", proof=False)
    head = found.headers
    assert "unsafe-eval" not in head["content-security-policy"]
    assert "script-src 'self'" in head["content-security-policy"]
    assert "'unsafe-inline'" not in head["content-security-policy"].split("style-src")[0]
    assert "frame-ancestors 'none'" in head["content-security-policy"]
    assert head["x-content-type-options"] == "nosniff"
    assert head["referrer-policy"] == "same-origin"
    assert "server" not in head
    if not path.startswith("/static"):
        assert head["cache-control"] == "no-store"


@pytest.mark.parametrize("route", ROUTES, ids=told)
def test_other_methods_are_refused(served: Served, route: tuple[str, Route]) -> None:
    for method in ("PUT", "DELETE", "PATCH", "TRACE"):
        assert served.client.request(method, fill(route[0])).status_code == 405


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1.evil.example", "", "localhost@evil.example", "[::2]"])
def test_a_name_that_is_not_ours_is_refused(served: Served, host: str) -> None:
    assert served.get("/login", headers={"host": host}).status_code == 400


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST:8765", "127.0.0.1:80", "[::1]:9"])
def test_our_own_names_are_not(served: Served, host: str) -> None:
    assert served.get("/login", headers={"host": host}).status_code == 200


@pytest.mark.parametrize(
    "name",
    ["../users.db", "..%2fusers.db", "%2e%2e%2fledger.db", "....//x", "/etc/passwd", "%2fetc%2fpasswd", "x%00", ".work",
     "model%2f..%2f..%2fusers", "model%2frelease.json", "~root", "model%0a", "CON", "a" * 400],
)  # fmt: skip
@pytest.mark.parametrize("tail", ["", ".json", "/document", "/export/html"])
def test_no_name_of_a_release_leads_out_of_the_folder(served: Served, name: str, tail: str) -> None:
    found = served.get(f"/releases/{name}{tail}", "ada")
    assert found.status_code == 404
    assert "root:" not in found.text


def test_a_link_in_the_folder_does_not_lead_out_either(served: Served, tmp_path: Path) -> None:
    served.state.store.load("model").save(tmp_path / "release.json")
    (served.state.store.folder / "outside").symlink_to(tmp_path)
    try:
        assert served.get("/releases/outside", "ada").status_code == 404
        assert "outside" not in served.get("/releases", "ada").text
    finally:
        (served.state.store.folder / "outside").unlink()


@pytest.mark.parametrize("file", ["../app.py", "..%2fapp.py", "users.sql", "%2e%2e/users.py"])
def test_static_files_are_those_alone(served: Served, file: str) -> None:
    assert served.get(f"/static/{file}").status_code == 404


def test_json_bodies_must_be_flat(served: Served) -> None:
    token = served.state.users.new_token(served.sessions["ann"].user, "test")
    head = {"authorization": f"Bearer {token}"}
    served.client.cookies.clear()
    for body in ([1], {"sql": {"a": 1}}, "x"):
        assert served.client.post("/console/explain.json", json=body, headers=head).status_code == 400
    deep = "[" * 30_000 + "]" * 30_000
    head |= {"content-type": "application/json"}
    assert served.client.post("/console/explain.json", content=deep, headers=head).status_code == 400
    assert served.client.post("/console/explain.json", content=b"\xff", headers=head).status_code == 400
    head |= {"content-type": "multipart/form-data; boundary=x"}
    assert served.client.post("/console/explain.json", content=b"--x--", headers=head).status_code == 415


def test_a_fault_is_told_without_its_message(
    served: Served, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken() -> list[str]:
        raise RuntimeError("row 17 is zanzibar")

    monkeypatch.setattr(served.state.ledger, "sources", broken)
    found = served.get("/sources", "ada")
    assert found.status_code == 500
    assert "zanzibar" not in found.text + caplog.text
    assert "RuntimeError" in caplog.text
