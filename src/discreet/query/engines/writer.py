"""Requests as SQL: rows, how those of one unit are bounded, and the sums that leave the engine.

Each relation is written as a SELECT whose columns are c0, c1, … , with `u`, the unit of the row, where it is private, and
`w`, its weight, where the table was registered. Only aggregates over bounded units leave an engine.
"""

from __future__ import annotations

from dataclasses import replace

from discreet.query.engines.expressions import Expressions, short
from discreet.query.engines.request import SCALE, Marginals, Request, Term
from discreet.query.operations import GATHERING, Op, PlanKind, TermKind
from discreet.query.tree import Base, Join, Relation, Scalar, Select, Union, preserves

FURTHEST = float(1 << 50)  # numbers beyond are moved here when those of one unit are gathered
FINE = float(1 << 40)  # parts of 1 that are told apart then
WEIGHT = "discreet weight"
REGISTERED = "discreet registered"
_LEAST = {Op.MIN_OF: "min", Op.MAX_OF: "max"}


class Writer(Expressions):
    """Relations and plans as DuckDB understands them; other engines shape some plans in their own way."""

    registered: str = ""  # the name of the table that carries weights, if there is one

    # ---- rows ------------------------------------------------------------------------------------------------------

    def relation(self, relation: Relation) -> str:
        if isinstance(relation, Base):
            return self.base(relation)
        if isinstance(relation, Union):
            return short(" UNION ALL ".join(self.relation(part) for part in relation.parts))
        columns = [f"{self.gathered(output)} AS c{i}" for i, output in enumerate(relation.outputs)]
        if relation.private and self._keyed(relation):
            columns.append("r0.u AS u")
        if preserves(relation, self.registered):
            columns.append("r0.w AS w")
        text = f"SELECT {', '.join(columns)} FROM {self.inputs(relation)}"
        if relation.grouped is not None:
            keys = ["r0.u", *(self.grouped(key) for key in relation.grouped)]
            text += f" GROUP BY {', '.join(dict.fromkeys(keys))}"
        return short(text)

    def _keyed(self, relation: Relation) -> bool:
        if isinstance(relation, Base):
            return relation.unit is not None
        return self._keyed(relation.parts[0] if isinstance(relation, Union) else relation.first)

    def base(self, base: Base) -> str:
        fields = enumerate(zip(base.names, base.fields))
        columns = [f"{self.declared(base.table, name, field)} AS c{i}" for i, (name, field) in fields]
        if base.unit is not None:
            columns.append(f"{self.unit(base.table, base.names[base.unit], base.fields[base.unit])} AS u")
        if base.table == self.registered:
            columns.append(f"{self.name(WEIGHT)} AS w")
        table = self.table(REGISTERED) if base.table == self.registered else self.table(base.table)
        text = f"SELECT {', '.join(columns)} FROM {table}"
        return self.first_of_each(text, base) if base.unique else text

    def first_of_each(self, text: str, base: Base) -> str:
        """One row, or as many as were declared, for each value of the columns on which a public table is unique, whatever has
        become of the table since that was looked up: a row that is joined with it becomes no more rows than that."""
        keys = ", ".join(f"y.c{place}" for place in base.unique)
        placed = f"SELECT y.*, row_number() OVER (PARTITION BY {keys} ORDER BY {keys}) AS place FROM ({text}) AS y"
        columns = ", ".join(f"z.c{place}" for place in range(len(base.names)))
        return f"SELECT {columns} FROM ({placed}) AS z WHERE z.place <= {base.repeats}"

    def inputs(self, select: Select, more: str = "") -> str:
        """What the rows are made of, with one more join, if any."""
        text = f"({self.relation(select.first)}) AS r0"
        for i, join in enumerate(select.joins, 1):
            text += f" {self.join_word(join)} ({self.relation(join.relation)}) AS r{i} ON {self.scalar(join.on)}"
        return text + more + (f" WHERE {self.scalar(select.where)}" if select.where is not None else "")

    def join_word(self, join: Join) -> str:
        return "LEFT JOIN" if join.keep else "JOIN"

    def gathered(self, expression: Scalar) -> str:
        if expression.op not in GATHERING:
            return self.grouped(expression)
        inner = [self.scalar(arg) for arg in expression.args]
        if expression.op == Op.COUNT_OF:
            return f"CAST(count({inner[0] if inner else '*'}) AS {self.integer})"
        number = f"CAST({inner[0]} AS {self.double})"
        if expression.op == Op.SUM_OF:
            return self.exact_sum(number)
        if expression.op == Op.AVG_OF:
            return f"{self.exact_sum(number)} / NULLIF(CAST(count({number}) AS {self.double}), {self.constant(0.0)})"
        return f"{_LEAST[expression.op]}({number})"

    def exact_sum(self, text: str) -> str:
        """The sum of doubles in whole numbers: added as doubles, it would depend on the order of the rows, and so on those of
        others (Casacuberta et al., Widespread Underestimation of Sensitivity, 2022)."""
        near = self.clamped(text, FURTHEST)
        whole = self.whole_part(near)
        rest = f"CAST({self.rounded(f'({near} - CAST({whole} AS {self.double})) * {self.constant(FINE)}')} AS {self.integer})"
        parts = [f"CAST({self.total(part)} AS {self.double})" for part in (whole, rest)]
        return f"(CASE WHEN count({text}) > 0 THEN {parts[0]} + {parts[1]} / {self.constant(FINE)} END)"

    def repeated(self, base: Base) -> str:
        """How many values of the columns on which a public table should be unique are in more than one row."""
        keys = [f"r0.c{place}" for place in base.unique]
        known = " AND ".join(f"{key} IS NOT NULL" for key in keys)
        twice = (
            f"SELECT 1 AS one FROM ({self.relation(replace(base, unique=()))}) AS r0 WHERE {known} "
            f"GROUP BY {', '.join(keys)} HAVING count(*) > {base.repeats}"
        )
        return f"SELECT count(*) AS s0 FROM ({twice}) AS x"

    # ---- what leaves the engine --------------------------------------------------------------------------------------

    def total(self, text: str) -> str:
        """An exact sum of whole numbers, within +-2^62; that of no rows is 0, as if it were of others."""
        return f"CAST(least(greatest(coalesce(sum({text}), 0), -{1 << 62}), {1 << 62}) AS {self.integer})"

    def exact_total(self, text: str) -> str:
        """An exact sum of whole numbers, however large; that of no rows is 0."""
        return f"coalesce(sum({text}), 0)"

    def added(self, text: str) -> str:
        """A sum over sampled units, as it leaves the engine."""
        return self.total(text)

    def rows(self, request: Request, *, unit: bool, terms: bool, join: str = "", where: str = "") -> str:
        """The rows as they are counted: u, k0 …, t0 … (and w); of some only, if they are joined and chosen."""
        columns = ["r0.u AS u"] if unit else []
        if terms:
            columns += [f"{self.key(key)} AS k{i}" for i, key in enumerate(request.keys)]
            columns += [f"{self.term(term)} AS t{i}" for i, term in enumerate(request.terms)]
            columns += [f"{self.bin(request.bins)} AS b"] if request.bins else []
            columns += ["r0.w AS w"] if request.plan.kind == PlanKind.REGISTERED else []
        conditions = ["r0.u IS NOT NULL"] if self._keyed(request.rows) else []
        if request.bins:
            conditions.append(f"{self.scalar(request.bins.of)} IS NOT NULL")
        conditions += [where] if where else []
        text = f"SELECT {', '.join(columns) or '1 AS one'} FROM {self.inputs(request.rows, join)}"
        if conditions:
            text += (" WHERE " if request.rows.where is None else " AND ") + " AND ".join(conditions)
        return text

    def request(self, it: Request | Marginals, salt: int) -> str:
        """One aggregation: columns k0 …, then b for a histogram, then whole numbers t0 … (and units, if sampled)."""
        if isinstance(it, Marginals):
            return self.marginals(it)
        return getattr(self, "plan_" + it.plan.kind)(it, salt)  # type: ignore[no-any-return]

    def coded(self, it: Marginals) -> str:
        """The rows as codes k0 …, and a weight w where they have one."""
        rows = Request(it.rows, it.codes, it.plan)
        keys = ", ".join(f"k{code}" for code in range(len(it.codes)))
        if it.plan.kind == "rows":
            return f"SELECT {keys} FROM ({self.rows(rows, unit=False, terms=True)}) AS y"
        weights = self.weight_of_units(self.rows(rows, unit=True, terms=False), it.plan.rows)
        return f"SELECT {keys}, n.w FROM ({self.rows(rows, unit=True, terms=True)}) AS y JOIN ({weights}) AS n ON y.u = n.u"

    def grouped_sets(self, it: Marginals, source: str) -> str:
        """All sets in one pass: GROUPING SETS leaves NULL where a code is not in the set, and codes are never NULL."""
        sets = ", ".join(f"({', '.join(f'k{code}' for code in codes)})" for codes in it.sets)
        one = f"CAST(count(*) AS {self.integer})" if it.plan.kind == "rows" else self.total("w")
        keys = [f"k{code}" for code in it.used]
        return f"SELECT {', '.join([*keys, one])} AS s0 FROM {source} GROUP BY GROUPING SETS ({sets})"

    def marginals(self, it: Marginals) -> str:
        """A set is known by the codes that are there, one binary digit each; the cell is written in mixed radix."""
        which = cell = self.constant(0)
        for place, code in enumerate(it.used):
            which += f" + CASE WHEN k{code} IS NULL THEN 0 ELSE {self.constant(1 << place)} END"
            cell = f"({cell} * CASE WHEN k{code} IS NULL THEN 1 ELSE {it.sizes[code]} END + coalesce(k{code}, 0))"
        return f"SELECT {which} AS s, {cell} AS k, s0 FROM ({self.grouped_sets(it, f'({self.coded(it)}) AS x')}) AS g"

    def _by_key(self, it: Request, source: str, weight: str) -> str:
        keys = [f"k{i}" for i in range(len(it.keys))] + (["b"] if it.bins else [])
        weighed = [self.weighed(f"t{i}", self.weight_in(term, weight)) for i, term in enumerate(it.terms)]
        weighed = [self.weighed("1", weight)] if it.bins else weighed
        sums = [f"{self.total(text) if it.bins else self.exact_total(text)} AS s{i}" for i, text in enumerate(weighed)]
        by = f" GROUP BY {', '.join(keys)}" if keys else ""
        return f"SELECT {', '.join([*keys, *sums])} FROM {source}{by}"

    def weighed(self, term: str, weight: str) -> str:
        return term if not weight else weight if term == "1" else f"{weight} * {term}"

    def weight_in(self, term: Term, weight: str) -> str:
        """What a row weighs in this term."""
        if term.kind == TermKind.WIDE and weight:
            return f"least({self.constant(SCALE)}, {self.constant(term.most)} * {weight})"
        return self.below_whole(weight) if term.kind == TermKind.CUT else weight

    def below_whole(self, weight: str) -> str:
        """The weight, 0 where it is that of a whole row."""
        return f"(CASE WHEN {weight} < {self.constant(SCALE)} THEN {weight} ELSE 0 END)"

    def plan_rows(self, request: Request, salt: int) -> str:
        return self._by_key(request, f"({self.rows(request, unit=False, terms=True)}) AS x", "")

    def plan_registered(self, request: Request, salt: int) -> str:
        return self._by_key(request, f"({self.rows(request, unit=False, terms=True)}) AS x", f"CAST(w AS {self.integer})")

    def weight_of_units(self, rows: str, most: int) -> str:
        share = self.whole_quotient(self.constant(most * SCALE), "count(*)")
        return f"SELECT u, least({self.constant(SCALE)}, {share}) AS w FROM ({rows}) AS y GROUP BY u"

    def plan_weighted(self, request: Request, salt: int) -> str:
        weights = self.weight_of_units(self.rows(request, unit=True, terms=False), request.plan.rows)
        source = f"({self.rows(request, unit=True, terms=True)}) AS x JOIN ({weights}) AS n ON x.u = n.u"
        return self._by_key(request, source, "n.w")

    def plan_sampled(self, request: Request, salt: int) -> str:
        """At most `groups` groups of each unit, by a hash that is fresh for every query and differs between units."""
        if request.bins:
            return self._sampled_bins(request, salt)
        keys = [f"k{i}" for i in range(len(request.keys))]
        each = request.plan.each
        capped = [f"CASE WHEN n > {each} THEN 1 ELSE 0 END AS t{i}" if term.kind == TermKind.CUT else
                  f"{self.capped(f't{i}', each)} AS t{i}" for i, term in enumerate(request.terms)]  # fmt: skip
        kept = self.kept_pairs(request, salt)
        inner = f"SELECT {', '.join([*keys, *capped, '1 AS one'])} FROM ({kept}) AS z"
        sums = [f"{self.added(f't{i}')} AS s{i}" for i in range(len(request.terms))]
        by = f" GROUP BY {', '.join(keys)}" if keys else ""
        sums.append(f"{self.added('one')} AS units")
        return f"SELECT {', '.join([*keys, *sums])} FROM ({inner}) AS v{by}"

    def capped(self, term: str, each: int) -> str:
        most = (1 << 62) // each  # the product stays within 64 bits, whatever one unit holds
        near = f"least(greatest({term}, {self.constant(-most)}), {self.constant(most)})"
        share = self.whole_quotient(f"({near} * {self.constant(each)})", "n")
        return f"CASE WHEN n > {each} THEN {share} ELSE {term} END"

    def kept_pairs(self, request: Request, salt: int) -> str:
        """Per unit and group kept: its number of rows n and its sums t0 …"""
        keys = [f"k{i}" for i in range(len(request.keys))]
        sums = [f"CAST(sum(t{i}) AS {self.integer}) AS t{i}" for i in range(len(request.terms))]
        by = ", ".join(["u", *keys])
        chance = self.hash(["u", *keys], salt)
        columns = ", ".join(["u", *keys, *sums, "count(*) AS n", f"{chance} AS h"])
        pairs = f"SELECT {columns} FROM ({self.rows(request, unit=True, terms=True)}) AS x GROUP BY {by}"
        if not keys:
            return pairs
        place = f"row_number() OVER (PARTITION BY u ORDER BY {', '.join(['h', *keys])})"
        return f"SELECT * FROM (SELECT *, {place} AS place FROM ({pairs}) AS p) AS q WHERE place <= {request.plan.groups}"

    def _sampled_bins(self, request: Request, salt: int) -> str:
        plain = Request(request.rows, request.keys, request.plan)
        keys = [f"k{i}" for i in range(len(request.keys))]
        weight = f"least({self.constant(SCALE)}, {self.whole_quotient(self.constant(request.plan.each * SCALE), 'n')})"
        kept = f"SELECT u, {''.join(f'{key}, ' for key in keys)}{weight} AS w FROM ({self.kept_pairs(plain, salt)}) AS z"
        same = " AND ".join(["x.u = n.u", *(f"x.{key} IS NOT DISTINCT FROM n.{key}" for key in keys)])
        rows = f"({self.rows(request, unit=True, terms=True)}) AS x JOIN ({kept}) AS n ON {same}"
        columns = [f"x.{key}" for key in keys] + ["x.b"]
        return f"SELECT {', '.join(columns)}, {self.added('n.w')} AS s0 FROM {rows} GROUP BY {', '.join(columns)}"
