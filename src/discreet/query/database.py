"""A source of private rows that answers SQL: `discreet.connect(...)`."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import TracebackType
from typing import TYPE_CHECKING, Any

from discreet.core import Release, Unit, check
from discreet.core.facts import made
from discreet.errors import InvalidQuery, InvalidValue
from discreet.ledger import LedgerLike, Replay, as_ledger, release
from discreet.query.answer import requests, shown_plan
from discreet.query.bounds import ALL, NONE
from discreet.query.catalogue import read_catalogue
from discreet.query.engines import Engine
from discreet.query.engines.places import open_engine
from discreet.query.engines.request import Plan
from discreet.query.explain import Explanation, expected_errors, shown_bounding, shown_groups, shown_noise
from discreet.query.groups import Lists, read_lists
from discreet.query.mechanism import BoundsQuery, SqlQuery
from discreet.query.operations import PlanKind
from discreet.query.parse import parse
from discreet.query.price import Priced, choose_plan, price
from discreet.query.public import converted
from discreet.query.relations import Catalogue
from discreet.query.schema import Schema, read_schema
from discreet.query.statistics import STATISTICS, Statistic
from discreet.query.statistics.statistic import CONFIDENCE
from discreet.query.table import bounding_note, column_names, from_text, to_text
from discreet.query.tree import Field, bases, preserves

if TYPE_CHECKING:
    import pyarrow as pa

    from discreet.ledger import Ledger

LONGEST_TITLE = 120
NOISES = ("laplace", "gaussian")
_ROWS_OF_UNITS = (
    "SELECT QUANTILE(LEAST(GREATEST(n, 1), {most}), {share!r}) AS n FROM "
    "(SELECT {key}, COUNT(*) AS n FROM {table} GROUP BY {key}) AS units"
)


def connect(
    location: Any,
    *,
    unit: Unit,
    ledger: LedgerLike | None = None,
    source: str | None = None,
    bounds: Mapping[str, Any] | None = None,
    schema: str | os.PathLike[str] | Mapping[str, Any] | None = None,
    account: str | None = None,
    statistics: Sequence[type[Statistic]] = STATISTICS,
) -> Database:
    """Open a source of private rows for SQL.

    `location` is a parquet file, a folder or a pattern of such, a csv or jsonl file whose columns the schema declares, a DuckDB
    database, a `postgresql://` or `spark://` URL, a Spark session or DataFrame, an Arrow table, a pandas or polars frame, or a
    dict of such by table name.
    With a `ledger`, every answer is charged to `source` (opened there by its owner) before a row is read; without one nobody
    adds up what was asked. `account` is whom answers are charged to where the query names nobody. `statistics` are the
    aggregate functions that may be asked, such as (*STATISTICS, YourOwn) of discreet.query.statistics.

    >>> import pyarrow as pa
    >>> from discreet.core import record
    >>> db = connect({"people": pa.table({"age": [31, 45, 62]})}, unit=record(), bounds={"age": (0, 120)})
    >>> db.sql("SELECT COUNT(*) AS n, AVG(age) AS age FROM people", epsilon=1.0).value.column_names
    ['n', 'n_low', 'n_high', 'age', 'age_low', 'age_high']
    """
    if not isinstance(unit, Unit):
        raise InvalidValue(f"unit must be a Unit, such as discreet.user('id', rows=4); got {check.shown(unit)}.")
    if (ledger is None) != (source is None):
        raise InvalidValue("ledger and source go together: the ledger keeps the budget of the source.")
    known = read_schema(schema).with_bounds(bounds)
    engine = open_engine(location, known.text_columns())
    try:
        return Database(engine, unit, known, ledger=ledger, source=source, account=account, statistics=statistics)
    except BaseException:
        engine.close()
        raise


class Database:
    """Private rows behind an engine: asked in SQL, answered with noise, intervals and a claim."""

    def __init__(
        self, engine: Engine, unit: Unit, schema: Schema, *, ledger: LedgerLike | None = None, source: str | None = None,
        account: str | None = None, statistics: Sequence[type[Statistic]] = STATISTICS,
    ) -> None:  # fmt: skip
        self.engine, self.unit, self.source, self.account = engine, unit, source, account
        self.ledger = as_ledger(ledger)
        self._statistics = tuple(statistics)
        self._catalogue = read_catalogue(engine, unit, replace(schema, exact=engine.exact_names))
        self._registered: str | None = None
        if self.ledger is not None and source is not None:
            self.ledger.balance(source)  # a source that is not open is refused now, not with the first query

    def tables(self) -> dict[str, dict[str, str]]:
        """The tables and their columns with types."""
        return {
            name: {column: str(field.kind) for column, field in zip(base.names, base.fields)}
            for name, base in self._catalogue.tables.items()
        }

    def register(self, table: str | None = None) -> Database:
        """Bound the contributions to one table in advance, in a copy with weights. Later queries of this table alone are plain
        aggregations."""
        if self.unit.key is None or self.unit.rows is None:
            raise InvalidValue("Only units with a key and a bound on their rows need to be registered; here a row is a unit.")
        private = [name for name, base in self._catalogue.tables.items() if base.private]
        table = private[0] if table is None and len(private) == 1 else check.word("table", table, tuple(private))
        self.engine.register(self._catalogue.tables[table], self.unit.rows)
        self._registered = table
        return self

    def _price(
        self, query: str, epsilon: float, delta: float | None, groups: int | None, keys: Mapping[Any, Any] | None,
        weights: Mapping[str, float] | None, bias: bool = False, confidence: float = CONFIDENCE, noise: str | None = None,
    ) -> Priced:  # fmt: skip
        epsilon = _epsilon(epsilon)
        if delta is not None:
            delta = check.small_fraction("delta", delta)
        if groups is not None:
            groups = check.whole("groups", groups)
        if noise is not None:
            noise = check.word("noise", noise, NOISES)
        lists = read_lists(keys, self._catalogue.exact)
        question = parse(query, self._with_keys(lists), self._statistics, lists)
        registered = (
            self._registered is not None and not question.rows.joins and preserves(question.rows.first, self._registered)
        )
        plan = choose_plan(question, self.unit, registered=registered, groups=groups)
        priced = price(question, self.unit, plan, epsilon=epsilon, delta=delta, weights=weights or {}, bias=bias, noise=noise)
        confidence = check.confidence(confidence)
        sets = (replace(one, confidence=confidence) for one in priced.more)
        priced = replace(priced, confidence=confidence, more=tuple(sets))
        names = [name.lower() for name in column_names(priced)]
        if len(set(names)) != len(names):
            twice = next(name for name in names if names.count(name) > 1)
            raise InvalidQuery(f"Two columns of the answer would be {twice!r}: beside a number x there are x_low and x_high, "
                               "and with bias=True x_outside and rows_capped. Rename one with AS.")  # fmt: skip
        return priced

    def _with_keys(self, lists: Lists) -> Catalogue:
        """The tables, with the public values that this query gives for some of their columns. A column of the name that holds
        something else is another one; a key that they do not fit is refused later."""
        exact, tables = self._catalogue.exact, {}
        for name, base in self._catalogue.tables.items():
            fields = []
            for column, field in zip(base.names, base.fields):
                values = lists.get((column if exact else column.lower(),))
                fields.append(field if values is None else _listed(field, column, values))
            tables[name] = replace(base, fields=tuple(fields))
        return replace(self._catalogue, tables=tables)

    def explain(
        self, query: str, *, epsilon: float, delta: float | None = None, groups: int | None = None,
        keys: Mapping[Any, Any] | None = None, weights: Mapping[str, float] | None = None, bias: bool = False,
        confidence: float = CONFIDENCE, noise: str | None = None, account: str | None = None,
    ) -> Explanation:  # fmt: skip
        """Cost and expected error, before anything is spent; no private row is touched."""
        priced = self._price(query, epsilon, delta, groups, keys, weights, bias, confidence, noise)
        left = None
        if self.ledger is not None and self.source is not None:
            left = str(self.ledger.balance(self.source, account or self.account or "default"))
        mechanism = SqlQuery(self.unit, priced)
        claim, free = mechanism.claims()[0], False
        if self._charged is not None and self.source in self._charged.sources():
            free = self._charged.answered(self.source, claim, mechanism.key(self.engine))
        text = tuple(self.engine.text(request) for one in priced.sets for request in requests(one))
        return Explanation(
            *priced.spent, claim.event, "; ".join(dict.fromkeys(shown_plan(one.plan) for one in priced.sets)),
            expected_errors(priced), shown_groups(priced), text, left, free, shown_bounding(priced), shown_noise(priced),
        )  # fmt: skip

    def sql(
        self, query: str, *, epsilon: float, delta: float | None = None, groups: int | None = None,
        keys: Mapping[Any, Any] | None = None, weights: Mapping[str, float] | None = None, nonnegative: bool = False,
        bias: bool = False, confidence: float = CONFIDENCE, noise: str | None = None, account: str | None = None,
    ) -> Release[pa.Table]:  # fmt: skip
        """The answer: an Arrow table with an interval (for the noise, of this `confidence`) beside each number, its claim,
        its entry.

        `groups` bounds the groups of one unit (then units are sampled); `keys` lists public groups by column; `weights`
        says which columns should be more exact than others; `nonnegative` moves noisy numbers below zero to zero.
        With `bias`, part of the same epsilon buys the shares of rows that were moved to a bound (`<name>_outside`) and of
        weight that was cut (`rows_capped`). Where units own rows, a small part of epsilon tells in any case what share of all
        rows bounding cut, if it is above a tenth: `facts["bounding"]`. `noise` is "laplace" or "gaussian", which needs a
        delta; by default it is whichever is less. `account` is charged, or else that of the connection.
        """
        priced = self._price(query, epsilon, delta, groups, keys, weights, bias, confidence, noise)
        mechanism = SqlQuery(self.unit, priced, nonnegative)
        self.engine.ready({base.table for base in bases(priced.question.rows)})
        private = "+".join(name for name, base in self._catalogue.tables.items() if base.private)
        replay = Replay(mechanism.key(self.engine), to_text, from_text) if self._charged is not None else None
        facts = {"title": _one_line(query), "made": made(), "query": query}
        asked = (epsilon, delta) if delta and any(one.multiplier for one in priced.sets) else None
        answered = release(
            mechanism, self.engine, source=self.source or private, ledger=self._charged, account=account or self.account,
            asked=asked, replay=replay, facts=facts,
        )  # fmt: skip
        told = bounding_note(answered.value)
        return answered if told is None else replace(answered, facts={**facts, "bounding": told})

    @property
    def _charged(self) -> Ledger | None:
        """The ledger, where there is a source to charge."""
        return None if self.source is None else self.ledger

    def find_bounds(
        self, column: str, *, epsilon: float, table: str | None = None, account: str | None = None
    ) -> Release[list[float]]:
        """Bounds [low, high] that hold nearly all values of a column, for when nobody knows them; it costs epsilon.

        Few values lie outside, and outliers of a handful of people are meant to. Give the answer as bounds= later. Where none
        stand out from the noise they are the widest there are, and `facts["note"]` says so.
        """
        same = self._catalogue.same
        known = {name: base for name, base in self._catalogue.tables.items() if base.private}
        if table is None and len(known) != 1:
            raise InvalidValue(f"Say which table: {', '.join(known)}.")
        base = next((base for name, base in known.items() if table is None or same(name, table)), None)
        if base is None:
            raise InvalidValue(f"There is no private table {table}; there are {', '.join(known)}.")
        column = next((name for name in base.names if same(name, column)), column)
        if self.unit.rows is None or self.unit.relation == "zero_out":
            raise InvalidValue(f"{self.unit} has no bound on its rows, so its values cannot be counted. Say one: rows=…")
        mechanism, source = BoundsQuery(self.unit, base, column, _epsilon(epsilon)), self.source or base.table
        self.engine.ready({base.table})
        found = release(mechanism, self.engine, source=source, ledger=self._charged, account=account or self.account)
        return replace(found, facts={**found.facts, "note": NONE}) if tuple(found.value) == ALL else found

    def find_rows(
        self, *, epsilon: float, share: float = 0.95, most: int = 1000, table: str | None = None, account: str | None = None
    ) -> Release[int]:
        """How many rows this share of the units have at most, up to `most`, for when nobody knows what rows= to say; it costs
        epsilon. Each unit counts once, so that some hundred units are enough. Connect with the answer as rows=.
        """
        private = {name: base for name, base in self._catalogue.tables.items() if base.private}
        name = next(iter(private)) if table is None and len(private) == 1 else check.word("table", table, tuple(private))
        base, share, most = private[name], check.open_fraction("share", share), check.whole("most", most, least=2, most=1000)
        if base.unit is None or self.unit.relation == "zero_out":
            raise InvalidValue(f"{self.unit} has no key by which its rows could be counted.")
        question = parse(_ROWS_OF_UNITS.format(
            table=_quoted(name), key=_quoted(base.names[base.unit]), most=most, share=share
        ), self._catalogue, self._statistics)  # fmt: skip
        plan = Plan(PlanKind.WEIGHTED, 1)
        priced = price(question, self.unit, plan, epsilon=_epsilon(epsilon), delta=None, weights={})
        self.engine.ready({name})
        found = release(SqlQuery(self.unit, priced), self.engine, source=self.source or name, ledger=self._charged,
                        account=account or self.account)  # fmt: skip
        return found.map(lambda answer: round(answer["n"][0].as_py()))

    def close(self) -> None:
        self.engine.close()

    def __enter__(self) -> Database:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()


def _epsilon(value: float) -> float:
    epsilon = check.positive("epsilon", value)
    if epsilon > 100 or epsilon < 1e-6:
        raise InvalidValue(f"epsilon must be between 1e-6 and 100; got {epsilon:g}.")
    return epsilon


def _listed(field: Field, column: str, values: Sequence[Any]) -> Field:
    try:
        return replace(field, values=converted(column, values, field.kind))
    except InvalidValue:
        return field


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _one_line(query: str) -> str:
    """The query on one line, as a title."""
    text = " ".join(query.split())
    return text if len(text) <= LONGEST_TITLE else f"{text[: LONGEST_TITLE - 1]}…"
