"""Everything that makes releases, as a mechanism, on neighbouring data; and how each is broken."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import torch

from discreet import connect, record, user
from discreet.core import Sequence
from discreet.crypto import IntersectionSize, sums
from discreet.crypto.sums import EncryptedSum, SumPlan
from discreet.federate import Central, Clients, Distributed, FedSGD, Local, PrivateSGD, client, noisy
from discreet.federate import Training as Federation
from discreet.learn import Encoded, StudentNoise
from discreet.learn.estimators import boosting, exact, finite, search
from discreet.learn.estimators import mechanisms as fits
from discreet.learn.estimators.bayes import Powers
from discreet.learn.estimators.cluster import Lloyd
from discreet.learn.estimators.finite import FiniteRisk
from discreet.learn.estimators.linear import Logistic, Problem
from discreet.learn.estimators.regression import Augmented
from discreet.learn.estimators.search import Search
from discreet.learn.estimators.sums import Moments, Totals
from discreet.learn.pate import GNMax, LNMax, Poll, estimate, voting
from discreet.learn.recommend import Factors, Summaries
from discreet.learn.sgd.canary import Training
from discreet.learn.sgd.run import Run
from discreet.learn.sgd.stream import Stream
from discreet.learn.sgd.student import StudentStream
from discreet.learn.sgd.train import train
from discreet.noise import LaplaceNoise
from discreet.query import answer, bounds, cut, gaussian, joint
from discreet.query import array_mechanisms as mechanisms
from discreet.query.answer import Noisy
from discreet.query.covariance import covariance
from discreet.query.mechanism import BoundsQuery, SqlQuery
from discreet.query.quantiles import Quantiles
from discreet.query.statistics import Count, Mean, Sum
from discreet.synth import Independent, LinkedSynthesis, NoisyDistances, Schema, Synthesis, fidelity, measure
from discreet.synth.linked_table import LinkedTable
from unit.synth.rows import Rows

ROW = record()
FEW, MORE = [1.0, 2.0, 2.0], [1.0, 2.0, 2.0, 9.0]


class Producer(NamedTuple):
    name: str
    make: Callable[[], tuple[Any, list[tuple[Any, Any]]]]
    broken: Callable[[Any], None]


def _arrays(plan: Callable[[], Any], with_unit: Any = MORE, without: Any = FEW) -> Callable[[], Any]:
    return lambda: (plan(), [(with_unit, without)])


def _no_array_noise(patch: Any) -> None:
    patch.setattr(mechanisms, "discrete_laplace", lambda scale, size=None: 0 if size is None else np.zeros(size, np.int64))


def _best(scores: Any, *how: Any) -> Any:
    return np.asarray(scores).argmax(axis=-1)


def _no_choice_noise(patch: Any) -> None:
    _no_array_noise(patch)
    patch.setattr(mechanisms, "exponential_rows", _best)


def _no_quantile_noise(patch: Any) -> None:
    patch.setattr(Quantiles, "_choose", lambda self, scores, *how: _best(scores))


def _synthetic() -> tuple[Any, list[tuple[Any, Any]]]:
    """More broken twins are in tests/stats/test_synth_audit.py."""
    pair = Rows([[0, 0], [1, 1]], (2, 2)), Rows([[0, 0]], (2, 2))
    return Synthesis((2, 2), ROW, 0.5, 1e-6, Independent()), [pair]


def _linked() -> tuple[Any, list[tuple[Any, Any]]]:
    """A parent with three children, each alone in its cells, against nobody."""
    unit = user("id", rows=3)

    def tables(users: list[int]) -> LinkedTable:
        parents = pa.table({"id": pa.array(users, pa.int64()), "a": pa.array([it % 2 for it in users], pa.int64())})
        many = [it for it in users for _ in range(3)]
        children = pa.table({"id": pa.array(many, pa.int64()), "b": pa.array([it % 2 for it in many], pa.int64())})
        schemas = {"users": Schema.of({"a": {"categories": [0, 1]}}), "visits": Schema.of({"b": {"categories": [0, 1]}})}
        return LinkedTable({"users": parents, "visits": children}, schemas, "users", "visits", unit)

    pair = tables([2, 4, 7]), tables([2, 4])
    sizes = pair[0].parents.sizes, pair[0].children.sizes[len(pair[0].parents.sizes) :]
    return LinkedSynthesis(*sizes, unit, 0.5, 1e-6, Independent()), [pair]


def _fidelity() -> tuple[Any, list[tuple[Any, Any]]]:
    """Cells that the model expects to be empty: whoever is in them is one row further away."""
    pair = Rows([[0, 0], [1, 1]], (2, 2)), Rows([[0, 0]], (2, 2))
    expected = tuple(np.array(counts, np.int64) * fidelity.POINT for counts in ([1, 0], [[1, 0], [0, 0]]))
    return NoisyDistances(((0,), (0, 1)), expected, ROW, 0.5, 1e-6), [pair]


def _no_distance_noise(patch: Any) -> None:
    patch.setattr(fidelity, "discrete_gaussian", lambda sigma, size: np.zeros(size, np.int64))


def _no_table_noise(patch: Any) -> None:
    patch.setattr(measure, "discrete_gaussian", lambda sigma, size: np.zeros(size, np.int64))


def _engine(values: list[float]) -> Any:
    return connect({"t": pa.table({"x": values})}, unit=ROW, bounds={"x": (0, 10)})


def _sql() -> tuple[Any, list[tuple[Any, Any]]]:
    there, gone = _engine(MORE), _engine(FEW)
    priced = there._price("SELECT COUNT(*) AS n, SUM(x) AS s FROM t", 0.1, None, None, None, None)
    return SqlQuery(ROW, priced), [(there.engine, gone.engine)]


def _gaussian_sql() -> tuple[Any, list[tuple[Any, Any]]]:
    there, gone = _engine(MORE), _engine(FEW)
    query = "SELECT COUNT(*) AS n, SUM(x) AS s FROM t"
    return SqlQuery(ROW, there._price(query, 0.1, 1e-6, None, None, None, noise="gaussian")), [(there.engine, gone.engine)]


def _no_gaussian_noise(patch: Any) -> None:
    patch.setattr(gaussian, "draw", lambda law, count, source: np.zeros(count, np.int64))


def _sql_of(query: str) -> Callable[[], tuple[Any, list[tuple[Any, Any]]]]:
    """A row alone in its group, with a value that nobody else has, against the table without it."""
    schema = {"t": {"g": {"values": ["a", "b"]}, "x": {"bounds": [0, 10]}, "y": {"bounds": [0, 10]}}}
    others = {"g": ["a"] * 3, "x": [1.0, 2.0, 2.0], "y": [1.0, 1.0, 2.0]}
    more = {"g": [*others["g"], "b"], "x": [*others["x"], 10.0], "y": [*others["y"], 10.0]}

    def make() -> tuple[Any, list[tuple[Any, Any]]]:
        there, gone = (connect({"t": pa.table(rows)}, unit=ROW, schema=schema) for rows in (more, others))
        return SqlQuery(ROW, there._price(query, 0.1, None, None, None, None)), [(there.engine, gone.engine)]

    return make


class _CutOfRows:
    """The share of rows that bounding cut, by itself: what a query measures beside its columns."""

    def __init__(self, query: SqlQuery) -> None:
        self.query = query

    def claims(self) -> tuple[Any, ...]:
        assert self.query.priced.cut is not None
        return (replace(self.query.claims()[0], event=Sequence(self.query.priced.cut.events)),)

    def run(self, data: Any) -> tuple[float, ...]:
        found = Noisy(self.query.priced).run(data.aggregate).cut
        assert found is not None
        return tuple(found)


def _cut_of_rows(**how: int) -> Callable[[], tuple[Any, list[tuple[Any, Any]]]]:
    """A person of very many rows against nobody."""

    def make() -> tuple[Any, list[tuple[Any, Any]]]:
        unit = user("id", rows=2)
        tables = ({"id": [*range(40), *[99] * heavy], "g": ["a"] * (40 + heavy)} for heavy in (500, 0))
        there, gone = (connect({"t": pa.table(rows)}, unit=unit, schema={"t": {"g": {"values": ["a"]}}}) for rows in tables)
        priced = there._price("SELECT g, COUNT(*) AS n FROM t GROUP BY g", 2.5, None, how.get("groups"), None, None)
        return _CutOfRows(SqlQuery(unit, priced)), [(there.engine, gone.engine)]

    return make


def _no_cut_noise(patch: Any) -> None:
    patch.setattr(cut, "discrete_laplace", lambda scale: 0)


def _no_noise_alone(patch: Any) -> None:
    patch.setattr(answer, "discrete_laplace", lambda scale, size: np.zeros(size, np.int64))


def _bounds() -> tuple[Any, list[tuple[Any, Any]]]:
    there, gone = _engine([5.0] * 400 + [9e9]), _engine([5.0] * 400)
    table = there._catalogue.tables["t"]
    return BoundsQuery(ROW, table, "x", 0.1), [(there.engine, gone.engine)]


def _no_sql_noise(patch: Any) -> None:
    patch.setattr(joint, "box", lambda scale, size, count, source: np.zeros((count, size), np.int64))


def _no_bounds_noise(patch: Any) -> None:
    patch.setattr(bounds, "discrete_laplace", lambda scale, size: np.zeros(size, np.int64))
    patch.setattr(bounds, "MISTAKE", bounds.PARTS)  # and so any part with a single row counts as full


def _no_training_noise(patch: Any) -> None:
    patch.setattr(Stream, "fill", lambda self, out, **how: out.zero_())


def _no_student_noise(patch: Any) -> None:
    patch.setattr(StudentStream, "fill", lambda self, out, **how: out.zero_())


def _make(data: Any, **more: Any) -> Run:
    model = torch.nn.Linear(1, 1, bias=False)
    torch.nn.init.zeros_(model.weight)

    def loss(output: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        return (output[:, 0] - target).square()

    return train(
        model, torch.optim.SGD(model.parameters(), 0.1), data, loss, unit=ROW, delta=1e-6, rate=1.0, steps=1,
        noise_multiplier=20.0, divisor=3.0, **(more or {"clip_norm": 1.0}),
    )  # fmt: skip


def _training() -> tuple[Any, list[tuple[Any, Any]]]:
    rows = [(torch.ones(n, 1), torch.full((n,), 5.0)) for n in (3, 2)]
    return Training(_make, rows[0]), [(rows[0], rows[1])]


def _encoded_training() -> tuple[Any, list[tuple[Any, Any]]]:
    """More broken twins are in tests/stats/test_encoded_audit.py."""
    rows = [(torch.ones(n, 1), torch.full((n,), 5.0)) for n in (3, 2)]
    make = functools.partial(_make, clipping=Encoded(1.0), noise=StudentNoise(4))
    return Training(make, rows[0]), [(rows[0], rows[1])]


def _fit(kind: type[fits.LinearFit]) -> Callable[[], Any]:
    """More pairs and more broken twins are in tests/stats/test_estimators_audit.py."""
    there = np.array([[0.0], [1.0], [1.0]]), np.array([0, 1, 1])
    gone = there[0][:2], there[1][:2]
    return lambda: (kind(Problem(1, 2, 1.0, 1.0, Logistic(1.0)), ROW, 0.1, 1e-6, 10.0), [(there, gone)])


def _moments() -> tuple[Any, list[tuple[Any, Any]]]:
    there = np.array([[1.0], [0.5]]), np.array([1.0, 0.5])
    return Moments(Augmented(1.0, (-1.0, 1.0)), ROW, 0.1, 1e-6), [(there, (there[0][1:], there[1][1:]))]


def _totals() -> tuple[Any, list[tuple[Any, Any]]]:
    there = np.array([[1.0], [0.5]]), np.array([1, 0])
    return Totals(Powers(((-1.0, 1.0),), 2), ROW, 0.1, 1e-6), [(there, (there[0][1:], there[1][1:]))]


def _boosting(loss: Any, target: Any) -> Callable[[], Any]:
    """A row alone in its leaf; a broken twin with too little noise is in tests/stats/test_boosting_audit.py."""
    bins = np.array([[0, 1]], np.uint16)
    made = boosting.Boosting((2,), frozenset(), loss, ROW, 0.1, 1e-6)
    return lambda: (made, [((bins, target), (bins[:, :1], target[:1]))])


def _finite() -> tuple[Any, list[tuple[Any, Any]]]:
    there = np.array([[0.0, 1.0], [1.0, 0.0], [0.0, 1.0]])
    return FiniteRisk(2, ROW, 0.1), [(there, np.array([[0.0, 1.0], [1.0, 0.0], [1.0, 0.0]])[1:])]


def _search() -> tuple[Any, list[tuple[Any, Any]]]:
    one, pairs = _fit(fits.Objective)()
    return Search((one, replace(one, alpha=20.0)), ROW, 0.05), pairs


def _poll(kind: type[GNMax], noise: float) -> Callable[[], Any]:
    """More pairs and more broken twins are in tests/stats/test_pate_audit.py."""
    from sklearn.dummy import DummyClassifier

    classes, queries, none = np.array([0, 1]), np.zeros((1, 1)), np.empty((0, 1))
    poll = Poll(DummyClassifier(), 2, classes, queries, kind(queries=1, unit=ROW, noise=noise))
    return lambda: (poll, [((np.zeros((1, 1)), np.array([1]), None), (none, np.empty(0, np.int64), None))])


def _estimate() -> tuple[Any, list[tuple[Any, Any]]]:
    """Labels whose bound falls fast where the votes are."""
    counts = np.tile([[60, 40]], (3, 1))
    return estimate.Estimate(3, 2, 5.0, 100, 4.0, ROW, 0.1, 1e-6), [(counts, np.tile([[61, 39]], (3, 1)))]


def _no_voting_noise(patch: Any) -> None:
    for name in ("discrete_gaussian", "discrete_laplace"):
        patch.setattr(voting, name, lambda scale, size: np.zeros(size, np.int64))


def _no_estimate_noise(patch: Any) -> None:
    patch.setattr(estimate, "discrete_laplace", lambda scale: 0)


def _summaries() -> tuple[Any, list[tuple[Any, Any]]]:
    """More pairs and more broken twins are in tests/stats/test_recommend_audit.py."""
    there = np.array([0, 0]), np.array([0, 1]), np.array([1.0, -1.0])
    return Summaries(2, ROW, 0.1, 1e-6, True), [(there, tuple(part[:1] for part in there))]


def _factors() -> tuple[Any, list[tuple[Any, Any]]]:
    there = np.array([0, 0]), np.array([0, 1]), np.array([1.0, -1.0])
    return Factors(2, user("user", rows=None), 0.1, 1e-6, 2), [(there, tuple(part[:0] for part in there))]


def _no_noise_in_search(patch: Any) -> None:
    """Nobody is kept apart for the choice, so that every run has the row."""
    _no_fitting_noise(patch)
    patch.setattr(search, "exponential", lambda scores, *how: int(np.argmax(scores)))
    patch.setattr(search, "uniform", lambda bound, size: np.ones(size, np.int64))


def _no_choice_of_hypothesis(patch: Any) -> None:
    patch.setattr(finite, "exponential", lambda scores, *how: int(np.argmax(scores)))


def _no_fitting_noise(patch: Any) -> None:
    patch.setattr(exact, "discrete_gaussian", lambda sigma, size: np.zeros(size, np.int64))


class _NoisySum(EncryptedSum):
    """With the claim for the sum alone: the other is about ciphertexts, which are not what `run` returns."""

    def claims(self) -> tuple[Any, ...]:
        return tuple(claim for claim in self.plan.claims(self.unit) if claim.game.view == {"aggregate"})


def _encrypted_sum() -> tuple[Any, list[tuple[Any, Any]]]:
    plan = SumPlan(size=2, clients=3, clip_norm=1.0, granularity=0.25, sigma=4.0)
    return _NoisySum(plan, record("zero_out")), [([[1.0, 0.0], [0.0, 1.0]], [[0.0, 0.0], [0.0, 1.0]])]


def _no_noise_in_ciphertexts(patch: Any) -> None:
    patch.setattr(sums, "discrete_gaussian", lambda sigma, size: np.zeros(size, np.int64))


def _federated(scheme: Any, *, strategy: Any = None, rounds: int = 1) -> Callable[[], tuple[Any, list[tuple[Any, Any]]]]:
    """A client that pulls as far as it may, against that client gone, or without its rows; more in tests/stats.

    The unit of PrivateSGD is one row of it.
    """
    model = torch.nn.Linear(1, 1, bias=False)
    torch.nn.init.zeros_(model.weight)
    some, none = (torch.ones(1, 1), torch.full((1,), 50.0)), (torch.ones(0, 1), torch.ones(0))
    still = torch.zeros(1, 1), torch.zeros(1)
    clients = [some, still, still, still]
    relation = (strategy or scheme).unit.relation
    others = clients[1:] if relation == "add_remove" and strategy is None else [none, *clients[1:]]

    def loss(output: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        return (output[:, 0] - target).square()

    def make() -> tuple[Any, list[tuple[Any, Any]]]:
        mechanism = Federation(model, loss, strategy=strategy or FedSGD(learning_rate=1.0), rounds=rounds, privacy=scheme)
        return mechanism, [tuple(Clients(rows.__getitem__, len(rows)) for rows in (clients, others))]

    return make


def _no_federated_noise(patch: Any) -> None:
    patch.setattr(noisy, "gaussian", lambda key, sigma, size, *, step: np.zeros(size, np.int64))


HALF: dict[str, Any] = {"clip_norm": 1.0, "noise_multiplier": 20.0}
BLANK = client(relation="zero_out")
FEDERATED = {
    "central": _federated(Central(unit=client(), rate=1.0, divisor=4.0, **HALF)),
    "central, sampled": _federated(Central(unit=client(), rate=0.5, divisor=2.0, **HALF), rounds=4),
    "central, banded": _federated(Central(unit=client(), rate=0.5, bands=2, divisor=2.0, **HALF), rounds=4),
    "local": _federated(Local(unit=BLANK, **HALF)),
    "distributed": _federated(Distributed(unit=BLANK, clients=4, honest=3, **HALF)),
    "private SGD": _federated(
        None, strategy=PrivateSGD(unit=ROW, learning_rate=1.0, steps=2, rate=0.5, divisor=1.0, **HALF), rounds=2
    ),
}


def _common_items() -> tuple[Any, list[tuple[Any, Any]]]:
    return IntersectionSize(scale=10, unit=ROW), [(([b"ann", b"ben"], [b"ben", b"ann"]), ([b"ann"], [b"ben", b"ann"]))]


def _exact_size(patch: Any) -> None:
    patch.setattr(LaplaceNoise, "run", lambda self, data: data)


PRODUCERS = [
    Producer("encrypted sum", _encrypted_sum, _no_noise_in_ciphertexts),
    Producer("intersection size", _common_items, _exact_size),
    Producer("count", _arrays(lambda: mechanisms.statistic(Count, unit=ROW, epsilon=0.1, confidence=0.95)), _no_array_noise),
    Producer(
        "sum",
        _arrays(lambda: mechanisms.statistic(Sum, unit=ROW, epsilon=0.1, bounds=(0, 10), confidence=0.95)),
        _no_array_noise,
    ),
    Producer(
        "mean",
        _arrays(lambda: mechanisms.statistic(Mean, unit=ROW, epsilon=0.1, bounds=(0, 10), confidence=0.95)),
        _no_array_noise,
    ),
    Producer(
        "covariance",
        _arrays(
            lambda: covariance(unit=ROW, epsilon=0.1, bounds=[(0, 10), (0, 10)], confidence=0.95),
            [MORE, MORE],
            [FEW, FEW],
        ),
        _no_array_noise,
    ),
    Producer(
        "histogram",
        _arrays(lambda: mechanisms.histogram(unit=ROW, epsilon=0.1, confidence=0.95, edges=[0, 5, 10])),
        _no_array_noise,
    ),
    Producer(
        "top k",
        _arrays(lambda: mechanisms.top_k(unit=ROW, epsilon=0.1, categories=[1.0, 2.0, 9.0], k=3, confidence=0.95)),
        _no_choice_noise,
    ),
    Producer(
        "quantile",
        _arrays(
            lambda: mechanisms.quantile(unit=ROW, epsilon=0.1, bounds=(0, 10), targets=0.5, bins=16, confidence=0.95),
            [1.0, 9.0, 9.0],
            [1.0, 9.0],
        ),
        _no_quantile_noise,
    ),
    Producer("synthetic table", _synthetic, _no_table_noise),
    Producer("linked synthetic tables", _linked, _no_table_noise),
    Producer("fidelity", _fidelity, _no_distance_noise),
    Producer("sql", _sql, _no_sql_noise),
    Producer("sql, Gaussian noise", _gaussian_sql, _no_gaussian_noise),
    Producer("sql, different values", _sql_of("SELECT COUNT(DISTINCT x) AS n FROM t"), _no_noise_alone),
    Producer("sql, covariance", _sql_of("SELECT COVAR_POP(x, y) AS c FROM t"), _no_sql_noise),
    Producer("sql, correlation", _sql_of("SELECT CORR(x, y) AS c FROM t"), _no_sql_noise),
    Producer("sql, grouping sets", _sql_of("SELECT g, COUNT(*) AS n FROM t GROUP BY ROLLUP (g)"), _no_noise_alone),
    Producer("sql, share of rows cut", _cut_of_rows(), _no_cut_noise),
    Producer("sql, share of rows cut of sampled units", _cut_of_rows(groups=1), _no_cut_noise),
    Producer("find bounds", _bounds, _no_bounds_noise),
    Producer("training", _training, _no_training_noise),
    Producer("training, encoded, Student's t", _encoded_training, _no_student_noise),
    *(Producer(f"federated, {name}", make, _no_federated_noise) for name, make in FEDERATED.items()),
    Producer("second moments", _moments, _no_fitting_noise),
    Producer("totals", _totals, _no_fitting_noise),
    Producer("boosted trees", _boosting(boosting.Logistic(1), np.array([0, 1])), _no_fitting_noise),
    Producer(
        "clusters", lambda: (Lloyd(2, 1, ROW, 0.1, 1e-6), [(np.array([[0.0], [1.0]]), np.array([[0.0]]))]), _no_fitting_noise
    ),
    Producer("finite class", _finite, _no_choice_of_hypothesis),
    Producer("search", _search, _no_noise_in_search),
    Producer("teachers' votes, Gaussian", _poll(GNMax, 20.0), _no_voting_noise),
    Producer("teachers' votes, Laplace", _poll(LNMax, 20.0), _no_voting_noise),
    Producer("sums over ratings", _summaries, _no_fitting_noise),
    Producer("factors of ratings", _factors, _no_fitting_noise),
    Producer("estimate of what votes cost", _estimate, _no_estimate_noise),
    *(Producer(f"linear model, {name}", _fit(kind), _no_fitting_noise) for name, kind in fits.METHODS.items()),
]
