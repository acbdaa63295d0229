"""Embeddings: rows of a table, chosen by whole numbers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from discreet.errors import InvalidValue
from discreet.learn.sgd.engine.tape import Forward, Record, Tape, Views, from_grams, gram


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
        chosen = self.chosen.reshape(units, -1)
        g = self.gradient.reshape(units, chosen.shape[1], -1)
        return chosen, g if self.padding is None else g.masked_fill((chosen == self.padding)[..., None], 0.0)

    def instantiate(self) -> dict[Tensor, Tensor]:
        chosen, g = self.shaped()
        made = g.new_zeros(chosen.shape[0], *self.table.shape)
        return {self.table: made.scatter_add_(1, chosen[..., None].expand_as(g), g)}

    def squared_norms(self) -> Tensor:
        """Positions that read the same row add up before the norm is taken."""
        chosen, g = self.shaped()
        plain = torch.linalg.vector_norm(g.flatten(1), dim=1, dtype=torch.float32).square()
        twice = _repeats(chosen)
        if not bool(twice.any()):
            return plain
        same = chosen[:, :, None] == chosen[:, None, :]
        return torch.where(twice, from_grams(gram(g), same, g), plain)  # no unit is rounded as others need it

    def add(self, factors: Tensor, into: Views) -> None:
        chosen, g = self.shaped()
        view = into[self.table]
        weighted = (g * factors.to(g.dtype)[:, None, None]).flatten(0, 1).to(view.dtype)
        view.index_add_(0, chosen.flatten(), weighted)


def _repeats(chosen: Tensor) -> Tensor:
    """Which units read a row twice. Positions usually do not; which kernel runs then tells nothing that is released."""
    ordered = chosen.sort(1).values
    return (ordered[:, 1:] == ordered[:, :-1]).any(1)


def use(tape: Tape, table: Tensor, chosen: Tensor, padding: int | None = None) -> Tensor:
    record = EmbeddingRecord(tape, table, chosen, padding)
    tape.add(record)
    return _Embedding.apply(table, chosen, record)


def embedding(module: nn.Module, tape: Tape) -> Callable[..., Tensor]:
    assert isinstance(module, nn.Embedding)
    if module.scale_grad_by_freq or module.max_norm is not None or module.sparse:
        raise InvalidValue(
            "An Embedding with scale_grad_by_freq, max_norm or sparse changes its table, or one example's gradient, by what "
            "other examples hold. Use nn.Embedding(entries, width) without them."
        )
    return lambda chosen: use(tape, module.weight, tape.batched(module, chosen), module.padding_idx)


LAYERS: dict[Any, Forward] = {nn.Embedding.forward: embedding}
