"""The released model of linked tables: a model of parents, and a model of children given their parent."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from discreet.errors import InvalidValue
from discreet.synth.junction import Floats
from discreet.synth.model import BATCH, Model, Sample
from discreet.synth.sample import Codes, grouped
from discreet.synth.select import Pair

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True, slots=True, eq=False)
class LinkedModel:
    """Synthetic twins of two linked tables, `names`, whose rows belong together by `key`.

    `parents` is a model of the first, with how many children a parent has as its last column. `children` is one of children
    beside the columns of their parent: its counts are of children of which those of one parent weigh at most as many as
    count. `pairs` says by which pair of columns each column of children is drawn.
    """

    names: tuple[str, str]
    key: str
    parents: Model
    children: Model
    pairs: tuple[Pair, ...]
    columns: tuple[tuple[str, ...], tuple[str, ...]]  # of both tables, in their order, the key among them
    types: tuple[Any, Any]  # the Arrow types of the key

    def sample(self, n: int | None = None, given: Mapping[str, Any] | None = None, *, seed: int | None = None) -> LinkedSample:
        """`n` synthetic parents with their children, or as many as there are by the noisy count; `given` fixes columns of
        parents. Keys are new: the numbers from 1."""
        return LinkedSample(self, self.parents.sample(n, given, seed=seed))

    def links(self) -> list[tuple[int, int, Floats]]:
        """For each column of children, in an order in which the other is known already: that other column, the column itself,
        and its distribution given the other."""
        known, pending, result = set(range(len(self.parents.cells))), list(self.pairs), []
        while pending:
            pair = next(pair for pair in pending if known & set(pair))
            pending.remove(pair)
            known_column, column = pair if pair[0] in known else pair[::-1]
            table = self.children.tree.marginal(self.children.conditionals, (known_column, column))
            sums = table.sum(axis=1, keepdims=True)
            result.append(
                (known_column, column, np.divide(table, sums, out=np.full_like(table, 1 / table.shape[1]), where=sums > 0))
            )
            known.add(column)
        return result


@dataclass(frozen=True, slots=True, eq=False)
class LinkedSample:
    """Synthetic parents and children, made when they are written, some parents at a time."""

    model: LinkedModel
    parents: Sample

    def __len__(self) -> int:
        return len(self.parents)

    def batches(self) -> Iterator[tuple[pa.RecordBatch, pa.RecordBatch]]:
        """Parents, and their children."""
        model, known = self.model, len(self.model.parents.cells)
        links, cells, first = model.links(), model.children.cells, 1
        own = Sample(cells, model.children.tree, (), 1, {})  # draws values in the cells of children
        for codes, random in self.parents.parts(max(BATCH // (model.parents.cells[-1].column.bounds or (0, 1))[1], 64)):
            values = self.parents.arrays(codes, random)
            number = values[-1].to_numpy(zero_copy_only=False)
            keys = np.arange(first, first + len(number))
            first += len(number)
            flat: list[Codes] = [np.repeat(column, number) for column in codes]
            flat += [np.zeros(0, np.int32)] * (len(cells) - known)
            for known_column, column, table in links:
                flat[column] = grouped(table, flat[known_column], random)
            drawn = own.arrays(flat, random)
            children = dict(zip((column_cells.name for column_cells in cells[known:]), drawn[known:]))
            yield (
                self._batch(0, keys, dict(zip(self.parents.columns, values))),
                self._batch(1, np.repeat(keys, number), children),
            )

    def _batch(self, place: int, keys: Any, values: dict[str, Any]) -> pa.RecordBatch:
        import pyarrow as pa

        schema = self._schema(place)
        key = schema.field(self.model.key).type
        key_column = pa.array(keys).cast(key) if not pa.types.is_string(key) else pa.array(keys).cast(pa.string())
        columns = [key_column if name == self.model.key else values[name] for name in self.model.columns[place]]
        return pa.RecordBatch.from_arrays(columns, schema=schema)

    def _schema(self, place: int) -> pa.Schema:
        """The columns in the table's own order and types; keys keep theirs where the numbers fit it, and are text otherwise."""
        import pyarrow as pa

        cells = {column.name: column.arrow_type for column in (self.model.parents, self.model.children)[place].cells}
        key = self.model.types[place]
        if pa.types.is_integer(key) and key.bit_width < 64:
            key = pa.int64() if len(self) >= 1 << (key.bit_width - 1) else key
        if not (pa.types.is_integer(key) or pa.types.is_floating(key)):
            key = pa.string()
        return pa.schema([(name, key if name == self.model.key else cells[name]) for name in self.model.columns[place]])

    def to_arrow(self) -> dict[str, pa.Table]:
        """Both tables, by name."""
        import pyarrow as pa

        parts = list(zip(*self.batches(), strict=True))
        return {
            name: pa.Table.from_batches(part, self._schema(i)) for i, (name, part) in enumerate(zip(self.model.names, parts))
        }

    def to_parquet(self, folder: str | os.PathLike[str], progress: Callable[[int], None] | None = None) -> tuple[Path, Path]:
        """Write both tables into a folder, named as they are, batch by batch; both appear whole or not at all. `progress` is
        told how many parents were written each time."""
        import pyarrow.parquet as parquet

        places = [Path(folder) / f"{name}.parquet" for name in self.model.names]
        beside = [place.with_name(f".{place.name}.{os.getpid()}.part") for place in places]
        try:
            with ExitStack() as stack:
                writers = [stack.enter_context(parquet.ParquetWriter(file, self._schema(i))) for i, file in enumerate(beside)]
                for batches in self.batches():
                    for writer, batch in zip(writers, batches):
                        writer.write_batch(batch)
                    if progress is not None:
                        progress(batches[0].num_rows)
            for file, place in zip(beside, places):
                os.replace(file, place)
        except OSError as error:
            raise InvalidValue(f"{folder} cannot be written: {error.strerror or error}.") from None
        finally:
            for file in beside:
                file.unlink(missing_ok=True)
        return places[0], places[1]
