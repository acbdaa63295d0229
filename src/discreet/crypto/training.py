"""Logistic regression on encrypted data, labels and weights: the key holder's side, and both sides together.

The computing machine (`descent.Trainer`) gets public keys and ciphertexts. After each step the weights have no level
left; the key holder decrypts them and encrypts them again, and counts it. It sees the weights of every step: they are
the answer, and it is the one who asked.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from discreet.crypto.descent import Trainer
from discreet.crypto.engine import numbers
from discreet.crypto.keys import SecretContext, keygen
from discreet.crypto.messages import TrainingMessage
from discreet.crypto.model import Layer, Model
from discreet.crypto.packing import constants, packed, paired, pairs, shared, unpacked
from discreet.crypto.plan import ERROR_SCALE, SLOTS, WEIGHT_SCALE, Plan
from discreet.crypto.private import Private
from discreet.errors import InvalidDocument, InvalidValue

__all__ = ["EncryptedFit", "KeyHolder", "fit_logistic"]

Array = NDArray[np.float64]

EIGENVALUES = 1e-9  # how far computed eigenvalues may be off, in shares of the largest
MOST = 1e12  # products in looking at the second derivatives of all steps: some minutes


class KeyHolder(Private):
    """Encrypts rows, starts the run, and refreshes weights; `refreshes` counts them, `decrypted` every decryption."""

    def __init__(self, secret: SecretContext, plan: Plan) -> None:
        if secret.public.purpose != "training" or secret.public.features != plan.features:
            raise InvalidValue(
                f"The plan needs keys for training with {plan.features} features, the intercept among them; these are for "
                f"{secret.public.purpose} with {secret.public.features}."
            )
        self.secret, self.plan, self.refreshes, self.decrypted = secret, plan, 0, 0
        self.weights = self._before = np.zeros(plan.features)
        self._rows: Array | None = None
        self._points: list[Array] = []  # of the steps so far: where their gradients are
        self._last: str | None = None
        self._lock = threading.RLock()

    def encrypt(self, X: Any, y: Any) -> TrainingMessage:
        """The rows, with a column of ones behind them, for the computing machine."""
        features, labels = checked(X, y, self.plan)
        plan, cipher, self._rows = self.plan, self.secret.public.cipher, features
        padded = np.pad(features, ((0, plan.groups * SLOTS - plan.rows), (0, 2 * plan.ciphertexts - plan.features)))
        targets = np.pad(labels - plan.polynomial.coefficients[0], (0, plan.groups * SLOTS - plan.rows))
        columns = [
            paired(padded[start : start + SLOTS, 2 * j] + 1j * padded[start : start + SLOTS, 2 * j + 1])
            for start in range(0, len(padded), SLOTS) for j in range(plan.ciphertexts)
        ]  # fmt: skip
        scale = plan.forward_scale(cipher.moduli)
        parts = [self.secret.hidden(column, 0, scale) for column in columns]
        for start in range(0, len(columns), plan.ciphertexts):
            parts += [self.secret.hidden(item, 2, plan.backward_scale) for item in self._backward(columns, start)]
        for start in range(0, len(padded), SLOTS):
            parts.append(self.secret.hidden(targets[start : start + SLOTS], 2, ERROR_SCALE))
        return TrainingMessage("rows", self.secret.id, plan, 0, tuple(parts), None)

    def _backward(self, columns: list[NDArray[np.complex128]], start: int) -> Iterator[NDArray[np.complex128]]:
        """A group's columns for the backward pass, block by block."""
        plan, size = self.plan, 1 << self.plan.shared
        group = [column.conj() for column in columns[start : start + plan.ciphertexts]]
        for first in range(0, plan.ciphertexts, size):
            yield from shared(self.secret.parameters.degree, group[first : first + size], plan.shared)

    def start(self) -> TrainingMessage:
        """The weights to begin with: zeros."""
        return self._fresh(0, None)

    def refresh(self, step: TrainingMessage) -> TrainingMessage:
        """Decrypt the weights after a step, and encrypt them again with all levels."""
        with self._lock:
            self.receive(step)
            self.refreshes += 1
            return self._fresh(step.step, step.message)

    def receive(self, step: TrainingMessage) -> Array:
        """Decrypt the weights after a step, which must be the answer to what was sent last."""
        with self._lock:
            return self._receive(step)

    def _receive(self, step: TrainingMessage) -> Array:
        step.check("step", self.secret.id, self.plan)
        if step.answers != self._last or step.step != self.decrypted + 1:
            raise InvalidDocument(
                "The weights are no answer to what was sent last: they were replayed, or belong to another run."
            )
        (ciphertext,) = step.ciphertexts(self.secret.public.cipher, [(2, self.plan.packed_scale)])
        found = unpacked(self.secret.parameters.degree, self.secret.slots(ciphertext), self.plan.features)
        self._last = None
        self.decrypted += 1
        if not np.isfinite(found).all() or np.abs(found).max() > self.plan.capacity / 2:
            raise InvalidDocument(
                f"The weights do not decrypt to numbers within {self.plan.capacity / 2:.3g}: the training diverged (lower "
                "learning_rate, or raise radius), or the machine sent something else."
            )
        if self._rows is not None:
            self._points.append(self.weights + self.plan.momentum[self.decrypted - 1] * (self.weights - self._before))
        self.weights, self._before = found, self.weights
        return found

    def run_error(self) -> float:
        """How far a weight may be from the plain one now, by `Plan.run_error`; infinite where that is no bound.

        It is none where an argument left the range of the polynomial, or where the curvature of the loss in some direction was
        above one over the learning rate. Directions that curve down let what earlier steps added grow, and are counted so.
        """
        if self._rows is None:
            return math.inf
        arguments = [self._rows @ point for point in self._points]
        if max((float(np.abs(each).max()) for each in arguments), default=0.0) > self.plan.radius:
            return math.inf
        least, most = self._curvature(arguments)
        if self.plan.learning_rate * most > 1:
            return math.inf
        growth = 1 + self.plan.learning_rate * max(0.0, -least) + EIGENVALUES
        return self.plan.run_error(self.secret.public.cipher.moduli, self.decrypted, growth)

    def _curvature(self, arguments: list[Array]) -> tuple[float, float]:
        """The least and the largest curvature of the loss at the points of the steps.

        The slopes of the polynomial times the eigenvalues of the rows enclose it. Where that is not enough the second
        derivatives of the loss are looked at, point by point.
        """
        rows, (_, slope, _, cubic) = np.asarray(self._rows), self.plan.polynomial.coefficients
        slopes = [slope + 3 * cubic * each**2 for each in arguments]
        ends = min(float(each.min()) for each in slopes), max(float(each.max()) for each in slopes)
        largest = float(np.linalg.eigvalsh(rows.T @ rows)[-1]) / len(rows) * (1 + EIGENVALUES)
        enough = ends[0] >= 0 and self.plan.learning_rate * ends[1] * largest <= 1
        if enough or rows.size * rows.shape[1] * len(slopes) > MOST:
            return min(0.0, ends[0] * largest), ends[1] * largest
        found = [np.linalg.eigvalsh((rows * each[:, None]).T @ rows) / len(rows) for each in slopes]
        return min(float(each[0]) for each in found), max(float(each[-1]) for each in found) * (1 + EIGENVALUES)

    def _fresh(self, step: int, answers: str | None) -> TrainingMessage:
        plan, cipher, degree = self.plan, self.secret.public.cipher, self.secret.parameters.degree
        scale = WEIGHT_SCALE / plan.weight_parts
        parts = [
            self.secret.hidden(constants(degree, pair.conjugate()), 0, scale) for pair in pairs(self.weights, plan.ciphertexts)
        ]
        together = cipher.encode(packed(degree, self.weights), 2, plan.packed_scale / plan.weight_parts)
        message = TrainingMessage("weights", self.secret.id, plan, step, (*parts, self.secret.seeded(together)), answers)
        self._last = message.message
        return message


