"""Encrypted sums for federated learning: clients encrypt, a server adds ciphertexts and noise, a key holder sees the noisy sum.

Whole numbers under BFV, so that the sum is exact and its sensitivity that of the integers. **Who sees what.** Clients and
server hold the public key alone; the server sees ciphertexts; the key holder sees the sum with noise that the server drew,
and nothing else, as long as the two do not work together. Anybody who writes rubbish spoils the sum: clients are trusted to
encrypt what `encrypt_update` does. Server and key holder *together* read every update: a key that
is shared among the clients, so that all must help to decrypt (threshold keys), or pairwise masks (a secure sum) take that
away, at the price of rounds and drop-outs; this module has neither. One key that all clients hold would be worse: the server
and any one client would read everything, which is why clients encrypt with the public key.
"""

from __future__ import annotations

import hashlib
import math
import secrets
import threading
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from discreet.core import Claim, Concentrated, Game, Release, Unit, check
from discreet.core.document import members
from discreet.crypto.container import is_name, pack, unpack
from discreet.crypto.disclosure import ciphertext_claim
from discreet.crypto.keys import PublicContext, SecretContext, keygen
from discreet.crypto.parameters import PURPOSES
from discreet.crypto.private import Once
from discreet.errors import InvalidDocument, InvalidValue
from discreet.ledger import LedgerLike, release
from discreet.noise import discrete_gaussian

__all__ = ["EncryptedSum", "SumMessage", "SumPlan", "SumServer", "decrypt_sum", "encrypt_update"]

Array = NDArray[np.float64]
Ints = NDArray[np.int64]
PARAMETERS = PURPOSES["sum"]
LARGEST = 1 << (PARAMETERS.scale_bits - 2)  # of a sum with its noise, in steps
DEVIATIONS = 12  # of noise that must fit


@dataclass(frozen=True, slots=True, kw_only=True)
class SumPlan:
    """The public side: how long updates are, what they are clipped and rounded to, how many may come, and the noise.

    `sigma` is the standard deviation of the noise on each coordinate of the sum.

    >>> plan = SumPlan(size=10, clients=100, clip_norm=1.0, granularity=2**-16, sigma=4.0)
    >>> plan.reach, plan.event
    (65536, Concentrated(rho=0.03125000000000001))
    """

    size: int
    clients: int
    clip_norm: float
    granularity: float
    sigma: float

    def __post_init__(self) -> None:
        check.whole("size", self.size, most=1 << 28)
        check.whole("clients", self.clients, most=1024)  # as many fresh ciphertexts leave room for the noise of BFV
        for name in ("clip_norm", "granularity", "sigma"):
            object.__setattr__(self, name, check.positive(name, getattr(self, name)))
        if self.reach < 1 or self.clients * self.reach + DEVIATIONS * self.steps > LARGEST:
            raise InvalidValue(
                f"Sums of {self.clients} updates of up to {self.clip_norm:g} in steps of {self.granularity:g}, with noise, "
                f"must lie between 1 and {LARGEST:,} steps. Choose another granularity."
            )

    @property
    def reach(self) -> int:
        """The largest l2 norm of an update, in steps."""
        return math.floor(Fraction(self.clip_norm) / Fraction(self.granularity))

    @property
    def steps(self) -> Fraction:
        """The standard deviation of the noise, in steps."""
        return Fraction(self.sigma) / Fraction(self.granularity)

    @property
    def event(self) -> Concentrated:
        """Blanking an update out moves the sum by at most `reach` in l2: rho = reach^2 / 2 sigma^2, rounded up."""
        return Concentrated(math.nextafter(float(Fraction(self.reach**2) / (2 * self.steps**2)), math.inf))

    def rounded(self, update: Any) -> Ints:
        """An update clipped to the norm and rounded towards zero: its norm in steps is at most `reach`, in exact arithmetic.

        An update with NaN or infinity counts as zeros: it changes one contribution, and stops no round.
        """
        try:
            values = np.asarray(update, np.float64)
        except (TypeError, ValueError):
            raise InvalidValue(f"The plan is for updates of {self.size} numbers; found something else.") from None
        if values.shape != (self.size,):
            raise InvalidValue(f"The plan is for updates of {self.size} numbers; found an array of shape {values.shape}.")
        largest = float(np.abs(values).max())
        if not 0 < largest < math.inf:
            return np.zeros(self.size, np.int64)
        norm = largest * float(np.linalg.norm(values / largest))
        shrunk = values * min(1.0, self.clip_norm / norm)
        steps = np.trunc(shrunk / self.granularity).astype(np.int64)
        while sum(int(step) ** 2 for step in steps[steps != 0]) > self.reach**2:  # floating point may have been a step too far
            steps -= np.sign(steps)
        return np.asarray(steps)

    def claims(self, unit: Unit) -> tuple[Claim, ...]:
        """One for the noisy sum and one for the ciphertexts."""
        if unit.relation != "zero_out" or unit.rows != 1:
            raise InvalidValue(
                "The unit must be one client's update, blanked out: the server sees who sends one, so that no claim about it "
                f'can be for clients that are added or removed. Write Unit("client", "zero_out", rows=1); got {unit}.'
            )
        kept = (
            f"every client sends one update, clipped to an l2 norm of {self.clip_norm!r} and rounded as SumPlan.rounded does; "
            "nobody sends one in its name, since ciphertexts can be changed by whoever passes them on",
            "the server drew the noise as stated, keeps it secret, and does not work together with the key holder",
            "the key holder decrypts the noisy sum alone, and does not look at the noise inside its ciphertexts",
        )
        return (
            Claim(game=Game(unit, {"aggregate"}), event=self.event, assumptions=kept),
            ciphertext_claim(PARAMETERS, unit),
        )


