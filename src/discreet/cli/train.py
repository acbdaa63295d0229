"""`discreet train`: a private classifier from a table, described in one file."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from discreet.cli import COMMANDS
from discreet.cli.config import encoding_of, ledger_of, read_config, readings_of, write_released
from discreet.cli.output import json_option, talk, tell_readings, write_json
from discreet.cli.releases import naming_ledger
from discreet.errors import InvalidDocument
from discreet.figures import down, up

if TYPE_CHECKING:
    from discreet.learn import Run
    from discreet.learn.table import Encoding

SECTIONS = {
    "data": ("file", "target", "classes", "columns"),
    "unit": ("key", "rows"),
    "model": ("hidden",),
    "train": ("epsilon", "noise_multiplier", "delta", "rate", "steps", "clip_norm", "learning_rate", "momentum", "divisor",
              "clipping", "microbatch", "resume", "every"),
    "ledger": ("place", "source", "account"),
    "output": ("folder", "checkpoint"),
}  # fmt: skip
NEEDED = {"data": ("file", "target", "classes", "columns"), "train": ("delta", "rate", "steps", "clip_norm", "learning_rate"),
          "output": ("folder",)}  # fmt: skip


@click.command("train", help=COMMANDS["train"])
@click.argument("path", metavar="CONFIG.toml")
@click.option(
    "--test", metavar="FILE", help="A public table to measure accuracy, F1 and AUC on. The claim does not cover this table."
)
@click.option("--dry-run", is_flag=True, help="Show noise and claim; read and spend nothing.")
@json_option
def command(path: str, test: str | None, dry_run: bool, as_json: bool) -> None:
    config = read_config(path, SECTIONS, NEEDED, "train")
    known = encoding_of(path, config, config.get("unit", {}).get("key"))
    folder = Path(path).parent
    if dry_run:
        _plan(config, as_json)
        tell_readings(readings_of(known))
        return
    public = None if test is None else _public(known, test)  # read first: what is wrong with it must not cost a budget
    with naming_ledger(ledger_of(config, folder)):
        run = start(config, known, folder).fit(progress=sys.stderr.isatty())
    quality = {} if public is None else _quality(run, public)
    release = run.release(folder / config["output"]["folder"], quality=quality or None)
    write_released(known, config, folder / config["output"]["folder"])
    outcome = {"release": str(folder / config["output"]["folder"]), "epsilon": run.spent(), "delta": run.plan.delta,
             "noise_multiplier": run.plan.noise_multiplier,
             "entry": list(release.entries) if release.also else release.entry}  # fmt: skip
    outcome |= {name.lower().replace(" ", "_"): value for name, value in quality.items()}
    _tell(outcome, as_json)


def start(config: dict[str, Any], known: Encoding, folder: Path) -> Run:
    """The run a configuration describes."""
    from discreet.columns import codes, missing
    from discreet.ledger import Ledger
    from discreet.models.tables import read_private

    unit, ledger, place = config.get("unit", {}), config.get("ledger", {}), ledger_of(config, folder)
    key = unit.get("key")
    names = dict.fromkeys([*known.columns, known.target, *([] if key is None else [key])])
    table = read_private(str(folder / config["data"]["file"]), list(names))
    if key is not None:  # a row without a key is nobody's, and left out
        there = [not missing(cell) for cell in table[key].tolist()]
        table = {name: column[there] for name, column in table.items()}
    inputs, target, kept = known.read(table)
    return run_on(
        (inputs, target), None if key is None else codes(table[key][kept])[0], config, known, _checkpoint(config, folder),
        ledger=None if place is None else Ledger(place), source=ledger.get("source", Path(config["data"]["file"]).stem),
        account=ledger.get("account"),
    )  # fmt: skip


def run_on(rows: tuple[Any, Any], owners: Any, config: dict[str, Any], known: Encoding, checkpoint: Any = None,
           **paying: Any) -> Run:  # fmt: skip
    """The run a configuration describes, on these rows: inputs and classes, and whose they are."""
    import torch
    from torch import nn

    from discreet.learn import Performance, train
    from discreet.learn.table import network

    settings = {name: value for name, value in config["train"].items() if name not in ("every", "resume")}
    model = network(known.width, config.get("model", {}).get("hidden", []), len(known.classes))
    optimizer = torch.optim.SGD(model.parameters(), settings.pop("learning_rate"), settings.pop("momentum", 0.0))
    return train(
        model, optimizer, rows, nn.CrossEntropyLoss(reduction="none"), unit=_unit(config.get("unit", {})), owners=owners,
        checkpoint=checkpoint, clipping=_clipping(settings),
        performance=Performance(microbatch=settings.pop("microbatch", None)), **settings, **paying,
    )  # fmt: skip


def _checkpoint(config: dict[str, Any], folder: Path) -> Any:
    """The checkpoint that [output] names, with what [train] says about it."""
    from discreet.learn import Checkpoint

    output = config["output"]
    how = {name: config["train"][name] for name in ("every", "resume") if name in config["train"]}
    if "checkpoint" not in output:
        if how:
            raise InvalidDocument(f"[train] has {', '.join(how)}, but [output] names no checkpoint.")
        return None
    return Checkpoint(folder / output["checkpoint"], **how)


def _clipping(settings: dict[str, Any]) -> Any:
    """The clipping that [train] names, with its clip norm."""
    from discreet.core import check
    from discreet.learn import Adaptive
    from discreet.learn.sgd.clipping import CLIPPINGS

    kinds = {**CLIPPINGS, "adaptive": Adaptive, "quantile": Adaptive}  # the last is its former name
    return kinds[check.word("clipping", settings.pop("clipping", "flat"), tuple(kinds))](settings.pop("clip_norm"))


def _unit(unit: dict[str, Any]) -> Any:
    from discreet.core import record, user

    if not unit:
        return record()
    if not {"key", "rows"} <= set(unit):
        raise InvalidDocument("[unit] needs key (whose row it is) and rows (how many of theirs count at most).")
    return user(unit["key"], rows=unit["rows"])


def _plan(config: dict[str, Any], as_json: bool) -> None:
    from discreet.learn.sgd.plan import planned
    from discreet.learn.sgd.sampling import Poisson

    given = config["train"]
    plan = planned(
        unit=_unit(config.get("unit", {})), sampler=Poisson(given["rate"]), rate=given["rate"], steps=given["steps"],
        clip_norm=given["clip_norm"], delta=given["delta"], epsilon=given.get("epsilon"),
        noise_multiplier=given.get("noise_multiplier"), counted="divisor" not in given,
    )  # fmt: skip
    _tell(
        {"epsilon": plan.epsilon(), "delta": plan.delta, "noise_multiplier": plan.noise_multiplier, "steps": plan.steps},
        as_json,
    )


def _public(known: Encoding, path: str) -> tuple[Any, Any]:
    """Inputs and targets of a public table."""
    from discreet.models.tables import read_private

    inputs, target, _ = known.read(read_private(path, [*known.columns, known.target]))
    return inputs, target


def _quality(run: Run, public: tuple[Any, Any]) -> dict[str, float]:
    """What is measured on a public table, for the report too."""
    from discreet.learn import evaluate

    return {f"test {name}": value for name, value in evaluate(run.model, public).items()}


def _shown(name: str, value: Any) -> str:
    """A number for people: a loss is never rounded down, and noise never up."""
    if not isinstance(value, float):
        return ", ".join(value) if isinstance(value, (list, tuple)) else str(value)
    if name in ("epsilon", "delta"):
        return up(value, 6)
    return down(value, 6) if name == "noise_multiplier" else f"{value:.6g}"


def _tell(found: dict[str, Any], as_json: bool) -> None:
    if as_json:
        write_json(found)
        return
    for name, value in found.items():
        click.echo(f"{name.replace('_', ' ')}: {_shown(name, value)}")
    if "release" in found:
        if not found["entry"]:
            talk("Nobody adds up what was asked: name a ledger in [ledger] to spend from a budget.")
        talk(f"Read it: discreet show {found['release']}/release.json")
