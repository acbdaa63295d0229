"""`discreet.synth.fit_linked`: two linked tables in, a model of both out, with one claim for a parent and its children.

Parents are synthesised with their number of children as one more column. Each column of children depends on one column of their
parent or of their own: a tree whose pairs are chosen by the exponential mechanism and then measured. A parent's children weigh
at most `unit.rows`, so their noise grows with it. docs/theory/synth-measurement.md
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from discreet.core import Claim, Event, Release, Unit
from discreet.core import Sequence as Composed
from discreet.core.facts import made
from discreet.errors import InvalidValue
from discreet.ledger import LedgerLike, release
from discreet.synth import measure, select
from discreet.synth.describe import description
from discreet.synth.explanation import Explanation, misplaced, split
from discreet.synth.linked_model import LinkedModel
from discreet.synth.linked_table import LinkedTable, Part, schemas_of
from discreet.synth.measure import Measurement, Set, concentrated_for
from discreet.synth.methods import Method, Public, Spending, independent_tables, tree_estimate
from discreet.synth.model import Model
from discreet.synth.select import Pair
from discreet.synth.stored import kept_in, largest
from discreet.synth.synthesis import MOST_PAIR, MOST_PAIRS, WIDEST, Synthesis, chosen_method
from discreet.synth.table import reach

CHILDREN = 0.5  # of the budget, in zCDP
SHARES = (0.2, 0.2, 0.6)  # of that: columns, choices, pairs


@dataclass(frozen=True, slots=True)
class LinkedSynthesis:
    """A parent table with so many cells a column, the number of children last, and the columns of its children.

    >>> from discreet.core import user
    >>> LinkedSynthesis((2, 4), (3,), user("id", rows=3), 1.0, 1e-6, chosen_method("tree", 2)).claims()[0].game.unit.rows
    3
    """

    parents: tuple[int, ...]
    children: tuple[int, ...]
    unit: Unit
    epsilon: float
    delta: float
    method: Method

    @property
    def first(self) -> Synthesis:
        """The synthesis of parents; its event holds what children cost as well."""
        single_row = replace(self.unit, rows=1)
        return Synthesis(self.parents, single_row, self.epsilon, self.delta, self.method, others=(self.spending().event,))

    @property
    def second(self) -> Public:
        """What is public of children beside their parent."""
        return Public((*self.parents, *self.children), reach(self.unit), self.epsilon, self.delta)

    @property
    def most_bytes(self) -> int:
        """The size of the file of its model at most, by public numbers."""
        return self.first.most_bytes + largest(self.second.sizes, len(self.children), 0, 0)

    def spending(self) -> Spending:
        """The noise on children, from public numbers alone."""
        public, times = self.second, len(self.children)
        rho = CHILDREN * concentrated_for(self.epsilon, self.delta)
        ones, pairs = (
            measure.table_sigma(share * rho, public.reach, n) for share, n in ((SHARES[0], public.columns), (SHARES[2], times))
        )
        if ones > WIDEST:
            raise InvalidValue(f"epsilon {self.epsilon:g} is too small: each count of children gets noise of {ones:,.0f}. "
                               f"Ask for about {self.epsilon * ones / WIDEST * 100:g}, or count fewer.")  # fmt: skip
        choices = measure.choice_epsilon(SHARES[1] * rho, times)
        event: Event = Composed((
            measure.table_event(ones, public.reach, public.columns),
            measure.choice_event(choices, times),
            measure.table_event(pairs, public.reach, times),
        ))  # fmt: skip
        return Spending(event, {"columns": ones, "choices": choices, "pairs": pairs})

    def claims(self) -> tuple[Claim, ...]:
        says = (
            "what the schema says (categories, ranges, bins, mass points) was not chosen by looking at the data",
            f"{self.unit.key} says whose row each is in both tables, and is the same in all rows of one unit",
        )
        (claim,) = self.first.claims()
        return (replace(claim, game=replace(claim.game, unit=self.unit), assumptions=says),)

    def small_enough(self) -> None:
        """Every pair with a column of children is counted: their tables must fit into memory."""
        sizes = self.second.sizes
        every = [size * own for i, own in enumerate(self.children, len(self.parents)) for size in sizes[:i]]
        if max(every) > MOST_PAIR or sum(every) > MOST_PAIRS:
            raise InvalidValue(f"A pair of columns has {max(every):,} cells, and all pairs {sum(every):,}; at most "
                               f"{MOST_PAIR:,} and {MOST_PAIRS:,} can be counted. Use fewer bins or categories.")  # fmt: skip

    def run(self, data: LinkedTable) -> LinkedModel:
        self.small_enough()
        measured, pairs = self.measure(data.children)
        parents = self.first.run(data.parents)
        estimate = tree_estimate(self.second, measured)
        children = Model(
            data.children.cells, estimate.tree, tuple(estimate.conditionals), estimate.rows, tuple(measured), "tree"
        )
        columns = (data.columns[0], data.columns[1])
        return LinkedModel(data.names, data.key, parents, children, tuple(pairs), columns, (data.types[0], data.types[1]))

    def measure(self, table: Part) -> tuple[list[Measurement], list[Pair]]:
        """Noisy counts of every column and of the pairs of a tree that links children to their parents."""
        public, parts, known = self.second, self.spending().parts, len(self.parents)
        pairs = [(a, b) for b in range(known, public.columns) for a in range(b)]
        counts = dict(zip(pairs, table.counts(pairs)))
        sums = [counts[a, known].sum(axis=1) for a in range(known)]
        sums += [counts[0, b].sum(axis=0) for b in range(known, public.columns)]
        sets: list[Set] = [(column,) for column in range(public.columns)]
        ones = measure.noisy(sets, sums, parts["columns"], grain=public.reach.grain)
        expected = independent_tables(public, ones, pairs)
        scores = [select.gap(counts[pair], independent, public.reach.grain) for pair, independent in zip(pairs, expected)]
        chosen = select.spanning_tree(pairs, scores, public.columns, parts["choices"], public.reach.score, known)
        tables = measure.noisy(
            chosen, [counts[chosen_pair] for chosen_pair in chosen], parts["pairs"], grain=public.reach.grain
        )
        return ones + tables, chosen


def fit_linked(
    tables: Any,
    *,
    parent: str,
    child: str,
    unit: Unit,
    epsilon: float,
    delta: float,
    schema: Mapping[str, Any] | str | os.PathLike[str],
    method: str | Method = "auto",
    ledger: LedgerLike | None = None,
    source: str | None = None,
    account: str | None = None,
    keep: str | os.PathLike[str] | None = None,
) -> Release[LinkedModel]:
    """A model of two linked tables: people and their ratings, patients and their visits. The claim is for a whole parent.

    `tables` is anything that `discreet.connect` takes and holds both; `unit` is user(key, rows=…), where `key` is a column of
    both tables and `rows` the most children of one parent that count. `schema` has that of each table by its name. `method`
    models the parents; of children, each column hangs on one of their parent or of their own. `keep` is that of `fit`.

    >>> import pyarrow as pa
    >>> from discreet.core import user
    >>> users = pa.table({"id": range(300), "sex": ["f", "m"] * 150})
    >>> visits = pa.table({"id": [i // 2 for i in range(600)], "long": [i % 3 == 0 for i in range(600)]})
    >>> schema = {"users": {"sex": ["f", "m"]}, "visits": {"long": {"type": "boolean"}}}
    >>> made = fit_linked({"users": users, "visits": visits}, parent="users", child="visits", unit=user("id", rows=4),
    ...                   epsilon=2.0, delta=1e-6, schema=schema)
    >>> {name: table.column_names for name, table in made.value.sample(50).to_arrow().items()}
    {'users': ['id', 'sex'], 'visits': ['id', 'long']}
    """
    if (ledger is None) != (source is None):
        raise InvalidValue("ledger and source go together: the ledger keeps the budget of the source.")
    with LinkedTable(tables, schemas_of(schema, parent, child), parent, child, unit) as data:
        mechanism = _planned(data, unit, epsilon, delta, method)
        facts = {"title": f"synthetic {parent} and {child} ({mechanism.method.name})", "made": made()}
        with kept_in(keep, mechanism.most_bytes) as keeper:
            data.unchanged()
            fitted = release(
                mechanism, data, source=source or parent, ledger=ledger, account=account, asked=(epsilon, delta), facts=facts
            )
            fact = _synthetic_fact(fitted.value, mechanism, epsilon, delta)
            return keeper(replace(fitted, facts={**fitted.facts, "synthetic": fact}))


def explain_linked(
    tables: Any, *, parent: str, child: str, unit: Unit, epsilon: float, delta: float,
    schema: Mapping[str, Any] | str | os.PathLike[str], method: str | Method = "auto",
) -> Explanation:  # fmt: skip
    """What `fit_linked` would cost and how exact it would be; no row is read and nothing is spent."""
    known = schemas_of(schema, parent, child)
    with LinkedTable(tables, known, parent, child, unit) as data:
        mechanism = _planned(data, unit, epsilon, delta, method)
        names = [
            *(cells.name for cells in data.parents.cells),
            *(cells.name for cells in data.children.cells[len(mechanism.parents) :]),
        ]
    first, second = mechanism.first, mechanism.spending()
    shares = split(first)
    parents_share = 1 - CHILDREN
    shares = {name: share for name, share in shares.items() if name != "domain"}
    parts = {f"{child}: {name}": CHILDREN * share for name, share in zip(second.parts, SHARES)}
    whole = sum(shares.values())
    return Explanation(
        epsilon, delta, str(unit), f"{first.method.name}, {child} by a tree", dict(zip(names, mechanism.second.sizes)),
        {**first.spending().parts, **{f"child {name}": noise for name, noise in second.parts.items()}},
        {name: parents_share * share / whole for name, share in shares.items()} | parts, misplaced(first),
        readings={f"{table}.{name}": reading for table, its in known.items() for name, reading in its.readings().items()},
        event=first.spending().event,
    )  # fmt: skip


def _planned(data: LinkedTable, unit: Unit, epsilon: float, delta: float, method: str | Method) -> LinkedSynthesis:
    """The mechanism for open tables; every error in the arguments is raised here, before anything is spent."""
    known = len(data.parents.sizes)
    mechanism = LinkedSynthesis(
        data.parents.sizes, data.children.sizes[known:], unit, epsilon, delta, chosen_method(method, known)
    )  # fmt: skip
    if mechanism.method.name == "aim":
        raise InvalidValue("The method aim is for one table with a workload. Linked tables take independent, tree or junction.")
    mechanism.small_enough()
    mechanism.claims()
    return mechanism


def _synthetic_fact(model: LinkedModel, mechanism: LinkedSynthesis, epsilon: float, delta: float) -> dict[str, Any]:
    """The fact `synthetic` of the release: that of the parents, with what was measured of children."""
    fact = description(model.parents, mechanism.first.spending(), epsilon, delta)
    of_children = [measurement for measurement in model.children.measurements if len(measurement.columns) > 1]
    own: Sequence[Any] = model.children.cells[len(mechanism.parents) :]
    fact["columns"] += [{"name": f"{model.names[1]}.{cells.name}", "cells": cells.size} for cells in own]
    fact["measured"] += [
        {"columns": [model.children.columns[c] for c in measurement.columns], "sigma": measurement.sigma}
        for measurement in of_children
    ]
    fact["noise"] |= {f"child {name}": noise for name, noise in mechanism.spending().parts.items()}
    return fact | {"measured_count": fact["measured_count"] + len(model.children.measurements), "tables": list(model.names)}
