"""What a fit would cost and how exact it would be, before a row is read or anything is spent."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from discreet.accounting import concentrated
from discreet.core import Approximate, Event, Unit, Zero
from discreet.core import Sequence as Composed
from discreet.synth.measure import concentrated_for
from discreet.synth.methods import Method
from discreet.synth.synthesis import Synthesis, planned, schema_of
from discreet.synth.table import Table

NOISE = {
    "columns": "a count of one column is off by {0:,.1f} (standard deviation), so its interval is about +-{0:,.1f} x 1.96",
    "choices": "each pair is chosen by the exponential mechanism at epsilon {0:.3g}",
    "gaps": "how far a pair is from independence is known to {0:,.1f} rows",
    "pairs": "a count of a chosen pair is off by {0:,.1f}",
    "tables": "a count of a chosen table that is measured m times is off by {0:,.1f} / sqrt(m)",
    "child columns": "a count of one column of children is off by {0:,.1f}",
    "child choices": "each pair with children is chosen by the exponential mechanism at epsilon {0:.3g}",
    "child pairs": "a count of a chosen pair with children is off by {0:,.1f}",
}
PARTS = ("columns", "choices", "tables")  # of a method with three events
ABSOLUTE = math.sqrt(2 / math.pi)  # the mean of |Z| of a standard normal Z


@dataclass(frozen=True, slots=True)
class Explanation:
    """What a fit would cost and how exact it would be, from public numbers alone; `str` of it is for people.

    `split` are shares of the budget, `misplaced` the rows that noise puts into wrong cells, on average.
    """

    epsilon: float
    delta: float
    unit: str
    method: str
    columns: dict[str, int]
    noise: dict[str, float]
    split: dict[str, float]
    misplaced: dict[str, float]
    found: tuple[str, ...] = ()
    constraints: int = 0
    readings: dict[str, str] = field(default_factory=dict)  # how the schema of each column was read
    event: Event = field(default=Zero(), repr=False)  # what the ledger would charge

    def to_json(self) -> dict[str, Any]:
        return {name: value for name, value in asdict(replace(self, event=Zero())).items() if name != "event"}

    def __str__(self) -> str:
        split = ", ".join(f"{name} {share:.0%}" for name, share in self.split.items())
        lines = [
            f"costs      epsilon {self.epsilon:g}, delta {self.delta:g}, in one charge",
            f"protects   {self.unit}",
            f"method     {self.method}" + (f"; {self.constraints} constraints" if self.constraints else ""),
            f"columns    {', '.join(f'{name} ({cells})' for name, cells in self.columns.items())}",
            *(f"reads      {name}: {reading}" for name, reading in self.readings.items()),
            f"split      {split} of the budget",
            *(f"finds      {line}" for line in self.found),
            *(f"noise      {NOISE[part].format(size)}" for part, size in self.noise.items()),
            f"error      {self._error()}",
            "domain     numbers outside their bounds are moved to the nearer end; a value that is not listed counts as missing",
        ]
        return "\n".join(lines)

    def _error(self) -> str:
        about = " and ".join(f"{rows:,.0f} rows of {subject}" for subject, rows in self.misplaced.items())
        most = max(self.misplaced.values())
        return f"noise misplaces about {about}: 1 % of {100 * most:,.0f} rows; what is not measured comes on top"


def explain(
    table: Any, *, unit: Unit, epsilon: float, delta: float, schema: Any = None, method: str | Method = "auto",
    workload: Sequence[Sequence[str]] | None = None, constraints: Sequence[Any] = (), name: str | None = None,
) -> Explanation:  # fmt: skip
    """What `fit` would cost and how exact it would be; no row is read and nothing is spent.

    >>> import pyarrow as pa
    >>> from discreet.core import record
    >>> cost = explain(pa.table({"sex": ["f"]}), unit=record(), epsilon=1.0, delta=1e-6, schema={"sex": ["f", "m"]})
    >>> round(cost.noise["columns"], 1)
    4.2
    """
    with Table(table, schema_of(schema, table, name), unit, name=name) as rows:
        mechanism = planned(rows, unit, epsilon, delta, method, workload, constraints)
        columns = {cells.name: size for cells, size in zip(rows.cells, rows.sizes)}
        readings = rows.schema.readings()
    parts = dict(mechanism.spending().parts)
    domain_lines = tuple(mechanism.domain.explain()) if mechanism.open else ()
    return Explanation(
        epsilon, delta, str(unit), mechanism.method.name, columns, parts, split(mechanism), misplaced(mechanism), domain_lines,
        len(mechanism.constraints), readings, mechanism.spending().event,
    )  # fmt: skip


def split(mechanism: Synthesis) -> dict[str, float]:
    """The share of the budget that each part of a fit gets, in zCDP; of what is found by threshold, in epsilon."""
    event, before = mechanism.spending().event, mechanism.public.before
    own: Event = event.events[-1] if before and isinstance(event, Composed) else event
    costs = dict(zip(PARTS, map(concentrated, own.events if isinstance(own, Composed) else (own,))))
    remaining = 1.0 - sum(_share(mechanism, spent) for spent in before)
    shares = {name: remaining * cost / sum(costs.values()) for name, cost in costs.items()}
    return ({"domain": 1 - remaining} if before else {}) | shares


def _share(mechanism: Synthesis, event: Event) -> float:
    if isinstance(event, Approximate):
        return event.epsilon / mechanism.epsilon
    return concentrated(event) / concentrated_for(mechanism.epsilon, mechanism.delta)


def misplaced(mechanism: Synthesis) -> dict[str, float]:
    """Half the expected l1 distance of a noisy table to the true one, in rows: of a column, and of a pair of columns of mean
    size; a pair that `junction` chooses is taken to have eight slots, as where two tables are chosen for each column."""
    parts, sizes = mechanism.spending().parts, mechanism.sizes
    mean = sum(sizes) / len(sizes)
    result = {"a column": ABSOLUTE / 2 * parts["columns"] * mean}
    for part, times in (("pairs", 1), ("tables", 8)):
        if part in parts:
            result["a chosen pair"] = ABSOLUTE / 2 * parts[part] / math.sqrt(times) * mean**2
    return result
