"""The released model: a distribution over the columns, from which rows and counts can be drawn without limit."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from discreet.core import check
from discreet.errors import InvalidValue
from discreet.synth.cells import ARROW, Cells
from discreet.synth.junction import Floats, JunctionTree
from discreet.synth.measure import Measurement
from discreet.synth.sample import Codes, sample

if TYPE_CHECKING:
    import pyarrow as pa

TRIES = 60  # to draw two values in order
BATCH = 1 << 16  # rows made at once
LEVEL = 1.959963984540054  # of a normal number: 95 % within
STRICTER = 2.241402727604947  # 97.5 % within


@dataclass(frozen=True, slots=True, eq=False)
class Model:
    """A synthetic twin of a table. `rows` is the noisy number of rows; `gap` says how far the estimation is from its optimum.

    Everything computed from it is post-processing, at no further cost.
    """

    cells: tuple[Cells, ...]
    tree: JunctionTree
    conditionals: tuple[Floats, ...]
    rows: float
    measurements: tuple[Measurement, ...]
    method: str
    gap: float = 0.0
    converged: bool = True
    ordered: tuple[tuple[int, int], ...] = ()  # columns of which the first is at most the second

    @property
    def columns(self) -> tuple[str, ...]:
        """The names of the columns, in the table's order."""
        return tuple(cells.name for cells in self.cells)

    def probabilities(self, *columns: str) -> Floats:
        """The model's joint probabilities of some columns, as an array in the order given."""
        return self.tree.marginal(self.conditionals, self._places(columns))

    def marginal(self, *columns: str) -> pa.Table:
        """Counts of the real table by these columns, as the model has them, with a 95 % interval for each cell.

        Where the columns were measured, the interval comes from the measurements' own noise. Where they were not, it is what
        the measured margins allow (Fréchet), which is wide; `measured` says which.
        """
        import pyarrow as pa

        places = self._places(columns)
        counts = self.tree.marginal(self.conditionals, places) * self.rows
        low, high, measured = self.interval(places)
        labels = list(product(*(self.cells[place].labels() for place in places)))
        data: dict[str, Any] = {}
        for i, place in enumerate(places):
            kind = pa.string() if self.cells[place].bins else ARROW[self.cells[place].kind]()
            data[self.cells[place].name] = pa.array([label[i] for label in labels], kind)
        for name, numbers in (("count", counts), ("low", low), ("high", high)):
            if name in data:
                raise InvalidValue(f"A column of the table is called {name}, as one of the answer would be. Rename it.")
            data[name] = pa.array(np.ravel(numbers), pa.float64())
        data["measured"] = pa.array([measured] * len(labels), pa.bool_())
        return pa.table(data)

    def marginals(self) -> pa.Table:
        """Every table that was measured, one cell a row: its columns, what the cell stands for, the model's count and the 95 %
        interval for the true one."""
        import pyarrow as pa

        data: dict[str, list[Any]] = {"columns": [], "cell": [], "count": [], "low": [], "high": []}
        for places in dict.fromkeys(measurement.columns for measurement in self.measurements):
            counts = self.tree.marginal(self.conditionals, places) * self.rows
            low, high, _ = self.interval(places)
            labels = product(*(self.cells[place].labels() for place in places))
            data["columns"] += [[self.cells[place].name for place in places]] * counts.size
            data["cell"] += [[None if label is None else str(label) for label in cell] for cell in labels]
            for name, numbers in (("count", counts), ("low", low), ("high", high)):
                data[name] += np.ravel(numbers).tolist()
        texts, number = pa.list_(pa.string()), pa.float64()
        return pa.table(
            data, pa.schema([("columns", texts), ("cell", texts), *((n, number) for n in ("count", "low", "high"))])
        )

    def interval(self, columns: tuple[int, ...]) -> tuple[Floats, Floats, bool]:
        """Low and high ends for the true counts of these columns, 95 % for each cell; and whether they were measured."""
        view = self._view(columns)
        if view is not None:
            away = LEVEL * view.sigma
            return np.maximum(view.counts - away, 0.0), np.maximum(view.counts + away, 0.0), True
        shape = [self.cells[column].size for column in columns]
        sharp = self._sure_margins(columns, shape)
        most = np.min([high for _, high in sharp], axis=0)
        weight = sum(1 / (m.sigma**2 * m.counts.size) for m in self.measurements)
        rows = self.rows + LEVEL / math.sqrt(weight)
        least = np.maximum(sum(low for low, _ in sharp) - (len(columns) - 1) * rows, 0.0)
        return least, most, False

    def _sure_margins(self, columns: tuple[int, ...], shape: list[int]) -> list[tuple[Floats, Floats]]:
        """Intervals for each column's counts, with 95 % simultaneous coverage."""
        intervals = []
        level = LEVEL if len(columns) == 1 else STRICTER + math.log(len(columns) / 2)
        for i, column in enumerate(columns):
            view = self._view((column,))
            assert view is not None  # every method measures every column
            low, high = np.maximum(view.counts - level * view.sigma, 0.0), np.maximum(view.counts + level * view.sigma, 0.0)
            over = [shape[i] if j == i else 1 for j in range(len(columns))]
            intervals.append((np.broadcast_to(low.reshape(over), shape), np.broadcast_to(high.reshape(over), shape)))
        return intervals

    def _view(self, columns: tuple[int, ...]) -> Measurement | None:
        """All measurements that hold these columns as one, each weighed by its precision."""
        wanted = tuple(sorted(columns))
        views = [m.onto(wanted) for m in self.measurements if set(wanted) <= set(m.columns)]
        if not views:
            return None
        weights = [1 / view.sigma**2 for view in views]
        counts = np.sum([w * view.counts for w, view in zip(weights, views)], axis=0) / sum(weights)
        return Measurement(columns, counts.transpose([wanted.index(c) for c in columns]), 1 / math.sqrt(sum(weights)))

    def sample(self, n: int | None = None, given: Mapping[str, Any] | None = None, *, seed: int | None = None) -> Sample:
        """`n` synthetic rows, or as many as the table has, by the noisy count; `given` fixes the values of some columns.

        A seed makes the rows repeatable. It decides nothing about privacy: the noise is in the model already.
        """
        count = max(1, round(self.rows)) if n is None else check.whole("n", n, most=10**12)
        conditionals = self.conditionals if not given else self._given(given)
        return Sample(self.cells, self.tree, tuple(conditionals), count, dict(given or {}), seed, self.ordered)

    def _given(self, given: Mapping[str, Any]) -> list[Floats]:
        with np.errstate(divide="ignore"):
            potentials = [np.log(table) for table in self.conditionals]
        for column, possible in self._possible(given):
            home = self.tree.home((column,))
            assert home is not None
            only = np.where(possible, 0.0, -np.inf).reshape([-1 if other == column else 1 for other in self.tree.cliques[home]])
            potentials[home] = potentials[home] + only
        conditionals, log_total = self.tree.conditionals(potentials)
        if not math.isfinite(log_total):
            raise InvalidValue("The model holds no rows with these values; ask for others.")
        return conditionals

    def _possible(self, given: Mapping[str, Any]) -> Iterator[tuple[int, NDArray[np.bool_]]]:
        """The possible cells of each given column, and of the columns that must be in order with it."""
        for name, value in given.items():
            (column,) = self._places((name,))
            yield column, np.arange(self.cells[column].size) == self.cells[column].place(value)
            for first, second in self.ordered:
                if value is not None and column in (first, second):
                    other = self.cells[second if column == first else first]
                    point = self.cells[column].column.point(name, value)
                    ends = [other.ends(i) for i in range(other.known)]
                    fits = [point <= most if column == first else least <= point for least, most in ends]
                    yield (second if column == first else first), np.array([*fits, *[True] * (other.size - other.known)])

    def _places(self, columns: Sequence[str]) -> tuple[int, ...]:
        known = {cells.name: i for i, cells in enumerate(self.cells)}
        for name in columns:
            if name not in known:
                raise InvalidValue(f"There is no column {check.shown(name)}; there are {', '.join(list(known)[:20])}.")
        if not columns or len(set(columns)) != len(columns):
            raise InvalidValue("Name at least one column, and each once.")
        places = tuple(known[name] for name in columns)
        if math.prod(self.cells[place].size for place in places) > 10_000_000:
            raise InvalidValue("These columns have more than ten million cells together; ask for fewer.")
        return places


