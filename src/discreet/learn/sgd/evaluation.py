"""How good a model is, on data that are not private: accuracy, balanced accuracy, F1 and AUC, or the errors of a regression."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn
from torch.utils import _pytree as pytree

from discreet.core import record
from discreet.errors import InvalidValue
from discreet.learn.sgd.rows import Rows, call, split

Floats = NDArray[np.float64]


def evaluate(model: nn.Module, data: Any, *, batch: int = 256) -> dict[str, float]:
    """Measure a model on rows of the form it was trained on, for `run.release(quality=…)`; never on private ones.

    Outputs [rows, classes] are scores of classes; one output and whole targets are scores of yes (above 0: yes); one output and
    other targets are a regression. F1 is that of yes, or the mean over classes; so is AUC, each class against the others.

    >>> x = torch.tensor([[-2.0], [-1.0], [1.0], [2.0]])
    >>> evaluate(nn.Identity(), (x, torch.tensor([0, 1, 0, 1])))
    {'accuracy': 0.5, 'balanced accuracy': 0.5, 'F1': 0.5, 'AUC': 0.75}
    """
    rows = Rows(data, record())
    device = next((p.device for p in model.parameters()), torch.device("cpu"))
    training, outputs, targets = model.training, [], []
    model.eval()
    try:
        with torch.no_grad():
            for start in range(0, rows.count, batch):
                for some in rows.some(np.arange(start, min(start + batch, rows.count)), device):
                    inputs, target = split(some)
                    outputs.append(_scores(call(model, inputs)))
                    targets.append(target.cpu())
    finally:
        model.train(training)
    return measured(np.concatenate(outputs), torch.cat(targets).numpy())


def _scores(output: Any) -> Floats:
    """The numbers in what a model gives: itself, or its logits."""
    named = getattr(output, "logits", None)
    leaf = named if named is not None else pytree.tree_leaves(output)[0]
    return np.asarray(leaf.float().cpu().numpy(), np.float64)


def measured(output: Floats, target: NDArray[Any]) -> dict[str, float]:
    """All measures that these scores and targets allow."""
    output = output.reshape(len(output), -1)
    if output.shape[1] == 1 and (target.dtype.kind == "f" and not set(np.unique(target)) <= {0.0, 1.0}):
        error = output[:, 0] - target.ravel()
        return {"mean absolute error": float(np.abs(error).mean()), "root mean square error": float(np.sqrt((error**2).mean()))}
    if output.shape[1] == 1:
        output = np.concatenate([np.zeros_like(output), output], axis=1)
    if target.ndim > 1 and target.shape[1:] != (1,):
        raise InvalidValue("Targets of several numbers a row have no accuracy; measure the outputs of the model yourself.")
    truth, guess = target.ravel().astype(np.int64), output.argmax(1)
    classes = [c for c in range(output.shape[1]) if (truth == c).any()]
    shares = _softmax(output)
    two = output.shape[1] == 2
    judged = [1] if two else classes
    measures = {
        "accuracy": float((guess == truth).mean()),
        "balanced accuracy": float(np.mean([(guess[truth == c] == c).mean() for c in classes])),
        "F1": float(np.mean([_f1(guess == c, truth == c) for c in judged])),
    }
    areas = [_auc(shares[:, c], truth == c) for c in judged if 0 < (truth == c).sum() < len(truth)]
    return {**measures, "AUC": float(np.mean(areas))} if areas else measures


def _softmax(output: Floats) -> Floats:
    odds = np.exp(output - output.max(1, keepdims=True))
    shares: Floats = odds / odds.sum(1, keepdims=True)
    return shares


def _f1(guess: NDArray[np.bool_], truth: NDArray[np.bool_]) -> float:
    both = int((guess & truth).sum())
    total = int(guess.sum()) + int(truth.sum())
    return 2 * both / total if total else 0.0


def _auc(score: Floats, truth: NDArray[np.bool_]) -> float:
    """The share of pairs that are in the right order; ties count half (Mann & Whitney)."""
    from scipy.stats import rankdata

    positive = int(truth.sum())
    return float((rankdata(score)[truth].sum() - positive * (positive + 1) / 2) / (positive * (len(truth) - positive)))
