"""Slots and coefficients of a ring element: where packed weights lie, and how to write and read them.

A slot k is the value at the root of unity zeta^(3^k); zeta has the order 2N. Coefficients follow by a Fourier transform.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = [
    "automorphisms",
    "coefficients",
    "constants",
    "monomial",
    "packed",
    "paired",
    "pairs",
    "positions",
    "randomly_rounded",
    "shared",
    "slots",
    "unpacked",
]

Complex = NDArray[np.complex128]
Array = NDArray[np.float64]


@lru_cache(maxsize=4)
def exponents(degree: int) -> NDArray[np.int64]:
    """3^k modulo 2N for each slot."""
    found = np.ones(degree // 2, np.int64)
    for place in range(1, len(found)):
        found[place] = found[place - 1] * 3 % (2 * degree)
    return found


def monomial(degree: int, power: int) -> Complex:
    """The slots of X^power."""
    return np.asarray(np.exp(1j * np.pi * ((exponents(degree) * power) % (2 * degree)) / degree))


def automorphisms(levels: int) -> list[int]:
    """The exponents e of X -> X^e in the group that the lowest levels of the tree generate: products of 2^(l+1) + 1."""
    found = [1]
    for level in range(1, levels + 1):
        found += [element * (2 ** (level + 1) + 1) for element in found]
    return found


def shared(degree: int, columns: list[Complex], levels: int) -> list[Complex]:
    """What is encrypted in place of a block of columns x_j, so that the lowest levels of the tree need no key switch: for
    each automorphism t of the group, the sum of s_j t(x_j), with s_j the monomial of column j.

    The traces that the tree would have left are the sum of these times t(o), whatever o is.
    """
    shifts = [monomial(degree, place * ((degree // 2) >> levels)) for place in positions(1 << levels)]
    roots, found = exponents(degree), []
    values = [everywhere(degree, column) for column in columns]
    for element in automorphisms(levels):
        moved = (value[roots * element % (2 * degree)] for value in values)
        found.append(np.asarray(sum(shift * image for shift, image in zip(shifts, moved, strict=False)), np.complex128))
    return found


def everywhere(degree: int, slots: Complex) -> Complex:
    """The values at all roots, by their exponents: those of slots, and their conjugates."""
    values = np.zeros(2 * degree, np.complex128)
    values[exponents(degree)], values[2 * degree - exponents(degree)] = slots, slots.conj()
    return values


def positions(count: int) -> list[int]:
    """Numbers below `count` with their bits reversed: the order in which the tree leaves them."""
    bits = (count - 1).bit_length()
    return [int(format(place, f"0{bits}b")[::-1], 2) if bits else 0 for place in range(count)]


def slots(degree: int, coefficients: Array) -> Complex:
    """The slots of an element given by its N coefficients."""
    values = degree * np.fft.ifft(coefficients * _turns(degree))  # at odd powers of the root, 1, 3, 5 and so on
    return np.asarray(values[exponents(degree) // 2])


@lru_cache(maxsize=4)
def _turns(degree: int) -> Complex:
    return np.asarray(np.exp(1j * np.pi * np.arange(degree) / degree))


def randomly_rounded(degree: int, values: NDArray[Any], scale: float) -> Complex:
    """Slots such that each coefficient is rounded up or down at random when they are encoded, by less than 1 and by 0 in the
    mean, whatever the values are.
    """
    shift = np.random.default_rng().uniform(-0.5, 0.5, degree)
    found = slots(degree, shift) / scale
    found[: len(values)] += values
    return found


def coefficients(degree: int, slots: Complex) -> Array:
    """The N coefficients of an element given by its slots."""
    return np.asarray(np.fft.fft(everywhere(degree, slots))[:degree].real / degree)


def paired(slots: Complex) -> Complex:
    """Odd slots conjugated, so that each slot's root is 1 modulo 4."""
    result = slots.copy()
    result[1::2] = result[1::2].conj()
    return result


def pairs(values: Array, size: int) -> Complex:
    """Numbers two by two as complex ones, padded with zeros."""
    padded = np.pad(values, (0, 2 * size - len(values)))
    return np.asarray(padded[0::2] + 1j * padded[1::2])


def constants(degree: int, value: complex) -> Complex:
    """A complex number in every slot, as `paired` understands it."""
    return paired(np.full(degree // 2, value, np.complex128))


def packed(degree: int, weights: Array) -> Complex:
    """The slots of the element that holds the weights as the tree leaves them: a pair (a, b) as a - b X^(N/2)."""
    count = (len(weights) + 1) // 2
    values, found = pairs(weights, count), np.zeros(degree)
    places = np.array(positions(count)) * _spacing(degree, count)
    found[places], found[places + degree // 2] = values.real, -values.imag
    return slots(degree, found)


def unpacked(degree: int, slots: Complex, size: int) -> Array:
    """The weights in such an element."""
    count = (size + 1) // 2
    found, places = coefficients(degree, slots), np.array(positions(count)) * _spacing(degree, count)
    values = np.stack([found[places], -found[places + degree // 2]], axis=1).ravel()
    return np.asarray(values[:size])


def _spacing(degree: int, count: int) -> int:
    return (degree // 2) >> (count - 1).bit_length()
