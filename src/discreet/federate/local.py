"""What one client does in a round: so many epochs of SGD over its own rows, in an order of its own."""

from __future__ import annotations

import hmac
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from discreet.core import check

Ints = NDArray[np.int64]


@dataclass(frozen=True)
class LocalSGD:
    """SGD by batches; `proximal` weighs FedProx's penalty on the distance from the weights at the start of the round."""

    learning_rate: float
    epochs: int = 1
    batch_size: int | None = 32
    momentum: float = 0.0
    proximal: float = 0.0

    def __post_init__(self) -> None:
        check.positive("learning_rate", self.learning_rate)
        check.whole("epochs", self.epochs)
        if self.batch_size is not None:
            check.whole("batch_size", self.batch_size)
        check.small_fraction("momentum", self.momentum)
        check.nonnegative("proximal", self.proximal)

    def order(self, key: bytes, number: int, client: int, rows: int) -> Ints:
        """The order in which a client sees its rows in a round, [epochs, rows]: its own, whoever else takes part."""
        order = np.tile(np.arange(rows), (self.epochs, 1))
        if self.batch_size is not None and rows > self.batch_size:
            generator = np.random.Generator(np.random.Philox(key=draw(key, number, client)))
            generator.permuted(order, axis=1, out=order)
        return order

    def steps(self, rows: int) -> int:
        """How many steps so many rows make."""
        return self.epochs * -(-rows // (self.batch_size or max(rows, 1)))

    def batches(self, order: Ints) -> Iterator[Tensor]:
        """The places of the rows of each step; the last batch of an epoch may be a small one."""
        size = self.batch_size or max(order.shape[1], 1)
        for epoch in torch.from_numpy(order):
            yield from epoch.split(size) if len(epoch) else ()


def draw(key: bytes, number: int, client: int) -> int:
    """128 bits for one client in one round."""
    place = number.to_bytes(8, "big") + client.to_bytes(8, "big")
    return int.from_bytes(hmac.digest(key, b"discreet federate: order" + place, "sha256")[:16], "big")
