"""`discreet attack model`: how much a finished model gives away about the rows it was trained on."""

from __future__ import annotations

import hashlib
import shutil
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from discreet.cli.output import json_option, table, talk, write_json
from discreet.errors import InvalidValue

if TYPE_CHECKING:
    from discreet.attack import Recipe
    from discreet.core import Claim, Evidence, Release

LEVELS = (0.01, 0.001)
SHOWN = 10  # most exposed members listed, by number only
GROUP = 16  # models at a time on a CPU, so that there is progress to tell and something to keep


@click.command("model")
@click.argument("weights", type=click.Path())
@click.option("--recipe", "recipe_file", metavar="FILE.py", help="Defines recipe = Recipe(…). This file is run.")
@click.option("--members", required=True, metavar="FILE", help="Rows it was trained on: parquet, CSV, or .npz with X and y.")
@click.option("--nonmembers", required=True, metavar="FILE", help="Rows of the same kind it was not trained on.")
@click.option("--target-column", default="label", show_default=True, metavar="NAME", help="The column with the labels.")
@click.option(
    "--attacks", default="student,lira,loss", show_default=True, metavar="A,B", help="Names divided by commas, or all."
)
@click.option("--shadows", default=64, show_default=True, metavar="N", help="Models like it that are trained to compare with.")
@click.option("--out", required=True, metavar="FOLDER", help="Where release.json and the raw scores go.")
@click.option("--claim", metavar="RELEASE.json", help="A release of this model whose claims are carried over.")
@click.option("--delta", type=float, default=1e-5, show_default=True, metavar="D", help="The delta of the epsilon floor.")
@click.option("--confidence", type=float, default=0.95, show_default=True, metavar="C", help="Of intervals and of the floor.")
@click.option("--seed", type=int, default=0, show_default=True, metavar="N", help="Which halves the shadows are trained on.")
@click.option("--device", type=click.Choice(["cpu", "cuda"]), default="cpu", show_default=True, help="Where models run.")
@click.option("--processes", type=int, default=1, show_default=True, metavar="N", help="Processes that train shadows.")
@click.option("--ray", metavar="ADDRESS", help="Train shadows on a Ray cluster; local starts one here.")
@click.option("--trust-pickle", is_flag=True, help="Read WEIGHTS by joblib, which runs what its maker put in.")
@click.option("--keep-shadows", is_flag=True, help="Keep what the shadows said, to run more attacks without training again.")
@json_option
def model_command(
    weights: str, recipe_file: str | None, members: str, nonmembers: str, target_column: str, attacks: str, shadows: int,
    out: str, claim: str | None, delta: float, confidence: float, seed: int, device: str, processes: int,
    ray: str | None, trust_pickle: bool, keep_shadows: bool, as_json: bool,
) -> None:  # fmt: skip
    """How much the model in WEIGHTS gives away about the rows it was trained on.

    WEIGHTS is a .safetensors file or a state dict, for the module the recipe builds; or, with --trust-pickle, a scikit-learn
    model. Shadows are models like it, trained by the recipe on random halves of the rows. Interrupted (Ctrl-C), the same
    command goes on after the last finished group of them.
    """
    from discreet.cli.models import read_model, read_recipe, usable
    from discreet.core import check

    check.whole("shadows", shadows, least=2)
    check.small_fraction("delta", delta)
    check.open_fraction("confidence", confidence)
    carried = _carried(claim)
    recipe = read_recipe(recipe_file) if recipe_file else None
    target = read_model(weights, recipe, trust_pickle=trust_pickle, device=usable(device))
    inside, outside = _both(members, nonmembers, target_column, target)
    folder = Path(out)
    kept = folder / "shadows" / _fingerprint(recipe_file, inside, outside, shadows, seed)
    how = {"shadows": shadows, "seed": seed, "device": device, "folder": kept, "processes": processes, "ray": ray}
    found, warned = _attacked(target, recipe, inside, outside, attacks, how)
    facts = {
        "model": Path(weights).name, "members": len(inside[1]), "nonmembers": len(outside[1]),
        "shadows": shadows if recipe else 0, "confidence": confidence, "delta": delta, "warnings": warned,
        "attacks": [_measured(each, delta, confidence) for each in found.values()],
        "most_exposed_members": _exposed(next(iter(found.values()))),
    }  # fmt: skip
    claims = carried or _nothing_claimed(found)
    _write(folder, facts, Path(members).name, claims, found)
    if not keep_shadows:
        shutil.rmtree(folder / "shadows", ignore_errors=True)
    _tell(facts, folder, as_json, claimed=bool(carried))


def _both(members: str, nonmembers: str, column: str, model: Any) -> tuple[tuple[Any, Any], tuple[Any, Any]]:
    from discreet.cli.models import in_order, numbered, read_rows

    X_in, y_in, names = read_rows(members, column)
    X_out, y_out, others = read_rows(nonmembers, column)
    X_out = in_order(others, X_out, names, "nonmembers")
    return (X_in, numbered(y_in, model, "members")), (X_out, numbered(y_out, model, "nonmembers"))


def _fingerprint(recipe: str | None, inside: tuple[Any, Any], outside: tuple[Any, Any], shadows: int, seed: int) -> str:
    """Names what the shadows depend on, so that others' are never taken for them."""
    import numpy as np

    digest = hashlib.sha256(f"{shadows} {seed} ".encode())
    if recipe:
        digest.update(Path(recipe).read_bytes())
    for part in (*inside, *outside):
        digest.update(f"{part.shape} {part.dtype}".encode() + np.ascontiguousarray(part).tobytes())
    return digest.hexdigest()[:16]


