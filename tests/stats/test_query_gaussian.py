"""Gaussian noise in private SQL: what a unit moves in l2, an audit of the noise, and a twin that must be refuted.

Seeded. A floor is above the true epsilon with probability at most 1e-7; there are 4 such checks.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from conform.engines import exact
from discreet import connect, user
from discreet.accounting import curve
from discreet.core import Unit
from discreet.errors import InvalidQuery, InvalidValue
from discreet.noise.source import seeded_for_tests
from discreet.query import Database
from discreet.query.gaussian import Gaussians
from discreet.query.mechanism import SqlQuery
from discreet.query.operations import PlanKind
from stats.test_query_sql import ALPHA, floor

EPSILON, DELTA, RUNS, GROUPS = 1.0, 1e-3, 20_000, 20
NAMES = [f"g{i}" for i in range(GROUPS)]
SCHEMA = {"t": {"g": {"values": NAMES}, "x": {"bounds": [-1, 1]}}}
QUERY = "SELECT g, COUNT(*) AS n, SUM(x) AS s, AVG(x * x) AS q, COUNT(DISTINCT id) AS u FROM t GROUP BY g"
OTHERS = [(100 + i, NAMES[i % GROUPS], i / 30) for i in range(30)]
UNITS = {
    "everywhere": [(1, name, 1.0) for name in NAMES * 3], "in one group": [(1, "g3", 1.0)] * 100,
    "far apart": [(1, name, (-1.0) ** i * 1e300) for i, name in enumerate(NAMES)],
    "not numbers": [(1, name, math.nan) for name in NAMES],
}  # fmt: skip


def opened(rows: list[Any], relation: str = "add_remove") -> Database:
    whose, groups, numbers = zip(*rows)
    unit = user("id", rows=GROUPS)
    return connect({"t": pa.table({"id": whose, "g": groups, "x": numbers})}, unit=Unit("user", relation, unit.rows, "id"),
                   schema=SCHEMA)  # fmt: skip


def priced(db: Database, query: str = QUERY, groups: int | None = GROUPS, noise: Any = None, delta: float = DELTA) -> Any:
    return db._price(query, EPSILON, delta, groups, None, None, noise=noise)


@pytest.mark.parametrize("relation", ["add_remove", "replace"])
@pytest.mark.parametrize("name", UNITS)
@pytest.mark.parametrize("groups", [1, 7, GROUPS, None])
def test_no_unit_moves_a_number_further_in_l2(name: str, groups: int | None, relation: str) -> None:
    """Replaced, the unit comes in place of one that is as far away as can be."""
    instead = [(1, name, -x) for _, name, x in UNITS[name]] if relation == "replace" else []
    with opened([*UNITS[name], *OTHERS], relation) as there, opened([*instead, *OTHERS], relation) as gone:
        query = QUERY if groups else QUERY.replace(", COUNT(DISTINCT id) AS u", "")
        asked = priced(there, query, groups, "gaussian")
        parts = asked.plan.groups if asked.plan.kind == PlanKind.SAMPLED else 1
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("discreet.query.engines.duckdb.secrets.randbits", lambda bits: 11)
            found = [exact(db, query, groups) for db in (there, gone)]
    reached = 0.0
    for (measure, one), (_, two) in list(zip(*found))[: len(asked.measures)]:
        square = sum((one.get(key, 0) - two.get(key, 0)) ** 2 for key in {*one, *two})
        reached = max(reached, square * parts / measure.sensitivity**2)
        assert square * parts <= measure.sensitivity**2
    if (name, groups, relation) == ("everywhere", GROUPS, "add_remove"):
        assert reached == 1, "and the worst of them reach it"


def seen(found: list[list[int]], noise: Gaussians, seed: bytes) -> np.ndarray:
    """RUNS noisy vectors of all groups."""
    with seeded_for_tests(seed):
        noisy = noise.run([[*column] * RUNS for column in found])
    return np.asarray(noisy, float).reshape(len(found), RUNS, -1)


def audited(noise: Gaussians, claimed: Gaussians) -> float:
    """What the best attack proves of epsilon, on a unit that is in all groups."""
    wide = noise.sensitivities
    gone = [[0] * GROUPS for _ in wide]
    there = [[sensitivity // GROUPS] * GROUPS for sensitivity in wide]
    towards = [sensitivity // GROUPS * times / sigma**2 for sensitivity, times, sigma in zip(wide, noise.times, claimed.sigmas)]
    scores = [sum(weight * part.sum(axis=1) for weight, part in zip(towards, seen(found, noise, seed)))
              for found, seed in ((there, b"there"), (gone, b"gone"))]  # fmt: skip
    spread = 1 / claimed.multiplier**2
    cuts = [spread / 2 + part * math.sqrt(spread) for part in (-1, 0, 1, 2, 3)]
    return floor(scores[0], scores[1], cuts, DELTA)


def test_the_noise_keeps_its_claim_and_a_twin_does_not(monkeypatch: pytest.MonkeyPatch) -> None:
    with opened(OTHERS) as db:
        asked = priced(db)
    noise = asked.noise()
    assert isinstance(noise, Gaussians)
    assert curve(noise.event).epsilon(DELTA) <= EPSILON
    proven = audited(noise, noise)
    assert EPSILON / 3 < proven <= EPSILON
    right = Gaussians._sigma
    monkeypatch.setattr(Gaussians, "_sigma", lambda self, sensitivity: right(self, sensitivity // self.groups))
    twin = Gaussians(noise.sensitivities, noise.groups, noise.multiplier)
    assert audited(twin, twin) > 2 * EPSILON
    assert ALPHA < 1e-6


def test_it_is_taken_where_it_is_less_and_said() -> None:
    with opened([*OTHERS, *UNITS["everywhere"]]) as db:
        for groups, kind in ((2, ""), (GROUPS, "Gaussian")):
            told = db.explain(QUERY, epsilon=EPSILON, delta=1e-6, groups=groups)
            assert told.noise[:8] == kind
            assert told.delta == (1e-6 if kind else 0.0)
        answer = db.sql(QUERY, epsilon=EPSILON, delta=1e-6, groups=GROUPS)
        assert b"noise: Gaussian" in answer.value.schema.metadata[b"discreet"]
        assert curve(answer.claims[0].event).epsilon(1e-6) <= EPSILON
        assert "Gaussian(" in repr(answer.claims[0].event)
        pure = db.sql(QUERY, epsilon=EPSILON, delta=1e-6, groups=GROUPS, noise="laplace")
        assert curve(pure.claims[0].event).epsilon(0.0) <= EPSILON * (1 + 1e-12)
        halves = [db.explain(QUERY, epsilon=EPSILON, delta=1e-6, groups=GROUPS, noise=noise).errors["n"] for noise in
                  (None, "laplace")]  # fmt: skip
        assert float(halves[0].split()[1]) < 0.8 * float(halves[1].split()[1])
        with pytest.raises(InvalidQuery, match="delta"):
            db.sql(QUERY, epsilon=EPSILON, groups=GROUPS, noise="gaussian")
        with pytest.raises(InvalidValue, match="noise"):
            db.sql(QUERY, epsilon=EPSILON, groups=GROUPS, noise="normal")
        with pytest.raises(InvalidQuery, match="nothing"):
            db.sql("SELECT MEDIAN(x) AS m FROM t", epsilon=EPSILON, delta=1e-6, noise="gaussian")


@pytest.mark.parametrize("query", [QUERY, QUERY.replace("GROUP BY g", "GROUP BY ROLLUP (g)")])
@pytest.mark.parametrize("public", [True, False])
def test_all_parts_keep_the_budget_together(query: str, public: bool) -> None:
    """With names of groups released by threshold, and each grouping set, the whole claim keeps what was asked."""
    schema = SCHEMA if public else {"t": {"x": {"bounds": [-1, 1]}}}
    whose, groups, numbers = zip(*OTHERS)
    with connect({"t": pa.table({"id": whose, "g": groups, "x": numbers})}, unit=user("id", rows=GROUPS), schema=schema) as db:
        asked = priced(db, query, GROUPS, "gaussian", 1e-6)
        claim = SqlQuery(db.unit, asked).claims()[0]
        assert curve(claim.event).epsilon(1e-6) <= EPSILON * (1 + 1e-9)
        assert asked.spent[1] <= 1e-6 * (1 + 1e-12)
        db.sql(query, epsilon=EPSILON, delta=1e-6, groups=GROUPS, noise="gaussian")


def test_intervals_hold() -> None:
    """2,000 counts of noise: fewer than 1,870 or all of them within 95 % ends would happen once in 1e9."""
    noise = Gaussians((7, 1000), groups=5, multiplier=2.0)
    with seeded_for_tests(b"intervals"):
        drawn = noise.run([[0] * 2000] * 2)
    for place in range(2):
        inside = int((np.abs(drawn[place].astype(float)) <= noise.error(place, 0.95)).sum())
        assert 1_840 < inside < 1_960
