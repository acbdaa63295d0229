"""What one person can do to a server, or its machine to it: nothing is lost, nobody else is locked out, no page breaks."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from html import unescape
from pathlib import Path

import pytest

from discreet.core import Claim, Event, Game, Gaussian, Laplace, Poisson, Release, Repeat, Sequence, record
from discreet.core.event import DiscreteLaplace
from discreet.errors import InvalidValue
from discreet.figures import down, up
from discreet.serve.users import LONGEST_DETAIL
from webapp import COUNT, PASSWORD, Served, serving


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    with serving(tmp_path) as made:
        yield made


@pytest.mark.parametrize("text", ["é" * 9000, "\U0001f600" * 3000, "\\" * 9000, '"' * 9000, "\ud800", "a\0b", "x" * 100_000])
def test_no_text_destroys_the_log(served: Served, text: str) -> None:
    served.state.users.note("ann", "asked", text, sql=text, more=text, **{text[:50] or "x": 1.5})
    (row,) = served.state.users._rows("SELECT detail FROM log ORDER BY number DESC LIMIT 1")
    assert len(row[0]) <= LONGEST_DETAIL
    assert isinstance(json.loads(row[0]), dict)
    assert served.get("/log", "olga").status_code == 200
    assert served.get("/log.json", "olga").json()["notes"][0]["who"] == "ann"


def test_any_analysts_question_is_logged_whole(served: Served) -> None:
    """A question of 10,000 letters outside ASCII was cut in the middle of an escape, and the log could never be read again."""
    assert served.ask("bob", sql="é" * 9990).status_code == 400
    assert served.get("/log", "ada").status_code == 200


def test_a_damaged_note_is_shown_as_damaged(served: Served) -> None:
    users = served.state.users
    for detail in ('{"sql": "\\u00', "", "[1]", "{" * 5000):
        users._notes.execute("INSERT INTO log (at, who, what, about, detail) VALUES ('x', 'ann', 'asked', '', ?)", (detail,))
    notes = served.get("/log.json", "olga").json()["notes"][:4]
    assert all(list(each["detail"]) == ["damaged"] for each in notes)
    page = served.get("/log", "olga")
    assert (page.status_code, "damaged" in page.text) == (200, True)


def test_successful_logins_lock_nobody_out(served: Served) -> None:
    limit = served.state.by_address
    for _ in range(2 * limit.most):
        limit.mark("testclient")
        limit.unmark("testclient")
    for _ in range(3):
        found = served.client.post(
            "/login.json", json={"name": "ada", "password": PASSWORD}, headers={"x-proof": proof(served)}
        )
        assert found.status_code == 200, found.text
    assert limit.wait("testclient") == 0
    assert sum(map(len, limit._marks.values())) == 0
    assert served.client.post(
        "/login.json", json={"name": "ada", "password": "wrong"}, headers={"x-proof": proof(served)}
    ).status_code == 401  # fmt: skip
    assert sum(map(len, limit._marks.values())) == 1


def proof(served: Served) -> str:
    served.client.cookies.clear()
    return re.search(r'name="proof" value="([^"]+)"', served.client.get("/login").text)[1]  # type: ignore[index]


def test_a_new_password_ends_tokens_and_links(served: Served) -> None:
    users = served.state.users
    ann = users.find("ann")
    assert ann is not None
    token, link = users.new_token(ann, "laptop"), users.link_for("ann")
    kept, other = served.sessions["ann"], users.enter(ann)
    users.set_password("ann", PASSWORD, "another battery staple", keep=kept.key)
    assert users.bearer(token) is None
    assert not users.invited(link)[0]
    assert (users.session(kept.key) is not None, users.session(other.key)) == (True, None)


def test_half_a_character_is_refused_before_anything_is_spent(served: Served) -> None:
    before = len(served.state.ledger.history())
    served.client.cookies.update(served.cookies("ann"))
    found = served.client.post(
        "/console/ask.json", headers={"x-proof": served.sessions["ann"].proof, "content-type": "application/json"},
        content=json.dumps({"source": "hospital", "sql": COUNT, "epsilon": 0.1, "title": "\ud800"}),
    )  # fmt: skip
    assert (found.status_code, "lone surrogate" in found.text) == (400, True)
    assert len(served.state.ledger.history()) == before


@pytest.mark.parametrize("number", ["9" * 5000, "-1", "0", "1e9", "٣", "9" * 18])
def test_a_page_number_is_a_number_or_nothing(served: Served, number: str) -> None:
    for path in (f"/releases?page={number}", f"/log?before={number}", f"/attacks/{number}"):
        assert served.get(path, "ada").status_code in (200, 400, 404)
    assert served.post(f"/me/tokens/{number}/end", "ada").status_code == 400


def test_no_fault_names_a_place_on_this_machine(served: Served, tmp_path: Path) -> None:
    (served.state.store.folder / "torn.json").write_text('{"format": "discreet-release", "vers')
    for path in ("/releases", "/releases.json", "/releases/torn", "/releases/torn.json", "/releases/nothing"):
        for who in ("ann", "olga", "ada"):
            assert str(tmp_path) not in served.get(path, who).text, path


def test_a_release_that_cannot_be_read_keeps_to_no_policy(tmp_path: Path) -> None:
    (tmp_path / "privacy.toml").write_text('[[rule]]\non = "release"\nrequire = ["claim"]\n')
    with serving(tmp_path, policy=tmp_path / "privacy.toml") as served:
        (served.state.store.folder / "torn.json").write_text("{")
        found = served.get("/policy.json", "olga").json()["releases"]
        assert found[0]["name"] == "torn"
        assert (found[0]["outcome"], "cannot be read" in found[0]["findings"][0]["message"]) == ("failed", True)
        assert "torn" in served.get("/policy", "olga").text
        assert str(tmp_path) not in served.get("/policy", "olga").text


def test_a_source_with_a_slash_has_a_page(served: Served) -> None:
    from discreet.core import user

    served.state.ledger.open("eu/people", unit=user("id", rows=1), epsilon=1.0, delta=1e-6)
    assert served.get("/sources/eu/people", "ada").status_code == 200
    assert served.get("/sources/eu%2Fpeople.json", "ada").json()["source"] == "eu/people"
    raised = served.post("/sources/eu/people/raise", "ada", {"epsilon": "2", "delta": "1e-6", "reason": "a second study"})
    assert (raised.status_code, raised.headers["location"]) == (303, "/sources/eu/people")
    assert served.state.ledger.balance("eu/people").epsilon == 2
    assert 'href="/sources/eu/people"' in served.get("/sources", "ada").text


def test_a_second_server_on_the_same_files_is_refused(served: Served, tmp_path: Path) -> None:
    from discreet.serve import AppState
    from webapp import settings

    with pytest.raises(InvalidValue, match=f"process {os.getpid()}.*uses the same users.db"):
        AppState(settings(tmp_path))
    with pytest.raises(InvalidValue, match="uses the same releases"):
        AppState(settings(tmp_path).__class__(
            str(tmp_path / "other.db"), served.state.store.folder, tmp_path / "other-users.db"
        ))  # fmt: skip


SERVER = """
import sys, time
sys.path.insert(0, sys.argv[2])
from discreet.serve.worker import Worker
import jobtasks
worker = Worker(jobtasks.pretend, {"how": "family", "note": sys.argv[1]})
print(worker.process.pid, flush=True)
time.sleep(60)
"""


@pytest.mark.skipif(os.name != "posix", reason="process groups")
def test_an_attack_ends_with_a_server_that_was_killed(tmp_path: Path) -> None:
    note = tmp_path / "child"
    server = subprocess.Popen(
        [sys.executable, "-c", SERVER, str(note), str(Path(__file__).parents[2])], stdout=subprocess.PIPE, text=True
    )
    assert server.stdout is not None
    worker = int(server.stdout.readline())
    assert _until(lambda: note.exists() and note.read_text())
    child = int(note.read_text())
    server.send_signal(signal.SIGKILL)
    server.wait()
    server.stdout.close()
    assert _until(lambda: not _alive(worker) and not _alive(child))


def _until(true: object, seconds: float = 60.0) -> bool:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if true():  # type: ignore[operator]
            return True
        time.sleep(0.05)
    return False


def _alive(pid: int) -> bool:
    """Running, and no process that only waits to be collected."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        try:
            os.kill(pid, 0)
        except OSError:
            return False
        return not Path("/proc").is_dir()
    return state != "Z"


