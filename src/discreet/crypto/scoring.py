"""Scores of encrypted rows under a plain model, by the machine that cannot read them.

The first layer depends on the layout: with one ciphertext for each feature it is a sum of ciphertexts times numbers; with
one row in one ciphertext it is one product and a sum over rotations. After it every unit has a ciphertext of its own.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from discreet.crypto.engine import Seal
from discreet.crypto.keys import PublicContext, block
from discreet.crypto.model import Layer, Model
from discreet.crypto.names import same_columns
from discreet.crypto.packed import Encrypted, capacity
from discreet.crypto.packing import slots
from discreet.crypto.parameters import WEIGHT_BITS
from discreet.crypto.polynomial import Polynomial
from discreet.errors import InvalidValue

__all__ = ["Scorer"]


class Scorer:
    """A model ready to score ciphertexts. It holds no key; each request brings the public one."""

    def __init__(self, model: Model) -> None:
        self.model = model
        self._encoded: dict[str, list[Any]] = {}  # the first layer for one row, by engine and parameters

    def score(self, public: PublicContext, request: Encrypted) -> Encrypted:
        """The encrypted answer to a request under the same key."""
        self._check(public, request)
        cipher = public.cipher
        inputs = request.ciphertexts(cipher)
        self._check_fresh(cipher, inputs)
        first, *others = self.model.layers
        units = self._row(public, first, inputs[0]) if request.layout == "row" else _dense(cipher, first, inputs)
        units = _activated(public, first, units)
        for layer in others:
            units = _activated(public, layer, _dense(cipher, layer, units))
        return Encrypted(
            request.key, request.parameters, "scores", request.rows, len(units), request.bound, tuple(units),
            answers=request.message, link=self.model.link,
        )  # fmt: skip

    def _check(self, public: PublicContext, request: Encrypted) -> None:
        request.same_key(public)
        if request.layout == "scores":
            raise InvalidValue("These are scores already; send encrypted rows.")
        if request.width != self.model.features or public.features != self.model.features:
            raise InvalidValue(f"The model has {self.model.features} features; the rows have {request.width}.")
        if public.purpose != self.model.purpose:
            raise InvalidValue(
                f"The model needs keys for {self.model.purpose}; these are for {public.purpose}. Run keygen again."
            )
        same_columns(self.model.names, request.names)
        last = self.model.layers[-1]
        largest = reach(last, request.bound if len(self.model.layers) == 1 else _hidden(self.model.layers[-2]))
        if largest > capacity(public.parameters):
            raise InvalidValue(
                f"Scores may reach {largest:.3g}, and the encoding holds {capacity(public.parameters):.3g}. Standardise the "
                "features and fit again, or encrypt with a smaller bound."
            )

    def _check_fresh(self, cipher: Seal, inputs: list[Any]) -> None:
        scale = 2.0**cipher.parameters.scale_bits
        for ciphertext in inputs:
            if cipher.level(ciphertext) or ciphertext.scale != scale or ciphertext.size() != 2:
                raise InvalidValue("The ciphertexts are not fresh: encrypt the rows again with discreet.crypto.encrypt.")

    def _row(self, public: PublicContext, layer: Layer, row: Any) -> list[Any]:
        """Sums over rotations, before anything is rescaled: their noise is cut off with the last prime. Keys without a level
        to rescale have the row in coefficients, where weights are rounded one by one; the product has its score in the first
        one, and the sum over all automorphisms nothing else.
        """
        cipher, size = public.cipher, block(layer.weights.shape[1])
        key = f"{cipher.name} {cipher.parameters}"
        if key not in self._encoded:
            self._encoded[key] = _reversed(cipher, layer) if not cipher.parameters.levels else _tiled(cipher, layer)
        units = []
        if not cipher.parameters.levels:
            size, row = cipher.parameters.slots, _shared_out(cipher, row)
        for plain, bias in zip(self._encoded[key], layer.bias, strict=True):
            total = cipher.multiply_plain(row, plain)
            if not cipher.parameters.levels:
                total.scale = row.scale * 2.0**WEIGHT_BITS
                total = cipher.add(total, cipher.automorphism(total, 2 * cipher.parameters.degree - 1, public.galois))
            step = size // 2
            while step:
                total = cipher.add(total, cipher.rotate(total, step, public.galois))
                step //= 2
            units.append(cipher.add_plain(_finish(cipher, total), float(bias)))
        return units


def _tiled(cipher: Seal, layer: Layer) -> list[Any]:
    """The weights of each output in slots, repeated as the row is."""
    size = block(layer.weights.shape[1])
    padded = np.pad(layer.weights, ((0, 0), (0, size - layer.weights.shape[1])))
    tiled = np.tile(padded, (1, cipher.parameters.slots // size))
    return [cipher.encode(line, 0, _weight_scale(cipher, 0)) for line in tiled]


def _reversed(cipher: Seal, layer: Layer) -> list[Any]:
    """The weights of each output in coefficients, at X^-j where the row has X^j."""
    degree, steps = cipher.parameters.degree, np.rint(layer.weights * 2.0**WEIGHT_BITS)
    if not steps.any(axis=1).all():
        raise _rounds_to_nothing()
    turned = np.zeros((len(steps), degree))
    turned[:, 0], turned[:, degree - np.arange(1, steps.shape[1])] = steps[:, 0], -steps[:, 1:]
    return [cipher.encode(slots(degree, line), 0, 1.0) for line in turned]


def _shared_out(cipher: Seal, row: Any) -> Any:
    """Times the inverse modulo the prime of the degree, by which the sum over all automorphisms multiplies: exactly."""
    inverse = -((cipher.moduli[0] - 1) // cipher.parameters.degree)  # the prime is 1 modulo 2N
    result = cipher.multiply_plain(row, cipher.encode(float(inverse), 0, 1.0))
    result.scale = row.scale
    return result


def _rounds_to_nothing() -> InvalidValue:
    return InvalidValue("An output has only weights that round to 0. Leave it out, or scale the weights.")


def _weight_scale(cipher: Seal, level: int) -> float:
    """Weights are encoded so that rescaling gives back the scale of the inputs; without a level left, by a fixed one."""
    levels = cipher.parameters.levels
    return float(cipher.moduli[levels - level]) if level < levels else 2.0**WEIGHT_BITS


def _finish(cipher: Seal, product: Any) -> Any:
    """Rescale where there is a level to spend."""
    if cipher.parameters.levels:
        scale = product.scale / cipher.moduli[cipher.parameters.levels - cipher.level(product)]
        cipher.rescale(product)
        product.scale = scale
    return product


def _dense(cipher: Seal, layer: Layer, inputs: list[Any]) -> list[Any]:
    """Each output is a sum of ciphertexts times numbers; one rescaling at the end."""
    level, units = cipher.level(inputs[0]), []
    scale = _weight_scale(cipher, level)
    for weights, bias in zip(layer.weights, layer.bias, strict=True):
        total = cipher.inner_plain(
            (ciphertext, cipher.encode(weight, level, scale))
            for ciphertext, weight in zip(inputs, weights.tolist(), strict=True)
            if abs(weight) * scale >= 0.5  # less rounds to 0, which SEAL does not multiply by
        )
        if total is None:
            raise _rounds_to_nothing()
        units.append(cipher.add_plain(_finish(cipher, total), float(bias)))
    return units


def _activated(public: PublicContext, layer: Layer, units: list[Any]) -> list[Any]:
    return units if layer.activation is None else [evaluate(public, layer.activation, unit) for unit in units]


def evaluate(public: PublicContext, polynomial: Polynomial, z: Any) -> Any:
    """c0 + c1 z + c2 z^2 + c3 z^3 with two levels: (c3 z) z^2, and the lower terms brought to its level and scale."""
    cipher, relin = public.cipher, public.relin
    c0, c1, c2, c3 = polynomial.coefficients
    level = cipher.level(z)
    prime = cipher.moduli[cipher.parameters.levels - level - 1]  # the one that the second rescaling drops
    square = _finish(cipher, cipher.relinearize(cipher.multiply(z, z), relin))
    scale = z.scale
    terms = []
    if c3:
        cubic = _finish(cipher, cipher.multiply_plain(z, cipher.encode(c3, level, _weight_scale(cipher, level))))
        terms.append(_finish(cipher, cipher.relinearize(cipher.multiply(cubic, square), relin)))
        scale = terms[0].scale
    for factor, power in ((c2, square), (c1, z)):
        if factor:
            lowered = cipher.lower(power, level + 1)
            term = cipher.multiply_plain(lowered, cipher.encode(factor, level + 1, scale * prime / lowered.scale))
            cipher.rescale(term)
            term.scale = scale  # by the choice of the factor's scale, up to rounding of floating point
            terms.append(term)
    total = terms[0]
    for term in terms[1:]:
        total = cipher.add(total, term)
    return cipher.add_plain(total, c0)


def reach(layer: Layer, bound: float) -> float:
    """The largest output for inputs of at most `bound` in magnitude; behind an activation, on its own range."""
    if layer.activation is not None:
        return layer.activation.largest(layer.activation.radius)
    return float((np.abs(layer.weights).sum(axis=1) * bound + np.abs(layer.bias)).max())


def _hidden(layer: Layer) -> float:
    return reach(layer, 0.0)
