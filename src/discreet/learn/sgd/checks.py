"""What a run asks of a model, an optimizer and a batch before it believes them."""

from __future__ import annotations

import os
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


def whole_gpu(device: torch.device) -> None:
    """Refuse a GPU of which MPS gives only a share of the processors: convolutions were seen to come out wrong there.

    Sums of convolutions were off by half and more under a limit of 85 % (torch 2.11, H200), plain autograd's too. A limit set
    by the daemon alone cannot be seen from here.
    """
    share = os.environ.get("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", "").strip()
    if device.type == "cuda" and share and share != "100":
        raise InvalidValue(
            f"CUDA_MPS_ACTIVE_THREAD_PERCENTAGE is {share}: on a limited share of a GPU's processors gradients of convolutions "
            "were seen to be wrong, and a wrong gradient is not clipped. Unset it, or set it to 100, before the process starts."
        )


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
    left = [name for name, p in model.named_parameters() if p.requires_grad and id(p) not in held]
    if left:
        raise InvalidValue(
            f"{', '.join(left[:5])}: trainable, but not in the optimizer. Freeze it "
            "(requires_grad_(False)) or give it to the optimizer: "
            "an unused gradient would take its part of the clip norm."
        )


def not_split(split: bool, after: Any, collate: Any) -> None:
    """What a model under fully_shard, whose weights are split over processes, cannot be trained with."""
    if split and after is not None:
        raise InvalidValue(
            "Postprocess(gradient=…) needs whole gradients, which a model under fully_shard never has. Leave it out."
        )
    if split and collate is not None:
        raise InvalidValue("A collate_fn under fully_shard: processes would call the model differently often. Leave it out.")


def only_gradients_of(parameters: list[nn.Parameter], optimizer: Any) -> None:
    """A gradient that the engine did not make has neither been clipped nor has it noise: no step is taken with it."""
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
