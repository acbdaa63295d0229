"""How hard a row is by the network's own layers: what a linear reader of each layer, taught by other rows, makes of its label.

A large loss may mean a row that was not trained on, or one that is hard. The first layers, which memorise little, tell
how hard it is (Alain and Bengio 2016 read them so); the last tell what the network made of it; the step between the two tells
whether it was trained on. Readers are taught by rows in and out of the training set alike: they use no row's membership, and
none reads a row it was taught by.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn

Array = NDArray[Any]
LAYERS = 12  # read at most, evenly spread
WIDTH = 512  # numbers read of a layer, at most
SIDE = 2  # an image inside is averaged over so many parts each way
PARTS = 10
SHRINK = 0.1  # of a ridge regression on standardised numbers
AT_ONCE = 512


def probes(model: nn.Module, X: Array, y: Array, *, seed: int = 0) -> Array:
    """For every row and layer the reader's score of the row's label, and its lead over the best other [rows, 2 layers].

    >>> probes(nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2)), np.ones((20, 3)), np.zeros(20, int)).shape
    (20, 4)
    """
    place = "cuda" if next(model.parameters()).is_cuda else "cpu"  # others have no numbers of 64 bits
    wanted = torch.as_tensor(np.asarray(y), dtype=torch.long).to(place)
    part = torch.as_tensor(np.random.default_rng(seed).permutation(len(wanted)) % PARTS).to(place)
    classes = max(2, int(wanted.max()) + 1)
    leads = [_lead(_read(a.to(place), wanted, part, classes), wanted) for a in layers(model, X, seed=seed)]
    return torch.cat(leads, 1).cpu().numpy() if leads else np.zeros((len(wanted), 0))


def layers(model: nn.Module, X: Array, *, seed: int = 0) -> list[Tensor]:
    """What goes into the layers that have weights, made small: [rows, at most WIDTH] of each, on the CPU."""
    weighty = [layer for layer in model.modules() if isinstance(layer, (nn.Linear, nn.Conv1d, nn.Conv2d))]
    chosen = [weighty[i] for i in sorted({round(i) for i in np.linspace(0, len(weighty) - 1, LAYERS)})] if weighty else []
    kept: dict[nn.Module, list[Tensor]] = {layer: [] for layer in chosen}
    used: set[nn.Module] = set()
    columns: dict[nn.Module, Tensor] = {}

    def catch(layer: nn.Module, inputs: Any, _: Any) -> None:
        if layer in used:  # a layer that is used twice is read once
            return
        used.add(layer)
        small = _small(layer, inputs[0].detach())
        if small.shape[1] > WIDTH:
            draw = np.random.default_rng(seed)
            columns.setdefault(layer, torch.as_tensor(np.sort(draw.permutation(small.shape[1])[:WIDTH]), device=small.device))
            small = small[:, columns[layer]]
        kept[layer].append(small.float().cpu())

    before, place = model.training, next(model.parameters()).device
    hooks = [layer.register_forward_hook(catch) for layer in chosen]
    model.eval()
    try:
        with torch.no_grad():
            for rows in torch.as_tensor(X, dtype=torch.float32).split(AT_ONCE):
                used.clear()
                model(rows.to(place))
    finally:
        for hook in hooks:
            hook.remove()
        model.train(before)
    joined = [torch.cat(parts) for parts in kept.values() if parts]
    return [each for each in joined if len(each) == len(X)]  # a layer that mixes rows, or does not see them all, says nothing


def _small(layer: nn.Module, a: Tensor) -> Tensor:
    if isinstance(layer, nn.Conv2d):
        return F.adaptive_avg_pool2d(a, SIDE).flatten(1)
    if isinstance(layer, nn.Conv1d):
        return F.adaptive_avg_pool1d(a, SIDE).flatten(1)
    return a if a.dim() < 3 else a.flatten(1, -2).mean(1)


def _read(a: Tensor, y: Tensor, part: Tensor, classes: int) -> Tensor:
    """Scores [rows, classes] by ridge regressions, each on all parts but the one it reads."""
    a = a.double()
    a = torch.cat([(a - a.mean(0)) / (a.std(0) + 1e-6), a.new_ones(len(a), 1)], 1)
    goal = F.one_hot(y, classes).to(a.dtype) - 1.0 / classes
    square, product = a.mT @ a, a.mT @ goal
    scores = torch.empty_like(goal)
    for k in range(PARTS):
        rows = part == k
        here, left = a[rows], len(a) - int(rows.sum())
        ridge = SHRINK * max(left, 1) * torch.eye(a.shape[1], dtype=a.dtype, device=a.device)
        scores[rows] = here @ torch.linalg.solve(square - here.mT @ here + ridge, product - here.mT @ goal[rows])
    return scores


def _lead(scores: Tensor, y: Tensor) -> Tensor:
    own = scores.gather(1, y[:, None])
    others = scores.scatter(1, y[:, None], -torch.inf).amax(1, keepdim=True)
    return torch.cat([own, own - others], 1)
