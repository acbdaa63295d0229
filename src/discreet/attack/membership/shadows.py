"""Shadow models: many models like the target, each trained on its own random half of the data (Shokri et al. 2017)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from discreet.models import Recipe, Shadows, Trainer
from discreet.models.trainer import Progress

Array = NDArray[Any]


def train_shadows(
    recipe: Recipe, X: Array, y: Array, inside: NDArray[np.bool_], *, seed: int = 0, query: Array | None = None,
    device: str = "cpu", folder: str | Path | None = None, progress: Progress | None = None, group: int | None = None,
    processes: int = 1, ray: str | None = None,
) -> Shadows:  # fmt: skip
    """A shadow for each row of `inside`, trained on the rows it marks; all are queried about `query` (by default X itself).

    This is `Trainer(recipe, …).many(…)` in one call.
    """
    trainer = Trainer(recipe, device, group, processes, ray)
    return trainer.many(X, y, inside, seed=seed, query=query, folder=folder, progress=progress)
