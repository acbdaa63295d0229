"""Private versions of federated learning: where updates are clipped and noised, and what that claims.

Central      a trusted server clips each client's update, adds them up and adds noise; others see the weights of each round
Local        each client clips its update and adds noise to it; the server sees every noisy update
Distributed  each client adds a part of the noise inside a secure sum; the server sees the noisy sum
PrivateSGD   each client trains by private SGD on its own rows: a claim about single rows, against the server too

docs/theory/federated.md has the theorems.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from fractions import Fraction
from functools import lru_cache
from typing import Any, ClassVar

import numpy as np

from discreet.accounting import calibrate, curve
from discreet.core import Claim, Event, Game, Unit, check
from discreet.core import event as events
from discreet.core.adjacency import replaced
from discreet.errors import InvalidValue
from discreet.federate.strategies import Descent
from discreet.noise.vectors import WIDEST, VectorGrid

FINE = 1 << 16  # steps of the matrix of correlated noise: its entries are whole numbers of them
DEVIATIONS = 12  # of noise that a modular sum must hold
NOISIEST = 1 << 20  # clip norms: noise of 2^16 x 2^20 x as many steps is within 63 bits
COARSEST = 3  # steps in the standard deviation of one client's part of the noise
PUBLIC = (
    "Hyper-parameters, architecture, first weights and preprocessing do not depend on this data, or were paid for separately.",
    "What one client sends before noise does not depend on which others take part; where a simulation trains clients together, "
    "up to the rounding of floating-point numbers.",
)


@dataclass(frozen=True, kw_only=True)
class _Scheme:
    """What all have in common: the unit, the clip norm, and the noise or the budget that it is calibrated to."""

    unit: Unit
    clip_norm: float
    epsilon: float | None = None
    delta: float | None = None
    noise_multiplier: float | None = None

    relations: ClassVar[tuple[str, ...]] = ("add_remove", "zero_out", "replace")
    view: ClassVar[frozenset[str]] = frozenset({"transcript"})

    def __post_init__(self) -> None:
        if not isinstance(self.unit, Unit):
            raise InvalidValue(f"unit must be a Unit, such as discreet.federate.client(); got {type(self.unit).__name__}.")
        if self.unit.relation not in self.relations:
            raise InvalidValue(
                f"{type(self).__name__} shows who takes part, so its unit cannot be one that is there or not: its relation "
                f"must be {' or '.join(self.relations)}; got {self.unit.relation}."
            )
        check.positive("clip_norm", self.clip_norm)
        if (self.epsilon is None) == (self.noise_multiplier is None):
            raise InvalidValue("Say either epsilon (with delta) or noise_multiplier, which decides the other.")
        if self.noise_multiplier is not None:
            check.positive("noise_multiplier", self.noise_multiplier)
        else:
            check.positive("epsilon", self.epsilon)
            check.open_fraction("delta", self.delta)

    def event(self, noise: float, rounds: int, size: int) -> Event:
        raise NotImplementedError

    def assumptions(self) -> tuple[str, ...]:
        raise NotImplementedError

    def noise(self, rounds: int, size: int) -> float:
        """The noise multiplier: as it was given, or the least that keeps the budget over all rounds."""
        if self.noise_multiplier is not None:
            return self.noise_multiplier
        return _calibrated(self, rounds, size)

    def claims(self, rounds: int, size: int) -> tuple[Claim, ...]:
        """What a run of so many rounds over so many parameters claims."""
        noise = self.noise(rounds, size)
        event = self.event(noise, rounds, size)
        grid_of(self, noise, size)  # refuses what whole numbers cannot hold
        return (Claim(game=Game(self.unit, self.view), event=event, assumptions=(*self.assumptions(), *PUBLIC)),)

    def asked(self, rounds: int, size: int) -> tuple[float, float] | None:
        """The (epsilon, delta) in whose terms a ledger shows the charge."""
        if self.epsilon is not None and self.delta is not None:
            return self.epsilon, self.delta
        if self.delta is None:
            return None
        return float(curve(self.event(self.noise(rounds, size), rounds, size)).epsilon(self.delta)), self.delta

    def _of(self, event: Event) -> Event:
        """The event for the unit's relation, where it is stated for units that are added, removed or blanked out."""
        return replaced(event) if self.unit.relation == "replace" else event


@lru_cache(maxsize=64)
def _calibrated(scheme: _Scheme, rounds: int, size: int) -> float:
    assert scheme.epsilon is not None
    assert scheme.delta is not None
    return float(calibrate(lambda noise: scheme.event(noise, rounds, size), scheme.epsilon, scheme.delta))


def client(name: str = "client", *, relation: str = "add_remove", key: str | None = None) -> Unit:
    """The unit is a client with all of its rows, however many.

    >>> str(client("hospital", key="hospital_id"))
    'one hospital (any number of rows, known by hospital_id), added or removed'
    """
    return Unit(name, relation, rows=None, key=key)


