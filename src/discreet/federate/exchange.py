"""One round as the parties saw it, and the hooks of a simulation that read or change it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

Ints = NDArray[np.int64]


@dataclass
class Exchange:
    """One round, filled in as it goes on. Vectors hold the trainable parameters, as `model.parameters()` orders them.

    Which party saw what: a client saw the line of `sent` that is its own, in the rounds in which it is among `clients`; the
    server saw all of it. Under `Local` the updates are noisy already; under `Distributed` the server saw `aggregate` and no
    single update; under `Central` the server is trusted, and others see only the weights that are sent.
    """

    number: int  # of the round, from 0
    clients: Ints  # who takes part, by number
    before: Tensor  # the weights that the server has [size]
    sent: Tensor  # what clients were given: [size], or [clients, size] where a malicious server tells each something else
    updates: Tensor  # what each client answered [clients, size]; one that is not finite counts as no answer
    weights: Tensor  # what each counts as in the mean [clients]; 0 for a client whose answer was rejected
    aggregate: Tensor | None = None  # what the rule, or the private mean, made of the updates [size]
    after: Tensor | None = None  # the weights of the next round [size]


Rule = Callable[[Exchange], Tensor]
Alter = Callable[[Exchange], Tensor]
Send = Callable[[Exchange], Tensor]
Watch = Callable[[Exchange], None]


def mean(exchange: Exchange) -> Tensor:
    """The weighted mean of the updates: the rule of FedAvg.

    >>> import torch
    >>> pair = torch.tensor([[1.0], [4.0]])
    >>> mean(Exchange(0, np.arange(2), pair[0], pair[0], pair, torch.tensor([2.0, 1.0])))
    tensor([2.])
    """
    total = exchange.weights.sum()
    if not total > 0:  # nobody had rows, or no answer counted
        return exchange.updates.new_zeros(exchange.before.shape)
    return (exchange.weights / total) @ exchange.updates
