"""`discreet attack model`: how much a finished model gives away about the rows it was trained on."""

from __future__ import annotations

import hashlib
import shutil
import sys
import tempfile
import warnings
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from discreet.cli.facts import LEVELS
from discreet.cli.output import json_option, table, talk, write_json
from discreet.errors import DiscreetError, InvalidValue

if TYPE_CHECKING:
    from discreet.attack.membership import MembershipResult
    from discreet.core import Claim, Evidence, Release
    from discreet.models import Recipe, Trainer

GROUPS = 5  # shown; all of them are in release.json
GROUP = 16  # models at a time on a CPU, so that there is progress to tell and something to keep


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
@click.option("--no-controls", is_flag=True, help="Leave out the leaky twin and the model that saw none of the rows.")
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
    weights: str, recipe_file: str | None, members: str, nonmembers: str, population: str | None, target_column: str,
    group_by: str | None, attacks: str | None, shadows: int, no_controls: bool, out: str, claim: str | None, delta: float,
    confidence: float, seed: int, device: str, processes: int, ray: str | None, trust_pickle: bool, keep_shadows: bool,
    as_json: bool,
) -> None:  # fmt: skip
    """How much the model in WEIGHTS gives away about the rows it was trained on.

    WEIGHTS is a .safetensors file or a state dict, for the module the recipe builds; an .onnx file; or, with --trust-pickle, a
    scikit-learn model, or a pipeline that was fitted on a data frame, whose columns may hold text and categories. Shadows are
    models like it, trained by the recipe on random halves of the rows. The same attacks also run on a leaky twin, where they
    must find something, and on a model that saw none of the rows, where they must not.
    Interrupted (Ctrl-C), the same command goes on after the last finished group of shadows.
    """
    import numpy as np

    from discreet.attack.membership.attacks import BY_NAME
    from discreet.cli import facts
    from discreet.cli.models import read_model, read_recipe, usable
    from discreet.core import check
    from discreet.models import Trainer

    check.whole("shadows", shadows, least=0)
    check.small_fraction("delta", delta)
    check.open_fraction("confidence", confidence)
    carried = _carried(claim)
    recipe = read_recipe(recipe_file) if recipe_file else None
    target = read_model(weights, recipe, trust_pickle=trust_pickle, device=usable(device))
    takes_frames = hasattr(target, "feature_names_in_") and (recipe is None or recipe.kind != "torch")
    pairs, groups = _rows((members, nonmembers, population), target_column, group_by, target, takes_frames)
    target, recipe, (inside, outside, others) = _framed(target, recipe, pairs)
    target = _asked_only(target)
    folder = _ready(Path(out))
    kept = folder / "shadows" / _fingerprint(recipe_file, (*inside, *outside, *(others or ())), shadows, seed)
    how = {
        "shadows": shadows, "seed": seed, "folder": kept, "population": others,
        "controls": recipe is not None and not no_controls,
    }  # fmt: skip
    trainer = None if recipe is None else Trainer(recipe, device, GROUP if device == "cpu" else None, processes, ray)
    found, warned = _attacked(target, trainer, inside, outside, _named(attacks, recipe, population), how)
    first = next(iter(found.values()))
    compared = any(BY_NAME[name].needs.shadows for name in found)
    exposed = facts.most_exposed(first)
    controls = facts.of_controls(found.controls, confidence) if found.controls else []
    value = {
        "model": Path(weights).name, "members": len(inside[1]), "nonmembers": len(outside[1]),
        "shadows": shadows if compared else 0, "confidence": confidence, "delta": delta, "warnings": warned,
        "attacks": [_measured(each, delta, confidence) for each in found.values()],
        "tail": _tail(target, inside, outside, confidence),
        "most_exposed_members": [each["index"] for each in exposed],
        "controls": controls, "groups": facts.by_group(first, groups, confidence),
    }  # fmt: skip
    files = {"weights": weights, "recipe": recipe_file, "members": members, "nonmembers": nonmembers, "population": population}
    told = {
        "title": f"Membership attacks on {Path(weights).name}", "exposed": exposed, "controls": controls,
        "groups": value["groups"], "quality": _quality(target, inside, outside), **facts.produced(files, shadows=seed),
    }  # fmt: skip
    _write(folder, value, told, Path(members).name, carried or _nothing_claimed(found), found)
    _scores(
        folder,
        found,
        facts.risks(found.shadows, np.concatenate([inside[1], outside[1]])) if compared and others is None else {},
    )
    if not keep_shadows:
        _cleared(kept)
    _tell(value, folder, as_json, claimed=bool(carried), left_out=no_controls, recipe=recipe is not None)


