"""A model as a file: what was paid for, so that rows can be made of it whenever and as often as one likes.

All that a model holds is noisy or public, so its claim covers the file. It is a zip archive of numpy arrays, none of them
pickled, and holds the release beside the model.
"""

from __future__ import annotations

import io
import json
import os
import warnings
import zipfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from datetime import date, datetime
from pathlib import Path
from typing import Any

import numpy as np

from discreet.core import Release
from discreet.core.document import write_whole
from discreet.errors import InvalidDocument, InvalidValue
from discreet.synth.cells import Cells
from discreet.synth.junction import JunctionTree
from discreet.synth.linked_model import LinkedModel
from discreet.synth.measure import Measurement
from discreet.synth.model import Model
from discreet.synth.schema import LISTED, RANGED, Column

FORMAT, VERSION = "discreet-synthesis", 1
SLACK = 1 << 20  # bytes for all of a file that is no array
_READ = {"date": date.fromisoformat, "timestamp": datetime.fromisoformat}


def save(release: Release[Any], path: str | os.PathLike[str]) -> Path:
    """Keep a fitted release with its model in a file, whole or not at all; `load` reads it.

    >>> import tempfile, pyarrow as pa
    >>> from discreet import synth
    >>> from discreet.core import record
    >>> rows = pa.table({"sex": ["f", "m"] * 500})
    >>> fitted = synth.fit(rows, unit=record(), epsilon=1.0, delta=1e-6, schema={"sex": ["f", "m"]})
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     again = synth.load(synth.save(fitted, f"{folder}/model.npz"))
    >>> again.claims == fitted.claims, again.value.sample(9, seed=1).to_arrow() == fitted.value.sample(9, seed=1).to_arrow()
    (True, True)
    """
    return write_whole(path, _written(release))


def load(path: str | os.PathLike[str]) -> Release[Any]:
    """The release that `save` wrote, or a fit with `keep`: its value makes rows and counts as it did."""
    try:
        with open(path, "rb") as file, np.load(file, allow_pickle=False) as parts:
            document = json.loads(bytes(parts["document"]))
            if document["format"] != FORMAT or document["version"] != VERSION:
                raise ValueError(f"this discreet reads {FORMAT} of version {VERSION}")
            return replace(Release.from_json(document["release"]), value=_model(document["model"], parts))
    except OSError as error:
        raise InvalidDocument(f"{path} cannot be read: {error.strerror or error}.") from None
    except (KeyError, ValueError, TypeError, IndexError, AttributeError, EOFError, zipfile.BadZipFile) as error:
        raise InvalidDocument(f"{path} is no model that discreet synth wrote, or a fit that kept it.") from error


@contextmanager
def kept_in(path: str | os.PathLike[str] | None, size: int) -> Iterator[Callable[[Release[Any]], Release[Any]]]:
    """Room for a file of so many bytes, taken before anything is spent: a disk that fills up in between takes nothing.

    What the context gives keeps a release there and gives it back; the file appears whole or not at all. What is paid for is
    given back even where the file cannot be written after all. Without a path nothing is kept.
    """
    if path is None:
        yield lambda release: release
        return
    place = Path(path)
    beside = place.with_name(f".{place.name}.{os.getpid()}.part")

    def keep(release: Release[Any]) -> Release[Any]:
        try:
            _write(beside, [_written(release)], "r+b")
            os.replace(beside, place)
        except OSError as error:
            warnings.warn(f"{place} cannot be written: {error.strerror or error}. The model is in memory alone.", stacklevel=3)
        return release

    try:
        try:
            _write(beside, (bytes(min(SLACK, size - start)) for start in range(0, size, SLACK)), "wb")
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or error
            raise InvalidValue(f"{place} cannot be written: {reason}. The model needs up to "
                               f"{max(size >> 20, 1):,} MiB there. Nothing was spent.") from None  # fmt: skip
        yield keep
    finally:
        with suppress(OSError, ValueError):
            beside.unlink()


def _write(place: Path, parts: Iterable[bytes], mode: str) -> None:
    with open(place, mode) as file:
        for part in parts:
            file.write(part)
        file.truncate()
        file.flush()
        os.fsync(file.fileno())


def largest(sizes: Sequence[int], pairs: int, tables: int, most_cells: int) -> int:
    """How many bytes a model takes at most that measures so many pairs of columns of these sizes, and so many more tables, each
    of them of at most `most_cells` cells, as its junction tree has unless its pairs have more.
    """
    *_, second, first = (1, *sorted(sizes))
    every = (sum(sizes) ** 2 - sum(size**2 for size in sizes)) // 2
    return 8 * (2 * (sum(sizes) + min(every, pairs * first * second)) + (tables + 1) * most_cells) + SLACK


# ---- a model as a document and arrays ------------------------------------------------------------------------------------


