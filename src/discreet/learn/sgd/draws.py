"""The rows of a step as they are computed: drawn by the sampler, read, put together, tried where their shape is new."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from torch import Tensor

from discreet.learn.sgd.clipped_sum import ClippedSum
from discreet.learn.sgd.distributed import Alone
from discreet.learn.sgd.loading import Feed, seed
from discreet.learn.sgd.rows import Rows
from discreet.learn.sgd.state import State


class Draws:
    """Draws the units of each step and reads their rows, at most `microbatch` units at a time."""

    def __init__(self, rows: Rows, state: State, group: Alone, microbatch: int | None) -> None:
        self._rows, self._state, self._group, self._microbatch = rows, state, group, microbatch
        self._ahead: tuple[bytes, int, Feed | None] = (b"", 0, None)  # rows read ahead: the key and the step they are for

    def batches(self, clipped: ClippedSum, own: bool) -> Iterator[tuple[Any, Tensor | None]]:
        """Batches of the step at hand, and the weights of their rows. Whoever changes rows in place must `own` them."""
        rows, device = self._rows, clipped.device
        feed = self._feed() if rows.loaded else None
        for units in self._units(self._state.number):
            if not len(units):
                yield rows.blank(device)
            elif feed is None:
                yield rows.take(units, device, own)
            else:
                for batch, weight in rows.fed(feed, units, device):
                    clipped.try_shape(batch)
                    yield batch, weight
        self._ahead = (self._state.key, self._state.number + 1, feed)

    def _units(self, step: int) -> Iterator[Any]:
        """The units of a step that this process computes, in pieces."""
        chosen = self._state.plan.sampler.draw(self._state.key, step, self._rows.units)
        return self._group.pieces(chosen, self._microbatch)

    def _feed(self) -> Feed:
        """The rows from this step on, read ahead by other processes where there are any; begun anew where it is out of step."""
        key, number = self._state.key, self._state.number
        known, expected, feed = self._ahead
        self._ahead = (b"", 0, None)
        if feed is not None and (known, expected) == (key, number):
            return feed
        return self._rows.feed(
            (seed(key, step, place), units)
            for step in range(number, self._state.plan.steps) for place, units in enumerate(self._units(step)) if len(units)
        )  # fmt: skip
