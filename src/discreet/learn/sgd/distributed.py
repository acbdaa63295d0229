"""One run on several processes, with the same result as on one process.

Every process makes the same call. The first one pays, draws the key and counts, and broadcasts the result. With the key each
process draws the same units for a step and computes its stripe of them. Clipped sums are reduced once over all processes, and
every number gets its noise once: the noise is a function of the number's position, so each process draws its own part.

    Alone       no process group: nothing to agree about
    Together    whole weights on every process (also under DistributedDataParallel): one all-reduce a step
    Sharded     weights split by fully_shard, in sharded.py: sums are scattered to the shards, which draw their own noise
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Protocol, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor, nn

from discreet.errors import DiscreetError, InvalidValue
from discreet.learn.sgd.engine import Engine
from discreet.learn.sgd.engine.tape import Forward
from discreet.learn.sgd.sampling import Ints, stripe

T = TypeVar("T")


class Noise(Protocol):
    """Fills a buffer with the noise of a step: a Stream, or something built on one."""

    def fill(self, out: Tensor, *, step: int, offset: int = 0, scale: float = 1.0) -> Tensor: ...


class Alone:
    """A run in one process."""

    rank, world = 0, 1
    split = False  # whether processes hold different weights

    def engine(self, model: nn.Module, rows: int) -> Engine:
        return Engine(model, rows)

    def agree(self, facts: Mapping[str, Any]) -> None:
        """Refuse to begin unless all processes have the same run."""

    def level(self, model: nn.Module) -> None:
        """Give every process the weights of the first."""

    def first(self, make: Callable[[], T]) -> T:
        """Broadcast what the first process makes; where it fails, all fail."""
        return make()

    def pieces(self, chosen: Ints, size: int | None) -> Iterator[Ints]:
        """The units of a draw that this process computes, at most `size` at a time; all processes get equally many pieces
        where that matters, some of them empty."""
        mine = stripe(chosen, self.rank, self.world)
        size = size or max(len(mine), 1)
        return (mine[start : start + size] for start in range(0, len(mine), size))

    def noise(self, stream: Noise, into: Tensor, *, step: int, scale: float) -> None:
        """Fill a buffer with this process's part of the noise, zero elsewhere, so that the sum has all of it once."""
        stream.fill(into, step=step, scale=scale)

    def reduce(self, buffer: Tensor) -> None:
        """Add up what the processes hold."""

    def total(self, number: float) -> float:
        """The sum of what each process has counted."""
        return number

    def gathered(self, value: T) -> list[T]:
        """What each process has, in their order."""
        return [value]

    def every(self, good: bool) -> bool:
        """Whether something is so of all weights, as each process knows of those it holds."""
        return good

    def write(self, make: Callable[[], Any]) -> None:
        """Let the first process write something. With whole weights it may be the only one that calls this."""
        if self.rank == 0:
            make()

    def whole(self, state: Any) -> Any:
        """The full state dict, gathered from all processes."""
        return state

    def placed(self, state: Any, like: Any) -> Any:
        """The inverse: this process's part of a full state, laid out like its own state."""
        return state


class Together(Alone):
    """Whole weights on every process of a group."""

    def __init__(self, group: Any, wrapper: nn.Module | None = None) -> None:
        self.group, self._wrapper = group, wrapper
        self.rank, self.world = dist.get_rank(group), dist.get_world_size(group)

    def engine(self, model: nn.Module, rows: int) -> Engine:
        return Engine(model, rows) if self._wrapper is None else WrappedEngine(model, rows, self._wrapper)

    def agree(self, facts: Mapping[str, Any]) -> None:
        every: list[Any] = [None] * self.world
        dist.all_gather_object(every, dict(facts), group=self.group)
        different = [name for name in every[0] if any(other.get(name) != every[0][name] for other in every)]
        if different:
            raise InvalidValue(
                f"The {self.world} processes were not asked for the same run: {', '.join(different)} differ. Call train with "
                "the same arguments and the same data on all of them; each takes its part of every batch by itself."
            )

    @torch.no_grad()
    def level(self, model: nn.Module) -> None:
        for tensor in (*model.parameters(), *model.buffers()):
            dist.broadcast(tensor.detach(), self._global(0), group=self.group)

    def first(self, make: Callable[[], T]) -> T:
        box: list[Any] = [None]
        failed: Exception | None = None
        if self.rank == 0:
            try:
                box[0] = (make(), None)
            except Exception as error:  # the others wait for an answer, whatever went wrong
                failed, box[0] = error, (None, str(error) if isinstance(error, DiscreetError) else type(error).__name__)
        dist.broadcast_object_list(box, self._global(0), group=self.group)
        if failed is not None:
            raise failed
        value, reason = box[0]
        if reason is not None:
            raise DiscreetError(f"The first process could not go on: {reason}")
        return value

    def _global(self, rank: int) -> int:
        return dist.get_global_rank(self.group, rank)

    def noise(self, stream: Noise, into: Tensor, *, step: int, scale: float) -> None:
        start, stop = (rank * into.numel() // self.world for rank in (self.rank, self.rank + 1))
        into.zero_()
        stream.fill(into[start:stop], step=step, offset=start, scale=scale)

    def reduce(self, buffer: Tensor) -> None:
        dist.all_reduce(buffer, group=self.group)

    def total(self, number: float) -> float:
        parts: list[Any] = [None] * self.world
        dist.all_gather_object(parts, number, group=self.group)
        return float(sum(parts))

    def gathered(self, value: T) -> list[T]:
        parts: list[Any] = [None] * self.world
        dist.all_gather_object(parts, value, group=self.group)
        return parts


class WrappedEngine(Engine):
    """For a model inside DistributedDataParallel: calls bypass the wrapper, so it exchanges no gradients."""

    def __init__(self, model: nn.Module, rows: int, wrapper: nn.Module) -> None:
        self._wrapper = wrapper
        super().__init__(model, rows)

    def _armed(self, spreads: Any, trying: bool = False) -> list[tuple[nn.Module, Forward]]:
        return [*super()._armed(spreads, trying), (self._wrapper, lambda wrapper, tape: self.model.__call__)]


def joined(model: nn.Module) -> tuple[nn.Module, Alone]:
    """The model itself, without what torch.distributed wraps around it, and the processes that train it."""
    if isinstance(model, nn.parallel.DistributedDataParallel):
        return model.module, Together(model.process_group, model)
    if isinstance(model, nn.DataParallel) or type(model).__name__ == "FullyShardedDataParallel":
        raise InvalidValue(
            f"{type(model).__name__} moves examples or weights in a way that cannot be accounted for. Give the model itself, "
            "on one process per device: DistributedDataParallel and fully_shard are supported."
        )
    if any(is_split(p) for p in model.parameters()):
        from discreet.learn.sgd.sharded import Sharded

        return model, Sharded(model)
    if dist.is_available() and dist.is_initialized():
        return model, Together(dist.group.WORLD)
    return model, Alone()


def is_split(tensor: Any) -> bool:
    """Whether a tensor lies in parts on several processes."""
    return isinstance(tensor, Tensor) and hasattr(tensor, "device_mesh")


def local(tensor: Any) -> Tensor:
    """The local part of a tensor; all of it unless it is sharded."""
    return tensor.to_local() if is_split(tensor) else tensor


@torch.no_grad()
def project(parameters: list[nn.Parameter], radius: float, group: Alone) -> None:
    """Project the weights onto the ball of this radius."""
    square = sum(float(local(p).square().sum()) for p in parameters)
    length = math.sqrt(group.total(square) if group.split else square)
    if length > radius:
        for p in parameters:
            p.mul_(radius / length)
