"""The configured sources: opened on first use, shared by all users, each charged to the user's own account."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from copy import copy
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from discreet.accounting.filter import Filter
from discreet.core import Event
from discreet.errors import DiscreetError, InvalidValue
from discreet.ledger import Balance, Ledger
from discreet.ledger.amount import cost
from discreet.serve.settings import Source
from discreet.serve.show import in_the_browser
from discreet.serve.users import User

if TYPE_CHECKING:
    from discreet.query import Database

DEFAULT = "default"


@dataclass(frozen=True, slots=True)
class Headroom:
    """Whether a charge fits now, and `Balance.epsilon_left` before and after it. Another charge may come first."""

    fits: bool
    refusal: str | None
    left_before: float
    left_after: float


class SourceRegistry:
    """The sources of this server. The ledger alone says what may be spent."""

    def __init__(self, ledger: Ledger, sources: Mapping[str, Source]) -> None:
        self.ledger, self.sources = ledger, sources
        self._opened: dict[str, Database] = {}
        self._locks = {name: threading.Lock() for name in sources}

    def account(self, user: User, source: str) -> str | None:
        """The account that a user spends from: their own where it has a share, for owners the default; else None."""
        if user.role == "officer":
            return None
        if user.role == "owner" and user.account == DEFAULT:
            return DEFAULT
        return user.account if user.account in self.ledger.accounts(source) else None

    def open_to(self, user: User) -> list[str]:
        """The sources that a user may query."""
        known = set(self.ledger.sources())
        return [name for name in self.sources if name in known and self.account(user, name) is not None]

    def database(self, user: User, source: str) -> Database:
        """The source for this user: every answer is charged to their account."""
        account = self.account(user, source) if source in self.sources and source in self.ledger.sources() else None
        if account is None:
            theirs = self.open_to(user)
            hint = f"You may ask {', '.join(theirs)}." if theirs else "An owner can give your account a share of a source."
            raise InvalidValue(f"{user.name} may not ask {source[:80]!r}. {hint}")
        try:
            database = copy(self._database(source))
        except DiscreetError as error:
            if user.role == "owner":
                raise
            raise InvalidValue(f"{source} cannot be opened now; an owner sees why. Nothing was spent.") from error
        database.account = account
        return database

    def _database(self, name: str) -> Database:
        with self._locks[name]:
            if name not in self._opened:
                from discreet.query import connect

                source = self.sources[name]
                database = connect(
                    source.location, unit=source.unit, ledger=self.ledger, source=name, bounds=source.bounds,
                    schema=source.schema,
                )  # fmt: skip
                self._opened[name] = database
            return self._opened[name]

    def tables(self, source: str) -> dict[str, dict[str, str]]:
        """The tables and columns of a source, with their types."""
        return self._database(source).tables()

    def headroom(self, source: str, account: str, event: Event) -> Headroom:
        """Whether a charge for this event would fit, by the sums the ledger keeps."""
        balance = self.ledger.balance(source, account)
        asked = cost(Filter(balance.epsilon, balance.delta, failure=balance.failure, order=balance.order), [event])
        both = [each for each in (balance, balance.whole) if each is not None]
        fits = all(each.holds(asked) for each in both) or balance.holds_first(asked)
        refusal = None if fits else in_the_browser(str(balance.refusal(asked)))
        return Headroom(fits, refusal, balance.epsilon_left, balance.after(asked).epsilon_left)

    def close(self) -> None:
        for database in self._opened.values():
            database.close()


def facts(balance: Balance) -> dict[str, Any]:
    """A balance as data."""
    return {
        "source": balance.source, "account": balance.account, "by_period": balance.by_period,
        "budget": {"epsilon": balance.epsilon, "delta": balance.delta, "failure": balance.failure, "order": balance.order},
        "spent": {"epsilon": balance.epsilon_spent, "part": balance.part_spent},
        "left": {"epsilon": balance.epsilon_left},
    }  # fmt: skip
