"""Private SQL, audited on the tables where one unit moves the answer most, and twins of it that must be refuted.

The engine adds up each world once, and the noise stage runs many times on what it found: one more public key, the number of
the run, makes thousands of runs one. Every cell gets noise of its own, so that is the same as running it thousands of times.

Seeded, but for the audits of `db.sql` itself, which refuses seeds. A floor is above the true epsilon with probability at most
1e-7 and an interval is called too short with at most 1e-7; there are about 150 such checks: 1.5e-5 for the file. Twins
are refuted with margins that fresh seeds do not reach once in a thousand files.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from scipy import stats

from discreet import connect, record, user
from discreet.accounting import curve
from discreet.core import Unit
from discreet.noise import discrete_laplace
from discreet.noise.source import seeded_for_tests
from discreet.query import Database
from discreet.query.after import evaluate
from discreet.query.answer import Noisy, requests
from discreet.query.engines import duckdb as duck
from discreet.query.engines.request import SCALE, Plan, Request
from discreet.query.joint import box
from discreet.query.mechanism import SqlQuery
from discreet.query.operations import Kind, Op
from discreet.query.price import Priced
from discreet.query.statistics.quantity import Cut, RowCount, Total
from discreet.query.threshold import Threshold
from discreet.query.tree import Scalar
from unit.noise.tools import epsilon_at_least

ALPHA, EPSILON, DELTA = 1e-7, 2.0, 1e-2
Found = Mapping[str, Sequence[Any]]
Row = tuple[int, str, int | None, float | None]  # whose, group, whole number, number

PLANS: dict[str, tuple[Unit, int | None]] = {
    "rows": (record(), None), "weighted": (user("id", rows=4), None), "registered": (user("id", rows=4), None),
    "sampled": (user("id", rows=4), 2), "one group": (user("id", rows=4), 1),
}  # fmt: skip
OTHERS: list[Row] = [(100 + i, "A" if i % 3 else "B", i % 7, i / 7) for i in range(30)]
NAN, INF = math.nan, math.inf
UNITS: dict[str, list[Row]] = {  # the rows of the unit that is there or not
    "one row": [(1, "A", 20, 1.0)],
    "heavy": [(1, "A", 20, 1.0)] * 1000,
    "extreme": [(1, "A", 10**15, 1e308)] * 3 + [(1, "B", -(10**15), -1e308)],
    "alone": [(1, "C", 20, 1.0)] * 4,
    "everywhere": [(1, "ABC"[i % 3], i % 21, (-1.0) ** i) for i in range(300)],
    "not numbers": [(1, "A", None, NAN), (1, "A", 20, INF), (1, "B", 0, -INF), (1, "B", None, None)],
}
SCHEMA = {"t": {"g": {"values": ["A", "B", "C", "D"]}, "i": {"bounds": [0, 20]}, "x": {"bounds": [-1, 1]}}}
QUERY = "SELECT g, {} FROM t GROUP BY g"
STATISTICS = {
    "count": "COUNT(*) AS n", "known": "COUNT(x) AS k", "sum": "SUM(i) AS s", "mean": "AVG(x) AS m",
    "variance": "VARIANCE(i) AS v",
    "overflow": "SUM(LEAST(GREATEST(x * x * x - EXP(i), -5), 5)) AS o", "all": "COUNT(*) AS n, SUM(i) AS s, AVG(x) AS m",
}  # fmt: skip


def table(rows: list[Row]) -> pa.Table:
    whose, groups, wholes, numbers = zip(*rows)
    return pa.table({"id": whose, "g": groups, "i": pa.array(wholes, pa.int64()), "x": pa.array(numbers, from_pandas=False)})


def opened(rows: list[Row], plan: str, schema: Any = SCHEMA) -> Database:
    db = connect({"t": table(rows)}, unit=PLANS[plan][0], schema=schema)
    return db.register() if plan == "registered" else db


def priced_for(db: Database, plan: str, asked: str, *, bias: bool = False, delta: float | None = None) -> Priced:
    return db._price(QUERY.format(asked), EPSILON, delta, PLANS[plan][1], None, None, bias)


def exact(db: Database, asked: Sequence[Request], salt: int = 11) -> list[Found]:
    """What the engine adds up, with the same coins in both worlds."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(duck.secrets, "randbits", lambda bits: salt)
        return [db.engine.aggregate(request) for request in asked]


