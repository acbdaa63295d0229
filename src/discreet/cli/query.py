"""`discreet query`: private SQL over a file or a database."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from discreet.cli import COMMANDS
from discreet.cli.output import json_option, table, talk, write_json
from discreet.cli.releases import budget, naming_ledger
from discreet.cli.units import FORM, read_unit

if TYPE_CHECKING:
    from discreet.core import Release


@click.command("query", help=COMMANDS["query"])
@click.argument("location")
@click.argument("sql")
@click.option("--unit", metavar=FORM, default="record", show_default=True, help="What is protected: a row, or a person.")
@click.option("--unit-rows", type=int, help="The most rows of one user that count; needed with user:KEY.")
@click.option("--epsilon", type=float, required=True, help="What the answer may give away at most.")
@click.option("--delta", type=float, help="Needed where the names of groups are not public.")
@click.option("--groups", type=int, help="The most groups of one unit that count; units are then sampled.")
@click.option("--bias", is_flag=True, help="Tell also, from the same epsilon, the shares that were clamped and cut.")
@click.option("--bounds", multiple=True, metavar="COLUMN=LOW:HIGH", help="The range of a column; may be given several times.")
@click.option("--schema", metavar="FILE", help="A schema.toml with ranges, public values and public tables.")
@click.option("--ledger", metavar="FILE|URL", envvar="DISCREET_LEDGER", help="The ledger that keeps the budget of --source.")
@click.option("--source", help="The name of the source in the ledger.")
@click.option("--account", help="The account to charge.")
@click.option("-o", "--output", metavar="FOLDER", help="Write table.parquet and release.json there.")
@click.option("--dry-run", is_flag=True, help="Tell cost and error; read and spend nothing.")
@json_option
def command(
    location: str, sql: str, unit: str, unit_rows: int | None, epsilon: float, delta: float | None, groups: int | None,
    bias: bool, bounds: tuple[str, ...], schema: str | None, ledger: str | None, source: str | None, account: str | None,
    output: str | None, dry_run: bool, as_json: bool,
) -> None:  # fmt: skip
    from discreet.query import connect

    paying: dict[str, Any] = budget(ledger, source, account)
    bounds_by_column = dict(_bounds(text) for text in bounds)
    unit_of_rows = read_unit(unit, unit_rows)
    with (
        naming_ledger(ledger),
        connect(location, unit=unit_of_rows, bounds=bounds_by_column, schema=schema, **paying) as db,
    ):
        if dry_run:
            cost = db.explain(sql, epsilon=epsilon, delta=delta, groups=groups, bias=bias)
            write_json(cost.to_json()) if as_json else click.echo(str(cost))
            return
        release = db.sql(sql, epsilon=epsilon, delta=delta, groups=groups, bias=bias)
    if output is not None:
        _save(release, Path(output))
    _show(release, as_json)


def _bounds(text: str) -> tuple[str, tuple[float, float]]:
    from discreet.errors import InvalidValue

    name, _, pair = text.partition("=")
    low, _, high = pair.partition(":")
    try:
        return name, (float(low), float(high))
    except ValueError:
        raise InvalidValue(f"--bounds is like age=0:120; got {text[:60]!r}.") from None


def _show(release: Release[Any], as_json: bool) -> None:
    from discreet.query.explain import why_empty

    columns: dict[str, list[Any]] = release.value.to_pydict()
    if as_json:
        columns = {name: [_plain(item) for item in items] for name, items in columns.items()}
        claims = [claim.to_json() for claim in release.claims]
        write_json({"source": release.source, "entry": release.entry, "claims": claims, "columns": columns})
        return
    table([[_cell(item) for item in row] for row in zip(*columns.values())], heads=list(columns))
    if not next(iter(columns.values()), []):
        talk(why_empty(release))
    if release.entry is None:
        talk("Nobody adds up what was asked: give --ledger and --source to spend from a budget.")
    else:
        talk(f"Charged as entry {release.entry} of {release.source}.")


def _cell(value: Any) -> str:
    return f"{value:,.6g}" if isinstance(value, float) else "NULL" if value is None else str(value)


def _plain(value: Any) -> Any:
    return value if value is None or isinstance(value, (bool, int, float, str)) else str(value)


def _save(release: Release[Any], folder: Path) -> None:
    import pyarrow.parquet as parquet

    from discreet.errors import InvalidValue

    try:
        folder.mkdir(parents=True, exist_ok=True)
        parquet.write_table(release.value, folder / "table.parquet")
    except OSError as error:
        raise InvalidValue(f"{folder} cannot be written: {error.strerror or error}.") from None
    release.save(folder / "release.json")
    talk(f"The answer: {folder / 'table.parquet'}   what it claims: {folder / 'release.json'}")
