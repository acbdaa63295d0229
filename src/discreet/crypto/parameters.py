"""Sizes of the rings in which packed ciphertexts live, checked against the table of the homomorphic encryption standard.

The security of ring learning with errors falls with the modulus and grows with the degree. The standard (Albrecht and
others 2018, HomomorphicEncryption.org, table 1) gives the largest modulus at 128 bits for each degree, for ternary secrets
and noise of standard deviation 3.2; `LIMITS` is that table. Parameters above it cannot be made.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from discreet.core import check
from discreet.core.document import members
from discreet.errors import InvalidDocument, InvalidValue

__all__ = ["LIMITS", "PURPOSES", "RingParameters"]

LIMITS = {1024: 27, 2048: 54, 4096: 109, 8192: 218, 16384: 438, 32768: 881}
SECURITY_BITS = 128
WEIGHT_BITS = 21  # of weights, where no prime is left to rescale by
ASSUMPTION = (
    "decisional ring learning with errors, with ternary secrets and noise of standard deviation 3.2, takes 2^128 operations "
    "for these parameters (table 1 of the HomomorphicEncryption.org standard, 2018); the advantage of anybody with fewer "
    "operations counts as 0"
)


def checked_bound(bound: float) -> float:
    """The largest magnitude of values in rows."""
    if not check.positive("bound", bound) <= 1024:
        raise InvalidValue(f"bound must be above 0 and at most 1024; got {bound!r}. Standardise the features.")
    return float(bound)


@dataclass(frozen=True, slots=True)
class RingParameters:
    """A scheme with its degree and the bits of its primes, of which the last is for switching keys alone.

    >>> RingParameters("ckks", 8192, (60, 60), 26).slots
    4096
    >>> RingParameters("ckks", 8192, (60, 60, 60, 60), 40)
    Traceback (most recent call last):
    discreet.errors.InvalidValue: A modulus of 240 bits needs a degree above 8192, where 128 bits of security allow 218. \
Use degree 16384, or fewer or smaller primes.
    """

    scheme: str  # "ckks": approximate numbers; "bfv": whole numbers modulo a prime
    degree: int
    primes: tuple[int, ...]
    scale_bits: int  # of the encoding (ckks), or of the prime that numbers are counted modulo (bfv)

    def __post_init__(self) -> None:
        object.__setattr__(self, "primes", tuple(self.primes))
        if self.scheme not in ("ckks", "bfv"):
            raise InvalidValue(f"scheme must be 'ckks' or 'bfv'; got {self.scheme!r}.")
        if self.degree not in LIMITS:
            raise InvalidValue(f"degree must be one of {', '.join(map(str, LIMITS))}; got {self.degree!r}.")
        if len(self.primes) < 2 or not all(isinstance(bits, int) and 17 <= bits <= 60 for bits in self.primes):
            raise InvalidValue(f"primes must be two or more numbers of bits from 17 to 60; got {self.primes!r}.")
        if not isinstance(self.scale_bits, int) or not 10 <= self.scale_bits <= 59:
            raise InvalidValue(f"scale_bits must be 10 to 59; got {self.scale_bits!r}.")
        if self.modulus_bits > LIMITS[self.degree]:
            larger = next((n for n, most in LIMITS.items() if most >= self.modulus_bits), None)
            advice = f"Use degree {larger}, or" if larger else "Use"
            raise InvalidValue(
                f"A modulus of {self.modulus_bits} bits needs a degree above {self.degree}, where 128 bits of security allow "
                f"{LIMITS[self.degree]}. {advice} fewer or smaller primes."
            )

    @property
    def modulus_bits(self) -> int:
        """The bits of the whole modulus, which decide the security."""
        return sum(self.primes)

    @property
    def slots(self) -> int:
        """Numbers in one ciphertext."""
        return self.degree // 2 if self.scheme == "ckks" else self.degree

    @property
    def levels(self) -> int:
        """How many times a ciphertext can be rescaled."""
        return len(self.primes) - 2

    @property
    def key_bytes(self) -> int:
        """Memory of one key for relinearisation or rotation."""
        data = len(self.primes) - 1
        return data * 2 * (data + 1) * self.degree * 8

    @property
    def ciphertext_bytes(self) -> int:
        """Memory of a fresh ciphertext."""
        return 2 * (len(self.primes) - 1) * self.degree * 8

    def assumptions(self) -> tuple[str, ...]:
        """What a claim for ciphertexts under these parameters rests on, as sentences."""
        name = {"ckks": "CKKS", "bfv": "BFV"}[self.scheme]
        return (
            f"scheme: {name}; degree {self.degree}; modulus of {self.modulus_bits} bits; security {SECURITY_BITS} bits",
            ASSUMPTION,
            "whoever sees the ciphertexts has neither the secret key nor raw decryptions",
        )

    def to_json(self) -> dict[str, Any]:
        return {"scheme": self.scheme, "degree": self.degree, "primes": list(self.primes), "scale_bits": self.scale_bits}

    @classmethod
    def from_json(cls, document: Any) -> RingParameters:
        parts = members("parameters", document, required=("scheme", "degree", "primes", "scale_bits"))
        try:
            return cls(parts["scheme"], parts["degree"], tuple(parts["primes"]), parts["scale_bits"])
        except (InvalidValue, TypeError) as error:
            raise InvalidDocument(f"The parameters are not valid: {error}") from None


PURPOSES = {
    "linear": RingParameters("ckks", 8192, (60, 60), 26),
    "logistic": RingParameters("ckks", 8192, (50, 33, 33, 33, 60), 33),
    "network": RingParameters("ckks", 16384, (60, 40, 40, 40, 40, 40, 40, 40, 60), 40),
    "training": RingParameters("ckks", 8192, (58, 50, 50, 60), 38),
    "sum": RingParameters("bfv", 4096, (54, 55), 32),
}
