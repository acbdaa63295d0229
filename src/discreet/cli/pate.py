"""`discreet pate`: labels for public rows from teachers that voted in private."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from discreet.cli import COMMANDS
from discreet.cli.fit import known_columns, labels_of, of_the_target, writable
from discreet.cli.output import json_option, talk, write_json
from discreet.cli.releases import budget


@click.command("pate", help=COMMANDS["pate"])
@click.argument("location")
@click.argument("public")
@click.option("--target", required=True, help="The column of the private table that teachers learn.")
@click.option("--columns", "columns_file", metavar="FILE", required=True,
              help="A schema.toml: for each column its range, its bins or its categories.")  # fmt: skip
@click.option("--classes", required=True, help="The values that the target can have, such as no,yes.")
@click.option("--teachers", type=int, required=True, help="The number of teachers; each gets its own part of the private rows.")
@click.option("--answers", type=int, help="How many public rows get a label at most, the first ones; all of them by default.")
@click.option("--epsilon", type=float, required=True, help="What the labels may give away at most.")
@click.option("--delta", type=float, required=True, help="The probability with which epsilon may be exceeded.")
@click.option("--relation", type=click.Choice(["add_remove", "replace"]), default="add_remove", show_default=True,
              help="Whether a row is added and removed, or replaced by another.")  # fmt: skip
@click.option("--ledger", metavar="FILE|URL", envvar="DISCREET_LEDGER", help="The ledger that keeps the budget of --source.")
@click.option("--source", help="The name of the source in the ledger.")
@click.option(
    "-o", "--output", metavar="FILE", required=True, help="Write the release there: labels, counts and claim, as JSON."
)
@json_option
def command(
    location: str, public: str, target: str, columns_file: str, classes: str, teachers: int, answers: int | None,
    epsilon: float, delta: float, relation: str, ledger: str | None, source: str | None, output: str, as_json: bool,
) -> None:  # fmt: skip
    from sklearn.linear_model import LogisticRegression

    from discreet.core import record
    from discreet.learn import PATE
    from discreet.learn.estimators.features import Features
    from discreet.learn.pate import VoteRegressor
    from discreet.models.tables import read_private

    paying: dict[str, Any] = dict(budget(ledger, source))
    known, of_target = known_columns(columns_file, location, target)
    features = Features(known)
    of_the_target("pate", classes, None, of_target)
    names = [name.strip() for name in classes.split(",")]
    place = writable(Path(output))
    queries = features(read_private(public, [*features.known]))
    table = read_private(location, [*features.known, target])
    y, kept = labels_of(target, table[target].tolist(), names)
    model = PATE(
        LogisticRegression(C=10.0, solver="liblinear"), VoteRegressor(), teachers=teachers, epsilon=epsilon, delta=delta,
        unit=record(relation), classes=names, answers=answers, **paying,
    )  # fmt: skip
    release: Any = model.fit(features(table)[kept], y[kept], queries).release_
    labels = model.predict(queries).tolist()
    release = release.map(lambda value: {**value, "target": target, "student": labels})
    release.save(place)
    if as_json:
        write_json({"source": release.source, "entry": release.entry, "claims": [claim.to_json() for claim in release.claims],
                    "value": release.value, "release": str(place)})  # fmt: skip
    talk(
        f"{len(release.value['labels'])} public rows asked of {teachers} teachers, {len(labels)} labelled by a student: {place}"
    )
    if release.entry is None:
        talk("Nobody adds up what was asked: give --ledger and --source to spend from a budget.")
    else:
        talk(f"Charged as entry {release.entry} of {release.source}.")