@dataclass(frozen=True, slots=True, eq=False)
class SumMessage:
    """An encrypted update, or (`what` is "sum") an encrypted noisy sum."""

    what: str
    key: str
    plan: SumPlan
    parts: tuple[bytes, ...] = field(repr=False)
    message: str = field(default_factory=lambda: secrets.token_hex(16))

    def to_bytes(self) -> bytes:
        header = {"what": self.what, "key": self.key, "message": self.message, "plan": asdict(self.plan)}
        return pack("sum", header, self.parts)

    @classmethod
    def from_bytes(cls, data: bytes, name: str = "The message") -> SumMessage:
        header, parts = unpack(data, "sum", name)
        found = members("sum message", header, required=("what", "key", "message", "plan"))
        names = ("size", "clients", "clip_norm", "granularity", "sigma")
        try:
            plan = SumPlan(**members("plan", found["plan"], required=names))
        except InvalidValue as error:
            raise InvalidDocument(f"The plan is not valid: {error}") from None
        if found["what"] not in ("update", "sum") or not is_name(found["key"]) or not is_name(found["message"]):
            raise InvalidDocument("The header of the message has values that discreet does not write.")
        if len(parts) != _count(plan):
            raise InvalidDocument(f"{len(parts)} ciphertexts do not hold {plan.size} numbers.")
        return cls(found["what"], found["key"], plan, tuple(parts), found["message"])

    def ciphertexts(self, what: str, context: PublicContext, plan: SumPlan) -> list[Any]:
        """The ciphertexts, after checking that they are of this kind, key and plan."""
        if self.what != what or self.plan != plan:
            raise InvalidValue(f"This message holds an encrypted {self.what} of {self.plan}; {what} of {plan} is needed.")
        if self.key != context.id:
            raise InvalidValue(
                f"These ciphertexts belong to key {self.key[:8]}, and the key here is {context.id[:8]}. Use keys of one keygen."
            )
        found = [context.cipher.from_bytes("Ciphertext", part) for part in self.parts]
        if any(item.size() != 2 or context.cipher.level(item) for item in found):
            raise InvalidDocument("A ciphertext has another form than fresh ones have. Encrypt the update again.")
        return found


def encrypt_update(public: PublicContext, plan: SumPlan, update: Any) -> SumMessage:
    """A client's update, clipped, rounded, and encrypted under the public key."""
    _for_sums(public)
    return SumMessage("update", public.id, plan, tuple(map(public.cipher.to_bytes, _encrypted(public, plan.rounded(update)))))