def test_an_analyst_reads_withheld_and_never_untested(served: Served) -> None:
    """There is evidence, which analysts may not see: that nobody tried would be a lie."""
    for who, status in (("ann", "withheld"), ("olga", "holds")):
        found = served.get("/releases/model.json", who).json()
        assert found["releases"][0]["verdict"]["status"] == status, found["releases"][0]["verdict"]
    page = served.get("/releases/model", "ann").text
    assert "withheld" in page
    assert ">untested" not in page
    assert "no attack was run" not in page.lower()


def test_a_claim_that_takes_minutes_to_account_for_is_not_shown(served: Served) -> None:
    """A page of 24 different subsampled mechanisms takes over 20 s, of 200 minutes; the list and the page say so instead."""
    steps = tuple(Poisson(0.01 + place / 1e5, Gaussian(0.6 + place / 1e3)) for place in range(200))
    claim = Claim(game=Game(record(), {"scores"}), event=Sequence(steps))
    Release(value=1, source="hospital", claims=(claim,)).save(served.state.store.folder / "slow.json")
    began = time.process_time()
    page, listed = served.get("/releases/slow", "ada"), served.get("/releases.json", "ada").json()["releases"]
    assert time.process_time() - began < 5
    assert 400 <= page.status_code < 500
    assert "too many different mechanisms" in page.text
    (card,) = (each for each in listed if each["name"] == "slow")
    assert "discreet report" in card["fault"]
    assert any(each["name"] == "model" and each["fault"] is None for each in listed)


