"""One trainer for one model or many: stacked, one after another, or spread over processes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from discreet.core import check
from discreet.errors import InvalidDocument, InvalidValue, MissingExtra
from discreet.models.predict import as_logits
from discreet.models.processes import spread
from discreet.models.recipe import Recipe

if TYPE_CHECKING:
    from discreet.models.single import AfterEpoch, Loss

Array = NDArray[Any]
Progress = Callable[[int, int], None]

MEMORY = 1 << 30  # bytes a group of models may take on a CPU
CACHE = 1 << 24  # bytes above which stacking more models no longer helps, since they exceed the CPU's cache


@dataclass(frozen=True)
class Shadows:
    """The scores of many models [models, rows, classes], and which rows each was trained on [models, rows]."""

    scores: NDArray[np.float32]
    inside: NDArray[np.bool_]

    def __len__(self) -> int:
        return len(self.scores)


def splits(rows: int, models: int, seed: int) -> NDArray[np.bool_]:
    """Random halves of the rows, in complementary pairs, so that every row is inside as many models as it is outside.

    >>> splits(6, 4, seed=0).sum(0).tolist(), splits(6, 4, seed=0).sum(1).tolist()
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


@dataclass(frozen=True)
class Trainer:
    """Trains models of one recipe: a single one, or many as one job.

    torch models are trained in groups that fit memory, all models of a group at once (`group` limits their number); networks
    with convolutions, each of which fills a processor, and recurrent ones, one after another. Groups may be spread over
    `processes` of this machine, or over those of a `ray` cluster by its address ("local" starts one here). The results do not
    depend on where a model was trained.

    >>> nearest = Recipe(lambda X, y: lambda query: -(query - X.mean()) ** 2 * [[1, 2]], kind="fit")
    >>> Trainer(nearest).many(np.arange(6.0)[:, None], np.arange(6) % 2, splits(6, 4, seed=0)).scores.shape
    (4, 6, 2)
    """

    recipe: Recipe
    device: str = "cpu"
    group: int | None = None
    processes: int = 1
    ray: str | None = None

    def one(
        self, X: Array, y: Array, *, seed: int = 0, classes: int | None = None, loss: Loss | None = None,
        after_epoch: AfterEpoch | None = None,
    ) -> Any:  # fmt: skip
        """One model trained on all rows: a torch module, or a function from rows to scores.

        `y` are labels, or for torch modules a distribution over the classes for each row; `classes` may be more than are among
        them. A torch module may be trained by a `loss(forward, rows, labels, epoch)` of the caller's own, and stopped by an
        `after_epoch(model, epoch)` that returns True.
        """
        if self.recipe.kind != "torch":
            return self.recipe.fit_one(X, y, seed, classes)
        need_torch()
        import torch

        hard = np.ndim(y) == 1
        known = int(np.max(y)) + 1 if hard else np.shape(y)[1]
        self.recipe.tried(X, max(classes or 0, known), [len(X)] if loss is None else [])
        rows = torch.as_tensor(X, dtype=torch.float32).to(self.device)
        labels = torch.as_tensor(y, dtype=torch.long if hard else torch.float32).to(self.device)
        with torch.random.fork_rng(devices=[rows.device] if rows.is_cuda else []), one_thread(self.device):
            torch.manual_seed(seed)
            return _single(self.recipe, rows, labels, seed, loss, after_epoch).eval()

    def many(
        self, X: Array, y: Array, inside: NDArray[np.bool_], *, seed: int = 0, query: Array | None = None,
        folder: str | Path | None = None, progress: Progress | None = None,
    ) -> Shadows:  # fmt: skip
        """Train a model for each row of `inside` on the rows it marks, and query them all about `query` (by default X itself).

        With a `folder` each finished group is kept there, and a second call continues after the last one.
        """
        X, y = np.asarray(X), np.asarray(y)
        self._check(X, y, inside)
        rows = X if query is None else np.asarray(query)
        groups = list(self._groups(X, inside, any_size=folder is None or self.group is None))
        scores = {group: saved for group in groups if (saved := _load(folder, *group, inside)) is not None}

        def train(group: tuple[int, int]) -> NDArray[np.float32]:
            start, stop = group
            return _train_group(self.recipe, X, y, inside[start:stop], range(seed + start, seed + stop), rows, self.device)

        todo = [group for group in groups if group not in scores]
        for group, trained in spread(train, todo, processes=self.processes, ray=self.ray):
            scores[group] = trained
            _save(folder, *group, inside, trained)
            if progress is not None:
                progress(sum(stop - start for start, stop in scores), len(inside))
        return Shadows(np.concatenate([scores[group] for group in groups]), inside)

    def _check(self, X: Array, y: Array, inside: NDArray[np.bool_]) -> None:
        if inside.ndim != 2 or inside.shape[1] != len(X) or len(X) != len(y):
            raise InvalidValue(f"inside must be [models, {len(X)}] for {len(X)} rows and {len(y)} labels; got {inside.shape}.")
        if y.ndim != 1 or y.dtype.kind not in "iuf" or not (y >= 0).all() or not np.array_equal(y, np.rint(y)):
            raise InvalidValue(f"labels must be whole numbers from 0, one for each row; got {y.dtype} of shape {y.shape}.")
        check.whole("processes", self.processes)
        if self.recipe.kind == "torch":
            need_torch()
            self.recipe.tried(X, int(y.max()) + 1, set(inside.sum(1).tolist()))

    def _groups(self, X: Array, inside: NDArray[np.bool_], *, any_size: bool) -> Iterator[tuple[int, int]]:
        """Groups of models; smaller ones, so that every process has one, unless a folder was written with groups as asked."""
        size = self.group or (_fitting(self.recipe, X, self.device) if self.recipe.kind == "torch" else 8)
        size = min(size, -(-len(inside) // (self.processes if any_size else 1)))
        for start in range(0, len(inside), size):
            yield start, min(start + size, len(inside))


def need_torch() -> None:
    """Refuse, with the extra to install, where torch is missing."""
    try:
        import torch  # noqa: F401
    except ImportError:
        raise MissingExtra("torch", "torch", "Training models that are torch modules") from None


def _single(
    recipe: Recipe, rows: Any, labels: Any, seed: int, loss: Loss | None, after_epoch: AfterEpoch | None
) -> Any:  # fmt: skip
    """One torch module: a plain chain on a CPU as a stack of one, which is several times as fast; others by their own loop."""
    import torch

    from discreet.models.single import Loop
    from discreet.models.stacked import train_chain

    if loss is None and after_epoch is None and labels.ndim == 1 and not rows.is_cuda:
        model = train_chain(recipe, rows, labels, seed)
        if model is not None:
            return model
    loop = Loop(recipe, rows, labels, loss)
    torch.manual_seed(seed)
    loop.train(torch.arange(len(rows), device=rows.device), seed, after_epoch)
    loop.model.zero_grad(set_to_none=True)
    return loop.model


def _fitting(recipe: Recipe, X: Array, device: str) -> int:
    """How many models are trained at once: weights, gradients and optimizer state, and a batch with its activations."""
    import torch

    model = recipe.build()
    if _alone(model):
        return 8  # trained one after another; this is how many are saved together
    weights = sum(p.numel() for p in model.parameters())
    row = int(np.prod(X.shape[1:]))
    size = 4 * (5 * weights + recipe.batch_size * (2 * row + 4 * _width(model)))
    if device == "cpu":
        return int(max(1, min(max(CACHE // size, 4), MEMORY // size, 64)))
    return int(max(1, min(torch.cuda.mem_get_info()[0] // 2 // size, 4096)))


def _alone(model: Any) -> bool:
    """Whether such models are trained one after another: convolutions gain nothing together, recurrent layers cannot be."""
    from torch import nn

    from discreet.models.single import fills_alone

    return fills_alone(model) or any(isinstance(layer, nn.RNNBase) for layer in model.modules())


def _width(model: Any) -> int:
    """A guess at the numbers per example inside the model: the widths of its layers."""
    return sum(layer.out_features for layer in model.modules() if hasattr(layer, "out_features"))


def _train_group(
    recipe: Recipe, X: Array, y: Array, inside: NDArray[np.bool_], seeds: range, query: Array, device: str
) -> NDArray[np.float32]:
    if recipe.kind == "torch":
        return _train_together(recipe, X, y, inside, seeds, query, device)
    classes = int(y.max()) + 1
    scores = [recipe.fit_one(X[chosen], y[chosen], seed, classes)(query) for chosen, seed in zip(inside, seeds)]
    return np.stack(scores).astype(np.float32)


def _train_together(
    recipe: Recipe, X: Array, y: Array, inside: NDArray[np.bool_], seeds: range, query: Array, device: str
) -> NDArray[np.float32]:
    """One group of torch models, all at once; where memory is short, in two parts."""
    import torch

    from discreet.models.single import train_singly
    from discreet.models.stacked import train_stack

    train = train_singly if _alone(recipe.build()) else train_stack
    try:
        with one_thread(device), torch.random.fork_rng(devices=[device] if device != "cpu" else []):
            torch.manual_seed(seeds[0])  # dropout draws from torch's own generator
            return as_logits(train(recipe, X, y, inside, seeds, query, device)).astype(np.float32)
    except (torch.OutOfMemoryError, MemoryError):
        if len(inside) == 1:
            raise
    middle = len(inside) // 2
    return np.concatenate([
        _train_together(recipe, X, y, inside[:middle], seeds[:middle], query, device),
        _train_together(recipe, X, y, inside[middle:], seeds[middle:], query, device),
    ])  # fmt: skip


class one_thread:
    """Run with one thread: small products gain nothing from a second one and lose much on a busy machine."""

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


def _save(folder: str | Path | None, start: int, stop: int, inside: NDArray[np.bool_], scores: NDArray[np.float32]) -> None:
    if folder is None:
        return
    place = _place(folder, start, stop)
    place.parent.mkdir(parents=True, exist_ok=True)
    scratch = place.with_suffix(".part")
    with scratch.open("wb") as file:
        np.savez(file, inside=np.packbits(inside[start:stop], axis=1), scores=scores)
    scratch.replace(place)


def _load(folder: str | Path | None, start: int, stop: int, inside: NDArray[np.bool_]) -> NDArray[np.float32] | None:
    """A group that was finished before, if it was trained on these very rows."""
    if folder is None or not (place := _place(folder, start, stop)).exists():
        return None
    try:
        with np.load(place, allow_pickle=False) as file:
            bits, scores = file["inside"], file["scores"]
    except Exception:
        raise InvalidDocument(f"{place} is damaged; delete it, and its models are trained again.") from None
    if not np.array_equal(np.unpackbits(bits, axis=1)[:, : inside.shape[1]].astype(np.bool_), inside[start:stop]):
        raise InvalidDocument(f"{place} belongs to other data, another seed or another number of models; use another folder.")
    return np.asarray(scores, np.float32)
