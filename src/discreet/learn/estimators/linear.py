"""Losses of linear models, and the minimum of their regularised sum with a proven bound on the gradient there."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from discreet.learn.estimators import exact
from discreet.learn.estimators.exact import BLOCK, UNIT, Floats

WIDE = 1000  # weights up to which a Newton step solves its system directly
MOST_STEPS = 200


class Loss(Protocol):
    """A convex loss f(m) of the margin m = y x.w that falls with slope at most 1: share = -f', in [0, 1]."""

    @property
    def curvature(self) -> float: ...  # the largest f''
    @property
    def tapered(self) -> bool: ...  # whether f'' <= 4 curvature a (1 - a), where a is the share
    def value(self, margin: Floats) -> Floats: ...
    def share(self, margin: Floats) -> Floats: ...
    def bend(self, margin: Floats) -> Floats: ...


@dataclass(frozen=True, slots=True)
class Logistic:
    """log(1 + e^(offset - m)). With offset 0 it is the loss of logistic regression.

    An offset above 0 asks rows to be right by that margin. Near w = 0 every row then has almost its full gradient, which
    improves the signal-to-noise ratio; `probability` maps scores back.
    """

    offset: float = 0.0
    curvature: float = 0.25
    tapered: bool = True

    def value(self, margin: Floats) -> Floats:
        return np.asarray(np.logaddexp(0.0, self.offset - margin))

    def share(self, margin: Floats) -> Floats:
        from scipy.special import expit

        return np.asarray(expit(self.offset - margin))

    def bend(self, margin: Floats) -> Floats:
        share = self.share(margin)
        return share * (1 - share)

    def probability(self, score: Floats) -> Floats:
        """The probability p of the positive class for which `score` has the least expected loss:
        p share(score) = (1 - p) share(-score)."""
        against = self.share(-score)
        return np.asarray(against / (against + self.share(score)))


@dataclass(frozen=True, slots=True)
class Huber:
    """The hinge loss with its corner rounded over 1 +- width (Chaudhuri, Monteleoni & Sarwate 2011)."""

    width: float = 0.5
    tapered: bool = False

    @property
    def curvature(self) -> float:
        return 1 / (2 * self.width)

    def value(self, margin: Floats) -> Floats:
        h = self.width
        return np.where(margin < 1 - h, 1 - margin, np.clip(1 + h - margin, 0, None) ** 2 / (4 * h))

    def share(self, margin: Floats) -> Floats:
        return np.asarray(np.clip((1 + self.width - margin) / (2 * self.width), 0.0, 1.0))

    def bend(self, margin: Floats) -> Floats:
        return np.where(np.abs(margin - 1) < self.width, self.curvature, 0.0)


@dataclass(frozen=True, slots=True)
class Problem:
    """Linear models of rows: what is public of them. `classes` many models are fitted, one for two classes."""

    features: int
    classes: int
    norm: float
    intercept: float  # the value of the column that is added; 0 for none
    loss: Logistic | Huber

    @property
    def models(self) -> int:
        return 1 if self.classes == 2 else self.classes

    @property
    def size(self) -> int:
        return self.features + (self.intercept > 0)

    @property
    def radius(self) -> float:
        """The longest row, with its intercept column; a hair more, for rounding."""
        return math.hypot(self.norm, self.intercept) * (1 + 16 * UNIT)

    def rows(self, features: Floats) -> Floats:
        """Rows of length at most 1, multiples of GRAIN: clipped, with the intercept column, scaled."""
        x = exact.clipped(features, self.norm)
        if self.intercept > 0:
            x = np.hstack([x, np.full((len(x), 1), self.intercept)])
        return exact.grained(x / self.radius)

    def signs(self, labels: NDArray[np.int64]) -> Floats:
        """+1 for a row of the model's class and -1 for any other, [models, rows]."""
        wanted = np.arange(self.classes)[-1:] if self.models == 1 else np.arange(self.classes)
        return np.where(np.asarray(labels)[None, :] == wanted[:, None], 1.0, -1.0)

    def coefficients(self, weights: Floats) -> tuple[Floats, Floats]:
        """Coefficients and intercepts for the features as they are, [models, features] and [models]."""
        raw = weights / self.radius
        if self.intercept > 0:
            return raw[:, :-1], raw[:, -1] * self.intercept
        return raw, np.zeros(len(raw))


