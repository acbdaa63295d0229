"""Embeddings: rows of a table, chosen by whole numbers."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from torch.utils import _pytree as pytree

from discreet.errors import InvalidValue
from discreet.learn.sgd.engine.compiled import forward_of
from discreet.learn.sgd.engine.fallback import copied
from discreet.learn.sgd.engine.layers.linear import LinearRecord
from discreet.learn.sgd.engine.tape import ROOM, Forward, Record, Tape, Views, from_grams, gram, hidden


class _Embedding(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, table: Tensor, chosen: Tensor, record: EmbeddingRecord) -> Tensor:
        ctx.record = record
        return F.embedding(chosen, table)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[None, None, None]:
        ctx.record.gradient = gradient
        return None, None, None


class EmbeddingRecord(Record):
    """A table [entries, d] of which [units, positions] rows were read."""

    gradient: Tensor

    def __init__(self, tape: Tape, table: Tensor, chosen: Tensor, padding: int | None) -> None:
        self.tape, self.table, self.chosen, self.padding = tape, table, chosen, padding
        self.parameters = [table]

    def shaped(self) -> tuple[Tensor, Tensor]:
        units = self.tape.units
        chosen = self.chosen.reshape(units, -1).long()
        g = self.gradient.reshape(units, chosen.shape[1], -1)
        return chosen, g if self.padding is None else g.masked_fill((chosen == self.padding)[..., None], 0.0)

    def instantiate(self) -> dict[Tensor, Tensor]:
        chosen, g = self.shaped()
        gradient = g.new_zeros(chosen.shape[0], *self.table.shape)
        return {self.table: gradient.scatter_add_(1, chosen[..., None].expand_as(g), g)}

    def squared_norms(self) -> Tensor:
        """Positions that read the same row add up before the norm is taken."""
        chosen, g = self.shaped()
        plain = torch.linalg.vector_norm(g.flatten(1), dim=1, dtype=torch.float32).square()
        twice = _repeats(chosen)
        if not _recorded(chosen) and not bool(twice.any()):
            return plain
        same = chosen[:, :, None] == chosen[:, None, :]
        return torch.where(twice, from_grams(gram(g), same, g), plain)  # no unit is rounded as others need it

    def add(self, factors: Tensor, into: Views) -> None:
        chosen, g = self.shaped()
        view = into[self.table]
        weighted = (g * factors.to(g.dtype)[:, None, None]).flatten(0, 1).to(view.dtype)
        view.index_add_(0, chosen.flatten(), weighted)

    def join(self, other: Record) -> Record | None:
        """Join two reads of one table by concatenating positions, and a table with a head that shares its weight."""
        if isinstance(other, LinearRecord) and other.weight is self.table:
            return TiedRecord(self, other)
        if not isinstance(other, EmbeddingRecord):
            return None
        (chosen, g), (more, more_g) = self.shaped(), other.shaped()
        both = EmbeddingRecord(self.tape, self.table, torch.cat((chosen, more), 1), None)
        both.gradient = torch.cat((g, more_g), 1)
        return both


class TiedRecord(Record):
    """A table that is also the weight of a linear layer, neither gradient written out.

    With rows a_s and gradients b_s of the linear layer, entries i_t and gradients e_t of the table, one unit's gradient is
    sum_t 1[i_t] e_t + sum_s b_s a_s, and its squared norm has 2 sum_{t,s} b_s[i_t] (e_t . a_s) besides those of the two.
    """

    def __init__(self, table: EmbeddingRecord, head: LinearRecord) -> None:
        self.table, self.head = table, head
        self.parameters = list(head.parameters)

    def instantiate(self) -> dict[Tensor, Tensor]:
        gradients = self.head.instantiate()
        return {**gradients, self.table.table: gradients[self.table.table] + self.table.instantiate()[self.table.table]}

    def squared_norms(self) -> Tensor:
        chosen, e = self.table.shaped()
        a, b = self.head.shaped()
        read = b.gather(2, chosen[:, None, :].expand(-1, b.shape[1], -1))  # [units, positions of the head, of the table]
        cross = torch.linalg.vecdot(read.flatten(1).float(), torch.bmm(a.float(), e.float().mT).flatten(1))
        largest = _lengths(e).sum(1) * (_lengths(a) * _lengths(b)).sum(1)  # of the two: what rounding may hide is a share of it
        norms = self.table.squared_norms() + self.head.squared_norms() + 2 * cross
        return norms.clamp_(min=0.0) + 2 * hidden(a) * largest

    @property
    def gradient(self) -> Tensor:
        return self.head.gradient

    def add(self, factors: Tensor, into: Views) -> None:
        self.table.add(factors, into)
        self.head.add(factors, into)

    def blank(self, good: Tensor) -> None:
        self.table.blank(good)
        self.head.blank(good)


def _lengths(x: Tensor) -> Tensor:
    """Of every position, never 0: see `ROOM`."""
    return torch.linalg.vector_norm(x, dim=2, dtype=torch.float32) + ROOM**0.5


def _recorded(x: Tensor) -> bool:
    """Whether a CUDA graph is being recorded, during which nothing can be looked at."""
    return x.is_cuda and torch.cuda.is_current_stream_capturing()


def _repeats(chosen: Tensor) -> Tensor:
    """Which units read a row twice, which is rare; the choice of kernel that follows is not released."""
    ordered = chosen.sort(1).values
    return (ordered[:, 1:] == ordered[:, :-1]).any(1)


def use(tape: Tape, table: Tensor, chosen: Tensor, padding: int | None = None) -> Tensor:
    record = EmbeddingRecord(tape, table, chosen, padding)
    tape.add(record)
    return _Embedding.apply(table, chosen, record)


def embedding(module: nn.Module, tape: Tape) -> Callable[..., Tensor]:
    assert isinstance(module, nn.Embedding)
    _by_itself(module)
    return lambda chosen: use(tape, module.weight, tape.batched(module, chosen), module.padding_idx)


def inherited(module: nn.Module, tape: Tape) -> Callable[..., Any]:
    """A subclass of nn.Embedding with a forward of its own, such as one that scales what it reads (Bart, Gemma).

    Its forward runs unchanged, and every read of its table is recorded. A forward that uses its table in another way, which
    shows on made-up rows, runs example by example.
    """
    assert isinstance(module, nn.Embedding)
    _by_itself(module)

    def forward(*args: Any, **kwargs: Any) -> Any:
        if module in tape.layout.lost:
            return copied(module, tape)(*args, **kwargs)
        with _Reads(module, tape):
            return forward_of(module)(*args, **kwargs)

    return forward


class _Reads(TorchFunctionMode):
    """Puts a recorded read in the place of `F.embedding(indices, module.weight)`."""

    def __init__(self, module: nn.Embedding, tape: Tape) -> None:
        super().__init__()
        self._module, self._tape, self._table = module, tape, module.weight

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func is F.embedding:
            chosen, table, padding = inspect.signature(F.embedding).bind(*args, **kwargs).args[:3]
            if table is self._table:
                return use(self._tape, table, self._tape.batched(self._module, chosen), padding)
        if not any(leaf is self._table for leaf in pytree.tree_leaves((args, kwargs))):
            return func(*args, **kwargs)
        args, kwargs = pytree.tree_map(lambda leaf: leaf.detach() if leaf is self._table else leaf, (args, kwargs))
        result = func(*args, **kwargs)
        if func is not Tensor.detach and any(isinstance(leaf, Tensor) for leaf in pytree.tree_leaves(result)):
            self._otherwise()
        return result

    def _otherwise(self) -> None:
        """Refuse a computation from the table itself; only its shape and type may be read."""
        self._tape.layout.lost.add(self._module)
        if not self._tape.layout.learning:
            raise InvalidValue(
                f"{type(self._module).__name__} computes something from its table that it did not on made-up rows, so no "
                "unit's share of its gradient is known. Let it read its table in one way only: super().forward(indices)."
            )


def bag(module: nn.Module, tape: Tape) -> Callable[..., Tensor]:
    """nn.EmbeddingBag: rows of a table, then their sum, mean or maximum. With offsets the enclosing module runs under vmap."""
    assert isinstance(module, nn.EmbeddingBag)
    _by_itself(module)

    def forward(input: Tensor, offsets: Tensor | None = None, per_sample_weights: Tensor | None = None) -> Tensor:
        if input.ndim != 2:
            return copied(module, tape)(input, offsets, per_sample_weights)
        chosen = tape.batched(module, input)
        rows = use(tape, module.weight, chosen, module.padding_idx)
        padding = torch.zeros_like(chosen, dtype=torch.bool) if module.padding_idx is None else chosen == module.padding_idx
        if per_sample_weights is not None:
            rows = rows * per_sample_weights[..., None]
        if module.mode == "max":
            pooled = rows.masked_fill(padding[..., None], -torch.inf).amax(1)
            return pooled.masked_fill(padding.all(1, keepdim=True), 0.0)
        pooled = rows.masked_fill(padding[..., None], 0.0).sum(1)
        return pooled if module.mode == "sum" else pooled / (~padding).sum(1, keepdim=True).clamp_min(1)

    return forward


def _by_itself(module: nn.Embedding | nn.EmbeddingBag) -> None:
    """Refuse options that let examples interact. Sparse gradients become dense, since every row has noise."""
    if module.scale_grad_by_freq or module.max_norm is not None:
        option = "scale_grad_by_freq" if module.scale_grad_by_freq else "max_norm"
        raise InvalidValue(
            f"An {type(module).__name__} with {option} changes its table, or one example's gradient, by what other examples "
            f"hold. Make it without {option}."
        )


LAYERS: dict[Any, Forward] = {nn.Embedding.forward: embedding, nn.EmbeddingBag.forward: bag}
