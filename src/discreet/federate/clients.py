"""Who has which rows: a table cut up by a column, by chance, with skewed labels, or as natural users bring it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from discreet.core import check
from discreet.errors import InvalidValue

Ints = NDArray[np.int64]
Rows = tuple[Tensor, Tensor]  # inputs and targets of one client


class Clients:
    """The rows of each client: `clients[i]` is (inputs, targets), read when they are asked for.

    A client may have no row: it takes part, and asks for no change. `read` gives the rows of one client by its number; tables
    in memory are better given to `by_column`, `evenly` or `dirichlet`, which keep each client's rows side by side.

    >>> clients = Clients.by_column(np.arange(5.0)[:, None], [0, 1, 0, 1, 1], ["a", "b", "a", "c", "b"])
    >>> len(clients), clients[1][0].flatten().tolist()
    (3, [1.0, 4.0])
    """

    def __init__(self, read: Callable[[int], Any], count: int) -> None:
        if not callable(read):
            raise InvalidValue(f"read must be a function from a client's number to its rows; got {type(read).__name__}.")
        self._read = read
        self._count = check.whole("count", count, least=2)

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, client: int) -> Rows:
        if not 0 <= client < self._count:
            raise IndexError(f"There are {self._count} clients, from 0; got {client}.")
        return rows_of(self._read(int(client)), f"client {client}")

    def __iter__(self) -> Iterator[Rows]:
        return (self[client] for client in range(self._count))

    def replaced(self, rows: Mapping[int, Any]) -> Clients:
        """The same clients, some of which have other rows: malicious ones, or the neighbouring world of an audit.

        >>> Clients.evenly(torch.zeros(4, 1), torch.zeros(4), clients=2, seed=0).replaced({1: (torch.ones(1, 1), [1.0])})[1]
        (tensor([[1.]]), tensor([1.]))
        """
        others = {check.whole("client", client, least=0, most=self._count - 1): rows[client] for client in rows}
        return Clients(lambda client: others[client] if client in others else self._read(client), self._count)

    @classmethod
    def by_column(cls, inputs: Any, targets: Any, column: Any) -> Clients:
        """A client for each value of `column`, in the order of the values."""
        names, owner = np.unique(_column(column), return_inverse=True)
        return _cut(inputs, targets, owner.ravel(), len(names))

    @classmethod
    def evenly(cls, inputs: Any, targets: Any, *, clients: int, seed: int) -> Clients:
        """Rows divided at random among clients, in parts of equal size up to one row."""
        order = np.random.default_rng(seed).permutation(len(inputs))
        owner = np.empty(len(inputs), np.int64)
        owner[order] = np.arange(len(inputs)) % check.whole("clients", clients, least=2)
        return _cut(inputs, targets, owner, clients)

    @classmethod
    def dirichlet(cls, inputs: Any, targets: Any, *, clients: int, alpha: float, seed: int) -> Clients:
        """Skewed labels: each label's rows in proportions drawn from a Dirichlet distribution (Hsu, Qi, Brown 2019).

        A small `alpha` leaves most rows of a label with few clients, a large one deals evenly. Clients may be left empty.
        """
        rng, labels = np.random.default_rng(seed), _column(targets)
        alpha, clients = check.positive("alpha", alpha), check.whole("clients", clients, least=2)
        owner = np.empty(len(labels), np.int64)
        for label in np.unique(labels):
            rows = rng.permutation(np.flatnonzero(labels == label))
            ends = np.rint(np.cumsum(rng.dirichlet(np.full(clients, alpha))) * len(rows)).astype(np.int64)
            owner[rows] = np.searchsorted(ends[:-1], np.arange(len(rows)), side="right")
        return _cut(inputs, targets, owner, clients)


def _cut(inputs: Any, targets: Any, owner: Ints, clients: int) -> Clients:
    """Rows in memory, sorted by client, so that a client's rows are a slice and are not copied again."""
    inputs, targets = rows_of((inputs, targets), "the table")
    if len(inputs) != len(owner):
        raise InvalidValue(f"There must be one client for each of {len(inputs)} rows; got {len(owner)}.")
    if clients < 2:
        raise InvalidValue(f"The rows belong to {clients} client; a federation has at least 2. Is it the right column?")
    order = np.argsort(owner, kind="stable")
    if (order[1:] < order[:-1]).any():
        inputs, targets = inputs[torch.from_numpy(order)], targets[torch.from_numpy(order)]
    ends = np.cumsum(np.bincount(owner, minlength=clients)).tolist()
    starts = [0, *ends[:-1]]
    return Clients(lambda client: (inputs[starts[client] : ends[client]], targets[starts[client] : ends[client]]), clients)


def rows_of(rows: Any, whose: str) -> Rows:
    """Inputs and targets as tensors: fractions as 32-bit floats, whole numbers as they are counted."""
    if not isinstance(rows, Sequence) or len(rows) != 2:
        raise InvalidValue(f"The rows of {whose} must be a pair (inputs, targets); got {type(rows).__name__}.")
    inputs, targets = _tensor(rows[0]), _tensor(rows[1])
    if inputs.ndim == 0 or targets.ndim == 0 or len(inputs) != len(targets):
        shapes = f"{tuple(inputs.shape)} and {tuple(targets.shape)}"
        raise InvalidValue(f"The rows of {whose} must be as many inputs as targets; got shapes {shapes}.")
    return inputs, targets


def _tensor(values: Any) -> Tensor:
    if not isinstance(values, Tensor):
        array = np.asarray(values)
        if array.dtype.kind not in "biuf":
            raise InvalidValue(f"Rows must be numbers; got values of type {array.dtype}. Encode them first.")
        values = torch.as_tensor(array)
    if values.is_floating_point():
        return values if values.dtype == torch.float32 else values.float()
    return values if values.dtype in (torch.int64, torch.uint8) else values.long()


def _column(values: Any) -> NDArray[Any]:
    array = values.cpu().numpy() if isinstance(values, Tensor) else np.asarray(values)
    if array.ndim != 1:
        raise InvalidValue(f"A column with one value for each row is needed; got shape {array.shape}.")
    return array
