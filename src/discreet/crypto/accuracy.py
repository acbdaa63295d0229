"""How far results of packed ciphertexts may be from the exact ones: bounds for every input, not averages over inputs.

Nothing is assumed of the rows or of the model. What is random is drawn by the encrypting side: noise (the difference of two
counts of 21 coin flips), ternary keys, uniform masks, which make uniform what a rescaling cuts off, and the rounding of what
is encrypted in slots, which `Seal.encode_rounded` does at random. Two bounds follow: for sums of independent such numbers
(`gaussian`), and for products with the key or with the noise inside a switching key, which spread further (`product`).
docs/theory/encrypted.md has the proofs.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from discreet.crypto.keys import PublicContext, block
from discreet.crypto.model import Layer, Model
from discreet.crypto.parameters import WEIGHT_BITS, RingParameters, checked_bound
from discreet.crypto.polynomial import Polynomial
from discreet.errors import InvalidValue

__all__ = ["error_bound"]

NOISE, ROUNDED = 10.5, 0.25  # variances of a coefficient of fresh noise, and of a coefficient that is rounded at random
BITS = 48  # each bound is passed less than once in 2^48
LOG = (BITS + 3) * math.log(2) + 1  # of that chance for the four lines of a plane, and the share of c0 in what is rounded off
PLANE = 1 / math.cos(math.pi / 8)  # from the largest of four lines to the modulus
STEP = math.ldexp(1.0, -WEIGHT_BITS)
NEARLY = 0.99  # scales and primes are within one part in a hundred of their powers of two


def gaussian(variance: float) -> float:
    """No complex number whose parts in each direction are sub-Gaussian with this variance is larger."""
    return math.sqrt(2 * variance * (LOG + math.log1p(LOG)) * (1 + 1 / LOG))


def product(count: float) -> float:
    """No sum of so many products a_j b_j is larger, in one direction, for a_j and b_j that are sub-Gaussian with variance 1 in
    each, the a_j independent given the b_j; nor one with factors of at most 1 before them.
    """
    return (LOG + count * math.log1p(LOG / count)) * math.sqrt(1 + count / LOG)


def fresh(degree: int) -> float:
    """Noise of a new ciphertext in a slot, times its scale."""
    return gaussian((NOISE + ROUNDED) * degree / 2)


def rescaling(degree: int, slots: float = 1) -> float:
    """What a rescaling adds to a slot, or to a sum of so many."""
    return PLANE * product(slots) * degree / math.sqrt(72)


def switching(parameters: RingParameters, level: int, slots: float = 1) -> float:
    """What a switch of keys adds. Its digits are from 0 to a prime: their mean, which is large near the root 1, multiplies
    the noise in the key.
    """
    degree = parameters.degree
    spread = PLANE * product(slots) * degree * math.sqrt(NOISE / 48)
    mean = gaussian(NOISE * degree / 2) * degree / (math.pi if slots == 1 else math.sqrt(8))
    return share(parameters, level) * (spread + 1.001 * mean) + rescaling(degree, slots)


def share(parameters: RingParameters, level: int) -> float:
    """The sum of the primes that are left over the special one."""
    *primes, special = parameters.primes
    return sum(2.0 ** (prime - special) for prime in primes[: len(primes) - level]) / NEARLY


def error_bound(model: Model, public: PublicContext, *, bound: float = 8.0) -> float:
    """How far an encrypted score may be from `model(rows)`, for every row of values up to `bound` in magnitude that keeps
    the arguments of activations in their range; one of a table of 4,096 scores is further away less than once in 1e9. No
    link stretches that, so it holds for probabilities too.
    """
    if public.purpose != model.purpose:
        raise InvalidValue(f"The model needs keys for {model.purpose}; these are for {public.purpose}. Run keygen again.")
    return error_under(model, public.parameters, checked_bound(bound))


def least_error(parameters: RingParameters) -> float:
    """What `error_under` says of every model is more than this: the deviation of the last rounding alone, eight times."""
    bits = parameters.scale_bits + (0 if parameters.levels else WEIGHT_BITS)
    return 8 * math.sqrt(parameters.degree / 12 * (1 + 2 * parameters.degree / 3)) / 2.0**bits


def error_under(model: Model, parameters: RingParameters, bound: float) -> float:
    """The same, before there are keys."""
    first, *others = model.layers
    error = max(rule(first, parameters, bound) for rule in _rules(parameters))
    level, size = min(1, parameters.levels), bound
    error, level, size = _activated(first.activation, parameters, error, level, size)
    for layer in others:
        rounded = layer.weights.shape[1] * (size + error) * _constant(parameters)
        error = _largest(layer, 1) * error + rounded + rescaling(parameters.degree) / _scale(parameters)
        error, level, size = _activated(layer.activation, parameters, error, level + 1, size)
    return error


def _rules(parameters: RingParameters) -> tuple[Callable[[Layer, RingParameters, float], float], ...]:
    """For the two layouts of the first layer."""
    return (_columns, _turned) if parameters.levels else (_columns, _traced)


def _scale(parameters: RingParameters) -> float:
    return NEARLY * 2.0**parameters.scale_bits


def _constant(parameters: RingParameters) -> float:
    """The rounding of a number that is encoded by the next prime."""
    return 0.5 / (NEARLY * 2.0 ** min(parameters.primes[1:-1]))


def _largest(layer: Layer, order: float) -> float:
    return float(np.linalg.norm(layer.weights, order, axis=1).max())


def _rounded(layer: Layer, parameters: RingParameters, bound: float) -> float:
    """Of weights that are encoded one by one: what is cut off, times the largest features."""
    if parameters.levels:
        return float(layer.weights.shape[1] * bound * _constant(parameters))
    steps = layer.weights / STEP
    return float(np.abs(steps - np.rint(steps)).sum(axis=1).max()) * bound * STEP + _doubles(layer, bound)


def _doubles(layer: Layer, bound: float) -> float:
    """What double precision leaves out on the way in and out."""
    return float(np.abs(layer.weights).sum(axis=1).max() * bound + np.abs(layer.bias).max()) * 1e-13


def _columns(layer: Layer, parameters: RingParameters, bound: float) -> float:
    """One ciphertext for each feature: noise is independent, so that it grows with the 2-norm of the weights."""
    norm = _largest(layer, 2) + math.sqrt(layer.weights.shape[1]) * STEP
    last = rescaling(parameters.degree) / _scale(parameters) if parameters.levels else 0.0
    return norm * fresh(parameters.degree) / _scale(parameters) + _rounded(layer, parameters, bound) + last


def _traced(layer: Layer, parameters: RingParameters, bound: float) -> float:
    """One row in the coefficients of one ciphertext: the others vanish, and later switches sum the noise of each."""
    scale, width = _scale(parameters), layer.weights.shape[1]
    norms = [_largest(layer, order) + width * STEP for order in (1, 2)]
    later = sum(switching(parameters, 0, 2.0**step) for step in range(parameters.degree.bit_length() - 1))
    noise = 0.5 * norms[0] + gaussian(NOISE) * norms[1] + later * STEP
    return float(noise / scale) + _rounded(layer, parameters, bound)


def _turned(layer: Layer, parameters: RingParameters, bound: float) -> float:
    """One row in the slots, summed by rotations before it is rescaled. Weights are rounded together, by at most half in each of
    2 * block coefficients: `block / sqrt(2)` in the 2-norm over the slots of a row, and Cauchy and Schwarz do the rest.
    """
    size, scale = block(layer.weights.shape[1]), _scale(parameters)
    off = size * math.sqrt(2) * _constant(parameters)
    later = sum(switching(parameters, 0, 2.0**step) for step in range(size.bit_length() - 1)) * 2 * _constant(parameters)
    noise = (_largest(layer, 2) + off) * fresh(parameters.degree) + later + rescaling(parameters.degree)
    return noise / scale + math.sqrt(layer.weights.shape[1]) * off * bound


def _activated(
    polynomial: Polynomial | None, parameters: RingParameters, error: float, level: int, size: float
) -> tuple[float, int, float]:
    """The error behind an activation, step by step as `scoring.evaluate` goes; the level, and the largest output."""
    if polynomial is None:
        return error, level, size
    radius, scale, constant = polynomial.radius, _scale(parameters), _constant(parameters)
    _, c1, c2, c3 = map(abs, polynomial.coefficients)
    rounding, switch = rescaling(parameters.degree) / scale, switching(parameters, level) / scale**2
    square = 2 * radius * error + error**2 + switch + rounding
    cubic = c3 * error + constant * (radius + error) + rounding
    whole = c3 * radius * square + radius**2 * cubic + square * cubic + switch + rounding
    whole += c2 * square + constant * (radius**2 + square) + rounding
    whole += c1 * error + constant * (radius + error) + rounding
    return whole + 1 / scale, level + 2, polynomial.largest(radius)
