"""`discreet attack stealing`: what the answers of a model give away of its parameters."""

from __future__ import annotations

from typing import Any

import click

from discreet.cli.output import command_line, json_option, table, talk, write_json
from discreet.errors import InvalidValue
from discreet.figures import place_name

METHODS = ("linear", "tree", "relu", "approximate")


@click.command("stealing")
@click.argument("model", type=click.Path())
@click.option("--method", required=True, type=click.Choice(METHODS), help="How it is stolen; the first three are exact.")
@click.option(
    "--data", required=True, metavar="FILE", help="Public rows with the columns of the model: the queries of a thief."
)
@click.option("--target-column", default="label", show_default=True, metavar="C", help="The column of labels in them.")
@click.option("--recipe", "recipe_file", metavar="FILE.py", help="Builds the module of MODEL, where that holds weights.")
@click.option("--answers", default="scores", show_default=True, metavar="A", help="What is seen: scores, top-K or labels.")
@click.option("--decimals", type=int, metavar="N", help="Try a defence: answers rounded to so many decimals.")
@click.option("--layers", type=int, default=1, show_default=True, metavar="N", help="Hidden layers of a ReLU network: 1 or 2.")
@click.option("--most", type=int, default=200_000, show_default=True, metavar="N", help="Queries that the thief may make.")
@click.option("--journal", type=click.Path(dir_okay=False), metavar="FILE", help="Keep answers, to go on after a failure.")
@click.option(
    "--seed", type=int, default=0, show_default=True, metavar="N", help="Seed of the queries, and of the order of the rows."
)
@click.option("--trust-pickle", is_flag=True, help="Read a scikit-learn model, which is a pickle: only one that you made.")
@click.option("-o", "--output", "out", type=click.Path(dir_okay=False), metavar="FILE", help="Write a release.json.")
@json_option
def stealing_command(
    model: str, method: str, data: str, target_column: str, recipe_file: str | None, answers: str, decimals: int | None,
    layers: int, most: int, journal: str | None, seed: int, trust_pickle: bool, out: str | None, as_json: bool,
) -> None:  # fmt: skip
    """Steal MODEL through its answers: an address that answers queries, a scikit-learn model, or weights with their recipe.

    No claim bounds this and no epsilon is compared with it: there are no neighbouring data sets in the parameters of a model.
    """
    import numpy as np

    from discreet.attack.stealing import Oracle, Rounded, TopK, TopOne
    from discreet.attack.stealing.approximate import seen_classes
    from discreet.models.rows import read_rows

    shown = seen_classes(answers)
    rows = np.asarray(read_rows(data, target_column)[0], np.float64)
    asked = _model(model, recipe_file, trust_pickle)
    asked = asked if decimals is None else Rounded(asked, decimals)
    if shown is not None and method != "approximate":
        asked = TopK(asked, shown) if shown else TopOne(asked)
    oracle = Oracle(asked, most=most + (len(rows) if method == "approximate" else 0), journal=journal)
    facts = {"method": method, "answers": answers, **_stolen(method, oracle, rows, answers, layers, most, seed)}
    facts |= {} if decimals is None else {"decimals": decimals}
    if out:
        _save(out, model, facts)
    if as_json:
        write_json(facts)
    else:
        table(
            [
                (name.replace("_", " "), f"{value:.4g}" if isinstance(value, float) else str(value))
                for name, value in facts.items()
            ]
        )
    talk("No claim bounds theft, and none of this is a floor of epsilon: parameters have no neighbouring data sets.")


def _model(path: str, recipe_file: str | None, trust_pickle: bool) -> Any:
    from discreet.models import Http
    from discreet.models.files import read_model, read_recipe

    if path.startswith(("http://", "https://")):
        return Http(path)
    recipe = None if recipe_file is None else read_recipe(recipe_file, talk)
    target = read_model(path, recipe, trust_pickle=trust_pickle, device="cpu")
    return target.double() if hasattr(target, "double") else target


def _stolen(method: str, oracle: Any, rows: Any, answers: str, layers: int, most: int, seed: int) -> dict[str, Any]:
    """What is told of the stolen model."""
    import numpy as np

    from discreet.attack import stealing

    inputs = rows.shape[1]
    if method == "linear":
        linear = stealing.steal_linear(oracle, inputs, scale=float(abs(rows).mean()) or 1.0, seed=seed)
        return {"queries": linear.queries, "parameters": linear.weights.size + linear.offset.size, "error": linear.error}
    if method == "tree":
        low, high = rows.min(axis=0) - 0.5, rows.max(axis=0) + 0.5
        tree = stealing.steal_tree(oracle, low, high, rows=rows, seed=seed)
        return {"queries": tree.queries, "leaves": tree.leaves}
    if method == "relu":
        relu = stealing.steal_relu(oracle, inputs, layers=layers, seed=seed)
        return {"queries": relu.queries, "parameters": relu.parameters, "error": relu.error, "widths": list(relu.widths)}
    cut = max(1, len(rows) // 3)
    budget = min(most, len(rows) - cut)
    if len(rows) < 30:
        raise InvalidValue(f"A copy needs public rows to ask about and others to compare on; {len(rows)} are too few.")
    steps = sorted({max(10, budget // 10), budget})
    rows = rows[np.random.default_rng(seed).permutation(len(rows))]  # a file is often sorted, by class or by date
    copy = stealing.steal_approximate(oracle, rows[cut:], rows[:cut], budgets=steps, answers=answers, seed=seed)
    last = copy.curve[-1]
    return {"queries": last.queries, "agreement": last.share, "agreement_low": last.low, "agreement_high": last.high}


def _save(out: str, model: str, facts: dict[str, Any]) -> None:
    from discreet.core import Release
    from discreet.core.facts import made

    name = place_name(model)
    about = {"title": f"{name}, stolen through its answers", "made": made(command_line()), "stealing": [facts]}
    Release(value={"model": name}, source=name, claims=(), facts=about).save(out)
    talk(f"written: {out}")
