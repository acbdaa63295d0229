"""Private linear regression and principal components, from one noisy matrix of second moments."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.base import ClassNamePrefixFeaturesOutMixin, RegressorMixin, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from discreet.core import Unit, check
from discreet.errors import InvalidValue
from discreet.learn.estimators import exact, rows
from discreet.learn.estimators.base import PrivateEstimator, too_long
from discreet.learn.estimators.exact import Floats
from discreet.learn.estimators.sums import Moments, unflat
from discreet.ledger import LedgerLike


@dataclass(frozen=True, slots=True)
class Augmented:
    """A row as (features, 1, target), each third of length at most 1 / sqrt 3; without a target, two halves."""

    norm: float
    bounds: tuple[float, float] | None

    @property
    def scale(self) -> float:
        return 1 / math.sqrt(2 if self.bounds is None else 3)

    def __call__(self, data: Any) -> Floats:
        features, target = data
        parts = [exact.clipped(features, self.norm) / self.norm, np.ones((len(features), 1))]
        if self.bounds is not None:
            low, high = self.bounds
            parts.append(((np.clip(target, low, high) - low) / (high - low) * 2 - 1)[:, None])
        return np.hstack(parts) * self.scale

    def centred(self, total: Floats) -> tuple[Floats, Floats, float]:
        """Covariance sums, means and the count of the released matrix, of (features / norm, scaled target)."""
        matrix = unflat(total) / self.scale**2
        bias = len(matrix) - (1 if self.bounds is None else 2)
        rest = [i for i in range(len(matrix)) if i != bias]
        count = max(float(matrix[bias, bias]), 1.0)
        mean = np.clip(matrix[rest, bias] / count, -1.0, 1.0)
        return matrix[np.ix_(rest, rest)] - count * np.outer(mean, mean), mean, count


def range_of(name: str, bounds: Any) -> tuple[float, float]:
    pair = check.items(name, bounds, "a pair of numbers, such as (0, 100): what is outside is cut to it")
    if len(pair) != 2:
        raise InvalidValue(f"{name} must be a pair of numbers, the least and the largest; got {len(pair)}.")
    low, high = check.real(name, pair[0]), check.real(name, pair[1])
    if not low < high:
        raise InvalidValue(f"{name} must rise; got {low:g} and {high:g}.")
    return low, high


class Ridge(RegressorMixin, PrivateEstimator):  # type: ignore[misc]
    """Ridge regression under (epsilon, delta)-differential privacy, by noisy sufficient statistics (AdaSSP; Wang 2018).

    `norm` bounds the length of a row, `bounds` is the public range of the target; what is beyond is cut. The sums of all
    products of features and target get Gaussian noise at once. Everything else is post-processing: the covariance is
    regularised by `alpha`, and by as much more as its least eigenvalue needs to clear the noise. With fit_intercept=False
    the regression goes through the origin.

    >>> from discreet.core import record
    >>> x = np.linspace(-1, 1, 20_000)[:, None]
    >>> model = Ridge(epsilon=1.0, delta=1e-6, norm=1.0, bounds=(-3, 3), unit=record()).fit(x, 2 * x[:, 0] + 0.5)
    >>> model.coef_.round().tolist(), model.release_.claims[0].event.kind
    ([2.0], 'gaussian')
    """

    def __init__(
        self, *, epsilon: float, delta: float, norm: float, bounds: Any, unit: Unit, alpha: float = 1.0,
        fit_intercept: bool = True, ledger: LedgerLike | None = None, source: str | None = None,
    ) -> None:  # fmt: skip
        self.epsilon = epsilon
        self.delta = delta
        self.norm = norm
        self.bounds = bounds
        self.unit = unit
        self.alpha = alpha
        self.fit_intercept = fit_intercept
        self.ledger = ledger
        self.source = source

    def fit(self, X: Any, y: Any, **params: Any) -> Ridge:
        """Fit once, which spends (epsilon, delta) once; whatever is wrong with the arguments is refused before that."""
        self._no_weights(params)
        norm, bounds = check.positive("norm", self.norm), range_of("bounds", self.bounds)
        X, y = rows.with_targets(self, X, y)
        target = rows.numbers(y)
        usable = np.isfinite(target)
        encode = Augmented(norm, bounds)
        mechanism = Moments(encode, self.unit, float(self.epsilon), float(self.delta))
        penalty = check.nonnegative("alpha", self.alpha) / norm**2
        too_long(X, norm)
        released = self._spend(mechanism, (X[usable], target[usable]))
        scaled, offset = self._solved(encode, released.value, penalty, mechanism.noise())
        half = (bounds[1] - bounds[0]) / 2
        self.coef_ = scaled * half / norm
        self.intercept_ = float(offset * half + (bounds[0] + bounds[1]) / 2)
        self.release_ = released.map(lambda _: {"coef": self.coef_.tolist(), "intercept": self.intercept_})
        return self

    def _solved(self, encode: Augmented, total: Floats, penalty: float, noise: float) -> tuple[Floats, float]:
        """Coefficients and intercept for features and target scaled to [-1, 1]."""
        covariance, mean, count = encode.centred(total)
        if not self.fit_intercept:  # the target is centred at the middle of its bounds: through the origin of the data
            middle = _origin(self.bounds)
            whole = covariance + count * np.outer(mean, mean)
            cross = whole[:-1, -1] - middle * count * mean[:-1]
            gram = whole[:-1, :-1]
        else:
            gram, cross = covariance[:-1, :-1], covariance[:-1, -1]
        values, vectors = np.linalg.eigh(gram)
        spread = noise / encode.scale**2 * math.sqrt(2 * len(gram))  # about the largest eigenvalue of the noise
        values = np.maximum(values + penalty, 0) + max(0.0, spread - max(float(values[0]), 0.0))
        coefficients = vectors @ ((vectors.T @ cross) / np.maximum(values, 1e-12))
        if not self.fit_intercept:
            return coefficients, _origin(self.bounds)
        return coefficients, float(mean[-1] - coefficients @ mean[:-1])

    def predict(self, X: Any) -> Floats:
        """The regression at each row. Post-processing: it costs nothing."""
        check_is_fitted(self)
        X = rows.filled(rows.features(self, X, reset=False))
        return np.asarray(X @ self.coef_ + self.intercept_)


def _origin(bounds: Any) -> float:
    """Zero, on the scale on which the bounds are -1 and 1."""
    low, high = range_of("bounds", bounds)
    return -(low + high) / (high - low)


class LinearRegression(Ridge):
    """Least squares under (epsilon, delta)-differential privacy: `Ridge` without a penalty beside what the noise needs.

    >>> from discreet.core import record
    >>> x = np.linspace(-1, 1, 20_000)[:, None]
    >>> LinearRegression(epsilon=1.0, delta=1e-6, norm=1.0, bounds=(-3, 3), unit=record()).fit(x, 2 * x[:, 0]).coef_.round()
    array([2.])
    """

    def __init__(
        self, *, epsilon: float, delta: float, norm: float, bounds: Any, unit: Unit, fit_intercept: bool = True,
        ledger: LedgerLike | None = None, source: str | None = None,
    ) -> None:  # fmt: skip
        super().__init__(
            epsilon=epsilon, delta=delta, norm=norm, bounds=bounds, unit=unit, alpha=0.0, fit_intercept=fit_intercept,
            ledger=ledger, source=source,
        )  # fmt: skip


class PCA(ClassNamePrefixFeaturesOutMixin, TransformerMixin, PrivateEstimator):  # type: ignore[misc]
    """Principal components under (epsilon, delta)-differential privacy: eigenvectors of a noisy covariance matrix.

    `norm` bounds the length of a row (longer ones are cut). Noise is on every entry, the diagonal too (Dwork, Talwar,
    Thakurta & Zhang 2014).

    >>> from discreet.core import record
    >>> x = np.outer(np.linspace(-1, 1, 20_000), [0.6, 0.8])
    >>> np.abs(PCA(n_components=1, epsilon=1.0, delta=1e-6, norm=1.0, unit=record()).fit(x).components_).round(1)
    array([[0.6, 0.8]])
    """

    def __init__(
        self, n_components: int = 2, *, epsilon: float, delta: float, norm: float, unit: Unit, ledger: LedgerLike | None = None,
        source: str | None = None,
    ) -> None:  # fmt: skip
        self.n_components = n_components
        self.epsilon = epsilon
        self.delta = delta
        self.norm = norm
        self.unit = unit
        self.ledger = ledger
        self.source = source

    def fit(self, X: Any, y: Any = None, **params: Any) -> PCA:
        """Fit once, which spends (epsilon, delta) once."""
        self._no_weights(params)
        norm = check.positive("norm", self.norm)
        X = rows.features(self, X)
        components = check.whole("n_components", self.n_components)
        if components > X.shape[1]:
            raise InvalidValue(f"n_components must be at most the number of columns, {X.shape[1]}; got {components}.")
        encode = Augmented(norm, None)
        too_long(X, norm)
        released = self._spend(Moments(encode, self.unit, float(self.epsilon), float(self.delta)), (X, None))
        covariance, mean, count = encode.centred(released.value)
        values, vectors = np.linalg.eigh(covariance / count)
        self.components_ = vectors[:, ::-1][:, :components].T
        self.explained_variance_ = np.maximum(values[::-1][:components], 0.0) * norm**2
        self.mean_ = mean * norm
        self.release_ = released.map(lambda _: {"components": self.components_.tolist(), "mean": self.mean_.tolist()})
        return self

    @property
    def _n_features_out(self) -> int:
        return len(self.components_)

    def transform(self, X: Any) -> Floats:
        """Each row in the directions that were found. Post-processing: it costs nothing."""
        check_is_fitted(self)
        X = rows.filled(rows.features(self, X, reset=False))
        return np.asarray((X - self.mean_) @ self.components_.T)

    def inverse_transform(self, X: Any) -> Floats:
        """From those directions back."""
        check_is_fitted(self)
        return np.asarray(np.asarray(X, np.float64) @ self.components_ + self.mean_)
