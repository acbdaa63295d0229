"""Fidelity of a synthetic table to the real one: total variation of one, two and three columns, and association of pairs.

`measure_fidelity` compares exact counts. That is for the owner of the data alone, and the result says so. `release_fidelity`
pays for noisy distances with intervals, which anybody may see: docs/theory/synth-fidelity.md proves their sensitivity.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import combinations
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from discreet.accounting import calibrate
from discreet.core import Claim, DiscreteGaussian, Event, Game, Release, Repeat, Unit, check, record
from discreet.core.facts import made
from discreet.errors import InvalidValue
from discreet.ledger import LedgerLike, release
from discreet.noise import discrete_gaussian
from discreet.synth.measure import Floats, Ints, Set
from discreet.synth.model import Model
from discreet.synth.synthesis import schema_of
from discreet.synth.table import Table, reach

if TYPE_CHECKING:
    from discreet.charts import Plot

MOST_TRIPLE = 1_000_000  # cells of three columns that are compared
MOST_CELLS = 20_000_000  # of all that are compared
POINT = 1 << 16  # expected counts are whole multiples of 1 / POINT
LEVEL = 2.241402727604947  # of a normal number: 97.5 % within; two of them hold together in 95 %
OWNER_ONLY = "Not for release: computed from the real rows without noise. It is for the owner of the data alone."


@dataclass(frozen=True, slots=True)
class Distance:
    """The total variation distance of some columns, from 0 (the same) to 1; `low` and `high` enclose it where it is noisy."""

    columns: tuple[str, ...]
    distance: float
    low: float | None = None
    high: float | None = None

    def to_json(self) -> dict[str, Any]:
        ends = {} if self.low is None else {"low": self.low, "high": self.high}
        return {"columns": list(self.columns), "distance": self.distance, **ends}


@dataclass(frozen=True, slots=True)
class Association:
    """Cramér's V of two columns in both tables: 0 where they are independent, 1 where one determines the other."""

    columns: tuple[str, str]
    real: float
    synthetic: float

    def to_json(self) -> dict[str, Any]:
        return {"columns": list(self.columns), "real": self.real, "synthetic": self.synthetic}


@dataclass(frozen=True, slots=True)
class Fidelity:
    """Distances of sets of columns and, where it is for the owner alone, associations. `for_release` says who may see it."""

    distances: tuple[Distance, ...]
    associations: tuple[Association, ...]
    for_release: bool

    def of(self, width: int) -> list[Distance]:
        """The distances of sets of so many columns, worst first."""
        return sorted((entry for entry in self.distances if len(entry.columns) == width), key=lambda entry: -entry.distance)

    def mean(self, width: int) -> float | None:
        """The mean distance of sets of so many columns; None where none was compared."""
        distances = [entry.distance for entry in self.of(width)]
        return float(np.mean(distances)) if distances else None

    @property
    def association_error(self) -> float | None:
        """The mean difference of association over all pairs."""
        gaps = [abs(association.real - association.synthetic) for association in self.associations]
        return float(np.mean(gaps)) if gaps else None

    def by_column(self) -> dict[str, float]:
        """For each column the mean distance of all pairs that it is in; of itself where there are no pairs."""
        sets = self.of(2) or self.of(1)
        names = dict.fromkeys(name for entry in sets for name in entry.columns)
        return {name: float(np.mean([entry.distance for entry in sets if name in entry.columns])) for name in names}

    def plots(self) -> list[Plot]:
        """The distances as bars: each column, then pairs, worst first."""
        from discreet.charts import marginals

        drawn = []
        for width, title in ((1, "Total variation of each column"), (2, "Total variation of pairs of columns")):
            bars = {" and ".join(entry.columns): entry.distance for entry in self.of(width)}
            drawn += [marginals(bars, title=title)] if bars else []
        return drawn

    def to_json(self) -> dict[str, Any]:
        return {
            "for_release": self.for_release, "means": {str(k): self.mean(k) for k in (1, 2, 3) if self.of(k)},
            "distances": [entry.to_json() for entry in self.distances],
            **({"association_error": self.association_error, "associations": [entry.to_json() for entry in self.associations]}
               if self.associations else {}),
        }  # fmt: skip

    def __str__(self) -> str:
        lines = [] if self.for_release else [OWNER_ONLY]
        for width, label in ((1, "columns"), (2, "pairs"), (3, "triples")):
            if entries := self.of(width):
                worst = entries[0]
                ends = "" if worst.low is None else f" ({worst.low:.4f} to {worst.high:.4f})"
                lines.append(f"{label:8} {len(entries):5,} compared, mean total variation {self.mean(width):.4f}; worst "
                             f"{' x '.join(worst.columns)} {worst.distance:.4f}{ends}")  # fmt: skip
        if self.associations:
            lines.append(f"pairs    association (Cramér's V) off by {self.association_error:.4f} on average")
        return "\n".join(lines)


