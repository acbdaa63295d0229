"""A budget (epsilon, delta) in the ledger holds one release of exactly that, and tells charges as they were asked for."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from discreet import Ledger, record
from discreet.accounting import Approximate, Gaussian, Laplace, Poisson, Pure, Repeat, calibrate, curve
from discreet.charts import card
from discreet.core import Claim, Event, Game
from discreet.errors import BudgetExceeded, InvalidValue, LedgerError
from discreet.ledger import Amount
from discreet.ledger.chain import canonical
from discreet.ledger.history import cost_in_words
from discreet.ledger.store import migrations

EXACT = Gaussian(calibrate(Gaussian, 1.0, 1e-5))
ASKED = (1.0, 1e-5)
OLDER = json.loads((Path(__file__).parent / "older.json").read_text())


def claim(event: Event) -> Claim:
    return Claim(game=Game(record(), {"answers"}), event=event)


@pytest.fixture(params=["sqlite", "postgres"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return request.getfixturevalue("postgres_url") if request.param == "postgres" else str(tmp_path / "ledger.db")


@pytest.fixture
def ledger(place: str) -> Iterator[Ledger]:
    with Ledger(place) as opened:
        opened.open("people", unit=record(), epsilon=1.0, delta=1e-5)
        yield opened


@pytest.fixture
def local(tmp_path: Path) -> Iterator[Ledger]:
    with Ledger(tmp_path / "local.db") as opened:
        opened.open("people", unit=record(), epsilon=1.0, delta=1e-5)
        yield opened


def test_a_budget_holds_one_release_of_exactly_its_size(ledger: Ledger) -> None:
    with ledger.reserve("people", claim(EXACT), asked=ASKED):
        pass
    found = ledger.balance("people")
    assert (found.epsilon_spent, found.epsilon_left, found.part_spent, found.basic) == (1.0, 0.0, 1.0, True)
    assert found.limit == Amount(0, 10**9, 10**13)
    assert found.total_in_words() == "by basic composition"
    for event, asked in (
        (EXACT, ASKED),
        (EXACT, None),
        (Gaussian(1e5), None),
        (Pure(0.01), None),
        (Approximate(0.0, 1e-12), None),
    ):
        with pytest.raises(BudgetExceeded):
            ledger.reserve("people", claim(event), asked=asked)
    with pytest.raises(BudgetExceeded, match=r"epsilon 0 at delta 0 is left of 1 .* asks epsilon 1 at delta 1e-5"):
        ledger.reserve("people", claim(EXACT), asked=ASKED)
    with pytest.raises(BudgetExceeded, match=r"adds up .* Say what it was made for"):
        ledger.reserve("people", claim(EXACT))
    ledger.verify()


@pytest.mark.parametrize("failure", [None, 0.0, 1e-7])
@pytest.mark.parametrize("asked", [None, ASKED])
def test_whatever_was_set_aside_for_failures(local: Ledger, failure: float | None, asked: tuple[float, float] | None) -> None:
    local.open("whole", unit=record(), epsilon=1.0, delta=1e-5, failure=failure)
    local.reserve("whole", claim(EXACT), asked=asked)
    assert local.spent("whole") == pytest.approx(1.0, rel=1e-5)
    local.verify()


def test_a_release_that_may_fail_with_all_of_delta(local: Ledger) -> None:
    """Half of delta is set aside for such events; as the first and only one it may take the rest as well."""
    with pytest.raises(BudgetExceeded):
        local.reserve("people", claim(Approximate(1.0, 1.1e-5)))
    assert local.balance("people", "default").holds_first(Amount(10**15, 10**9, 10**13))
    assert not local.balance("people", "default").holds_first(Amount(10**15, 10**9, 10**13 + 1))
    local.reserve("people", claim(Approximate(1.0, 1e-5)))
    assert local.spent("people") == 1.0
    assert not local.balance("people", "default").holds_first(Amount(1, 1, 1))
    local.open("none", unit=record(), epsilon=1.0, delta=1e-5, failure=0.0)
    with pytest.raises(BudgetExceeded, match="failure probability"):
        local.reserve("none", claim(Approximate(1.0, 1e-5)))


def test_pairs_add_up_and_a_raised_budget_goes_on_to_add_them(ledger: Ledger) -> None:
    runs = Repeat(Poisson(0.1, Gaussian(calibrate(lambda s: Repeat(Poisson(0.1, Gaussian(s)), 50), 0.95, 5e-6))), 50)
    ledger.reserve("people", claim(EXACT), asked=ASKED).cancel("did_not_run")
    ledger.reserve("people", claim(EXACT), asked=(1.0, 1e-5))
    ledger.raise_budget("people", epsilon=2.0, delta=2e-5, by="owner", reason="a second run")
    assert ledger.balance("people").limit == Amount(0, 2 * 10**9, 2 * 10**13)
    ledger.reserve("people", claim(runs), asked=(0.95, 5e-6))
    ledger.reserve("people", claim(Pure(0.05)))
    found = ledger.balance("people")
    assert (found.epsilon_spent, found.epsilon_left, found.left.failure) == (2.0, 0.0, 5 * 10**12)
    ledger.verify()


def test_after_a_cancelled_first_charge_all_ways_are_open_again(ledger: Ledger) -> None:
    usual = ledger.balance("people").limit
    ledger.reserve("people", claim(EXACT), asked=ASKED).cancel("withdrawn")
    for _ in range(3):
        ledger.reserve("people", claim(Gaussian(30.0)))
    found = ledger.balance("people")
    assert (found.limit, found.basic) == (usual, False)
    ledger.verify()


def test_once_an_answer_may_exist_nothing_switches(local: Ledger) -> None:
    """A charge that stands keeps its source at what the first one decided, though the first was cancelled."""
    local.raise_budget("people", epsilon=1.2, delta=1e-5, by="owner", reason="room for both")
    first = local.reserve("people", claim(Gaussian(calibrate(Gaussian, 1.1, 9e-6))), asked=(1.1, 9e-6))
    local.reserve("people", claim(Pure(0.1)))
    first.cancel("withdrawn")
    assert local.balance("people").basic
    with pytest.raises(BudgetExceeded):
        local.reserve("people", claim(Gaussian(100.0)))  # which divergences would have held
    local.verify()


def test_a_shared_source_stays_as_it_is(local: Ledger) -> None:
    local.share("people", "ann", 0.25, by="owner")
    with pytest.raises(BudgetExceeded):
        local.reserve("people", claim(EXACT), asked=ASKED)
    sampled = Poisson(0.5, Approximate(1.0, 6e-6))  # which has no Rényi divergence
    assert curve(sampled).epsilon(3e-6) < 0.75
    local.reserve("people", claim(sampled), asked=(0.75, 3e-6))  # within the account's part of what is set aside for failures
    assert not local.balance("people").basic
    assert local.spent("people") == 0.75
    for asked in ((0.25, 2e-6), (0.3, 1e-6)):
        with pytest.raises(BudgetExceeded, match="no bound of order"):
            local.reserve("people", claim(Poisson(0.1, Approximate(0.5, 1e-6))), asked=asked, account="ann")
    local.reserve("people", claim(Poisson(0.1, Approximate(0.5, 1e-6))), asked=(0.25, 1e-6), account="ann")
    assert local.spent("people") == 1.0
    local.verify()


def test_a_source_that_was_shared_after_all_was_cancelled_can_be_charged(local: Ledger) -> None:
    local.reserve("people", claim(EXACT), asked=ASKED).cancel("withdrawn")
    local.share("people", "ann", 0.5, by="owner")
    local.reserve("people", claim(Pure(0.5)), account="ann")
    local.reserve("people", claim(Gaussian(calibrate(Gaussian, 0.5, 5e-6))), asked=(0.5, 5e-6))
    assert (local.spent("people"), local.balance("people").basic) == (1.0, True)
    local.verify()


def test_an_account_that_has_all_of_a_source_takes_no_more_than_its_limits(local: Ledger) -> None:
    local.share("people", "ann", 1.0, by="owner")
    with pytest.raises(BudgetExceeded):
        local.reserve("people", claim(EXACT), asked=ASKED, account="ann")
    local.reserve("people", claim(Pure(1.0)), account="ann")
    local.verify()


def test_what_was_asked_is_checked(local: Ledger) -> None:
    with pytest.raises(InvalidValue, match="is proven to keep"):
        local.reserve("people", claim(EXACT), asked=(0.9, 1e-5))
    assert [entry.kind for entry in local.history("people")] == ["open", "refuse"]
    assert local.spent("people") == 0


def test_of_two_first_charges_one_takes_all(ledger: Ledger, place: str) -> None:
    def charge(_: int) -> bool:
        with Ledger(place) as own:
            try:
                own.reserve("people", claim(EXACT), asked=ASKED)
            except BudgetExceeded:
                return False
            return True

    with ThreadPoolExecutor(6) as pool:
        assert sum(pool.map(charge, range(6))) == 1
    assert ledger.spent("people") == 1.0
    ledger.verify()


def test_a_charge_is_told_as_it_was_asked(ledger: Ledger) -> None:
    ledger.open("study", unit=record(), epsilon=10.0, delta=1e-5)
    run = Gaussian(calibrate(Gaussian, 3.0, 1e-6))
    ledger.reserve("study", claim(run), asked=(3.0, 1e-6))
    found = ledger.balance("study")
    assert not found.basic
    assert found.epsilon_spent == 3.0 < found.totals["renyi"]
    assert found.total_in_words().startswith("by basic composition (Rényi divergences of order 3.5")
    assert ledger.balance("study", "default").epsilon_spent == 3.0
    ledger.reserve("study", claim(run), asked=(3.0, 1e-6)).cancel("withdrawn")
    assert ledger.spent("study") == 3.0
    for event in (Pure(0.5), Approximate(0.25, 1e-7), Gaussian(20.0)):
        ledger.reserve("study", claim(event))
    told = [cost_in_words(entry) for entry in ledger.history("study") if entry.kind == "reserve"]
    assert told[0] == told[1] == "epsilon 3 at delta 1e-6"
    assert told[2] == "epsilon 0.5"
    assert told[3].startswith("epsilon 0.25 at delta 1e-7")
    assert told[4].startswith("divergence 0.00")
    assert "epsilon 3 at delta 1e-6" in card(ledger)
    ledger.verify()


@pytest.mark.parametrize("change", ["UPDATE asked SET epsilon = 1", "DELETE FROM asked"])
def test_what_was_asked_cannot_be_changed_unnoticed(tmp_path: Path, change: str) -> None:
    path = tmp_path / "ledger.db"
    with Ledger(path) as ledger:
        ledger.open("people", unit=record(), epsilon=9.0, delta=1e-5)
        ledger.reserve("people", claim(EXACT), asked=ASKED)
    link = sqlite3.connect(path)
    with pytest.raises(sqlite3.IntegrityError):
        link.execute(change)
    for trigger in ("asked_is_never_changed", "asked_is_never_removed"):
        link.execute(f"DROP TRIGGER {trigger}")
    link.execute(change)
    link.commit()
    link.close()
    with Ledger(path) as ledger, pytest.raises(LedgerError, match="terms of 2 are not what"):
        ledger.verify()


@pytest.mark.parametrize(
    "change",
    [
        ("1-", "UPDATE source SET divergence_limit = 10"),
        ("2-", "UPDATE source SET failure_limit = failure_limit + 1"),
    ],
)
def test_limits_that_no_entry_tells_are_found(tmp_path: Path, change: tuple[str, str]) -> None:
    path = tmp_path / "ledger.db"
    with Ledger(path) as ledger:
        ledger.open("people", unit=record(), epsilon=1.0, delta=1e-5)
        ledger.reserve("people", claim(EXACT), asked=ASKED)
    link = sqlite3.connect(path)
    link.execute(change[1])
    link.commit()
    link.close()
    with Ledger(path) as ledger, pytest.raises(LedgerError, match="are not what the entries add up to"):
        ledger.verify()


def test_an_entry_that_switches_late_is_found(tmp_path: Path) -> None:
    """Rewritten from the beginning, chain and tables alike: a source whose second charge takes all of delta."""
    from discreet.ledger.chain import Entry
    from discreet.ledger.replay import Tables

    with Ledger(tmp_path / "ledger.db") as ledger:
        ledger.open("people", unit=record(), epsilon=1.0, delta=1e-5)
        ledger.reserve("people", claim(EXACT), asked=ASKED)
        opened, taken = ledger.history("people")
    early = Entry(2, taken.at, "reserve", "people", None, {**taken.body, "amount": Amount(1, 1, 1).to_json()}, "", "")
    early.body.pop("limit")
    tables = Tables()
    tables.apply(opened)
    tables.apply(early)
    with pytest.raises(LedgerError, match="no ledger writes such an entry"):
        tables.apply(taken)
    for limit in (Amount(1, 10**9, 10**13 + 1), Amount(0, 10**9, 10**13 - 1), Amount(0, 10**9 + 1, 10**13)):
        tables = Tables()
        tables.apply(opened)
        with pytest.raises(LedgerError, match="no ledger writes such an entry"):
            tables.apply(Entry(2, taken.at, "reserve", "people", None, {**taken.body, "limit": limit.to_json()}, "", ""))


def load_older(place: str) -> None:
    """The tables as the first schema had them, with what an earlier version wrote."""
    if place.startswith("postgresql"):
        import psycopg

        with psycopg.connect(place, autocommit=True) as link:
            link.execute("CREATE SCHEMA discreet")
            link.execute("CREATE TABLE discreet.ledger_version (version INTEGER NOT NULL)")
            link.execute("INSERT INTO discreet.ledger_version VALUES (1)")
            link.execute(migrations("postgres")[0].encode())
            for table, rows in OLDER.items():
                for row in rows:
                    values = ", ".join(["%s"] * len(row))
                    link.execute(
                        f"INSERT INTO discreet.{table} ({', '.join(row)}) VALUES ({values})".encode(), list(row.values())
                    )
        return
    link = sqlite3.connect(place)
    link.executescript(migrations("sqlite")[0])
    for table, rows in OLDER.items():
        for row in rows:
            link.execute(f"INSERT INTO {table} ({', '.join(row)}) VALUES ({', '.join('?' * len(row))})", list(row.values()))
    link.execute("PRAGMA user_version = 1")
    link.execute("PRAGMA application_id = 1685283698")
    link.commit()
    link.close()


def test_a_ledger_that_was_written_before_is_read_and_charged(place: str) -> None:
    load_older(place)
    with Ledger(place) as ledger:
        last = ledger.verify()
        assert last.startswith(f"{len(OLDER['entry'])}-")
        spent = {row["name"]: row["divergence_spent"] for row in OLDER["source"]}
        assert {name: ledger.balance(name).spent.divergence for name in ledger.sources()} == spent
        assert ledger.spent("people") == pytest.approx(0.5028930117973373, rel=1e-12)  # as it said before
        assert ledger.reserve("people", claim(Gaussian(20.0)), key="q").answer == [1, 2]
        ledger.reserve("people", claim(Laplace(10.0)))
        ledger.reserve("empty", claim(EXACT), asked=ASKED)
        ledger.reserve("visits", claim(Pure(0.1)), account="ann")
        assert ledger.spent("empty") == 1.0
        ledger.verify(last)
        charge = next(entry for entry in ledger.history("visits") if entry.kind == "reserve")
        assert cost_in_words(charge).startswith("epsilon 0.6 at")


@pytest.mark.parametrize("amount", [Amount(0, 0, 0), Amount(2**62 - 1, 5, 10**18)])
def test_amounts_are_spelled_one_way(amount: Amount) -> None:
    assert amount.text() == canonical(amount.to_json())
