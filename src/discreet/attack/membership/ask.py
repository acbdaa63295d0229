"""Ask a target: a torch module, a scikit-learn classifier, or a function."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from discreet.attack.membership.recipe import as_logits, scores_of
from discreet.errors import InvalidValue

Array = NDArray[Any]
AT_ONCE = 4096  # rows given to a torch module


def scores(target: Any, X: Array) -> Array:
    """What the target says of every row, a column per class: logits, log-probabilities, decision values or probabilities."""
    if is_module(target):
        import torch

        place = next((p.device for p in target.parameters()), None)
        before = target.training
        target.eval()
        try:
            with torch.no_grad():
                parts = [
                    target(rows.to(place)).float().cpu() for rows in torch.as_tensor(X, dtype=torch.float32).split(AT_ONCE)
                ]
        except (RuntimeError, IndexError, TypeError, ValueError, AttributeError) as error:
            raise InvalidValue(
                f"The target cannot be asked about rows of shape {np.shape(X)[1:]}, as 32-bit floats: "
                f"{' '.join(str(error).split())[:200]}. Where it takes whole numbers (tokens), say x.long() in its forward; "
                "where its weights have another precision, give target.float()."
            ) from error
        finally:
            target.train(before)
        return torch.cat(parts).numpy()
    if hasattr(target, "predict_proba") or hasattr(target, "decision_function"):
        return scores_of(target, X)
    if callable(target):
        return np.asarray(target(X))
    raise InvalidValue(
        f"target must be a torch module, a classifier or a function that gives scores; got {type(target).__name__}."
    )


def logits(target: Any, X: Array) -> Array:
    """The same, where that is a law over classes by its logarithm; so many rows must be asked that this shows."""
    return as_logits(scores(target, X))


def is_module(target: Any) -> bool:
    """Whether weights can be seen."""
    return hasattr(target, "state_dict") and hasattr(target, "forward")


def labels(target: Any, X: Array) -> NDArray[np.int64]:
    """The label alone, for every row."""
    return np.asarray(scores(target, X)).argmax(1)


def numbered(y: Array, classes: Any, what: str) -> NDArray[np.int64]:
    """Labels as places among the classes that a model names."""
    known = {each: place for place, each in enumerate(np.asarray(classes).tolist())}
    places = [known.get(each, -1) for each in np.asarray(y).tolist()]
    strange = places.count(-1)
    if strange == len(places):
        raise InvalidValue(
            f"None of the labels of the {what} is one of the model's {len(known)} classes. Labels must be written as the model "
            "names its classes; what a regression predicts is no class, and is not attacked here."
        )
    if strange:
        raise InvalidValue(
            f"{strange} of {len(places)} labels of the {what} are none of the model's {len(known)} classes. Leave such rows "
            "out: who has a class that the model does not know was not trained on."
        )
    return np.array(places, np.int64)