def _asked_only(model: Any) -> Any:
    """A classifier as a function of rows: labels are numbered by now, and its own names must not number them again."""
    from discreet.models import predict

    return model if not hasattr(model, "classes_") or predict.is_module(model) else lambda X: predict.scores(model, X)


def _ready(folder: Path) -> Path:
    """A folder that can be written, before hours are spent; an earlier audit in it is replaced, another release is not."""
    from discreet.core import Release

    if folder.exists() and not folder.is_dir():
        raise InvalidValue(f"--out names a folder; {str(folder)!r} is a file. Give another name.")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise InvalidValue(f"The folder {str(folder)!r} of --out cannot be written: {error.strerror}. Give another.") from None
    there = folder / "release.json"
    if there.exists():
        try:
            value = Release.load(there).value
        except DiscreetError:
            value = None
        if not isinstance(value, dict) or "attacks" not in value:
            raise InvalidValue(f"{str(there)!r} is not an audit of this kind, and would be lost. Give --out another folder.")
        talk(f"{folder} holds an audit of {value.get('model')}, which this one replaces once it is finished.")
    return folder


def _cleared(kept: Path) -> None:
    """Without the shadows of this audit; what else lies there is not ours."""
    shutil.rmtree(kept, ignore_errors=True)
    with suppress(OSError):  # it holds shadows of another audit, or something of the user's
        kept.parent.rmdir()


def _framed(target: Any, recipe: Recipe | None, pairs: list[Any]) -> tuple[Any, Recipe | None, list[Any]]:
    """Where any rows have text or empty cells: all rows as objects, and a model and a recipe that are given them as frames."""
    from discreet.models.frames import framed, is_frame

    names = list(getattr(target, "feature_names_in_", ()))
    if any(pair is not None and is_frame(pair[0]) for pair in pairs):
        from pandas import DataFrame  # type: ignore[import-untyped, unused-ignore]

        pairs = [pair if pair is None or is_frame(pair[0]) else (DataFrame(pair[0], columns=names), pair[1]) for pair in pairs]
    return framed(target, recipe, *pairs)


def _rows(
    files: tuple[str, str, str | None], column: str, group_by: str | None, model: Any, frames: bool
) -> tuple[list[Any], Any]:  # fmt: skip
    """Members, non-members and other rows, their columns in one order; and the groups of the first two, by name."""
    import numpy as np

    from discreet.cli.facts import grouping
    from discreet.cli.models import in_order, numbered, read_rows

    by = [each.strip() for each in (group_by or "").split(",") if each.strip()]
    pairs: list[Any] = []
    fitted = getattr(model, "feature_names_in_", None)
    wanted = None if fitted is None else [str(each) for each in fitted]
    whose = "members do not" if wanted is None else "the model was not fitted on"
    labels, columns = [], []
    for what, file in zip(("members", "nonmembers", "population"), files):
        if file is None:
            pairs.append(None)
            continue
        X, y, names, more = read_rows(file, column, by, needed=what != "population", fitted=wanted if frames else None)
        wanted = names if wanted is None and what == "members" else wanted
        pairs.append((in_order(names, X, wanted, what, whose), numbered(y, model, what)))
        labels.append(np.asarray(y))
        columns.append(more)
    groups = {"class": np.array([str(each) for each in np.concatenate(labels[:2]).tolist()])}
    for name in by:
        groups[name] = grouping(name, np.concatenate([columns[0][name], columns[1][name]]))
    return pairs, groups


