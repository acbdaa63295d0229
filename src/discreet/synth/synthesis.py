"""`discreet.synth.fit`: a private table in, a model of it out, with its claim, paid for once."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from discreet.core import Claim, Game, Release, Unit, check
from discreet.core.facts import made
from discreet.errors import InvalidValue
from discreet.noise import refuse_seeded
from discreet.synth.methods import Independent, Method, Public, Spending, Tree
from discreet.synth.model import Model
from discreet.synth.schema import Schema
from discreet.synth.table import Table

if TYPE_CHECKING:
    from discreet.ledger import Ledger

METHODS: dict[str, Method] = {"auto": Tree(), "independent": Independent(), "tree": Tree()}
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

    @property
    def public(self) -> Public:
        return Public(self.sizes, 2 if self.unit.relation == "replace" else 1, self.epsilon, self.delta)

    def spending(self) -> Spending:
        """The noise of every part, from public numbers alone."""
        spending: Spending = _planned(self.method, self.public)  # type: ignore[arg-type]
        widest = spending.parts["columns"]
        if widest > WIDEST:
            raise InvalidValue(f"epsilon {self.epsilon:g} is too small: each count would get noise of {widest:,.0f}. "
                               f"From about {self.epsilon * widest / WIDEST * 100:g} on, a table of a million rows "
                               "shows.")  # fmt: skip
        return spending

    def claims(self) -> tuple[Claim, ...]:
        says = (
            "the schema (categories, ranges, bins, mass points) was not chosen by looking at the data",
            "each unit is one row, and falls into one cell of every table that is counted",
        )
        return (Claim(game=Game(self.unit, {"answers", "table"}), event=self.spending().event, assumptions=says),)

    def run(self, data: Table) -> Model:
        return self.method.run(data, self.public, self.spending())


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
    ledger: Ledger | str | os.PathLike[str] | None = None,
    source: str | None = None,
    account: str | None = None,
) -> Release[Model]:
    """A model of a private table, from which synthetic rows and counts with error bars are made at no further cost.

    `table` is anything that `discreet.connect` takes and holds one table. `schema` is what is publicly known of its columns:
    nothing is read off the data. With a `ledger`, (epsilon, delta) is charged to `source` before a row is read.

    >>> import pyarrow as pa
    >>> from discreet.core import record
    >>> rows = pa.table({"sex": ["f", "m"] * 500, "age": list(range(100)) * 10})
    >>> model = fit(rows, unit=record(), epsilon=1.0, delta=1e-6, schema={"sex": ["f", "m"], "age": (0, 99)})
    >>> model.value.columns, len(model.value.sample(50).to_arrow())
    (('sex', 'age'), 50)
    """
    epsilon, delta = check.positive("epsilon", epsilon), check.open_fraction("delta", delta)
    if not 1e-6 <= epsilon <= 100:
        raise InvalidValue(f"epsilon must be between 1e-6 and 100; got {epsilon:g}.")
    if (ledger is None) != (source is None):
        raise InvalidValue("ledger and source go together: the ledger keeps the budget of the source.")
    if schema is None:
        raise InvalidValue("Say what is publicly known of the columns: schema={'sex': ['Female', 'Male'], 'age': (0, 120)}, "
                           "or a schema.toml. Categories and ranges read off the data would tell of people.")  # fmt: skip
    with Table(table, Schema.of(schema), unit) as rows:
        mechanism = Synthesis(rows.sizes, unit, epsilon, delta, _method(method))
        facts = {"title": f"synthetic {rows.name} ({mechanism.method.name})", "made": made()}
        return _release(mechanism, rows, source=source, ledger=ledger, account=account, asked=(epsilon, delta), facts=facts)


@lru_cache(256)
def _planned(method: Any, public: Public) -> Spending:
    """A plan is a function of public numbers, and takes longer than the rest of a small fit."""
    spending: Spending = method.plan(public)
    return spending


def _method(method: str | Method) -> Method:
    if isinstance(method, str):
        return METHODS[check.word("method", method, tuple(METHODS))]
    return method


def _release(
    mechanism: Synthesis, data: Table, *, source: str | None, ledger: Any, account: str | None,
    asked: tuple[float, float], facts: Mapping[str, Any],
) -> Release[Model]:  # fmt: skip
    """Price, reserve, run, release."""
    refuse_seeded()
    claims = mechanism.claims()
    if ledger is None or source is None:
        return Release(value=mechanism.run(data), source=source or data.name, claims=claims, facts=facts)
    if isinstance(ledger, (str, os.PathLike)):
        from discreet.ledger import Ledger

        ledger = Ledger(ledger)
    data.unchanged()
    with ledger.reserve(source, claims, account=account, asked=asked) as entry:
        return Release(value=mechanism.run(data), source=source, claims=claims, entry=entry, facts=facts)
