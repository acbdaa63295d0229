"""One-shot selection: noisy gaps of all pairs, then one measurement of the selected tables, estimated on a
junction tree.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import combinations
from typing import Any, ClassVar

import numpy as np

from discreet.core import Event
from discreet.core import Sequence as Composed
from discreet.noise import discrete_gaussian
from discreet.synth import closed, measure, select
from discreet.synth.constraints import Impossible, with_impossible
from discreet.synth.dual import Estimate as Solved
from discreet.synth.dual import Problem, solve
from discreet.synth.junction import Floats, JunctionTree, cells
from discreet.synth.large import TensorProblem, ready
from discreet.synth.measure import Ints, Measurement, Set
from discreet.synth.methods import (
    MOST_CELLS,
    Counted,
    Estimate,
    Public,
    Spending,
    Tree,
    independent_tables,
    noisy_columns,
    tree_estimate,
)
from discreet.synth.select import Pair

SHARES = (0.1, 0.1, 0.8)  # of the budget: columns, gaps of pairs, the tables that are chosen
SLOTS = 16  # measurements for each column of the table: so finely the budget can be divided among chosen tables
LEAST = 1e-9  # the least probability of a column's cell in the prior
ABSOLUTE = math.sqrt(2 / math.pi)  # the mean of |Z| of a standard normal Z


@dataclass(frozen=True, slots=True)
class Junction:
    """Pairs chosen by their noisy distance to independence, as many as fit a junction tree of `most_cells`, and measured
    together; three that make a triangle of at most `triples` cells are measured as one table.

    `doubt` is how much of the noise on a table counts against measuring it. `prior` is the weight of independence in the
    estimation, as a share of the rows, times epsilon where that is above 1. Estimation ends when it is proven to be within
    `tolerance` of its optimum, or after so many `evaluations`; then the model says that it has not converged. With a `device`
    ("cpu", "cuda") torch estimates, which gives the same model, and pays off for cliques of millions of cells.
    """

    most_cells: int = MOST_CELLS
    doubt: float = 0.5
    prior: float = 0.02
    tolerance: float = 0.01
    evaluations: int = 400
    triples: int = 64
    device: str | None = None
    name: ClassVar[str] = "junction"

    def plan(self, public: Public) -> Spending:
        if self.device is not None:
            ready(self.device)
        if public.columns < 3:
            return Tree().plan(public)
        pairs = math.comb(public.columns, 2)
        slots = SLOTS * public.columns
        ones = measure.table_sigma(SHARES[0], public.reach, public.columns)
        gaps = math.sqrt(pairs * (public.reach.moved * public.reach.rows) ** 2 / (2 * SHARES[1]))
        tables = measure.table_sigma(SHARES[2], public.reach, slots)

        def event(scale: float) -> Event:
            return Composed((
                measure.table_event(scale * ones, public.reach, public.columns),
                measure.score_event(scale * gaps, public.reach, pairs),
                measure.table_event(scale * tables, public.reach, slots),
            ))  # fmt: skip

        scale, whole = measure.calibrated(event, public.epsilon, public.delta, public.before)
        return Spending(whole, {"columns": scale * ones, "gaps": scale * gaps, "tables": scale * tables})

    def measure(self, table: Counted, public: Public, spending: Spending) -> list[Measurement]:
        if public.columns < 3:
            return Tree().measure(table, public, spending)
        pairs = list(combinations(range(public.columns), 2))
        counts = dict(zip(pairs, table.counts(pairs)))
        ones = noisy_columns(counts, public, spending)
        grain = public.reach.grain
        expected = independent_tables(public, ones, pairs)
        exact = np.array([select.gap(counts[pair], guess, grain) for pair, guess in zip(pairs, expected)])
        gaps = (exact + discrete_gaussian(spending.parts["gaps"] * grain, len(pairs))) / grain
        chosen = self.choose(public, pairs, gaps.tolist(), spending.parts["tables"])
        tables = self.joined(chosen, dict(zip(pairs, gaps.tolist())), public.sizes)
        if not tables:  # the constraints leave no room for any
            return ones
        times = shared(tables, public.sizes, SLOTS * public.columns)
        assert sum(times) == SLOTS * public.columns, "as many measurements as were paid for"
        assert min(times) >= 1
        triples = [columns for columns in tables if len(columns) == 3]
        known: dict[Set, Ints] = dict(zip(triples, table.counts(triples) if triples else []))
        known.update(counts.items())
        return ones + measure.noisy(
            tables, [known[chosen_set] for chosen_set in tables], spending.parts["tables"], times, grain=grain
        )

    def choose(self, public: Public, pairs: Sequence[Pair], gaps: Sequence[float], sigma: float) -> list[Pair]:
        """The pairs to measure, a spanning tree first: as many as are worth their noise and as fit the junction tree."""
        order, least = self._order(public, pairs, gaps, sigma)
        gap = dict(zip(pairs, gaps))
        slots = SLOTS * public.columns
        best, best_count = -math.inf, least
        for count in range(least, min(len(order), slots) + 1):  # each has a slot of its own
            times = shared(order[:count], public.sizes, slots, whole=False)
            noise = sum(cells(pair, public.sizes) / math.sqrt(n) for pair, n in zip(order[:count], times))
            worth = sum(gap[pair] for pair in order[:count]) - self.doubt * ABSOLUTE * sigma * noise
            if worth > best:
                best, best_count = worth, count
        return order[:best_count]

    def joined(self, chosen: Sequence[Pair], gap: Mapping[Pair, float], sizes: Sequence[int]) -> list[Set]:
        """The pairs, but for those of which three make a triangle with few cells: these are measured as one table, the largest
        gaps first."""
        remaining = set(chosen)
        triangles: list[Set] = [
            columns
            for columns in combinations(range(len(sizes)), 3)
            if cells(columns, sizes) <= self.triples and remaining.issuperset(combinations(columns, 2))
        ]
        joined: list[Set] = []
        for columns in sorted(triangles, key=lambda triangle: -sum(gap[pair] for pair in combinations(triangle, 2))):
            if remaining.issuperset(combinations(columns, 2)):
                remaining.difference_update(combinations(columns, 2))
                joined.append(columns)
        return [*(pair for pair in chosen if pair in remaining), *joined]

    def _order(self, public: Public, pairs: Sequence[Pair], gaps: Sequence[float], sigma: float) -> tuple[list[Pair], int]:
        """The pairs that may be measured, best first after those of a spanning tree, and how many these are: with constraints,
        perhaps too few to join all columns.
        """
        typical = sigma / math.sqrt(SLOTS / 2)  # where twice as many tables as columns are measured
        score = {pair: gap - self.doubt * ABSOLUTE * typical * cells(pair, public.sizes) for pair, gap in zip(pairs, gaps)}
        falling = sorted(pairs, key=lambda pair: -score[pair])
        component = list(range(public.columns))
        chosen: list[Pair] = []
        for a, b in falling:
            if component[a] != component[b] and (not public.tied or public.fits([*chosen, (a, b)], self.most_cells)):
                chosen.append((a, b))
                component = [component[a] if root == component[b] else root for root in component]
        least = len(chosen)
        for pair in falling:
            if pair not in chosen and score[pair] > 0 and public.fits([*chosen, pair], self.most_cells):
                chosen.append(pair)
        return chosen, least

    def estimate(self, public: Public, measured: Sequence[Measurement], impossible: Sequence[Impossible] = ()) -> Estimate:
        """The junction tree of all measurements, as near to independence as they allow; no row is in `impossible` cells."""
        if public.columns < 3 and not impossible:
            return tree_estimate(public, measured)
        total = measure.total(measured)
        tree = JunctionTree.of(
            public.sizes, [measurement.columns for measurement in measured] + [columns for columns, _ in impossible]
        )
        margins = closed.columns_of(public.columns, measured, total, public.sizes)
        start = with_impossible(tree, independent(tree, margins), impossible)
        strength = (
            self.prior * max(1.0, public.epsilon) * total
        )  # where noise is small, the measurements weigh more by themselves
        solution = self._solved(tree, start, measured, total, strength)
        return Estimate(tree, solution.conditionals, total, solution.relative_gap, solution.relative_gap <= self.tolerance)

    def _solved(
        self, tree: JunctionTree, start: list[Floats], measured: Sequence[Measurement], total: float, strength: float
    ) -> Solved:
        """The optimum on the device; where its memory does not suffice, by numpy: the measurements are paid for already."""
        how: dict[str, Any] = {"strength": strength, "tolerance": self.tolerance, "evaluations": self.evaluations}
        if self.device is not None:
            from torch import OutOfMemoryError

            with suppress(OutOfMemoryError):
                return solve(TensorProblem(tree, start, measured, total, self.device), **how)
        return solve(Problem(tree, start, measured, total), **how)


def shared(sets: Sequence[tuple[int, ...]], sizes: Sequence[int], slots: int, *, whole: bool = True) -> list[Any]:
    """How often each table is measured, in proportion to the power 2/3 of its cells: that makes the sum of all cells' noise
    least.

    At least once each, and `slots` times together.
    """
    weights = np.array([cells(columns, sizes) ** (2 / 3) for columns in sets])
    shares = 1 + (slots - len(sets)) * weights / weights.sum()
    if not whole:
        return list(shares)
    times = np.floor(shares).astype(int)
    remaining = slots - int(times.sum())
    times[np.argsort(times - shares)[:remaining]] += 1
    return list(map(int, times))


def independent(tree: JunctionTree, margins: Sequence[Floats]) -> list[Floats]:
    """Independent columns with these counts, as potentials of a junction tree; no cell is impossible."""
    potentials = tree.zeros()
    for column, counts in enumerate(margins):
        home = tree.home((column,))
        assert home is not None
        shares = np.log(np.maximum(counts / counts.sum(), LEAST))
        potentials[home] += shares.reshape([-1 if other == column else 1 for other in tree.cliques[home]])
    return potentials
