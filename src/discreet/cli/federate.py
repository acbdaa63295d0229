"""`discreet federate`: federated training simulated on a table with a column of clients, described in one file."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from discreet.cli import COMMANDS
from discreet.cli.config import check_names, encoding_of, ledger_of, read_config, readings_of, write_released
from discreet.cli.output import json_option, talk, tell_readings, write_json
from discreet.cli.releases import naming_ledger
from discreet.errors import InvalidDocument

if TYPE_CHECKING:
    from discreet.federate import Clients
    from discreet.federate.simulation import Training
    from discreet.learn.table import Encoding

NOISE = ("clip_norm", "epsilon", "delta", "noise_multiplier")
KINDS = {
    "central": (*NOISE, "rate", "divisor", "bands", "cap"),
    "local": (*NOISE, "times"),
    "distributed": (*NOISE, "times", "clients", "honest", "bits"),
}
STRATEGIES = {
    "fedavg": ("learning_rate", "epochs", "batch_size", "momentum", "proximal"),
    "fedsgd": ("learning_rate",),
    "selective": ("learning_rate", "upload", "download", "threshold", "epochs", "batch_size"),
}
SECTIONS = {
    "data": ("file", "target", "classes", "columns", "client"),
    "model": ("hidden", "seed"),
    "train": ("strategy", "rounds", "per_round", *dict.fromkeys(name for names in STRATEGIES.values() for name in names)),
    "privacy": ("kind", "relation", *dict.fromkeys(name for names in KINDS.values() for name in names)),
    "ledger": ("place", "source", "account"),
    "output": ("folder", "checkpoint"),
}
NEEDED = {"data": SECTIONS["data"], "train": ("strategy", "rounds", "learning_rate"), "privacy": ("kind", "clip_norm"),
          "output": ("folder",)}  # fmt: skip


@click.command("federate", help=COMMANDS["federate"])
@click.argument("path", metavar="CONFIG.toml")
@click.option("--test", metavar="FILE", help="A public table to measure accuracy on. The claim does not cover this table.")
@click.option("--dry-run", is_flag=True, help="Show noise and claim; read and spend nothing.")
@json_option
def command(path: str, test: str | None, dry_run: bool, as_json: bool) -> None:
    config = read(path)
    known = encoding_of(path, config, config["data"]["client"])
    training, folder = plan(config, known), Path(path).parent
    if dry_run:
        _tell(_claimed(training), as_json)
        tell_readings(readings_of(known))
        return
    public = None if test is None else _rows(known, test)
    output = _run(training, config, known, folder)
    outcome = {"release": str(folder / config["output"]["folder"]), **_claimed(training), "entry": output.release.entry}
    if public is not None:
        outcome["test_accuracy"] = float((output.model(public[0]).argmax(1) == public[1]).float().mean())
    _saved(output, folder / config["output"]["folder"], known, config)
    _tell(outcome, as_json)


def read(path: str, needed: dict[str, tuple[str, ...]] = NEEDED) -> dict[str, Any]:
    """The file, checked name by name, also against its kind of privacy and its strategy."""
    config = read_config(path, SECTIONS, needed, "federate")
    for section, name, kinds in (("privacy", "kind", KINDS), ("train", "strategy", STRATEGIES)):
        kind = config[section][name]
        if kind not in kinds:
            raise InvalidDocument(f"{name} in [{section}] of {path!r} must be {', '.join(kinds)}; got {kind!r}.")
    beside = {"privacy": ("kind", "relation"), "train": ("strategy", "rounds", "per_round")}
    privacy, strategy = KINDS[config["privacy"]["kind"]], STRATEGIES[config["train"]["strategy"]]
    check_names(path, "[privacy] of this kind", config["privacy"], (*beside["privacy"], *privacy))
    check_names(path, "[train] of this strategy", config["train"], (*beside["train"], *strategy))
    return config


def plan(config: dict[str, Any], known: Encoding) -> Training:
    """The training that a configuration describes; no row is read for it."""
    import torch

    from discreet import federate
    from discreet.core import user
    from discreet.learn.table import network

    with torch.random.fork_rng():
        torch.manual_seed(config.get("model", {}).get("seed", 0))
        model = network(known.width, config.get("model", {}).get("hidden", []), len(known.classes))
    settings, private = dict(config["train"]), dict(config["privacy"])
    kinds = {"central": federate.Central, "local": federate.Local, "distributed": federate.Distributed}
    ways = {"fedavg": federate.FedAvg, "fedsgd": federate.FedSGD, "selective": federate.Selective}
    kind = private.pop("kind")
    relation = private.pop("relation", "add_remove" if kind == "central" else "zero_out")
    unit = user(config["data"]["client"], rows=None, relation=relation)  # as `discreet ledger open --unit user:KEY` says it
    rounds, per_round = settings.pop("rounds"), settings.pop("per_round", None)
    try:
        scheme, strategy = kinds[kind](unit=unit, **private), ways[settings.pop("strategy")](**settings)
    except TypeError as error:
        raise InvalidDocument(f"[privacy] or [train] is not complete: {str(error).split('__init__() ')[-1]}.") from None
    loss = torch.nn.CrossEntropyLoss(reduction="none")
    return federate.Training(model, loss, strategy=strategy, rounds=rounds, per_round=per_round, privacy=scheme)


def _run(training: Training, config: dict[str, Any], known: Encoding, folder: Path) -> Any:
    """Read the rows, and train."""
    from discreet.federate import simulate

    ledger, output = config.get("ledger", {}), config["output"]
    place = ledger_of(config, folder)
    with naming_ledger(place):
        return simulate(
            training.model, _clients(config, known, folder), training.loss, strategy=training.strategy, rounds=training.rounds,
            per_round=training.per_round, privacy=training.privacy, ledger=place,
            source=ledger.get("source", Path(config["data"]["file"]).stem), account=ledger.get("account"),
            checkpoint=folder / output["checkpoint"] if "checkpoint" in output else None, progress=_progress(),
        )  # fmt: skip


def _clients(config: dict[str, Any], known: Encoding, folder: Path) -> Clients:
    """The rows of the table by the column of clients; a row without a client is nobody's, and left out."""
    import numpy as np

    from discreet.columns import codes, missing
    from discreet.federate import Clients
    from discreet.models.tables import read_private

    column = config["data"]["client"]
    table = read_private(str(folder / config["data"]["file"]), [*dict.fromkeys([*known.columns, known.target, column])])
    there = np.array([not missing(cell) for cell in table[column].tolist()])
    inputs, targets, kept = known.read({name: values[there] for name, values in table.items()})
    return Clients.by_column(inputs, targets, codes(table[column][there][kept])[0])