def _attacked(
    target: Any, recipe: Recipe | None, inside: Any, outside: Any, attacks: str, how: dict[str, Any]
) -> tuple[dict[str, Evidence], list[str]]:
    """The evidence of every attack, and what there was to warn of."""
    from discreet.attack.membership import membership
    from discreet.cli.models import told

    chosen: Any = "all" if attacks.strip() == "all" else [name.strip() for name in attacks.split(",") if name.strip()]
    if not chosen:
        raise InvalidValue("--attacks names no attack; give names divided by commas, or all.")
    done, shadows = 0, how["shadows"]
    with told(shadows, "training shadows") as progress, warnings.catch_warnings(record=True) as raised:
        warnings.simplefilter("always", UserWarning)

        def step(now: int, of: int) -> None:
            nonlocal done
            done = now
            progress(now, of)

        try:
            group = GROUP if how["device"] == "cpu" else None
            found = membership(target, recipe, inside, outside, attacks=chosen, progress=step, group=group, **how)
        except KeyboardInterrupt:
            talk(f"Stopped: {done} of {shadows} shadows are kept in {how['folder']}; the same command goes on from there.")
            raise
    warned = [str(each.message) for each in raised if issubclass(each.category, UserWarning)]
    for each in warned:
        talk(f"Warning: {each}")
    return found, warned


def _measured(evidence: Evidence, delta: float, confidence: float) -> dict[str, Any]:
    """What one attack reached, with intervals; and where there were too few rows to tell, how many are needed."""
    from discreet.audit import rate_at
    from discreet.audit.rates import ENOUGH

    made: dict[str, Any] = {"attack": evidence.attack, "view": sorted(evidence.game.view), "auc": evidence.auc(), "rates": []}
    for level in LEVELS:
        rate = rate_at(evidence.score, evidence.inside, level, confidence)
        made["rates"].append({
            "fpr": level, "tpr": rate.rate, "low": rate.low, "high": rate.high,
            "outcome": "resolved" if rate.resolvable else "inconclusive", "nonmembers_needed": round(ENOUGH / level),
        })  # fmt: skip
    made["epsilon_at_least"] = evidence.epsilon(delta, confidence)
    return made


def _exposed(evidence: Evidence) -> list[int]:
    """The members that the first attack is surest of, by their number in the file."""
    import numpy as np

    members = np.flatnonzero(evidence.inside)
    return [int(each) for each in np.argsort(-evidence.score[members], kind="stable")[:SHOWN]]


def _carried(path: str | None) -> tuple[Claim, ...]:
    if path is None:
        return ()
    from discreet.core import Release

    claims = Release.load(path).claims
    if not claims:
        raise InvalidValue(f"{path!r} has no claims to carry over; leave --claim out, and nothing is claimed.")
    return claims


def _nothing_claimed(found: dict[str, Evidence]) -> tuple[Claim, ...]:
    from discreet.core import Claim, Game, NonPrivate, record

    view = {name for each in found.values() for name in each.game.view}
    return (Claim(game=Game(record(), view), event=NonPrivate()),)


def _write(folder: Path, facts: dict[str, Any], source: str, claims: tuple[Claim, ...], found: dict[str, Evidence]) -> None:
    from discreet.core import Release

    folder.mkdir(parents=True, exist_ok=True)
    release: Release[Any] = Release(value=facts, source=source, claims=claims, evidence=tuple(found.values()))
    release.save(folder / "release.json")
    _scores(folder, found)


def _scores(folder: Path, found: dict[str, Evidence]) -> None:
    """Every row's score by every attack: parquet, or CSV where nothing here writes parquet."""
    import numpy as np

    first = next(iter(found.values()))
    members = int(first.inside.sum())
    columns: dict[str, Any] = {
        "inside": first.inside,
        "row": np.concatenate([np.arange(members), np.arange(len(first) - members)]),
        **{name: each.score for name, each in found.items()},
    }
    try:
        import pyarrow
        from pyarrow.parquet import write_table
    except ImportError:
        lines = [",".join(columns), *(",".join(map(str, row)) for row in zip(*(each.tolist() for each in columns.values())))]
        (folder / "scores.csv").write_text("\n".join(lines) + "\n")
        return
    write_table(pyarrow.table(columns), folder / "scores.parquet")


def _tell(facts: dict[str, Any], folder: Path, as_json: bool, *, claimed: bool) -> None:
    if as_json:
        write_json(facts)
    else:
        sure = f"{facts['confidence']:.0%}"
        heads = ("attack", "sees", "AUC", *(f"TPR at {level:.2g} FPR ({sure})" for level in LEVELS), "epsilon at least")
        table([_row(each) for each in facts["attacks"]], heads=heads)
    few = [rate for each in facts["attacks"] for rate in each["rates"] if rate["outcome"] == "inconclusive"]
    if few:
        needed = max(rate["nonmembers_needed"] for rate in few)
        talk(f"Inconclusive rates need more non-members: {needed:,} for all of them; there are {facts['nonmembers']:,}.")
    talk("Who was inside was not decided by coins (post_hoc): these figures warn, and cannot refute a claim.")
    ceiling = (
        f"Compare with the claims: discreet audit {folder / 'release.json'}" if claimed else "Nothing is claimed: no ceiling."
    )
    talk(f"{folder} holds release.json and the score of every row. {ceiling}")


def _row(found: dict[str, Any]) -> tuple[str, ...]:
    from discreet.core.figures import down

    cells = []
    for rate in found["rates"]:
        if rate["outcome"] == "inconclusive":
            cells.append(f"inconclusive (needs {rate['nonmembers_needed']:,} non-members)")
        else:
            cells.append(f"{rate['tpr']:.2%} ({rate['low']:.2%} to {rate['high']:.2%})")
    return found["attack"], ", ".join(found["view"]), f"{found['auc']:.3f}", *cells, down(found["epsilon_at_least"])
