"""Weights split by torch's fully_shard (FSDP2): every process keeps some rows of each parameter.

Whole weights exist only while a layer runs, whole sums only while they are scattered. A row of a parameter has a position among
all trained numbers, the same for any number of processes, and that position determines its noise.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.fsdp import FSDPModule
from torch.distributed.tensor import DTensor, Shard, distribute_tensor
from torch.utils import _pytree as pytree

from discreet.errors import InvalidValue
from discreet.learn.sgd.distributed import Noise, Together, is_split, local
from discreet.learn.sgd.engine import Engine
from discreet.learn.sgd.engine.fallback import copied
from discreet.learn.sgd.engine.layers import find
from discreet.learn.sgd.engine.tape import Forward, Record, Tape
from discreet.learn.sgd.sampling import Ints, stripe

_reduce_scatter: Callable[..., Any] = getattr(dist, "reduce_scatter_single", None) or dist.reduce_scatter_tensor


class Part:
    """The local rows of one parameter: their offset among all trained numbers, and their size."""

    def __init__(self, name: str, parameter: Any, start: int, rank: int, world: int) -> None:
        self.parameter, self.shape = parameter, tuple(parameter.shape)
        self.local = tuple(parameter.to_local().shape)
        self.size = parameter.to_local().numel()
        length = self.shape[0]
        share = -(-length // world)  # rows of a part, as torch.chunk splits; the last ones may be short or empty
        row = parameter.numel() // max(length, 1)
        first, last = min(rank * share, length), min((rank + 1) * share, length)
        if parameter.placements != (Shard(0),) or self.size != (last - first) * row:
            raise InvalidValue(
                f"{name} is not split into equal runs of rows along its first axis, so its noise would not know its place. "
                "Use fully_shard without shard_placement_fn."
            )
        self.offset, self._padded = start + first * row, world * share * row

    def room(self, device: torch.device) -> tuple[Tensor, Tensor]:
        """Room for the sum of the whole parameter, padded so that it splits evenly, and the view without padding."""
        full = torch.zeros(self._padded, dtype=torch.float32, device=device)
        return full, full[: self.parameter.numel()].view(self.shape)


class Sharded(Together):
    """The processes of a one-dimensional mesh over which fully_shard has split a model."""

    split = True

    def __init__(self, model: nn.Module) -> None:
        trained = [(name, p) for name, p in model.named_parameters() if p.requires_grad]
        whole = [name for name, p in trained if not is_split(p)]
        if whole:
            raise InvalidValue(
                f"{', '.join(whole[:5])}: not split, while other weights are. Call fully_shard(model) on the whole model after "
                "its parts, so that every trained weight belongs to one of them."
            )
        meshes = {p.device_mesh for _, p in trained}  # type: ignore[attr-defined]
        if len(meshes) != 1 or next(iter(meshes)).ndim != 1:
            raise InvalidValue("fully_shard is supported over one mesh of one dimension; these weights lie on another.")
        super().__init__(next(iter(meshes)).get_group())
        self.parts: dict[Tensor, Part] = {}
        start = 0
        for name, p in trained:
            self.parts[p] = Part(name, p, start, self.rank, self.world)
            start += p.numel()

    def engine(self, model: nn.Module, rows: int) -> Engine:
        return ShardedEngine(model, rows, self)

    def level(self, model: nn.Module) -> None:
        """Do nothing: no two processes hold the same weights."""

    def pieces(self, chosen: Ints, size: int | None) -> Iterator[Ints]:
        """All processes call the model equally often, since a call gathers weights from all of them."""
        most = len(stripe(chosen, 0, self.world))
        mine, size = stripe(chosen, self.rank, self.world), size or max(most, 1)
        return (mine[start : start + size] for start in range(0, most, size))

    def noise(self, stream: Noise, into: Tensor, *, step: int, scale: float) -> None:
        place = 0
        for part in self.parts.values():
            stream.fill(into[place : place + part.size], step=step, offset=part.offset, scale=scale)
            place += part.size

    def reduce(self, buffer: Tensor) -> None:
        """Do nothing: sums were scattered when they were computed."""

    def scatter(self, full: Tensor) -> Tensor:
        """The sum over processes of what is in `full`; each gets its own part."""
        mine = full.new_empty(full.numel() // self.world)
        _reduce_scatter(mine, full, group=self.group)
        return mine

    def every(self, good: bool) -> bool:
        flags: list[Any] = [None] * self.world
        dist.all_gather_object(flags, good, group=self.group)
        return all(flags)

    def write(self, make: Callable[[], Any]) -> None:
        self.first(lambda: bool(make()))

    def whole(self, state: Any) -> Any:
        known: dict[tuple[int, torch.Size], Tensor] = {}

        def gathered(leaf: Any) -> Any:
            if not is_split(leaf):
                return leaf
            place = leaf._local_tensor.untyped_storage()._cdata, leaf.shape
            if place not in known:  # tied weights stay tied
                known[place] = leaf.full_tensor().clone()  # without the padding it was gathered with
            return known[place]

        return pytree.tree_map(gathered, state)

    def placed(self, state: dict[str, Any], like: dict[str, Any]) -> dict[str, Any]:
        def part(whole: Any, reference: Any) -> Any:
            if not is_split(reference) or not isinstance(whole, Tensor):
                return whole
            return distribute_tensor(
                whole.to(reference.device), reference.device_mesh, reference.placements, src_data_rank=None
            )

        return {name: part(value, like.get(name)) for name, value in state.items()}


class ShardedEngine(Engine):
    """An engine whose buffer holds the local numbers; sums of whole parameters exist one layer at a time."""

    def __init__(self, model: nn.Module, rows: int, group: Sharded) -> None:
        self._home: dict[Tensor, Tensor] = {}  # what a forward sees of a parameter, to the split one
        self._split = {module: _trained(module) for module in model.modules()}  # now: after a forward some are whole
        super().__init__(model, rows)
        self.group, self.processes = group, group.world
        self.size = sum(part.size for part in group.parts.values())

    def _armed(self, spreads: Any, trying: bool = False) -> list[tuple[nn.Module, Forward]]:
        return [(module, self._late(module, make)) for module, make in super()._armed(spreads, trying)]

    def _late(self, module: nn.Module, make: Forward) -> Forward:
        """Read a layer's weights only in its forward, just before which fully_shard gathers them."""
        inside = any(isinstance(child, FSDPModule) for child in module.modules() if child is not module)
        if inside and (make is copied or find(module)[1]):
            raise InvalidValue(
                f"{type(module).__name__} runs as one piece with all inside it; call fully_shard on it, not on its parts."
            )
        split = self._split[module]

        def late(module: nn.Module, tape: Tape) -> Callable[..., Any]:
            def forward(*args: Any, **kwargs: Any) -> Any:
                for name, parameter in split.items():
                    self._home[module.get_parameter(name)] = parameter
                return make(module, tape)(*args, **kwargs)

            return forward

        return late

    def buffer(self) -> Tensor:
        return torch.zeros(self.size, dtype=torch.float32, device=local(self.parameters[0]).device)

    def views(self, flat: Tensor) -> dict[Tensor, Tensor]:
        result: dict[Tensor, Tensor] = {}
        place = 0
        for p, part in self.group.parts.items():
            shard = flat.narrow(0, place, part.size).view(part.local)
            result[p] = DTensor.from_local(
                shard, p.device_mesh, p.placements, run_check=False, shape=p.shape, stride=p.stride(),  # type: ignore[attr-defined]
            )  # fmt: skip
            place += part.size
        return result

    def _contract(self, weighted: Sequence[tuple[Record, Tensor]], into: Tensor) -> None:
        """All processes scatter all parameters in the same order, whatever their examples used."""
        todo: dict[Tensor, list[tuple[Record, Tensor]]] = {}
        for record, factor in weighted:
            for p in self._roots(record):
                todo.setdefault(self._home[p], []).append((record, factor))
        rooms: dict[Tensor, Tensor] = {}
        views: dict[Tensor, Tensor] = {}
        done: set[int] = set()
        place = 0
        for p, part in self.group.parts.items():
            for record, factor in todo.pop(p, ()):
                if id(record) not in done:
                    done.add(id(record))
                    self._open(record, rooms, views, into.device)
                    record.add(factor, self.tape.views(views))
            full = rooms.pop(p) if p in rooms else part.room(into.device)[0]
            into[place : place + part.size].add_(self.group.scatter(full)[: part.size])
            place += part.size
            views = {
                parameter: view for parameter, view in views.items() if self._home[parameter] in rooms
            }  # the others may be freed
        self._home.clear()

    def _roots(self, record: Record) -> set[Tensor]:
        """The whole parameters of which a record uses rows."""
        return {self.tape.parts[p].root if p in self.tape.parts else p for p in record.parameters}

    def _open(self, record: Record, rooms: dict[Tensor, Tensor], views: dict[Tensor, Tensor], device: torch.device) -> None:
        """Room for the whole sums of a record's parameters."""
        for parameter in self._roots(record):
            home = self._home[parameter]
            if home not in rooms:
                rooms[home], views[parameter] = self.group.parts[home].room(device)

    def gradient(self, loss: Tensor) -> Tensor:
        """All processes have the same examples here, so the mean over processes that fully_shard takes changes nothing."""
        loss.backward()
        parts = [local(p.grad if p.grad is not None else torch.zeros_like(p)).flatten().float() for p in self.parameters]
        for p in self.parameters:
            p.grad = None
        return torch.cat(parts)

    def length(self, flat: Tensor) -> Tensor:
        return flat.new_tensor(self.group.total(float(flat.square().sum()))).sqrt()


def _trained(module: nn.Module) -> dict[str, nn.Parameter]:
    return {name: p for name, p in module.named_parameters() if p.requires_grad}
