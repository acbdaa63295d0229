"""Nothing in a private row stops a fit, and a row that is no good changes its own contribution only."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.pipeline import make_pipeline

from discreet import record
from discreet.errors import InvalidValue
from discreet.learn import (
    PCA,
    GaussianNB,
    HistGradientBoostingClassifier,
    HistGradientBoostingRegressor,
    KBinsDiscretizer,
    KMeans,
    LinearRegression,
    LinearSVC,
    LogisticRegression,
    OneHotEncoder,
    PrivateSearchCV,
    Ridge,
    StandardScaler,
)
from discreet.learn.estimators import choose_hypothesis, exact, linear, rows
from discreet.learn.estimators.base import PrivateEstimator
from discreet.learn.estimators.bayes import Powers
from discreet.learn.estimators.mechanisms import METHODS
from discreet.learn.estimators.preprocessing import Cells
from discreet.learn.estimators.regression import Augmented

PRIVATE: dict[str, Any] = {"epsilon": 1.0, "delta": 1e-6, "unit": record()}
LOGISTIC = LogisticRegression(**PRIVATE, norm=2.0, classes=[0, 1])
SUPERVISED = [
    LOGISTIC, LogisticRegression(**PRIVATE, norm=2.0, classes=[0, 1], solver="output"),
    LogisticRegression(**PRIVATE, norm=2.0, classes=[0, 1], solver="descent"), LinearSVC(**PRIVATE, norm=2.0, classes=[0, 1]),
    GaussianNB(**PRIVATE, bounds=(1, 2), classes=[0, 1]), Ridge(**PRIVATE, norm=2.0, bounds=(0, 1)),
    LinearRegression(**PRIVATE, norm=2.0, bounds=(0, 1)),
    PrivateSearchCV(LOGISTIC, {"margin": [0.0, 1.0]}, epsilon=1.0, delta=1e-6),
    HistGradientBoostingClassifier(**PRIVATE, bounds=(1, 2), classes=[0, 1]),
    HistGradientBoostingRegressor(**PRIVATE, bounds=(1, 2), target_bounds=(0, 1), categorical_features=[0]),
]  # fmt: skip
TRANSFORMERS = [
    StandardScaler(**PRIVATE, bounds=(1, 2)),
    PCA(1, **PRIVATE, norm=2.0),
    KMeans(2, **PRIVATE, bounds=(1, 2)),
    KBinsDiscretizer(**PRIVATE, bounds=(1, 2)),
]
STRANGE: list[list[Any]] = [
    [np.nan, 1.0], [np.inf, -np.inf], [1e308, 1e308], [None, "x"], [pd.NA, 10**400], [{"a": 1}, "12"], [object(), True],
]  # fmt: skip
LABELS: list[Any] = [0, 1, np.nan, None, "1", 7, {"a": 1}]


def name(estimator: Any) -> str:
    return type(estimator).__name__ + str(getattr(estimator, "solver", ""))


@pytest.mark.parametrize("estimator", [*SUPERVISED, *TRANSFORMERS], ids=name)
def test_every_row_is_taken(estimator: Any) -> None:
    """Missing, infinite, huge and unreadable cells; labels that are none; and nobody at all."""
    x, y = np.array(STRANGE, object), np.array(LABELS, object)
    for cells, labels in ((x, y), (STRANGE, LABELS), (x[:0], y[:0]), (x[2:3], y[2:3]), (np.full((3, 2), np.nan), y[:3])):
        fitted = estimator.fit(cells, labels)
        values = fitted.transform(cells) if hasattr(fitted, "transform") else fitted.predict(cells)
        assert len(values) == len(cells)
        if values.dtype.kind == "f":
            assert np.isfinite(values).all()


def test_what_is_refused_depends_on_types_and_shapes() -> None:
    x = np.ones((4, 2))
    with pytest.raises(InvalidValue, match="must be numbers; got columns of type"):
        LOGISTIC.fit(np.array([["a", "b"]] * 4), [0, 1, 0, 1])
    with pytest.raises(ValueError, match="inconsistent"):
        LOGISTIC.fit(x, [0, 1, 0])
    with pytest.raises(ValueError, match="2D"):
        LOGISTIC.fit(x[0], [0, 1])
    with pytest.raises(InvalidValue, match=r"column for each hypothesis\. Nothing was spent"):
        choose_hypothesis(x, [1, 2, 3], epsilon=1.0, unit=record())
    assert choose_hypothesis([[0.0, None], ["x", 1.0]], ["a", "b"], epsilon=1.0, unit=record()).value in "ab"


@pytest.mark.parametrize("label", [np.nan, None, 7, "1", {"a": 1}])
def test_one_label_changes_one_contribution(label: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the mechanism is given is what it would be given without that row."""
    random = np.random.default_rng(0)
    x, y = random.normal(size=(50, 2)), [*random.integers(0, 2, 49).tolist(), label]
    seen: list[Any] = []
    monkeypatch.setattr(PrivateEstimator, "_spend", lambda self, mechanism, data: seen.append(data) or 1 / 0)
    for estimator in SUPERVISED[:5]:
        for count in (50, 49):
            with pytest.raises(ZeroDivisionError):
                estimator.fit(x[:count], y[:count])
        odd, without = seen[-2:]
        assert (odd[0] == without[0]).all()
        assert odd[1].tolist() == without[1].tolist() == y[:49]


