"""Rounds of federated learning on one machine."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from discreet.core import Claim, Release, check
from discreet.core.facts import made
from discreet.errors import InvalidValue
from discreet.federate.canaries import ClientCanaries
from discreet.federate.checkpoint import Checkpoint
from discreet.federate.clients import Clients
from discreet.federate.exchange import Alter, Exchange, Rule, Send, Watch, mean
from discreet.federate.looped import Loss
from discreet.federate.noisy import runtime
from discreet.federate.privacy import Central, Distributed, Local, Privacy, PrivateSGD
from discreet.federate.rounds import Rounds
from discreet.federate.strategies import FedAvg, FedSGD, Selective, Strategy
from discreet.ledger import open_charge
from discreet.ledger.opening import LedgerLike, opened
from discreet.noise import refuse_seeded
from discreet.noise.source import open_source

Progress = Callable[[int, int], None]
Evaluate = Callable[[nn.Module], Any]


@dataclass
class Simulation:
    """What came of it: the model, for each round who answered, by numbers only, and where the run is private the release.

    Under `Central` the history does not tell how many took part, which is private.
    """

    model: nn.Module
    history: list[dict[str, Any]]
    release: Release[nn.Module] | None = None


def simulate(
    model: nn.Module, clients: Clients, loss: Loss, *, strategy: Strategy | PrivateSGD, rounds: int,
    per_round: int | None = None, privacy: Privacy | None = None, ledger: LedgerLike | None = None, source: str | None = None,
    account: str | None = None, seed: int = 0, rule: Rule = mean, alter: Alter | None = None, send: Send | None = None,
    watch: Watch | None = None, evaluate: Evaluate | None = None, progress: Progress | None = None,
    checkpoint: str | Path | None = None, canaries: int | None = None, device: str = "cpu",
) -> Simulation:  # fmt: skip
    """Train a copy of `model` over `rounds` rounds with `per_round` clients each (all of them unless told).

    `loss(model(inputs), targets)` gives one number for each row. `evaluate(model)` is called after each round, and what it
    gives is in the history. For `rule`, `alter`, `send` and `watch` see `Exchange`. With `privacy` (or the strategy
    `PrivateSGD`) the model is a release of `source`, charged to `ledger` before the first row is read. Each finished round is
    kept in `checkpoint`, before anything of it is shown; a second call with the same arguments goes on from there, at no cost.
    `canaries` adds so many made-up clients, each by a fair coin, whose evidence about the claim is in the release.

    >>> from discreet.federate import FedAvg
    >>> torch.manual_seed(0); inputs = torch.randn(60, 4)
    <torch._C.Generator object at ...>
    >>> clients = Clients.evenly(inputs, (inputs[:, 0] > 0).long(), clients=6, seed=0)
    >>> done = simulate(nn.Linear(4, 2), clients, nn.CrossEntropyLoss(reduction="none"), strategy=FedAvg(learning_rate=0.5),
    ...                 rounds=10, per_round=3)
    >>> float((done.model(inputs).argmax(1) == (inputs[:, 0] > 0)).float().mean()) > 0.9
    True
    """
    training = Training(
        model, loss, strategy=strategy, rounds=rounds, per_round=per_round, privacy=privacy, seed=seed, rule=rule, alter=alter,
        send=send, canaries=canaries, device=device,
    )  # fmt: skip
    known = _clients(clients)
    training.fits(len(known))
    kept = None if checkpoint is None else Checkpoint(Path(checkpoint), training.document(len(known)))
    hooks = _Hooks(watch, evaluate, progress)
    if training.scheme is None:
        if ledger is not None or source is not None:
            raise InvalidValue(
                "Without privacy nothing is claimed, and there is nothing to charge. Give privacy=, or no ledger."
            )
        run = training._rounds(known, b"", kept, hooks, None)
        return Simulation(run.model(), run.history)
    if source is None:
        raise InvalidValue("A private run is a release of some source of data: name it by source=, as its ledger does.")
    refuse_seeded()
    check.word("source", source)
    run, entry = _paid(training, known, kept, hooks, ledger, source, account)
    trained = run.model()
    facts = {"title": "Federated model", "federated": training.facts(), "made": made()}
    claims = training.claims()
    evidence = () if run.canaries is None else run.canaries.evidence(claims)
    release = Release(value=trained, source=source, claims=claims, entry=entry, evidence=evidence, facts=facts)
    return Simulation(trained, run.history, release)


def _paid(
    training: Training, clients: Clients, kept: Checkpoint | None, hooks: _Hooks, ledger: LedgerLike | None, source: str,
    account: str | None,
) -> tuple[Rounds, str | None]:  # fmt: skip
    """Charge, then run; a run that goes on from a checkpoint was charged when it began."""
    if kept is not None and kept.exists():
        key, entry = kept.paid()
        run = training._rounds(clients, key, kept, hooks, entry)
        if entry is not None and ledger is not None:
            with opened(ledger) as payer:
                payer.settle(entry)
        return run, entry
    if ledger is None:
        return training._rounds(clients, open_source().take(32), kept, hooks, None), None
    asked = training.scheme.asked(training.rounds, training.size)
    with opened(ledger) as payer:
        charge = open_charge(training.claims(), source=source, ledger=payer, account=account, asked=asked)
        with charge as entry:
            return training._rounds(clients, open_source().take(32), kept, hooks, entry), entry


@dataclass(frozen=True)
class _Hooks:
    """What is called when a round has ended."""

    watch: Watch | None = None
    evaluate: Evaluate | None = None
    progress: Progress | None = None


class Training:
    """Federated training as a mechanism for `discreet.audit`: its output is the transcript that its claim is about.

    That is the aggregate of every round, or where clients are to be bounded against the server, every answer. `simulate` says
    what the arguments mean.
    """

    def __init__(
        self, model: nn.Module, loss: Loss, *, strategy: Strategy | PrivateSGD, rounds: int, per_round: int | None = None,
        privacy: Privacy | None = None, seed: int = 0, rule: Rule = mean, alter: Alter | None = None, send: Send | None = None,
        canaries: int | None = None, device: str = "cpu",
    ) -> None:  # fmt: skip
        self.model, self.loss, self.strategy, self.privacy = model, loss, strategy, privacy
        self.rounds, self.seed = check.whole("rounds", rounds), check.whole("seed", seed, least=0)
        self.per_round = None if per_round is None else check.whole("per_round", per_round)
        self.rule, self.alter, self.send, self.canaries, self.device = rule, alter, send, canaries, device
        self.scheme: Any = _scheme(strategy, privacy)
        self.size = sum(p.numel() for p in model.parameters() if p.requires_grad)
        self._check()
        self._claims = () if self.scheme is None else self.scheme.claims(self.rounds, self.size)

    def _check(self) -> None:
        if not self.size:
            raise InvalidValue("The model has no trainable parameter.")
        weighting = self.strategy.weighting
        if self.scheme is not None and weighting == "rows":
            raise InvalidValue(
                'How many rows a client has is private: use weighting="equal", or Central(cap=…), which bounds what it changes.'
            )
        if self.canaries is not None:
            if self.privacy is None:
                raise InvalidValue("Client canaries test what a run claims about clients: give privacy=Central(…) or another.")
            if check.whole("canaries", self.canaries, least=10) > self.size:
                raise InvalidValue(
                    f"Each canary needs a parameter of its own: at most {self.size} canaries; got {self.canaries}."
                )
        if isinstance(self.privacy, Central):
            if self.per_round is not None:
                raise InvalidValue("Under Central clients are drawn by its rate, each on its own; per_round cannot be given.")
            if self.rule is not mean:
                raise InvalidValue("The mean is what Central claims for; how far one client moves another rule is not known.")
        if isinstance(self.privacy, Distributed) and self.rule is not mean:
            raise InvalidValue("The server of a secure sum sees no single update, so it can only take the mean.")

    def fits(self, clients: int) -> None:
        """Refuse a number of clients with which the plan cannot work, before anything is charged."""
        if self.per_round is not None:
            check.whole("per_round", self.per_round, most=clients)
        if isinstance(self.privacy, Distributed):
            least, most = self.privacy.honest, self.privacy.clients
            asked = clients + (self.canaries or 0) if self.per_round is None else self.per_round
            if not least <= asked <= most:
                raise InvalidValue(
                    f"Distributed opens sums of {least} to {most} clients (its honest and clients); {asked} are asked in a "
                    "round, so none would ever be opened. Change these, or per_round."
                )

    def claims(self) -> tuple[Claim, ...]:
        return self._claims

    def run(self, data: Clients) -> NDArray[np.float64]:
        """Train once, without a charge; what was seen."""
        seen: list[NDArray[np.float64]] = []
        every_answer = isinstance(self.scheme, Local | PrivateSGD)

        def watch(exchange: Exchange) -> None:
            shown = exchange.updates if every_answer else exchange.aggregate
            assert shown is not None
            seen.append(shown.double().cpu().numpy().copy())

        self.fits(len(_clients(data)))
        self._rounds(data, open_source().take(32), None, _Hooks(watch), None)
        return np.stack(seen)

    def facts(self) -> dict[str, Any]:
        """What a report tells of a run: public numbers only."""
        about: dict[str, Any] = {"strategy": type(self.strategy).__name__, "rounds": self.rounds, "parameters": self.size}
        if isinstance(self.privacy, Central):
            about["clients_per_round"] = f"about {self.privacy.divisor:g}, each drawn on its own"
        elif self.per_round is not None:
            about["clients_per_round"] = str(self.per_round)
        if self.scheme is not None:
            about |= {"privacy": type(self.scheme).__name__, "clip_norm": self.scheme.clip_norm}
            about["noise_multiplier"] = self.scheme.noise(self.rounds, self.size)
        if self.canaries is not None:
            about["canaries"] = f"{self.canaries} made-up clients, each there by a fair coin"
        return about

    def document(self, clients: int) -> dict[str, Any]:
        """What a checkpoint must agree with to be continued."""
        return {
            "claims": [claim.to_json() for claim in self._claims], "strategy": repr(self.strategy), "clients": clients,
            "privacy": repr(self.privacy), "rounds": self.rounds, "per_round": self.per_round, "seed": self.seed,
            "size": self.size, "canaries": self.canaries,
        }  # fmt: skip

    def _rounds(self, clients: Clients, key: bytes, kept: Checkpoint | None, hooks: _Hooks, entry: str | None) -> Rounds:
        """All rounds, those of the checkpoint left out."""
        place = torch.device(self.device)
        own = copy.deepcopy(self.model).to(place)
        scheme = None
        if self.scheme is not None:
            scheme = runtime(self.scheme, self.rounds, key, own, self.loss, place, self.size)
        planted = None
        if self.canaries is not None:
            planted = ClientCanaries(self.canaries, self.scheme, self.rounds, self.size, clients, key)
            clients = planted.among(clients)
        rounds = Rounds(own, clients, self.loss, self.strategy, place, self.seed, scheme, self.per_round, key, planted)
        if kept is not None:
            kept.begin(rounds, key, entry)
        while rounds.number < self.rounds:
            exchange = rounds.next(self.rule, self.alter, self.send)
            _shown(rounds, exchange, kept, hooks, self.rounds)
        return rounds


def _shown(rounds: Rounds, exchange: Exchange, kept: Checkpoint | None, hooks: _Hooks, total: int) -> None:
    """Keep a round that has ended, and only then show it."""
    if kept is not None:
        kept.save(rounds)
    if hooks.evaluate is not None:
        rounds.history[-1]["evaluation"] = hooks.evaluate(rounds.model())
    if hooks.watch is not None:
        hooks.watch(exchange)
    if hooks.progress is not None:
        hooks.progress(rounds.number, total)


def _clients(clients: Any) -> Clients:
    if not isinstance(clients, Clients):
        raise InvalidValue(f"clients must be Clients, such as Clients.by_column(…); got {type(clients).__name__}.")
    return clients


def _scheme(strategy: Any, privacy: Any) -> Any:
    """What makes the run private: `privacy`, or the strategy itself."""
    if not isinstance(strategy, FedSGD | FedAvg | Selective | PrivateSGD):
        raise InvalidValue(
            f"strategy must be FedAvg(…), FedSGD(…), Selective(…) or PrivateSGD(…); got {check.shown(strategy)}."
        )
    if privacy is not None and not isinstance(privacy, Central | Local | Distributed):
        raise InvalidValue(f"privacy must be Central(…), Local(…) or Distributed(…); got {check.shown(privacy)}.")
    if isinstance(strategy, PrivateSGD) and privacy is not None:
        raise InvalidValue("PrivateSGD makes a claim of its own, for rows; a run makes one claim. Give one of the two.")
    return strategy if isinstance(strategy, PrivateSGD) else privacy
