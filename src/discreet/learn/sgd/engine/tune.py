"""Which of several ways to the same numbers is the fastest here: measured once for every shape, then remembered.

Ways differ in rounding only, so the choice tells nothing about the data.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import contextmanager

import torch

TIMES = 5  # runs of each way at least; the least counts, since whatever else the machine does only adds
SECONDS = 0.01  # short ones are run for so long, at most ten times as often
HOPELESS = 1.5  # a way whose first run, already warm, takes this many times the best is not run again
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
            least[name] = _seconds(run, name, device)
        except RuntimeError:  # too large for the memory here, or an operation that this build of torch lacks
            if len(ways) - 1 == ways.index(name) and not least:
                raise
    hope = [name for name, took in least.items() if took <= HOPELESS * min(least.values())]
    again = min(10 * TIMES, max(TIMES, int(SECONDS / max(min(least.values()), 1e-6)))) if len(hope) > 1 else 0
    for _ in range(again):
        for name in hope:
            least[name] = min(least[name], _seconds(run, name, device))
    return min(least, key=least.__getitem__)


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