def _named(attacks: str | None, recipe: Recipe | None, population: str | None) -> Any:
    """The attacks asked for; the default is what the access allows of the usual three."""
    if attacks is None:
        if recipe is None:
            return ["loss", "label"]
        return ["bayes_lira", "lira", "loss"] if population is None else ["lira_offline", "rmia", "loss"]
    chosen = [name.strip() for name in attacks.split(",") if name.strip()]
    if not chosen:
        raise InvalidValue("--attacks names no attack; give names divided by commas, or all.")
    return "all" if chosen == ["all"] else chosen


def _fingerprint(recipe: str | None, arrays: tuple[Any, ...], shadows: int, seed: int) -> str:
    """Names what the shadows depend on, so that others' are never taken for them."""
    import numpy as np

    digest = hashlib.sha256(f"{shadows} {seed} ".encode())
    for file in _sources(recipe) if recipe else ():
        digest.update(file.read_bytes())
    for part in arrays:
        content = repr(part.tolist()).encode() if part.dtype.kind == "O" else np.ascontiguousarray(part).tobytes()
        digest.update(f"{part.shape} {part.dtype}".encode() + content)
    return digest.hexdigest()[:16]


def _sources(recipe: str) -> list[Path]:
    """The recipe, and what it imported of its neighbours: the network may be written there."""
    here = Path(recipe).resolve()
    loaded = {Path(file).resolve() for each in list(sys.modules.values()) if (file := getattr(each, "__file__", None))}
    near = [file for file in loaded if file.is_relative_to(here.parent) and "site-packages" not in file.parts]
    return [here, *sorted(file for file in near if file != here and file.suffix == ".py" and file.is_file())]


def _attacked(
    target: Any, recipe: Trainer | None, inside: Any, outside: Any, attacks: Any, how: dict[str, Any]
) -> tuple[MembershipResult, list[str]]:
    """The evidence of every attack, and what there was to warn of."""
    from discreet.attack.membership import membership
    from discreet.cli.models import told

    shadows = how["shadows"]
    with told(shadows, "training shadows") as progress, warnings.catch_warnings(record=True) as raised:
        warnings.simplefilter("always", UserWarning)
        warnings.filterwarnings("ignore", "There is a performance drop")  # of torch's, about its own layers

        def step(now: int, of: int) -> None:
            progress(now, of)
            if now == of and how["controls"]:
                talk("Now the controls: a leaky twin with a few shadows of its own, and a model that saw none of the rows.")

        try:
            found = membership(target, recipe, inside, outside, attacks=attacks, progress=step, **how)
        except KeyboardInterrupt:
            done = _models_in(how["folder"])
            talk(f"Stopped: {done} of {shadows} shadows are kept in {how['folder']}; the same command goes on from there.")
            raise
    warned = list(dict.fromkeys(str(each.message) for each in raised if issubclass(each.category, UserWarning)))
    for each in warned:
        talk(f"Warning: {each}")
    return found, warned


def _models_in(folder: Path) -> int:
    """How many shadows are kept, of this run and of earlier ones."""
    places = [each.stem.split("-")[1:] for each in folder.glob("models-*-*.npz")]
    return sum(int(stop) - int(start) for start, stop in places)


def _quality(target: Any, inside: Any, outside: Any) -> dict[str, float]:
    from discreet.models import predict

    right = [float((predict.scores(target, X).argmax(1) == y).mean()) for X, y in (inside, outside)]
    return {"train accuracy": right[0], "test accuracy": right[1]}


def _tail(target: Any, inside: Any, outside: Any, confidence: float) -> dict[str, Any]:
    """The screen that needs no shadows: how many non-members have a loss that hardly any member has."""
    from discreet.attack.membership import high_loss_screen

    found = high_loss_screen(target, inside, outside, confidence=confidence)
    return {"rate": found.rate, "low": found.low, "high": found.high, "says": str(found)}


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


def _carried(path: str | None) -> tuple[Claim, ...]:
    if path is None:
        return ()
    from discreet.core import Release

    claims = Release.load(path).claims
    if not claims:
        raise InvalidValue(f"{path!r} has no claims to carry over; leave --claim out, and nothing is claimed.")
    return claims


