"""`discreet attack model`: how much a finished model gives away about the rows it was trained on."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from discreet.cli.output import command_line, json_option, reported, table, talk, write_json
from discreet.errors import InvalidValue

LEVELS = (0.01, 0.001)  # of false positives, as in the summary
GROUPS = 5  # shown; all of them are in release.json


@click.command("model")
@click.argument("weights", type=click.Path())
@click.option("--recipe", "recipe_file", metavar="FILE.py", help="Defines recipe = Recipe(…). This file is run.")
@click.option("--members", required=True, metavar="FILE", help="Rows it was trained on: parquet, CSV, or .npz with X and y.")
@click.option("--nonmembers", required=True, metavar="FILE", help="Rows of the same kind it was not trained on.")
@click.option("--population", metavar="FILE", help="Other rows, for shadows, where the attacker has not those in question.")
@click.option("--target-column", default="label", show_default=True, metavar="NAME", help="The column with the labels.")
@click.option("--group-by", metavar="A,B", help="Columns whose groups are compared; text in them is not shown to the model.")
@click.option(
    "--attacks",
    metavar="A,B",
    help="Names divided by commas, or all.  [default: bayes_lira,lira,loss, where they can run]",
)
@click.option("--shadows", default=64, show_default=True, metavar="N", help="Models like it that are trained to compare with.")
@click.option("--no-controls", is_flag=True, help="Leave out the overfit control and the model that saw none of the rows.")
@click.option("-o", "--output", "out", required=True, metavar="FOLDER", help="Where release.json and the raw scores go.")
@click.option("--claim", metavar="RELEASE.json", help="A release of this model whose claims are carried over.")
@click.option("--delta", type=float, default=1e-5, show_default=True, metavar="D", help="The delta of the epsilon floor.")
@click.option("--confidence", type=float, default=0.95, show_default=True, metavar="C", help="Confidence of the intervals.")
@click.option("--seed", type=int, default=0, show_default=True, metavar="N", help="Which splits the shadows are trained on.")
@click.option("--device", type=click.Choice(["cpu", "cuda"]), default="cpu", show_default=True, help="Where models run.")
@click.option("--processes", type=int, default=1, show_default=True, metavar="N", help="Processes that train shadows.")
@click.option("--ray", metavar="ADDRESS", help="Train shadows on a Ray cluster; local starts one here.")
@click.option("--trust-pickle", is_flag=True, help="Read WEIGHTS by joblib, which runs what its maker put in.")
@click.option("--all", "whole", is_flag=True, help="Every attack that fits, beside membership; report.html tells of all.")
@click.option(
    "--access",
    type=click.Choice(["weights", "scores", "labels"]),
    default="weights",
    show_default=True,
    help="What attackers are given of the model, with --all.",
)
@click.option("--drop-duplicates", is_flag=True, help="Leave out rows that are in both files; how many is told.")
@click.option("--shape", metavar="H,W,C", help="Rows are pictures of this height, width and channels (flat), with --all.")
@click.option("--keep-shadows", is_flag=True, help="Keep the shadows' scores, to run more attacks without training again.")
@json_option
def model_command(
    weights: str, recipe_file: str | None, members: str, nonmembers: str, population: str | None, target_column: str,
    group_by: str | None, attacks: str | None, shadows: int, no_controls: bool, out: str, claim: str | None, delta: float,
    confidence: float, seed: int, device: str, processes: int, ray: str | None, trust_pickle: bool, whole: bool, access: str,
    drop_duplicates: bool, shape: str | None, keep_shadows: bool, as_json: bool,
) -> None:  # fmt: skip
    """How much the model in WEIGHTS gives away about the rows it was trained on.

    WEIGHTS is what discreet train or federate wrote (the folder) or discreet fit (the file): these say what is known of their
    columns, what they predict and claim, and how models like them are trained. Else it is a .safetensors file or a state dict,
    for the module the recipe builds; an .onnx file; or, with --trust-pickle, a scikit-learn model, or a pipeline that was
    fitted on a data frame, whose columns may hold text and categories. Shadows are models like it, trained by the recipe on
    random halves of the rows. The same attacks also run on an overfit control, where they must find something, and on a model
    that saw none of the rows, where they must not.
    Interrupted (Ctrl-C), the same command goes on after the last finished group of shadows.

    With --all also pictures of classes, hidden columns, shares of the training rows (of columns in --group-by with two groups)
    and stealing, where they fit. WEIGHTS may then be the folder of a causal language model, and the rows JSON lines of texts.
    """
    from discreet.attack.membership.model_audit import ModelAudit, load
    from discreet.attack.membership.without_shared import without_shared
    from discreet.cli import everything
    from discreet.cli.owners import about_people
    from discreet.cli.trained import trained

    if whole and everything.is_language_model(weights):
        value = everything.language_model(weights, members, nonmembers, out, seed).value
        write_json(value) if as_json else talk(f"{len(value['attacks'])} attacks were run.")
        return
    if not whole and (access != "weights" or shape is not None):
        raise InvalidValue("--access and --shape belong to --all; the attacks on membership are chosen by name.")
    audit = ModelAudit(
        weights=weights, recipe=recipe_file, members=members, nonmembers=nonmembers, population=population,
        target_column=target_column, group_by=_names(group_by), attacks=attack_names(attacks), shadows=shadows,
        controls=not no_controls, out=out, claim=claim, delta=delta, confidence=confidence, seed=seed, device=device,
        processes=processes, ray=ray, trust_pickle=trust_pickle, keep_shadows=keep_shadows,
    )  # fmt: skip
    known = None if recipe_file else trained(weights)
    if known is not None:
        audit = replace(audit, weights=str(known.weights), claim=claim or str(known.document))
    loaded = load(audit, talk) if known is None else known.load(audit, talk)
    if drop_duplicates:
        loaded = without_shared(loaded, talk)
    if whole:
        loaded = everything.narrowed(loaded, access)
        audit = replace(audit, attacks=audit.attacks or everything.membership_within(access, loaded))
    with reported(shadows, "training shadows") as progress:
        release = audit.run(say=talk, progress=progress, command=command_line(), loaded=loaded)
    if known is not None:
        release = about_people(release, loaded)
        release.save(Path(out) / "release.json")
    if whole:
        release = everything.all_attacks(audit, loaded, release, access, shape)
    _tell(
        release.value, Path(out), as_json, claimed=audit.claim is not None, left_out=no_controls,
        recipe=loaded.recipe is not None,
    )  # fmt: skip


def _names(text: str | None) -> tuple[str, ...]:
    return tuple(name.strip() for name in (text or "").split(",") if name.strip())


def attack_names(text: str | None) -> tuple[str, ...] | None:
    """The attacks that a list divided by commas names; None: those that can run."""
    if text is not None and not _names(text):
        raise InvalidValue("--attacks names no attack; give names divided by commas, or all.")
    return None if text is None else _names(text)


def _tell(facts: dict[str, Any], folder: Path, as_json: bool, *, claimed: bool, left_out: bool, recipe: bool) -> None:
    if as_json:
        write_json(facts)
    else:
        sure = f"{facts['confidence']:.0%}"
        controls = facts["controls"]
        heads = ["attack", "sees", "AUC", *(f"TPR at {level:.2g} FPR ({sure})" for level in LEVELS), "epsilon at least"]
        heads += ["AUC on an overfit control", "AUC where none was inside"] if controls else []
        table([(*_row(each), *_areas(each["attack"], controls)) for each in facts["attacks"]], heads=heads)
        _show_groups(facts["groups"])
    talk(f"Without shadows: {facts['high_loss_screen']['says']}")
    _tell_controls(facts["controls"], recipe, left_out)
    few = [rate for each in facts["attacks"] for rate in each["rates"] if rate["outcome"] == "few rows"]
    if few:
        needed = max(rate["nonmembers_needed"] for rate in few)
        talk(f"Intervals are wide: {needed:,} non-members would narrow all of them; there are {facts['nonmembers']:,}.")
    talk("Who was inside was not decided by coins (post_hoc): these figures warn, and cannot refute a claim.")
    ceiling = (
        f"Compare with the claims: discreet audit {folder / 'release.json'}" if claimed else "Nothing is claimed: no ceiling."
    )
    talk(f"{folder} holds release.json and the score of every row. {ceiling}")


def _row(reached: dict[str, Any]) -> tuple[str, ...]:
    from discreet.figures import down

    cells = []
    for rate in reached["rates"]:
        cells.append(f"{rate['tpr']:.2%} ({rate['low']:.2%} to {rate['high']:.2%})")
    area = f"{reached['auc']:.3f} ({reached['auc_low']:.3f} to {reached['auc_high']:.3f})"
    return reached["attack"], ", ".join(reached["view"]), area, *cells, down(reached["epsilon_at_least"])


def _areas(attack: str, controls: list[dict[str, Any]]) -> tuple[str, ...]:
    """The area under the curve on both controls, where there are any."""
    return tuple(f"{row['auc']:.3f}" for row in controls if row["attack"] == attack)


def _show_groups(groups: list[dict[str, Any]]) -> None:
    """Those that stand out most."""
    worst = sorted(groups, key=lambda each: -max(each.get("tpr", {}).values(), default=each.get("auc", 0.0)))
    level = next((level for each in worst for level in each.get("tpr", {})), None)
    heads = ("most exposed groups", "members", "AUC", *((f"TPR at {level} FPR",) if level else ()))
    table([_group(each, level) for each in worst[:GROUPS]], heads=heads)


def _group(each: dict[str, Any], level: str | None) -> tuple[str, ...]:
    area = f"{each['auc']:.3f}" if "auc" in each else ""
    rate = f"{each['tpr'][level]:.2%} ({each['low']:.2%} to {each['high']:.2%})" if level in each.get("tpr", {}) else ""
    return f"{each['by']} {each['group']}", f"{each['n']:,}", area, *((rate,) if level else ())


def _tell_controls(rows: list[dict[str, Any]], recipe: bool, left_out: bool) -> None:
    from discreet.attack.membership.summary import control_warnings

    if not rows:
        why = "left out" if left_out else "none can be trained without --recipe" if not recipe else "none were run"
        talk(f"Controls: {why}. What was not found is worth only what they would have shown.")
    for line in control_warnings(rows):
        talk(f"Warning: {line}")
