"""Everything that a model would save and that is not trained must be, bit for bit, what it was before a private row was read.

Noise covers the trained parameters alone. A buffer, a frozen parameter or an extra state that a forward changed holds something
of the rows without noise.
"""

from __future__ import annotations

import hashlib
import pickle
from collections.abc import Iterable, Mapping
from typing import Any

from torch import Tensor, nn

from discreet.errors import InvalidValue
from discreet.learn.sgd.distributed import local


class UntrainedState:
    """Digests of what a model saves beside its trained parameters.

    >>> import torch
    >>> model = nn.BatchNorm1d(2, affine=False)
    >>> state = UntrainedState(model, [])
    >>> state.check(model)
    >>> model.running_mean += 1.0
    >>> state.changed(model)
    ['running_mean']
    """

    def __init__(self, model: nn.Module, trained: Iterable[Tensor]) -> None:
        self._trained = list(trained)
        self._before = self._digests(model)

    def _digests(self, model: nn.Module, state: Mapping[str, Any] | None = None) -> dict[str, str]:
        """By name in what the model saves; buffers that it does not save are there too, since its predictions use them."""
        places = {place(p) for p in self._trained}
        own = {f"(unsaved) {name}": b for name, b in model.named_buffers()}
        saved = model.state_dict() if state is None else state
        return {name: _digest(value, places) for name, value in (*saved.items(), *own.items())}

    def changed(self, model: nn.Module, state: Mapping[str, Any] | None = None) -> list[str]:
        """`state`: what is about to be written; a model may give something else when it is asked again."""
        now = self._digests(model, state)
        names = [name for name in {**self._before, **now} if now.get(name) != self._before.get(name)]
        saved = [name for name in names if not name.startswith("(unsaved)")]
        return saved + [name for name in names if name.startswith("(unsaved)") and name.removeprefix("(unsaved) ") not in saved]

    def check(self, model: nn.Module, state: Mapping[str, Any] | None = None) -> None:
        names = self.changed(model, state)
        if names:
            raise InvalidValue(
                f"{', '.join(names[:5])}: changed since the run began, though not trained. What is there may come from private "
                "rows, and no noise covers it, so nothing is written. Let the forward change no buffer and no frozen parameter "
                "(module.eval() for running statistics), put back what you changed yourself, or begin another run."
            )


def place(tensor: Tensor) -> tuple[Any, ...]:
    """The memory of a tensor: as many bytes from the same place, read as the same numbers."""
    here = local(tensor)
    return here.data_ptr(), here.numel(), here.dtype, tuple(here.shape), here.stride()


def _digest(value: Any, trained: set[tuple[Any, ...]]) -> str:
    if isinstance(value, Tensor):
        if place(value) in trained and value.numel():
            return "trained"
        import torch

        here = local(value).detach().cpu().contiguous()
        digest = hashlib.blake2b(f"{here.dtype}{tuple(here.shape)}".encode(), digest_size=16)
        digest.update(here.flatten().view(torch.uint8).numpy().data if here.numel() else b"")
        return digest.hexdigest()
    try:
        return hashlib.blake2b(pickle.dumps(value), digest_size=16).hexdigest()
    except Exception:  # what cannot be pickled cannot be saved either; its text is what can be compared
        return repr(value)
