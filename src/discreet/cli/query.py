"""`discreet query`: private SQL over a file or a database."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from discreet.cli import COMMANDS
from discreet.cli.output import json_option, table, talk, tell_readings, write_json
from discreet.cli.releases import budget, naming_ledger
from discreet.cli.units import FORM, read_unit

if TYPE_CHECKING:
    from discreet.core import Release


_INLINE = 2000  # cells that release.json holds itself, so that a report shows them; all of them are in table.parquet


@click.command("query", help=COMMANDS["query"])
@click.argument("location")
@click.argument("sql")
@click.option("--unit", metavar=FORM, default="record", show_default=True, help="The protected unit: record, or user:KEY.")
@click.option("--unit-rows", type=int, help="The most rows of one user that count; needed with user:KEY.")
@click.option("--epsilon", type=float, required=True, help="What the answer may give away at most.")
@click.option("--delta", type=float, help="Needed where the names of groups are not public.")
@click.option("--groups", type=int, help="The most groups of one unit that count; units are then sampled.")
@click.option(
    "--confidence", type=float, default=0.95, show_default=True, help="How often each interval holds the answer without noise."
)
@click.option(
    "--noise", type=click.Choice(["laplace", "gaussian"]), help="By default the one with less noise; gaussian needs a delta."
)
@click.option("--bias", is_flag=True, help="Also release, from the same epsilon, the shares of values clamped and rows cut.")
@click.option("--keys", multiple=True, metavar="NAME=A,B", help="The public groups of a key; may be given several times.")
@click.option("--table", "tables", multiple=True, metavar="NAME=FILE", help="One more table; may be given several times.")
@click.option("--bounds", multiple=True, metavar="COLUMN=LOW:HIGH", help="The range of a column; may be given several times.")
@click.option("--schema", metavar="FILE", help="A schema.toml with ranges, public values and public tables.")
@click.option("--ledger", metavar="FILE|URL", envvar="DISCREET_LEDGER", help="The ledger that keeps the budget of --source.")
@click.option("--source", help="The name of the source in the ledger.")
@click.option("--account", help="The account to charge.")
@click.option("-o", "--output", metavar="FOLDER", help="Write table.parquet and release.json there.")
@click.option("--dry-run", is_flag=True, help="Show cost and error; read and spend nothing.")
@json_option
def command(
    location: str, sql: str, unit: str, unit_rows: int | None, epsilon: float, delta: float | None, groups: int | None,
    confidence: float, noise: str | None, bias: bool, keys: tuple[str, ...], tables: tuple[str, ...], bounds: tuple[str, ...],
    schema: str | None, ledger: str | None, source: str | None, account: str | None,
    output: str | None, dry_run: bool, as_json: bool,
) -> None:  # fmt: skip
    from discreet.query import connect
    from discreet.schema import read

    paying: dict[str, Any] = budget(ledger, source, account)
    bounds_by_column = dict(_bounds(text) for text in bounds)
    unit_of_rows = read_unit(unit, unit_rows)
    asked: dict[str, Any] = {
        "epsilon": epsilon, "delta": delta, "groups": groups, "bias": bias, "confidence": confidence, "noise": noise,
    }  # fmt: skip
    with (
        naming_ledger(ledger),
        connect(_tables(location, tables), unit=unit_of_rows, bounds=bounds_by_column, schema=schema, **paying) as db,
    ):
        if dry_run:
            cost = db.explain(sql, **asked, keys=_keys(keys))
            write_json(cost.to_json()) if as_json else click.echo(str(cost))
            if schema is not None:
                tell_readings(read(schema).readings())
            return
        release = db.sql(sql, **asked, keys=_keys(keys))
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


def _tables(location: str, more: tuple[str, ...]) -> Any:
    """The tables by name, where there are several."""
    from discreet.errors import InvalidValue
    from discreet.query.engines.folders import table_name

    if not more:
        return location
    tables = {table_name(location): location}
    for text in more:
        name, _, place = text.partition("=")
        if not place or name in tables:
            raise InvalidValue(f"--table is like wards=wards.parquet, each name once; got {text[:60]!r}.")
        tables[name] = place
    return tables


def _keys(texts: tuple[str, ...]) -> dict[str, list[Any]]:
    """Public groups: TOML values, such as 1,2 or true,false or 2026-01-31, or texts."""
    import tomllib

    from discreet.errors import InvalidValue

    keys: dict[str, list[Any]] = {}
    for text in texts:
        name, equal, items = text.partition("=")
        if not equal or not items or name in keys:
            raise InvalidValue(f"--keys is like ward=A,B, each name once; got {text[:60]!r}.")
        try:
            keys[name] = tomllib.loads(f"v = [{items}]")["v"]
        except ValueError:  # no TOML, or a number of thousands of digits
            keys[name] = items.split(",")
    return keys


def _show(release: Release[Any], as_json: bool) -> None:
    from discreet.query.explain import why_empty

    columns: dict[str, list[Any]] = release.value.to_pydict()
    if as_json:
        columns = {name: [_plain(item) for item in items] for name, items in columns.items()}
        claims = [claim.to_json() for claim in release.claims]
        write_json({"source": release.source, "entry": release.entry, "claims": claims, "columns": columns,
                    **({"bounding": release.facts["bounding"]} if "bounding" in release.facts else {})})  # fmt: skip
        return
    table([[_cell(item) for item in row] for row in zip(*columns.values())], heads=list(columns))
    if "bounding" in release.facts:
        talk(f"Note: {release.facts['bounding']}")
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
    columns = {name: [_plain(item) for item in items] for name, items in release.value.to_pydict().items()}
    small = sum(map(len, columns.values())) <= _INLINE
    (release.map(lambda _: {"columns": columns}) if small else release).save(folder / "release.json")
    talk(f"The answer: {folder / 'table.parquet'}   what it claims: {folder / 'release.json'}")
