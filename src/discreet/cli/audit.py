"""`discreet audit`: the claims of a release against its evidence; or a training recipe, audited in one run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from discreet.cli import CHECK_FAILED, COMMANDS, FINE, REFUTED
from discreet.cli.output import command_line, json_option, table, talk, write_json
from discreet.errors import InvalidValue
from discreet.figures import place_name

if TYPE_CHECKING:
    from discreet.core import Release

SURE = {"release": 0.999, "recipe": 0.95}


@click.command("audit", help=f"""{COMMANDS["audit"]}

FILE is a release.json, or a Python file that defines recipe = Recipe(…). The latter is run: then rows of --data are
mislabelled, each is trained on or left out by a fair coin, the recipe trains once, and epsilon is bounded from below by how
well the model gives the coins away.""")  # fmt: skip
@click.argument("file", type=click.Path(allow_dash=True))
@click.option("--confidence", type=float, metavar="C",
              help="Confidence of a refutation or a bound.  [default: 0.999 for a release, 0.95 for a recipe]")  # fmt: skip
@click.option("--data", metavar="FILE", help="Recipe: the training rows: parquet, CSV, or .npz with X and y.")
@click.option("--canaries", type=int, metavar="N", help="Recipe: how many rows are mislabelled.")
@click.option("--delta", type=float, metavar="D", help="Recipe: the delta at which epsilon is bounded.")
@click.option("--target-column", metavar="NAME", help="Recipe: the column with the labels.  [default: label]")
@click.option("--claim", metavar="RELEASE.json", help="Recipe: a release whose claims the bound is compared with.")
@click.option("-o", "--output", "out", metavar="FILE", help="Recipe: write a release.json with the evidence.")
@click.option("--no-controls", is_flag=True, help="Recipe: leave out the overfit control and the model that saw no canary.")
@click.option("--device", type=click.Choice(["cpu", "cuda"]), help="Recipe: where it trains.  [default: cpu]")
@json_option
@click.pass_context
def command(
    ctx: click.Context, file: str, confidence: float | None, data: str | None, canaries: int | None, delta: float | None,
    target_column: str | None, claim: str | None, out: str | None, no_controls: bool, device: str | None, as_json: bool,
) -> None:  # fmt: skip
    from discreet.core.check import open_fraction

    kind = "recipe" if file.endswith(".py") else "release"
    sure = open_fraction("confidence", SURE[kind] if confidence is None else confidence)
    if kind == "recipe":
        if data is None or canaries is None or delta is None:
            raise InvalidValue("To audit a recipe, give --data, --canaries and --delta: none of them has a default.")
        rows = (data, target_column or "label")
        ctx.exit(_recipe(file, rows, canaries, delta, sure, claim, out, device or "cpu", as_json, not no_controls))
    options = {"--data": data, "--canaries": canaries, "--delta": delta, "--target-column": target_column, "--claim": claim,
             "--output": out, "--device": device, "--no-controls": no_controls or None}  # fmt: skip
    extra = [name for name, value in options.items() if value is not None]
    if extra:
        raise InvalidValue(
            f"{extra[0]} belongs to the audit of a recipe, a file that ends in .py; {file!r} is read as a release."
        )
    ctx.exit(_release(file, sure, as_json))


def _release(file: str, confidence: float, as_json: bool) -> int:
    from discreet.cli.releases import read_release

    release = read_release(file)
    compared = _verdicts(release, confidence)
    if as_json:
        write_json({"source": release.source, "verdicts": compared})
    elif compared:
        table([(item["attack"], item["claim"], item["outcome"], item["reason"]) for item in compared], heads=_HEADS)
    if compared:
        talk(f"Floors and verdicts are at a confidence of {confidence:.6g}; --confidence asks for another.")
    if not compared:
        lacking = "evidence" if release.claims else "claims, so there is no ceiling"
        talk(f"The release of {release.source} has no {lacking}: there is nothing to compare. Add some and save it again.")
        return CHECK_FAILED
    return _outcome(compared)


def _outcome(compared: list[dict[str, Any]]) -> int:
    """3 where a claim is refuted, 1 where an attack without coins does better than a claim allows."""
    outcomes = {item["outcome"] for item in compared}
    return REFUTED if "refuted" in outcomes else CHECK_FAILED if "warning" in outcomes else FINE


def _recipe(
    file: str, data: tuple[str, str], canaries: int, delta: float, confidence: float, claim: str | None, out: str | None,
    device: str, as_json: bool, controlled: bool,
) -> int:  # fmt: skip
    """One training run with canaries, and what it shows."""
    from discreet.attack.membership.canaries import audit_recipe
    from discreet.attack.membership.summary import provenance
    from discreet.core import Release
    from discreet.models.files import read_recipe_and_rows, usable

    claims = Release.load(claim).claims if claim else ()
    recipe, X, y = read_recipe_and_rows(file, *data, say=talk)
    release = audit_recipe(
        recipe, X, y, canaries=canaries, delta=delta, confidence=confidence, source=place_name(data[0]), claims=claims,
        controls=controlled, device=usable(device), say=talk,
        facts={
            "title": f"One-run audit of {place_name(file)}", **provenance({"recipe": file, "data": data[0]}, command_line())
        },
    )  # fmt: skip
    if out:
        release.save(out)
    facts, beside = release.value, [dict(each) for each in release.facts["controls"]]
    compared = _verdicts(release, confidence) if claim else []
    if as_json:
        write_json({**facts, "controls": beside, "verdicts": compared})
    else:
        table([(name.replace("_", " "), _shown(value)) for name, value in facts.items()])
        for each in beside:
            table(
                [(f"{each['kind']} control", f"{each['name']}: {'' if each['found'] else 'not '}found, AUC {each['auc']:.3f}")]
            )
        if compared:
            table([(item["attack"], item["claim"], item["outcome"], item["reason"]) for item in compared], heads=_HEADS)
    _explain(facts)
    _explain_controls(beside)
    return _outcome(compared)


def _shown(value: Any) -> str:
    from discreet.figures import down

    return down(value) if isinstance(value, float) else str(value)


def _explain(facts: dict[str, Any]) -> None:
    from discreet.figures import down

    floor, wrong = facts["epsilon_at_least"], 1.0 - facts["confidence"]
    if floor > 0:
        talk(
            f"This training is not (epsilon, {facts['delta']:.2g})-private, record by record, for any epsilon below "
            f"{down(floor)}: who sees only the scores of the model told its canaries apart so well. Such a bound is wrong "
            f"in at most {wrong:.2g} of all audits."
        )
    else:
        talk(
            f"No epsilon is refuted: {facts['canaries']} canaries, told apart with an area of {facts['auc']:.2f}, show none. "
            f"So many can show {down(facts['most_that_so_many_canaries_can_show'])} at most."
        )
    talk("It is a floor: other attacks may find more. Only a proof gives a ceiling.")


def _explain_controls(beside: list[dict[str, Any]]) -> None:
    for each in beside:
        if each["kind"] == "positive" and not each["found"]:
            talk("Warning: not even an overfit control was found out; with so few canaries silence means nothing. Give more.")
        if each["kind"] == "negative" and each["found"]:
            talk("Warning: canaries that were all left out were told apart: by bad luck, which a bound may have, or a fault.")


_HEADS = ("attack", "claim", "verdict", "reason")


def _verdicts(release: Release[Any], confidence: float) -> list[dict[str, Any]]:
    """Every claim against every piece of evidence, as reports and the gate judge them."""
    from discreet.audit import appraise

    judged = [appraise(item, release.claims, sure=confidence) for item in release.evidence]
    return [
        {"attack": item.evidence.attack, "claim": repr(claim.event)[:120], **verdict.to_json()}
        for place, claim in enumerate(release.claims)
        for item in judged
        for verdict in item.verdicts[place : place + 1]
    ]
