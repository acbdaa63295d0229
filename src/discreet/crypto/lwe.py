"""Bits encrypted by learning with errors, and a NAND gate on ciphertexts that can be repeated without end. **To be
read, not for production.**

A ciphertext of bit `b` is `(a, a·s + e ± 1/8)` on the torus (numbers modulo 1, kept as 32-bit integers): `s` is the
secret, `a` uniform, `e` small Gaussian noise. Without the noise, linear algebra finds `s`; with it, that is the
learning-with-errors problem (Regev 2005).

Adding ciphertexts adds messages and noise. `1/8 - x - y` is positive unless both bits are 1: NAND, if both noises add
up to less than 1/8. To go on, the noise must shrink: **bootstrapping** evaluates the decryption itself on an
encryption of the key. The scheme is that of Chillotti, Gama, Georgieva and Izabachène (TFHE, 2016): a polynomial in X
is turned by X^(a_i) for every key bit that is 1, chosen under encryption, so that its constant coefficient becomes
the sign of the phase; the result is an encryption of the bit with noise that does not depend on the noise that came
in. Key switching brings it back to the small key.

Gates act on batches: a ciphertext array has shape (..., n + 1), and all of its bits pass through the gate together.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from discreet.crypto.private import Private
from discreet.crypto.security import security_bits
from discreet.errors import InvalidValue
from discreet.noise.source import Source

__all__ = ["SECURE", "SMALL", "CloudKey", "Parameters", "SecretKey", "keygen"]

Torus = NDArray[np.uint32]  # a number t stands for t / 2^32 modulo 1
EIGHTH, MINUS_EIGHTH = np.uint32(1 << 29), np.uint32((1 << 32) - (1 << 29))
CACHED = 1 << 15  # coefficients of polynomials that pass through a gate together


@dataclass(frozen=True, slots=True)
class Parameters:
    """Sizes and noise of the scheme. `noise` and `ring_noise` are standard deviations on the torus.

    >>> SECURE.bits >= 128, SMALL.bits < 50
    (True, True)
    """

    n: int  # length of the secret of the ciphertexts
    noise: float
    degree: int  # of the ring in which bootstrapping works, a power of 2
    ring_noise: float
    digits: int  # of the gadget decomposition, of `base_bits` each
    base_bits: int
    switch_digits: int  # of the key switch
    switch_bits: int

    @property
    def bits(self) -> float:
        """The security estimate, the weaker of both lattices; `discreet.crypto.security` says what it counts."""
        return min(security_bits(self.n, self.noise), security_bits(self.degree, self.ring_noise))

    @property
    def gate_noise(self) -> float:
        """The standard deviation after a gate: the sum of the variances of n external products and a key switch,
        taking errors as independent.

        A signed digit of base B has the mean square (B^2 + 2) / 12.
        """
        base, switch_base = 2.0**self.base_bits, 2.0**self.switch_bits
        precision = 2.0 ** (-self.base_bits * self.digits - 1)
        external = (
            2 * self.digits * self.degree * (base**2 + 2) / 12 * self.ring_noise**2 + (1 + self.degree / 2) * precision**2 / 3
        )
        rotation = self.n * external
        switched = self.degree * self.switch_digits * (switch_base**2 + 2) / 12 * self.noise**2
        rounding = self.degree / 2 * 2.0 ** (-2 * self.switch_bits * self.switch_digits) / 12
        return math.sqrt(rotation + switched + rounding)

    @property
    def failure(self) -> float:
        """The estimated probability that a NAND of two gate outputs goes wrong: noises that add up to more than 1/8."""
        drift = math.sqrt((1 + self.n / 2) / 12) / (2 * self.degree)  # coefficients rounded to multiples of 1 / 2N
        return math.erfc(0.125 / math.sqrt(2 * (2 * self.gate_noise**2 + drift**2)))


SECURE = Parameters(
    n=640, noise=2.0**-15, degree=1024, ring_noise=2.0**-25, digits=3, base_bits=7, switch_digits=8, switch_bits=2
)
SMALL = Parameters(
    n=8, noise=2.0**-17, degree=64, ring_noise=2.0**-30, digits=2, base_bits=8, switch_digits=4, switch_bits=4
)  # breakable: for tests


def _uniform(source: Source, *shape: int) -> Torus:
    return np.frombuffer(source.take(4 * math.prod(shape)), np.uint32).reshape(shape).copy()


def _normal(source: Source, deviation: float, *shape: int) -> Torus:
    """Gaussian noise rounded to the torus, from the operating system's randomness by the inverse of the normal distribution."""
    from scipy.special import ndtri

    places = np.frombuffer(source.take(8 * math.prod(shape)), np.uint64).reshape(shape) >> np.uint64(11)
    return _torus(ndtri((places + 0.5) * 2.0**-53) * deviation * 2.0**32)


