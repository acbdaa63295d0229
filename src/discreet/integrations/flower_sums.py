"""Secure sums on a Flower cluster: a strategy that sees the sum of its clients' updates alone, and the client mod for it.

    plan = SecureSum(size=…, clients=10, clip=1.0, threshold=7, bits=24)
    strategy = SecureFedAvg(plan, roster, rounds=100, privacy=Distributed(…), source="people", ledger="ledger.db")
    app = ClientApp(mods=[SecureUpdates(plan, roster, who, privacy=Distributed(…))])

Each round takes four messages to a client: keys, shares, the masked update, an answer. With `Distributed` each client adds its
part of the noise before the sum, and the sum makes that claim; without, a secure sum hides who sent what and claims nothing.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from discreet.core import check
from discreet.errors import DiscreetError, InvalidValue, ProtocolError
from discreet.federate.noisy import shrunk
from discreet.federate.privacy import Distributed, grid_of
from discreet.federate.secure import Identity, SecureSum, SumClient
from discreet.federate.strategies import Descent
from discreet.integrations.flower import FLOWER, _Arrays, _need_flower, _only, _wait_for_nodes
from discreet.ledger.opening import LedgerLike
from discreet.noise.source import open_source
from discreet.noise.vectors import gaussian

if FLOWER:
    from flwr.app import ConfigRecord, Message, RecordDict

__all__ = ["SecureFedAvg", "SecureUpdates"]

RECORD = "discreet-secure-sum"
Who = Callable[[Any], tuple[int, Identity]]
log = logging.getLogger(__name__)


def _fitting(plan: SecureSum, privacy: Distributed | None) -> None:
    """Refuse a plan whose sums could be opened with less noise, or wrap around, where the claim says otherwise."""
    if privacy is None:
        return
    if not isinstance(privacy, Distributed):
        raise InvalidValue(f"privacy must be Distributed(…), whose noise clients add, or None; got {check.shown(privacy)}.")
    if plan.threshold + 1 < privacy.honest or plan.clients > privacy.clients or plan.bits < privacy.bits:
        raise InvalidValue(
            f"Distributed needs sums of {privacy.honest} to {privacy.clients} clients and {privacy.bits} bits: threshold at "
            f"least {privacy.honest - 1}, clients at most {privacy.clients}, bits at least {privacy.bits}. The plan has "
            f"threshold {plan.threshold}, clients {plan.clients} and bits {plan.bits}."
        )


class SecureFedAvg(_Arrays):
    """FedAvg whose server sees the sum of the updates alone; with `privacy` a release, charged before a message is sent.

    All clients of the roster are asked in every round. One that is late or gone drops out; a round with too few left changes
    nothing. All updates count the same. `plan.least_honest` says what a server could open that lies about who dropped out.
    """

    def __init__(
        self, plan: SecureSum, roster: Sequence[bytes], *, rounds: int, privacy: Distributed | None = None,
        source: str | None = None, ledger: LedgerLike | None = None, account: str | None = None, server: Descent | None = None,
        timeout: float = 600.0,
    ) -> None:  # fmt: skip
        self._prepare(rounds, server)
        _fitting(plan, privacy)
        if (source is None) != (privacy is None) or (privacy is None and ledger is not None):
            raise InvalidValue("With privacy, a run is a release of a source: give both, or neither; a ledger only with them.")
        if privacy is not None and privacy.times != self.rounds:
            raise InvalidValue(
                f"Clients of Distributed make noise for {privacy.times} answers (times); with {self.rounds} rounds it must be "
                "for as many."
            )
        plan.session(roster, 0)
        self.plan, self.roster, self.privacy = plan, list(roster), privacy
        self.source, self.ledger, self.account = None if source is None else check.word("source", source), ledger, account
        self.timeout = check.positive("timeout", timeout)

    def _begin(self, noise: float) -> None:
        if self._size != self.plan.size:
            raise InvalidValue(f"The plan is for {self.plan.size} numbers; the arrays hold {self._size}.")
        self._step = self.plan.step
        if self.privacy is not None:
            self._step = self.privacy.clip_norm / grid_of(self.privacy, noise, self._size).radius

    def configure_train(self, server_round: int, arrays: Any, config: Any, grid: Any) -> Iterable[Any]:
        """Keys and shares are exchanged here; what is sent then asks for the masked updates."""
        self._next(server_round)
        self._grid, self._sum = grid, self.plan.server(self.roster, round=server_round)
        self._nodes: dict[int, int] = {}  # of each client
        nodes = _wait_for_nodes(grid, self.plan.threshold + 1)
        config["server-round"] = server_round
        try:
            self._take(self._exchange(dict.fromkeys(nodes, b""), "keys", server_round))
            self._take(self._exchange(self._addressed(), "shares", server_round))
            return self._messages(self._addressed(), "masked", server_round, {"arrays": arrays, "config": config})
        except ProtocolError as error:
            log.warning("Round %d: %s", server_round, error)
            return []

    def aggregate_train(self, server_round: int, replies: Iterable[Any]) -> tuple[Any, Any]:
        """The weights after this round: the mean of those that stayed, or what they were where too few did."""
        self._next(server_round)
        self._done = server_round
        try:
            self._take(replies)
            self._take(self._exchange(self._addressed(), "answer", server_round))
            total, stayed = self._sum.total()
        except ProtocolError as error:
            log.warning("Round %d: %s", server_round, error)
            return self._record(self._weights), None
        mean = torch.from_numpy(total * (self._step / len(stayed)))
        self._weights = self.server.step(self._weights, mean, self._memory)
        return self._record(self._weights), None

    def _addressed(self) -> dict[int, bytes]:
        """What the server of the sum sends next, by node."""
        return {self._nodes[client]: body for client, body in self._sum.proceed().items()}

    def _messages(self, bodies: dict[int, bytes], step: str, server_round: int, more: Any = None) -> list[Any]:
        messages = []
        for node, body in bodies.items():
            record = ConfigRecord({"step": step, "round": server_round, "body": body})
            content = RecordDict({RECORD: record, **(more or {})})
            messages.append(Message(content=content, message_type="train", dst_node_id=node))
        return messages

    def _exchange(self, bodies: dict[int, bytes], step: str, server_round: int) -> Iterable[Any]:
        return self._grid.send_and_receive(self._messages(bodies, step, server_round), timeout=self.timeout)  # type: ignore[no-any-return]

    def _take(self, replies: Iterable[Any]) -> None:
        """Answers of this stage; a client whose message is refused drops out."""
        for reply in replies:
            if reply.has_error():
                continue
            try:
                client = self._sum.receive(bytes(reply.content.config_records[RECORD]["body"]))
                self._nodes.setdefault(client, reply.metadata.src_node_id)
            except (DiscreetError, ValueError, KeyError, TypeError) as error:
                log.warning("An answer of node %s is refused: %s", reply.metadata.src_node_id, type(error).__name__)


class SecureUpdates:
    """A client mod for `SecureFedAvg`: what the app learned goes into a secure sum, and nothing else leaves the client.

    `who(context)` gives the number of this client in the roster and its `Identity`, whose secret key lies with the client:

        def who(context):
            return context.node_config["number"], Identity.from_bytes(Path(context.node_config["key"]).read_bytes())

    With `privacy` the update is clipped and the client's part of the noise is added to it. A client takes part in each round
    once, in ascending order, and in `times` rounds at most. Secrets of a round lie in its state until it has answered.
    """

    def __init__(self, plan: SecureSum, roster: Sequence[bytes], who: Who, *, privacy: Distributed | None = None) -> None:
        _need_flower()
        _fitting(plan, privacy)
        if privacy is not None and privacy.times is None:
            raise InvalidValue("SecureUpdates needs Distributed(…) with times, the number of answers that its noise is for.")
        plan.session(roster, 0)
        self.plan, self.roster, self.who, self.privacy = plan, list(roster), who, privacy

    def __call__(self, message: Any, context: Any, call_next: Callable[[Any, Any], Any]) -> Any:
        request = message.content.config_records.get(RECORD)
        if request is None or message.metadata.message_type != "train":
            raise InvalidValue("SecureUpdates answers the messages of SecureFedAvg only; other answers would not be summed.")
        step, number, body = str(request["step"]), int(request["round"]), bytes(request["body"])
        party, answers = self._party(step, number, context)
        if step == "masked":
            answers += 1
            reply = party.masked(body, self._values(message, context, call_next))
        elif step in ("keys", "shares", "answer"):
            reply = party.keys() if step == "keys" else (party.shares if step == "shares" else party.answer)(body)
        else:
            raise ProtocolError(f"A round has the steps keys, shares, masked and answer; the server asks for {step!r}.")
        secrets = b"" if step == "answer" else party.to_bytes()
        context.state[RECORD] = ConfigRecord({"round": number, "answers": answers, "kept": secrets})
        return Message(RecordDict({RECORD: ConfigRecord({"body": reply})}), reply_to=message)

    def _party(self, step: str, number: int, context: Any) -> tuple[SumClient, int]:
        """This client in this round, and how many answers it has given."""
        known = context.state.config_records.get(RECORD, {"round": 0, "answers": 0, "kept": b""})
        own, identity = self.who(context)
        if step != "keys":
            if int(known["round"]) != number or not known["kept"]:
                raise ProtocolError(f"This client has no keys for round {number}; its last one was {known['round']}.")
            secrets = bytes(known["kept"])
            party = SumClient.from_bytes(secrets, self.plan, own, identity, self.roster, round=number)
            return party, int(known["answers"])
        if number <= int(known["round"]):
            raise ProtocolError(f"Round {number} was begun already: a client takes part once, or sums could be compared.")
        if self.privacy is not None and int(known["answers"]) >= (self.privacy.times or 0):
            raise ProtocolError(f"This client has given its {self.privacy.times} answers; its claim holds for no more.")
        return self.plan.client(own, identity, self.roster, round=number), int(known["answers"])

    def _values(self, message: Any, context: Any, call_next: Callable[[Any, Any], Any]) -> NDArray[Any]:
        """How the app changed the weights, in whole steps with noise where that is claimed; an app that fails: nothing."""
        before = [np.asarray(array) for array in _only(message).to_numpy_ndarrays()]
        flat = np.zeros(sum(array.size for array in before if array.dtype.kind == "f"))
        try:
            after = [np.asarray(array) for array in _only(call_next(message, context)).to_numpy_ndarrays()]
            if [array.shape for array in after] != [array.shape for array in before]:
                raise InvalidValue("The client's arrays have other shapes than those it was sent.")
            pairs = [(a, b) for a, b in zip(after, before) if b.dtype.kind == "f"]
            change = np.concatenate([(a.astype(np.float64) - b).ravel() for a, b in pairs])
            flat = change if np.isfinite(change).all() else flat
        except (Exception, SystemExit):  # what makes an app fail lies in its rows, and Flower tells the server of errors
            log.warning("This client's app gave no update of the model; no change is summed.", exc_info=True)
        if self.privacy is None:
            return flat
        noise = self.privacy.noise(self.privacy.times or 1, flat.size)
        whole = grid_of(self.privacy, noise, flat.size).rounded(shrunk(torch.from_numpy(flat), self.privacy.clip_norm, 1.0))
        return whole + gaussian(open_source().take(32), self.privacy.part(noise), flat.size, step=0)
