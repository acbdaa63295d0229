"""How a single raw decryption of approximate numbers gives away the key (Li and Micciancio 2021), on SEAL's own ciphertexts.

A CKKS ciphertext (c0, c1) decrypts to c0 + c1 s: the message *with its noise*. Whoever sees the ciphertext and these numbers
encodes them again, which gives the same ring element, and divides: s = (message - c0) / c1 modulo a prime. Rounding
the numbers, or noise on them, gives another element, and the division a polynomial that is no key.
"""

from __future__ import annotations

from typing import Any

from numpy.typing import NDArray

from discreet.crypto.engine import Seal
from discreet.errors import InvalidValue

__all__ = ["key_from_decryption"]


def key_from_decryption(cipher: Seal, ciphertext: Any, slots: NDArray[Any]) -> list[int] | None:
    """The secret key in the form in which SEAL computes, modulo the first prime, from one ciphertext and its decrypted slots;
    None where the division does not give a key.

    Keys have coefficients -1, 0 and 1: that is how an attacker tells a key from garbage.
    """
    if cipher.name != "tenseal":
        raise InvalidValue("This demonstration reads ciphertexts as tenseal holds them. Make keys with engine='tenseal'.")
    prime, degree, level = cipher.moduli[0], cipher.parameters.degree, cipher.level(ciphertext)
    plain = cipher.encode(slots, level, ciphertext.scale)  # kept: its array is not
    message, parts = plain.dyn_array(), ciphertext.dyn_array()
    stride = degree * (len(cipher.moduli) - level)  # where c1 begins: a row for each prime
    found = []
    for place in range(degree):
        divisor = parts.at(stride + place)
        if not divisor:
            return None
        found.append((message.at(place) - parts.at(place)) * pow(divisor, -1, prime) % prime)
    return found if _plausible(cipher, found) else None


def _plausible(cipher: Seal, key: list[int]) -> bool:
    """Whether the element can have coefficients -1, 0 and 1. The coefficient of X^0 is the mean of the values at the roots of
    unity, in whatever order; of what is no key, and of its square, it is a random number modulo the prime.
    """
    prime, degree = cipher.moduli[0], cipher.parameters.degree
    first = sum(key) * pow(degree, -1, prime) % prime
    second = sum(value * value for value in key) * pow(degree, -1, prime) % prime  # of s^2: at most N in magnitude
    return first in (0, 1, prime - 1) and min(second, prime - second) <= degree
