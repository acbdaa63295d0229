"""Attacks that see the weights: the gradient of each row's loss, layer by layer (Nasr et al. 2019), and the layers themselves.

A row that was trained on pulls little at the weights. The norm of its gradient is the simple attack; the learned one sees the
norms of every layer, random projections of the gradients, what goes into the last layer, the scores, the loss and the label,
and how well each layer tells the label (probes.py), which is how it knows a hard row from one that was not trained on. It is
taught by rows whose membership is known. No row is judged by a network that saw its own truth.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from discreet.attack.membership import signals
from discreet.attack.membership.probes import probes
from discreet.core import check
from discreet.errors import InvalidValue
from discreet.models import Recipe, Trainer, predict, small, splits
from discreet.models.gradients import gradient_norms

Array = NDArray[Any]
FOLDS = 5
REPEATS = 3  # networks for each fold, averaged
STEPS = (240, 800)  # of learning: few rows are memorised, many have more to tell
TRUST = 25.0  # a loss that is larger by 0.04 on rows held out is worth e times less
FAR = 30.0


def gradient(model: nn.Module, X: Array, y: Array) -> NDArray[np.float64]:
    """The simple attack: minus the logarithm of the norm of the whole gradient."""
    norms, _ = gradient_norms(model, X, y)
    return -np.log(np.sqrt((norms.astype(np.float64) ** 2).sum(1)) + 1e-30)


def features(model: nn.Module, X: Array, y: Array, *, project: int = 4, seed: int = 0, own: bool = True) -> tuple[Array, Array]:
    """What the learned attack sees of a row: a few numbers [rows, few] that tell most, and many [rows, many] that each tell
    little: the label, and what means something in this model only (`own`): directions of gradients, what goes into the last
    layer."""
    few, many = pulled(model, X, y, project=project, seed=seed, own=own)
    return np.concatenate([few, probes(model, X, y, seed=seed)], 1), many


def pulled(model: nn.Module, X: Array, y: Array, *, project: int = 4, seed: int = 0, own: bool = True) -> tuple[Array, Array]:
    """The same without what readers make of the layers: the gradients, the outputs, the last layer."""
    norms, projected = gradient_norms(model, X, y, project=project, seed=seed)
    scores, last = _activations(model, X)
    size = np.sign(projected) * np.log1p(1e3 * np.abs(projected))  # gradients of members are small: by orders of magnitude
    whole = np.log(np.sqrt((norms**2).sum(1, keepdims=True)) + 1e-8)
    few, label = _said(scores, y)
    few = np.concatenate([whole, np.log(norms + 1e-8), few], 1)
    return few, np.concatenate([label, *([size, last] if own else [])], 1)


def outputs(model: Any, X: Array, y: Array) -> tuple[tuple[Array, Array], Array]:
    """What the same attack sees of a row where it has the outputs alone; and the scores themselves."""
    scores = np.asarray(predict.logits(model, X), np.float64)
    return _said(scores, y), scores


def _said(scores: Array, y: Array) -> tuple[Array, Array]:
    """The largest scores in order, the loss and the margin; and the label."""
    top = -np.sort(-(scores - scores.max(1, keepdims=True)), 1)[:, 1:11]
    logs, margin = signals.log_probability(scores, y)[:, None], np.clip(signals.margin(scores, y), -FAR, FAR)[:, None]
    return np.concatenate([np.maximum(top, -FAR), np.maximum(logs, -FAR), margin], 1), np.eye(scores.shape[1])[y]


def _activations(model: nn.Module, X: Array) -> tuple[Array, Array]:
    """The scores, and what went into the last linear layer (nothing, where there is none)."""
    linear = [layer for layer in model.modules() if isinstance(layer, nn.Linear)]
    caught: list[Tensor] = []
    hook = linear[-1].register_forward_hook(lambda _, inputs, __: caught.append(inputs[0].flatten(1).cpu())) if linear else None
    before, place = model.training, next(model.parameters()).device
    model.eval()
    with torch.no_grad():
        parts = [model(rows.to(place)).cpu() for rows in torch.as_tensor(X, dtype=torch.float32).split(2048)]
    model.train(before)
    if hook is not None:
        hook.remove()
    scores = torch.cat(parts).numpy().astype(np.float64)
    return scores, torch.cat(caught).numpy() if caught else np.zeros((len(scores), 0))


def whitebox(
    model: nn.Module, X: Array, y: Array, inside: Array, *, known: Array | None = None, project: int = 4, folds: int = FOLDS,
    seed: int = 0,
) -> NDArray[np.float64]:  # fmt: skip
    """The log-odds of every row, learned from rows whose membership is known, by default all of them.

    Rows are dealt into folds; each is judged by networks that learned from the others. With `known` only those rows teach, and
    the others are judged by the mean of all networks.
    """
    return crossfitted(*features(model, X, y, project=project, seed=seed), inside, known=known, folds=folds, seed=seed)


def from_shadows(
    model: nn.Module, recipe: Recipe, X: Array, y: Array, *, shadows: int = 4, population: tuple[Array, Array] | None = None,
    seed: int = 0, device: str = "cpu",
) -> NDArray[np.float64]:  # fmt: skip
    """The same where no row's membership is known: taught by what a few models of the recipe show of their own rows.

    They are trained on random halves of the rows in question, or of a `population`. Norms by layer, what layers know of the
    label, scores and loss carry over from model to model; single activations and directions do not, and are left out.
    """
    if recipe.kind != "torch":
        raise InvalidValue(f"from_shadows looks into torch modules; the recipe is of kind {recipe.kind!r} and builds none.")
    Z, labels = (X, y) if population is None else population
    trainer = Trainer(recipe, device)
    inside = splits(len(Z), check.whole("shadows", shadows), seed)
    taught = [trainer.one(Z[half], labels[half], seed=seed + k) for k, half in enumerate(inside)]
    seen = np.concatenate([np.concatenate(features(each, Z, labels, project=0, own=False), 1) for each in taught])
    everything = [np.arange(len(seen))] * REPEATS
    nets = small.fit(seen, inside.ravel(), everything, small.member, decay=0.1, rate=5e-3, seed=seed)
    here = np.concatenate(features(model, X, y, project=0, own=False), 1)
    return np.mean([nets(here, k)[:, 0] for k in range(REPEATS)], 0).astype(np.float64)


def crossfitted(
    few: Array, many: Array, inside: Array, *, known: Array | None = None, folds: int = FOLDS, seed: int = 0
) -> NDArray[np.float64]:
    """Log-odds from any features, each row's from networks that never saw its truth: half of the networks see all features,
    half only the few that tell most. With few rows that is the better half; what each misses of rows held out decides."""
    inside = np.asarray(inside, np.bool_)
    teach = np.arange(len(inside)) if known is None else np.flatnonzero(known)
    sides = min(int(inside[teach].sum()), int((~inside[teach]).sum()))
    if sides < 4 * check.whole("folds", folds, least=2):
        raise InvalidValue(f"whitebox learns from known rows, at least {4 * folds} inside and outside; got {sides}.")
    rng = np.random.default_rng(check.whole("seed", seed, least=0))
    fold = np.full(len(inside), -1)
    for side in (True, False):  # as many of each side in every fold, or the mean would tell what was left out
        rows = teach[inside[teach] == side]
        fold[rows] = rng.permutation(len(rows)) % folds
    groups = [teach[fold[teach] != k] for k in range(folds) for _ in range(REPEATS)]
    steps = int(np.clip(len(teach) // 16, *STEPS))
    odds, missed = [], []
    for seen in (few, np.concatenate([few, many], 1)):
        nets = small.fit(seen, inside, groups, small.member, decay=0.1, rate=5e-3, steps=steps, watch=1024, seed=seed)
        outputs = np.stack([nets(seen, group)[:, 0] for group in range(len(groups))])
        odds.append(outputs.reshape(folds, REPEATS, -1).mean(1))
        missed.append(nets.missed.reshape(folds, REPEATS, 1).mean(1))
    weight = np.exp(-TRUST * (np.stack(missed) - np.min(missed, 0)))
    total = (weight * odds).sum(0) / weight.sum(0)
    return np.where(fold < 0, total.mean(0), total[fold, np.arange(len(inside))]).astype(np.float64)