def measure_fidelity(
    real: Any, synthetic: Any, *, unit: Unit, schema: Any, triples: int = 100, seed: int = 0, name: str | None = None
) -> Fidelity:
    """Compare a synthetic table with the real one exactly. The result is for the owner of the data, not for release.

    Both are anything that `discreet.connect` takes; `synthetic` may also be a model. All columns and pairs are compared, and
    `triples` sets of three, drawn at random.

    >>> import pyarrow as pa
    >>> from discreet.core import record
    >>> rows = pa.table({"sex": ["f", "m"] * 50, "age": list(range(100))})
    >>> near = measure_fidelity(rows, rows, unit=record(), schema={"sex": ["f", "m"], "age": (0, 99)})
    >>> near.for_release, near.mean(2)
    (False, 0.0)
    """
    known = schema_of(schema, real, name)
    with Table(real, known, unit, name=name) as table:
        if isinstance(synthetic, Model):
            table.settle_like(synthetic.cells)
        elif table.open:
            raise InvalidValue(
                f"The cells of {table.open[0].name} were found in the fit: compare with the model, not its rows."
            )
        sets = compared_sets(table.sizes, triples, seed)
        exact = [_shares(counts) for counts in table.counts(sets)]
        names = [cells.name for cells in table.cells]
    if isinstance(synthetic, Model):
        ours = [synthetic.tree.marginal(synthetic.conditionals, columns) for columns in sets]
    else:
        with Table(synthetic, replace(known, omitted=frozenset()), record()) as other:  # it has no key, nor what was left out
            if [cells.name for cells in other.cells] != names:
                raise InvalidValue("The two tables must have the same columns in the same order; read one as the other is.")
            ours = [_shares(counts) for counts in other.counts(sets)]
    distances = tuple(
        Distance(tuple(names[c] for c in columns), float(np.abs(a - b).sum() / 2)) for columns, a, b in zip(sets, exact, ours)
    )
    associations = tuple(
        Association((names[columns[0]], names[columns[1]]), cramers_v(a), cramers_v(b))
        for columns, a, b in zip(sets, exact, ours)
        if len(columns) == 2
    )
    return Fidelity(distances, associations, for_release=False)


def _shares(counts: Ints) -> Floats:
    total = int(counts.sum())
    return np.asarray(counts / total if total else np.zeros(counts.shape), np.float64)


def cramers_v(shares: NDArray[Any]) -> float:
    """Cramér's V of a table of two columns.

    >>> round(cramers_v(np.eye(3) / 3), 12), cramers_v(np.ones((2, 2)) / 4)
    (1.0, 0.0)
    """
    expected = shares.sum(axis=1, keepdims=True) * shares.sum(axis=0, keepdims=True)
    possible = expected > 0
    rank = min(int((shares.sum(axis=axis) > 0).sum()) for axis in (0, 1)) - 1
    squares = float(((shares - expected)[possible] ** 2 / expected[possible]).sum())
    return math.sqrt(squares / rank) if rank > 0 else 0.0


def compared_sets(sizes: Sequence[int], triples: int, seed: int) -> list[Set]:
    """Every column, every pair, and some triples drawn at random; what has too many cells is left out. Sizes alone decide."""
    check.whole("triples", triples, least=0)
    random = np.random.default_rng(check.whole("seed", seed, least=0))
    columns = range(len(sizes))
    several = [triple for triple in combinations(columns, 3) if math.prod(sizes[c] for c in triple) <= MOST_TRIPLE]
    picked = sorted(random.choice(len(several), min(triples, len(several)), replace=False).tolist() if several else [])
    wanted: list[Set] = [*((c,) for c in columns), *combinations(columns, 2), *(several[i] for i in picked)]
    return list(_within(wanted, sizes))


def _within(sets: Sequence[Set], sizes: Sequence[int]) -> Iterator[Set]:
    remaining = MOST_CELLS
    for columns in sets:
        remaining -= math.prod(sizes[c] for c in columns)
        if remaining < 0:
            return
        yield columns


# ---- from the budget ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class NoisyDistances:
    """Noisy l1 distances between the real counts of sets of columns and the counts that a model expects.

    `expected` holds whole multiples of 1 / POINT for each set. The distance is taken exactly, in whole numbers, and rounded
    down to rows: a record that is added or removed moves it by at most 1, one that is replaced by at most 2; a user by as
    many as their rows.
    """

    sets: tuple[Set, ...]
    expected: tuple[Ints, ...]
    unit: Unit
    epsilon: float
    delta: float

    @property
    def moved(self) -> int:
        """The sensitivity of a distance in rows: rows leave cells and, where a unit is replaced, enter others."""
        far = reach(self.unit)
        return far.moved * far.rows

    def sigma(self) -> float:
        return _least_sigma(self.moved, len(self.sets), self.epsilon, self.delta)

    def claims(self) -> tuple[Claim, ...]:
        says = ("the synthetic table that is compared was made under its own claim, and the schema is public",)
        return (
            Claim(game=Game(self.unit, {"answers"}), event=_event(self.sigma(), self.moved, len(self.sets)), assumptions=says),
        )

    def run(self, data: Any) -> list[int]:
        """One noisy whole number of rows for each set. `data` gives exact counts."""
        grain = reach(self.unit).grain
        exact = [_rows_apart(counts, expected, grain) for counts, expected in zip(data.counts(self.sets), self.expected)]
        noise = discrete_gaussian(self.sigma(), len(exact))
        return [distance + int(error) for distance, error in zip(exact, noise)]