def checked(X: Any, y: Any, plan: Plan) -> tuple[Array, Array]:
    """Features with a column of ones, and labels; what does not fit is refused before anything is encrypted."""
    features, labels = numbers("X", X, (2,)), numbers("y", y, (1,))
    if features.shape != (plan.rows, plan.features - 1) or labels.shape != (plan.rows,):
        raise InvalidValue(
            f"The plan is for {plan.rows} rows of {plan.features - 1} features and an intercept; found X of shape "
            f"{features.shape} and y of shape {labels.shape}."
        )
    if np.abs(features).max() > plan.bound or plan.bound < 1:
        raise InvalidValue(
            f"A feature, or the 1 of the intercept, is outside [-{plan.bound:g}, {plan.bound:g}], the range of the encoding. "
            "Nothing was encrypted; standardise or clip, or raise bound."
        )
    if not np.isin(labels, (0, 1)).all():
        raise InvalidValue("y must hold 0 and 1 only. Nothing was encrypted.")
    return np.column_stack([features, np.ones(len(features))]), labels


@dataclass(frozen=True, slots=True, eq=False)
class EncryptedFit:
    """What came of a run: the decrypted weights, how often the key holder refreshed, the plan, and how far the weights may be
    from those of `plan.plain` (`KeyHolder.run_error`; infinite where no bound holds: lower learning_rate).

    Weights are raw decryptions: hand them on by `disclosure.disclose_weights`, also to the machine that trained them.
    """

    coefficients: Array = field(repr=False)
    intercept: float = field(repr=False)
    refreshes: int
    plan: Plan
    error: float

    @property
    def model(self) -> Model:
        """For scoring, on plain rows or on ciphertexts."""
        return Model((Layer(self.coefficients[None, :], np.array([self.intercept])),), "logistic")

    def predict(self, X: Any) -> NDArray[np.int64]:
        return np.asarray((self.model(X)[:, 0] > 0).astype(np.int64))


def fit_logistic(
    X: Any, y: Any, *, iterations: int, learning_rate: float, bound: float = 8.0, radius: float = 8.0, nesterov: bool = True
) -> EncryptedFit:
    """Logistic regression on encrypted rows, with key holder and computing machine in one process, for trying it out.

    Between machines the key holder has a `KeyHolder`, the other a `Trainer`, and the messages travel as bytes: see the guide.
    Features are at most `bound` in magnitude; the sigmoid is a polynomial on [-radius, radius].

    >>> import numpy as np
    >>> X = np.linspace(-1, 1, 60)[:, None]
    >>> found = fit_logistic(X, (X[:, 0] > 0).astype(int), iterations=2, learning_rate=4.0, bound=1.0)
    >>> found.refreshes, bool(found.coefficients[0] > 0.5)
    (1, True)
    """
    features = numbers("X", X, (2,))
    plan = Plan(features.shape[1] + 1, len(features), iterations, learning_rate, bound, radius, nesterov)
    checked(features, y, plan)
    secret, public = keygen("training", features=plan.features)
    holder = KeyHolder(secret, plan)
    trainer = Trainer(public, holder.encrypt(features, y))
    weights = holder.start()
    for last in range(plan.iterations - 1, -1, -1):
        step = trainer.step(weights)
        if last:
            weights = holder.refresh(step)
    *coefficients, intercept = holder.receive(step)
    return EncryptedFit(np.array(coefficients), float(intercept), holder.refreshes, plan, holder.run_error())
