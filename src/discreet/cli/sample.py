"""`discreet sample`: rows of a model that `discreet synth` kept. They cost nothing, however many there are."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from discreet.cli import COMMANDS
from discreet.cli.output import json_option, reported, talk, write_json
from discreet.errors import DiscreetError, InvalidValue

MODEL = "model.npz"  # as discreet synth names it


@click.command("sample", help=COMMANDS["sample"])
@click.argument("model")
@click.option("--rows", type=int, help="How many rows to make; by default as many as the table has, by a noisy count.")
@click.option("-o", "--output", metavar="FOLDER", required=True, help="Write what discreet synth writes there.")
@json_option
def command(model: str, rows: int | None, output: str, as_json: bool) -> None:
    from discreet import synth

    release = synth.load(Path(model) / MODEL if Path(model).is_dir() else model)
    write_tables(release, made_folder(Path(output)), Path(model), checked(rows), as_json)


def checked(rows: int | None) -> int | None:
    from discreet.core import check

    return None if rows is None else check.whole("rows", rows, most=10**12)


def made_folder(folder: Path) -> Path:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InvalidValue(f"{folder} cannot be written: {error.strerror or error}. Nothing was spent.") from None
    return folder


def write_tables(release: Any, folder: Path, model: Path, rows: int | None, as_json: bool) -> None:
    """The release, its counts and rows of its model into the folder, each file whole or not at all; `model` is where all of
    it can be made from again."""
    try:
        sample = release.value.sample(rows)
        release.save(folder / "release.json")
        tables = _tables(release.value, sample, folder)
    except (DiscreetError, OSError) as error:
        error.add_note(f"What was paid for is in {model}: make rows of it elsewhere with discreet sample {model} -o FOLDER.")
        raise
    _tell(release, sample, folder, tables, as_json)


def _tables(model: Any, sample: Any, folder: Path) -> list[Path]:
    """Counts with intervals, and rows: of two linked tables, each by the name of its table."""
    from discreet.synth import LinkedModel

    linked = isinstance(model, LinkedModel)
    _counts(model.parents if linked else model, folder / "marginals.parquet")
    if linked:
        _counts(model.children, folder / f"marginals-{model.names[1]}.parquet")
    with reported(len(sample), "rows") as progress:
        written = 0

        def more(count: int) -> None:
            nonlocal written
            written += count
            progress(written, len(sample))

        if linked:
            return list(sample.to_parquet(folder, more))
        return [sample.to_parquet(folder / "synthetic.parquet", more)]


def _counts(model: Any, place: Path) -> None:
    import pyarrow as pa
    from pyarrow.parquet import write_table

    from discreet.core.document import write_whole

    sink = pa.BufferOutputStream()
    write_table(model.marginals(), sink)
    write_whole(place, sink.getvalue().to_pybytes())


def _tell(release: Any, sample: Any, folder: Path, tables: list[Path], as_json: bool) -> None:
    from discreet.synth import LinkedModel

    linked = isinstance(release.value, LinkedModel)
    model = release.value.parents if linked else release.value
    if as_json:
        made = {"tables": list(map(str, tables))} if linked else {"table": str(tables[0]), "columns": list(model.columns)}
        write_json({
            "source": release.source, "entry": release.entry, "claims": [claim.to_json() for claim in release.claims],
            "rows": len(sample), "method": model.method, "gap": model.gap, "converged": model.converged, **made,
        })  # fmt: skip
    what = f"of {release.value.names[0]} and their {release.value.names[1]}" if linked else f"of {len(model.columns)} columns"
    state = "has converged" if model.converged else "HAS NOT CONVERGED"
    talk(f"{len(sample):,} rows {what} by the method {model.method}; the estimation {state}: "
         f"it is within {model.gap:.2g} of its optimum.")  # fmt: skip
    talk(f"Rows: {', '.join(map(str, tables))}   counts with intervals: {folder / 'marginals.parquet'}   what is claimed: "
         f"{folder / 'release.json'}")  # fmt: skip
    if release.entry is None:
        talk("Nobody adds up what was asked: give --ledger and --source to spend from a budget.")
    else:
        talk(f"Charged as entry {release.entry} of {release.source}.")
