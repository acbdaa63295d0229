"""Synthetic tables in the folder of releases: which release has one, its first rows, and the whole as a file."""

from __future__ import annotations

import io
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from discreet.core import NonPrivate, Release
from discreet.serve.answer import plain
from discreet.serve.store import ReleaseStore

TABLE, MODEL = "synthetic.parquet", "model.npz"  # as discreet synth names them
SHOWN = 12  # rows of a preview
KINDS = {"parquet": "application/vnd.apache.parquet", "csv": "text/csv"}
LARGEST = 512 << 20  # bytes of a table that is sent


def table_file(store: ReleaseStore, name: str, release: Release[Any]) -> Path | None:
    """The file of a synthetic table; None for a release of anything else, or whose claims do not cover a table."""
    covered = release.claims and all(
        not isinstance(claim.event, NonPrivate) and "table" in claim.game.view for claim in release.claims
    )
    if not covered or not isinstance(release.facts.get("synthetic"), Mapping):
        return None
    file = store.path(name).with_name(TABLE)
    if file.parent == store.folder or not file.is_file() or not file.resolve().is_relative_to(store.folder):
        return None
    return file


def preview(store: ReleaseStore, name: str, release: Release[Any]) -> dict[str, Any] | None:
    """The first rows of a synthetic table, and how many there are; None where there is none that can be read."""
    file = table_file(store, name, release)
    if file is None:
        return None
    import pyarrow
    import pyarrow.parquet as parquet

    try:
        opened = parquet.ParquetFile(file)
        first = next(opened.iter_batches(batch_size=SHOWN), None)
        count = opened.metadata.num_rows
    except (pyarrow.ArrowException, OSError):
        return None
    columns = plain(pyarrow.Table.from_batches([first] if first is not None else [], opened.schema_arrow))
    rows = [["" if cell is None else cell for cell in row] for row in zip(*columns.values())]
    return {"name": name, "rows": count, "heads": list(columns), "first": rows}


def content(file: Path, kind: str) -> bytes:
    """The whole table as parquet or CSV."""
    if kind == "parquet":
        return file.read_bytes()
    import pyarrow.csv as csv
    import pyarrow.parquet as parquet

    sink = io.BytesIO()
    csv.write_csv(parquet.read_table(file), sink)
    return sink.getvalue()