class SumServer:
    """Adds encrypted updates of one round, each message once, and then noise. It holds no secret key."""

    def __init__(self, public: PublicContext, plan: SumPlan) -> None:
        _for_sums(public)
        self.public, self.plan, self.messages = public, plan, 0
        self._seen: set[str] = set()
        self._total: list[Any] | None = _encrypted(public, np.zeros(plan.size, np.int64))
        self._once, self._lock = Once("noise"), threading.Lock()

    def add(self, update: SumMessage) -> None:
        found = update.ciphertexts("update", self.public, self.plan)  # all of it is read before any of it is added
        with self._lock:
            self._add(update, found)

    def _add(self, update: SumMessage, found: list[Any]) -> None:
        if self._total is None:
            raise InvalidValue("The sum of this round was given out already; open another SumServer for the next.")
        content = hashlib.sha256(b"".join(update.parts)).hexdigest()  # its name could be another on a replay
        if content in self._seen:
            raise InvalidValue("This update was added already: it is a replay. Each client encrypts a new one for each round.")
        if self.messages >= self.plan.clients:
            raise InvalidValue(f"The plan is for {self.plan.clients} updates, which are there; more could leave the range.")
        self._total = [self.public.cipher.add(*pair) for pair in zip(self._total, found, strict=True)]  # all parts, or none
        self._seen.add(content)
        self.messages += 1

    def noisy_sum(self) -> SumMessage:
        """The sum with noise, encrypted, once: two with different noise would give the noise away."""
        if not self._once.take("noise"):
            raise InvalidValue("The sum of this round was given out already; a second one with other noise would be averaged.")
        with self._lock:
            totals, self._total = self._total or [], None
        noise = np.asarray(discrete_gaussian(self.plan.steps, size=self.plan.size))
        for total, part in zip(totals, _encrypted(self.public, noise), strict=True):
            self.public.cipher.add_to(total, part)
        return SumMessage("sum", self.public.id, self.plan, tuple(map(self.public.cipher.to_bytes, totals)))


@dataclass(frozen=True, slots=True)
class EncryptedSum:
    """The mechanism as a whole, in one process: every update encrypted, added with noise, and the sum decrypted."""

    plan: SumPlan
    unit: Unit

    def claims(self) -> tuple[Claim, ...]:
        return self.plan.claims(self.unit)

    def run(self, data: Sequence[Any]) -> Array:
        secret, public = keygen("sum", features=1)
        server = SumServer(public, self.plan)
        for update in data:
            try:
                message = encrypt_update(public, self.plan, update)
            except InvalidValue:  # an error would tell of one client
                message = encrypt_update(public, self.plan, np.zeros(self.plan.size))
            server.add(message)
        return _decrypted(secret, self.plan, server.noisy_sum())


@dataclass(frozen=True, slots=True)
class _Decryption:
    secret: SecretContext
    plan: SumPlan
    unit: Unit

    def claims(self) -> tuple[Claim, ...]:
        return self.plan.claims(self.unit)

    def run(self, data: SumMessage) -> Array:
        return _decrypted(self.secret, self.plan, data)


def decrypt_sum(
    secret: SecretContext, total: SumMessage, *, plan: SumPlan, unit: Unit, source: str, ledger: LedgerLike | None
) -> Release[Array]:
    """The noisy sum as a release: a claim for the sum, from its noise, and one for the ciphertexts, from the scheme."""
    _for_sums(secret.public)
    total.ciphertexts("sum", secret.public, plan)  # refused before anything is charged
    return release(_Decryption(secret, plan, unit), total, source=source, ledger=ledger)


def _decrypted(secret: SecretContext, plan: SumPlan, total: SumMessage) -> Array:
    steps = np.concatenate([secret.whole(item) for item in total.ciphertexts("sum", secret.public, plan)])[: plan.size]
    return np.asarray(steps * plan.granularity)


def _encrypted(public: PublicContext, steps: Ints) -> list[Any]:
    slots = PARAMETERS.slots
    parts = [steps[start : start + slots] for start in range(0, len(steps), slots)]
    return [public.encrypt_plain(public.cipher.encode_whole(part)) for part in parts]


def _count(plan: SumPlan) -> int:
    return -(-plan.size // PARAMETERS.slots)


def _for_sums(context: PublicContext) -> None:
    if context.purpose != "sum":
        raise InvalidValue(f"These keys are for {context.purpose}; sums need keygen('sum', features=1).")