def _rows(known: Encoding, path: str) -> tuple[Any, Any]:
    from discreet.models.tables import read_private

    inputs, targets, _ = known.read(read_private(path, [*known.columns, known.target]))
    return inputs, targets


def _progress() -> Any:
    if not sys.stderr.isatty():
        return None

    def shown(done: int, rounds: int) -> None:
        click.echo(f"\rround {done} of {rounds}", nl=done == rounds, err=True)

    return shown


def _claimed(training: Training) -> dict[str, Any]:
    scheme = training.scheme
    asked = scheme.asked(training.rounds, training.size)
    claimed: dict[str, Any] = {} if asked is None else {"epsilon": asked[0], "delta": asked[1]}
    noise = scheme.noise(training.rounds, training.size)
    return {**claimed, "noise_multiplier": noise, "rounds": training.rounds, "unit": str(scheme.unit)}


def _saved(output: Any, folder: Path, known: Encoding, config: dict[str, Any]) -> None:
    """The model with its claim beside it, and what `discreet predict` reads rows by."""
    from discreet.learn.sgd.files import write

    write(output.release, folder, output.model.state_dict())
    write_released(known, config, folder)


def _tell(found: dict[str, Any], as_json: bool) -> None:
    from discreet.figures import down, up

    if as_json:
        write_json(found)
        return
    for name, value in found.items():
        text = up(value, 6) if name in ("epsilon", "delta") else down(value, 6) if isinstance(value, float) else str(value)
        click.echo(f"{name.replace('_', ' ')}: {text}")
    if "release" in found:
        if not found["entry"]:
            talk("Nobody adds up what was asked: name a ledger in [ledger] to spend from a budget.")
        talk(f"Read it: discreet show {found['release']}/release.json")
