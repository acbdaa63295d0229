"""Shares of 256-bit secrets (Shamir 1979): `threshold` of them give the secret, fewer are independent of it."""

from __future__ import annotations

import math
import secrets
from collections.abc import Mapping, Sequence

PRIME = 2**256 - 189  # the largest below 2^256; secrets lie below it
WIDTH = 32  # bytes of a share


def split(secret: int, threshold: int, places: Sequence[int]) -> list[int]:
    """The values, at these places, of a random polynomial whose value at 0 is the secret.

    >>> join(dict(zip((1, 3), split(5, 2, (1, 2, 3))[::2])))
    5
    """
    polynomial = [*(secrets.randbelow(PRIME) for _ in range(threshold - 1)), secret]
    values = []
    for place in places:
        value = 0
        for coefficient in polynomial:
            value = (value * place + coefficient) % PRIME
        values.append(value)
    return values


def join(shares: Mapping[int, int]) -> int:
    """The value at 0 of the polynomial of least degree through these points, by their places."""
    return weigh(weights(tuple(shares)), shares)


def weights(places: Sequence[int]) -> dict[int, int]:
    """What the share of each place counts in the secret (Lagrange's polynomials at 0)."""
    product = math.prod(places)
    return {
        place: product // place * pow(math.prod(other - place for other in places if other != place), -1, PRIME) % PRIME
        for place in places
    }


def weigh(weight: Mapping[int, int], shares: Mapping[int, int]) -> int:
    return sum(weight[place] * shares[place] for place in weight) % PRIME
