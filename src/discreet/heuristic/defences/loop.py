"""A training loop for defences that need a loss, or an end, of their own."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from discreet.errors import InvalidValue
from discreet.heuristic.defences.defended import TrainingRecipe

Array = NDArray[Any]
Forward = Callable[[Any], Any]  # rows -> scores, as in training: augmented, in the recipe's precision
Loss = Callable[[Forward, Any, Any, int], Any]  # forward, rows, labels, epoch -> what is minimised
Each = Callable[[Any, int], bool]  # model, epoch -> whether to stop


def train(
    recipe: TrainingRecipe, X: Array, y: Array, *, loss: Loss | None = None, each: Each | None = None, device: str = "cpu",
) -> Any:  # fmt: skip
    """A module of the recipe, trained on X and y by the loss given (by default the recipe's own).

    Its first weights and its order follow from the rows, so that the same rows give the same model.
    """
    import torch

    with torch.random.fork_rng(devices=[device] if device != "cpu" else []):
        torch.manual_seed(seed_of(X, y))
        model = recipe.build().to(device)
        optimizer = optimizer_of(recipe, model)
        rows, labels = torch.as_tensor(X, dtype=torch.float32).to(device), torch.as_tensor(y, dtype=torch.long).to(device)
        if images := rows.ndim == 4 and rows.is_cuda:
            model = model.to(memory_format=torch.channels_last)

        def forward(x: Any) -> Any:
            x = x if recipe.augment is None else recipe.augment(x)
            with recipe.mixed(x.device.type):
                return model(x.contiguous(memory_format=torch.channels_last) if images else x).float()

        minimised = loss or _own(recipe)
        for epoch in range(recipe.epochs):
            model.train()
            for group in optimizer.param_groups:
                group["lr"] = recipe.rate(epoch)
            for batch in torch.randperm(len(rows)).to(device).tensor_split(max(1, round(len(rows) / recipe.batch_size))):
                optimizer.zero_grad(set_to_none=True)
                found: Any = minimised(forward, rows[batch], labels[batch], epoch)
                found.backward()
                optimizer.step()
            if each is not None and each(model, epoch):
                break
    return model.eval()


def seed_of(X: Array, y: Array) -> int:
    """A seed that follows from the rows."""
    return zlib.crc32(np.ascontiguousarray(X).tobytes() + np.ascontiguousarray(y).tobytes())


def _own(recipe: TrainingRecipe) -> Loss:
    import torch.nn.functional as F

    smooth = recipe.label_smoothing
    return lambda forward, rows, labels, _: F.cross_entropy(forward(rows), labels, label_smoothing=smooth)


def optimizer_of(recipe: TrainingRecipe, model: Any) -> Any:
    import torch

    parameters = list(model.parameters())
    if recipe.optimizer == "sgd":
        return torch.optim.SGD(parameters, recipe.learning_rate, recipe.momentum, weight_decay=recipe.weight_decay)
    kind = torch.optim.AdamW if recipe.optimizer == "adamw" else torch.optim.Adam
    return kind(parameters, recipe.learning_rate, weight_decay=recipe.weight_decay, fused=True)


def asked(model: Any, X: Array) -> Array:
    """The model's scores for every row."""
    import torch

    place = next(model.parameters()).device
    with torch.no_grad():
        parts: Any = torch.as_tensor(X, dtype=torch.float32).split(4096)  # type: ignore[no-untyped-call]
        return np.asarray(torch.cat([model(rows.to(place)).cpu() for rows in parts]).double().numpy())


def set_aside(rows: int, share: float) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Places to train on, and a share of them kept out of training; the same for as many rows."""
    order = np.random.default_rng(rows).permutation(rows)
    kept = max(1, int(share * rows))
    if kept >= rows:
        raise InvalidValue(f"{rows} rows leave none to train on where a share of {share:g} is set aside; give more.")
    return order[kept:], order[:kept]