@pytest.mark.parametrize(
    ("steps", "shown"),
    [
        ([DiscreteLaplace(1.5 + place) for place in range(12)], True),  # an answer in SQL
        ([Repeat(Poisson(0.01, Gaussian(1.0 + place)), 100) for place in range(4)], True),
        ([Poisson(0.01 + place / 1e5, Gaussian(0.6 + place / 1e3)) for place in range(5)], False),  # 14 s of CPU
        ([Laplace(1.5 + place / 7) for place in range(12)], True),
        ([Laplace(1.5 + place / 7) for place in range(26)], False),
        ([Poisson(0.5, Repeat(Poisson(0.5, Gaussian(1.0)), 10))], True),
        ([Poisson(0.1, Sequence([Poisson(0.01 + place / 1e3, Laplace(1.0 + place)) for place in range(30)]))], False),  # 15 s
    ],
)
def test_a_page_is_shown_where_its_accounting_is_quick(steps: list[Event], shown: bool, served: Served) -> None:
    claim = Claim(game=Game(record(), {"scores"}), event=Sequence(tuple(steps)))
    Release(value=1, source="hospital", claims=(claim,)).save(served.state.store.folder / "many.json")
    (card,) = (each for each in served.get("/releases.json", "ada").json()["releases"] if each["name"] == "many")
    assert (card["fault"] is None) == shown
    if not shown:
        assert "4 that are sampled" in card["fault"]


def test_the_list_tells_epsilon_at_the_delta_of_the_budget(served: Served) -> None:
    (card,) = served.get("/releases.json", "ada").json()["releases"]
    report = served.get("/releases/model.json", "ada").json()["releases"][0]
    assert card["delta"] == 1e-6 == report["claims"][0]["epsilon"][0]["delta"]
    assert card["epsilon"] == report["claims"][0]["epsilon"][0]["epsilon"]


