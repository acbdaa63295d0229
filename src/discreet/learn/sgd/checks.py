"""Checks of a model, an optimizer and a batch, and that nothing untrained has changed before anything is written.

Noise covers the trained parameters alone. A buffer, a frozen parameter or an extra state that a forward pass changed depends on
the rows without noise.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import pickle
from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from discreet.errors import DiscreetError, InvalidValue
from discreet.learn.sgd.distributed import Alone, local

TRIED = (
    "discreet: this was raised on made-up rows, with the shapes and types of yours, on which model and loss are tried before "
    "anything is charged: floating-point numbers are normal or between 0 and 1, whole numbers are 0 and 1, gradients may be "
    "off, and a batch may have a single example, as batches drawn at random may (so write squeeze(1), not squeeze()). Model "
    "and loss must take such rows. Of a row, the last part is the target and the others are what the model is called with."
)


# Arithmetic units of a multiprocessor, by compute capability: the driver tells how many of those a GPU has.
CORES = {
    (7, 0): 64, (7, 2): 64, (7, 5): 64, (8, 0): 64, (8, 6): 128, (8, 7): 128, (8, 9): 128, (9, 0): 128, (10, 0): 128,
    (10, 3): 128, (12, 0): 128,
}  # fmt: skip


def whole_gpu(device: torch.device) -> None:
    """Refuse a GPU on which MPS limits the processors: convolutions were observed to be wrong there.

    Sums of convolutions were off by half and more under a limit of 85 % (torch 2.11, H200, bfloat16), plain autograd's too;
    in float32 they are right. A limit set by the daemon shows in the number of processors that CUDA reports.
    """
    if device.type != "cuda":
        return
    share = os.environ.get("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", "").strip()
    limit = f"CUDA_MPS_ACTIVE_THREAD_PERCENTAGE is {share}" if share and share != "100" else ""
    if not limit and torch.cuda.is_available():
        visible, all_of_it = processors(device)
        limit = (
            f"CUDA shows {visible} of {all_of_it} processors (a limit of the MPS daemon, say)" if visible < all_of_it else ""
        )
    if limit:
        raise InvalidValue(
            f"{limit}: on a limited share of a GPU's processors gradients of convolutions were seen to be wrong, and a wrong "
            "gradient is not clipped. Set the share to 100, for the daemon too, before the process starts."
        )


def processors(device: torch.device) -> tuple[int, int]:
    """The multiprocessors that CUDA lets this process use, and those that the GPU has; the same where that is not known."""
    about = torch.cuda.get_device_properties(device)
    visible = int(about.multi_processor_count)
    width = CORES.get((about.major, about.minor), 0)
    try:
        driver, handle, cores, now, later = ctypes.CDLL("libnvidia-ml.so.1"), ctypes.c_void_p(), *map(ctypes.c_uint, (0, 0, 0))
        failed = driver.nvmlInit_v2() or driver.nvmlDeviceGetHandleByUUID(f"GPU-{about.uuid}".encode(), ctypes.byref(handle))
        failed = failed or driver.nvmlDeviceGetNumGpuCores(handle, ctypes.byref(cores))
        if not failed and not driver.nvmlDeviceGetMigMode(handle, ctypes.byref(now), ctypes.byref(later)) and now.value:
            return visible, visible  # a part of a GPU that is one by itself
    except (OSError, AttributeError):  # no driver's library, or an old one; an old torch without uuid
        return visible, visible
    return (visible, cores.value // width) if width and not failed else (visible, visible)


def length(batch: Any) -> int:
    if isinstance(batch, tuple) and isinstance(batch[0], Tensor):
        return int(batch[0].shape[0])
    return int(next(leaf.shape[0] for leaf in pytree.tree_leaves(batch) if isinstance(leaf, Tensor)))


def same_parameters(model: nn.Module, optimizer: torch.optim.Optimizer, trained: list[nn.Parameter]) -> None:
    held = {id(p) for group in optimizer.param_groups for p in group["params"]}
    foreign = held - {id(p) for p in model.parameters()}
    if foreign:
        raise InvalidValue(
            f"The optimizer holds {len(foreign)} parameters that are not the model's; they would never get a gradient. "
            "Make it from this model: torch.optim.SGD(model.parameters(), …)."
        )
    stale = [name for name, p in model.named_parameters() if not p.requires_grad and p.grad is not None and id(p) in held]
    if stale:
        raise InvalidValue(
            f"{', '.join(stale[:5])}: not trained, but with a gradient from before, which the optimizer would apply in every "
            "step, without noise. Call optimizer.zero_grad() first."
        )
    missing = [name for name, p in model.named_parameters() if p.requires_grad and id(p) not in held]
    if missing:
        raise InvalidValue(
            f"{', '.join(missing[:5])}: trainable, but not in the optimizer. Freeze it "
            "(requires_grad_(False)) or give it to the optimizer: "
            "an unused gradient would take its part of the clip norm."
        )


def not_split(split: bool, after: Any, collate: Any) -> None:
    """Refuse options that a model under fully_shard, whose weights are split over processes, does not support."""
    if split and after is not None:
        raise InvalidValue(
            "Postprocess(gradient=…) needs whole gradients, which a model under fully_shard never has. Leave it out."
        )
    if split and collate is not None:
        raise InvalidValue("A collate_fn under fully_shard: processes would call the model differently often. Leave it out.")


def only_gradients_of(parameters: list[nn.Parameter], optimizer: Any) -> None:
    """Refuse gradients that the engine did not make: they are neither clipped nor noisy."""
    ours = {id(p) for p in parameters}
    held = [p for group in optimizer.param_groups for p in group["params"]]
    foreign = [p for p in held if p.grad is not None and id(p) not in ours]
    if foreign:
        for p in held:
            p.grad = None
        raise InvalidValue(
            f"The optimizer holds {len(foreign)} parameters with gradients that are not of this run: they were added to "
            "the model or the optimizer after it began. Begin another run with the model as it is now."
        )


def finite(parameters: list[nn.Parameter], group: Alone, number: int) -> None:
    """Refuse weights that are not numbers after so many steps."""
    if not group.every(all(bool(torch.isfinite(local(p)).all()) for p in parameters)):
        raise DiscreetError(
            f"The weights are no longer finite numbers after step {number}: the run has diverged. Lower the learning "
            "rate; the gradients that reach the optimizer are clipped, so a diverging update comes from its own settings."
        )


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
        """`state` is what is about to be written; a model may return something else the next time."""
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
    shard = local(tensor)
    return shard.data_ptr(), shard.numel(), shard.dtype, tuple(shard.shape), shard.stride()


def _digest(value: Any, trained: set[tuple[Any, ...]]) -> str:
    if isinstance(value, Tensor):
        if place(value) in trained and value.numel():
            return "trained"
        import torch

        shard = local(value).detach().cpu().contiguous()
        digest = hashlib.blake2b(f"{shard.dtype}{tuple(shard.shape)}".encode(), digest_size=16)
        digest.update(shard.flatten().view(torch.uint8).numpy().data if shard.numel() else b"")
        return digest.hexdigest()
    try:
        return hashlib.blake2b(pickle.dumps(value), digest_size=16).hexdigest()
    except Exception:  # what cannot be pickled cannot be saved either; its text is what can be compared
        return repr(value)
