"""The public side of encrypted training: sizes, rates, the polynomial, and every scale that follows from them.

Key holder and computing machine hold the same `Plan`; it depends on no private value but the number of rows, which the
machine sees anyway.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from discreet.core import check
from discreet.core.document import members
from discreet.crypto.accuracy import NOISE, ROUNDED, gaussian, product, share, switching
from discreet.crypto.parameters import PURPOSES, checked_bound
from discreet.crypto.polynomial import Polynomial, fit
from discreet.errors import InvalidDocument, InvalidValue

__all__ = ["Plan"]

PARAMETERS = PURPOSES["training"]
SLOTS = PARAMETERS.slots
MOMENTUM_STEPS = 1024  # momentum is a multiple of 1 / 1024, so that ciphertexts are multiplied by whole numbers
SHARED_LEVELS = 2  # more save key switches, and cost precision
WEIGHT_SCALE, ERROR_SCALE, PACKED_SCALE = 2.0**40, 2.0**28, 2.0**52
Array = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Plan:
    """Logistic regression by gradient descent, with a polynomial of degree 3 for the sigmoid on [-radius, radius].

    `features` counts the column of ones for the intercept; `bound` is the largest magnitude of a feature.

    >>> plan = Plan(features=5, rows=300, iterations=8, learning_rate=1.0, bound=1.0)
    >>> plan.ciphertexts, plan.groups, [round(m, 3) for m in plan.momentum[:3]]
    (3, 1, [0.0, 0.282, 0.434])
    """

    features: int
    rows: int
    iterations: int
    learning_rate: float
    bound: float
    radius: float = 8.0
    nesterov: bool = True

    def __post_init__(self) -> None:
        check.whole("features", self.features, most=SLOTS)
        check.whole("rows", self.rows, most=1 << 20)
        check.whole("iterations", self.iterations, most=10_000)
        for name in ("learning_rate", "radius"):
            object.__setattr__(self, name, check.positive(name, getattr(self, name)))
        object.__setattr__(self, "bound", checked_bound(self.bound))
        if not isinstance(self.nesterov, bool):
            raise InvalidValue(f"nesterov must be True or False; got {check.shown(self.nesterov)}.")
        if not self.polynomial.coefficients[3]:
            raise InvalidValue(
                f"On [-{self.radius:g}, {self.radius:g}] the sigmoid is a line to the precision of ciphertexts, and training "
                "needs its third power. Take a radius of at least 0.01: the largest score that you expect."
            )
        if self.backward_scale < 2.0**12 or self.packed_scale < 2.0**36:
            raise InvalidValue(
                f"A learning rate of {self.learning_rate:g} for {self.rows} rows does not fit the encoding: features would "
                "keep fewer than 12 bits, or weights fewer than 36. Take one between 0.001 and 100."
            )

    @property
    def polynomial(self) -> Polynomial:
        """What stands for the sigmoid; its error on the range is in it."""
        return fit("sigmoid", self.radius)

    @property
    def ciphertexts(self) -> int:
        """Two features share a ciphertext: the real and the imaginary parts of its slots."""
        return (self.features + 1) // 2

    @property
    def depth(self) -> int:
        """Levels of the tree that packs as many sums."""
        return (self.ciphertexts - 1).bit_length()

    @property
    def shared(self) -> int:
        """The lowest levels, which the layout of the backward copies takes off the tree: blocks of 2^shared ciphertexts."""
        return min(SHARED_LEVELS, self.depth)

    @property
    def blocks(self) -> int:
        return -(-self.ciphertexts // (1 << self.shared))

    @property
    def groups(self) -> int:
        """How many times 4,096 rows."""
        return -(-self.rows // SLOTS)

    @property
    def momentum(self) -> tuple[float, ...]:
        """Nesterov's factors for each iteration, as multiples of 1/1024."""
        if not self.nesterov:
            return (0.0,) * self.iterations
        found, size = [], 1.0  # the first iteration has nothing before it: its factor is 0
        for _ in range(self.iterations):
            following = (1 + math.sqrt(1 + 4 * size * size)) / 2
            found.append(round(MOMENTUM_STEPS * (size - 1) / following) / MOMENTUM_STEPS)
            size = following
        return tuple(found)

    @property
    def weight_parts(self) -> int:
        """Weights are encrypted at a scale so much smaller, and multiplied by whole numbers for the momentum."""
        return MOMENTUM_STEPS if self.nesterov else 1

    def forward_scale(self, moduli: list[int]) -> float:
        """Of features in the forward pass: products with weights rescale to the scale of the arguments."""
        return self.argument_scale(moduli) * moduli[2] / WEIGHT_SCALE

    def argument_scale(self, moduli: list[int]) -> float:
        """Of twice the argument of the sigmoid: its third power rescales to ERROR_SCALE times the leading coefficient."""
        return float((ERROR_SCALE * abs(self.polynomial.coefficients[3]) / 8 * moduli[1]) ** (1 / 3))

    @property
    def backward_scale(self) -> float:
        """Of features in the backward pass: at most what the last prime holds beside the errors."""
        most = 2.0 ** (PARAMETERS.primes[0] - 3) / ERROR_SCALE / self.bound / self.largest_error
        wanted = PACKED_SCALE * self.learning_rate * SLOTS / (self.rows * ERROR_SCALE)
        return min(wanted, most) / (1 << self.shared)

    @property
    def largest_error(self) -> float:
        """Labels are 0 and 1, and the polynomial is this near to the sigmoid on its range."""
        return 1 + self.polynomial.error

    @property
    def packed_scale(self) -> float:
        """Of the packed weights: the mean over rows times the learning rate is a change of scale."""
        return self.backward_scale * (1 << self.shared) * ERROR_SCALE * self.rows / (SLOTS * self.learning_rate)

    @property
    def capacity(self) -> float:
        """Weights below this in magnitude fit; the key holder refuses larger ones."""
        return float(2.0 ** (PARAMETERS.primes[0] - 2) / self.packed_scale)

    def step(self, X: Array, y: Array, point: Array) -> Array:
        """The same step on plain numbers, with the same polynomial: from the point, down the gradient."""
        return np.asarray(point - self.learning_rate * (X.T @ (self.polynomial(X @ point) - y)) / len(X))

    def plain(self, X: Array, y: Array) -> Array:
        """The whole run on plain numbers: what the encrypted one computes but for noise."""
        weights = before = np.zeros(self.features)
        for momentum in self.momentum:
            weights, before = self.step(X, y, weights + momentum * (weights - before)), weights
        return weights

    def error_bound(self, moduli: list[int]) -> float:
        """How far a weight may be from the plain one after one step, for all rows that keep arguments in the range; further
        less than once in 1e13 weights. docs/theory/encrypted.md has the derivation.
        """
        drawn, kept, rest = self._errors(moduli)
        return math.hypot(drawn, kept) + rest

    def run_error(self, moduli: list[int], steps: int | None = None, growth: float = 1.0) -> float:
        """How far a weight may be from the plain one after so many steps (all of them, if not said).

        What a step has added stays in the weights, and momentum carries it on: as far as if the gradient did not change, where
        the loss has a constant curvature of 0 to 1 / learning_rate in each direction, and further by `growth` in each step
        where the curvature may be (1 - growth) / learning_rate. Noise that is drawn in each step adds up by its squares;
        that of the encrypted rows and of the keys, which stay the same, in full.
        """
        drawn, kept, rest = self._errors(moduli)
        carried = self.carried(self.iterations if steps is None else steps, growth)
        return float(np.linalg.norm(carried)) * drawn + float(carried.sum()) * (kept + rest)

    def carried(self, steps: int, growth: float = 1.0) -> Array:
        """How much of a change to the weights after each step is in them after the last where the loss is flat, or grows."""
        now = before = np.zeros(steps)
        for place, factor in enumerate(self.momentum[:steps]):
            now, before = growth * ((1 + factor) * now - factor * before), now
            now[place] = 1.0
        return np.asarray(now)

    def _errors(self, moduli: list[int]) -> tuple[float, float, float]:
        """Of one step: by what is drawn anew in each, by what is the same in all, and what is no sum over rows."""
        degree, rows, argument = PARAMETERS.degree, self.rows, self.argument_scale(moduli)
        (_, slope, _, cubic), pair = self.polynomial.coefficients, math.sqrt(2) * self.bound  # two features in a slot
        steepest = max(abs(slope), abs(slope + 3 * cubic * self.radius**2))  # of a polynomial without an even power
        cut, fresh, size = degree / math.sqrt(72), math.sqrt((NOISE + ROUNDED) * degree / 4), math.sqrt(self.features)
        half, ratio = (1 << self.shared) / 2, share(PARAMETERS, 2)  # each of the lowest levels moves so many errors
        weights = self.bound * size * math.sqrt(5) * fresh * self.weight_parts / WEIGHT_SCALE
        moved = math.sqrt(self.shared * half) * math.hypot(cut, ratio * degree * math.sqrt(NOISE / 48))
        drawn = pair * math.hypot(
            steepest * cut / (2 * argument), steepest * weights, cut / ERROR_SCALE, fresh / ERROR_SCALE, moved / ERROR_SCALE
        )
        kept = math.hypot(
            self.largest_error * fresh / self.backward_scale / math.sqrt(2 * half),
            pair * steepest * 1.5 * self.capacity * size * fresh / self.forward_scale(moduli),
        )
        means = math.sqrt(self.shared) * half * ratio * degree / math.sqrt(8) * gaussian(NOISE * degree / 2)
        squares = self.groups * (degree**2 / 8) * gaussian(degree / 3) ** 2 / (2 * argument) ** 2
        tree = 4 * (SLOTS >> self.shared) * switching(PARAMETERS, 2, degree / 2) / degree
        rate = self.learning_rate / rows
        rest = rate * pair * 3 * abs(cubic) * self.radius * squares
        rest += (tree + 6 * self.weight_parts * gaussian(NOISE)) / self.packed_scale
        return rate * product(rows) * drawn, rate * math.hypot(product(rows) * kept, pair * means / ERROR_SCALE), rest

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, document: Any) -> Plan:
        names = ("features", "rows", "iterations", "learning_rate", "bound", "radius", "nesterov")
        try:
            return cls(**members("plan", document, required=names))
        except InvalidValue as error:
            raise InvalidDocument(f"The plan is not valid: {error}") from None