def worlds(plan: str, unit: list[Row], asked: str, **more: Any) -> tuple[Priced, list[Found], list[Found]]:
    """The priced question, and what the engine finds with the unit and without it."""
    schema = more.pop("schema", SCHEMA)
    with opened(unit + OTHERS, plan, schema) as there, opened(OTHERS, plan, schema) as gone:
        priced = priced_for(there, plan, asked, **more)
        return priced, exact(there, requests(priced)), exact(gone, requests(priced))


def repeated(priced: Priced, found: list[Found], runs: int, seed: bytes) -> Noisy:
    """The noise stage, run many times at once."""
    number = Scalar(Op.COLUMN, Kind.INTEGER, (), (0, 0))
    keys = None if priced.keys is None else tuple((run, *key) for run in range(runs) for key in priced.keys)
    many = replace(priced, question=replace(priced.question, keys=(number, *priced.question.keys)), keys=keys)
    answers = iter(found)

    def ask(request: Request) -> Found:
        columns = next(answers)
        rows = len(next(iter(columns.values())))
        shifted = {f"k{int(name[1:]) + 1}" if name[0] == "k" else name: [*column] * runs for name, column in columns.items()}
        return {"k0": np.repeat(np.arange(runs), rows).tolist(), **shifted}

    with seeded_for_tests(seed):
        return Noisy(many).run(ask)


def sums(priced: Priced, found: list[Found]) -> dict[int, np.ndarray]:
    """The whole numbers of each measurement that gets Laplace noise, by public group."""
    return {m: np.array(column) for m, column in _aligned(priced, found[0]).items()} if found and "b" not in found[0] else {}


def _aligned(priced: Priced, found: Found) -> dict[int, list[int]]:
    stage = Noisy(priced)
    columns = stage._exact(found)
    names = [f"k{i}" for i in range(len(priced.question.keys))]
    rows = {key: i for i, key in enumerate(zip(*(found[name] for name in names)))} if names else {(): 0}
    assert priced.keys is not None
    return {m: [column[rows[key]] if key in rows else 0 for key in priced.keys] for m, column in columns.items()}


def scores(priced: Priced, noisy: Noisy, there: list[Found], gone: list[Found], runs: int) -> np.ndarray:
    """The logarithm of how much likelier each run's numbers are with the unit than without: no attack on them is better."""
    one, other = sums(priced, there), sums(priced, gone)
    far = {}
    for m in one:
        seen = noisy.values[m].reshape(runs, -1) / priced.measures[m].scale
        far[m] = [np.abs(seen - world[m]) / priced.measures[m].sensitivity for world in (other, one)]
    total = np.zeros(runs)
    for m in far.keys() - set(priced.joint):
        total += priced.epsilons[m] * (far[m][0] - far[m][1]).sum(axis=1)
    if priced.joint:  # one noise: the largest of its numbers counts
        gone, stayed = (np.maximum.reduce([far[m][world] for m in priced.joint]) for world in (0, 1))
        total += priced.epsilons[priced.joint[0]] * (gone - stayed).sum(axis=1)
    return total


def floor(one: np.ndarray, other: np.ndarray, cuts: Sequence[float], delta: float = 0.0) -> float:
    """What telling the worlds apart by "the score is above a cut" proves of epsilon, cuts fixed beforehand."""
    runs = len(one)
    seen = [(int((one > cut).sum()), int((other > cut).sum())) for cut in cuts]
    return max(epsilon_at_least(a, b, runs, ALPHA / len(cuts), delta) for a, b in seen)


CUTS = [EPSILON * part for part in (0.0, 0.25, 0.5, 0.75, 0.95)]


def audited(priced: Priced, there: list[Found], gone: list[Found], runs: int) -> float:
    seen = [repeated(priced, found, runs, seed) for found, seed in ((there, b"there"), (gone, b"gone"))]
    return floor(*(scores(priced, noisy, there, gone, runs) for noisy in seen), cuts=CUTS)


# ---- the right mechanism -----------------------------------------------------------------------------------------------


