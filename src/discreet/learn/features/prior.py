"""A feature network pre-trained on images of random processes: a prior that costs no privacy.

After Tang et al. ("Differentially private image classification by learning priors from random processes", 2023): the network
learns that two crops of one random image belong together (Chen et al. 2020). Private training then starts from there.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from discreet.core import check
from discreet.learn.features.processes import random_images

HIDDEN, APART = 512, 128  # of the layers behind the features, which are thrown away
TIMES = 8  # that a pool of images is seen through before it is drawn anew
WARM = 100  # steps in which the learning rate rises
HEAT = 0.2


def learn_prior(
    model: nn.Module, *, steps: int, size: int = 32, batch: int = 1024, pool: int = 200_000, rate: float = 0.5
) -> Iterator[tuple[int, float]]:
    """Train a network of images [n, 3, size, size] within -2..2 that gives features [n, width]; iterating it trains.

    Gives the number of every step and the loss, a fresh one now and then. Leave out the last layer: the private task has its
    own (model.head = nn.Identity(), and put it back afterwards).

    >>> model = nn.Sequential(nn.Conv2d(3, 4, 3, stride=4), nn.Flatten())
    >>> [number for number, loss in learn_prior(model, steps=2, size=8, batch=4, pool=8)]
    [1, 2]
    """
    check.whole("steps", steps)
    check.whole("size", size, least=8)
    check.whole("batch", batch, least=2)
    check.whole("pool", pool, least=batch)
    check.positive("rate", rate)
    device = next(model.parameters()).device
    with torch.no_grad():
        width = model(torch.zeros(2, 3, size, size, device=device)).shape[1]
    behind = nn.Sequential(nn.Linear(width, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, APART)).to(device)
    every = [*model.parameters(), *behind.parameters()]
    groups = [
        {"params": [p for p in every if p.ndim > 1], "weight_decay": 1e-4},
        {"params": [p for p in every if p.ndim <= 1], "weight_decay": 0.0},
    ]
    optimizer, last_loss = torch.optim.SGD(groups, rate, 0.9, nesterov=True), math.nan
    for step in range(steps):
        if step % (TIMES * pool // batch) == 0:
            known = random_images(pool, side=2 * size, device=device)
        for group in optimizer.param_groups:
            group["lr"] = rate * min(1.0, (step + 1) / WARM) * (1 + math.cos(math.pi * step / steps)) / 2
        rows = known[torch.randint(len(known), (batch,), device=device)]
        loss = apart(behind(model(torch.cat([view(rows, size), view(rows, size)]))))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % WARM == 0:  # looking waits for the GPU
            last_loss = loss.item()
        yield step + 1, last_loss


def view(pool: Tensor, size: int) -> Tensor:
    """A random crop of every image, with random size, shape, colours and mirroring, [n, 3, size, size] within -2..2."""
    count, device = len(pool), pool.device
    area, shape = torch.rand(2, count, device=device)
    part = (0.08 + 0.92 * area).sqrt()
    stretch = ((2 * shape - 1) * math.log(4 / 3) / 2).exp()
    high, wide = (part * stretch).clamp_max(1), (part / stretch).clamp_max(1)
    top, left = ((1 - far) * (2 * torch.rand(count, device=device) - 1) for far in (high, wide))
    side = torch.where(torch.rand(count, device=device) < 0.5, 1.0, -1.0)
    nothing = torch.zeros_like(top)
    moved = torch.stack([wide * side, nothing, left, nothing, high, top], 1).view(-1, 2, 3)
    grid = F.affine_grid(moved, [count, 3, size, size], align_corners=False)
    return jittered(F.grid_sample(pool.float() / 255, grid, padding_mode="reflection", align_corners=False)) * 4 - 2


def jittered(x: Tensor) -> Tensor:
    """Brightness, contrast, saturation and hue changed, one in five without colour."""
    count, device = len(x), x.device
    bright, strong, rich, turn = (0.8 * torch.rand(4, count, 1, 1, 1, device=device) - 0.4).unbind()
    x = x * (1 + bright)
    x = (x - x.mean((1, 2, 3), keepdim=True)) * (1 + strong) + x.mean((1, 2, 3), keepdim=True)
    grey = (x * torch.tensor([0.299, 0.587, 0.114], device=device).view(3, 1, 1)).sum(1, keepdim=True)
    rich = torch.where(torch.rand(count, 1, 1, 1, device=device) < 0.2, -1.0, rich)
    colour = (x - grey) * (1 + rich)
    turn = turn * math.tau * 0.6
    mixed = colour.roll(1, 1) - colour.roll(2, 1)  # a turn around the grey axis, after Rodrigues
    return (grey + colour * turn.cos() + mixed * turn.sin() / 3**0.5).clamp(0, 1)


def apart(z: Tensor, heat: float = HEAT) -> Tensor:
    """Cross-entropy of finding the other view of every image among all views (Chen et al. 2020)."""
    z = F.normalize(z.float(), dim=1)
    near = (z @ z.T / heat).fill_diagonal_(-torch.inf)
    half = len(z) // 2
    return F.cross_entropy(near, torch.arange(len(z), device=z.device).roll(half))
