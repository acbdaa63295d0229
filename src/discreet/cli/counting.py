"""The smallest whole story: a counting query, an attack on one visitor, and a twin that adds half the noise it claims."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from discreet.core import Claim, record
from discreet.noise import LaplaceNoise

Row = tuple[str, int, str]  # name, age, test

_NAMES = (
    "Ada", "Bela", "Cleo", "Dov", "Edda", "Finn", "Gita", "Hugo", "Ines", "Jonas",
    "Kira", "Luis", "Mira", "Nils", "Olga", "Pavel", "Quinn", "Rosa", "Sami", "Tove",
)  # fmt: skip
TARGET: Row = ("Uma", 34, "positive")


def visitors() -> list[Row]:
    """A made-up table: sixty visitors of a clinic, the target not among them."""
    return [(_NAMES[i % 20], 20 + (i * 37) % 61, "positive" if (i * 7) % 5 < 2 else "negative") for i in range(60)]


def positives(rows: Sequence[Row]) -> int:
    return sum(test == "positive" for _, _, test in rows)


@dataclass(frozen=True, slots=True)
class Count:
    """How many visitors tested positive, with discrete Laplace noise of the scale that it claims."""

    scale: Fraction

    def claims(self) -> tuple[Claim, ...]:
        return LaplaceNoise(self.scale, sensitivity=1, unit=record()).claims()

    def run(self, data: Sequence[Row]) -> int:
        return int(LaplaceNoise(self.scale, sensitivity=1, unit=record()).run(positives(data)))


@dataclass(frozen=True, slots=True)
class HalfNoise(Count):
    """The broken twin: the same claim over half the noise."""

    def run(self, data: Sequence[Row]) -> int:
        return Count(self.scale / 2).run(data)


class WithOrWithout:
    """Two worlds, by a fair coin: the clinic with the target among its visitors, or without."""

    def __init__(self, runs: int) -> None:
        self._rows = visitors()
        self._coins = np.frombuffer(np.random.default_rng().bytes(runs), dtype=np.uint8) % 2 == 1

    def draw(self, run: int) -> tuple[list[Row], Sequence[Row], NDArray[np.bool_]]:
        inside = bool(self._coins[run])
        return ([*self._rows, TARGET] if inside else self._rows), [TARGET], np.array([inside])


class Threshold:
    """The best attack there is here: who knows all other rows compares the answer with the count of those."""

    name = "threshold on the answer"
    view = frozenset({"answers"})

    def __init__(self) -> None:
        self._known = positives(visitors())

    def score(self, seen: int, targets: Sequence[Any]) -> list[float]:
        return [float(seen - self._known) for _ in targets]
