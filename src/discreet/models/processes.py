"""Independent pieces of work on several processes: of this machine, or of a Ray cluster."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Callable, Iterator, Sequence
from multiprocessing.connection import Connection, wait
from typing import Any

from discreet.errors import DiscreetError, InvalidValue, MissingExtra

Place = tuple[int, int]


def spread(
    work: Callable[[Place], Any], places: Sequence[Place], *, processes: int = 1, ray: str | None = None
) -> Iterator[tuple[Place, Any]]:
    """The result of `work` for every place, as it is finished.

    >>> sorted(spread(lambda place: sum(place), [(1, 2), (3, 4)]))
    [((1, 2), 3), ((3, 4), 7)]
    """
    if ray is not None:
        yield from _on_ray(work, places, ray)
    elif processes == 1 or len(places) < 2:
        for place in places:
            yield place, work(place)
    else:
        yield from _forked(work, places, min(processes, len(places)))


def _forked(work: Callable[[Place], Any], places: Sequence[Place], processes: int) -> Iterator[tuple[Place, Any]]:
    """Forked, so that recipes written on the spot travel as they are. Each process takes every so many-th place."""
    if not hasattr(os, "fork"):
        raise InvalidValue("processes above 1 needs a system that can fork (Linux, macOS). Use processes=1, or ray='local'.")
    context = multiprocessing.get_context("fork")
    ends: dict[Connection, Any] = {}
    for number in range(processes):
        ours, theirs = context.Pipe(duplex=False)
        child = context.Process(target=_child, args=(work, places[number::processes], theirs), daemon=True)
        child.start()
        theirs.close()
        ends[ours] = child
    try:
        yield from _received(ends)
    finally:
        for child in ends.values():
            child.terminate()
        for child in ends.values():
            child.join()


def _received(ends: dict[Connection, Any]) -> Iterator[tuple[Place, Any]]:
    waiting = list(ends)
    while waiting:
        for end in wait(waiting):
            assert isinstance(end, Connection)
            try:
                kind, place, result = end.recv()
            except EOFError:
                raise DiscreetError(
                    "A process that trained shadow models was ended from outside; its last group is lost."
                ) from None
            if kind == "failed":
                raise DiscreetError(f"A process that trained shadow models failed: {result}")
            if kind == "done":
                waiting.remove(end)
            else:
                yield place, result


def _child(work: Callable[[Place], Any], places: Sequence[Place], end: Connection) -> None:
    try:
        for place in places:
            end.send(("result", place, work(place)))
        end.send(("done", None, None))
    except Exception as error:
        end.send(("failed", None, f"{type(error).__name__}: {error}"))


def _on_ray(work: Callable[[Place], Any], places: Sequence[Place], address: str) -> Iterator[tuple[Place, Any]]:
    try:
        import ray
    except ImportError:
        raise MissingExtra("ray", "ray", "Shadow models on a cluster") from None
    if not ray.is_initialized():
        ray.init(address=None if address == "local" else address, include_dashboard=False, log_to_driver=False)
    remote = ray.remote(num_cpus=1)(work)
    pending = {remote.remote(place): place for place in places}
    while pending:
        done, _ = ray.wait(list(pending))
        yield pending.pop(done[0]), ray.get(done[0])
