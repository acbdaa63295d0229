"""`discreet federate`: federated training simulated on a table with a column of clients, described in one file."""

from __future__ import annotations

import sys
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from discreet.cli import COMMANDS
from discreet.cli.output import json_option, talk, write_json
from discreet.cli.releases import naming_ledger
from discreet.errors import InvalidDocument, InvalidValue

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
@click.argument("config", metavar="CONFIG.toml")
@click.option("--test", metavar="FILE", help="A public table to tell accuracy on. Nothing covers what is told of it.")
@click.option("--dry-run", is_flag=True, help="Tell noise and claim; read and spend nothing.")
@json_option
def command(config: str, test: str | None, dry_run: bool, as_json: bool) -> None:
    from discreet.learn import table

    told = read(config)
    known = table.Encoding(**{name: told["data"][name] for name in ("columns", "target", "classes")})
    training, folder = plan(told, known), Path(config).parent
    if dry_run:
        _tell(_claimed(training), as_json)
        return
    public = None if test is None else _rows(known, test)
    output = _run(training, told, known, folder)
    found = {"release": str(folder / told["output"]["folder"]), **_claimed(training), "entry": output.release.entry}
    if public is not None:
        found["test_accuracy"] = float((output.model(public[0]).argmax(1) == public[1]).float().mean())
    _saved(output, folder / told["output"]["folder"], config)
    _tell(found, as_json)


def read(path: str) -> dict[str, Any]:
    """The file, checked name by name."""
    try:
        told = tomllib.loads(Path(path).read_text())
    except FileNotFoundError:
        raise InvalidValue(f"There is no file {path!r}; discreet federate reads a TOML file, see the guide.") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InvalidDocument(f"{path!r} is not valid TOML: {error}") from None
    for section, inside in told.items():
        if section not in SECTIONS or not isinstance(inside, dict):
            raise InvalidDocument(f"{path!r} has a section [{section}]; known are {', '.join(SECTIONS)}.")
        _known(path, f"[{section}]", inside, SECTIONS[section])
    for section, names in NEEDED.items():
        lacking = [name for name in names if name not in told.get(section, {})]
        if lacking:
            raise InvalidDocument(f"[{section}] of {path!r} lacks {', '.join(lacking)}.")
    for section, name, kinds in (("privacy", "kind", KINDS), ("train", "strategy", STRATEGIES)):
        kind = told[section][name]
        if kind not in kinds:
            raise InvalidDocument(f"{name} in [{section}] of {path!r} must be {', '.join(kinds)}; got {kind!r}.")
    beside = {"privacy": ("kind", "relation"), "train": ("strategy", "rounds", "per_round")}
    _known(path, "[privacy] of this kind", told["privacy"], (*beside["privacy"], *KINDS[told["privacy"]["kind"]]))
    _known(path, "[train] of this strategy", told["train"], (*beside["train"], *STRATEGIES[told["train"]["strategy"]]))
    return told


def _known(path: str, what: str, inside: dict[str, Any], names: tuple[str, ...]) -> None:
    extra = sorted(set(inside) - set(names))
    if extra:
        raise InvalidDocument(f"{what} in {path!r} does not know {extra[0]}; it takes {', '.join(names)}.")


def plan(told: dict[str, Any], known: Encoding) -> Training:
    """The training that a configuration describes; no row is read for it."""
    import torch

    from discreet import federate
    from discreet.core import user
    from discreet.learn.table import network

    with torch.random.fork_rng():
        torch.manual_seed(told.get("model", {}).get("seed", 0))
        model = network(known.width, told.get("model", {}).get("hidden", []), len(known.classes))
    settings, private = dict(told["train"]), dict(told["privacy"])
    kinds = {"central": federate.Central, "local": federate.Local, "distributed": federate.Distributed}
    ways = {"fedavg": federate.FedAvg, "fedsgd": federate.FedSGD, "selective": federate.Selective}
    kind = private.pop("kind")
    relation = private.pop("relation", "add_remove" if kind == "central" else "zero_out")
    unit = user(told["data"]["client"], rows=None, relation=relation)  # as `discreet ledger open --unit user:KEY` says it
    rounds, per_round = settings.pop("rounds"), settings.pop("per_round", None)
    try:
        scheme, strategy = kinds[kind](unit=unit, **private), ways[settings.pop("strategy")](**settings)
    except TypeError as error:
        raise InvalidDocument(f"[privacy] or [train] is not complete: {str(error).split('__init__() ')[-1]}.") from None
    loss = torch.nn.CrossEntropyLoss(reduction="none")
    return federate.Training(model, loss, strategy=strategy, rounds=rounds, per_round=per_round, privacy=scheme)


def _run(training: Training, told: dict[str, Any], known: Encoding, folder: Path) -> Any:
    """Read the rows, and train."""
    from discreet.federate import simulate

    ledger, output = told.get("ledger", {}), told["output"]
    if ledger and not {"place", "source"} <= set(ledger):
        raise InvalidDocument("[ledger] needs place (a file or a URL) and source (the name of the budget).")
    place = str(ledger["place"]) if ledger else None
    if place is not None and "://" not in place:
        place = str(folder / place)
        if not Path(place).exists():
            raise InvalidValue(f"There is no ledger at {place}. Open a budget there first: discreet ledger open.")
    with naming_ledger(place):
        return simulate(
            training.model, _clients(told, known, folder), training.loss, strategy=training.strategy, rounds=training.rounds,
            per_round=training.per_round, privacy=training.privacy, ledger=place,
            source=ledger.get("source", told["data"]["file"]), account=ledger.get("account"),
            checkpoint=folder / output["checkpoint"] if "checkpoint" in output else None, progress=_progress(),
        )  # fmt: skip


def _clients(told: dict[str, Any], known: Encoding, folder: Path) -> Clients:
    """The rows of the table by the column of clients; a row without a client is nobody's, and left out."""
    import numpy as np

    from discreet.columns import codes, missing
    from discreet.federate import Clients
    from discreet.models.tables import read_private

    column = told["data"]["client"]
    table = read_private(str(folder / told["data"]["file"]), [*dict.fromkeys([*known.columns, known.target, column])])
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
    found: dict[str, Any] = {} if asked is None else {"epsilon": asked[0], "delta": asked[1]}
    noise = scheme.noise(training.rounds, training.size)
    return {**found, "noise_multiplier": noise, "rounds": training.rounds, "unit": str(scheme.unit)}


def _saved(output: Any, folder: Path, config: str) -> None:
    """The model with its claim beside it, and what was asked, by which `discreet predict` reads rows."""
    from discreet.learn.sgd.files import write
    from discreet.learn.table import CONFIG

    write(output.release, folder, output.model.state_dict())
    (folder / CONFIG).write_text(Path(config).read_text())


def _tell(found: dict[str, Any], as_json: bool) -> None:
    from discreet.figures import down, up

    if as_json:
        write_json(found)
        return
    for name, value in found.items():
        text = up(value, 6) if name in ("epsilon", "delta") else down(value, 6) if isinstance(value, float) else str(value)
        click.echo(f"{name.replace('_', ' ')}: {text}")
    if "release" in found:
        talk(f"Read it: discreet show {found['release']}/release.json")
