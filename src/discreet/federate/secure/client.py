"""A client of a secure sum: four messages, each once, in this order.

1. `keys()`: two fresh public keys and a commitment to its own mask.
2. `shares(others)`: shares of its own mask's seed and of one secret key, each sealed for one neighbour.
3. `masked(delivery, values)`: its numbers, plus its own mask, plus or minus a mask with each neighbour that sealed shares.
4. `answer(question)`: for each neighbour one share: of its own mask where it stayed, of its secret key where it dropped out.

It answers one question only, and never about both secrets of a neighbour.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import secrets
import struct
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305

from discreet.core import check
from discreet.errors import InvalidDocument, InvalidValue, ProtocolError
from discreet.federate.secure import messages, shamir
from discreet.federate.secure.masks import add_mask, agreed
from discreet.federate.secure.plan import SecureSum, too_few

if TYPE_CHECKING:
    from discreet.federate.secure.messages import Identity

STEPS = ("keys", "shares", "masked", "answer")
SEALED = 2 * shamir.WIDTH + 16
NONCE = bytes(12)  # of a key that seals one message
OWN, KEY = 0, 1  # the two secrets of a client: the seed of its own mask, the secret key of its masks with others


class SumClient:
    """One client in one round. It holds secrets: it is neither pickled nor copied."""

    def __init__(self, plan: SecureSum, number: int, identity: Identity, roster: Sequence[bytes], *, round: int) -> None:
        self.plan, self.number = plan, check.whole("number", number, least=0, most=plan.clients - 1)
        self._session, self._roster, self._identity = plan.session(roster, round), list(roster), identity
        if roster[number] != identity.public:
            raise InvalidValue(
                f"The roster has another key for client {number}. Has it the right number, and the right roster?"
            )
        self._neighbours = plan.graph[number]
        self._seal, self._pair = X25519PrivateKey.generate(), X25519PrivateKey.generate()
        self._own = secrets.randbelow(shamir.PRIME)
        self._keys: dict[int, tuple[bytes, bytes]] = {}  # of neighbours: the public keys for seals and for masks
        self._held: dict[int, tuple[bytes, bytes]] = {}  # shares of neighbours: of their own masks and of their keys
        self._seals: dict[bytes, bytes] = {}  # what is agreed with the holder of a public key
        self._done = 0

    def keys(self) -> bytes:
        """The first message: public keys for sealing and for masks, and a commitment to the seed of its own mask."""
        self._begin(0)
        own = [self._seal.public_key().public_bytes_raw(), self._pair.public_key().public_bytes_raw(), commitment(self._own)]
        return self._end(messages.KEYS, b"".join(own))

    def shares(self, others: bytes) -> bytes:
        """The second message, after the keys of others: for each neighbour, a share of both secrets that it alone can read."""
        self._begin(1)
        body = self._read(others, messages.OTHERS)
        found: dict[int, tuple[bytes, bytes]] = {}
        for record in messages.cut(body, messages.HEADER.size + 96 + messages.SIGNATURE, "The list of keys"):
            sender, keys = messages.verified(bytes(record), messages.KEYS, self._session, self._roster)
            if sender not in self._neighbours or sender in found:
                raise ProtocolError(f"Client {sender} is no neighbour of client {self.number}, or its keys came twice.")
            found[sender] = (bytes(keys[:32]), bytes(keys[32:64]))
        if len(found) < self.plan.threshold:
            raise too_few(f"Neighbours of client {self.number} that sent keys", len(found), self.plan.threshold)
        places = [self._neighbours.index(other) + 1 for other in found]
        key = int.from_bytes(self._pair.private_bytes_raw(), "little") & CLAMP | BIT
        own, of_key = (shamir.split(secret, self.plan.threshold, places) for secret in (self._own, key))
        sealed = []
        for (other, (seal, _)), one, two in zip(found.items(), own, of_key):
            text = one.to_bytes(shamir.WIDTH, "little") + two.to_bytes(shamir.WIDTH, "little")
            sealed.append(struct.pack("<I", other) + self._cipher(seal, self.number, other).encrypt(NONCE, text, None))
        self._keys = found
        return self._end(messages.SHARES, b"".join(sealed))

    def masked(self, delivery: bytes, values: Any) -> bytes:
        """The third message, after the shares of others: the numbers, masked."""
        self._begin(2)
        body, held = self._read(delivery, messages.DELIVERY), {}
        for record in messages.cut(body, 4 + SEALED, "The delivery"):
            sender = int.from_bytes(record[:4], "little")
            if sender not in self._keys or sender in held:
                raise ProtocolError(f"Shares of client {sender} came twice, or without its keys. They are refused.")
            try:
                text = self._cipher(self._keys[sender][0], sender, self.number).decrypt(NONCE, bytes(record[4:]), None)
            except InvalidTag:
                raise InvalidDocument(f"The shares that client {sender} sealed were changed on their way. Refused.") from None
            held[sender] = (text[: shamir.WIDTH], text[shamir.WIDTH :])
        if len(held) < self.plan.threshold:
            raise too_few(f"Neighbours of client {self.number} that sent shares", len(held), self.plan.threshold)
        total = self.plan.encoded(values).astype(f"<u{self.plan.width // 8}")  # modulo 2^width
        add_mask(total, own_mask(self._own, self._session))
        for other in held:
            pair = agreed(self._pair, self._keys[other][1], pair_use(self._session, self.number, other))
            add_mask(total, pair, minus=other < self.number)
        self._held = held
        return self._end(messages.MASKED, total.tobytes())

    def answer(self, question: bytes) -> bytes:
        """The fourth message, after the server said who stayed: one share for each neighbour, and never a second answer."""
        self._begin(3)
        body = self._read(question, messages.SURVIVORS)
        records = messages.cut(body, 5, "The question")
        asked = [(int.from_bytes(record[:4], "little"), record[4]) for record in records]
        clients = [client for client, _ in asked]
        if len(set(clients)) != len(clients):
            twice = next(client for client in clients if clients.count(client) > 1)
            raise ProtocolError(
                f"The server asks for two shares of client {twice}. With both its numbers would be open: nothing is answered, "
                "and the round should not be repeated with this server."
            )
        unknown = [client for client, which in asked if client not in self._held or which not in (OWN, KEY)]
        if unknown:
            raise ProtocolError(f"The server asks for a share of client {unknown[0]} that client {self.number} does not hold.")
        stayed = sum(which == OWN for _, which in asked)
        if stayed < self.plan.threshold:
            raise too_few(f"Neighbours of client {self.number} that are said to have stayed", stayed, self.plan.threshold)
        shares = [struct.pack("<I", client) + bytes([which]) + self._held[client][which] for client, which in asked]
        self._held, self._own = {}, 0  # whatever comes later, there is nothing left to tell
        return self._end(messages.ANSWER, b"".join(shares))

    def to_bytes(self) -> bytes:
        """Its secrets between two messages, for a client that is another process at the next one.

        They stay with the client, and the last ones alone are kept: what answers from older ones may answer twice.
        """
        pairs = {name: {str(other): [one.hex(), two.hex()] for other, (one, two) in known.items()}
                 for name, known in (("keys", self._keys), ("held", self._held))}  # fmt: skip
        secret = {"seal": self._seal.private_bytes_raw().hex(), "pair": self._pair.private_bytes_raw().hex()}
        return json.dumps({"session": self._session.hex(), "done": self._done, "own": self._own, **secret, **pairs}).encode()

    @classmethod
    def from_bytes(
        cls, kept: bytes, plan: SecureSum, number: int, identity: Identity, roster: Sequence[bytes], *, round: int
    ) -> SumClient:  # fmt: skip
        """The client of this round as it was when `to_bytes` was called."""
        own = cls(plan, number, identity, roster, round=round)
        try:
            found = json.loads(kept)
            session, own._done, own._own = found["session"], int(found["done"]), int(found["own"])
            secret = (bytes.fromhex(found[name]) for name in ("seal", "pair"))
            own._seal, own._pair = (X25519PrivateKey.from_private_bytes(each) for each in secret)
            own._keys, own._held = (
                {int(other): (bytes.fromhex(one), bytes.fromhex(two)) for other, (one, two) in found[name].items()}
                for name in ("keys", "held")
            )
        except (ValueError, KeyError, TypeError):
            raise InvalidDocument("This is no state of a client of a secure sum, as SumClient.to_bytes wrote it.") from None
        if session != own._session.hex():
            raise ProtocolError("The state that was kept is of another round, plan or roster: it is not continued.")
        return own

    def _begin(self, step: int) -> None:
        if step != self._done:
            said = f"it has sent {STEPS[step]} already" if step < self._done else f"{STEPS[self._done]} comes first"
            raise ProtocolError(f"Client {self.number} sends each message once, in the order {', '.join(STEPS)}: {said}.")

    def _end(self, kind: int, body: bytes) -> bytes:
        self._done += 1
        return messages.signed(self._identity, kind, self._session, self.number, body)

    def _read(self, message: bytes, kind: int) -> memoryview:
        number, body = messages.read(message, kind, self._session)
        if number != self.number:
            raise ProtocolError(f"This message is for client {number}; this is client {self.number}.")
        return body

    def _cipher(self, public: bytes, sender: int, receiver: int) -> ChaCha20Poly1305:
        """What seals shares from one client for another: both directions follow from one agreement, each has its own key."""
        if public not in self._seals:
            self._seals[public] = agreed(self._seal, public, b"seal" + self._session)
        use = b"direction" + struct.pack("<II", sender, receiver)
        return ChaCha20Poly1305(hmac.digest(self._seals[public], use, "sha256"))

    def __repr__(self) -> str:
        return f"<SumClient {self.number}>"

    def __reduce__(self) -> NoReturn:
        raise InvalidValue("A SumClient holds secrets: it is not pickled or copied. Send what its methods return.")


CLAMP, BIT = (1 << 255) - 8, 1 << 254  # what X25519 makes of any 32 bytes, so that a secret key has one form, below 2^255


def commitment(own: int) -> bytes:
    return hashlib.sha256(b"own mask" + own.to_bytes(32, "little")).digest()


def own_mask(own: int, at: bytes) -> bytes:
    """The key of a client's own mask."""
    return hashlib.sha256(b"key of own mask" + at + own.to_bytes(32, "little")).digest()


def pair_use(at: bytes, one: int, two: int) -> bytes:
    return b"mask" + at + struct.pack("<II", *sorted((one, two)))


def as_words(body: memoryview, plan: SecureSum) -> np.ndarray[Any, Any]:
    """The masked numbers of a message."""
    if 8 * len(body) != plan.size * plan.width:
        raise InvalidDocument(f"Masked numbers take {plan.size * plan.width // 8} bytes by the plan; {len(body)} came.")
    return np.frombuffer(body, f"<u{plan.width // 8}")