def moved(priced: Priced, there: list[Found], gone: list[Found]) -> list[float]:
    """How far the unit moves each measurement in l1, as a part of what is allowed."""
    parts = []
    one, other = sums(priced, there), sums(priced, gone)
    for m in one:
        parts.append(np.abs(one[m] - other[m]).sum() / priced.measures[m].sensitivity)
    if one:  # of numbers under one noise the most that any moves by counts, group by group
        assert sum(np.maximum.reduce([np.abs(one[m] - other[m]) / priced.measures[m].sensitivity for m in one])) <= 1 + 1e-12
    ranked = [measure for measure in priced.measures if measure.bins is not None]
    for measure, a, b in zip(ranked, there[-len(ranked) :], gone[-len(ranked) :]):
        cells = [dict(zip(zip(it.get("k0", it["b"]), it["b"]), it["s0"])) for it in (a, b)]
        apart = sum(abs(cells[0].get(key, 0) - cells[1].get(key, 0)) for key in {*cells[0], *cells[1]})
        parts.append(apart / measure.sensitivity)
    return parts


@pytest.mark.parametrize("plan", PLANS)
@pytest.mark.parametrize("unit", UNITS)
def test_no_unit_moves_a_measurement_by_more_than_its_sensitivity(plan: str, unit: str) -> None:
    rows = UNITS[unit][:1] if plan == "rows" else UNITS[unit]
    asked = ", ".join([*list(STATISTICS.values())[:-1], "MEDIAN(x) AS q, MAX(i) AS h"])
    asked += ", COUNT(DISTINCT id) AS u" if PLANS[plan][1] else ""
    priced, there, gone = worlds(plan, rows, asked, bias=True)
    parts = moved(priced, there, gone)
    assert len(parts) == len(priced.measures)
    assert max(parts) <= 1
    if plan == "rows" or (unit in ("heavy", "alone") and plan != "sampled"):  # sampled, it would have to be in two groups
        assert max(parts) > 0.99, "and the worst of them reach it"


@pytest.mark.parametrize("statistic", STATISTICS)
@pytest.mark.parametrize(
    ("plan", "unit"),
    [("rows", "one row"), ("weighted", "heavy"), ("registered", "heavy"), ("sampled", "alone"), ("one group", "heavy")],
)
def test_the_claim_holds_on_the_worst_unit(plan: str, unit: str, statistic: str) -> None:
    priced, there, gone = worlds(plan, UNITS[unit], STATISTICS[statistic])
    assert curve(SqlQuery(PLANS[plan][0], priced).claims()[0].event).epsilon(0.0) <= EPSILON * (1 + 1e-12)
    found = audited(priced, there, gone, 4000)
    assert found <= EPSILON
    if statistic in ("count", "known", "sum") and plan != "sampled":  # it is in two groups at most, here in one
        assert found > EPSILON / 3, "the audit has the power to see it"


@pytest.mark.parametrize("unit", ["extreme", "everywhere", "not numbers"])
@pytest.mark.parametrize("plan", ["weighted", "sampled"])
def test_the_claim_holds_for_nasty_units(plan: str, unit: str) -> None:
    priced, there, gone = worlds(plan, UNITS[unit], STATISTICS["all"] + ", " + STATISTICS["overflow"])
    assert audited(priced, there, gone, 4000) <= EPSILON


def test_the_claim_holds_for_counted_units_and_shares() -> None:
    priced, there, gone = worlds("one group", UNITS["heavy"], "COUNT(DISTINCT id) AS u")
    assert EPSILON / 3 < audited(priced, there, gone, 4000) <= EPSILON
    outside = [(1, "A", 99, 9.0)] * 1000
    priced, there, gone = worlds("weighted", outside, "SUM(i) AS s", bias=True)
    assert [it.name for it in priced.shares] == ["s_outside", "rows_capped"]
    assert EPSILON / 3 < audited(priced, there, gone, 10_000) <= EPSILON


