"""`discreet predict`: the classes or values of new rows, by a model that `discreet train` or `discreet fit` wrote."""

from __future__ import annotations

import csv
import sys
from pathlib import Path
from typing import Any

import click

from discreet.cli import COMMANDS
from discreet.cli.output import counted, json_option, talk, write_json
from discreet.errors import InvalidValue


@click.command("predict", help=COMMANDS["predict"])
@click.argument("place", metavar="MODEL")
@click.argument("table", metavar="TABLE")
@click.option("--probabilities", is_flag=True, help="Add the probability of every class.")
@click.option("-o", "--output", metavar="FILE.csv", help="Write to this file, not to stdout.")
@json_option
def command(place: str, table: str, probabilities: bool, output: str | None, as_json: bool) -> None:
    from discreet.models.tables import read_table

    model = _model(place)
    rows = read_table(table)
    columns: dict[str, list[Any]] = {model.target: model.predict(rows)}
    predicted = columns[model.target]
    if probabilities:
        shares = model.predict_proba(rows)
        if shares is None:
            raise InvalidValue(f"The model in {place} has no probabilities: a {model.kind} model tells classes or values only.")
        columns |= {f"probability of {name}": share.tolist() for name, share in zip(model.classes, shares.T, strict=True)}
    if as_json:
        write_json({"model": place, "entry": model.release.entry, **columns})
        return
    if output is None:
        _write(sys.stdout, columns)
        return
    with Path(output).open("w", newline="", encoding="utf-8") as file:
        _write(file, columns)
    talk(f"Wrote {counted(len(predicted), 'row')} to {output}.")


def _model(place: str) -> Any:
    """The model in a folder that `discreet train` wrote (or the release in it), or in a file of `discreet fit`."""
    path = Path(place)
    folder = path.parent if path.name == "release.json" and (path.parent / "model.safetensors").exists() else path
    if folder.is_dir():
        from discreet.learn.table import load

        return load(folder)
    from discreet.learn.estimators.saved import load_fit

    return load_fit(place)


def _write(file: Any, columns: dict[str, list[Any]]) -> None:
    lines = csv.writer(file, lineterminator="\n")
    lines.writerow(columns)
    for row in zip(*columns.values(), strict=True):
        lines.writerow([f"{cell:.6g}" if isinstance(cell, float) else cell for cell in row])