def _event(sigma: float, moved: int, numbers: int) -> Event:
    return Repeat(DiscreteGaussian(sigma, moved), numbers)


@lru_cache(64)
def _least_sigma(moved: int, numbers: int, epsilon: float, delta: float) -> float:
    return calibrate(lambda sigma: _event(sigma, moved, numbers), epsilon, delta)


def _rows_apart(counts: Ints, expected: Ints, grain: int = 1) -> int:
    """The l1 distance in whole rows, rounded down; in whole numbers throughout. `grain` of what is counted make one row."""
    small = float(counts.sum()) * POINT + float(expected.sum()) * grain < 2**62
    kind: Any = np.int64 if small else object  # beyond 64 bits in Python's own whole numbers
    apart = np.abs(counts.astype(kind) * POINT - expected.astype(kind) * grain).sum()
    return int(apart) // (POINT * grain)


def release_fidelity(
    table: Any, model: Model, *, unit: Unit, epsilon: float, delta: float, schema: Any, triples: int = 0, seed: int = 0,
    ledger: LedgerLike | None = None, source: str | None = None, account: str | None = None,
    name: str | None = None,
) -> Release[Fidelity]:  # fmt: skip
    """The noisy distances between a table and its model, with intervals and a claim of their own, for release.

    (epsilon, delta) is charged to `source` beside what the model cost. Each distance has a 95 % interval.

    >>> import pyarrow as pa
    >>> from discreet import synth
    >>> from discreet.core import record
    >>> rows = pa.table({"sex": ["f", "m"] * 5000, "age": list(range(100)) * 100})
    >>> known = {"unit": record(), "epsilon": 1.0, "delta": 1e-6, "schema": {"sex": ["f", "m"], "age": (0, 99)}}
    >>> near = release_fidelity(rows, synth.fit(rows, **known).value, **known)
    >>> near.value.for_release, near.value.distances[0].low < 0.1
    (True, True)
    """
    if not isinstance(model, Model):
        raise InvalidValue(f"model must be the model that was fitted, as fit(…).value; got {type(model).__name__}.")
    if (ledger is None) != (source is None):
        raise InvalidValue("ledger and source go together: the ledger keeps the budget of the source.")
    with Table(table, schema_of(schema, table, name), unit, name=name) as rows:
        rows.settle_like(model.cells)
        if rows.cells != model.cells:
            raise InvalidValue("The model was fitted with another schema, or to a table with other columns.")
        sets = tuple(compared_sets(rows.sizes, triples, seed))
        mechanism = NoisyDistances(sets, tuple(_expected(model, columns) for columns in sets), unit, epsilon, delta)
        noisy = release(
            mechanism, rows, source=source or rows.name, ledger=ledger, account=account, asked=(epsilon, delta),
            facts={"title": f"Fidelity of synthetic {rows.name}", "made": made()},
        )  # fmt: skip
    return noisy.map(lambda apart: _with_intervals(apart, mechanism, model))


def _expected(model: Model, columns: Set) -> Ints:
    shares = model.tree.marginal(model.conditionals, columns)
    return np.asarray(np.rint(shares * model.rows * POINT), np.int64)


def _with_intervals(apart: Sequence[int], mechanism: NoisyDistances, model: Model) -> Fidelity:
    """Distances from noisy rows: their noise, the rounding and the noise of the number of rows are all in the interval."""
    away = LEVEL * mechanism.sigma()
    names = model.columns
    count = model.rows
    off = LEVEL * rows_deviation(model) / (2 * count)  # the number of rows is itself noisy
    distances = []
    for columns, rows, expected in zip(mechanism.sets, apart, mechanism.expected):
        rounded = expected.size / (2 * POINT)
        low = (rows - away - rounded) / (2 * count) - off
        high = (rows + 1 + away + rounded) / (2 * count) + off
        middle = (rows + 0.5) / (2 * count)
        ends = (min(max(end, 0.0), 1.0) for end in (middle, low, high))
        distances.append(Distance(tuple(names[c] for c in columns), *ends))
    return Fidelity(tuple(distances), (), for_release=True)


def rows_deviation(model: Model) -> float:
    """The standard deviation of the model's number of rows."""
    return 1 / math.sqrt(sum(1 / (measurement.sigma**2 * measurement.counts.size) for measurement in model.measurements))