@pytest.mark.parametrize(("plan", "unit"), [("rows", "one row"), ("weighted", "heavy"), ("one group", "heavy")])
def test_the_claim_holds_for_quantiles(plan: str, unit: str) -> None:
    """The unit pulls the median of a small group up; every run tells its value and its interval."""
    runs = 4000
    priced, there, gone = worlds(plan, UNITS[unit], "MEDIAN(i) AS q")
    place = priced.keys.index(("A",))  # type: ignore[union-attr]
    for part in range(3):
        seen = []
        for found, seed in ((there, b"q there"), (gone, b"q gone")):
            noisy = repeated(priced, found, runs, seed)
            seen.append(noisy.statistic(priced.question.aggregates[0])[part].reshape(runs, -1)[:, place])
        assert floor(*seen, cuts=[1.9, 4.9, 9.9, 14.9, 18.9]) <= EPSILON


# ---- private keys ------------------------------------------------------------------------------------------------------

PRIVATE = {"t": {key: value for key, value in SCHEMA["t"].items() if key != "g"}}


def shown(priced: Priced, found: list[Found], runs: int, seed: bytes, group: str) -> np.ndarray:
    """The noisy count of a group (or of the last whose name starts so) in each run, or -1 where it is not shown."""
    noisy = repeated(priced, found, runs, seed)
    counts = np.full(runs, -1.0)
    for (run, key), count in zip(noisy.keys, noisy.shown):
        if key.startswith(group):
            counts[run] = count
    return counts


@pytest.mark.parametrize("plan", PLANS)
@pytest.mark.parametrize("groups", [1, 2, 100])
def test_a_unit_alone_shows_its_groups_with_probability_delta(plan: str, groups: int) -> None:
    """However many groups it has to itself: any of them counts."""
    runs = 10_000 if groups < 100 else 2_000
    unit: list[Row] = [(1, f"C{i % groups}", 20, 1.0) for i in range(1 if plan == "rows" else max(4, groups))]
    priced, there, gone = worlds(plan, unit, "COUNT(*) AS n", delta=DELTA, schema=PRIVATE)
    assert priced.threshold is not None
    seen = int((shown(priced, there, runs, b"alone", "C") >= 0).sum())
    assert stats.binom.sf(seen - 1, runs, DELTA) > ALPHA
    assert (shown(priced, gone, 100, b"alone", "C") < 0).all()


@pytest.mark.parametrize("plan", PLANS)
def test_counts_of_released_groups_hold(plan: str) -> None:
    runs = 20_000
    rows = UNITS["one row"] if plan == "rows" else UNITS["heavy"]
    priced, there, gone = worlds(plan, rows, "COUNT(*) AS n", delta=DELTA, schema=PRIVATE)
    one, other = (shown(priced, found, runs, seed, "A") for found, seed in ((there, b"there"), (gone, b"gone")))
    column = "units" if priced.measures[priced.threshold or 0].term is None else "s0"
    middle = float(dict(zip(there[0]["k0"], there[0][column]))["A"])
    bound = priced.selector().bound
    assert (
        floor(one, other, cuts=[bound - 0.5, middle - 1, middle, (bound + middle) / 2, middle + bound / 4], delta=DELTA)
        <= EPSILON
    )


# ---- broken twins ------------------------------------------------------------------------------------------------------


@contextmanager
def patched(name: str, value: Any) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(name, value)
        yield


def changed(
    plan: str, unit: list[Row], asked: str, change: Callable[[Request], Request]
) -> tuple[Priced, list[Found], list[Found]]:
    """The worlds of a twin that asks the engine for something else."""
    with opened(unit + OTHERS, plan) as there, opened(OTHERS, plan) as gone:
        priced = priced_for(there, plan, asked)
        wanted = [change(request) for request in requests(priced)]
        return priced, exact(there, wanted), exact(gone, wanted)


def test_weights_left_out_are_refuted() -> None:
    priced, there, gone = changed("weighted", UNITS["heavy"], "COUNT(*) AS n", lambda it: replace(it, plan=Plan("rows", 1)))
    there, gone = ([{**found[0], "s0": [value * SCALE for value in found[0]["s0"]]}] for found in (there, gone))
    assert audited(priced, there, gone, 4000) > 2 * EPSILON


