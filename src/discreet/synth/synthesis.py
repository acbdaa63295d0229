"""`discreet.synth.fit`: a private table in, a model of it out, with its claim, paid for once."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from discreet.core import Claim, Event, Game, Release, Unit, check
from discreet.core.facts import made
from discreet.errors import InvalidValue
from discreet.ledger import LedgerLike, release
from discreet.synth.adaptive import ROUNDS, Aim
from discreet.synth.constraints import MOST_CELLS as MOST_TIED
from discreet.synth.constraints import impossible_cells, ordered_pairs
from discreet.synth.describe import description
from discreet.synth.domain import Domain, Open
from discreet.synth.methods import Independent, Method, Public, Spending, Tree
from discreet.synth.model import Model
from discreet.synth.oneshot import SLOTS, Junction
from discreet.synth.schema import Schema
from discreet.synth.stored import kept_in, largest
from discreet.synth.table import Table, reach

METHODS: dict[str, Method] = {"aim": Aim(), "independent": Independent(), "junction": Junction(), "tree": Tree()}
MOST_PAIR, MOST_PAIRS = 4_000_000, 100_000_000  # cells of a pair of columns, and of all pairs
MOST_JOINED = 60  # columns beyond which auto takes a tree
WIDEST = 1e5  # noise on a count beyond which nothing is learnt of any table that exists


@dataclass(frozen=True, slots=True)
class Synthesis:
    """A method with its budget, for tables of columns with so many cells: the mechanism that `fit` runs.

    >>> from discreet.core import record
    >>> Synthesis((2, 3), record(), 1.0, 1e-6, Independent()).claims()[0].game.unit.name
    'record'
    """

    sizes: tuple[int, ...]
    unit: Unit
    epsilon: float
    delta: float
    method: Method
    constraints: tuple[Any, ...] = ()
    open: tuple[Open, ...] = ()  # columns of which something is found first, and paid for
    others: tuple[Event, ...] = ()  # what else the same charge pays for
    tied: tuple[tuple[int, ...], ...] = ()  # the columns of each constraint

    def __post_init__(self) -> None:
        check.open_fraction("delta", self.delta)
        if not 1e-6 <= check.positive("epsilon", self.epsilon) <= 100:
            raise InvalidValue(f"epsilon must be between 1e-6 and 100; got {self.epsilon:g}.")

    @property
    def public(self) -> Public:
        before = (*self.others, *(self.domain.events if self.open else ()))
        return Public(self.sizes, reach(self.unit), self.epsilon, self.delta, before, self.tied)

    @property
    def domain(self) -> Domain:
        """The mechanism that finds what is open."""
        return Domain(self.open, reach(self.unit), self.epsilon, self.delta)

    def spending(self) -> Spending:
        """The noise of every part, from public numbers alone."""
        self._small_enough()
        spending: Spending = _planned(self.method, self.public)  # type: ignore[arg-type]
        widest = spending.parts["columns"]
        if widest > WIDEST:
            raise InvalidValue(f"epsilon {self.epsilon:g} is too small: each count would get noise of {widest:,.0f}. "
                               f"From about {self.epsilon * widest / WIDEST * 100:g} on, a table of a million rows "
                               "shows.")  # fmt: skip
        return spending

    def _small_enough(self) -> None:
        """Every pair of columns is counted, unless columns are independent: their tables must fit into memory."""
        *_, second, first = (1, *sorted(self.sizes))
        every = (sum(self.sizes) ** 2 - sum(size**2 for size in self.sizes)) // 2
        if self.method.name != "independent" and (first * second > MOST_PAIR or every > MOST_PAIRS):
            raise InvalidValue(f"The two largest columns have {first:,} x {second:,} cells, and all pairs {every:,}; at most "
                               f"{MOST_PAIR:,} and {MOST_PAIRS:,} can be counted. Use fewer bins or categories, or "
                               'method="independent".')  # fmt: skip

    @property
    def most_bytes(self) -> int:
        """The size of the file of its model at most, by public numbers."""
        columns, name = len(self.sizes), self.method.name
        pairs = {"independent": 0, "tree": columns - 1}.get(name, SLOTS * columns)
        cells = max(getattr(self.method, "most_cells", 0), MOST_TIED if self.tied else 0)
        return largest(self.sizes, pairs, ROUNDS * columns if name == "aim" else 0, cells)

    def claims(self) -> tuple[Claim, ...]:
        says = (
            "what the schema says (categories, ranges, bins, mass points) was not chosen by looking at the data",
            "each unit is one row, and falls into one cell of every table that is counted"
            if self.unit.key is None
            else f"{self.unit.key} says whose row each is, and is the same in all rows of one unit",
        )
        return (Claim(game=Game(self.unit, {"answers", "table"}), event=self.spending().event, assumptions=says),)

    def run(self, data: Any) -> Model:
        """The model of a table, which has `cells` and gives exact `counts`; whatever it is made of is noisy."""
        spending, public = self.spending(), self.public
        if self.open:
            data.settle(self.domain.find(data))
            public = replace(public, sizes=data.sizes)
        measured = self.method.measure(data, public, spending)
        data.measured()
        if self.constraints:
            impossible = impossible_cells(self.constraints, data.cells)
            joined = self.method if isinstance(self.method, Junction) else Junction(device=getattr(self.method, "device", None))
            estimate = joined.estimate(public, measured, impossible)
        else:
            estimate = self.method.estimate(public, measured)
        return Model(
            data.cells, estimate.tree, tuple(estimate.conditionals), estimate.rows, tuple(measured), self.method.name,
            estimate.gap, estimate.converged, ordered_pairs(self.constraints, data.cells),
        )  # fmt: skip


def fit(
    table: Any,
    *,
    unit: Unit,
    epsilon: float,
    delta: float,
    schema: Schema | Mapping[str, Any] | str | os.PathLike[str] | None = None,
    method: str | Method = "auto",
    workload: Sequence[Sequence[str]] | None = None,
    constraints: Sequence[Any] = (),
    ledger: LedgerLike | None = None,
    source: str | None = None,
    account: str | None = None,
    name: str | None = None,
    keep: str | os.PathLike[str] | None = None,
) -> Release[Model]:
    """A model of a private table, from which synthetic rows and counts with error bars are made at no further cost.

    `table` is anything that `discreet.connect` takes; of several tables, `name` says which. `schema` is what is publicly known
    of its columns: nothing is read off the data. With a `ledger`, (epsilon, delta) is charged to `source` before a row is
    read. `keep` is a file for the release and its model, which `load` reads; its room is taken before anything is spent.

    >>> import pyarrow as pa
    >>> from discreet.core import record
    >>> rows = pa.table({"sex": ["f", "m"] * 500, "age": list(range(100)) * 10})
    >>> model = fit(rows, unit=record(), epsilon=1.0, delta=1e-6, schema={"sex": ["f", "m"], "age": (0, 99)})
    >>> model.value.columns, len(model.value.sample(50).to_arrow())
    (('sex', 'age'), 50)
    """
    if (ledger is None) != (source is None):
        raise InvalidValue("ledger and source go together: the ledger keeps the budget of the source.")
    with Table(table, schema_of(schema, table, name), unit, name=name, once=True) as rows:
        mechanism = planned(rows, unit, epsilon, delta, method, workload, constraints)
        facts = {"title": f"synthetic {rows.name} ({mechanism.method.name})", "made": made()}
        with kept_in(keep, mechanism.most_bytes) as keeper:
            rows.unchanged()  # since it was priced
            fitted = release(
                mechanism, rows, source=source or rows.name, ledger=ledger, account=account, asked=(epsilon, delta), facts=facts
            )
            fact = description(fitted.value, mechanism.spending(), epsilon, delta, rows.schema)
            return keeper(replace(fitted, facts={**fitted.facts, "synthetic": fact}))


def planned(
    rows: Table, unit: Unit, epsilon: float, delta: float, method: str | Method, workload: Any, constraints: Sequence[Any]
) -> Synthesis:
    """The mechanism for an open table; every error in the arguments is raised here, before anything is spent."""
    names = [cells.name for cells in rows.cells]
    work = workload if workload is not None else (rows.schema.workload or None)
    chosen = with_workload(chosen_method(method, len(names)), method, work, names)
    rules = (*rows.schema.constraints, *check.items("constraints", constraints, "a list of Forbidden, Implies and Ordered"))
    tied = tuple(places for places, _ in impossible_cells(rules, rows.cells))
    mechanism = Synthesis(rows.sizes, unit, epsilon, delta, chosen, rules, rows.open, tied=tied)
    mechanism.spending()
    return mechanism


def with_workload(method: Method, asked: str | Method, workload: Any, columns: Sequence[str]) -> Method:
    """The method for a workload of sets of columns, by name: aim, which is what "auto" then means."""
    if workload is None:
        return method
    if asked not in ("auto", "aim"):
        raise InvalidValue(f'A workload is for method="aim"; got {check.shown(asked)}.')
    sets = []
    for names in check.items("workload", workload, "a list of lists of columns"):
        known = check.items("workload", names, "a list of lists of columns")
        if not known or len(set(known)) != len(known) or not set(known) <= set(columns):
            raise InvalidValue(f"Each part of a workload names different columns of the table; got {check.shown(names)}.")
        sets.append(tuple(sorted(columns.index(name) for name in known)))
    if not any(len(members) > 1 for members in sets):
        raise InvalidValue("A workload needs a set of two or more columns; columns by themselves are always measured.")
    return Aim(tuple(sets))


def schema_of(schema: Any, table: Any = None, name: str | None = None) -> Schema:
    """The schema of the table `name`, or of the file that `table` is."""
    if schema is None:
        raise InvalidValue("Say what is publicly known of the columns: schema={'sex': ['Female', 'Male'], 'age': (0, 120)}, "
                           "or a schema.toml. Categories and ranges read off the data would tell of people.")  # fmt: skip
    return Schema.of(schema, name or (Path(table).stem if isinstance(table, (str, os.PathLike)) else None))


@lru_cache(256)
def _planned(method: Any, public: Public) -> Spending:
    """A plan is a function of public numbers, and takes longer than the rest of a small fit."""
    spending: Spending = method.plan(public)
    return spending


def chosen_method(method: str | Method, columns: int) -> Method:
    """A method by its name. "auto" goes by the number of columns alone, which is public: a junction tree for 3 to 60, else
    a tree.
    """
    if not isinstance(method, str):
        return method
    if check.word("method", method, ("auto", *METHODS)) == "auto":
        method = "junction" if 3 <= columns <= MOST_JOINED else "tree"
    return METHODS[method]
