"""The fastest of several methods for the same result: measured once for every shape, then remembered.

Methods differ in rounding only, so the choice reveals nothing about the data.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import contextmanager
from typing import Protocol

import torch
from torch import Tensor

from discreet.learn.sgd.engine.tape import Tape, Views

TIMES = 5  # runs of each way at least; the least counts, since whatever else the machine does only adds
SECONDS = 0.01  # short ones are run for so long, at most ten times as often
HOPELESS = 1.5  # a way whose first run, already warm, takes this many times the best is not run again
EVEN = {"cpu": 1.1}  # the likeliest way is taken unless another beats it by more than noise would
FEW = 8  # units under which nothing is measured
SOME = {"cpu": 32, "cuda": 512}  # units on which it is, at most: a GPU shows what it can only when it is full
_known: dict[Hashable, str] = {}
_forced: list[str] = []


def known(ways: Sequence[str], shape: Hashable, device: torch.device) -> str | None:
    """The way of this shape, if there is nothing left to measure."""
    for name in _forced:
        if name in ways:
            return name
    return ways[0] if len(ways) == 1 else _known.get((shape, device, torch.get_num_threads()))


def fastest(ways: Sequence[str], run: Callable[[str], object], shape: Hashable, device: torch.device) -> str:
    """The fastest of these ways, where `run` does it one way; remembered for this shape and device."""
    best = _measured(ways, run, device)
    _known[shape, device, torch.get_num_threads()] = best
    return best


@contextmanager
def only(*names: str) -> Iterator[None]:
    """Take the first of these wherever it is one of the ways; for tests."""
    _forced.extend(names)
    try:
        yield
    finally:
        del _forced[len(_forced) - len(names) :]


def _measured(ways: Sequence[str], run: Callable[[str], object], device: torch.device) -> str:
    least: dict[str, float] = {}
    for name in ways:
        try:
            run(name)  # warm: first uses allocate and choose algorithms
            least[name] = min(_seconds(run, name, device) for _ in range(2))  # once may be somebody else's fault
        except RuntimeError:  # too large for the memory here, or an operation that this build of torch lacks
            if len(ways) - 1 == ways.index(name) and not least:
                raise
    hope = [name for name, took in least.items() if took <= HOPELESS * min(least.values())]
    again = min(10 * TIMES, max(TIMES, int(SECONDS / max(min(least.values()), 1e-6)))) if len(hope) > 1 else 0
    for _ in range(again):
        for name in hope:
            least[name] = min(least[name], _seconds(run, name, device))
    best = min(least, key=least.__getitem__)
    return ways[0] if least.get(ways[0], math.inf) <= EVEN.get(device.type, 1.0) * least[best] else best


def _seconds(run: Callable[[str], object], name: str, device: torch.device) -> float:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
        start = time.perf_counter()
        run(name)
        torch.cuda.synchronize(device)
        return time.perf_counter() - start
    clock = time.thread_time if torch.get_num_threads() == 1 else time.perf_counter
    start = clock()
    run(name)
    return clock() - start


class Images(Protocol):
    """What `of_images` asks of a record."""

    x: Tensor
    gradient: Tensor
    tape: Tape
    parameters: Sequence[Tensor]

    def _norms(self, way: str, x: Tensor, g: Tensor) -> Tensor: ...
    def _add(self, factors: Tensor, into: Views, x: Tensor, g: Tensor) -> None: ...


def of_images(record: Images, ways: Sequence[str], layer: Hashable) -> str:
    """By measurement on some units, once for every shape; the likeliest where there are too few to measure."""
    x, rows = record.x, record.tape.rows
    units = min(x.shape[0] // rows, SOME.get(x.device.type, 32))
    shape = (layer, units.bit_length(), x.shape[1:], x.dtype, rows)
    known_way = known(ways, shape, x.device)
    if known_way is not None or units < FEW:
        return known_way or ways[0]
    x, g = x[: units * rows], record.gradient[: units * rows]
    factors = torch.ones(units, device=x.device)
    into = {p: torch.zeros_like(p, dtype=torch.float32) for p in record.parameters}

    def run(way: str) -> None:
        record._norms(way, x, g)
        record._add(factors, into, x, g)

    return fastest(ways, run, shape, x.device)