def test_noise_before_weighting_is_refuted() -> None:
    """The noise is added to all rows of a group, and then both are weighted down together: a heavy unit takes it along."""
    runs = 4000
    right, there, gone = worlds("weighted", UNITS["heavy"], "COUNT(*) AS n")
    _, raw_there, raw_gone = changed("weighted", UNITS["heavy"], "COUNT(*) AS n", lambda it: replace(it, plan=Plan("rows", 1)))
    seen = []
    for weighted, rows in ((there, raw_there), (gone, raw_gone)):
        bounded, whole = (dict(zip(found[0]["k0"], found[0]["s0"]))["A"] for found in (weighted, rows))
        with seeded_for_tests(b"before"):
            noise = discrete_laplace(right.measures[0].sensitivity / EPSILON, runs)
        seen.append((whole * SCALE + noise) * (bounded / (whole * SCALE)) / SCALE)
    middle = dict(zip(there[0]["k0"], there[0]["s0"]))["A"] / SCALE
    assert floor(*(-np.abs(it - middle) for it in seen), cuts=[-0.5]) > 1.2 * EPSILON


def test_sensitivity_of_one_group_for_a_unit_in_many_is_refuted() -> None:
    rows = [(1, group, 5, 0.0) for group in "ABCD"]
    priced, there, gone = worlds("weighted", rows, "COUNT(*) AS n")
    assert audited(priced, there, gone, 4000) <= EPSILON
    twin = replace(priced, measures=tuple(replace(it, sensitivity=it.sensitivity // 4) for it in priced.measures))
    seen = [repeated(twin, found, 4000, seed) for found, seed in ((there, b"there"), (gone, b"gone"))]
    assert floor(*(scores(twin, it, there, gone, 4000) for it in seen), cuts=CUTS) > 1.2 * EPSILON


def test_values_that_are_not_clamped_are_refuted() -> None:
    def free(it: Request) -> Request:
        return replace(it, terms=tuple(replace(term, most=1 << 40) for term in it.terms))

    priced, there, gone = changed("weighted", UNITS["extreme"], "SUM(i) AS s", free)
    assert audited(priced, there, gone, 4000) > 2 * EPSILON


def test_keys_without_a_threshold_are_refuted() -> None:
    class Every(Threshold):
        def run(self, counts: Any) -> Any:
            return np.ones(len(counts), bool), np.asarray(counts) + discrete_laplace(self.scale, len(counts))

    runs = 2000
    priced, there, gone = worlds("weighted", UNITS["alone"], "COUNT(*) AS n", delta=DELTA, schema=PRIVATE)
    right = priced.selector()
    twin = Every(right.epsilon, right.delta, right.sensitivity, right.each)
    with patched("discreet.query.price.Priced.selector", lambda self: twin):
        one, other = (shown(priced, found, runs, b"every", "C") for found in (there, gone))
    assert floor(np.where(one == -1, 0, 1), np.where(other == -1, 0, 1), cuts=[0.5], delta=DELTA) > 2 * EPSILON


@pytest.mark.parametrize("broken", [False, True])
def test_groups_in_the_order_of_the_engine_are_refuted(broken: bool) -> None:
    """An engine that gives groups in the order it met them: the unit's row came first."""
    runs = 200
    priced, there, gone = worlds("weighted", [(1, "B", 1, 0.0)], "COUNT(*) AS n", delta=DELTA, schema=PRIVATE)
    seen = []
    for found, first in ((there, "BA"), (gone, "AB")):
        counts = dict(zip(found[0]["k0"], found[0]["s0"]))
        large = [counts[key] + 100 * SCALE for key in first]  # so large that both are shown
        met = {"k0": list(first), "s0": large, "s1": large, "s2": large}
        with patched("discreet.query.answer._in_order", lambda part: 0) if broken else nullcontext():
            told = [Noisy(priced).run(lambda request, met=met: met).keys[0][0] for _ in range(runs)]  # type: ignore[misc]
        seen.append(np.array([key == "B" for key in told], float))
    assert (floor(*seen, cuts=[0.5], delta=DELTA) > EPSILON) == broken


def test_a_mean_over_the_exact_count_is_refuted() -> None:
    """A noisy sum of whole numbers over 101 is seldom a number over 100."""
    others = [(100 + i, "A", i % 21, 0.0) for i in range(100)]
    with opened([*others, (1, "A", 20, 0.0)], "rows") as there, opened(others, "rows") as gone:
        priced = priced_for(there, "rows", "AVG(i) AS m")
        worlds = [exact(db, requests(priced)) for db in (there, gone)]
    count, centred = (
        priced.place[RowCount(priced.question.aggregates[0].of)],
        priced.place[Total(priced.question.aggregates[0].of, centred=True)],  # type: ignore[arg-type]
    )
    seen = []
    for found, seed in zip(worlds, (b"there", b"gone")):
        noisy = repeated(priced, found, 4000, seed)
        place = priced.keys.index(("A",))  # type: ignore[union-attr]
        whole = sums(priced, found)[count][place]
        means = noisy.values[centred].reshape(4000, -1)[:, place] / whole
        steps = means * 100 / priced.step(centred)
        seen.append(-np.abs(steps - np.round(steps)))
    assert floor(*seen, cuts=[-1e-6]) > 1.2 * EPSILON


def test_one_noise_for_two_columns_is_refuted() -> None:
    """The same number added to both, where a vector of noise has one for each."""

    def again(scale: Any, size: int, count: int, source: Any) -> Any:
        return np.repeat(box(scale, size, count, source)[:, :1], size, axis=1)

    runs = 4000
    priced, there, gone = worlds("weighted", [(1, "A", None, None)] * 4, "COUNT(*) AS n, COUNT(x) AS k")
    for twin in (False, True):
        seen = []
        for found, seed in ((there, b"there"), (gone, b"gone")):
            with patched("discreet.query.joint.box", again if twin else box):
                noisy = repeated(priced, found, runs, seed)
            seen.append((noisy.values[0] - noisy.values[1]).reshape(runs, -1)[:, 0])
        assert (floor(*seen, cuts=[2.0]) > 2 * EPSILON) == twin
        assert twin or floor(*seen, cuts=[2.0]) <= EPSILON


def test_one_noise_with_the_sensitivity_of_its_smaller_number_is_refuted() -> None:
    """A third of what a unit moves the sum by is taken for all of it; the count is as it should be."""
    priced, there, gone = worlds("weighted", UNITS["heavy"], "SUM(i) AS s, AVG(i) AS m")
    assert len(priced.joint) == 2
    assert audited(priced, there, gone, 4000) <= EPSILON
    halved = [replace(it, sensitivity=it.sensitivity // 3) if it.sensitivity > 4 * SCALE else it for it in priced.measures]
    assert audited(replace(priced, measures=tuple(halved)), there, gone, 4000) > 1.2 * EPSILON


def test_a_noise_for_each_group_of_a_unit_in_many_is_refuted() -> None:
    rows = [(1, group, 20, 1.0) for group in "ABCD"]
    priced, there, gone = worlds("weighted", rows, "SUM(i) AS s, AVG(i) AS m")
    assert audited(priced, there, gone, 4000) <= EPSILON
    twin = replace(priced, measures=tuple(replace(it, sensitivity=it.sensitivity // 4) for it in priced.measures))
    assert audited(twin, there, gone, 4000) > 1.2 * EPSILON


@pytest.mark.parametrize("plan", PLANS)
def test_a_unit_alone_shows_its_groups_with_probability_delta_where_a_noise_is_shared(plan: str) -> None:
    """And with the bound that the count would have with a noise of its own, it shows them more often."""
    runs = 10_000
    unit: list[Row] = [(1, "C", 20, 1.0)] * (1 if plan == "rows" else 4)
    asked = "COUNT(*) AS n, SUM(i) AS s, AVG(x) AS m"
    priced, there, gone = worlds(plan, unit, asked, delta=DELTA, schema=PRIVATE)
    assert len(priced.joint) > 2
    assert priced.threshold == priced.joint[0]
    seen = int((shown(priced, there, runs, b"alone", "C") >= 0).sum())
    assert stats.binom.sf(seen - 1, runs, DELTA) > ALPHA
    assert (shown(priced, gone, 100, b"alone", "C") < 0).all()
    right = priced.selector()
    twin = Threshold(right.epsilon, right.delta, right.sensitivity, right.each, right.numbers)
    object.__setattr__(twin, "bound", Threshold(right.epsilon, right.delta, right.sensitivity, right.each).bound)
    with patched("discreet.query.price.Priced.selector", lambda self: twin):
        often = int((shown(priced, there, runs, b"alone", "C") >= 0).sum())
    assert stats.binom.sf(often - 1, runs, DELTA) < ALPHA or plan == "sampled"


def test_shares_that_count_rows_instead_of_weight_are_refuted() -> None:
    """All rows of units that were cut, instead of what they weigh: nobody bounds them."""
    priced, there, gone = worlds("weighted", UNITS["heavy"], "COUNT(*) AS n", bias=True)
    cut = f"s{priced.place[Cut()]}"
    assert audited(priced, there, gone, 4000) <= EPSILON
    rows = [1000 * SCALE if key == "A" else 0 for key in there[0]["k0"]]
    assert audited(priced, [{**there[0], cut: rows}], gone, 4000) > 2 * EPSILON


# ---- the whole of it ---------------------------------------------------------------------------------------------------

FEW: list[Row] = [(10 + i, "A", i, 0.0) for i in range(9)]


def test_sql_itself_holds_end_to_end() -> None:
    """Two thousand answers of `db.sql` on ten rows; all columns of both groups are looked at."""
    runs = 1000
    unit: list[Row] = [(1, "A", 20, 1.0)]
    query = "SELECT g, COUNT(*) AS n, SUM(i) AS s FROM t GROUP BY g ORDER BY n DESC"
    with opened(unit + FEW, "weighted") as there, opened(FEW, "weighted") as gone:
        seen = []
        for db in (there, gone):
            found = []
            for _ in range(runs):
                answer = db.sql(query, epsilon=EPSILON).value.to_pydict()
                place = answer["g"].index("A")
                found.append((answer["n"][place] - 9.5) / 4 + (answer["s"][place] - 46) / 80)
            seen.append(np.array(found))
        assert floor(*seen, cuts=[-0.5, 0.0, 0.2, 0.5]) <= EPSILON


def test_sql_without_weights_is_refuted_end_to_end() -> None:
    def whole(self: Any, rows: str, most: int) -> str:
        return f"SELECT u, {SCALE} AS w FROM ({rows}) AS y GROUP BY u"

    runs, query = 300, "SELECT COUNT(*) AS n FROM t"
    broken = patched("discreet.query.engines.writer.Writer.weight_of_units", whole)
    with broken, opened([(1, "A", 20, 1.0)] * 100 + FEW, "weighted") as there, opened(FEW, "weighted") as gone:
        seen = [np.array([db.sql(query, epsilon=1.0).value["n"][0].as_py() for _ in range(runs)]) for db in (there, gone)]
    assert floor(*seen, cuts=[59.0]) > 2


def test_sql_shows_the_group_of_one_with_probability_delta() -> None:
    runs, seen, orders = 500, 0, set()
    with opened([(1, "C", 20, 1.0), *FEW, *[(50 + i, "B", 1, 0.0) for i in range(9)]], "one group", PRIVATE) as db:
        for _ in range(runs):
            told = (
                db.sql("SELECT g, COUNT(*) AS n FROM t GROUP BY g", epsilon=4.0, delta=DELTA, groups=1).value["g"].to_pylist()
            )
            seen += "C" in told
            orders.add(tuple(told))
    assert stats.binom.sf(seen - 1, runs, DELTA) > ALPHA
    assert all(list(told) == sorted(told) for told in orders)
    assert ("A", "B") in orders


# ---- intervals ---------------------------------------------------------------------------------------------------------

CELLS = {
    "COUNT(*) AS n": 0.999, "COUNT(x) AS k": 0.999, "SUM(i) AS s": 0.999, "AVG(x) AS m": 1.0, "VARIANCE(i) AS v": 1.0,
    "STDDEV(i) AS d": 1.0, "SUM(i) AS s, AVG(i) AS m": 1.0, "COUNT(*) - COUNT(x) AS o": 1.0, "SUM(i) / COUNT(*) AS r": 1.0,
}  # fmt: skip
MANY: list[Row] = [(i // 2, "A" if i % 3 else "B", i % 19, math.sin(i) if i % 5 else None) for i in range(600)]


@contextmanager
def without_noise() -> Iterator[None]:
    nothing = patched("discreet.query.answer.discrete_laplace", lambda scale, size: np.zeros(size, np.int64))
    with nothing, patched("discreet.query.joint.box", lambda scale, size, count, source: np.zeros((count, size), np.int64)):
        yield


def covered(cells: Any, truth: np.ndarray) -> tuple[int, int]:
    _, low, high = (np.asarray(part, float).reshape(-1, len(truth)) for part in cells)
    slack = 1e-9 * np.maximum(1, np.abs(truth))
    inside = (low <= truth + slack) & (high >= truth - slack)
    return int(inside[:, 0].sum()), len(inside)


@pytest.mark.parametrize("plan", ["rows", "weighted", "sampled"])
@pytest.mark.parametrize("asked", CELLS)
def test_intervals_hold_the_answer_without_noise(plan: str, asked: str) -> None:
    runs = 4000
    with opened(MANY, plan) as db:
        priced = priced_for(db, plan, asked)
        found = exact(db, requests(priced))
    with without_noise():
        still = repeated(priced, found, 1, b"still")
    noisy = repeated(priced, found, runs, b"intervals")
    for output in priced.question.outputs[1:]:
        truth = np.asarray(evaluate(output, still)[0], float)
        inside, all_ = covered(evaluate(output, noisy), truth)
        assert stats.binom.cdf(inside, all_, 0.95) > ALPHA, "too short"
        assert inside <= CELLS[asked] * all_, "absurdly long"


@pytest.mark.parametrize("plan", ["rows", "weighted", "sampled"])
def test_intervals_of_shares_hold(plan: str) -> None:
    rows = MANY + [(1000, "A", 99, 5.0)] * 200
    with opened(rows, plan) as db:
        priced = priced_for(db, plan, "SUM(i) AS s", bias=True)
        found = exact(db, requests(priced))
    with patched("discreet.query.answer.discrete_laplace", lambda scale, size: np.zeros(size, np.int64)):
        still = repeated(priced, found, 1, b"still")
    noisy = repeated(priced, found, 4000, b"shares")
    for share in priced.shares:
        inside, all_ = covered(noisy.statistic(share.statistic), np.asarray(still.statistic(share.statistic)[0], float))
        assert stats.binom.cdf(inside, all_, 0.95) > ALPHA


@pytest.mark.parametrize("plan", ["rows", "weighted", "sampled"])
def test_intervals_of_quantiles_hold_the_exact_one(plan: str) -> None:
    runs = 4000
    with opened(MANY, plan) as db:
        priced = priced_for(db, plan, "MEDIAN(i) AS q, QUANTILE(i, 0.9) AS h")
        found = exact(db, requests(priced))
    noisy = repeated(priced, found, runs, b"quantiles")
    weight = {place: value for key, place, value in zip(found[-1]["k0"], found[-1]["b"], found[-1]["s0"]) if key == "A"}
    rising = np.cumsum([weight.get(i, 0) for i in range(21)])
    for aggregate, rank in zip(priced.question.aggregates, (0.5, 0.9)):
        truth = float(np.searchsorted(rising, rank * rising[-1]))
        inside, all_ = covered(noisy.statistic(aggregate), np.array([truth, 0, 0, 0]))
        assert stats.binom.cdf(inside, all_, 0.95) > ALPHA


@pytest.mark.parametrize("plan", ["rows", "weighted", "sampled"])
@pytest.mark.parametrize("size", [8, 20])
def test_intervals_of_released_groups_hold_given_release(plan: str, size: int) -> None:
    """Of the small groups only those with much noise are shown; their intervals know it."""
    runs = 20_000
    rows: list[Row] = [(i, "A", 1, 0.0) for i in range(size)]
    with opened(rows, plan, PRIVATE) as db:
        priced = priced_for(db, plan, "COUNT(*) AS n", delta=0.1)
        found = exact(db, requests(priced))
    noisy = repeated(priced, found, runs, b"released %d" % size)
    assert len(noisy.keys) > 200
    for aggregate in priced.question.aggregates:
        inside, all_ = covered(noisy.statistic(aggregate), np.array([float(size)]))
        assert stats.binom.cdf(inside, all_, 0.95) > ALPHA
