"""What is attacked and what the attacker has of it; what a kind of attack is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from discreet.core import Evidence, check
from discreet.errors import InvalidValue
from discreet.models import Recipe, predict

Array = NDArray[Any]
ACCESS = {
    "labels": frozenset({"labels"}),
    "scores": frozenset({"labels", "scores", "logits"}),
    "weights": frozenset({"labels", "scores", "logits", "weights"}),
}


@dataclass(frozen=True, kw_only=True)
class Case:
    """A finished classifier, rows that it was trained on and others of the same kind (pairs of inputs and class numbers).

    `access` is what the attacker is given; `shape` is that of a picture (height, width, channels) where rows are pictures,
    `names` those of the columns where they are not. `properties` mark the non-members that have one, by name. `inner` is the
    estimator behind `model`, where that is a function. `encoded` says that one column of the table is several inputs.
    """

    model: Any
    members: tuple[Array, Array]
    nonmembers: tuple[Array, Array]
    inner: Any = None
    access: str = "weights"
    recipe: Recipe | None = None
    shape: tuple[int, int, int] | None = None
    names: tuple[str, ...] = ()
    encoded: bool = False
    properties: Mapping[str, Array] = field(default_factory=dict)
    shadows: int = 200
    confidence: float = 0.95
    seed: int = 0

    def __post_init__(self) -> None:
        check.word("access", self.access, tuple(ACCESS))
        check.whole("seed", self.seed, least=0), check.open_fraction("confidence", self.confidence)
        if self.shape is not None and int(np.prod(self.shape)) != int(np.prod(self.others.shape[1:])):
            raise InvalidValue(f"A picture of the shape {self.shape} has another size than rows of {self.others.shape[1:]}.")

    @property
    def others(self) -> Array:
        return np.asarray(self.nonmembers[0])

    @property
    def classes(self) -> int:
        return int(max(self.members[1].max(), self.nonmembers[1].max())) + 1

    @property
    def module(self) -> Any:
        """The torch module whose weights the attacker has, if so."""
        return self.model if self.access == "weights" and predict.is_module(self.model) else None

    @property
    def picture(self) -> tuple[int, int, int] | None:
        """Height, width and channels where rows are pictures: as stated, or of rows [channels, height, width]."""
        size = self.others.shape[1:]
        return self.shape if self.shape is not None else (size[1], size[2], size[0]) if len(size) == 3 else None

    @property
    def estimator(self) -> Any:
        """What is behind the function that is asked."""
        return self.model if self.inner is None else self.inner

    def asked(self, rows: Any) -> Array:
        """What the attacker is answered: probabilities, or labels alone."""
        kind = object if self.others.dtype.kind == "O" else np.float32
        laid = np.asarray(rows, kind).reshape(len(rows), *self.others.shape[1:])
        given = np.asarray(predict.logits(self.model, laid), np.float64)
        if self.access == "labels":
            return np.asarray(given.argmax(axis=1))
        shares = np.exp(given - given.max(axis=1, keepdims=True))
        return np.asarray(shares / shares.sum(axis=1, keepdims=True))


@dataclass(frozen=True)
class Found:
    """What a part found: facts of a release by name, and evidence."""

    facts: Mapping[str, Any] = field(default_factory=dict)
    evidence: tuple[Evidence, ...] = ()


class Part(Protocol):
    """One kind of attack: the least access it needs, why it does not fit a case (None: it does), and what it finds."""

    @property
    def name(self) -> str: ...
    @property
    def view(self) -> frozenset[str]: ...
    def lacks(self, case: Case) -> str | None: ...
    def run(self, case: Case) -> Found: ...