@pytest.mark.parametrize("encode", [Powers(((1.0, 2.0),) * 2, 1), Cells(((1.0, 2.0),) * 2), Augmented(2.0, None)], ids=repr)
def test_one_cell_changes_one_contribution(encode: Any) -> None:
    """Vectors of other rows stay as they are, and that of the odd row is no longer than any."""
    good = np.full((5, 2), 1.5)
    for strange in STRANGE:
        odd = np.vstack([good, rows.numbers(np.array([strange], object))])
        data = odd if isinstance(encode, Cells) else (odd, None)
        vectors = exact.grained(encode(data))
        assert (vectors[:5] == vectors[0]).all()
        assert np.isfinite(vectors).all()
        assert np.linalg.norm(vectors[5]) <= 1


def test_a_pipeline_passes_what_is_missing_on() -> None:
    x, y = np.array(STRANGE * 40, object), [0, 1, 0, 1, 0, 1, 0] * 40
    chain = make_pipeline(StandardScaler(**PRIVATE, bounds=(0, 1)), LOGISTIC)
    assert len(chain.fit(x, y).predict(x)) == 280
    words = OneHotEncoder(categories=[["a", 1], [2.0]]).fit_transform([["a", 2], [1, pd.NA], ["1", {"a": 1}], [True, None]])
    assert words.tolist() == [[1, 0, 1], [0, 1, 0], [0, 0, 0], [0, 1, 0]]
    bins = KBinsDiscretizer(edges=[[0.0]]).fit_transform([[np.nan], [np.inf], [-np.inf], [None]])
    assert bins.tolist() == [[0, 0], [0, 1], [1, 0], [0, 0]]


def test_sums_are_exact_in_any_order() -> None:
    random = np.random.default_rng(1)
    values = exact.grained(random.normal(size=(9000, 3)))
    share = random.random(9000)
    coarse = np.rint(share / exact.GRAIN) * exact.GRAIN
    order = random.permutation(9000)
    assert (exact.added(values, coarse) == exact.added(values[order], coarse[order])).all()
    assert (exact.squared(values) == exact.squared(values[order])).all()
    assert (exact.added_exactly(values, share) == exact.added_exactly(values[order], share[order])).all()
    true = [sum(Fraction(v) * Fraction(s) for v, s in zip(values[:, j], share)) for j in range(3)]
    found = exact.added_exactly(values, share)
    assert sum((Fraction(f) - t) ** 2 for f, t in zip(found, true)) <= Fraction(exact.sum_error(9000)) ** 2
    assert exact.squared(values)[0, 1] == float(sum(Fraction(a) * Fraction(b) for a, b in values[:, :2]))
    w = np.array([1e3, -1 / 3, 1e-5])
    near = exact.margins(values[:50], w)
    for row, margin in zip(values[:50], near):
        assert abs(Fraction(margin) - sum(Fraction(a) * Fraction(b) for a, b in zip(row, w))) <= 4 * exact.UNIT * 1001
    assert (exact.margins(values[order], w) == exact.margins(values, w)[order]).all()


def test_sums_do_not_overflow_for_the_most_rows() -> None:
    """Blocks as large as they can be, so many as the most rows have: what is added is below 2^63 and loses nothing."""
    blocks, largest = exact.MOST_ROWS // exact.BLOCK, exact.BLOCK * 2**40
    assert (largest >> exact.HALF) * blocks < 2**63
    assert (2**exact.HALF) * blocks < 2**63
    assert largest < 2**53


@pytest.mark.parametrize("loss", [linear.Logistic(1.0), linear.Huber(0.5)])
def test_rounding_leaves_room_for_the_most_rows(loss: Any) -> None:
    """The number of rows decides nothing: for the most there may be, and weights up to 10 long, rounding leaves room."""
    assert linear.rounding(exact.MOST_ROWS, loss, np.array([10.0])) <= exact.TOLERANCE


@pytest.mark.parametrize("method", sorted(METHODS))
def test_more_rows_than_before(method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Sums used to be refused from 12,473,847 rows on: blocks of one row stand for that many blocks."""
    monkeypatch.setattr(exact, "BLOCK", 1)
    x, y = np.array([[1.0], [-1.0]] * 200), np.array([1, 0] * 200)
    fit = METHODS[method](linear.Problem(1, 2, 1.0, 0.0, linear.Logistic()), record(), 1.0, 1e-6, 10.0)
    assert np.isfinite(fit.run((x, y))).all()
