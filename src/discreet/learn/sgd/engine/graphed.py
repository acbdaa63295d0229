"""CUDA graphs: on a GPU a step of many small kernels is bound by Python, unless it is captured once and replayed.

Poisson batches differ in size, so they are padded to one of a few sizes with rows of weight 0, which add nothing. The graph
holds everything between the batch and its clipped sum; sampling, noise and the optimizer stay outside. A model that cannot be
captured (it synchronises with the GPU, or copies from the host) runs eagerly.
"""

from __future__ import annotations

import gc
import logging
from collections.abc import Callable, Hashable
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from discreet.learn.sgd.clipping import Clipping
from discreet.learn.sgd.engine.engine import Engine
from discreet.native.collector import gc_paused

Losses = Callable[[Any], Tensor]
_log = logging.getLogger(__name__)
SEEN = 2  # times a size must come up before it is worth a recording
MOST = 16  # sizes that are recorded; each is small, since they share their memory


class Graphed:
    """Clipped sums of batches on a GPU, replayed."""

    def __init__(self, engine: Engine, losses: Losses, clipping: Clipping) -> None:
        self._engine, self._losses, self._clipping = engine, losses, clipping
        self._slots: dict[Hashable, _Slot] = {}
        self._seen: dict[Hashable, int] = {}
        self._pool: Any = None
        self._works = True

    def add(self, batch: Any, weight: Tensor | None, into: Tensor, scale: float) -> bool:
        """Add the clipped sum of a batch; False if it must be computed eagerly."""
        if not self._works:
            return False
        leaves, tree = pytree.tree_flatten(batch)
        examples = leaves[0].shape[0]
        size = room(examples, self._engine.rows)
        key = (size, tree, tuple((leaf.shape[1:], leaf.dtype) for leaf in leaves), _mode(self._engine))
        slot = self._slots.get(key)
        if slot is None:
            self._seen[key] = self._seen.get(key, 0) + 1
            if self._seen[key] <= SEEN or len(self._slots) >= MOST:
                return False
            slot = self._record(key, leaves, tree, size)
            if slot is None:
                return False
        return slot.replay(leaves, weight, examples, into, scale)

    def _record(self, key: Hashable, leaves: list[Tensor], tree: Any, size: int) -> _Slot | None:
        try:
            slot = _Slot(self, leaves, tree, size)
        except (RuntimeError, NotImplementedError) as error:
            _log.info("A step cannot be recorded as a CUDA graph and runs kernel by kernel: %s", _cause(error))
            self._works = False
            self._engine.tape.clear()
            torch.cuda.synchronize()
            _end_capture_of_generators()
            return None
        self._slots[key] = slot
        return slot

    def summed(self, batch: Any, weight: Tensor, size: int, into: Tensor) -> None:
        into.zero_()
        torch.clear_autocast_cache()  # else weights cast for an earlier step would be used again
        with self._engine.recording(size):
            self._engine.add(self._losses(batch) * weight, self._clipping, into, 1.0)
        torch.clear_autocast_cache()


class _Slot:
    """One size of batch: where its rows are put, and the graph that sums them."""

    def __init__(self, whole: Graphed, leaves: list[Tensor], tree: Any, size: int) -> None:
        engine = whole._engine
        self._rows = [leaf.new_zeros(size, *leaf.shape[1:]) for leaf in leaves]
        for row, leaf in zip(self._rows, leaves):
            row[: len(leaf)] = leaf
            row[len(leaf) :] = leaf[:1]
        self._weight = torch.ones(size, device=leaves[0].device)
        self._sum, self._good = engine.buffer(), torch.ones((), dtype=torch.bool, device=leaves[0].device)
        batch = pytree.tree_unflatten(self._rows, tree)
        gc.collect()  # graphs of earlier steps that lie in cycles hold the parameters to the stream of those steps
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):  # the stream of the recording: a graph that lives on holds the parameters to its stream
            for _ in range(2):  # allocates, and chooses between ways to the same numbers
                whole.summed(batch, self._weight, size, self._sum)
        torch.cuda.current_stream().wait_stream(side)
        _forget_workspaces()
        self._graph = torch.cuda.CUDAGraph()
        engine.good = self._good
        try:
            with gc_paused(), torch.cuda.graph(self._graph, pool=whole._pool, stream=side):
                whole.summed(batch, self._weight, size, self._sum)
        finally:
            engine.good = None
        _forget_workspaces()
        whole._pool = self._graph.pool()

    def replay(self, leaves: list[Tensor], weight: Tensor | None, examples: int, into: Tensor, scale: float) -> bool:
        """False where a unit was not finite; nothing has been added then, and the eager path handles it."""
        for row, leaf in zip(self._rows, leaves):
            row[:examples].copy_(leaf)
        self._weight[:examples] = 1.0 if weight is None else weight
        self._weight[examples:] = 0.0
        self._graph.replay()
        if not bool(self._good):
            return False
        into.add_(self._sum, alpha=scale)
        return True


def room(examples: int, rows: int) -> int:
    """The size to which a batch is padded: at most a thirty-second more, in whole units.

    >>> [room(n, 1) for n in (1, 40, 100, 4000, 4096)]
    [1, 40, 100, 4032, 4096]
    """
    units = examples // rows
    step = max(1, 1 << max(0, units.bit_length() - 6))
    return -(-units // step) * step * rows


def _forget_workspaces() -> None:
    """Products keep tens of megabytes for every stream they ever ran on; the stream of a recording is not used again."""
    forget = getattr(torch._C, "_cuda_clearCublasWorkspaces", None)
    if forget is not None:
        forget()


def _cause(error: BaseException) -> BaseException:
    """What went wrong first: ending a capture that was spoiled raises an error of its own."""
    while error.__context__ is not None:
        error = error.__context__
    return error


def _end_capture_of_generators() -> None:
    """Take torch's generators out of a capture that failed.

    torch ends a capture of its generators only where the capture of the graph ended well; otherwise every later random
    number fails ("Offset increment outside graph capture"). A clone has the same seed and offset and is in no capture.
    """
    for generator in torch.cuda.default_generators:
        generator.graphsafe_set_state(generator.clone_state())


def _mode(engine: Engine) -> Hashable:
    """The settings that change which kernels run."""
    cast = (torch.is_autocast_enabled("cuda"), torch.get_autocast_dtype("cuda"))
    return (*cast, tuple(module.training for module in engine.model.modules()))