def minimum(rows: Floats, loss: Loss, alpha: float, linear: Floats, slack: float = 0.0) -> Floats:
    """The w that minimises sum of loss(rows @ w) + alpha/2 |w|^2 + linear.w, to a gradient of at most TOLERANCE.

    The bound includes the rounding of the gradient itself and `slack`. Rows have length at most 1 and are multiples of GRAIN.
    Newton's method with a line search converges for every strongly convex objective, and up to MOST_ROWS rows rounding does
    not prevent it (docs/theory/objective-perturbation.md). RunFailed is a guard for a failure that was never observed.
    """
    w = np.zeros(rows.shape[1])
    value = _objective(rows, loss, alpha, linear, w)
    for _ in range(MOST_STEPS):
        margin = exact.margins(rows, w)
        gradient = alpha * w + linear - exact.added_exactly(rows, loss.share(margin))
        bound = (
            float(np.linalg.norm(gradient)) * (1 + 4 * UNIT * len(w))
            + rounding(len(rows), loss, w)
            + own_error(w, alpha, linear)
            + slack
        )
        if bound <= exact.TOLERANCE:
            return w
        step = _newton(rows, loss.bend(margin), alpha, gradient)
        better = _shorter(rows, loss, alpha, linear, w, value, step, float(gradient @ step))
        if better is None:
            break
        w, value = better
    exact.within(math.inf)
    raise AssertionError


def _objective(rows: Floats, loss: Loss, alpha: float, linear: Floats, w: Floats) -> float:
    return float(loss.value(rows @ w).sum() + (alpha * w) @ w / 2 + linear @ w)


def rounding(count: int, loss: Loss, w: Floats) -> float:
    """How far the computed sum of the rows' gradients may be from the true one: margins are off by a few units too."""
    share = loss.curvature * 4 * UNIT * float(np.linalg.norm(w)) + 16 * UNIT  # of one row
    return exact.sum_error(count) + count * share


def own_error(w: Floats, alpha: float, linear: Floats) -> float:
    """The same for the other terms."""
    return 8 * UNIT * (float(np.linalg.norm(alpha * w)) + float(np.linalg.norm(linear)))


def _newton(rows: Floats, bend: Floats, alpha: float, gradient: Floats) -> Floats:
    if rows.shape[1] <= WIDE:
        hessian = np.diag(np.broadcast_to(alpha, rows.shape[1:]).astype(np.float64))
        for start in range(0, len(rows), BLOCK):
            block = rows[start : start + BLOCK]
            hessian += (block * bend[start : start + BLOCK, None]).T @ block
        return np.asarray(np.linalg.solve(hessian, gradient))
    from scipy.sparse.linalg import LinearOperator, cg

    product = LinearOperator((len(gradient),) * 2, matvec=lambda v: alpha * v + rows.T @ (bend * (rows @ v)))
    return np.asarray(cg(product, gradient, rtol=1e-3, maxiter=200)[0])


def _shorter(
    rows: Floats, loss: Loss, alpha: float, linear: Floats, w: Floats, value: float, step: Floats, fall: float
) -> tuple[Floats, float] | None:  # fmt: skip
    """The longest of the step, half of it, … that lowers the objective as its slope promises, within rounding."""
    share = 1.0
    while share > 1e-9:
        candidate = w - share * step
        lowered = _objective(rows, loss, alpha, linear, candidate)
        if lowered <= value - 1e-4 * share * fall + 1e-12 * (abs(value) + 1):
            return candidate, lowered
        share /= 2
    return None
