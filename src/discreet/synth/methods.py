"""Methods of synthesis: which tables are measured, with what part of the budget, and how a model is estimated.

A method has two halves. `plan` looks at public numbers alone (how many cells each column has, epsilon, delta) and fixes
every noise level and how often each is used: the event. `measure` reads the table and follows the plan.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from typing import ClassVar, Protocol

import numpy as np

from discreet.core import Event, check
from discreet.core import Sequence as Composed
from discreet.errors import InvalidValue
from discreet.synth import closed, measure, select
from discreet.synth.junction import Floats, JunctionTree, onto
from discreet.synth.measure import Ints, Measurement, Reach, Set
from discreet.synth.select import Pair

MOST_CELLS = 300_000  # of a junction tree


@dataclass(frozen=True, slots=True)
class Public:
    """The public inputs of a plan: the sizes of the columns, the reach of one unit, and the budget."""

    sizes: tuple[int, ...]
    reach: Reach
    epsilon: float
    delta: float
    before: tuple[Event, ...] = ()  # what finding the columns' cells costs, inside the same budget
    tied: tuple[Set, ...] = ()  # columns that one constraint names: they are in one clique

    @property
    def columns(self) -> int:
        return len(self.sizes)

    def fits(self, sets: Iterable[Set], most_cells: int) -> bool:
        """Whether a junction tree of these sets and of the constraints has at most so many cells, or adds none to those of the
        constraints.
        """
        tree = JunctionTree.of(self.sizes, [*self.tied, *sets])
        return tree.cells <= most_cells or (bool(self.tied) and tree.cells <= JunctionTree.of(self.sizes, self.tied).cells)


@dataclass(frozen=True, slots=True)
class Spending:
    """The event of a method, and the noise of each of its parts in words and numbers."""

    event: Event
    parts: dict[str, float] = field(hash=False)


class Counted(Protocol):
    """A private table, as a method sees it: exact counts of sets of columns."""

    def counts(self, sets: Iterable[Set]) -> list[Ints]: ...

    def measured(self) -> None: ...


@dataclass(frozen=True, slots=True, eq=False)
class Estimate:
    """A distribution on a junction tree, the number of rows, and a bound on how far it is from the optimum, relative to it."""

    tree: JunctionTree
    conditionals: Sequence[Floats]
    rows: float
    gap: float = 0.0
    converged: bool = True


class Method(Protocol):
    """A way to choose, measure and estimate. Only `measure` sees the table, and all that leaves it is noisy."""

    name: ClassVar[str]

    def plan(self, public: Public) -> Spending: ...

    def measure(self, table: Counted, public: Public, spending: Spending) -> list[Measurement]: ...

    def estimate(self, public: Public, measured: Sequence[Measurement]) -> Estimate: ...


@dataclass(frozen=True, slots=True)
class Independent:
    """Every column by itself: nothing but the columns' own counts is kept."""

    name: ClassVar[str] = "independent"

    def plan(self, public: Public) -> Spending:
        def event(scale: float) -> Event:
            return measure.table_event(scale * unit, public.reach, public.columns)

        unit = measure.table_sigma(1.0, public.reach, public.columns)
        scale, whole = measure.calibrated(event, public.epsilon, public.delta, public.before)
        return Spending(whole, {"columns": scale * unit})

    def measure(self, table: Counted, public: Public, spending: Spending) -> list[Measurement]:
        sets: list[Set] = [(column,) for column in range(public.columns)]
        return measure.noisy(sets, table.counts(sets), spending.parts["columns"], grain=public.reach.grain)

    def estimate(self, public: Public, measured: Sequence[Measurement]) -> Estimate:
        return tree_estimate(public, measured)


