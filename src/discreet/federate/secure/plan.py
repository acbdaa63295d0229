"""What all parties of a secure sum agree on beforehand, and the sum as a whole in one process."""

from __future__ import annotations

import struct
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from discreet.core import check
from discreet.errors import InvalidValue, ProtocolError
from discreet.federate.secure.graph import GraphBounds, graph_bounds, ring
from discreet.federate.secure.messages import Identity, session

if TYPE_CHECKING:
    from torch import Tensor

    from discreet.federate.exchange import Exchange
    from discreet.federate.secure.client import SumClient
    from discreet.federate.secure.server import SumServer

Ints = NDArray[np.int64]
Values = Sequence[Any] | NDArray[Any] | Callable[[int], Any]
MOST_CLIENTS = 1 << 20


@dataclass(frozen=True, kw_only=True)
class SecureSum:
    """The plan of a secure sum: `size` numbers of each of `clients` clients, none larger than `clip`, in `bits` bits each.

    A number is rounded to the nearest of 2^bits - 1 steps from -clip to clip, and larger ones are clipped. Sums are of whole
    numbers and exact: the mean is off by half a step at most (`error`). Sums are taken modulo 2^16, 2^32 or 2^64, the least in
    which the sum of all clients fits (`modulus`).

    `threshold` is how many neighbours of a client must stay for its masks to be taken off, and how many must collude with the
    server to read its numbers, at the least 2 threshold - neighbours of them where the server also lies about who dropped
    out. Everybody is a neighbour of everybody, unless `neighbours` says how many; `seed` then draws the graph, and must be
    random and public, and drawn after it is settled who takes part (see `graph_bounds` and `sparse_graph`).

    It hides who contributed what, and not the sum. It gives no claim by itself.

    >>> plan = SecureSum(size=3, clients=4, clip=1.0, threshold=2, bits=12)
    >>> plan.modulus, plan.error
    (65536, 0.0002442598925256473)
    >>> plan.mean_of([[0.5, 0.0, -1.0]] * 4, dropped={2})
    array([ 0.50024426,  0.        , -1.        ])
    """

    size: int
    clients: int
    clip: float
    threshold: int
    bits: int = 20
    neighbours: int | None = None
    seed: bytes = b""

    def __post_init__(self) -> None:
        check.whole("size", self.size, most=1 << 32)
        check.whole("clients", self.clients, least=3, most=MOST_CLIENTS)
        object.__setattr__(self, "clip", check.positive("clip", self.clip))
        check.whole("bits", self.bits, least=2, most=32)
        most = self.clients - 1
        if self.neighbours is not None:
            check.whole("neighbours", self.neighbours, least=2, most=most)
            if self.neighbours < most and (self.neighbours % 2 or not isinstance(self.seed, bytes) or len(self.seed) < 16):
                raise InvalidValue(
                    "neighbours must be even, and seed at least 16 random public bytes from which the graph is drawn; got "
                    f"{self.neighbours} neighbours."
                )
        half = self.degree // 2 + 1
        if not half <= check.whole("threshold", self.threshold) <= self.degree:
            raise InvalidValue(
                f"threshold must be from {half} to {self.degree}: more than half of the {self.degree} neighbours, or a server "
                f"could ask half of them for one secret of a client and half for the other; got {self.threshold}."
            )

    @property
    def degree(self) -> int:
        """How many neighbours a client has."""
        return self.clients - 1 if self.neighbours is None else self.neighbours

    @property
    def reach(self) -> int:
        """The largest number, in steps."""
        return (1 << (self.bits - 1)) - 1

    @property
    def step(self) -> float:
        return self.clip / self.reach

    @property
    def error(self) -> float:
        """How far a number of the mean may be from the mean of what clients clipped: half a step, from rounding."""
        return self.step / 2

    @property
    def width(self) -> int:
        """Bits of a masked number."""
        needed = (2 * self.clients * self.reach + 1).bit_length()
        return next(bits for bits in (16, 32, 64) if needed <= bits)

    @property
    def modulus(self) -> int:
        return 1 << self.width

    @cached_property
    def graph(self) -> list[list[int]]:
        """The neighbours of each client."""
        return ring(self.clients, self.degree, self.seed)

    def bounds(self, *, colluding: int, dropped: int) -> GraphBounds:
        """How likely a round goes wrong with so many clients that collude with the server, and so many that drop out."""
        return graph_bounds(self.clients, self.degree, self.threshold, colluding=colluding, dropped=dropped)

    def least_honest(self, *, colluding: int) -> int:
        """How many honest clients are in any sum that the server can open, even if it tells each client another story.

        Counted for a graph of everybody with everybody. An honest client counts at most degree - threshold neighbours as
        dropped; so many that a client stands alone needs threshold - colluding such votes for each. With fewer neighbours a
        server that lies about who dropped out could take a ring apart, and nothing is said: 0.
        """
        honest, left = self.clients - colluding, self.threshold - check.whole("colluding", colluding, least=0)
        if self.degree < self.clients - 1 or 2 * self.threshold <= self.degree + colluding:
            return 0
        return max(0, left + 1 - honest * (self.degree - self.threshold) // left)

    def session(self, roster: Sequence[bytes], number: int) -> bytes:
        """A digest of this plan, of who takes part and of the number of the round."""
        if len(roster) != self.clients or len(set(roster)) != len(roster) or any(len(key) != 32 for key in roster):
            raise InvalidValue(
                f"The roster must hold the public keys of {self.clients} clients, each once, 32 bytes long; got {len(roster)}."
            )
        number = check.whole("round", number, least=0)
        packed = struct.pack("<QIdIII", self.size, self.clients, self.clip, self.threshold, self.bits, self.degree) + self.seed
        return session(packed, roster, number)

    def client(self, number: int, identity: Identity, roster: Sequence[bytes], *, round: int) -> SumClient:
        """The client with this number, for one round."""
        from discreet.federate.secure.client import SumClient

        return SumClient(self, number, identity, roster, round=round)

    def server(self, roster: Sequence[bytes], *, round: int) -> SumServer:
        """The server, for one round."""
        from discreet.federate.secure.server import SumServer

        return SumServer(self, roster, round=round)

    def encoded(self, values: Any) -> Ints:
        """Numbers as whole steps; whole numbers are steps already. What is not finite, or too many steps, is refused."""
        array = np.asarray(values)
        if array.shape != (self.size,) or array.dtype.kind not in "iuf":
            raise InvalidValue(f"The plan is for {self.size} numbers; got shape {array.shape} of type {array.dtype}.")
        if array.dtype.kind != "f":
            if array.size and max(int(array.max()), -int(array.min())) > self.reach:
                raise InvalidValue(f"Whole numbers must be from {-self.reach} to {self.reach}, as {self.bits} bits hold.")
            return array.astype(np.int64)
        if not np.isfinite(array).all():
            raise InvalidValue("A client's numbers hold NaN or infinity. Nothing was sent; the client should drop out.")
        steps = np.multiply(array, 1 / self.step, dtype=np.float64)
        np.clip(steps, -self.reach, self.reach, out=steps)
        return np.rint(steps, out=steps).astype(np.int64)

    def total(self, values: Values, *, dropped: Collection[int] = ()) -> tuple[Ints, list[int]]:
        """A whole round in one process: the sum, in steps, and the clients that are in it.

        `values` holds the numbers of each client, or gives them by the client's number; `dropped` clients take part until they
        should send their numbers.
        """
        give = values if callable(values) else values.__getitem__
        identities = [Identity() for _ in range(self.clients)]
        roster = [identity.public for identity in identities]
        server = self.server(roster, round=0)
        parties = [self.client(number, identity, roster, round=0) for number, identity in enumerate(identities)]
        for party in parties:
            server.receive(party.keys())
        for number, message in server.proceed().items():
            server.receive(parties[number].shares(message))
        for number, message in server.proceed().items():
            if number not in dropped:
                server.receive(parties[number].masked(message, give(number)))
        for number, message in server.proceed().items():
            server.receive(parties[number].answer(message))
        return server.total()

    def mean_of(self, values: Values, *, dropped: Collection[int] = ()) -> NDArray[np.float64]:
        """The mean over the clients that stayed, by a whole round in one process."""
        total, stayed = self.total(values, dropped=dropped)
        return np.asarray(total * (self.step / len(stayed)))

    def rule(self, exchange: Exchange) -> Tensor:
        """For `simulate(rule=plan.rule)`: every round's mean by the protocol. Clients whose updates are rejected drop out."""
        import torch

        counted = exchange.weights > 0
        if len(exchange.clients) != self.clients:
            raise InvalidValue(f"The plan is for {self.clients} clients in a round; {len(exchange.clients)} took part.")
        if len(set(exchange.weights[counted].tolist())) > 1:
            raise InvalidValue('A secure sum counts every client alike: give the strategy weighting="equal".')
        updates = exchange.updates.cpu().numpy()
        mean = self.mean_of(updates, dropped=set(np.flatnonzero(~counted.cpu().numpy()).tolist()))
        return torch.as_tensor(mean, dtype=exchange.updates.dtype, device=exchange.updates.device)


def too_few(stage: str, found: int, needed: int) -> ProtocolError:
    """What is raised where masks could not be taken off."""
    return ProtocolError(
        f"{stage}: {found} are left where {needed} are needed. Nothing can be opened; run a new round with those that answer."
    )