def test_every_reader_is_told_the_same_epsilon(served: Served) -> None:
    """An analyst's page was made without the ledger, and told epsilon at another delta than the owner's."""
    told = {}
    for who in ("ada", "olga", "ann"):
        (first, *_) = served.get("/releases/model.json", who).json()["releases"][0]["claims"][0]["epsilon"]
        told[who] = (first["delta"], first["epsilon"])
        page = unescape(served.get("/releases/model", who).text).replace("\N{NO-BREAK SPACE}", " ")
        assert "at δ = 1e-6" in page
        assert f"ε ≤ {up(first['epsilon'])}" in page
    assert len(set(told.values())) == 1
    assert told["ann"][0] == 1e-6


def test_left_is_what_the_reader_may_spend(served: Served) -> None:
    """The list of sources, a source's page, its account and the console tell an analyst one number."""
    balance = served.state.ledger.balance("hospital", "ann")
    page = served.get("/sources/hospital.json", "ann").json()
    (listed,) = served.get("/sources.json", "ann").json()["sources"]
    assert page["left"] == listed["left"] == page["accounts"][0]["left"] == {"epsilon": balance.epsilon_left}
    for path in ("/sources", "/sources/hospital", "/console"):
        shown = unescape(served.get(path, "ann").text).replace("\N{NO-BREAK SPACE}", " ")
        assert f"ε {down(balance.epsilon_left)}" in shown
        assert "<svg" not in shown.partition("<main")[2]  # what others spent, entry by entry
    owned = served.get("/sources/hospital.json", "ada").json()
    accounts = [each["left"]["epsilon"] for each in owned["accounts"]]
    assert len(accounts) > 1
    # What the ledger would admit in one more answer: the most that any one account may take.
    assert owned["left"]["epsilon"] == served.state.ledger.balance("hospital").epsilon_left == max(accounts)
    *each, together = owned["shares"]
    assert sum(round(1e4 * part["unused"]) for part in each) == round(1e4 * together["unused"])
    assert page["shares"] == [part for part in each if part["account"] == "ann"]  # what others used is not an analyst's to see
    assert "Nothing of it is yours" in served.get("/sources", "bob").text
    assert served.get("/sources/hospital.json", "bob").json()["left"] == {"epsilon": 0.0}


def test_after_a_login_comes_what_was_asked_for_with_what_was_typed(served: Served) -> None:
    asked = served.get("/releases?filter=a%20b&page=2")
    assert (asked.status_code, asked.headers["location"]) == (303, "/login?next=%2Freleases%3Ffilter%3Da%2520b%26page%3D2")
    typed = {"source": "hospital", "sql": "SELECT COUNT(*) AS n FROM visits -- ü", "epsilon": "0.5"}
    sent = served.post("/console/ask", None, typed, headers={"hx-request": "true"})
    assert sent.status_code == 401
    login = sent.headers["hx-redirect"]
    token, page = proof(served), served.client.get(login).text
    following = unescape(re.search(r'name="next" value="([^"]+)"', page)[1])  # type: ignore[index]
    form = {"name": "ann", "password": PASSWORD, "next": following, "proof": token}
    back = served.client.post("/login", data=form, follow_redirects=False)
    assert back.headers["location"] == following
    console = served.client.get(following)
    assert (console.status_code, "-- ü" in console.text) == (200, True)


@pytest.mark.parametrize("place", ["//evil.example", "https://evil.example", "/\\evil.example", "/login?next=/", "/é", "/a\nb"])
def test_a_login_leads_nowhere_else(served: Served, place: str) -> None:
    form = {"name": "ann", "password": PASSWORD, "next": place, "proof": proof(served)}
    assert served.client.post("/login", data=form, follow_redirects=False).headers["location"] == "/"


def test_an_invitation_is_a_whole_address(served: Served) -> None:
    made = served.post("/users", "ada", {"name": "new.analyst", "role": "analyst"})
    link = re.search(r"http://127\.0\.0\.1/welcome/[\w-]+", made.text)
    assert link is not None
    assert served.get(link[0].removeprefix("http://127.0.0.1")).status_code == 200
