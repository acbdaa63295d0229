"""Users: one-time links, passwords, sessions, tokens and the log."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from discreet.errors import InvalidValue
from discreet.serve.users import IDLE, LINK_LASTS, LONGEST, MOST_TOKENS, Users
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
def users(tmp_path: Path, clock: Clock) -> Iterator[Users]:
    made = Users(tmp_path / "users.db", clock=clock)
    made.join(made.first_link(), "ada", PASSWORD)
    yield made
    made.close()


def test_the_first_link_makes_one_owner_once(tmp_path: Path) -> None:
    users = Users(tmp_path / "users.db")
    assert not users.has_owner()
    old, new = users.first_link(), users.first_link()
    with pytest.raises(InvalidValue, match="was used, is older"):
        users.join(old, "eve", PASSWORD)
    assert users.join(new, "ada", PASSWORD).role == "owner"
    assert users.has_owner()
    for link in (new, users.first_link()):
        with pytest.raises(InvalidValue, match="was used, is older"):
            users.join(link, "eve", PASSWORD)
    users.close()


def test_an_invitation_is_for_one_name_and_ends(users: Users, clock: Clock) -> None:
    link = users.invite("ann", "analyst")
    clock.now += LINK_LASTS + 1
    assert users.invited(link) == (False, None)
    link = users.reset("ann")
    joined = users.join(link, "ignored", PASSWORD)
    assert (joined.name, joined.role, joined.account) == ("ann", "analyst", "ann")
    assert users.check_password("ann", PASSWORD) is not None
    assert users.check_password("ann", PASSWORD + "x") is None
    assert users.check_password("nobody", PASSWORD) is None


@pytest.mark.parametrize("name", ["", "Ann", "a b", "../x", "a" * 41, "default", "<b>", "-x", "ann\n"])
def test_names_are_plain(users: Users, name: str) -> None:
    with pytest.raises(InvalidValue):
        users.invite(name, "analyst")


@pytest.mark.parametrize("password", ["short", "aaaaaaaaaaaa", "ann1234567", "x" * 1001])
def test_bad_passwords_are_refused(users: Users, password: str) -> None:
    link = users.invite("ann", "analyst")
    with pytest.raises(InvalidValue, match="password"):
        users.join(link, "ann", password)
    assert users.invited(link) == (True, "ann")


def test_sessions_rest_and_last_only_so_long(users: Users, clock: Clock) -> None:
    ada = users.find("ada")
    assert ada is not None
    key = users.enter(ada).key
    for _ in range(int(LONGEST // (IDLE / 2))):
        assert users.session(key) is not None
        clock.now += IDLE / 2
    clock.now += 1
    assert users.session(key) is None
    key = users.enter(ada).key
    clock.now += IDLE + 1
    assert users.session(key) is None


def test_a_changed_person_has_to_log_in_again(users: Users) -> None:
    users.join(users.invite("ann", "analyst"), "ann", PASSWORD)
    ann = users.find("ann")
    assert ann is not None
    key, token = users.enter(ann).key, users.new_token(ann, "notebook")
    users.change("ann", role="officer")
    assert users.session(key) is None
    found = users.bearer(token)
    assert found is not None
    assert found.role == "officer"
    users.change("ann", active=False)
    assert users.bearer(token) is None
    assert users.check_password("ann", PASSWORD) is None


def test_a_new_password_ends_other_sessions(users: Users) -> None:
    ada = users.find("ada")
    assert ada is not None
    mine, other = users.enter(ada).key, users.enter(ada).key
    with pytest.raises(InvalidValue, match="old password"):
        users.set_password("ada", "wrong wrong wrong", "another good one")
    users.set_password("ada", PASSWORD, "another good one", keep=mine)
    assert users.session(mine) is not None
    assert users.session(other) is None
    assert users.check_password("ada", PASSWORD) is None


def test_there_is_always_an_owner(users: Users) -> None:
    for change in ({"active": False}, {"role": "analyst"}):
        with pytest.raises(InvalidValue, match="no owner"):
            users.change("ada", **change)
    with pytest.raises(InvalidValue, match="no owner"):
        users.reset("ada")
    assert users.check_password("ada", PASSWORD) is not None
    assert users.join(users.link_for("ada"), "ada", "a wholly new one").role == "owner"


def test_tokens_end_and_are_few(users: Users, clock: Clock) -> None:
    ada = users.find("ada")
    assert ada is not None
    token = users.new_token(ada, "for a day", 1.0)
    assert users.bearer(token) == ada
    clock.now += 86_401
    assert users.bearer(token) is None
    for number in range(MOST_TOKENS - 1):
        users.new_token(ada, f"{number}")
    with pytest.raises(InvalidValue, match="the most there may be"):
        users.new_token(ada, "one more")
    users.end_token("ada", 1)
    users.new_token(ada, "one more")


def test_the_file_holds_nothing_that_opens_a_door(users: Users, tmp_path: Path) -> None:
    ada = users.find("ada")
    assert ada is not None
    secrets = [PASSWORD, users.enter(ada).key, users.new_token(ada, "x"), users.invite("ann", "analyst")]
    users.close()
    written = b"".join(file.read_bytes() for file in tmp_path.glob("users.db*"))
    assert b"argon2id" in written
    assert [secret for secret in secrets if secret.encode() in written] == []
    assert (tmp_path / "users.db").stat().st_mode & 0o077 == 0


def test_the_log_is_only_added_to(users: Users) -> None:
    users.note("ada", "opened", "hospital", epsilon=1.0)
    users.note("ada", "raised", "hospital", epsilon=2.0)
    first, second = users.log()
    assert (first["what"], second["detail"]) == ("raised", {"epsilon": 1.0})
    assert [note["what"] for note in users.log(what="opened")] == ["opened"]
    for change in ("DELETE FROM log", "UPDATE log SET who = 'eve'"):
        with pytest.raises(sqlite3.IntegrityError, match="only added to"):
            users._link.execute(change)


def test_another_database_is_refused(tmp_path: Path) -> None:
    with sqlite3.connect(tmp_path / "other.db") as link:
        link.execute("CREATE TABLE x (y)")
    with pytest.raises(InvalidValue, match="something else"):
        Users(tmp_path / "other.db")
    with pytest.raises(InvalidValue, match="--users"):
        Users(tmp_path / "nowhere" / "users.db")


def test_passwords_are_hashed_at_a_cost() -> None:
    """What OWASP asks of argon2id at least is 19 MiB twice over; these tests themselves use less."""
    from discreet.serve import users

    source = Path(users.__file__).read_text()
    assert '"time_cost": 3, "memory_cost": 65536' in source
