"""Users, their roles and sessions, and a log of what they did: one SQLite file beside the ledger.

The file holds no secret that logs anyone in: passwords are kept as argon2id hashes; sessions, tokens of programs and one-time
links as SHA-256 of 256 random bits. The tables keep the names they have in files written before (`person`, `visit`).
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import re
import secrets
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from discreet.core import check
from discreet.errors import InvalidValue, MissingExtra

ROLES = ("owner", "analyst", "officer")
MARK = 0x64737076  # "dspv", SQLite's application_id
IDLE, LONGEST = 3600.0, 12 * 3600.0  # seconds that a session may rest, and last
LINK_LASTS = 24 * 3600.0
SHORTEST_PASSWORD, LONGEST_PASSWORD = 10, 1000
LONGEST_DETAIL = 8000  # characters of a note's detail
MOST_TOKENS = 20  # of one person
HASHING: dict[str, Any] = {"time_cost": 3, "memory_cost": 65536, "parallelism": 1}  # argon2id: 64 MiB, three times over
NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,39}")


@dataclass(frozen=True, slots=True)
class User:
    """A user with a role; `account` is the ledger account they spend from."""

    name: str
    role: str
    account: str
    active: bool = True
    welcome: bool = True  # has chosen a password

    def to_json(self) -> dict[str, Any]:
        return {"name": self.name, "role": self.role, "account": self.account, "active": self.active, "joined": self.welcome}


@dataclass(frozen=True, slots=True)
class Session:
    """A browser that logged in; `proof` is what its forms must bring."""

    user: User
    proof: str
    key: str


class Users:
    """The file of users. Threads may share it; every change is one transaction."""

    def __init__(self, place: str | os.PathLike[str], *, clock: Callable[[], float] = time.time) -> None:
        self.path = Path(place).absolute()
        self._clock = clock
        self._lock, self._note_lock = threading.RLock(), threading.Lock()
        self._hasher = _hasher()
        self._blind = self._hasher.hash(secrets.token_hex(16))  # checked where there is no such person: takes as long
        try:
            self._link = _connected(self.path)
            try:
                self._prepare()
                self._notes = _connected(self.path)
            except BaseException:
                self._link.close()
                raise
            self._notes.execute("PRAGMA synchronous = NORMAL")
        except sqlite3.Error as error:
            raise InvalidValue(
                f"{self.path} cannot hold the users of this server: {error}. Name another with --users."
            ) from None

    def _prepare(self) -> None:
        mark = self._link.execute("PRAGMA application_id").fetchone()[0]
        tables = self._link.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
        if mark != MARK and (mark or tables):
            raise InvalidValue(f"{self.path} is a database of something else. Name another file with --users.")
        if os.name == "posix":
            os.chmod(self.path, 0o600)
        self._link.execute("PRAGMA journal_mode = WAL")
        self._link.execute("PRAGMA synchronous = FULL")
        self._link.executescript(Path(__file__).with_name("users.sql").read_text("utf-8"))
        self._link.execute(f"PRAGMA application_id = {MARK}")

    @contextmanager
    def _change(self) -> Iterator[sqlite3.Connection]:
        with self._lock:
            self._link.execute("BEGIN IMMEDIATE")
            try:
                yield self._link
            except BaseException:
                self._link.execute("ROLLBACK")
                raise
            self._link.execute("COMMIT")

    def _rows(self, text: str, given: tuple[Any, ...] = ()) -> list[Any]:
        with self._lock:
            return self._link.execute(text, given).fetchall()

    # ---- users -----------------------------------------------------------------------------------------------------------

    def everyone(self) -> list[User]:
        """All users, by name."""
        return [_user(row) for row in self._rows(f"{_USERS} ORDER BY name")]

    def find(self, name: str) -> User | None:
        """A user, active or not; None if there is no such name."""
        rows = self._rows(f"{_USERS} WHERE name = ?", (name,))
        return _user(rows[0]) if rows else None

    def has_owner(self) -> bool:
        """Whether an active owner has chosen a password."""
        return bool(self._rows("SELECT 1 FROM person WHERE role = 'owner' AND password IS NOT NULL AND active"))

    def invite(self, name: str, role: str, *, account: str | None = None) -> str:
        """Add a user; returns the secret of the link with which they choose a password."""
        name = _named(name)
        check.word("role", role, ROLES)
        account = check.word("account", account) if account else name
        with self._change() as link:
            if link.execute("SELECT 1 FROM person WHERE name = ?", (name,)).fetchone():
                raise InvalidValue(f"There is a person {name} already; choose another name.")
            link.execute("INSERT INTO person VALUES (?, ?, ?, NULL, ?, 1)", (name, role, account, self._now()))
            return self._new_link(link, name)

    def first_link(self) -> str:
        """The secret of the first owner's link; earlier ones are withdrawn."""
        with self._change() as link:
            link.execute("DELETE FROM link WHERE person IS NULL")
            return self._new_link(link, None)

    def reset(self, name: str) -> str:
        """A link to choose a new password; the old password, its sessions and tokens end now."""
        with self._change() as link:
            self._must_be(link, name)
            self._throw_out(link, name)
            link.execute("UPDATE person SET password = NULL WHERE name = ?", (name,))
            self._keep_an_owner(link)
            return self._new_link(link, name)

    def link_for(self, name: str) -> str:
        """A link to choose a new password; the old one works until it is followed. For whoever runs the server."""
        with self._change() as link:
            self._must_be(link, name)
            return self._new_link(link, name)

    def _new_link(self, link: sqlite3.Connection, name: str | None) -> str:
        secret = secrets.token_urlsafe(32)
        link.execute("INSERT INTO link VALUES (?, ?, ?)", (_hash(secret), name, self._clock() + LINK_LASTS))
        return secret

    def invited(self, secret: str) -> tuple[bool, str | None]:
        """Whether a link is valid, and for whom (for the first owner: nobody yet)."""
        rows = self._rows("SELECT person, ends FROM link WHERE hash = ?", (_hash(secret),))
        if not rows or rows[0][1] < self._clock() or (rows[0][0] is None and self.has_owner()):
            return False, None
        return True, rows[0][0]

    def join(self, secret: str, name: str, password: str) -> User:
        """Follow a link, once: choose a password, and as first owner a name."""
        good, whose = self.invited(secret)
        if not good:
            raise InvalidValue("This link was used, is older than a day, or never was. Ask an owner for a new one.")
        name = _named(name if whose is None else whose)
        hashed = self._hasher.hash(_password(password, name))
        with self._change() as link:
            if not link.execute("DELETE FROM link WHERE hash = ?", (_hash(secret),)).rowcount:
                raise InvalidValue("This link was used a moment ago. Log in, or ask an owner for a new one.")
            if whose is None:
                link.execute("INSERT INTO person VALUES (?, 'owner', 'default', ?, ?, 1)", (name, hashed, self._now()))
            else:
                link.execute("UPDATE person SET password = ? WHERE name = ?", (hashed, name))
                self._throw_out(link, name)
        user = self.find(name)
        assert user is not None
        return user

    def change(self, name: str, *, role: str | None = None, account: str | None = None, active: bool | None = None) -> User:
        """Change role or account, activate or deactivate; the user has to log in again."""
        with self._change() as link:
            old = self._must_be(link, name)
            new = (
                check.word("role", role, ROLES) if role else old.role,
                check.word("account", account) if account else old.account,
                int(old.active if active is None else active),
            )  # fmt: skip
            link.execute("UPDATE person SET role = ?, account = ?, active = ? WHERE name = ?", (*new, name))
            self._keep_an_owner(link)
            self._throw_out(link, name, tokens=not new[2])
        user = self.find(name)
        assert user is not None
        return user

    @staticmethod
    def _must_be(link: sqlite3.Connection, name: str) -> User:
        row = link.execute(f"{_USERS} WHERE name = ?", (name,)).fetchone()
        if row is None:
            raise InvalidValue(f"There is no person {check.shown(name)}.")
        return _user(row)

    @staticmethod
    def _keep_an_owner(link: sqlite3.Connection) -> None:
        if not link.execute("SELECT 1 FROM person WHERE role = 'owner' AND active AND password IS NOT NULL").fetchone():
            raise InvalidValue("That would leave no owner who can log in. Make someone else an owner first.")

    @staticmethod
    def _throw_out(link: sqlite3.Connection, name: str, *, tokens: bool = True) -> None:
        link.execute("DELETE FROM visit WHERE person = ?", (name,))
        link.execute("DELETE FROM link WHERE person = ?", (name,))
        if tokens:
            link.execute("DELETE FROM token WHERE person = ?", (name,))

    # ---- passwords and sessions ------------------------------------------------------------------------------------------

    def check_password(self, name: str, password: str) -> User | None:
        """The user, if the password is theirs. An unknown name takes as long to check as a known one."""
        from argon2.exceptions import Argon2Error, InvalidHashError

        rows = self._rows("SELECT password FROM person WHERE name = ? AND active", (name,))
        kept = rows[0][0] if rows and rows[0][0] else None
        try:
            self._hasher.verify(kept or self._blind, password[:LONGEST_PASSWORD])
        except (Argon2Error, InvalidHashError):
            return None
        return self.find(name) if kept else None

    def set_password(self, name: str, old: str, new: str, *, keep: str | None = None) -> None:
        """Choose a new password, knowing the old one; all other sessions, links and tokens of this user end."""
        if self.check_password(name, old) is None:
            raise InvalidValue("The old password is not right.")
        hashed = self._hasher.hash(_password(new, name))
        with self._change() as link:
            link.execute("UPDATE person SET password = ? WHERE name = ?", (hashed, name))
            link.execute("DELETE FROM visit WHERE person = ? AND hash != ?", (name, _hash(keep or "")))
            link.execute("DELETE FROM link WHERE person = ?", (name,))
            link.execute("DELETE FROM token WHERE person = ?", (name,))

    def enter(self, user: User) -> Session:
        """A new session, never one that the browser brought along."""
        key, proof, now = secrets.token_urlsafe(32), secrets.token_urlsafe(32), self._clock()
        with self._change() as link:
            link.execute("DELETE FROM visit WHERE seen < ? OR began < ?", (now - IDLE, now - LONGEST))
            link.execute("INSERT INTO visit VALUES (?, ?, ?, ?, ?)", (_hash(key), user.name, proof, now, now))
        return Session(user, proof, key)

    def session(self, key: str) -> Session | None:
        """The session of a cookie, unless it was idle or lasted too long."""
        hashed, now = _hash(key), self._clock()
        rows = self._rows(
            f"SELECT v.proof, v.seen, v.began, {_FIELDS} FROM visit AS v JOIN person AS p ON p.name = v.person "
            "WHERE v.hash = ? AND p.active", (hashed,),
        )  # fmt: skip
        if not rows:
            return None
        proof, seen, began, *rest = rows[0]
        if seen < now - IDLE or began < now - LONGEST:
            return None
        if seen < now - 60:  # not at every click
            with self._change() as link:
                link.execute("UPDATE visit SET seen = ? WHERE hash = ?", (now, hashed))
        return Session(_user(rest), proof, key)

    def leave(self, key: str) -> None:
        """End a session."""
        with self._change() as link:
            link.execute("DELETE FROM visit WHERE hash = ?", (_hash(key),))

    # ---- tokens of programs ----------------------------------------------------------------------------------------------

    def new_token(self, user: User, label: str, days: float | None = None) -> str:
        """The secret a program sends as `Authorization: Bearer …`; it is shown once."""
        check.word("label", label)
        secret = f"discreet_{secrets.token_urlsafe(32)}"
        ends = None if days is None else self._clock() + 86400 * check.positive("days", days)
        with self._change() as link:
            count, last = link.execute(
                "SELECT count(*), coalesce(max(number), 0) FROM token WHERE person = ?", (user.name,)
            ).fetchone()
            if count >= MOST_TOKENS:
                raise InvalidValue(f"{user.name} has {count} tokens, the most there may be. Withdraw one first.")
            link.execute(
                "INSERT INTO token VALUES (?, ?, ?, ?, ?, ?)",
                (_hash(secret), last + 1, user.name, label[:80], self._now(), ends),
            )
        return secret

    def tokens(self, name: str) -> list[dict[str, Any]]:
        """The tokens of a user, without their secrets."""
        rows = self._rows("SELECT number, label, made, ends FROM token WHERE person = ? ORDER BY number", (name,))
        return [{"number": n, "label": label, "made": made, "ends": _told(ends)} for n, label, made, ends in rows]

    def end_token(self, name: str, number: int) -> None:
        """Withdraw a token."""
        with self._change() as link:
            if not link.execute("DELETE FROM token WHERE person = ? AND number = ?", (name, number)).rowcount:
                raise InvalidValue(f"There is no token {number} of {name}.")

    def bearer(self, secret: str) -> User | None:
        """The user of a token, if it is valid."""
        rows = self._rows(
            f"SELECT t.ends, {_FIELDS} FROM token AS t JOIN person AS p ON p.name = t.person WHERE t.hash = ? AND p.active",
            (_hash(secret),),
        )
        if not rows or (rows[0][0] is not None and rows[0][0] < self._clock()):
            return None
        return _user(rows[0][1:])

    # ---- the log ---------------------------------------------------------------------------------------------------------

    def note(self, who: str, what: str, about: str = "", **detail: Any) -> None:
        """Write down what someone did. Never a password, a secret or a value from a source.

        It is there once this returns, whatever becomes of the process. Nobody waits for the disk, so the last may be lost if
        the power fails; what was spent is in the ledger, which does wait.
        """
        row = (self._now(), _writable(who)[:80], _writable(what)[:80], _writable(about)[:300], _bounded(detail))
        with self._note_lock:
            self._notes.execute("INSERT INTO log (at, who, what, about, detail) VALUES (?, ?, ?, ?, ?)", row)

    def log(self, *, before: int | None = None, last: int = 100, who: str = "", what: str = "") -> list[dict[str, Any]]:
        """Notes, newest first. One whose detail cannot be read is listed as damaged, with what is left of it."""
        rows = self._rows(
            "SELECT number, at, who, what, about, detail FROM log WHERE number < ? AND (? = '' OR who = ?) "
            "AND (? = '' OR what = ?) ORDER BY number DESC LIMIT ?", (before or 2**62, who, who, what, what, last),
        )  # fmt: skip
        names = ("number", "at", "who", "what", "about", "detail")
        return [dict(zip(names, (row[0], *map(_writable, row[1:5]), _detail(row[5])))) for row in rows]

    def _now(self) -> str:
        return datetime.fromtimestamp(self._clock(), UTC).isoformat(timespec="seconds")

    def close(self) -> None:
        with self._lock, self._note_lock:
            self._notes.close()
            self._link.close()


