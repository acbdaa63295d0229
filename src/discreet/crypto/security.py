"""How hard a learning-with-errors problem is, by the primal lattice attack: an estimate, and the assumption behind
every claim here.

The attack embeds the secret and the errors as an unusually short vector of a lattice (Bai and Galbraith 2014,
rescaled for a binary secret) and reduces the lattice with BKZ. With block size beta it succeeds once `sqrt(beta) *
sigma <= delta(beta)^(2 beta - d - 1) * volume^(1/d)` (Alkim, Ducas, Pöppelmann and Schwabe 2016). Its cost is counted
as `8 d` calls of a sieve in dimension beta, `2^(0.292 beta + 16.4)` operations each (Becker, Ducas, Gama and
Laarhoven 2016; the count of Albrecht, Player and Scott 2015). Counting one call and nothing else ("core-SVP") gives
some 30 bits less. Hybrid and dual attacks on binary secrets may be some bits cheaper, and new algorithms may come: it
is an estimate.
"""

from __future__ import annotations

import math

__all__ = ["security_bits"]


def security_bits(dimension: int, noise: float, modulus_bits: int = 32) -> float:
    """Bits of security of learning with errors with a binary secret and Gaussian noise of standard deviation `noise`
    (a share of the modulus).

    >>> round(security_bits(630, 2.0**-15)) in range(100, 140)
    True
    >>> security_bits(1024, 2.0**-25) > security_bits(512, 2.0**-25)
    True
    """
    sigma = max(noise * 2.0**modulus_bits, 0.4)
    choices = range(dimension // 4, 3 * dimension, max(1, dimension // 32))
    for beta in range(40, 4 * dimension):
        enough = [samples for samples in choices if _succeeds(dimension, sigma, modulus_bits, beta, samples)]
        if enough:
            return 0.292 * beta + 16.4 + math.log2(8 * (dimension + enough[0] + 1))
    return 0.292 * 4 * dimension


def _succeeds(n: int, sigma: float, modulus_bits: int, beta: int, samples: int) -> bool:
    d = n + samples + 1
    if beta >= d:
        return True
    delta = math.log((math.pi * beta) ** (1 / beta) * beta / (2 * math.pi * math.e)) / (2 * (beta - 1))
    volume = (samples * modulus_bits * math.log(2) + n * math.log(2 * sigma)) / d  # secret in {-1/2, 1/2}, scaled to the noise
    return 0.5 * math.log(beta) + math.log(sigma) <= (2 * beta - d - 1) * delta + volume
