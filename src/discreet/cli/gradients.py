"""`discreet attack gradients`: the rows of a batch, read out of one update."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from discreet.cli.output import json_option, reported, table, talk, write_json
from discreet.errors import InvalidValue

if TYPE_CHECKING:
    from discreet.attack.gradients import Inversion


@click.command("gradients")
@click.argument("update", type=click.Path())
@click.option(
    "--weights", required=True, metavar="FILE", help="The model when the update was made: safetensors or a state dict."
)
@click.option("--recipe", "recipe_file", required=True, metavar="FILE.py", help="Defines recipe = Recipe(…). This file is run.")
@click.option("--rows", "batch", type=int, required=True, metavar="N", help="How many rows the batch had.")
@click.option("--shape", metavar="C,H,W", help="The shape of one row: 3,32,32 for colour images.")
@click.option("--schema", metavar="FILE.toml", help='Columns of a table: NAME = ["a", "b"] or NAME = [low, high].')
@click.option("--target", metavar="COLUMN", help="A column of the schema that the network predicts, and is not given.")
@click.option("--labels", metavar="0,1,…", help="The labels of the batch, where they are known.")
@click.option("--text", "length", type=int, metavar="N", help="The rows are sequences of N tokens.")
@click.option("--epochs", type=int, metavar="N", help="UPDATE is how the weights changed over so many epochs (FedAvg).")
@click.option("--learning-rate", type=float, metavar="X", help="The step size in these epochs.")
@click.option("--batch-size", type=int, metavar="N", help="How many rows each step of these epochs saw.")
@click.option(
    "--originals", metavar="FILE.npz", help="Your own rows, as the network sees them: a page shows them beside what was read."
)
@click.option("--seconds", type=float, default=60.0, show_default=True, metavar="S", help="CPU time that each attack may take.")
@click.option("--seed", type=int, default=0, show_default=True, metavar="N", help="Seed of the random starts.")
@click.option("-o", "--output", "out", required=True, metavar="FOLDER", help="Where the recovered rows go.")
@json_option
def gradients_command(
    update: str, weights: str, recipe_file: str, batch: int, shape: str | None, schema: str | None, target: str | None,
    labels: str | None, length: int | None, epochs: int | None, learning_rate: float | None, batch_size: int | None,
    originals: str | None, seconds: float, seed: int, out: str, as_json: bool,
) -> None:  # fmt: skip
    """What rows can be read out of UPDATE, one gradient that a client of federated learning sent?

    UPDATE is a .safetensors file or a state dict: for every trained parameter, by name, the gradient, or how it changed. The
    rows that are found go to rows.npz, tables also to rows.csv. Rows that reproduce the update up to rounding are said to be
    exact.
    """
    from discreet.attack.gradients import gradients
    from discreet.models.files import read_model, read_recipe, read_weights

    if target is not None and schema is None:
        raise InvalidValue("--target is a column of a --schema; give that too.")
    if sum(given is not None for given in (shape, schema, length)) != 1:
        raise InvalidValue("Give --shape for images, --schema for a table or --text for sequences of tokens: one of them.")
    truth = None if originals is None else _originals(originals)
    model = read_model(weights, read_recipe(recipe_file, talk), trust_pickle=False, device="cpu")
    data = "text" if length else "image" if schema is None else _schema(schema, target)
    with reported(batch, "reading rows") as progress:
        recovered = gradients(
            model, read_weights(update), batch=batch, data=data,
            shape=[length] if length else None if shape is None else _numbers("--shape", shape), seconds=seconds, seed=seed,
            epochs=epochs, learning_rate=learning_rate, batch_size=batch_size,
            labels=None if labels is None else _numbers("--labels", labels),
            progress=lambda name, done, total: progress(min(batch, batch * done // max(total, 1)), batch),
        )  # fmt: skip
    _write(recovered, Path(out))
    if truth is not None:
        from discreet.attack.gradients.page import page

        (Path(out) / "page.html").write_text(page(recovered, truth), "utf-8")
    facts = {
        "method": recovered.method, "rows": len(recovered), "exact": int(recovered.exact.sum()), "batch": batch,
        "residual": recovered.residual, "cpu_seconds": round(recovered.seconds, 2), "notes": list(recovered.notes),
    }  # fmt: skip
    if as_json:
        write_json(facts)
    else:
        cells = recovered.method, f"{facts['exact']} of {batch}", f"{recovered.seconds:.1f}"
        table([cells], heads=["attack", "rows read exactly", "CPU seconds"])
        if int(recovered.exact.sum()) < batch:
            rest = len(recovered) - int(recovered.exact.sum())
            talk(f"{rest} more are guesses; the gradient of all rows is {recovered.residual:.2g} away from the update.")
    for note in recovered.notes:
        talk(note)
    talk(f"{out} holds what was read. It is private: treat it like the rows themselves.")


def _numbers(option: str, text: str) -> list[int]:
    try:
        return [int(part) for part in text.split(",")]
    except ValueError:
        raise InvalidValue(f"{option} must be whole numbers divided by commas, such as 3,32,32; got {text!r}.") from None


def _originals(path: str) -> Any:
    import zipfile

    import numpy as np

    from discreet.models.rows import existing

    try:
        with np.load(existing(path, "a file of rows")) as kept:
            if "rows" in kept.files:
                return kept["rows"]
    except (ValueError, OSError, zipfile.BadZipFile):
        pass
    raise InvalidValue(f"{path!r} must be an .npz file with the array rows, as numpy.savez(…, rows=…) writes it.")


def _schema(path: str, target: str | None) -> dict[str, Any]:
    """The columns that a network was given, in the order of the schema."""
    from discreet import schema

    columns = schema.read(path, "give a TOML file of columns.").one()
    known = {name: schema.learned(name, facts, "this attack") for name, facts in columns.items() if name != target}
    return {name: _kind(said) for name, said in known.items() if said is not None}


def _kind(said: Any) -> Any:
    """A pair as a range, as the attack takes it."""
    pair = isinstance(said, list) and not any(isinstance(end, str) for end in said)
    return tuple(said) if pair else said


def _write(found: Inversion, folder: Path) -> None:
    import numpy as np

    folder.mkdir(parents=True, exist_ok=True)
    kept: dict[str, Any] = {"rows": found.rows.numpy(), "exact": found.exact.numpy(), "confidence": found.confidence.numpy()}
    if found.labels is not None:
        kept["labels"] = found.labels.numpy()
    with (folder / "rows.npz").open("wb") as file:
        np.savez_compressed(file, **kept)
    if found.layout is not None:
        import csv

        columns = found.columns()
        with (folder / "rows.csv").open("w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file)
            writer.writerow([*columns, "exact"])
            writer.writerows(zip(*columns.values(), found.exact.tolist()))
    (folder / "found.json").write_text(json.dumps({"method": found.method, "residual": found.residual}) + "\n", "utf-8")