def _nothing_claimed(found: MembershipResult) -> tuple[Claim, ...]:
    from discreet.core import Claim, Game, NonPrivate, record

    view = {name for each in found.values() for name in each.game.view}
    return (Claim(game=Game(record(), view), event=NonPrivate()),)


def _write(
    folder: Path, value: dict[str, Any], facts: dict[str, Any], source: str, claims: tuple[Claim, ...], found: MembershipResult
) -> None:
    from discreet.core import Release

    folder.mkdir(parents=True, exist_ok=True)
    release: Release[Any] = Release(value=value, source=source, claims=claims, evidence=tuple(found.values()), facts=facts)
    release.save(folder / "release.json")


def _scores(folder: Path, found: MembershipResult, risks: dict[str, Any]) -> None:
    """Every row's score by every attack, and its risk over all shadows: parquet, or CSV where nothing here writes parquet."""
    import numpy as np

    first = next(iter(found.values()))
    members = int(first.inside.sum())
    columns: dict[str, Any] = {
        "inside": first.inside,
        "row": np.concatenate([np.arange(members), np.arange(len(first) - members)]),
        **{name: each.score for name, each in found.items()},
        **risks,
    }
    try:
        import pyarrow
        from pyarrow.parquet import write_table
    except ImportError:
        lines = [",".join(columns), *(",".join(map(str, row)) for row in zip(*(each.tolist() for each in columns.values())))]
        (folder / "scores.csv").write_text("\n".join(lines) + "\n")
        return
    write_table(pyarrow.table(columns), folder / "scores.parquet")


def _tell(facts: dict[str, Any], folder: Path, as_json: bool, *, claimed: bool, left_out: bool, recipe: bool) -> None:
    if as_json:
        write_json(facts)
    else:
        sure = f"{facts['confidence']:.0%}"
        controls = {each["name"]: each["auc"] for each in facts["controls"]}
        heads = ["attack", "sees", "AUC", *(f"TPR at {level:.2g} FPR ({sure})" for level in LEVELS), "epsilon at least"]
        heads += ["AUC on a leaky twin", "AUC where none was inside"] if controls else []
        table([(*_row(each), *_areas(each["attack"], controls)) for each in facts["attacks"]], heads=heads)
        _show_groups(facts["groups"])
    talk(f"Without shadows: {facts['tail']['says']}")
    _tell_of_controls(facts["controls"], recipe, left_out)
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


def _areas(attack: str, controls: dict[str, float]) -> tuple[str, ...]:
    """What the attack reached on both controls, where there are any."""
    return tuple(f"{area:.3f}" for name, area in controls.items() if name.split(" on ")[0] == attack)


def _show_groups(groups: list[dict[str, Any]]) -> None:
    """Those that stand out most."""
    worst = sorted(groups, key=lambda each: -max(each.get("tpr", {}).values(), default=each.get("auc", 0.0)))
    level = next(iter(worst[0].get("tpr", {})), None)
    heads = ("most exposed groups", "members", "AUC", *((f"TPR at {level} FPR",) if level else ()))
    table([_group(each, level) for each in worst[:GROUPS]], heads=heads)


def _group(each: dict[str, Any], level: str | None) -> tuple[str, ...]:
    area = f"{each['auc']:.3f}" if "auc" in each else ""
    rate = (f"{each['tpr'][level]:.2%} ({each['low']:.2%} to {each['high']:.2%})",) if level else ()
    return f"{each['by']} {each['group']}", f"{each['n']:,}", area, *rate


def _tell_of_controls(rows: list[dict[str, Any]], recipe: bool, left_out: bool) -> None:
    from discreet.cli.facts import told_of_controls

    if not rows:
        why = "left out" if left_out else "none can be trained without --recipe" if not recipe else "none were run"
        talk(f"Controls: {why}. What was not found is worth only what they would have shown.")
    for line in told_of_controls(rows):
        talk(f"Warning: {line}")
