"""Box & Muller's transform in float32, the same bits on every machine.

Two words of 32 random bits, a and b, make two standard normal numbers:

    k = a >> 1 | 1,  u = k / 2^31,  t = int32(b) / 2^31,  x = sqrt(-2 ln u) cos(pi t),  y = sqrt(-2 ln u) sin(pi t).

Every operation below is one IEEE 754 addition, multiplication, division, square root or conversion, each rounded once
and in a fixed order, so numpy here, `normal.c` and torch on a GPU agree bit for bit. The logarithm is that of
the mantissa (by atanh) plus the exponent; sine and cosine are minimax polynomials of the half angle, doubled. Where u is
small, 30 bits would cut the tail at 6.6 and grain it before that: pairs with k < RARE take 64 bits more (`tails`).
docs/theory/learn-noise.md bounds what is left.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

Words = NDArray[np.uint32]
Ints = NDArray[np.int32]
Floats = NDArray[np.float32]

TILE = 8192  # numbers that are laid out together: see stream.py
RARE = 1 << 14  # a radius word with k below this, one in 2^17, takes 64 bits more

# Coefficients, highest power first, each a float32: (-2 ln m) / z in z^2 where z = (m - 1)/(m + 1), and sqrt(2) sin and
# cos of a quarter turn times t, in t^2, the sine over t. `normal.c` and `chacha.py` take them from here.
LOG = tuple(map(float.fromhex, ("-0x1.a6dff6p-1", "-0x1.554268p+0", "-0x1.000002p+2")))
SIN = tuple(map(float.fromhex, ("0x1.c1d9f2p-13", "-0x1.b135b6p-8", "0x1.cd9d06p-4", "-0x1.d3ba4cp-1", "0x1.1c5832p+1")))
COS = tuple(map(float.fromhex, ("0x1.3e27aap-10", "-0x1.e23130p-6", "0x1.6f5354p-2", "-0x1.bea57ep+0", "0x1.6a09e6p+0")))
LOG_STEP = float.fromhex("-0x1.62e430p-23")  # -2 ln 2 / 2^23: for each step of the exponent, which float32 keeps from bit 23 on
MIDDLE = 0x3F3504F3 + (31 << 23)  # the bits of sqrt(1/2) 2^31: mantissas are taken between sqrt(1/2) and sqrt(2)
EXPONENT = -(1 << 23)  # a mask: sign and exponent of a float32


_BIT, _LOWEST = np.array(1, np.uint32), np.array(25, np.int32)
_MIDDLE, _EXPONENT, _ONE = np.array(MIDDLE, np.int32), np.array(EXPONENT, np.int32), np.array(1, np.float32)
_TOP, _TO_TURNS, _LOG_STEP = (np.array(value, np.float32) for value in (2.0**31, 2.0**-31, LOG_STEP))
_LOG, _SIN, _COS = ([np.array(value, np.float32) for value in values] for values in (LOG, SIN, COS))


class Transform:
    """The transform by numpy, of up to `size` pairs at a time, with room of its own: nothing is allocated on the way.

    Constants above are arrays of no dimension and results go where the third argument says: both halve what a call of
    numpy costs beside its work.
    """

    def __init__(self, size: int) -> None:
        self._room = np.empty((5, size), np.float32)

    def __call__(self, words: Words, scale: float, out: Floats) -> bool:
        """Tiles of words [tiles, (a, b), pairs] to tiles of numbers [tiles, (x, y), pairs]; True where one wants `tails`."""
        a, b = words[:, 0], words[:, 1]
        number, low, *room = (row[: a.size].reshape(a.shape) for row in self._room)
        whole = room[0].view(np.int32)
        np.right_shift(a, _BIT, whole.view(np.uint32))
        np.bitwise_or(whole.view(np.uint32), _BIT, whole.view(np.uint32))  # the middle of its cell, and no ties in rounding
        rare = bool(whole.min() < RARE)
        np.copyto(number, whole, casting="unsafe")
        np.left_shift(whole, _LOWEST, whole)
        np.right_shift(whole, _LOWEST, whole)  # what k has more than its float, when k is 2^30 or above
        np.copyto(low, whole, casting="unsafe")
        radius(number, low, scale, room)
        turn(b, number, out[:, 0], out[:, 1], room)
        return rare


def tails(a: Words, b: Words, more: Sequence[int], scale: float) -> tuple[Floats, Floats]:
    """The pairs again, with 64 bits more of u each: u = (a >> 2 + (more + 1/2) / 2^64) / 2^30."""
    number = np.array([float((int(word) >> 2 << 65) + 2 * extra + 1) / 2.0**64 for word, extra in zip(a, more)], np.float32)
    room = list(np.empty((3, a.size), np.float32))
    x, y = np.empty(a.size, np.float32), np.empty(a.size, np.float32)
    radius(number, np.zeros(a.size, np.float32), scale, room)
    turn(b, number, x, y, room)
    return x, y


def radius(number: Floats, low: Floats, scale: float, room: list[Floats]) -> None:
    """`number` becomes scale sqrt(-2 ln((number + low) / 2^31)).

    `low` is added to the mantissa, so it is itself only between 2^30 and 2^31, where u is near 1 and the radius small;
    below, the float holds all bits of k that matter, and moving it by one part in 2^24 does not.
    """
    exponent, log, square = room
    bits, step = number.view(np.int32), log.view(np.int32)
    np.subtract(bits, _MIDDLE, step)
    np.bitwise_and(step, _EXPONENT, step)  # (exponent - 31) 2^23
    np.subtract(bits, step, bits)  # the mantissa, times 2^31
    np.copyto(exponent, step, casting="unsafe")
    np.multiply(exponent, _LOG_STEP, exponent)
    np.subtract(number, _TOP, square)
    np.add(square, low, low)
    np.add(number, _TOP, number)
    np.divide(low, number, low)
    np.multiply(low, low, square)
    horner(_LOG, square, log)
    np.multiply(log, low, log)
    np.add(log, exponent, log)
    np.sqrt(log, log)
    np.multiply(log, np.array(scale, np.float32), number)


def turn(b: Words, radius: Floats, x: Floats, y: Floats, room: list[Floats]) -> None:
    """(x, y) = radius (cos, sin)(pi t): with s, c of half the angle, times sqrt(2), they are 1 - s^2 and s c."""
    sine, cosine, square = room
    np.copyto(sine, b.view(np.int32), casting="unsafe")
    np.multiply(sine, _TO_TURNS, sine)
    np.multiply(sine, sine, square)
    horner(_SIN, square, cosine)
    np.multiply(sine, cosine, sine)
    horner(_COS, square, cosine)
    np.multiply(cosine, sine, cosine)
    np.multiply(cosine, radius, y)
    np.multiply(sine, sine, sine)
    np.subtract(_ONE, sine, sine)
    np.multiply(sine, radius, x)


def horner(coefficients: Sequence[Floats], at: Floats, out: Floats) -> None:
    """The polynomial, a multiplication and an addition for each power."""
    first, *rest = coefficients
    np.multiply(at, first, out)
    for coefficient in rest[:-1]:
        np.add(out, coefficient, out)
        np.multiply(out, at, out)
    np.add(out, rest[-1], out)
