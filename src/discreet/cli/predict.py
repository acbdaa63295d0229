"""`discreet predict`: the classes of new rows, by a model that `discreet train` wrote."""

from __future__ import annotations

import csv
import sys
from pathlib import Path
from typing import Any

import click

from discreet.cli import COMMANDS
from discreet.cli.output import counted, json_option, talk, write_json


@click.command("predict", help=COMMANDS["predict"])
@click.argument("folder", metavar="FOLDER")
@click.argument("table", metavar="TABLE")
@click.option("--probabilities", is_flag=True, help="Tell the probability of every class beside the likeliest one.")
@click.option("-o", "--output", metavar="FILE.csv", help="Write to this file, not to stdout.")
@json_option
def command(folder: str, table: str, probabilities: bool, output: str | None, as_json: bool) -> None:
    from discreet.learn.table import load
    from discreet.models.tables import read_table

    classifier = load(folder)
    rows = read_table(table)
    shares = classifier.predict_proba(rows)
    predicted = [classifier.classes[place] for place in shares.argmax(1)]
    columns: dict[str, list[Any]] = {classifier.encoding.target: predicted}
    if probabilities:
        columns |= {f"probability of {name}": share.tolist() for name, share in zip(classifier.classes, shares.T, strict=True)}
    if as_json:
        write_json({"folder": folder, "entry": classifier.release.entry, **columns})
        return
    if output is None:
        _write(sys.stdout, columns)
        return
    with Path(output).open("w", newline="", encoding="utf-8") as file:
        _write(file, columns)
    talk(f"Wrote {counted(len(predicted), 'row')} to {output}.")


def _write(file: Any, columns: dict[str, list[Any]]) -> None:
    lines = csv.writer(file, lineterminator="\n")
    lines.writerow(columns)
    for row in zip(*columns.values(), strict=True):
        lines.writerow([f"{cell:.6g}" if isinstance(cell, float) else cell for cell in row])