def _connected(path: Path) -> sqlite3.Connection:
    return sqlite3.connect(path, isolation_level=None, check_same_thread=False, timeout=30)


_FIELDS = "p.name, p.role, p.account, p.active, p.password IS NOT NULL"
_USERS = f"SELECT {_FIELDS} FROM person AS p"


def _user(row: Any) -> User:
    name, role, account, active, welcome = row
    return User(name, role, account, bool(active), bool(welcome))


def _told(ends: float | None) -> str | None:
    return None if ends is None else datetime.fromtimestamp(ends, UTC).isoformat(timespec="seconds")


def _hash(secret: str) -> str:
    return hashlib.sha256(secret.encode("utf-8", "replace")).hexdigest()


def _writable(text: Any) -> str:
    """Text that a database and a page can hold: what is no character becomes a question mark."""
    return str(text).encode("utf-8", "replace").decode("utf-8").replace("\0", " ")


def _bounded(detail: dict[str, Any]) -> str:
    """The detail of a note as JSON of at most LONGEST_DETAIL characters: long texts are shortened, the document stays whole."""
    for longest in (4000, 1000, 200, 20):
        whole = json.dumps({_writable(name)[:80]: _shortened(value, longest) for name, value in list(detail.items())[:20]})
        if len(whole) <= LONGEST_DETAIL:
            return whole
    return json.dumps({"left out": "the detail was too long"})


