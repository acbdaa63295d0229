"""Validation of what an attack is given: rows and labels, the target's scores, the shadows' scores."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
from numpy.typing import NDArray

from discreet.errors import InvalidValue
from discreet.models import Shadows, predict

Array = NDArray[Any]
FAR = 0.1  # a recipe whose accuracy is further than this from the target's does not resemble it


def pair(name: str, data: Any, target: Any = None) -> tuple[Array, Array]:
    """Inputs and labels as arrays, from a pair or from a torch Dataset; labels by the target's own names, where it has some."""
    if hasattr(data, "__getitem__") and hasattr(data, "__len__") and not isinstance(data, (tuple, list, np.ndarray)):
        rows = [data[i] for i in range(len(data))]
        data = (np.stack([np.asarray(row[0]) for row in rows]), np.array([int(row[1]) for row in rows])) if rows else ([], [])
    if not isinstance(data, (tuple, list)) or len(data) != 2:
        raise InvalidValue(f"{name} must be a pair (inputs, labels) or a Dataset of such pairs; got {type(data).__name__}.")
    X, y = np.asarray(data[0]), np.asarray(data[1])
    if not len(X) or len(X) != len(y):
        raise InvalidValue(f"{name} must hold as many labels as inputs, at least one; got {len(X)} inputs and {len(y)} labels.")
    if predict.names_classes(target):
        y = predict.class_numbers(y, target.classes_, name)
    if y.ndim != 1 or y.dtype.kind not in "iu" or int(y.min()) < 0:
        least = f" that begin at {y.min()}" if y.ndim == 1 and y.dtype.kind in "iu" else ""
        raise InvalidValue(
            f"labels of {name} must be whole numbers from 0, the columns of the target's scores; got {y.dtype} of shape "
            f"{y.shape}{least}. Number the classes; what a regression predicts is no class, and is not attacked here."
        )
    bad = int((~np.isfinite(X)).reshape(len(X), -1).any(1).sum()) if X.dtype.kind == "f" else 0
    if bad:
        raise InvalidValue(
            f"{bad} of {len(X)} {name} hold NaN or infinite inputs; attacks take finite numbers. Fill them in as the model's "
            "own preparation does, or leave those rows out."
        )
    return X, y.astype(np.int64)


def _keys(A: Array, B: Array) -> tuple[list[Any], list[Any]]:
    """Rows of both as something that is equal where they are, whatever type their numbers have: the narrower of the two."""
    if A.dtype.kind == "O" or B.dtype.kind == "O":
        keys = [[tuple(row) for row in each.reshape(len(each), -1).tolist()] for each in (A, B)]
        return keys[0], keys[1]
    floats = [each.dtype for each in (A, B) if each.dtype.kind == "f"]
    kind = min(floats, key=lambda each: each.itemsize) if floats else np.result_type(A, B)
    zero = np.zeros((), kind) if kind.kind in "iuf" else None
    same = [np.ascontiguousarray(each.astype(kind) if zero is None else each.astype(kind) + zero) for each in (A, B)]  # no -0.0
    return [row.tobytes() for row in same[0]], [row.tobytes() for row in same[1]]


def in_both(X_in: Array, y_in: Array, X_out: Array, y_out: Array) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Which members and which non-members have the inputs and the label of one on the other side."""
    ours, theirs = (list(zip(rows, y.tolist())) for rows, y in zip(_keys(X_in, X_out), (y_in, y_out)))
    common = set(ours) & set(theirs)
    return np.array([each in common for each in ours], np.bool_), np.array([each in common for each in theirs], np.bool_)


def apart(X_in: Array, y_in: Array, X_out: Array, y_out: Array) -> None:
    if X_in.shape[1:] != X_out.shape[1:]:
        raise InvalidValue(
            f"members have inputs of shape {X_in.shape[1:]}, nonmembers of {X_out.shape[1:]}; they must be alike."
        )
    same = np.flatnonzero(in_both(X_in, y_in, X_out, y_out)[1]).tolist()
    if same:
        raise InvalidValue(
            f"{len(same)} of {len(X_out)} nonmembers are members too (the first is nonmember {same[0]}): whether they were "
            "inside has no answer. Leave such rows out of both (discreet attack model --drop-duplicates), where different "
            "people happen to be alike; or out of nonmembers, where they are the same people."
        )


def scores(target: Any, X: Array, y: Array) -> Array:
    """The target's scores for every row: of a torch module, a scikit-learn model, or a function."""
    table = np.asarray(predict.logits(target, X), np.float64)
    if table.ndim != 2 or len(table) != len(X) or table.shape[1] < 2:
        one = table.shape in ((len(X),), (len(X), 1))
        more = " One score z for two classes: give [0, z]. Labels alone: give np.eye(classes)[labels], and ask for label."
        raise InvalidValue(
            f"The target must give a score for each class and row, [{len(X)}, classes]; got shape {table.shape}."
            + (more if one else "")
        )
    bad = int((~np.isfinite(table)).any(1).sum())
    if bad:
        raise InvalidValue(
            f"The target gives NaN or infinite scores for {bad} of {len(X)} rows. Give probabilities or logits rather than the "
            "logarithm of 0; where it gives NaN, its training diverged."
        )
    if int(y.max()) >= table.shape[1]:
        raise InvalidValue(
            f"A label is {int(y.max())}, but the target knows {table.shape[1]} classes (0 to {table.shape[1] - 1}). Labels "
            "count from 0, as columns of its scores do."
        )
    return table


def converged(shadows: Shadows) -> None:
    bad = int((~np.isfinite(shadows.scores)).any((1, 2)).sum())
    if bad:
        raise InvalidValue(
            f"{bad} of {len(shadows)} shadows give NaN or infinite scores: the recipe's training diverged. Lower its "
            "learning rate."
        )


def resembles(shadows: Shadows, their_y: Array, scores: Array, y: Array, inside: NDArray[np.bool_]) -> None:
    right = shadows.scores.argmax(2) == their_y
    ours = [float(right[shadows.inside].mean()), float(right[~shadows.inside].mean())]
    its = scores.argmax(1) == y
    theirs = [float(its[inside].mean()), float(its[~inside].mean())]
    if max(abs(a - b) for a, b in zip(ours, theirs)) > FAR:
        warnings.warn(
            f"The shadows are right on {ours[0]:.0%} of rows inside and {ours[1]:.0%} outside, the target on {theirs[0]:.0%} "
            f"and {theirs[1]:.0%}: the recipe does not resemble the target; attacks that use it are weaker.",
            stacklevel=4,
        )


def trained_on(Z: Array, X: Array, marks: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Which rows of X each shadow of Z saw after all: those that are rows of Z too, whatever their label there."""
    places: dict[Any, list[int]] = {}
    theirs, ours = _keys(Z, X)
    for place, key in enumerate(theirs):
        places.setdefault(key, []).append(place)
    saw = np.zeros((len(marks), len(X)), np.bool_)
    for row, key in enumerate(ours):
        if key in places:
            saw[:, row] = marks[:, places[key]].any(1)
    return saw