@dataclass(frozen=True, slots=True)
class Tree:
    """A spanning tree of pairs, chosen by the exponential mechanism and then measured; estimated in closed form.

    `score` is gap (the l1 distance to independence, of sensitivity 1) or information (mutual information, of sensitivity about
    ln n: the lectures' choice). McKenna, Miklau & Sheldon 2021 call the algorithm MST.
    """

    score: str = "gap"
    name: ClassVar[str] = "tree"

    def __post_init__(self) -> None:
        check.word("score", self.score, ("gap", "information"))

    def plan(self, public: Public) -> Spending:
        if self.score == "information" and not public.reach.single:
            raise InvalidValue("The score information is for units of one row: fractions of rows have no bound on it. Use gap.")
        if public.columns == 1:
            return Independent().plan(public)
        edges = public.columns - 1
        share = 1 / 3
        ones = measure.table_sigma(share, public.reach, public.columns)
        choices = measure.choice_epsilon(share, edges)
        pairs = measure.table_sigma(share, public.reach, edges)

        def event(scale: float) -> Event:
            return Composed((
                measure.table_event(scale * ones, public.reach, public.columns),
                measure.choice_event(choices / scale, edges),
                measure.table_event(scale * pairs, public.reach, edges),
            ))  # fmt: skip

        scale, whole = measure.calibrated(event, public.epsilon, public.delta, public.before)
        return Spending(whole, {"columns": scale * ones, "choices": choices / scale, "pairs": scale * pairs})

    def measure(self, table: Counted, public: Public, spending: Spending) -> list[Measurement]:
        if public.columns == 1:
            return Independent().measure(table, public, spending)
        pairs = list(combinations(range(public.columns), 2))
        counts = dict(zip(pairs, table.counts(pairs)))
        ones = noisy_columns(counts, public, spending)
        chosen = self.choose(counts, ones, public, spending)
        return ones + measure.noisy(
            chosen, [counts[pair] for pair in chosen], spending.parts["pairs"], grain=public.reach.grain
        )

    def choose(
        self, counts: Mapping[Pair, Ints], ones: Sequence[Measurement], public: Public, spending: Spending
    ) -> list[Pair]:
        """The pairs of the tree: d - 1 choices by the exponential mechanism."""
        pairs = list(counts)
        if self.score == "information":
            scores = [select.information(counts[pair]) for pair in pairs]
            sensitivity = select.information_sensitivity() * public.reach.moved
        else:
            expected = independent_tables(public, ones, pairs)
            scores = [select.gap(counts[pair], table, public.reach.grain) for pair, table in zip(pairs, expected)]
            sensitivity = public.reach.score
        fits = (lambda some: public.fits(some, MOST_CELLS)) if public.tied else None
        return select.spanning_tree(pairs, scores, public.columns, spending.parts["choices"], sensitivity, fits=fits)

    def estimate(self, public: Public, measured: Sequence[Measurement]) -> Estimate:
        return tree_estimate(public, measured)


def noisy_columns(counts: Mapping[Pair, Ints], public: Public, spending: Spending) -> list[Measurement]:
    """Every column with noise, from the exact tables of pairs."""
    sets: list[Set] = [(column,) for column in range(public.columns)]
    return measure.noisy(sets, own_counts(counts, public.columns), spending.parts["columns"], grain=public.reach.grain)


def own_counts(counts: Mapping[Pair, Ints], columns: int) -> list[Ints]:
    """The exact counts of each column, from the tables of pairs."""
    first = [counts[0, 1].sum(axis=1)]
    return first + [counts[0, column].sum(axis=0) for column in range(1, columns)]


def independent_tables(public: Public, ones: Iterable[Measurement], pairs: Iterable[Pair]) -> list[Floats]:
    """The expected table of each pair under independence, from the noisy counts of columns."""
    known = list(ones)
    total = measure.total(known)
    margins = closed.columns_of(public.columns, known, total, public.sizes)
    return [margins[a][:, None] * margins[b][None, :] / total for a, b in pairs]


def tree_estimate(public: Public, measured: Sequence[Measurement]) -> Estimate:
    """The closed form for measured columns and a forest of measured pairs."""
    total = measure.total(measured)
    margins = closed.columns_of(public.columns, measured, total, public.sizes)
    pairs = {(m.columns[0], m.columns[1]): m.counts for m in measured if len(m.columns) == 2}
    tables = closed.tree_tables(pairs, margins)
    tree = JunctionTree.of(public.sizes, pairs)
    conditionals = []
    for clique, separator in zip(tree.cliques, tree.separators):
        counts = tables[clique[0], clique[1]] if len(clique) == 2 else margins[clique[0]]
        sums = onto(counts, clique, separator).reshape([public.sizes[c] if c in separator else 1 for c in clique])
        conditionals.append(_divided(counts, sums, clique, separator))
    return Estimate(tree, conditionals, total)


def _divided(counts: Floats, sums: Floats, clique: Set, separator: Set) -> Floats:
    """The conditional counts; even where there are none."""
    own = [column for column in clique if column not in separator]
    even = 1 / np.prod([counts.shape[clique.index(column)] for column in own])
    shares: Floats = np.divide(counts, sums, out=np.full_like(counts, even), where=sums > 0)
    return shares