def _shortened(value: Any, longest: int) -> Any:
    if value is None or isinstance(value, (bool, int)):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    text = _writable(value)
    return text if len(text) <= longest else f"{text[:longest]}…"


def _detail(text: Any) -> dict[str, Any]:
    """The detail of a note; of a damaged one what is left of it."""
    try:
        detail = json.loads(text)
    except (ValueError, TypeError, RecursionError):
        detail = None
    if not isinstance(detail, dict):
        return {"damaged": _writable(text)[:200]}
    return {_writable(name): value if value is None or isinstance(value, (bool, int, float)) else _writable(value)
            for name, value in detail.items()}  # fmt: skip


def _named(name: str) -> str:
    if not NAME.fullmatch(name):
        raise InvalidValue(
            f"A name has 1 to 40 small letters, digits, dots, dashes and underscores, such as ada.lovelace; "
            f"got {check.shown(name)}."
        )
    if name == "default":
        raise InvalidValue("The name default stands for the account of the owners; choose another.")
    return name


def _password(password: str, name: str) -> str:
    if not SHORTEST_PASSWORD <= len(password) <= LONGEST_PASSWORD:
        raise InvalidValue(f"A password has {SHORTEST_PASSWORD} to {LONGEST_PASSWORD} characters; a few words make a good one.")
    if len(set(password)) < 5 or password.lower().replace(name, "").strip("0123456789!.-_ ") == "":
        raise InvalidValue("This password is guessed at once. Take a few words that nobody connects with you.")
    return password


def _hasher() -> Any:
    try:
        from argon2 import PasswordHasher
    except ImportError:
        raise MissingExtra("argon2-cffi", "serve", "The web app") from None
    return PasswordHasher(**HASHING)
