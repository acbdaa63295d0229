"""Federated learning: clients keep their rows, a server sees what they send.

clients.py     who has which rows
strategies.py  what a client computes and what the server makes of it: FedSGD, FedAvg, Selective
privacy.py     private versions, each with its claim: Central, Local, Distributed, PrivateSGD
exchange.py    one round as the parties saw it, and the hooks of a simulation that read or change it
simulation.py  a run: charged, trained round by round (rounds.py), kept (checkpoint.py)
together.py    the clients of a round as one job; looped.py: one after another
secure/        sums of updates of which the server sees the sum alone: SecureSum

What others build on are four things, all over flat vectors (the trainable parameters of the model, in the order of
`model.parameters()`, one after another):

- `Clients`: rows by client. `clients[i]` is a pair of tensors (inputs, targets); `len(clients)` how many there are.
- `Exchange`: one round. `sent` is what the clients were given, `updates` [clients, size] what each answered (the change it
  wants, so `sent + update` is the client's model), `weights` [clients] what the mean counts each as.
- `rule(exchange) -> Tensor [size]` aggregates; `alter(exchange) -> Tensor [clients, size]` puts other updates in the place of
  those that clients computed, for malicious clients; `send(exchange) -> Tensor [size] or [clients, size]` puts other weights in
  the place of those that the server would send, for a malicious server.
- `watch(exchange)` is called when a round has ended, with everything filled in: a list's `append` keeps the whole transcript.

Names are loaded when first used: `import discreet.federate` does not load torch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from discreet.federate.clients import Clients
    from discreet.federate.exchange import Exchange
    from discreet.federate.privacy import Central, Distributed, Local, PrivateSGD, client
    from discreet.federate.secure import Identity, SecureSum, SumClient, SumServer
    from discreet.federate.simulation import Simulation, Training, simulate
    from discreet.federate.strategies import Adam, Descent, FedAvg, FedSGD, Momentum, Selective

__all__ = [
    "Adam",
    "Central",
    "Clients",
    "Descent",
    "Distributed",
    "Exchange",
    "FedAvg",
    "FedSGD",
    "Identity",
    "Local",
    "Momentum",
    "PrivateSGD",
    "SecureSum",
    "Selective",
    "Simulation",
    "SumClient",
    "SumServer",
    "Training",
    "client",
    "simulate",
]

_MODULES = {
    "clients": ("Clients",),
    "exchange": ("Exchange",),
    "privacy": ("Central", "Distributed", "Local", "PrivateSGD", "client"),
    "secure": ("Identity", "SecureSum", "SumClient", "SumServer"),
    "simulation": ("Simulation", "Training", "simulate"),
    "strategies": ("Adam", "Descent", "FedAvg", "FedSGD", "Momentum", "Selective"),
}
_PLACES = {name: module for module, names in _MODULES.items() for name in names}


def __getattr__(name: str) -> Any:
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    try:
        return getattr(import_module(f"{__name__}.{_PLACES[name]}"), name)
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise
        from discreet.errors import MissingExtra

        raise MissingExtra("torch", "torch", "Federated learning") from None


def __dir__() -> list[str]:
    return sorted(__all__)