def _written(release: Release[Any]) -> bytes:
    arrays: dict[str, Any] = {}
    document = {"format": FORMAT, "version": VERSION, "release": release.to_json(), "model": _parts(release.value, arrays)}
    sink = io.BytesIO()
    np.savez(sink, document=np.frombuffer(json.dumps(document).encode(), np.uint8), **arrays)
    return sink.getvalue()


def _parts(model: Any, arrays: dict[str, Any], name: str = "") -> dict[str, Any]:
    """A model as JSON; its arrays go to `arrays`, under names that begin with `name`."""
    if isinstance(model, LinkedModel):
        arrays["key"] = _arrow(model.types)
        return {
            "names": model.names, "key": model.key, "pairs": model.pairs, "columns": model.columns,
            "parents": _parts(model.parents, arrays, "parents."), "children": _parts(model.children, arrays, "children."),
        }  # fmt: skip
    if not isinstance(model, Model):
        raise InvalidValue(f"Only what fit or fit_linked released can be kept; got {type(model).__name__}.")
    arrays[f"{name}arrow"] = _arrow([cells.arrow for cells in model.cells])
    arrays |= {f"{name}conditional{i}": table for i, table in enumerate(model.conditionals)}
    arrays |= {f"{name}counts{i}": measurement.counts for i, measurement in enumerate(model.measurements)}
    tree = model.tree
    return {
        "cells": [_column(cells) for cells in model.cells], "rows": model.rows, "method": model.method, "gap": model.gap,
        "converged": model.converged, "ordered": model.ordered, "sizes": tree.sizes, "cliques": tree.cliques,
        "clique_parents": tree.parents, "separators": tree.separators,
        "measured": [{"columns": measurement.columns, "sigma": measurement.sigma} for measurement in model.measurements],
    }  # fmt: skip


def _model(document: Mapping[str, Any], parts: Any, name: str = "") -> Any:
    if "parents" in document:
        parents, children = (_model(document[which], parts, f"{which}.") for which in ("parents", "children"))
        types = _types(parts["key"])
        names, columns = map(tuple, (document["names"], map(tuple, document["columns"])))
        return LinkedModel(names, document["key"], parents, children, _tuples(document["pairs"]), columns, (types[0], types[1]))
    tree = JunctionTree(
        tuple(document["sizes"]), _tuples(document["cliques"]), tuple(document["clique_parents"]),
        _tuples(document["separators"]),
    )  # fmt: skip
    cells = tuple(map(_cells, document["cells"], _types(parts[f"{name}arrow"])))
    measured = [
        Measurement(tuple(item["columns"]), parts[f"{name}counts{i}"], float(item["sigma"]))
        for i, item in enumerate(document["measured"])
    ]
    conditionals = tuple(parts[f"{name}conditional{i}"] for i in range(len(tree.cliques)))
    sets = [*zip(tree.cliques, conditionals), *((item.columns, item.counts) for item in measured)]
    if tree.sizes != tuple(item.size for item in cells) or any(
        table.shape != tuple(tree.sizes[c] for c in columns) for columns, table in sets
    ):
        raise ValueError("tables and columns have different sizes")
    return Model(
        cells, tree, conditionals, float(document["rows"]), tuple(measured), document["method"], float(document["gap"]),
        document["converged"], _tuples(document["ordered"]),
    )  # fmt: skip


def _tuples(items: Any) -> Any:
    return tuple(map(tuple, items))


def _column(cells: Cells) -> dict[str, Any]:
    column = cells.column
    names = ("values", "other") if column.type in LISTED else ("bounds", "bins", "mass", "decimals")
    facts = {name: _plain(getattr(column, name)) for name in (names if column.type in (*LISTED, *RANGED) else ())}
    return {"name": cells.name, "kind": cells.kind, "type": column.type, "required": column.required, **facts}


def _cells(document: Mapping[str, Any], arrow: Any) -> Cells:
    facts = dict(document)
    name, kind = facts.pop("name"), facts.pop("kind")
    read = _READ.get(kind, lambda value: value)
    if facts["type"] in LISTED:
        facts["values"] = tuple(map(read, facts["values"]))
        facts["other"] = None if facts["other"] is None else read(facts["other"])
    cells = Cells.of(name, Column(**facts), kind)
    return cells if arrow is None else replace(cells, arrow=arrow)


def _plain(value: Any) -> Any:
    if isinstance(value, tuple):
        return list(map(_plain, value))
    return value.isoformat() if isinstance(value, date) else value


def _arrow(types: Sequence[Any]) -> Any:
    """Arrow types as bytes; the type of nothing stands for none."""
    import pyarrow as pa

    schema = pa.schema([(str(i), pa.null() if kind is None else kind) for i, kind in enumerate(types)])
    return np.frombuffer(schema.serialize().to_pybytes(), np.uint8)


def _types(content: Any) -> list[Any]:
    import pyarrow as pa

    types = pa.ipc.read_schema(pa.py_buffer(content.tobytes())).types
    return [None if pa.types.is_null(kind) else kind for kind in types]
