"""Handing decrypted scores or weights to others: a release, with one claim for what the machine saw and none for the answer.

A raw decryption of approximate numbers gives away the key (`leak`). Scores are therefore rounded to a grid so coarse that
a rounded score is that of the exact computation unless the exact score lies within the error of a boundary, and each
hand-over is an entry of the ledger. The values handed on under one key are counted there, each by the share of a cell of its
own grid that lies near a boundary: once one value is expected to depend on the noise, the key has to be replaced.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from discreet.core import Claim, Game, Release, Unit, Zero, check
from discreet.crypto.accuracy import least_error
from discreet.crypto.keys import SecretContext
from discreet.crypto.packed import Encrypted, answered, read
from discreet.crypto.parameters import RingParameters
from discreet.crypto.training import KeyHolder
from discreet.errors import InvalidValue
from discreet.ledger import Ledger, open_charge

__all__ = ["COARSEST_SHARE", "ciphertext_claim", "disclose", "disclose_weights", "disclosed"]

COARSEST_SHARE = 64  # a grid has at least so many times the error
DEVIATIONS = 8  # of the noise that an answer shows, which its stated error must hold


def ciphertext_claim(parameters: RingParameters, unit: Unit, *more: str) -> Claim:
    """What the computing machine learns from ciphertexts: nothing, under the assumptions that the claim lists.

    It is a claim about the view "ciphertexts" and about no other: what a decrypted answer reveals needs a claim of its own.
    Whoever sees the messages sees how many rows, or clients, there are. So the unit must be one row that is replaced, or
    anything that is blanked out; of one that is added or removed the number tells, and a person who is replaced may own
    another number of rows.

    >>> from discreet import record
    >>> from discreet.crypto.parameters import PURPOSES
    >>> claim = ciphertext_claim(PURPOSES["linear"], record("replace"))
    >>> sorted(claim.game.view), claim.assumptions[0]
    (['ciphertexts'], 'scheme: CKKS; degree 8192; modulus of 120 bits; security 128 bits')
    """
    if unit.relation == "add_remove" or (unit.relation == "replace" and (unit.key is not None or unit.rows != 1)):
        raise InvalidValue(
            f"Messages show how many rows or clients there are, so a claim about them cannot be for {unit}. Protect a unit "
            'with its one row replaced, record("replace"), or blanked out, and open the source in the ledger for it.'
        )
    return Claim(game=Game(unit, {"ciphertexts"}), event=Zero(), assumptions=(*parameters.assumptions(), *more))


@dataclass(frozen=True, slots=True)
class Disclosure:
    """The mechanism: decrypt and round. There is no claim for the answer: it is about the rows, and exact to the grid."""

    secret: SecretContext
    unit: Unit
    grid: float
    error: float
    values: int
    ledger: Ledger
    source: str
    more: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for name in ("grid", "error"):  # plain floats: the claim states them, and they are read from it again
            object.__setattr__(self, name, float(check.positive(name, getattr(self, name))))
        if not isinstance(self.ledger, Ledger):
            raise InvalidValue("ledger must be a discreet.Ledger: decryptions that others get are counted in it.")
        if self.grid < COARSEST_SHARE * self.error:
            raise InvalidValue(
                f"A grid of {self.grid:.3g} is below {COARSEST_SHARE} times the error of {self.error:.3g}: rounded values "
                f"would show noise of the key. Use at least {COARSEST_SHARE * self.error:.3g}."
            )

    def claims(self) -> tuple[Claim, ...]:
        counted = f"{_COUNTED.format(self.secret.id)}{self.values}"
        rounded = f"{_ROUNDED[0]}{self.grid!r}{_ROUNDED[1]}{self.error!r}"
        return (ciphertext_claim(self.secret.parameters, self.unit, rounded, *self.more, counted),)

    def release(self, opening: Callable[[], NDArray[np.float64]]) -> Release[NDArray[np.float64]]:
        """Reserve, refuse and give back before anything is decrypted, or decrypt and round: from then on the values count,
        whatever becomes of them.
        """
        claims = self.claims()
        charge = open_charge(claims, source=self.source, ledger=self.ledger)
        try:
            self._check_room(charge.id)
        except BaseException:
            charge.cancel("did_not_run")
            raise
        with charge as entry:
            value = np.asarray(np.round(opening() / self.grid) * self.grid + 0.0)  # -0.0 would show the sign of the noise
        return Release(value=value, source=self.source, claims=claims, entry=entry)

    def _check_room(self, own: str) -> None:
        """Of several that reserve at once, each counts those before it: the last that is let through has counted them all."""
        found = list(_handed(self.ledger, self.secret.id, own))
        expected = math.fsum(values * 2 * error / grid for values, grid, error in found)
        if not expected <= 1:
            raise InvalidValue(
                f"{sum(values for values, _, _ in found)} values under key {self.secret.id[:8]}, these ones with an error of "
                f"{self.error:.3g} on a grid of {self.grid:.3g}, make it likely that one shows noise of the key. Nothing was "
                "decrypted or counted. Use a coarser grid, or make new keys with keygen."
            )


_COUNTED = "decryptions under key {} handed to others: "
_ROUNDED = ("values are rounded to multiples of ", ", and the machine computed what it states, with an error of at most ")
_NUMBERS = re.compile(r"([\d.e+-]+)".join((re.escape(_ROUNDED[0]), re.escape(_ROUNDED[1]), "")))


def disclosed(ledger: Ledger, key: str) -> int:
    """How many values decrypted under a key were handed to others, of whatever source, by the ledger."""
    return sum(values for values, _, _ in _handed(ledger, key))


def _handed(ledger: Ledger, key: str, last: str | None = None) -> Iterator[tuple[int, float, float]]:
    """The number of values, the grid and the error of each hand-over under a key, by the sentences of its claim; of those up
    to the entry `last`, if one is named. What was given back never began, so nothing was decrypted for it.
    """
    mark = _COUNTED.format(key)
    entries = list(ledger.history())
    refused = {entry.about for entry in entries if entry.kind == "cancel"}
    for entry in entries:
        for claim in entry.body["claims"] if entry.kind == "reserve" and entry.number not in refused else ():
            lines = claim.get("assumptions", ())
            counts = [int(line[len(mark) :]) for line in lines if line.startswith(mark)]
            numbers = next((match for line in lines if (match := _NUMBERS.fullmatch(line))), None)
            if counts:  # an entry that names no grid counts as if there had been no rounding
                yield sum(counts), *(map(float, numbers.groups()) if numbers else (1.0, 1.0))
        if entry.id == last:
            return


def disclose(
    secret: SecretContext, answer: Encrypted, *, grid: float, error: float, unit: Unit, source: str, ledger: Ledger,
    request: Encrypted | None = None,
) -> Release[NDArray[np.float64]]:  # fmt: skip
    """Scores for another party: rounded to multiples of `grid`, and entered in the ledger before anything is decrypted. What is
    refused before that counts nothing; what is refused for what it decrypts to counts.

    `error` is what `error_bound` says of the model; a grid below 64 times that is refused, and so is an answer with more noise,
    which its imaginary parts show. The release has a claim for the view "ciphertexts", and none for the scores themselves: they
    are exact to the grid, and say of a row what they say.
    """
    answer.same_key(secret)
    least = least_error(answer.parameters)
    if not check.positive("error", error) >= least:
        raise InvalidValue(
            f"An error of {error:.3g} is less than any computation under these keys has: rounding alone is {least:.3g}. Take "
            "what error_bound says of the model; a server that states less computes something else."
        )
    ciphertexts = answered(secret, answer, request)
    mechanism = Disclosure(secret, unit, grid, error, answer.rows * answer.width, ledger, source)
    return mechanism.release(lambda: _measured(secret, answer, ciphertexts, error))


def _measured(secret: SecretContext, answer: Encrypted, ciphertexts: list[Any], error: float) -> NDArray[np.float64]:
    """The scores, where their noise is no more than the error that was stated."""
    scores, noise = read(secret, answer, ciphertexts)
    if not DEVIATIONS * noise <= error:
        raise InvalidValue(
            f"The answer has more noise than an error of {error:.3g} allows: it is not the computation whose error that is, "
            "and rounded scores would show the noise. Nothing was handed over. Take what error_bound says of the model."
        )
    return scores


def disclose_weights(
    holder: KeyHolder, *, grid: float, unit: Unit, source: str, ledger: Ledger
) -> Release[NDArray[np.float64]]:  # fmt: skip
    """The weights of an encrypted training for another party, the intercept last: rounded and counted as scores are.

    They are raw decryptions too. A model that others get is not private because it was trained on ciphertexts: the release has
    no claim for the view "weights".
    """
    if not holder.decrypted:
        raise InvalidValue("No step was decrypted yet: there are no weights to hand on.")
    error = holder.run_error()
    if not error < math.inf:
        raise InvalidValue(
            "There is no bound for the error of these weights: scores left the range of the polynomial or its rising part, or "
            "learning_rate times the curvature of the loss is above 1, so that rounded weights could show noise of the key. "
            "Nothing was handed over. Train again with a lower learning_rate, or scale the features down."
        )
    steady = (
        "noise of a step grows in later ones at most as under a loss of constant curvature between 0 and one over the learning "
        "rate in each direction"
    )
    mechanism = Disclosure(holder.secret, unit, grid, error, holder.plan.features, ledger, source, (steady,))
    return mechanism.release(lambda: holder.weights)
