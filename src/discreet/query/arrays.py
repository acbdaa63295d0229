"""Private statistics of arrays, lists and columns of data frames, one function each.

Nothing that decides privacy has a default: the unit, epsilon, bounds, categories. With a ledger, the budget is charged before a
value is looked at. A missing value (None, NaN, what is not a number) is left out, and an infinite one counts as the nearest
bound: either changes its own contribution and nothing else.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from discreet.core import Release, check
from discreet.errors import InvalidValue
from discreet.ledger import LedgerLike, release
from discreet.noise.samplers import Number
from discreet.query import array_mechanisms as mechanisms
from discreet.query.array_mechanisms import ArrayMechanism, Estimate
from discreet.query.covariance import covariance as covariance_mechanism
from discreet.query.rows import Rows
from discreet.query.statistics import Count, Mean, Statistic, Sum, Variance

__all__ = ["Estimate", "count", "covariance", "estimate", "histogram", "mean", "quantile", "select", "sum", "top_k", "variance"]


def count(
    values: Any, *, unit: Any, epsilon: Number, ids: Any = None, confidence: float = 0.95,
    ledger: LedgerLike | None = None, source: str = "data",
) -> Release[Estimate]:  # fmt: skip
    """How many rows there are, missing values included.

    >>> from discreet.core import record
    >>> answer = count([3, 1, 4, 1, 5], unit=record(), epsilon=1).value
    >>> answer.low <= answer.high
    True
    """
    mechanism = mechanisms.statistic(Count, unit=unit, epsilon=epsilon, confidence=confidence)
    return _release(mechanism, values, ids, ledger, source)


def sum(
    values: Any, *, bounds: Any, unit: Any, epsilon: Number, ids: Any = None, confidence: float = 0.95,
    ledger: LedgerLike | None = None, source: str = "data",
) -> Release[Estimate]:  # fmt: skip
    """The sum of the values, each clipped to `bounds`, in whole numbers on a grid.

    >>> from discreet.core import record
    >>> round(sum([20.0] * 1000, bounds=(0, 100), unit=record(), epsilon=1e4).value.value)
    20000
    """
    mechanism = mechanisms.statistic(Sum, unit=unit, epsilon=epsilon, bounds=bounds, confidence=confidence)
    return _release(mechanism, values, ids, ledger, source)


def mean(
    values: Any, *, bounds: Any, unit: Any, epsilon: Number, ids: Any = None, confidence: float = 0.95,
    ledger: LedgerLike | None = None, source: str = "data",
) -> Release[Estimate]:  # fmt: skip
    """The mean of the values within `bounds`: the noisy sum of what they are from the middle, by the noisy count.

    >>> from discreet.core import record
    >>> round(mean([20.0] * 1000, bounds=(0, 100), unit=record(), epsilon=1e4).value.value)
    20
    """
    mechanism = mechanisms.statistic(Mean, unit=unit, epsilon=epsilon, bounds=bounds, confidence=confidence)
    return _release(mechanism, values, ids, ledger, source)


def variance(
    values: Any, *, bounds: Any, unit: Any, epsilon: Number, ids: Any = None, confidence: float = 0.95,
    ledger: LedgerLike | None = None, source: str = "data",
) -> Release[Estimate]:  # fmt: skip
    """The variance of the values within `bounds` (their mean square less their squared mean).

    >>> from discreet.core import record
    >>> round(variance([20.0, 40.0] * 1000, bounds=(0, 100), unit=record(), epsilon=1e6).value.value)
    100
    """
    mechanism = mechanisms.statistic(Variance, unit=unit, epsilon=epsilon, bounds=bounds, confidence=confidence)
    return _release(mechanism, values, ids, ledger, source)


def estimate(
    values: Any, statistic: type[Statistic], *, bounds: Any = None, unit: Any, epsilon: Number, ids: Any = None,
    confidence: float = 0.95, ledger: LedgerLike | None = None, source: str = "data",
) -> Release[Estimate]:  # fmt: skip
    """Any statistic that is estimated from counts and sums of a column, such as one of your own; epsilon is divided equally
    among the quantities it measures.

    >>> from discreet.core import record
    >>> from discreet.query.statistics import Deviation
    >>> round(estimate([20.0, 40.0] * 1000, Deviation, bounds=(0, 100), unit=record(), epsilon=1e6).value.value)
    10
    """
    if not (isinstance(statistic, type) and issubclass(statistic, Statistic)):
        raise InvalidValue(f"statistic must be a class of statistics, such as Mean; got {check.shown(statistic)}.")
    mechanism = mechanisms.statistic(statistic, unit=unit, epsilon=epsilon, bounds=bounds, confidence=confidence)
    return _release(mechanism, values, ids, ledger, source)


def covariance(
    values: Any, *, bounds: Any, unit: Any, epsilon: Number, ids: Any = None, confidence: float = 0.95,
    ledger: LedgerLike | None = None, source: str = "data",
) -> Release[Estimate]:  # fmt: skip
    """The covariance matrix of columns: a table of two dimensions, a data frame or a list of columns, with bounds for each.

    A row with a value missing is left out. The matrix is symmetric and need not be positive semidefinite.

    >>> from discreet.core import record
    >>> table = [[20.0, 40.0] * 1000, [1.0, 3.0] * 1000]
    >>> matrix = covariance(table, bounds=[(0, 100), (0, 5)], unit=record(), epsilon=1e6).value.value
    >>> round(matrix[0][1])
    10
    """
    mechanism = covariance_mechanism(unit=unit, epsilon=epsilon, bounds=bounds, confidence=confidence)
    return _release(mechanism, values, ids, ledger, source)


def quantile(
    values: Any, target: Any, *, bounds: Any, unit: Any, epsilon: Number, ids: Any = None, bins: int = 1024,
    interval_share: float = 0.6, confidence: float = 0.95, ledger: LedgerLike | None = None, source: str = "data",
) -> Release[Estimate]:  # fmt: skip
    """The value that a share `target` of the rows is below, or several; 0 is the minimum and 1 the maximum.

    It is the middle of one of `bins` equal bins between the bounds; the interval goes from edge to edge and takes
    `interval_share` of epsilon: none for 0, and then it is all of the bounds.

    >>> from discreet.core import record
    >>> quantile(range(1000), 0.45, bounds=(0, 1000), bins=10, unit=record(), epsilon=100).value.value
    450.0
    """
    mechanism = mechanisms.quantile(
        unit=unit, epsilon=epsilon, bounds=bounds, targets=target, bins=bins, confidence=confidence,
        interval_share=interval_share,
    )  # fmt: skip
    return _release(mechanism, values, ids, ledger, source)


def histogram(
    values: Any, *, unit: Any, epsilon: Number, edges: Any = None, categories: Any = None, ids: Any = None,
    confidence: float = 0.95, ledger: LedgerLike | None = None, source: str = "data",
) -> Release[Estimate]:  # fmt: skip
    """How many rows are in each cell: between public `edges`, or of public `categories`. What is in no cell is left out.

    >>> from discreet.core import record
    >>> histogram(["a", "b", "a", "?"], categories=["a", "b", "c"], unit=record(), epsilon=1e4).value.value
    [2.0, 1.0, 0.0]
    """
    mechanism = mechanisms.histogram(unit=unit, epsilon=epsilon, edges=edges, categories=categories, confidence=confidence)
    return _release(mechanism, values, ids, ledger, source)


def top_k(
    values: Any, *, k: int, categories: Any, unit: Any, epsilon: Number, ids: Any = None, confidence: float = 0.95,
    ledger: LedgerLike | None = None, source: str = "data",
) -> Release[list[dict[str, Any]]]:  # fmt: skip
    """The k commonest of the public categories, one after another, with their noisy counts.

    >>> from discreet.core import record
    >>> first = top_k(["a"] * 50 + ["b"] * 90, k=1, categories=["a", "b", "c"], unit=record(), epsilon=1e4).value[0]
    >>> first["category"], first["value"]
    ('b', 90.0)
    """
    mechanism = mechanisms.top_k(unit=unit, epsilon=epsilon, categories=categories, k=k, confidence=confidence)
    return _release(mechanism, values, ids, ledger, source)


def select(
    values: Any, *, candidates: Iterable[Any], score: Callable[[Any, Any], Any], sensitivity: Number, unit: Any,
    epsilon: Number, ledger: LedgerLike | None = None, source: str = "data",
) -> Release[Any]:  # fmt: skip
    """The public candidate of (nearly) the highest score, where one unit moves each `score(values, candidate)` by at most
    `sensitivity`; that it does not move further is what you promise.

    >>> from discreet.core import record
    >>> select([3, 3, 4], candidates=[3, 4], score=lambda v, c: v.count(c), sensitivity=1, unit=record(), epsilon=1e4).value
    3
    """
    mechanism = mechanisms.select(unit=unit, epsilon=epsilon, candidates=candidates, score=score, sensitivity=sensitivity)
    return _release(mechanism, values, None, ledger, source)


def _release(mechanism: ArrayMechanism, values: Any, ids: Any, ledger: LedgerLike | None, source: str) -> Release[Any]:
    return release(mechanism, Rows(values, ids), source=source, ledger=ledger)
