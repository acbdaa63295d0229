"""People: one-time links, passwords, sessions, tokens and the log."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from discreet.errors import InvalidValue
from discreet.serve.people import IDLE, LINK_LASTS, LONGEST, MOST_TOKENS, People
from webapp import PASSWORD


class Clock:
    def __init__(self) -> None:
        self.now = 1_800_000_000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def people(tmp_path: Path, clock: Clock) -> Iterator[People]:
    made = People(tmp_path / "people.db", clock=clock)
    made.join(made.first_link(), "ada", PASSWORD)
    yield made
    made.close()


def test_the_first_link_makes_one_owner_once(tmp_path: Path) -> None:
    people = People(tmp_path / "people.db")
    assert not people.has_owner()
    old, new = people.first_link(), people.first_link()
    with pytest.raises(InvalidValue, match="was used, is older"):
        people.join(old, "eve", PASSWORD)
    assert people.join(new, "ada", PASSWORD).role == "owner"
    assert people.has_owner()
    for link in (new, people.first_link()):
        with pytest.raises(InvalidValue, match="was used, is older"):
            people.join(link, "eve", PASSWORD)
    people.close()


def test_an_invitation_is_for_one_name_and_ends(people: People, clock: Clock) -> None:
    link = people.invite("ann", "analyst")
    clock.now += LINK_LASTS + 1
    assert people.invited(link) == (False, None)
    link = people.reset("ann")
    joined = people.join(link, "ignored", PASSWORD)
    assert (joined.name, joined.role, joined.account) == ("ann", "analyst", "ann")
    assert people.check_password("ann", PASSWORD) is not None
    assert people.check_password("ann", PASSWORD + "x") is None
    assert people.check_password("nobody", PASSWORD) is None


@pytest.mark.parametrize("name", ["", "Ann", "a b", "../x", "a" * 41, "default", "<b>", "-x", "ann\n"])
def test_names_are_plain(people: People, name: str) -> None:
    with pytest.raises(InvalidValue):
        people.invite(name, "analyst")


@pytest.mark.parametrize("password", ["short", "aaaaaaaaaaaa", "ann1234567", "x" * 1001])
def test_bad_passwords_are_refused(people: People, password: str) -> None:
    link = people.invite("ann", "analyst")
    with pytest.raises(InvalidValue, match="password"):
        people.join(link, "ann", password)
    assert people.invited(link) == (True, "ann")


def test_sessions_rest_and_last_only_so_long(people: People, clock: Clock) -> None:
    ada = people.find("ada")
    assert ada is not None
    key = people.enter(ada).key
    for _ in range(int(LONGEST // (IDLE / 2))):
        assert people.session(key) is not None
        clock.now += IDLE / 2
    clock.now += 1
    assert people.session(key) is None
    key = people.enter(ada).key
    clock.now += IDLE + 1
    assert people.session(key) is None


def test_a_changed_person_has_to_log_in_again(people: People) -> None:
    people.join(people.invite("ann", "analyst"), "ann", PASSWORD)
    ann = people.find("ann")
    assert ann is not None
    key, token = people.enter(ann).key, people.new_token(ann, "notebook")
    people.change("ann", role="officer")
    assert people.session(key) is None
    found = people.bearer(token)
    assert found is not None
    assert found.role == "officer"
    people.change("ann", active=False)
    assert people.bearer(token) is None
    assert people.check_password("ann", PASSWORD) is None


def test_a_new_password_ends_other_sessions(people: People) -> None:
    ada = people.find("ada")
    assert ada is not None
    mine, other = people.enter(ada).key, people.enter(ada).key
    with pytest.raises(InvalidValue, match="old password"):
        people.set_password("ada", "wrong wrong wrong", "another good one")
    people.set_password("ada", PASSWORD, "another good one", keep=mine)
    assert people.session(mine) is not None
    assert people.session(other) is None
    assert people.check_password("ada", PASSWORD) is None


def test_there_is_always_an_owner(people: People) -> None:
    for change in ({"active": False}, {"role": "analyst"}):
        with pytest.raises(InvalidValue, match="no owner"):
            people.change("ada", **change)
    with pytest.raises(InvalidValue, match="no owner"):
        people.reset("ada")
    assert people.check_password("ada", PASSWORD) is not None
    assert people.join(people.link_for("ada"), "ada", "a wholly new one").role == "owner"


def test_tokens_end_and_are_few(people: People, clock: Clock) -> None:
    ada = people.find("ada")
    assert ada is not None
    token = people.new_token(ada, "for a day", 1.0)
    assert people.bearer(token) == ada
    clock.now += 86_401
    assert people.bearer(token) is None
    for number in range(MOST_TOKENS - 1):
        people.new_token(ada, f"{number}")
    with pytest.raises(InvalidValue, match="the most there may be"):
        people.new_token(ada, "one more")
    people.end_token("ada", 1)
    people.new_token(ada, "one more")


def test_the_file_holds_nothing_that_opens_a_door(people: People, tmp_path: Path) -> None:
    ada = people.find("ada")
    assert ada is not None
    secrets = [PASSWORD, people.enter(ada).key, people.new_token(ada, "x"), people.invite("ann", "analyst")]
    people.close()
    written = b"".join(file.read_bytes() for file in tmp_path.glob("people.db*"))
    assert b"argon2id" in written
    assert [secret for secret in secrets if secret.encode() in written] == []
    assert (tmp_path / "people.db").stat().st_mode & 0o077 == 0


def test_the_log_is_only_added_to(people: People) -> None:
    people.note("ada", "opened", "hospital", epsilon=1.0)
    people.note("ada", "raised", "hospital", epsilon=2.0)
    first, second = people.log()
    assert (first["what"], second["detail"]) == ("raised", {"epsilon": 1.0})
    assert [note["what"] for note in people.log(what="opened")] == ["opened"]
    for change in ("DELETE FROM log", "UPDATE log SET who = 'eve'"):
        with pytest.raises(sqlite3.IntegrityError, match="only added to"):
            people._link.execute(change)


def test_another_database_is_refused(tmp_path: Path) -> None:
    with sqlite3.connect(tmp_path / "other.db") as link:
        link.execute("CREATE TABLE x (y)")
    with pytest.raises(InvalidValue, match="something else"):
        People(tmp_path / "other.db")
    with pytest.raises(InvalidValue, match="--people"):
        People(tmp_path / "nowhere" / "people.db")


def test_passwords_are_hashed_at_a_cost() -> None:
    """What OWASP asks of argon2id at least is 19 MiB twice over; these tests themselves use less."""
    from discreet.serve import people

    source = Path(people.__file__).read_text()
    assert '"time_cost": 3, "memory_cost": 65536' in source
