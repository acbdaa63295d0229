"""Train many models on many random halves, as one job."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from discreet.attack.membership.recipe import Recipe, as_logits
from discreet.attack.membership.shadow.spread import spread
from discreet.core import check
from discreet.errors import InvalidDocument, InvalidValue, MissingExtra

Array = NDArray[Any]
Progress = Callable[[int, int], None]

MEMORY = 1 << 30  # bytes a group of models may take on a CPU
CACHE = 1 << 24  # bytes above which more models at once only wait for memory there


@dataclass(frozen=True)
class Shadows:
    """What many models said: scores [models, rows, classes], and which rows each was trained on [models, rows]."""

    scores: NDArray[np.float32]
    inside: NDArray[np.bool_]

    def __len__(self) -> int:
        return len(self.scores)


def halves(rows: int, models: int, seed: int) -> NDArray[np.bool_]:
    """Random halves in pairs that complete each other, so that every row is inside as many models as it is outside.

    >>> halves(6, 4, seed=0).sum(0).tolist(), halves(6, 4, seed=0).sum(1).tolist()
    ([2, 2, 2, 2, 2, 2], [3, 3, 3, 3])
    """
    rng = np.random.default_rng(seed)
    inside = np.zeros((models, rows), np.bool_)
    for first in range(0, models, 2):
        order = rng.permutation(rows)
        inside[first, order[: rows // 2]] = True
        if first + 1 < models:
            inside[first + 1, order[rows - rows // 2 :]] = True
    return inside


def train_shadows(
    recipe: Recipe, X: Array, y: Array, inside: NDArray[np.bool_], *, seed: int = 0, query: Array | None = None,
    device: str = "cpu", folder: str | Path | None = None, progress: Progress | None = None, group: int | None = None,
    processes: int = 1, ray: str | None = None,
) -> Shadows:  # fmt: skip
    """Train a model for each row of `inside` on the rows it marks, and ask them all about `query` (by default X itself).

    torch recipes are trained in groups that fit memory, all models of a group at once; networks with convolutions, each of
    which fills a processor, and recurrent ones, one after another. With a `folder` each finished group is kept there, and a
    second call goes on after the last one. Groups may be spread over `processes` of this machine, or over those of a Ray
    cluster by its address ("local" starts one here). What comes out does not depend on where it was made.
    """
    X, y = np.asarray(X), np.asarray(y)
    if inside.ndim != 2 or inside.shape[1] != len(X) or len(X) != len(y):
        raise InvalidValue(f"inside must be [models, {len(X)}] for {len(X)} rows and {len(y)} labels; got {inside.shape}.")
    if y.ndim != 1 or y.dtype.kind not in "iuf" or not (y >= 0).all() or not np.array_equal(y, np.rint(y)):
        raise InvalidValue(f"labels must be whole numbers from 0, one for each row; got {y.dtype} of shape {y.shape}.")
    if recipe.kind == "torch":
        _need_torch()
        recipe.tried(X, int(y.max()) + 1, set(inside.sum(1).tolist()))
    asked = X if query is None else np.asarray(query)
    check.whole("processes", processes)
    apart = processes if folder is None or group is None else 1  # what lies in a folder is found again by any number of them
    groups = list(_groups(recipe, X, inside, device, group, apart))
    found = {place: known for place in groups if (known := _kept(folder, *place, inside)) is not None}
    todo = [place for place in groups if place not in found]

    def train(place: tuple[int, int]) -> NDArray[np.float32]:
        start, stop = place
        return _group(recipe, X, y, inside[start:stop], range(seed + start, seed + stop), asked, device)

    for place, scores in spread(train, todo, processes=processes, ray=ray):
        found[place] = scores
        _keep(folder, *place, inside, scores)
        if progress is not None:
            progress(sum(stop - start for start, stop in found), len(inside))
    parts = [found[place] for place in groups]
    return Shadows(np.concatenate(parts), inside)


def _need_torch() -> None:
    try:
        import torch  # noqa: F401
    except ImportError:
        raise MissingExtra("torch", "torch", "Training shadow models that are torch modules") from None


def _groups(
    recipe: Recipe, X: Array, inside: NDArray[np.bool_], device: str, group: int | None, processes: int
) -> Iterator[tuple[int, int]]:
    size = min(group or (_fitting(recipe, X, device) if recipe.kind == "torch" else 8), -(-len(inside) // processes))
    for start in range(0, len(inside), size):
        yield start, min(start + size, len(inside))


def _fitting(recipe: Recipe, X: Array, device: str) -> int:
    """How many models are trained at once: weights, gradients and optimizer state, and a batch with its activations."""
    import torch

    model = recipe.build()
    if _alone(model):
        return 8  # one after another: what is kept together after a crash
    weights = sum(p.numel() for p in model.parameters())
    row = int(np.prod(X.shape[1:]))
    each = 4 * (5 * weights + recipe.batch_size * (2 * row + 4 * _width(model)))
    if device == "cpu":
        return int(max(1, min(max(CACHE // each, 4), MEMORY // each, 64)))
    return int(max(1, min(torch.cuda.mem_get_info()[0] // 2 // each, 4096)))


def _alone(model: Any) -> bool:
    """Whether such models are trained one after another: convolutions gain nothing together, recurrent layers cannot be."""
    from torch import nn

    from discreet.attack.membership.shadow.singly import fills_alone

    return fills_alone(model) or any(isinstance(layer, nn.RNNBase) for layer in model.modules())


def _width(model: Any) -> int:
    """A guess at the numbers per example inside the model: the widths of its layers."""
    return sum(layer.out_features for layer in model.modules() if hasattr(layer, "out_features"))


def _group(
    recipe: Recipe, X: Array, y: Array, inside: NDArray[np.bool_], seeds: range, asked: Array, device: str
) -> NDArray[np.float32]:
    if recipe.kind == "torch":
        return _together(recipe, X, y, inside, seeds, asked, device)
    classes = int(y.max()) + 1
    made = [recipe.fit_one(X[chosen], y[chosen], seed, classes)(asked) for chosen, seed in zip(inside, seeds)]
    return np.stack(made).astype(np.float32)


def _together(
    recipe: Recipe, X: Array, y: Array, inside: NDArray[np.bool_], seeds: range, asked: Array, device: str
) -> NDArray[np.float32]:
    """One group of torch models, all at once; where memory is short, in two halves."""
    import torch

    from discreet.attack.membership.shadow.job import train_stack
    from discreet.attack.membership.shadow.singly import train_singly

    train = train_singly if _alone(recipe.build()) else train_stack
    try:
        with one_thread(device), torch.random.fork_rng(devices=[device] if device != "cpu" else []):
            torch.manual_seed(seeds[0])  # dropout draws from torch's own generator
            return as_logits(train(recipe, X, y, inside, seeds, asked, device)).astype(np.float32)
    except (torch.OutOfMemoryError, MemoryError):
        if len(inside) == 1:
            raise
    middle = len(inside) // 2
    return np.concatenate([
        _together(recipe, X, y, inside[:middle], seeds[:middle], asked, device),
        _together(recipe, X, y, inside[middle:], seeds[middle:], asked, device),
    ])  # fmt: skip


class one_thread:
    """Small products gain nothing from a second thread and lose much on a busy machine."""

    def __init__(self, device: str) -> None:
        self._on = device == "cpu"

    def __enter__(self) -> None:
        import torch

        self._before = torch.get_num_threads()
        if self._on:
            torch.set_num_threads(1)

    def __exit__(self, *error: object) -> None:
        import torch

        torch.set_num_threads(self._before)


def _place(folder: str | Path, start: int, stop: int) -> Path:
    return Path(folder) / f"models-{start:05d}-{stop:05d}.npz"


def _keep(folder: str | Path | None, start: int, stop: int, inside: NDArray[np.bool_], scores: NDArray[np.float32]) -> None:
    if folder is None:
        return
    place = _place(folder, start, stop)
    place.parent.mkdir(parents=True, exist_ok=True)
    scratch = place.with_suffix(".part")
    with scratch.open("wb") as file:
        np.savez(file, inside=np.packbits(inside[start:stop], axis=1), scores=scores)
    scratch.replace(place)


def _kept(folder: str | Path | None, start: int, stop: int, inside: NDArray[np.bool_]) -> NDArray[np.float32] | None:
    """A group that was finished before, if it was trained on these very rows."""
    if folder is None or not (place := _place(folder, start, stop)).exists():
        return None
    try:
        with np.load(place, allow_pickle=False) as found:
            bits, scores = found["inside"], found["scores"]
    except Exception:
        raise InvalidDocument(f"{place} is damaged; delete it, and its models are trained again.") from None
    if not np.array_equal(np.unpackbits(bits, axis=1)[:, : inside.shape[1]].astype(np.bool_), inside[start:stop]):
        raise InvalidDocument(f"{place} belongs to other data, another seed or another number of models; use another folder.")
    return np.asarray(scores, np.float32)
