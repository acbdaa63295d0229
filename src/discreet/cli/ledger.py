"""`discreet ledger`: budgets for those who keep them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from shlex import quote
from typing import TYPE_CHECKING, Any

import click

from discreet.cli import CHECK_FAILED, COMMANDS
from discreet.cli.output import json_option, table, talk, write_json
from discreet.cli.releases import there
from discreet.cli.units import FORM, read_unit
from discreet.errors import LedgerError

if TYPE_CHECKING:
    from discreet.ledger import Balance, Entry, Ledger


@click.group("ledger", help=COMMANDS["ledger"])
def command() -> None: ...


def common(function: Callable[..., None]) -> Callable[..., None]:
    """What every subcommand takes."""
    place = click.option(
        "--ledger", "place", required=True, envvar="DISCREET_LEDGER", metavar="PATH_OR_URL",
        help="The ledger: a file, or postgresql://user@host/name. DISCREET_LEDGER says it too.",
    )  # fmt: skip
    return place(json_option(function))


def signed(function: Callable[..., None]) -> Callable[..., None]:
    """Who does it, and why."""
    by = click.option("--by", required=True, metavar="NAME", help="Who grants it.")
    return by(click.option("--reason", required=True, metavar="TEXT", help="The reason, kept in the ledger.")(function))


@contextmanager
def _opened(place: str, *, make: bool = False) -> Iterator[Ledger]:
    """The ledger. Only `open` makes a new one: a mistyped name must not look like an empty ledger."""
    from discreet.ledger import Ledger

    with Ledger(place if make else there(place)) as ledger:
        yield ledger


@command.command("open")
@click.argument("source")
@click.option("--unit", "named", required=True, metavar=FORM, help="The protected unit: record, or user:KEY.")
@click.option("--unit-rows", metavar="N|any", help="The most rows of one user that count; needed with user:KEY.")
@click.option(
    "--relation",
    type=click.Choice(["add_remove", "replace", "zero_out"]),
    default="add_remove",
    show_default=True,
    help="How the two worlds differ in it.",
)
@click.option("--epsilon", type=float, required=True, metavar="E", help="The most that all answers together may give away.")
@click.option("--delta", type=float, required=True, metavar="D", help="The probability with which epsilon may be exceeded.")
@click.option("--failure", type=float, metavar="F", help="Part of delta for events that may fail; half of it by default.")
@click.option("--fingerprint", metavar="TEXT", help="A fingerprint of the data; no two sources may have the same.")
@click.option("--by-period", is_flag=True, help="Every period of the source has this budget (see renew).")
@common
def open_(source: str, place: str, as_json: bool, named: str, unit_rows: str | None, relation: str, **terms: Any) -> None:
    """Give SOURCE, the people and not a table, its budget."""
    unit = read_unit(named, unit_rows, relation)
    with _opened(place, make=True) as ledger:
        _tell(ledger, ledger.open(source, unit=unit, **terms), as_json)


@command.command("show")
@click.argument("source", required=False)
@common
def show(source: str | None, place: str, as_json: bool) -> None:
    """Budget, spent and left: of SOURCE with its accounts, or of all sources."""
    with _opened(place) as ledger:
        if source is not None:
            _tell(ledger, ledger.balance(source), as_json)
            return
        balances = [ledger.balance(name) for name in ledger.sources()]
        if as_json:
            write_json({"sources": [_facts(item) for item in balances]})
        elif balances:
            table([(item.source, _budget(item), *_used_and_left(item)) for item in balances], heads=_HEADS)
        else:
            talk("The ledger has no sources.")


@command.command("history")
@click.argument("source", required=False)
@click.option("--last", type=click.IntRange(min=1), default=50, show_default=True, help="Show this many entries.")
@common
def history(source: str | None, last: int, place: str, as_json: bool) -> None:
    """The last entries, of SOURCE or of all."""
    from discreet.ledger.history import kind_in_words

    with _opened(place) as ledger:
        if source is not None:
            ledger.balance(source)  # says so if there is no such source
        every = ledger.history(source)
        entries, earlier = every[-last:], len(every) - last
    if as_json:
        write_json({"entries": [entry.to_json() for entry in entries]})
    else:
        named = source is None  # else every line would repeat it
        rows = [
            (each.id, each.at[:19].replace("T", " "), kind_in_words(each), *([each.source] if named else []), _short(each))
            for each in entries
        ]
        table(rows, heads=("entry", "at (UTC)", "what", *(["source"] if named else []), ""))
        if earlier > 0:
            talk(f"… and {earlier:,} earlier: --last {earlier + last} lists them too.")


@command.command("verify")
@click.option("--noted", metavar="ID", help="The id of an entry that was noted earlier; it must still be there.")
@common
def verify(noted: str | None, place: str, as_json: bool) -> None:
    """Follow every entry and add everything up again; exits with 1 and the entry at fault. What it cannot know is said."""
    with _opened(place) as ledger:
        try:
            last = ledger.verify(noted)
            unknown = ledger.cannot_know(noted)
        except LedgerError as error:
            if as_json:
                write_json({"verified": False, "entry": error.entry, "reason": str(error)})
            else:
                talk(f"Error: {error}")
            raise click.exceptions.Exit(CHECK_FAILED) from None
    if as_json:
        write_json({"verified": True, "last": last, "cannot_know": list(unknown)})
    else:
        click.echo(f"verified; the last entry is {last or 'none'}")
        for text in unknown:
            talk(f"What this cannot know: {text}")


@command.command("export")
@click.argument("source", required=False)
@common
def export(source: str | None, place: str, as_json: bool) -> None:
    """Every entry as a line of JSON, with its hash; --json changes nothing."""
    with _opened(place) as ledger:
        for line in ledger.export(source):
            click.echo(line)


@command.command("raise")
@click.argument("source")
@click.option("--epsilon", type=float, required=True, metavar="E", help="The new epsilon, not what is added.")
@click.option("--delta", type=float, required=True, metavar="D", help="The new delta.")
@click.option("--failure", type=float, metavar="F", help="The new part of delta for events that may fail.")
@signed
@common
def raise_(source: str, place: str, as_json: bool, **terms: Any) -> None:
    """Grant SOURCE a larger budget, in the open."""
    with _opened(place) as ledger:
        _tell(ledger, ledger.raise_budget(source, **terms), as_json)


@command.command("share")
@click.argument("source")
@click.argument("account")
@click.option("--part", type=float, required=True, metavar="P", help="The share of the whole budget, from 0 to 1.")
@click.option("--by", required=True, metavar="NAME", help="Who grants it.")
@common
def share(source: str, account: str, part: float, by: str, place: str, as_json: bool) -> None:
    """Move a part of SOURCE's budget to ACCOUNT."""
    with _opened(place) as ledger:
        ledger.share(source, account, part, by=by)
        _tell(ledger, ledger.balance(source), as_json)


