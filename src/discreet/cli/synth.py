"""`discreet synth`: a private table in, a synthetic one out, with its claim."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from discreet.cli import COMMANDS
from discreet.cli.output import json_option, talk, write_json
from discreet.cli.releases import budget
from discreet.cli.sample import MODEL, checked, made_folder, write_tables
from discreet.cli.units import FORM, read_unit


@click.command("synth", help=COMMANDS["synth"])
@click.argument("location")
@click.option("--schema", metavar="FILE", required=True, help="A schema.toml with each column's type, range or categories.")
@click.option("--epsilon", type=float, required=True, help="What the synthetic table may give away at most.")
@click.option("--delta", type=float, required=True, help="The probability with which epsilon may be exceeded.")
@click.option("--unit", metavar=FORM, default="record", show_default=True, help="The protected unit: record, or user:KEY.")
@click.option("--unit-rows", type=int, help="The most rows of one user that count; needed with user:KEY.")
@click.option("--relation", type=click.Choice(["add_remove", "replace"]), default="add_remove", show_default=True,
              help="Whether a unit is added and removed, or replaced by another.")  # fmt: skip
@click.option("--method", type=click.Choice(["auto", "independent", "tree", "junction", "aim"]), default="auto",
              show_default=True, help="How the table is modelled.")  # fmt: skip
@click.option("--rows", type=int, help="How many rows to make; by default as many as the table has, by a noisy count.")
@click.option("--ledger", metavar="FILE|URL", envvar="DISCREET_LEDGER", help="The ledger that keeps the budget of --source.")
@click.option("--source", help="The name of the source in the ledger.")
@click.option("--account", help="The account to charge.")
@click.option(
    "-o", "--output", metavar="FOLDER", help="Write model.npz, synthetic.parquet, marginals.parquet and release.json there."
)
@click.option("--fidelity-epsilon", type=float, metavar="E",
              help="Also pay this much to tell how near the table is to the real one; written to fidelity.json.")  # fmt: skip
@click.option("--table", metavar="NAME", help="Which table, where LOCATION holds several; with --child, that of the parents.")
@click.option("--child", metavar="FILE|NAME",
              help="Rows that belong to those of LOCATION by the key of --unit; of each, --unit-rows count.")  # fmt: skip
@click.option("--explain", is_flag=True, help="Show cost, split, noise and expected error; read and spend nothing.")
@json_option
def command(
    location: str, schema: str, epsilon: float, delta: float, unit: str, unit_rows: int | None, relation: str,
    method: str, rows: int | None, ledger: str | None, source: str | None, account: str | None, output: str | None,
    fidelity_epsilon: float | None, table: str | None, child: str | None, explain: bool, as_json: bool,
) -> None:  # fmt: skip
    from discreet import synth
    from discreet.core import check
    from discreet.errors import InvalidValue

    rows = checked(rows)  # what is wrong is told before anything is spent
    if fidelity_epsilon is not None and not 1e-6 <= check.positive("fidelity-epsilon", fidelity_epsilon) <= 100:
        raise InvalidValue(f"--fidelity-epsilon must be between 1e-6 and 100; got {fidelity_epsilon:g}.")

    paying: dict[str, Any] = budget(ledger, source, account)
    whose = read_unit(unit, unit_rows, relation)
    given: dict[str, Any] = {"unit": whose, "epsilon": epsilon, "delta": delta, "schema": schema, "method": method}
    if child is not None:
        if fidelity_epsilon is not None:
            raise InvalidValue("Fidelity is of one table; leave --fidelity-epsilon out where there is a --child.")
        place, how = _two_tables(location, table, child)
        given |= how
    else:
        place, given["name"] = location, table
    if explain:
        explained = (synth.explain if child is None else synth.explain_linked)(place, **given)
        write_json(explained.to_json()) if as_json else click.echo(str(explained))
        return
    if output is None:
        raise InvalidValue("Say where the synthetic table goes: -o FOLDER; or ask what it would cost: --explain.")
    folder = made_folder(Path(output))
    given["keep"] = folder / MODEL
    talk("Numbers outside their bounds are moved to the nearer end; a value that is not listed counts as missing.")
    talk("Counting inside the engine, and estimating …")
    release: Any = (synth.fit if child is None else synth.fit_linked)(place, **given, **paying)
    talk(f"The model is in {folder / MODEL}: discreet sample makes more rows of it, at no cost.")
    write_tables(release, folder, folder / MODEL, rows, as_json)
    if fidelity_epsilon is not None:
        near = synth.release_fidelity(location, release.value, unit=whose, epsilon=fidelity_epsilon, delta=delta,
                                      schema=schema, name=table, **paying)  # fmt: skip
        _save_fidelity(near, folder)


def _two_tables(location: str, table: str | None, child: str) -> tuple[Any, dict[str, str]]:
    """Where the tables are, and what they are called: two files, or two tables of a database."""
    from discreet.errors import InvalidValue

    if Path(child).suffix and Path(child).exists():
        names = {"parent": Path(location).stem, "child": Path(child).stem}
        return {names["parent"]: location, names["child"]: child}, names
    if table is None:
        raise InvalidValue(f"{child[:200]} is no file here. With the files of both tables: discreet synth users.parquet "
                           "--child ratings.parquet; in a database, name the parents too: --table users.")  # fmt: skip
    return location, {"parent": table, "child": child}


def _save_fidelity(near: Any, folder: Path) -> None:
    """Noisy distances as a release of their own, beside the table's."""
    from dataclasses import replace

    talk(str(near.value))  # it is paid for, whether it can be written or not
    distances = near.value.to_json()
    replace(near, value=distances["means"], facts={**near.facts, "fidelity": distances}).save(folder / "fidelity.json")
    talk(f"How near it is, with noise: {folder / 'fidelity.json'}")
