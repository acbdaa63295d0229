"""Tables without exactness: relaxed rows from many starts, pooled, and how sure each cell is.

A column of categories is a softmax of free numbers, so that optimisation moves in the simplex (Vero et al. 2023, TabLeak). The
rows of the starts come in any order, so each start is matched to the best one before they are pooled. The doubt of a cell is
the entropy of what the starts say of it; confidence is the share of the starts, weighted by how well they match, that agree.

That share is too sure of itself, since starts agree on what the prior makes likely. With public rows it is calibrated: the same
attack on a batch of them shows how often cells of each confidence are right.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from scipy.optimize import linear_sum_assignment
from torch import Tensor

from discreet.attack.gradients.layout import Layout
from discreet.attack.gradients.network import Network
from discreet.attack.gradients.update import Update

STARTS = 8
CLOSE = 0.05  # of its range: numbers of two starts this near agree


@dataclass(frozen=True, slots=True)
class Pooled:
    """Rows in the network's layout, and the confidence of each cell (rows × columns)."""

    rows: Tensor
    confidence: Tensor
    entropy: Tensor


def ensemble(
    network: Network, update: Update, labels: Tensor, layout: Layout, *, steps: int, seconds: float, seed: int,
    starts: int = STARTS, progress: Callable[[int, int], None] | None = None,
) -> Pooled:  # fmt: skip
    """Rows pooled over the starts that there is time for."""
    begin = time.process_time()
    members: list[tuple[float, Tensor]] = []
    for turn in range(starts):
        members.append(_start(network, update, labels, layout, steps, seconds / starts, seed + turn))
        if progress is not None:
            progress(turn + 1, starts)
        if time.process_time() - begin > seconds:
            break
    return pool(members, labels, layout)


def calibrated(
    found: Pooled, network: Network, labels: Tensor, layout: Layout, public: Tensor, *, steps: int, seconds: float, seed: int
) -> Pooled:  # fmt: skip
    """The confidence as the share of cells that are right, measured by the same attack on as many public rows."""
    generator = torch.Generator().manual_seed(seed)
    rows = public[torch.randint(len(public), (len(labels),), generator=generator)].to(network.dtype)
    names = network.names
    update = Update(dict(zip(names, (value.double().cpu() for value in network.gradient(rows, labels)))), 1e-12)
    tried = ensemble(network, update, labels, layout, steps=steps, seconds=seconds, seed=seed + 1)
    cost = torch.cdist(rows.double(), tried.rows.double())
    order = torch.as_tensor(linear_sum_assignment(cost.numpy())[1])
    right = right_cells(rows.double(), tried.rows[order].double(), layout)
    mapped = isotonic(tried.confidence[order].flatten().double(), right.flatten().double(), found.confidence.flatten().double())
    return replace(found, confidence=mapped.reshape(found.confidence.shape))


def right_cells(truth: Tensor, found: Tensor, layout: Layout) -> Tensor:
    """Which cells are right, rows × columns: the category, or the number within a share of its range."""
    columns = []
    for kind, limits, place in zip(layout.categories, layout.ranges, layout.parts()):
        if kind is None:
            assert limits is not None
            columns.append((truth[:, place.start] - found[:, place.start]).abs() <= CLOSE * (limits[1] - limits[0]))
        else:
            columns.append(truth[:, place].argmax(1) == found[:, place].argmax(1))
    return torch.stack(columns, 1)


def isotonic(given: Tensor, right: Tensor, asked: Tensor) -> Tensor:
    """The share that is right as a function that never falls, by pooling adjacent violators; at the values asked.

    >>> isotonic(torch.tensor([0.1, 0.2, 0.9, 0.8]), torch.tensor([0.0, 0.0, 1.0, 1.0]), torch.tensor([0.0, 1.0])).tolist()
    [0.25, 0.75]
    """
    order = given.argsort()
    blocks: list[list[float]] = []  # sum of the right ones, how many, the confidence where the block begins
    for place, hit in zip(given[order].tolist(), right[order].tolist()):
        blocks.append([hit, 1.0, place])
        while len(blocks) > 1 and (
            blocks[-2][0] * blocks[-1][1] >= blocks[-1][0] * blocks[-2][1] or blocks[-2][2] == blocks[-1][2]
        ):
            last = blocks.pop()
            blocks[-1] = [blocks[-1][0] + last[0], blocks[-1][1] + last[1], blocks[-1][2]]
    starts = torch.tensor([block[2] for block in blocks], dtype=asked.dtype)
    shares = torch.tensor([(block[0] + 1) / (block[1] + 2) for block in blocks], dtype=asked.dtype).cummax(0).values
    return shares[(torch.searchsorted(starts, asked, right=True) - 1).clamp(min=0)]


