"""The server of a secure sum: it passes messages on, adds masked numbers, and takes the masks off the sum.

Stages: "keys", "shares", "masked", "answers". In each, `receive` takes the messages of clients as they come, and `proceed`
ends the stage: whoever has not sent by then has dropped out, and what comes late is refused. It gives what to send to whom.

Of each client the server asks the neighbours for one secret: of those that stayed, the seed of the own mask; of those that
sent shares and no numbers, the key of the masks with others.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from numpy.typing import NDArray

from discreet.errors import InvalidDocument, ProtocolError
from discreet.federate.secure import messages, shamir
from discreet.federate.secure.client import KEY, OWN, SEALED, as_words, commitment, own_mask, pair_use
from discreet.federate.secure.masks import add_mask, agreed
from discreet.federate.secure.plan import too_few

if TYPE_CHECKING:
    from discreet.federate.secure.plan import SecureSum

STAGES = ("keys", "shares", "masked", "answers", "done")
KINDS = (messages.KEYS, messages.SHARES, messages.MASKED, messages.ANSWER)


class SumServer:
    """The server in one round. It keeps one sum, not the numbers of each client."""

    def __init__(self, plan: SecureSum, roster: Sequence[bytes], *, round: int) -> None:
        self.plan, self._roster, self._session = plan, list(roster), plan.session(roster, round)
        self._neighbours = [set(others) for others in plan.graph]
        self._stage = 0
        self._keys: dict[int, bytes] = {}  # the signed messages, to be passed on
        self._sealed: dict[int, dict[int, bytes]] = {}  # by sender, then receiver
        self._stayed: set[int] = set()
        self._answers: dict[int, dict[int, bytes]] = {}  # by whose secret it is, then by who answered
        self._answered: set[int] = set()
        self._total: NDArray[Any] = np.zeros(plan.size, f"<u{plan.width // 8}")

    @property
    def stage(self) -> str:
        """Which messages are taken now."""
        return STAGES[self._stage]

    def receive(self, message: bytes) -> int:
        """Take the message of a client; the number of the client. A refused message changes nothing."""
        if self.stage == "done":
            raise ProtocolError("The round is over; its sum was opened. A new round has another number and new keys.")
        kind = messages.kind_of(message)
        if kind in KINDS and KINDS.index(kind) < self._stage:
            client, _ = messages.verified(message, kind, self._session, self._roster)
            raise ProtocolError(
                f"{STAGES[KINDS.index(kind)]} of client {client} came twice or too late; {self.stage} are taken now. Refused."
            )
        client, body = messages.verified(message, KINDS[self._stage], self._session, self._roster)
        if client in (self._keys, self._sealed, self._stayed, self._answered)[self._stage]:
            raise ProtocolError(f"Client {client} has sent its {self.stage} already; the second message is refused.")
        (self._take_keys, self._take_shares, self._take_masked, self._take_answer)[self._stage](client, message, body)
        return client

    def proceed(self) -> dict[int, bytes]:
        """End the stage; what to send to each client that is still there."""
        if self.stage in ("answers", "done"):
            raise ProtocolError(f"After {self.stage} nothing is sent to clients; total() opens the sum.")
        answers = (self._others, self._delivery, self._question)[self._stage]()
        self._stage += 1
        return answers

    def total(self) -> tuple[NDArray[np.int64], list[int]]:
        """The sum of the numbers of those that stayed, in steps, and who they are. It is opened once."""
        if self.stage != "answers":
            raise ProtocolError(f"The sum is opened once, when answers are there; the stage is {self.stage}.")
        dropped = {client for client in self._sealed if client not in self._stayed}
        own = {client: self._opened(client, OWN) for client in sorted(self._stayed)}
        keys = {client: self._opened(client, KEY) for client in sorted(dropped) if self._partners(client)}
        self._stage += 1
        for secret in own.values():
            add_mask(self._total, own_mask(secret, self._session), minus=True)
        for client, scalar in keys.items():
            key = X25519PrivateKey.from_private_bytes(scalar.to_bytes(32, "little"))
            for other in self._partners(client):
                pair = agreed(key, self._public(other), pair_use(self._session, client, other))
                add_mask(self._total, pair, minus=other < client)  # the other added it where it is the smaller number
        signed = self._total.view(f"<i{self.plan.width // 8}").astype(np.int64)
        return signed, sorted(self._stayed)

    # ---- what comes in ---------------------------------------------------------------------------------------------------

    def _take_keys(self, client: int, message: bytes, body: memoryview) -> None:
        if len(body) != 96:
            raise InvalidDocument(f"The keys of client {client} take 96 bytes; {len(body)} came. Refused.")
        self._keys[client] = bytes(message)

    def _take_shares(self, client: int, _: bytes, body: memoryview) -> None:
        expected = self._neighbours[client] & set(self._sent)
        records = messages.cut(body, 4 + SEALED, f"The shares of client {client}")
        found = {int.from_bytes(record[:4], "little"): bytes(record[4:]) for record in records}
        if client not in self._sent or set(found) != expected or len(found) != len(records):
            raise InvalidDocument(f"The shares of client {client} are not one for each neighbour that it was told of. Refused.")
        self._sealed[client] = found

    def _take_masked(self, client: int, _: bytes, body: memoryview) -> None:
        if client not in self._sent:
            raise ProtocolError(f"Client {client} dropped out before; its numbers are refused.")
        np.add(self._total, as_words(body, self.plan), out=self._total)
        self._stayed.add(client)

    def _take_answer(self, client: int, _: bytes, body: memoryview) -> None:
        records = messages.cut(body, 5 + shamir.WIDTH, f"The answer of client {client}")
        found = [(int.from_bytes(record[:4], "little"), record[4], bytes(record[5:])) for record in records]
        if client not in self._stayed or [record[:2] for record in found] != self._asked(client):
            raise InvalidDocument(f"The answer of client {client} is not to what it was asked. Refused.")
        for whose, _which, share in found:
            self._answers.setdefault(whose, {})[client] = share
        self._answered.add(client)

    # ---- what goes out ---------------------------------------------------------------------------------------------------

    def _others(self) -> dict[int, bytes]:
        self._sent = self._enough(self._keys, "Clients that sent keys")
        return {
            client: self._message(messages.OTHERS, client, (self._keys[other] for other in self._around(client, self._sent)))
            for client in self._sent
        }

    def _delivery(self) -> dict[int, bytes]:
        self._sent = self._enough(self._sealed, "Clients that sent shares")
        self._sealed = {client: self._sealed[client] for client in self._sent}
        return {
            client: self._message(
                messages.DELIVERY, client,
                (struct.pack("<I", other) + self._sealed[other][client] for other in self._around(client, self._sent)),
            )
            for client in self._sent
        }  # fmt: skip

    def _question(self) -> dict[int, bytes]:
        for client in self._sealed:
            left = len(self._partners(client))
            if left < self.plan.threshold and (left or client in self._stayed):
                raise too_few(f"Neighbours of client {client} that sent their numbers", left, self.plan.threshold)
        if not self._stayed:
            raise too_few("Clients that sent their numbers", 0, self.plan.threshold + 1)
        return {
            client: self._message(messages.SURVIVORS, client, (struct.pack("<IB", *pair) for pair in self._asked(client)))
            for client in sorted(self._stayed)
        }

    def _enough(self, there: Iterable[int], who: str) -> list[int]:
        """Those with enough neighbours among themselves."""
        left = set(there)
        while few := {client for client in left if len(self._neighbours[client] & left) < self.plan.threshold}:
            left -= few
        if not left:
            raise too_few(f"{who}, with their neighbours", len(list(there)), self.plan.threshold + 1)
        return sorted(left)

    def _around(self, client: int, there: Iterable[int]) -> list[int]:
        return sorted(self._neighbours[client].intersection(there))

    def _partners(self, client: int) -> list[int]:
        """The neighbours that stayed: those whose numbers hold a mask with this client, and who can answer for it."""
        return self._around(client, self._stayed)

    def _asked(self, client: int) -> list[tuple[int, int]]:
        return [(other, OWN if other in self._stayed else KEY) for other in self._around(client, self._sealed)]

    def _message(self, kind: int, client: int, parts: Iterable[bytes]) -> bytes:
        return messages.write(kind, self._session, client, b"".join(parts))

    def _opened(self, client: int, which: int) -> int:
        """A secret of a client from the shares of its neighbours, checked against what it announced."""
        answers, needed = self._answers.get(client, {}), self.plan.threshold
        if len(answers) < needed:
            raise too_few(f"Shares of client {client} that its neighbours answered", len(answers), needed)
        index = {other: place + 1 for place, other in enumerate(self.plan.graph[client])}
        shares = {index[other]: int.from_bytes(answers[other], "little") for other in sorted(answers)[:needed]}
        secret = shamir.join(shares)
        body = self._keys[client][messages.HEADER.size :]
        if which == OWN:
            fits = commitment(secret) == body[64:96]
        else:
            fits = secret < 1 << 255 and _public_of(secret) == self._public(client)
        if not fits:
            raise ProtocolError(f"The shares of client {client} do not give what it announced: somebody sent wrong ones.")
        return secret

    def _public(self, client: int) -> bytes:
        return self._keys[client][messages.HEADER.size + 32 : messages.HEADER.size + 64]


def _public_of(secret: int) -> bytes:
    return X25519PrivateKey.from_private_bytes(secret.to_bytes(32, "little")).public_key().public_bytes_raw()
