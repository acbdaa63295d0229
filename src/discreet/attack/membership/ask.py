"""Ask a target: a torch module, a scikit-learn classifier, or a function."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from discreet.attack.membership.recipe import scores_of
from discreet.errors import InvalidValue

Array = NDArray[Any]
AT_ONCE = 4096  # rows given to a torch module


def scores(target: Any, X: Array) -> Array:
    """What the target says of every row, a column per class: logits, log-probabilities or decision values."""
    if is_module(target):
        import torch

        place = next(iter(target.parameters())).device
        before = target.training
        target.eval()
        with torch.no_grad():
            parts = [target(rows.to(place)).float().cpu() for rows in torch.as_tensor(X, dtype=torch.float32).split(AT_ONCE)]
        target.train(before)
        return torch.cat(parts).numpy()
    if hasattr(target, "predict_proba") or hasattr(target, "decision_function"):
        return scores_of(target, X)
    if callable(target):
        return np.asarray(target(X))
    raise InvalidValue(
        f"target must be a torch module, a classifier or a function that gives scores; got {type(target).__name__}."
    )


def is_module(target: Any) -> bool:
    """Whether weights can be seen."""
    return hasattr(target, "state_dict") and hasattr(target, "forward")


def labels(target: Any, X: Array) -> NDArray[np.int64]:
    """The label alone, for every row."""
    return np.asarray(scores(target, X)).argmax(1)
