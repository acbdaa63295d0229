"""The attacks on a synthetic table. Each is an object that sees a table and scores the records numbered in `targets`.

`records` are the rows in question, of which some were in the table that was synthesised.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from discreet.attack.membership import signals
from discreet.attack.tables import density
from discreet.attack.tables.encode import Encoding, chosen, joined
from discreet.core import Attack, check

Floats = NDArray[np.float64]
Generator = Callable[[Any], Any]  # a table in, a synthetic table out
TABLE = frozenset({"table"})
DENSITIES = {"kernel": (density.kernel,), "pairs": (density.pairs,), "both": (density.kernel, density.pairs)}
PROVES_NOTHING = (
    "Distance to the closest record proves nothing: tables that pass it are open to membership inference, and a table that "
    "fails it may hold chance coincidences. It is shown because people ask for it."
)


class DensityRatio(Attack[Any]):
    """How much denser the synthetic table is at a record than a public table of the same population is.

    This needs no access to the generator (DOMIAS: van Breugel et al. 2023). `by` is "kernel", which sees copies of whole rows,
    "pairs", which sees what a generator of marginals keeps, or "both".

    >>> near = DensityRatio({"x": [1, 5]}, {"x": [1, 2, 3, 4, 5]}).score({"x": [1, 1, 2]}, [0, 1])
    >>> bool(near[0] > near[1])
    True
    """

    view = TABLE

    def __init__(self, records: Any, reference: Any, *, by: str = "kernel", name: str | None = None) -> None:
        self.by = check.word("by", by, tuple(DENSITIES))
        self.name = name or ("density ratio" if by == "kernel" else f"density ratio ({by})")
        self.encoding = Encoding.of(reference)
        self.records = self.encoding.rows(records)
        self.reference = self.encoding.rows(reference)

    def score(self, seen: Any, targets: Sequence[int]) -> Floats:
        at, rows = self.records[np.asarray(targets)], self.encoding.rows(seen)
        return sum(
            (measure(self.encoding, rows, at) - measure(self.encoding, self.reference, at) for measure in DENSITIES[self.by]),
            np.zeros(len(at)),
        )


class ShadowGenerators(Attack[Any]):
    """The same generator is run on tables with and without each record: how does the density at the record differ?

    `generator` makes a synthetic table of a table. Every shadow is fitted to `base` and a random half of the records. The
    score of a record is the likelihood ratio of its log-densities (Stadler et al. 2022, with LiRA's two Gaussians), by kernel
    and by pairs together. The shadows are fitted when the object is made.
    """

    name, view = "shadow generators", TABLE

    def __init__(self, records: Any, generator: Generator, base: Any, *, shadows: int = 16, seed: int = 0) -> None:
        count = check.whole("shadows", shadows, least=2)
        self.encoding = Encoding.of(base)
        self.records = self.encoding.rows(records)
        random = np.random.default_rng(check.whole("seed", seed, least=0))
        self.inside = np.argsort(random.random((count, len(self.records))), axis=0) < count // 2  # each record in half of them
        tables = [generator(joined(base, chosen(records, marks))) for marks in self.inside]
        self.signals = [np.stack(each) for each in zip(*(self._signals(table) for table in tables))]

    def _signals(self, table: Any) -> list[Floats]:
        rows = self.encoding.rows(table)
        return [measure(self.encoding, rows, self.records) for measure in DENSITIES["both"]]

    def score(self, seen: Any, targets: Sequence[int]) -> Floats:
        ratio = [signals.lira(ours, theirs, self.inside, fixed=True) for ours, theirs in zip(self._signals(seen), self.signals)]
        result: Floats = (ratio[0] + ratio[1])[np.asarray(targets)]
        return result


class ClosestRecord(Attack[Any]):
    """Minus the distance of a record to the closest synthetic row. It proves nothing: `note` says why."""

    name, view, note = "distance to closest record", TABLE, PROVES_NOTHING

    def __init__(self, records: Any) -> None:
        self.encoding = Encoding.of(records)
        self.records = self.encoding.rows(records)

    def score(self, seen: Any, targets: Sequence[int]) -> Floats:
        rows = self.encoding.rows(seen)
        return -density.nearest(self.encoding, rows, self.records[np.asarray(targets)])[1][:, 0]


class NoisyCounts(Attack[Any]):
    """The noisy counts that a model of marginals was made from, at the cells of a record, less what others put there.

    It sees `measurements`, each with `columns`, `counts` and `sigma`, as a `discreet.synth.Model` has them: more than the
    table, and as much as the claim of a synthesis covers. `records` are codes [records, columns]; `others` are the exact codes
    of all other rows, which the adversary of the game knows.
    """

    name, view = "noisy counts", frozenset({"answers"})

    def __init__(self, records: Any, others: Any) -> None:
        self.records, self.others = np.asarray(records, np.int64), np.asarray(others, np.int64)

    def score(self, seen: Any, targets: Sequence[int]) -> Floats:
        score = np.zeros(len(self.records))
        for made in seen.measurements:
            places = [_cells(codes, made) for codes in (self.records, self.others)]
            mine, others = (np.bincount(each, minlength=made.counts.size) for each in places)
            crowd = mine[places[0]] - 1  # other records in question in the same cell, each there by a coin
            left = (made.counts.ravel() - others)[places[0]] - crowd / 2
            score += left / (made.sigma**2 + crowd / 4)
        result: Floats = score[np.asarray(targets)]
        return result


def _cells(codes: NDArray[np.int64], made: Any) -> NDArray[np.int64]:
    """The cell of each row in the table that was measured."""
    places: NDArray[np.int64] = np.ravel_multi_index(tuple(codes[:, list(made.columns)].T), made.counts.shape).astype(np.int64)
    return places
