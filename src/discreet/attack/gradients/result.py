"""What was read out of an update."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor

from discreet.core import Evidence, Game, Unit
from discreet.errors import InvalidValue


@dataclass(frozen=True, slots=True, eq=False)
class Inversion:
    """Recovered rows with their labels, how sure each part is, and how.

    `exact[i]` says that row i was certified: it and the other certified rows reproduce the update, or the part of it that is
    theirs, up to rounding, no other rows near them do, and they are rows of the schema. `confidence` is one number per cell for
    tables and one per row for images, between 0 and 1; it is 1 for certified rows. `residual` is the relative distance between
    the update and the gradient of the recovered rows.
    """

    rows: Tensor
    labels: Tensor | None
    confidence: Tensor
    exact: Tensor
    method: str
    residual: float
    seconds: float
    notes: tuple[str, ...] = ()
    layout: Any = field(default=None, repr=False)

    def __len__(self) -> int:
        return len(self.rows)

    def noted(self, *notes: str) -> Inversion:
        """The same with these notes added."""
        return replace(self, notes=(*self.notes, *notes))

    def columns(self) -> dict[str, list[Any]]:
        """The rows as a table, by the schema that was given."""
        if self.layout is None:
            raise InvalidValue("No schema was given, so the rows have no columns; read .rows.")
        return self.layout.decoded(self.rows)  # type: ignore[no-any-return]

    def distance(self, row: Any) -> float:
        """The root mean square distance of a row to the nearest recovered one."""
        target = torch.as_tensor(np.asarray(row), dtype=torch.float64).reshape(1, -1)
        if not len(self.rows):
            return float("inf")
        nearest = float(torch.cdist(target, self.rows.double().reshape(len(self.rows), -1)).min())
        return nearest / math.sqrt(target.shape[1])

    def matched(self, truth: Any) -> Tensor:
        """The recovered rows in the order of the true ones: the assignment with the least squared distance.

        Only the owner of the rows can ask this. There must be as many recovered rows as true ones, or more.
        """
        from scipy.optimize import linear_sum_assignment

        target = torch.as_tensor(np.asarray(truth), dtype=torch.float64)
        if len(self.rows) < len(target):
            raise InvalidValue(f"{len(self.rows)} rows were recovered, fewer than the {len(target)} to compare them with.")
        cost = torch.cdist(target.flatten(1), self.rows.double().flatten(1)) ** 2
        return self.rows[torch.as_tensor(linear_sum_assignment(cost.numpy())[1])]

    def evidence(
        self, candidates: Any, inside: ArrayLike, *, unit: Unit, view: Iterable[str] = ("updates",), run: int = 0
    ) -> Evidence:  # fmt: skip
        """The membership game on this one update: which of the candidate rows were in the batch?

        The score is minus the distance to the nearest recovered row. One update decides nothing by coins, so the evidence is
        `post_hoc`: it warns and cannot refute.
        """
        scores = np.array([-self.distance(row) for row in candidates])
        finite = scores[np.isfinite(scores)]
        scores = np.where(np.isfinite(scores), scores, (finite.min() if len(finite) else 0.0) - 1.0)
        return Evidence(
            game=Game(unit, frozenset(view)), attack=f"gradient inversion ({self.method})", score=scores,
            inside=np.asarray(inside), run=np.full(len(scores), run, np.int64), design="post_hoc",
        )  # fmt: skip
