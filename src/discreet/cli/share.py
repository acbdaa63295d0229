"""`discreet attack property`: what share of a model's training rows has a property."""

from __future__ import annotations

from typing import Any

import click

from discreet.cli.output import command_line, json_option, reported, talk, write_json
from discreet.errors import InvalidValue
from discreet.figures import place_name


@click.command("property")
@click.argument("weights", type=click.Path())
@click.option("--recipe", "recipe_file", required=True, metavar="FILE.py", help="Defines recipe = Recipe(…). This file is run.")
@click.option("--data", required=True, metavar="FILE", help="Rows of the attacker's own, of the same kind: parquet or CSV.")
@click.option("--has", required=True, metavar="COLUMN=VALUE", help="The property: which value of which column.")
@click.option("--rows", type=int, required=True, metavar="N", help="How many rows the model was trained on.")
@click.option("--target-column", default="label", show_default=True, metavar="NAME", help="The column with the labels.")
@click.option("--shadows", type=int, default=200, show_default=True, metavar="N", help="Models like it that are trained.")
@click.option(
    "--between", default="0.05,0.95", show_default=True, metavar="LOW,HIGH", help="The shares that shadows are trained with."
)
@click.option("--confidence", type=float, default=0.95, show_default=True, metavar="C", help="Of the interval.")
@click.option("--seed", type=int, default=0, show_default=True, metavar="N", help="Of shares and shadows.")
@click.option("--trust-pickle", is_flag=True, help="Read WEIGHTS by joblib, which runs what its maker put in.")
@click.option("-o", "--output", "out", type=click.Path(dir_okay=False), metavar="FILE", help="Write a release.json.")
@json_option
def property_command(
    weights: str, recipe_file: str, data: str, has: str, rows: int, target_column: str, shadows: int, between: str,
    confidence: float, seed: int, trust_pickle: bool, out: str | None, as_json: bool,
) -> None:  # fmt: skip
    """What share of the training rows of the model in WEIGHTS has a property?

    Shadow models of known shares are trained by the recipe, as one job. No row is drawn twice, so about as many rows of either
    kind are needed as the model was trained on; --between narrows the shares where there are fewer. The interval holds the
    share as often as --confidence says where shadows are trained as the model was, on rows of the same kind.
    """
    import numpy as np

    from discreet.attack.inversion import PropertyInference
    from discreet.models import Trainer
    from discreet.models.files import read_model, read_recipe
    from discreet.models.rows import class_numbers, read_rows

    column, value = _property(has)
    low, high = _ends(between)
    recipe = read_recipe(recipe_file, talk)
    model = read_model(weights, recipe, trust_pickle=trust_pickle, device="cpu")
    X, y, _, groups = read_rows(data, target_column, (column,))
    marked = np.array([_spelt(each) == value for each in np.asarray(groups[column]).tolist()])
    if not marked.any():
        raise InvalidValue(f"No row of {data!r} has {value!r} in the column {column!r}.")
    attack = PropertyInference(rows, shadows, low, high, seed)
    probes = X[np.random.default_rng(seed).permutation(len(X))[:200]]  # a file is often sorted
    with reported(shadows, "training shadows") as progress:
        found = attack.infer(
            model, Trainer(recipe), X, class_numbers(y, model, "data"), marked, probes, confidence=confidence,
            progress=progress,
        )  # fmt: skip
    facts = {**found.to_json(has), "shadows": shadows}
    if out:
        _save(out, weights, facts)
    write_json(facts) if as_json else click.echo(f"{has}: {found}; without the model ± {found.blind:.1%}")
    talk("This is about the training data as a whole: no claim about one unit bounds it.")


def _save(out: str, weights: str, facts: dict[str, Any]) -> None:
    from discreet.core import Release
    from discreet.core.facts import made

    name = place_name(weights)
    told = {"title": f"{name}, asked for a share of its rows", "made": made(command_line()), "shares": [facts]}
    Release(value={"model": name}, source=name, claims=(), facts=told).save(out)
    talk(f"written: {out}")


def _property(text: str) -> tuple[str, str]:
    column, sign, value = text.partition("=")
    if not (column and sign and value):
        raise InvalidValue(f"--has must be COLUMN=VALUE, such as sex=F; got {text!r}.")
    return column, value


def _ends(text: str) -> tuple[float, float]:
    try:
        low, high = (float(part) for part in text.split(","))
    except ValueError:
        raise InvalidValue(f"--between must be two shares, such as 0.2,0.8; got {text!r}.") from None
    return low, high


def _spelt(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)
