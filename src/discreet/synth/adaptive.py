"""Adaptive selection for a workload: each round selects the table with the largest model error, and measures it.

AIM (McKenna, Mullins, Sheldon & Miklau 2022), with rounds of equal size that are fixed beforehand: then the whole is one
composition, and no parameter depends on an answer. docs/theory/synth-selection.md has the sensitivity of the score.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import ClassVar

from discreet.core import Event
from discreet.core import Sequence as Composed
from discreet.errors import InvalidValue
from discreet.noise import exponential_rows
from discreet.synth import measure, select
from discreet.synth.junction import cells
from discreet.synth.large import ready
from discreet.synth.measure import Ints, Measurement, Set
from discreet.synth.methods import Counted, Estimate, Public, Spending, Tree
from discreet.synth.oneshot import ABSOLUTE, Junction

SHARES = (0.1, 0.1, 0.8)  # of the budget: columns, choices, the tables that are chosen
ROUNDS = 2  # for each column
LARGEST = 200_000  # cells of a table that may be chosen


@dataclass(frozen=True, slots=True)
class Aim:
    """Tables chosen one after another, each where the model is furthest from the private counts, for a `workload` of sets of
    columns.

    Without a workload all pairs matter alike. `most_cells` bounds the junction tree; `device` is that of `Junction`.
    """

    workload: tuple[Set, ...] = ()
    most_cells: int = 100_000
    device: str | None = None
    name: ClassVar[str] = "aim"

    def plan(self, public: Public) -> Spending:
        if self.device is not None:
            ready(self.device)
        if public.columns < 3:
            return Tree().plan(public)
        self.candidates(public)  # told before anything is spent
        rounds = ROUNDS * public.columns
        ones = measure.table_sigma(SHARES[0], public.reach, public.columns)
        choices = measure.choice_epsilon(SHARES[1], rounds)
        tables = measure.table_sigma(SHARES[2], public.reach, rounds)

        def event(scale: float) -> Event:
            return Composed((
                measure.table_event(scale * ones, public.reach, public.columns),
                measure.choice_event(choices / scale, rounds),
                measure.table_event(scale * tables, public.reach, rounds),
            ))  # fmt: skip

        scale, whole = measure.calibrated(event, public.epsilon, public.delta, public.before)
        return Spending(whole, {"columns": scale * ones, "choices": choices / scale, "pairs": scale * tables})

    def candidates(self, public: Public) -> dict[Set, int]:
        """Every table inside the workload that may be chosen, with its weight: how many columns it shares with the
        workload's sets.
        """
        work = self.workload or tuple(combinations(range(public.columns), 2))
        inside: set[Set] = set()
        for columns in work:
            for size in range(2, len(columns) + 1):
                inside.update(combinations(sorted(columns), size))
        most = min(LARGEST, self.most_cells)
        fits = [
            candidate
            for candidate in sorted(inside)
            if cells(candidate, public.sizes) <= most and self._fits(public, (), candidate)
        ]
        if not fits:
            raise InvalidValue(f"No table of the workload fits: at most {most:,} cells can be measured together. Use fewer "
                               "bins, or smaller sets of columns.")  # fmt: skip
        return {columns: sum(len(set(columns) & set(wanted)) for wanted in work) for columns in fits}

    def measure(self, table: Counted, public: Public, spending: Spending) -> list[Measurement]:
        if public.columns < 3:
            return Tree().measure(table, public, spending)
        weights = self.candidates(public)
        sets: list[Set] = [(column,) for column in range(public.columns)]
        exact = dict(zip([*sets, *weights], table.counts([*sets, *weights])))
        measured = measure.noisy(
            sets, [exact[columns] for columns in sets], spending.parts["columns"], grain=public.reach.grain
        )
        for _ in range(ROUNDS * public.columns):
            chosen = self.choose(exact, weights, measured, public, spending)
            measured += measure.noisy([chosen], [exact[chosen]], spending.parts["pairs"], grain=public.reach.grain)
        return measured

    def choose(
        self, exact: Mapping[Set, Ints], weights: Mapping[Set, int], measured: Sequence[Measurement], public: Public,
        spending: Spending,
    ) -> Set:  # fmt: skip
        """One table, by the exponential mechanism: its weight times how much further the model is from it than noise would
        be.
        """
        known = [measurement.columns for measurement in measured]
        open_ = [columns for columns in weights if self._fits(public, known, columns)]
        now = Junction(evaluations=40, tolerance=0.05, device=self.device).estimate(public, measured)
        scores = []
        for columns in open_:
            expected = now.tree.marginal(now.conditionals, columns) * now.rows
            doubt = round(ABSOLUTE * spending.parts["pairs"] * cells(columns, public.sizes) * public.reach.grain)
            scores.append(weights[columns] * (select.gap(exact[columns], expected, public.reach.grain) - doubt))
        sensitivity = public.reach.score * max(weights[columns] for columns in open_)
        # a list, as scores may be beyond 64 bits
        chosen = exponential_rows([scores], spending.parts["choices"], sensitivity)
        return open_[int(chosen[0])]

    def _fits(self, public: Public, known: Iterable[Set], columns: Set) -> bool:
        if math.prod(public.sizes) <= self.most_cells:
            return True
        return public.fits([*known, columns], self.most_cells)

    def estimate(self, public: Public, measured: Sequence[Measurement]) -> Estimate:
        return Junction(device=self.device).estimate(public, measured)
