"""The smallest whole story: a counting query, an attack on one visitor, and a twin that adds half the noise it claims."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

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
    """How many visitors tested positive, with `noise` added, and the claim of the noise it says it adds."""

    noise: LaplaceNoise
    said: LaplaceNoise

    def claims(self) -> tuple[Claim, ...]:
        return self.said.claims()

    def run(self, data: Sequence[Row]) -> int:
        return int(self.noise.run(positives(data)))


def honest(scale: Fraction) -> Count:
    """The count that adds the noise it claims."""
    noise = LaplaceNoise(scale, sensitivity=1, unit=record())
    return Count(noise=noise, said=noise)


def half_noise(scale: Fraction) -> Count:
    """The broken twin: the same claim over half the noise."""
    return Count(noise=honest(scale / 2).noise, said=honest(scale).said)


class Threshold:
    """The best attack there is here: who knows all other rows compares the answer with the count of those."""

    name = "threshold on the answer"
    view = frozenset({"answers"})

    def __init__(self) -> None:
        self._known = positives(visitors())

    def score(self, seen: int, targets: Sequence[Any]) -> list[float]:
        return [float(seen - self._known) for _ in targets]
