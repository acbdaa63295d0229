"""`discreet attack attribute`: what a linear model tells of a hidden column of its training rows, and of anybody."""

from __future__ import annotations

from typing import Any

import click

from discreet.cli.output import command_line, json_option, talk, write_json
from discreet.errors import InvalidValue
from discreet.figures import place_name


@click.command("attribute")
@click.argument("model", type=click.Path())
@click.argument("people", type=click.Path())
@click.option("--hidden", required=True, metavar="COLUMN", help="The column that is guessed; it holds categories.")
@click.option("--inside", required=True, metavar="COLUMN", help="A column that is 1 for who was in the training data, else 0.")
@click.option("--error", type=float, metavar="E",
              help="The regression's published standard error; by default it is measured on people outside.")  # fmt: skip
@click.option("--confidence", type=float, default=0.95, show_default=True, metavar="C", help="Confidence of the interval.")
@click.option(
    "-o", "--output", "out", type=click.Path(dir_okay=False), metavar="FILE", help="Write a release.json with the evidence."
)
@json_option
def attribute_command(
    model: str, people: str, hidden: str, inside: str, error: float | None, confidence: float, out: str | None, as_json: bool
) -> None:
    """What MODEL, a release of `discreet fit`, tells of a column of PEOPLE that is hidden from the attacker.

    The attacker knows everybody's other columns and outcome, tries every value, and asks the model (Fredrikson et al. 2014).
    The same attack on people who were not in the training data says how much of it is knowledge of the population.
    """
    import numpy as np

    from discreet.attack import AttributeInference, infer
    from discreet.core import Release
    from discreet.models.tables import read_table

    release = Release.load(model)
    value = release.value if isinstance(release.value, dict) else {}
    columns, target = value.get("columns", {}), value.get("target")
    known = columns.get(hidden)
    if value.get("model") not in ("regression", "logistic") or not target:
        raise InvalidValue(f"{model} is no logistic or regression model that discreet fit wrote.")
    if not isinstance(known, list) or not all(isinstance(word, str) for word in known):
        raise InvalidValue(f"--hidden must be a column of categories of this model; {hidden!r} is none.")
    table = read_table(people)
    lacking = [name for name in (*columns, target, inside) if name not in table]
    if lacking:
        raise InvalidValue(f"{people} has no column {', '.join(lacking)}.")
    was_in = np.asarray(table[inside]).astype(float) == 1
    rows = {name: np.asarray(table[name]) for name in columns}
    rows[hidden] = rows[hidden].astype(str).astype(object)
    predict = _predictor(value)
    how: dict[str, Any] = {}
    if value["model"] == "regression":
        outcome = np.asarray(table[target], float)
        how["error"] = float(np.std(predict(rows)[~was_in] - outcome[~was_in])) if error is None else error
    else:
        outcome, how["classes"] = np.asarray(table[target]).astype(str).astype(object), tuple(map(str, value["classes"]))
    shares = {word: float((rows[hidden][~was_in] == word).mean()) for word in known}
    inference = infer(AttributeInference(hidden, shares, **how), predict, rows, outcome, was_in, confidence=confidence)
    if out:
        _save(out, model, release, inference)
    if as_json:
        write_json({"inference": inference.to_json()})
    else:
        click.echo(str(inference))
    talk("What is right on people outside is knowledge of the population; only the difference comes from being in the data.")


def _predictor(value: dict[str, Any]) -> Any:
    """The model as a function of a table."""
    import numpy as np
    from scipy.special import expit

    from discreet.learn.estimators.features import Features

    features = Features(value["columns"])
    weights, start = np.atleast_2d(np.asarray(value["coef"], float)), np.atleast_1d(np.asarray(value["intercept"], float))

    def predict(table: Any) -> Any:
        score = features(table) @ weights.T + start
        if value["model"] == "regression":
            return score[:, 0]
        shares = np.hstack([1 - expit(score), expit(score)]) if score.shape[1] == 1 else expit(score)
        return shares / shares.sum(axis=1, keepdims=True)

    return predict


def _save(out: str, model: str, release: Any, found: Any) -> None:
    from dataclasses import replace

    from discreet.core.facts import made

    about = {"title": f"{place_name(model)}, asked for a hidden column", "made": made(command_line())}
    facts = {**release.facts, **about, "inference": [found.to_json()]}
    replace(release, evidence=(*release.evidence, found.evidence), facts=facts).save(out)
    talk(f"written: {out}")
