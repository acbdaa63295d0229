"""Layers of other libraries, known by the name of their forward: the library itself is never imported."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor, nn

from discreet.learn.sgd.engine.layers import linear
from discreet.learn.sgd.engine.tape import Forward, Tape


def conv1d(module: nn.Module, tape: Tape) -> Callable[..., Tensor]:
    """Hugging Face's Conv1D (GPT-2): a linear layer whose weight is stored [d, p]."""
    stored: Any = module
    return lambda x: linear.use(tape, tape.batched(module, x), tape.part(stored.weight, transposed=True), stored.bias)


LAYERS: dict[tuple[str, str], Forward] = {("transformers.pytorch_utils", "Conv1D.forward"): conv1d}
