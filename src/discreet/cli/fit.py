"""`discreet fit`: a private linear model of a table, with its claim."""

from __future__ import annotations

from pathlib import Path
from shlex import quote
from typing import Any

import click

from discreet.cli import COMMANDS
from discreet.cli.output import json_option, talk, tell_readings, write_json
from discreet.cli.releases import budget

MODELS = ("logistic", "svm", "regression")


@click.command("fit", help=COMMANDS["fit"])
@click.argument("model", type=click.Choice(MODELS))
@click.argument("location")
@click.option("--target", required=True, help="The column to predict.")
@click.option("--columns", "columns_file", metavar="FILE", required=True,
              help="A schema.toml: for each column its range, its bins or its categories.")  # fmt: skip
@click.option("--classes", help="logistic, svm: the values that the target can have, such as no,yes.")
@click.option("--bounds", nargs=2, type=float, help="regression: the least and the largest value of the target.")
@click.option("--epsilon", type=float, required=True, help="What the model may give away at most.")
@click.option("--delta", type=float, required=True, help="The probability with which epsilon may be exceeded.")
@click.option("--relation", type=click.Choice(["add_remove", "replace"]), default="add_remove", show_default=True,
              help="Whether a row is added and removed, or replaced by another.")  # fmt: skip
@click.option("--ledger", metavar="FILE|URL", envvar="DISCREET_LEDGER", help="The ledger that keeps the budget of --source.")
@click.option("--source", help="The name of the source in the ledger.")
@click.option("-o", "--output", metavar="FILE", required=True, help="Write the release there: coefficients and claim, as JSON.")
@json_option
def command(
    model: str, location: str, target: str, columns_file: str, classes: str | None, bounds: tuple[float, float] | None,
    epsilon: float, delta: float, relation: str, ledger: str | None, source: str | None, output: str, as_json: bool,
) -> None:  # fmt: skip
    from discreet.core import record
    from discreet.learn.estimators.features import Features
    from discreet.models.tables import read_private

    paying = budget(ledger, source)
    known, of_target = known_columns(columns_file, location, target)
    features = Features(known)
    classes, bounds = of_the_target(model, classes, bounds, of_target)
    place = writable(Path(output))
    given: dict[str, Any] = {"epsilon": epsilon, "delta": delta, "norm": features.norm, "unit": record(relation), **paying}
    estimator = _estimator(model, classes, bounds, given)
    table = read_private(location, [*features.known, target])
    y, kept = labels_of(target, table[target].tolist(), None if classes is None else estimator.classes)
    release = estimator.fit(features(table)[kept], y[kept]).release_
    about = {"model": model, "target": target, "columns": dict(features.known), "margin": getattr(estimator, "margin", 0.0),
             "epsilon": epsilon, "delta": delta}  # fmt: skip
    release = release.map(lambda value: {**about, **value})
    release.save(place)
    _tell(release, place, as_json)


def known_columns(path: str, location: str, target: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """What the schema says of the columns to learn from, told to the user; and what it says of the target."""
    from discreet import schema

    columns = schema.read(path, "it says what is known of each column, as in age = [0, 120].").one(Path(location).stem)
    of_target = columns.pop(target, {})
    known = {name: schema.learned(name, facts, "this model", bins=True) for name, facts in columns.items()}
    tell_readings({name: schema.reading(facts) for name, facts in columns.items()})
    return {name: said for name, said in known.items() if said is not None}, of_target


def of_the_target(
    model: str, classes: str | None, bounds: tuple[float, float] | None, facts: dict[str, Any]
) -> tuple[str | None, tuple[float, float] | None]:
    """The classes or the range of the target: as the options say, else as the schema does."""
    from discreet.errors import InvalidValue
    from discreet.schema import reading

    if model != "regression" and ("bounds" in facts or "bins" in facts):
        raise InvalidValue(f"The column that is the target is {reading(facts)} in the schema, and a classifier needs "
                           "categories there: { categories = [0, 1] } where they are numbers.")  # fmt: skip
    if classes is None and bounds is None:
        if model == "regression" and "bounds" in facts:
            return None, facts["bounds"]
        if model != "regression" and facts.get("values"):
            return ",".join(map(str, facts["values"])), None
    return classes, bounds


def _estimator(model: str, classes: str | None, bounds: tuple[float, float] | None, given: dict[str, Any]) -> Any:
    from discreet.errors import InvalidValue
    from discreet.learn import LinearRegression, LinearSVC, LogisticRegression

    if model == "regression":
        if bounds is None or classes is not None:
            raise InvalidValue("A regression needs the public range of its target, and no classes: --bounds 0 100.")
        return LinearRegression(**given, bounds=bounds)
    if classes is None or bounds is not None:
        raise InvalidValue("A classifier needs the values that its target can have, and no bounds: --classes no,yes.")
    names = [name.strip() for name in classes.split(",")]
    return (LogisticRegression if model == "logistic" else LinearSVC)(**given, classes=names)


def labels_of(target: str, cells: list[Any], classes: list[str] | None) -> tuple[Any, Any]:
    """The target of each row, and which rows have one, a class or a finite number; the others are left out."""
    import numpy as np

    from discreet.columns import missing
    from discreet.errors import InvalidValue
    from discreet.learn.estimators.rows import number

    if classes is None:
        y = np.array([number(cell) for cell in cells])
        kept = np.isfinite(y)
    else:
        texts = ["" if missing(cell) else str(cell) for cell in cells]
        kept = np.array([text in classes for text in texts])
        y = np.array([text if text in classes else "" for text in texts])  # no wider than a class, however long a cell is
    if not kept.any():
        what = "a finite number" if classes is None else f"one of the classes {', '.join(classes)}; all are none of the classes"
        raise InvalidValue(f"No row has a {target} that is {what}. Nothing was spent.")
    return y, kept


def writable(place: Path) -> Path:
    """The file's place, tried before anything is spent."""
    from discreet.core.document import keep_keys
    from discreet.errors import InvalidValue

    keep_keys(place)
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        with place.open("ab"):
            pass
    except OSError as error:
        raise InvalidValue(f"{place} cannot be written: {error.strerror or error}. Nothing was spent.") from None
    return place


def _tell(release: Any, place: Path, as_json: bool) -> None:
    if as_json:
        write_json({"source": release.source, "entry": release.entry, "claims": [claim.to_json() for claim in release.claims],
                    "value": release.value, "release": str(place)})  # fmt: skip
    talk(f"A {release.value['model']} model of {release.value['target']} from {len(release.value['columns'])} columns: {place}")
    talk(f"Predict with it: discreet predict {quote(str(place))} TABLE")
    if release.entry is None:
        talk("Nobody adds up what was asked: give --ledger and --source to spend from a budget.")
    else:
        talk(f"Charged as entry {release.entry} of {release.source}.")
