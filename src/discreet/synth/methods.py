"""How a table is synthesised: which tables are measured, with what part of the budget, and how a model is made of them.

A method has two halves. `plan` looks at public numbers alone (how many cells each column has, epsilon, delta) and fixes
every noise level and how often each is used: the event. `run` reads the table and follows the plan.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from typing import ClassVar, Protocol

import numpy as np

from discreet.core import Event
from discreet.core import Sequence as Composed
from discreet.synth import closed, measure, select
from discreet.synth.junction import Floats, JunctionTree, onto
from discreet.synth.measure import Ints, Measurement, Set
from discreet.synth.model import Model
from discreet.synth.select import Pair
from discreet.synth.table import Table


@dataclass(frozen=True, slots=True)
class Public:
    """What a plan may look at: the sizes of the columns, how many cells of a table one unit moves, and the budget."""

    sizes: tuple[int, ...]
    moved: int
    epsilon: float
    delta: float

    @property
    def columns(self) -> int:
        return len(self.sizes)


@dataclass(frozen=True, slots=True)
class Spending:
    """The event of a method, and the noise of each of its parts in words and numbers."""

    event: Event
    parts: dict[str, float] = field(hash=False)


class Method(Protocol):
    """A way to choose, measure and estimate."""

    name: ClassVar[str]

    def plan(self, public: Public) -> Spending: ...

    def run(self, table: Table, public: Public, spending: Spending) -> Model: ...


@dataclass(frozen=True, slots=True)
class Independent:
    """Every column by itself: nothing but the columns' own counts is kept."""

    name: ClassVar[str] = "independent"

    def plan(self, public: Public) -> Spending:
        def event(scale: float) -> Event:
            return measure.table_event(scale * unit, public.moved, public.columns)

        unit = measure.table_sigma(1.0, public.moved, public.columns)
        scale = measure.least_scale(event, public.epsilon, public.delta)
        return Spending(event(scale), {"columns": scale * unit})

    def run(self, table: Table, public: Public, spending: Spending) -> Model:
        sets: list[Set] = [(column,) for column in range(public.columns)]
        measured = measure.noisy(sets, table.counts(sets), spending.parts["columns"])
        return _tree_model(table, public, measured, (), self.name)


@dataclass(frozen=True, slots=True)
class Tree:
    """A spanning tree of pairs, chosen by the exponential mechanism and then measured; estimated in closed form.

    `score` is gap (the l1 distance to independence, of sensitivity 1) or information (mutual information, of sensitivity about
    ln n: the lectures' choice). McKenna, Miklau & Sheldon 2021 call the algorithm MST.
    """

    score: str = "gap"
    name: ClassVar[str] = "tree"

    def plan(self, public: Public) -> Spending:
        if public.columns == 1:
            return Independent().plan(public)
        edges = public.columns - 1
        share = 1 / 3
        ones = measure.table_sigma(share, public.moved, public.columns)
        choices = measure.choice_epsilon(share, edges)
        pairs = measure.table_sigma(share, public.moved, edges)

        def event(scale: float) -> Event:
            return Composed((
                measure.table_event(scale * ones, public.moved, public.columns),
                measure.choice_event(choices / scale, edges),
                measure.table_event(scale * pairs, public.moved, edges),
            ))  # fmt: skip

        scale = measure.least_scale(event, public.epsilon, public.delta)
        return Spending(event(scale), {"columns": scale * ones, "choices": choices / scale, "pairs": scale * pairs})

    def run(self, table: Table, public: Public, spending: Spending) -> Model:
        if public.columns == 1:
            return Independent().run(table, public, spending)
        pairs = list(combinations(range(public.columns), 2))
        counts = dict(zip(pairs, table.counts(pairs)))
        ones = measure.noisy(
            [(i,) for i in range(public.columns)], own_counts(counts, public.columns), spending.parts["columns"]
        )
        if self.score == "information":
            scores = [select.information(counts[pair]) for pair in pairs]
            sensitivity = select.information_sensitivity() * public.moved
        else:
            expected = independent_tables(public, ones, pairs)
            scores = [select.gap(counts[pair], table) for pair, table in zip(pairs, expected)]
            sensitivity = public.moved
        chosen = select.spanning_tree(pairs, scores, public.columns, spending.parts["choices"], sensitivity)
        measured = measure.noisy(chosen, [counts[pair] for pair in chosen], spending.parts["pairs"])
        return _tree_model(table, public, ones, measured, self.name)


def own_counts(counts: Mapping[Pair, Ints], columns: int) -> list[Ints]:
    """The exact counts of each column, from the tables of pairs."""
    first = [counts[0, 1].sum(axis=1)]
    return first + [counts[0, column].sum(axis=0) for column in range(1, columns)]


def independent_tables(public: Public, ones: Iterable[Measurement], pairs: Iterable[Pair]) -> list[Floats]:
    """What each pair's table would be if columns were independent, by the noisy counts of columns."""
    known = list(ones)
    total = measure.total(known)
    margins = closed.columns_of(public.columns, known, total, public.sizes)
    return [margins[a][:, None] * margins[b][None, :] / total for a, b in pairs]


def _tree_model(table: Table, public: Public, ones: Iterable[Measurement], pairs: Iterable[Measurement], name: str) -> Model:
    measured = (*ones, *pairs)
    tree, conditionals, total = tree_estimate(public, measured)
    return Model(table.cells, tree, tuple(conditionals), total, measured, name)


def tree_estimate(public: Public, measured: Sequence[Measurement]) -> tuple[JunctionTree, list[Floats], float]:
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
    return tree, conditionals, total


def _divided(counts: Floats, sums: Floats, clique: Set, separator: Set) -> Floats:
    """The conditional counts; even where there are none."""
    own = [column for column in clique if column not in separator]
    even = 1 / np.prod([counts.shape[clique.index(column)] for column in own])
    made: Floats = np.divide(counts, sums, out=np.full_like(counts, even), where=sums > 0)
    return made