def _start(
    network: Network, update: Update, labels: Tensor, layout: Layout, steps: int, seconds: float, seed: int
) -> tuple[float, Tensor]:  # fmt: skip
    """One start: its loss in the end and its rows, categories as probabilities."""
    sent = [value.to(network.dtype) for value in update.list()]
    size = math.sqrt(sum(float((value**2).sum()) for value in sent))
    generator = torch.Generator().manual_seed(seed)
    free = torch.randn(len(labels), layout.width, generator=generator, dtype=torch.float64).to(network.dtype).requires_grad_()
    optimizer = torch.optim.Adam([free], lr=0.06)
    begin, value = time.process_time(), torch.zeros(())
    for _ in range(steps):
        gradient = network.gradient(relaxed(free, layout), labels, differentiable=True)
        product = sum(((a * b).sum() for a, b in zip(gradient, sent)), torch.zeros((), dtype=network.dtype))
        length = torch.sqrt(sum(((a**2).sum() for a in gradient), torch.zeros((), dtype=network.dtype)))
        value = 1.0 - product / (length * size)
        (free.grad,) = torch.autograd.grad(value, [free])
        optimizer.step()
        optimizer.zero_grad()
        if time.process_time() - begin > seconds or float(value.detach()) < 1e-12:
            break
    return float(value.detach()), relaxed(free, layout).detach()


def relaxed(free: Tensor, layout: Layout) -> Tensor:
    """Free numbers as rows: a softmax per column of categories, a sigmoid over the range of each number."""
    pieces = []
    for kind, limits, place in zip(layout.categories, layout.ranges, layout.parts()):
        part = free[:, place]
        if kind is None:
            assert limits is not None
            pieces.append(limits[0] + (limits[1] - limits[0]) * torch.sigmoid(part))
        else:
            pieces.append(torch.softmax(part, 1))
    return torch.cat(pieces, 1)


def pool(members: list[tuple[float, Tensor]], labels: Tensor, layout: Layout) -> Pooled:
    """Starts matched row by row to the best one, within rows of the same label, and averaged by how well they match."""
    members = sorted(members, key=lambda each: each[0])
    best = members[0][1]
    aligned = [best]
    for _, rows in members[1:]:
        cost = torch.cdist(best, rows) + 1e6 * (labels[:, None] != labels[None, :])
        aligned.append(rows[torch.as_tensor(linear_sum_assignment(cost.numpy())[1])])
    weights = torch.softmax(-torch.tensor([math.log(max(loss, 1e-300)) for loss, _ in members]), 0).to(best.dtype)
    stacked = torch.stack(aligned)
    rows = torch.zeros_like(best)
    confidence = torch.zeros(len(best), len(layout.names), dtype=best.dtype)
    entropy = torch.zeros_like(confidence)
    for column, (kind, limits, place) in enumerate(zip(layout.categories, layout.ranges, layout.parts())):
        part = stacked[:, :, place]
        if kind is None:
            assert limits is not None
            order = part[..., 0].sort(0)
            middle = (weights[order.indices].cumsum(0) >= 0.5).double().argmax(0)
            rows[:, place.start] = order.values.gather(0, middle[None])[0]
            agree = (part[..., 0] - rows[:, place.start]).abs() <= CLOSE * (limits[1] - limits[0])
            confidence[:, column] = (weights[:, None] * agree).sum(0)
            share = torch.stack([confidence[:, column], 1 - confidence[:, column]], 1)
        else:
            votes = (weights[:, None, None] * part).sum(0)
            rows[:, place] = torch.nn.functional.one_hot(votes.argmax(1), len(kind)).to(rows.dtype)
            confidence[:, column] = votes.max(1).values
            share = votes
        entropy[:, column] = -(share * share.clamp(min=1e-12).log()).sum(1) / math.log(share.shape[1])
    return Pooled(rows, confidence, entropy)