@dataclass(frozen=True, kw_only=True)
class Central(_Scheme):
    """A trusted server: DP-FedAvg, and with `bands` DP-FTRL by banded noise.

    Each client takes part in a round on its own with probability `rate`. Its whole update is clipped to `clip_norm`; the sum
    of those that answered, plus noise, is divided by `divisor`, a public number, such as `rate` times about how many clients
    there are. Empty rounds have noise too, and drop-outs leave the divisor as it is. With a `cap` a client of n rows counts as
    min(n, cap) / cap of a client; without, all count the same.

    With `bands` b each client belongs to one of b groups, drawn once, and group i may take part in rounds i, i + b, …; noise
    of one round is taken back in later ones. With rate x bands = 1 all of a group take part, and the claim needs no sampling:
    it holds whoever knows who took part when.

    >>> scheme = Central(unit=client(), clip_norm=1.0, rate=0.01, divisor=10, noise_multiplier=1.0, delta=1e-5)
    >>> f"{scheme.asked(100, 25_000)[0]:.3f}"
    '0.718'
    """

    rate: float
    divisor: float
    bands: int = 1
    cap: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        check.positive("divisor", self.divisor)
        check.whole("bands", self.bands)
        if self.cap is not None:
            check.whole("cap", self.cap)
        if not check.fraction("rate", self.rate) > 0 or self.share > 1:
            raise InvalidValue(
                f"rate must be above 0, and rate x bands at most 1, since a client takes part at most once in {self.bands} "
                f"rounds; got {self.rate:g} x {self.bands}."
            )

    @property
    def share(self) -> float:
        """Of its group that a round takes."""
        found = self.rate * self.bands
        return 1.0 if abs(found - 1) < 1e-9 else found

    def event(self, noise: float, rounds: int, size: int) -> Event:
        if self.bands > rounds:
            raise InvalidValue(f"bands must be at most the number of rounds, {rounds}; got {self.bands}.")
        once: Event = events.Gaussian(noise)
        if self.share < 1:
            once = events.Poisson(self.share, once)
        return self._of(events.Repeat(once, -(-rounds // self.bands)))

    def assumptions(self) -> tuple[str, ...]:
        taken = "Who took part, updates, losses" if self.share < 1 else "Updates, losses"
        return (f"{taken} and the key of the run were shown to nobody but the server, which draws the noise as stated.",)


@dataclass(frozen=True, kw_only=True)
class Local(_Scheme):
    """Each client clips its update to `clip_norm` and adds noise itself: nobody else is trusted.

    A client answers in at most `times` rounds (all of them unless told); the claim composes so many answers. Noise goes on
    every number, also where `Selective` would upload a few: which ones would tell of the rows.

    >>> Local(unit=client(relation="replace"), clip_norm=1.0, noise_multiplier=8.0, times=2).event(8.0, 100, 10)
    Repeat(event=Group(event=Gaussian(noise_multiplier=8.0), size=2), times=2)
    """

    times: int | None = None

    relations: ClassVar[tuple[str, ...]] = ("zero_out", "replace")
    view: ClassVar[frozenset[str]] = frozenset({"transcript", "updates"})

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.times is not None:
            check.whole("times", self.times)

    def event(self, noise: float, rounds: int, size: int) -> Event:
        once = events.Gaussian(noise)
        answers = min(self.times or rounds, rounds)
        return events.Repeat(events.Group(once, 2) if self.unit.relation == "replace" else once, answers)

    def assumptions(self) -> tuple[str, ...]:
        return ("The client clips and draws noise as stated, keeps its key to itself, and counts its answers.",)


@dataclass(frozen=True, kw_only=True)
class Distributed(_Scheme):
    """Each client adds part of the noise before a secure sum of whole numbers, of which the server learns the total alone.

    A sum is of at most `clients` updates, modulo 2^`bits`; clip norm, clients, noise and bits give the steps that updates are
    rounded to, such that nothing wraps around. The noise is calibrated to `honest` clients: any so many of those in a sum make
    all of it, so that as many others may drop out, lie, or tell the server their part. A round in which fewer answer is not
    opened. A client answers in at most `times` rounds.
    """

    clients: int
    honest: int
    bits: int = 32
    times: int | None = None

    relations: ClassVar[tuple[str, ...]] = ("zero_out", "replace")

    def __post_init__(self) -> None:
        super().__post_init__()
        check.whole("clients", self.clients, least=2)
        check.whole("honest", self.honest, most=self.clients)
        check.whole("bits", self.bits, least=8, most=62)
        if self.times is not None:
            check.whole("times", self.times)

    def radius(self, noise: float) -> int:
        """Steps in the clip norm: as many as fit."""
        widest = self.clients + DEVIATIONS * noise * math.sqrt(self.clients / self.honest)
        return min(math.floor((2 ** (self.bits - 1) - 1) / widest), WIDEST)

    def part(self, noise: float) -> int:
        """The standard deviation of one client's noise, in steps."""
        radius = self.radius(noise)
        part = math.isqrt(math.ceil(Fraction(noise) ** 2 * radius**2 / self.honest)) + 1
        if part < COARSEST:
            raise InvalidValue(
                f"{self.bits} bits leave {radius} steps in the clip norm, and {part} in the noise of one client; it takes at "
                f"least {COARSEST}. Use more bits."
            )
        return part

    def event(self, noise: float, rounds: int, size: int) -> Event:
        """Sums of discrete Gaussians (Kairouz, Liu and Steinke 2021): what one sum costs, composed."""
        part, radius = self.part(noise), self.radius(noise)
        apart = 10 * (self.honest - 1) * math.exp(-((math.pi * part) ** 2))
        loss = radius / (math.sqrt(self.honest) * part) + apart * math.sqrt(size)
        once: Event = events.Concentrated(loss**2 / 2 * (1 + 1e-12))
        answers = min(self.times or rounds, rounds)
        return events.Repeat(events.Group(once, 2) if self.unit.relation == "replace" else once, answers)

    def assumptions(self) -> tuple[str, ...]:
        return (
            f"In every sum that is opened, at least {self.honest} clients, not counting those that work with the server, "
            "clipped, rounded and drew noise as stated, and kept it to themselves.",
            "The sum is secure: the server learns its total modulo the agreed number, and nothing else of a single update.",
        )


@dataclass(frozen=True, kw_only=True)
class PrivateSGD(_Scheme):
    """A strategy: each client takes `steps` steps of private SGD on its own rows, and answers how its weights changed.

    In each step every row is taken on its own with probability `rate`, its gradient is clipped to `clip_norm` by itself, and
    the sum with noise is divided by `divisor`, a public number. The unit is a row: whoever sees every answer of every client
    is bounded. A client answers in at most `times` rounds.

    >>> from discreet.core import record
    >>> sgd = PrivateSGD(unit=record(), learning_rate=0.1, steps=20, rate=0.05, divisor=8, clip_norm=1.0, noise_multiplier=1.0)
    >>> sgd.event(1.0, 10, 100)
    Repeat(event=Poisson(rate=0.05, event=Gaussian(noise_multiplier=1.0)), times=200)
    """

    learning_rate: float
    steps: int
    rate: float
    divisor: float
    times: int | None = None
    server: Descent = field(default_factory=Descent)

    view: ClassVar[frozenset[str]] = frozenset({"transcript", "updates"})
    weighting: ClassVar[str] = "equal"

    def __post_init__(self) -> None:
        super().__post_init__()
        check.positive("learning_rate", self.learning_rate)
        check.positive("divisor", self.divisor)
        check.whole("steps", self.steps)
        if self.unit.rows != 1:
            raise InvalidValue(f"PrivateSGD clips the gradient of each row, so its unit must be one row; got {self.unit}.")
        if not check.fraction("rate", self.rate) > 0:
            raise InvalidValue("rate must be above 0: the probability with which a step takes each row; got 0.")
        if self.times is not None:
            check.whole("times", self.times)
        if not isinstance(self.server, Descent):
            raise InvalidValue(f"server must be Descent(), Momentum() or Adam(); got {check.shown(self.server)}.")

    def event(self, noise: float, rounds: int, size: int) -> Event:
        once = events.Poisson(self.rate, events.Gaussian(noise))
        return self._of(events.Repeat(once, self.steps * min(self.times or rounds, rounds)))

    def assumptions(self) -> tuple[str, ...]:
        return (
            "The client samples, clips and draws noise as stated, keeps its key to itself, and counts its answers.",
            "The gradient of one row does not depend on others: model and loss keep nothing of a row outside of the module.",
        )


Privacy = Central | Local | Distributed


def grid_of(scheme: Any, noise: float, size: int) -> VectorGrid:
    """Vectors of whole numbers whose length is at most the clip norm."""
    if noise >= NOISIEST:
        raise InvalidValue(
            f"Noise of {noise:.3g} clip norms does not fit whole numbers of 64 bits; it must be below {NOISIEST}."
        )
    if not isinstance(scheme, Distributed):
        return VectorGrid(clip_norm=scheme.clip_norm, noise_multiplier=noise, size=size)
    radius = scheme.radius(noise)
    if radius**2 < 256 * size:
        raise InvalidValue(
            f"{scheme.bits} bits leave {radius} steps in the clip norm; {size} parameters need 16 x their square root, or "
            "most of an update would be rounded away. Use more bits."
        )
    return VectorGrid(clip_norm=scheme.clip_norm, noise_multiplier=noise, size=size, radius=radius)


def whole_matrix(matrix: Any) -> Any:
    """The matrix of correlated noise in whole numbers of 1 / FINE, each rounded towards zero: no column gets longer."""
    return np.trunc(np.asarray(matrix) * FINE).astype(np.int64)