def _torus(values: NDArray[np.float64]) -> Torus:
    return np.rint(values).astype(np.int64).astype(np.uint32)


def _twist(degree: int) -> NDArray[np.complex128]:
    return np.asarray(np.exp(1j * np.pi * np.arange(degree // 2) / degree), np.complex128)


def _transform(polynomials: NDArray[Any]) -> NDArray[np.complex128]:
    """Values of real polynomials modulo X^N + 1 at half of the odd roots of unity: products become products of values."""
    half = polynomials.shape[-1] // 2
    folded = polynomials[..., :half] + 1j * polynomials[..., half:]
    return np.asarray(np.fft.fft(folded * _twist(2 * half), axis=-1), np.complex128)


def _coefficients(values: NDArray[np.complex128]) -> Torus:
    folded = np.fft.ifft(values, axis=-1) / _twist(2 * values.shape[-1])
    both = np.concatenate([folded.real, folded.imag], axis=-1)
    return _torus(both - 2.0**32 * np.rint(both * 2.0**-32))


def _digits(numbers: Torus, count: int, bits: int) -> NDArray[np.int64]:
    """Signed digits on a new axis before the last, most significant first: the sum of digit_i 2^(32 - bits i) is the number."""
    offset = sum(1 << (32 - bits * i + bits - 1) for i in range(1, count + 1)) + (
        1 << (31 - bits * count) if bits * count < 32 else 0
    )
    shifted = (numbers.astype(np.int64) + offset) % (1 << 32)
    parts = [(shifted >> (32 - bits * i)) % (1 << bits) - (1 << (bits - 1)) for i in range(1, count + 1)]
    return np.stack(parts, axis=-2)


def _turned(polynomials: Torus, by: NDArray[np.int64]) -> Torus:
    """Every polynomial (batch, 2, N) times X^by, modulo X^N + 1: coefficients that pass the end change their sign."""
    degree = polynomials.shape[-1]
    places = (np.arange(degree) - by[:, None]) % (2 * degree)
    moved = np.take_along_axis(polynomials, np.broadcast_to((places % degree)[:, None, :], polynomials.shape), axis=-1)
    return np.where((places >= degree)[:, None, :], np.uint32(0) - moved, moved)


@dataclass(frozen=True, slots=True, repr=False)
class SecretKey(Private):
    """Encrypts and decrypts. Whoever holds it reads everything; it never goes to the machine that computes.

    >>> secret, cloud = keygen(SMALL)
    >>> secret.decrypt(secret.encrypt([0, 1, 1])).tolist()
    [0, 1, 1]
    >>> x, y = secret.encrypt([0, 0, 1, 1]), secret.encrypt([0, 1, 0, 1])
    >>> secret.decrypt(cloud.nand(x, y)).tolist()
    [1, 1, 1, 0]
    """

    parameters: Parameters
    bits: Torus = field(repr=False)

    def encrypt(self, bits: Any) -> Torus:
        """One ciphertext for each bit; each call has fresh randomness."""
        plain = np.asarray(bits)
        if not np.isin(plain, (0, 1)).all():
            raise InvalidValue(
                f"Bits are 0 or 1; found an array of {plain.dtype} with other values. Write numbers in binary first: to_bits."
            )
        message = np.where(plain == 1, EIGHTH, MINUS_EIGHTH)
        return _encrypt(Source(), self.bits, self.parameters.noise, message)

    def phase(self, ciphertexts: Torus) -> NDArray[np.float64]:
        """Message and noise, in (-1/2, 1/2]: what decryption looks at the sign of."""
        self._check(ciphertexts)
        return (ciphertexts[..., -1] - ciphertexts[..., :-1] @ self.bits).astype(np.int32) / 2.0**32

    def decrypt(self, ciphertexts: Torus) -> NDArray[np.int64]:
        """The bits."""
        return (self.phase(ciphertexts) > 0).astype(np.int64)

    def _check(self, ciphertexts: Torus) -> None:
        _check(ciphertexts, self.parameters.n)


@dataclass(frozen=True, slots=True)
class CloudKey:
    """What the machine that computes needs: encryptions of the key's bits. It decrypts nothing."""

    parameters: Parameters
    bootstrap: NDArray[np.complex128] = field(
        repr=False
    )  # (n, 2 * digits, 2, N / 2): transformed encryptions of the key's bits
    switch: Torus = field(repr=False)  # (N, switch_digits, n + 1): encryptions of the ring key's bits, scaled

    def nand(self, x: Torus, y: Torus) -> Torus:
        """Encryptions of `not (x and y)`, with fresh noise of their own."""
        for ciphertexts in (x, y):
            _check(ciphertexts, self.parameters.n)
        x, y = np.broadcast_arrays(x, y)
        total = np.uint32(0) - x - y
        total[..., -1] += EIGHTH
        flat = total.reshape(-1, total.shape[-1])
        size = max(1, CACHED // self.parameters.degree)
        parts = [self._switched(self._sign(flat[i : i + size])) for i in range(0, len(flat), size)]
        return np.concatenate(parts).reshape(x.shape) if parts else total

    def _sign(self, ciphertexts: Torus) -> Torus:
        """Blind rotation: encryptions under the ring key of 1/8 or -1/8, the sign of each phase."""
        p = self.parameters
        turns = np.rint(ciphertexts * (2 * p.degree / 2.0**32)).astype(np.int64) % (2 * p.degree)
        start = np.zeros((len(ciphertexts), 2, p.degree), np.uint32)
        start[:, 1] = EIGHTH
        total = _turned(start, -turns[:, -1])
        for i in range(p.n):
            change = _turned(total, turns[:, i]) - total
            total = total + self._times_key_bit(i, change)
        mask = np.concatenate(
            [total[:, 0, :1], np.uint32(0) - total[:, 0, :0:-1]], axis=1
        )  # the constant coefficient, as a ciphertext
        return np.concatenate([mask, total[:, 1, :1]], axis=1)

    def _times_key_bit(self, i: int, polynomials: Torus) -> Torus:
        """The external product: each pair of polynomials times the encrypted i-th bit of the key."""
        p = self.parameters
        digits = _digits(polynomials, p.digits, p.base_bits).reshape(len(polynomials), 2 * p.digits, p.degree)
        return _coefficients(np.einsum("bdk,dck->bck", _transform(digits), self.bootstrap[i], optimize=True))

    def _switched(self, ciphertexts: Torus) -> Torus:
        p = self.parameters
        digits = _digits(ciphertexts[:, :-1], p.switch_digits, p.switch_bits).swapaxes(1, 2).reshape(len(ciphertexts), -1)
        result = np.uint32(0) - (digits.astype(np.uint32) @ self.switch.reshape(-1, p.n + 1))
        result[:, -1] += ciphertexts[:, -1]
        return result


def _check(ciphertexts: Torus, n: int) -> None:
    if not isinstance(ciphertexts, np.ndarray) or ciphertexts.dtype != np.uint32 or ciphertexts.shape[-1:] != (n + 1,):
        shape = getattr(ciphertexts, "shape", None)
        raise InvalidValue(
            f"Ciphertexts of this key are arrays of uint32 with a last axis of {n + 1}; "
            f"found {type(ciphertexts).__name__} of shape {shape}."
        )


def _encrypt(source: Source, key: Torus, noise: float, message: NDArray[np.uint32]) -> Torus:
    mask = _uniform(source, *message.shape, len(key))
    body = (mask @ key[:, None])[..., 0] + _normal(source, noise, *message.shape)
    return np.concatenate([mask, (body + message)[..., None]], axis=-1)


def _ring_encryptions(source: Source, p: Parameters, ring_key: Torus, count: int) -> Torus:
    """Encryptions of the polynomial 0 under the ring key: (count, 2, N), the second minus the first times the key is small."""
    mask = _uniform(source, count, p.degree)
    halves = [
        _coefficients(_transform(part.astype(np.float64)) * _transform(ring_key.astype(np.float64)))
        for part in (mask >> np.uint32(16), mask & np.uint32(0xFFFF))
    ]
    product = (halves[0] << np.uint32(16)) + halves[1]  # in two parts of 16 bits, so that floating-point sums are exact
    return np.stack([mask, product + _normal(source, p.ring_noise, count, p.degree)], axis=1)


def keygen(parameters: Parameters = SECURE) -> tuple[SecretKey, CloudKey]:
    """A secret key, and the cloud key that lets others compute on its ciphertexts."""
    p, source = parameters, Source()
    secret, ring_key = (_uniform(source, length) & np.uint32(1) for length in (p.n, p.degree))
    bootstrap = np.empty((p.n, 2 * p.digits, 2, p.degree // 2), np.complex128)
    for i, bit in enumerate(secret):
        rows = _ring_encryptions(source, p, ring_key, 2 * p.digits)
        for j in range(p.digits):  # plus the bit times the gadget: 2^(32 - base_bits * (j + 1)) in the digit's own place
            scale = np.uint32(int(bit) << (32 - p.base_bits * (j + 1)))
            rows[j, 0, :1] += scale
            rows[p.digits + j, 1, :1] += scale
        bootstrap[i] = _transform(rows.astype(np.int32).astype(np.float64))
    scales = np.uint32(1) << np.array([32 - p.switch_bits * (j + 1) for j in range(p.switch_digits)], np.uint32)
    return SecretKey(p, secret), CloudKey(p, bootstrap, _encrypt(source, secret, p.noise, ring_key[:, None] * scales))
