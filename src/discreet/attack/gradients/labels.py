"""Which labels a batch had, read from the gradient of the last layer's bias.

For cross entropy over a batch of B rows that gradient is, for class c, the mean predicted probability of c minus the share of
rows with label c. A single row has one negative entry, its label (iDLG, Zhao, Mopuri and Bilen 2020). For more rows the mean
probability is unknown; it is taken from rows of the prior, and the counts are the rounded differences that sum to B.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from discreet.attack.gradients.network import Network, last_linear
from discreet.attack.gradients.update import Update


def label_counts(network: Network, update: Update, batch: int, prior: Tensor) -> Tensor | None:
    """How many rows of each class the batch had; None where the loss or the last layer does not tell."""
    last = last_linear(network.model)
    if last is None or not isinstance(network.loss, nn.CrossEntropyLoss):
        return None
    gradient = update.values[f"{last[0]}.bias" if last[0] else "bias"]
    if batch == 1:
        counts = torch.zeros(len(gradient), dtype=torch.int64)
        counts[int(gradient.argmin())] = 1
        return counts
    with torch.no_grad():
        expected = torch.softmax(network.outputs(prior.to(network.dtype)), 1).mean(0).cpu()
    return rounded((expected - gradient) * batch, batch)


def rounded(shares: Tensor, total: int) -> Tensor:
    """Whole numbers near `shares`, none negative, that sum to `total`: the largest remainders are rounded up."""
    shares = shares.clamp(min=0.0)
    shares = shares * (total / max(float(shares.sum()), 1e-12))
    counts = shares.floor().long()
    for index in torch.argsort(counts - shares)[: total - int(counts.sum())]:
        counts[index] += 1
    return counts


def as_labels(counts: Tensor) -> Tensor:
    """The labels of a batch with these counts, in order of class."""
    return torch.repeat_interleave(torch.arange(len(counts)), counts)