@dataclass(frozen=True, slots=True, eq=False)
class Sample:
    """Synthetic rows, made when they are written: batch by batch, so that memory stays the same however many there are."""

    cells: tuple[Cells, ...]
    tree: JunctionTree
    conditionals: tuple[Floats, ...]
    count: int
    given: Mapping[str, Any]
    seed: int | None = None
    ordered: tuple[tuple[int, int], ...] = ()

    def __len__(self) -> int:
        return self.count

    @property
    def columns(self) -> tuple[str, ...]:
        return tuple(cells.name for cells in self.cells)

    def codes(self) -> NDArray[Any]:
        """All rows as codes, one column each."""
        return np.concatenate([np.stack(part, axis=1) for part, _ in self.parts()])

    def batches(self) -> Iterator[pa.RecordBatch]:
        """The rows, some hundred thousand at a time."""
        import pyarrow as pa

        for codes, random in self.parts():
            yield pa.RecordBatch.from_arrays(self.arrays(codes, random), list(self.columns))

    def arrays(self, codes: list[Codes], random: np.random.Generator) -> list[Any]:
        """The values of codes, column by column, in the types of the table."""
        arrays = [self._drawn(place, part, random) for place, part in enumerate(codes)]
        for first, second in self.ordered:
            arrays[first], arrays[second] = self._in_order((first, second), codes, arrays, random)
        return [array.cast(cells.arrow_type, safe=False) for array, cells in zip(arrays, self.cells)]

    def _in_order(self, pair: tuple[int, int], codes: list[Codes], arrays: list[Any], random: np.random.Generator) -> list[Any]:
        """Both columns, drawn again in rows that are out of order; after many tries the ends of their cells are taken."""
        import pyarrow as pa
        import pyarrow.compute as pc

        drawn = [arrays[place] for place in pair]
        for _ in range(TRIES):
            wrong = pc.fill_null(pc.greater(*drawn), False)
            rows = np.flatnonzero(wrong.to_numpy(zero_copy_only=False))
            if not rows.size:
                return drawn
            new = [self._drawn(place, codes[place][rows], random) for place in pair]
            drawn = [pc.replace_with_mask(array, wrong, values) for array, values in zip(drawn, new)]
        wrong = pc.fill_null(pc.greater(*drawn), False)
        last = np.flatnonzero(wrong.to_numpy(zero_copy_only=False))
        for i, place in enumerate(pair):
            cells = self.cells[place]
            ends = [self.given.get(cells.name, cells.ends(int(codes[place][row]))[i]) for row in last]
            drawn[i] = pc.replace_with_mask(drawn[i], wrong, pa.array(ends, drawn[i].type))
        return drawn

    def _drawn(self, place: int, codes: Codes, random: np.random.Generator) -> pa.Array:
        import pyarrow as pa

        cells = self.cells[place]
        array = cells.decode(codes, random)
        if cells.name not in self.given or not cells.bins:
            return array
        return pa.array([self.given[cells.name]], array.type).take(pa.array(np.zeros(len(array), np.int32)))

    def parts(self, at_once: int | None = None) -> Iterator[tuple[list[Codes], np.random.Generator]]:
        """The codes of some rows at a time, and the random numbers that draw their values."""
        random, size = np.random.default_rng(self.seed), at_once or BATCH
        for start in range(0, self.count, size):
            yield sample(self.tree, self.conditionals, min(size, self.count - start), random), random

    def to_arrow(self) -> pa.Table:
        """The rows as an Arrow table."""
        import pyarrow as pa

        return pa.Table.from_batches(self.batches())

    def to_pandas(self) -> Any:
        """The rows as a pandas DataFrame."""
        return self.to_arrow().to_pandas()

    def to_parquet(self, path: str | os.PathLike[str], progress: Callable[[int], None] | None = None) -> Path:
        """Write the rows to a parquet file, batch by batch; it appears whole or not at all. `progress` is told how many rows
        were written each time."""
        import pyarrow as pa
        import pyarrow.parquet as parquet

        place = Path(path)
        beside = place.with_name(f".{place.name}.{os.getpid()}.part")
        schema = pa.schema([(cells.name, cells.arrow_type) for cells in self.cells])
        try:
            with parquet.ParquetWriter(beside, schema) as writer:
                for batch in self.batches():
                    writer.write_batch(batch)
                    if progress is not None:
                        progress(batch.num_rows)
            os.replace(beside, place)
        except OSError as error:
            raise InvalidValue(f"{place} cannot be written: {error.strerror or error}. Nothing was written there.") from None
        finally:
            beside.unlink(missing_ok=True)
        return place
