"""The rows of a step as they are computed: drawn by the sampler, read, put together, tried where their shape is new."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from torch import Tensor

from discreet.learn.sgd.loading import Feed, seed

if TYPE_CHECKING:
    from discreet.learn.sgd.run import Run


def batches(run: Run, own: bool) -> Iterator[tuple[Any, Tensor | None]]:
    """Batches of the step at hand, and the weights of their rows."""
    feed = _fed(run) if run._rows.loaded else None
    for piece in _drawn(run, run.number):
        run._made_up = not len(piece)
        if not len(piece):
            yield run._rows.blank(run._device)
        elif feed is None:
            yield run._rows.take(piece, run._device, own)
        else:
            for batch, weight in run._rows.fed(feed, piece, run._device):
                run._shaped(batch)
                yield batch, weight
    run._feed = (run._key, run.number + 1, feed)


def _drawn(run: Run, step: int) -> Iterator[Any]:
    """The units of a step that this process computes, in pieces."""
    assert run._key is not None
    return run._group.pieces(run.plan.sampler.draw(run._key, step, run._rows.units), run._microbatch)


def _fed(run: Run) -> Feed:
    """The rows from this step on, read ahead by other processes where there are any; begun anew where it is out of step."""
    key = run._key
    assert key is not None
    known, number, feed = run._feed
    run._feed = (None, 0, None)
    if feed is not None and (known, number) == (key, run.number):
        return feed
    return run._rows.feed(
        (seed(key, step, place), piece)
        for step in range(run.number, run.plan.steps) for place, piece in enumerate(_drawn(run, step)) if len(piece)
    )  # fmt: skip