@command.command("renew")
@click.argument("source")
@click.option("--period", required=True, metavar="NAME", help="Whose data is new, such as 2026-11; charged as SOURCE@NAME.")
@click.option("--fingerprint", metavar="TEXT", help="A fingerprint of the data.")
@signed
@common
def renew(source: str, place: str, as_json: bool, **terms: Any) -> None:
    """A fresh budget for the data of one period of SOURCE, which must have been opened --by-period."""
    with _opened(place) as ledger:
        _tell(ledger, ledger.renew(source, **terms), as_json)


LISTED = 10  # charges that `show` lists
_HEADS = ("source", "budget", "used", "left (epsilon of one more answer)")


def _tell(ledger: Ledger, balance: Balance, as_json: bool) -> None:
    from discreet.figures import up
    from discreet.ledger.summary import ADDS_UP, HEADS, shares

    parts = shares(balance)
    if as_json:
        accounts = [_facts(ledger.balance(balance.source, name)) for name in ledger.accounts(balance.source)]
        write_json({**_facts(balance), "accounts": accounts, "shares": [each.to_json() for each in parts]})
        return
    rows = [("source", balance.source), ("budget", _budget(balance)), ("used", _spent(balance)), ("left", _left(balance))]
    if balance.spent.divergence and not balance.by_period:
        rows.append(
            ("total", f"epsilon {up(balance.epsilon_spent)} at delta {up(balance.delta, 6)} {balance.total_in_words()}")
        )
    table(rows + _charges(ledger, balance.source))
    if len(parts) > 2:
        click.echo()
        table([each.told() for each in parts], heads=HEADS)
        talk(ADDS_UP)


def _charges(ledger: Ledger, source: str) -> list[tuple[str, str]]:
    """The last charges that stand, each in the terms in which it was asked for, and how many came before them."""
    from discreet.ledger.history import cost_in_words

    entries = ledger.history(source)
    stand: dict[int | None, Entry] = {}
    for entry in entries:
        if entry.kind == "reserve":
            stand[entry.number] = entry
        elif entry.kind == "cancel":
            stand.pop(entry.about, None)
    listed = [(f"charge {entry.id}", cost_in_words(entry)) for entry in list(stand.values())[-LISTED:]]
    if (earlier := len(stand) - len(listed)) > 0:
        listed.append(("…", f"and {earlier:,} earlier: discreet ledger history {quote(source)} --last {len(entries)}"))
    return listed


def _facts(balance: Balance) -> dict[str, Any]:
    return {
        "source": balance.source, "account": balance.account, "by_period": balance.by_period,
        "budget": {"epsilon": balance.epsilon, "delta": balance.delta, "failure": balance.failure, "order": balance.order},
        "spent": {
            "epsilon": balance.epsilon_spent, "part": balance.part_spent, "amount": balance.spent.to_json(),
            "ways": balance.totals,
        },
        "left": {"epsilon": balance.epsilon_left, "amount": balance.left.to_json()},
    }  # fmt: skip


def _budget(balance: Balance) -> str:
    from discreet.figures import up

    return f"epsilon {balance.epsilon:g} at delta {up(balance.delta, 6)}{' for each period' if balance.by_period else ''}"


def _spent(balance: Balance) -> str:
    from discreet.ledger.summary import used_in_percent

    if balance.by_period:
        return "by its periods"
    return f"{used_in_percent(balance)} of the budget ({balance.spent_in_words()})"


def _used_and_left(balance: Balance) -> tuple[str, str]:
    from discreet.figures import down
    from discreet.ledger.summary import used_in_percent

    by_periods = "by its periods"
    return (by_periods, by_periods) if balance.by_period else (used_in_percent(balance), down(balance.epsilon_left))


def _left(balance: Balance) -> str:
    return "by its periods" if balance.by_period else f"epsilon {balance.left_in_words()}"


def _short(entry: Entry) -> str:
    from discreet.figures import up

    body = entry.body
    parts = [f"account {body['account']}"] if body.get("account", "default") != "default" else []
    if "claims" in body:
        parts.append(", ".join(str(claim["event"]["kind"]) for claim in body["claims"]))
    if entry.kind == "reserve":
        from discreet.ledger.history import cost_in_words

        parts.append(cost_in_words(entry))
    parts += [str(body[name]) for name in ("outcome", "by", "reason") if name in body]
    if "epsilon" in body:
        parts.append(f"epsilon {body['epsilon']:g} at delta {up(body['delta'], 6)}")
    text = "; ".join(filter(None, parts))
    return text if len(text) <= 80 else f"{text[:77]}..."
