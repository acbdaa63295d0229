"""The random draws of each step: its units, its noise, and the random numbers of model and loss."""

from __future__ import annotations

import hmac
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from discreet.learn.sgd.banded import Banded, Correlated
from discreet.learn.sgd.clipped_sum import ClippedSum
from discreet.learn.sgd.clipping import Clipping
from discreet.learn.sgd.distributed import Alone
from discreet.learn.sgd.engine import Engine
from discreet.learn.sgd.fixed_point import GridEngine, GridStream
from discreet.learn.sgd.loading import Feed, seed
from discreet.learn.sgd.plan import State
from discreet.learn.sgd.proof.process import seed_torch
from discreet.learn.sgd.quantile import Quantile, split
from discreet.learn.sgd.rows import Rows
from discreet.learn.sgd.stream import Stream
from discreet.learn.sgd.student import StudentStream


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
        """The feed of rows from this step on, read ahead by worker processes if there are any; restarted when out of step."""
        key, number = self._state.key, self._state.number
        known, expected, feed = self._ahead
        self._ahead = (b"", 0, None)
        if feed is not None and (known, expected) == (key, number):
            return feed
        return self._rows.feed(
            (seed(key, step, place), units)
            for step in range(number, self._state.plan.steps) for place, units in enumerate(self._units(step)) if len(units)
        )  # fmt: skip


class StepNoise:
    """Fills the buffer of a step with noise, and moves an adaptive clip norm by a noisy count."""

    def __init__(self, state: State, clipping: Clipping, group: Alone) -> None:
        self._state, self._clipping, self._group = state, clipping, group
        self._stream: tuple[tuple[bytes, int], Stream | Correlated | StudentStream] | None = (
            None  # by the key and the first step it is for
        )

    def fill(self, buffer: Tensor, engine: Engine) -> None:
        """Begin a step: the buffer holds noise, to which clipped gradients are added."""
        stream = self._source(buffer.device, engine)
        self._group.noise(stream, buffer, step=self._state.number, scale=self._spread(self._state.plan.noise_multiplier))

    @contextmanager
    def random_numbers(self, device: torch.device) -> Iterator[None]:
        """Seed the random numbers of model, loss and augmentation in this step from the run's key.

        With a known seed, a unit's random numbers would reveal its position in the batch, and so who precedes it.
        """
        purpose = b"discreet: draws of model and loss" + self._state.number.to_bytes(8, "big")
        seed = hmac.digest(self._state.key, purpose, "sha256")
        with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
            seed_torch(int.from_bytes(seed[:8], "big") >> 1)
            yield

    def scale(self) -> float:
        """The standard deviation of the noise in what reaches the optimizer."""
        return self._spread(self._state.plan.deviation)

    def _spread(self, noise: float) -> float:
        if isinstance(self._clipping, Quantile):
            noise = split(noise, self.count_noise())
        return noise * self._clipping.norm / self._state.divisor

    def count_noise(self) -> float:
        """The noise of the count of unclipped units; sum and count together cost the plan's noise."""
        return max(self._state.divisor / 20, self._state.plan.noise_multiplier)

    def adapt(self) -> None:
        """Move an adaptive clip norm by the noisy share of units that were not clipped."""
        clipping, state = self._clipping, self._state
        if isinstance(clipping, Quantile):
            counting = Stream(hmac.digest(state.key, b"discreet: count of the unclipped", "sha256"))
            noise = counting.fill(torch.empty(1), step=state.number, scale=self.count_noise())
            clipping.update(float(noise), batch=state.divisor, counted=self._group.total(clipping.counted()))

    def _source(self, device: torch.device, engine: Engine) -> Stream | Correlated | GridStream | StudentStream:
        key, start = self._state.key, self._state.start
        if isinstance(engine, GridEngine):
            return GridStream(key, engine)
        if self._stream is None or self._stream[0] != (key, start):
            self._stream = (key, start), self._drawn(device)
        return self._stream[1]

    def _drawn(self, device: torch.device) -> Stream | Correlated | StudentStream:
        key, plan = self._state.key, self._state.plan
        if plan.student is not None:  # `train` has refused it beside correlated noise
            return StudentStream(key, plan.student.degrees, device)
        plain = Stream(key, device)
        return Correlated(plan.sampler, plain, self._state.start) if isinstance(plan.sampler, Banded) else plain
