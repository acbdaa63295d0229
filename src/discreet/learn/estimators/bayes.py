"""Private naive Bayes and scaling, from noisy counts, sums and sums of squares."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import ClassifierMixin, OneToOneFeatureMixin, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from discreet.core import Unit, check
from discreet.errors import InvalidValue
from discreet.learn.estimators import rows
from discreet.learn.estimators.base import PrivateEstimator, labelled
from discreet.learn.estimators.exact import Floats
from discreet.learn.estimators.regression import range_of
from discreet.learn.estimators.sums import Totals
from discreet.ledger import LedgerLike

Ranges = tuple[tuple[float, float], ...]
SQUARE = math.sqrt(2)  # x^2 - 1/2 lies within 1/2 where x lies within 1, so it may count twice as much as x for less


@dataclass(frozen=True, slots=True)
class Powers:
    """Encodes a row as (1, features scaled to [-1, 1], their squares minus 1/2), in the block of its class."""

    ranges: Ranges
    classes: int

    @property
    def radius(self) -> float:
        """The longest (1, x, SQUARE (x^2 - 1/2)): x^2 + 2 (x^2 - 1/2)^2 is at most 3/2."""
        return math.sqrt(1 + 1.5 * len(self.ranges))

    def __call__(self, data: Any) -> Floats:
        features, labels = data
        low, high = np.array(self.ranges).T
        x = (rows.bounded(features, low, high) - low) / (high - low) * 2 - 1
        parts = np.hstack([np.ones((len(x), 1)), x, SQUARE * (x**2 - 0.5)]) / self.radius
        if self.classes == 1:
            return np.asarray(parts)
        out = np.zeros((len(x), self.classes, parts.shape[1]))
        out[np.arange(len(x)), labels] = parts
        return out.reshape(len(x), self.classes * parts.shape[1])

    def moments(self, total: Floats) -> tuple[Floats, Floats, Floats]:
        """Counts [classes], means and variances [classes, features] of the features as they are, within what is possible."""
        sums = total.reshape(self.classes, -1) * self.radius
        count = np.maximum(sums[:, 0], 1.0)
        size = len(self.ranges)
        mean = np.clip(sums[:, 1 : size + 1] / count[:, None], -1, 1)
        square = np.clip(sums[:, size + 1 :] / SQUARE / count[:, None] + 0.5, 0, 1)
        low, high = np.array(self.ranges).T
        half = (high - low) / 2
        variance = np.maximum(square - mean**2, 1e-4)  # a spread below a hundredth of the range counts as one
        return count, (mean + 1) * half + low, variance * half**2


def ranges_of(bounds: Any, features: int) -> Ranges:
    """The public range of every column: one pair for all, or one for each."""
    if bounds is None:
        raise InvalidValue("bounds must say the public range of the columns, such as (0, 1), or one pair for each; got None.")
    pairs = check.items("bounds", bounds, "a pair, or a list of pairs")
    if len(pairs) == 2 and all(isinstance(item, (int, float, np.number)) for item in pairs):
        return (range_of("bounds", pairs),) * features
    if len(pairs) != features:
        raise InvalidValue(f"bounds must be one pair, or one for each of {features} columns; got {len(pairs)}.")
    return tuple(range_of("bounds", pair) for pair in pairs)


class GaussianNB(ClassifierMixin, PrivateEstimator):  # type: ignore[misc]
    """Gaussian naive Bayes under (epsilon, delta)-differential privacy.

    `bounds` is the public range of every column (one pair for all, or a list of pairs); `classes` lists the labels that can
    occur. One row moves count, sums and sums of squares of its own class, all of which get noise at once. `var_smoothing` times
    the square of a column's range is added to its variances, as a guard against columns that hardly vary.

    Columns of real tables are not independent, and variances of a rare class are mostly noise. So by default classes share
    their variances, and the likelihood counts less than the prior: it is taken to the power `likelihood_weight`. With
    shared_variance=False and likelihood_weight=1 this is naive Bayes as in scikit-learn.

    >>> from discreet.core import record
    >>> X, y = np.repeat([[-1.0], [1.0]], 2000, axis=0), np.repeat([0, 1], 2000)
    >>> model = GaussianNB(epsilon=1.0, delta=1e-6, bounds=(-2, 2), unit=record(), classes=[0, 1]).fit(X, y)
    >>> model.predict([[-0.9], [0.9]]).tolist()
    [0, 1]
    """

    def __init__(
        self, *, epsilon: float, delta: float, bounds: Any, unit: Unit, classes: Any = None, var_smoothing: float = 0.01,
        shared_variance: bool = True, likelihood_weight: float = 0.35, ledger: LedgerLike | None = None,
        source: str | None = None,
    ) -> None:  # fmt: skip
        self.epsilon = epsilon
        self.delta = delta
        self.bounds = bounds
        self.unit = unit
        self.classes = classes
        self.var_smoothing = var_smoothing
        self.shared_variance = shared_variance
        self.likelihood_weight = likelihood_weight
        self.ledger = ledger
        self.source = source

    def fit(self, X: Any, y: Any, **params: Any) -> GaussianNB:
        """Fit once, which spends (epsilon, delta) once; whatever is wrong with the arguments is refused before that."""
        self._no_weights(params)
        smoothing = check.nonnegative("var_smoothing", self.var_smoothing)
        check.positive("likelihood_weight", self.likelihood_weight)
        X, y = rows.with_targets(self, X, y)
        encode_ranges = ranges_of(self.bounds, X.shape[1])
        classes, data, public = labelled(self.classes, X, y)
        encode = Powers(encode_ranges, len(classes))
        released = self._spend(Totals(encode, self.unit, float(self.epsilon), float(self.delta), public), data)
        count, self.theta_, variance = encode.moments(released.value)
        self.class_prior_ = count / count.sum()
        if self.shared_variance:
            variance = np.broadcast_to(self.class_prior_ @ variance, variance.shape)
        widths = np.diff(np.array(encode.ranges), axis=1)[:, 0]
        self.var_ = variance + smoothing * widths**2
        self.classes_ = classes
        self.release_ = released.map(
            lambda _: {
                "classes": classes.tolist(),
                "theta": self.theta_.tolist(),
                "var": self.var_.tolist(),
                "class_prior": self.class_prior_.tolist(),
            }
        )
        return self

    def _filled(self, X: Any) -> Floats:
        X = rows.features(self, X, reset=False)
        low, high = np.array(ranges_of(self.bounds, X.shape[1])).T
        return rows.filled(X, low, high)

    def predict_joint_log_proba(self, X: Any) -> Floats:
        """log Pr[row and class], [rows, classes], with the likelihood to the power of its weight."""
        check_is_fitted(self)
        X = self._filled(X)
        parts = [
            np.log(self.class_prior_[k])
            - self.likelihood_weight
            / 2
            * (np.log(2 * np.pi * self.var_[k]).sum() + ((X - self.theta_[k]) ** 2 / self.var_[k]).sum(axis=1))
            for k in range(len(self.classes_))
        ]
        return np.stack(parts, axis=1)

    def predict_log_proba(self, X: Any) -> Floats:
        """The logarithms of `predict_proba`."""
        from scipy.special import logsumexp

        check_is_fitted(self)
        joint = self.predict_joint_log_proba(X)
        return np.asarray(joint - logsumexp(joint, axis=1, keepdims=True))

    def predict_proba(self, X: Any) -> Floats:
        """The probability of each class for each row, in the order of `classes_`."""
        check_is_fitted(self)
        return np.asarray(np.exp(self.predict_log_proba(X)))

    def predict(self, X: Any) -> NDArray[Any]:
        """The likeliest class of each row. Post-processing: it costs nothing."""
        check_is_fitted(self)
        return np.asarray(self.classes_[self.predict_joint_log_proba(X).argmax(axis=1)])


class StandardScaler(OneToOneFeatureMixin, TransformerMixin, PrivateEstimator):  # type: ignore[misc]
    """Scales columns to mean 0 and variance 1, by means and variances that are released privately.

    `bounds` is the public range of every column. Where the ranges are all that is needed, scale by them instead: it is free.

    >>> from discreet.core import record
    >>> x = np.linspace(0, 10, 20_000)[:, None]
    >>> StandardScaler(epsilon=1.0, delta=1e-6, bounds=(0, 10), unit=record()).fit(x).mean_.round().tolist()
    [5.0]
    """

    def __init__(
        self,
        *,
        epsilon: float,
        delta: float,
        bounds: Any,
        unit: Unit,
        ledger: LedgerLike | None = None,
        source: str | None = None,
    ) -> None:
        self.epsilon = epsilon
        self.delta = delta
        self.bounds = bounds
        self.unit = unit
        self.ledger = ledger
        self.source = source

    def fit(self, X: Any, y: Any = None, **params: Any) -> StandardScaler:
        """Fit once, which spends (epsilon, delta) once."""
        self._no_weights(params)
        X = rows.features(self, X)
        encode = Powers(ranges_of(self.bounds, X.shape[1]), 1)
        released = self._spend(Totals(encode, self.unit, float(self.epsilon), float(self.delta)), (X, None))
        _, mean, variance = encode.moments(released.value)
        self.mean_, self.var_, self.scale_ = mean[0], variance[0], np.sqrt(variance[0])
        self.release_ = released.map(lambda _: {"mean": self.mean_.tolist(), "var": self.var_.tolist()})
        return self

    def transform(self, X: Any) -> Floats:
        """Each row, scaled. Post-processing: it costs nothing."""
        check_is_fitted(self)
        X = rows.features(self, X, reset=False)
        low, high = np.array(ranges_of(self.bounds, X.shape[1])).T
        return np.asarray((rows.filled(X, low, high) - self.mean_) / self.scale_)

    def inverse_transform(self, X: Any) -> Floats:
        """Back to the original scale."""
        check_is_fitted(self)
        return np.asarray(np.asarray(X, np.float64) * self.scale_ + self.mean_)
