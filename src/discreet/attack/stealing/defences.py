"""What an interface can hold back: rounded, top, noisy or fewer answers. None of these is a proof; all cost something."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from discreet.attack.stealing.oracle import Oracle
from discreet.core import check
from discreet.errors import InvalidValue, ModelUnreachable

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Rounded:
    """Answers rounded to some decimals."""

    model: Any
    decimals: int

    def __call__(self, rows: Any) -> Floats:
        return np.asarray(Oracle(self.model)(rows).round(self.decimals))


@dataclass(frozen=True)
class TopOne:
    """The label alone."""

    model: Any

    def __call__(self, rows: Any) -> NDArray[np.int64]:
        return np.asarray(Oracle(self.model)(rows).argmax(axis=1))


@dataclass(frozen=True)
class TopK:
    """The probabilities of the `most` likeliest classes; of the others 0."""

    model: Any
    most: int

    def __post_init__(self) -> None:
        check.whole("most", self.most)

    def __call__(self, rows: Any) -> Floats:
        from discreet.attack.stealing.approximate import shares_of

        shares = shares_of(Oracle(self.model)(rows))
        last = np.partition(shares, -min(self.most, shares.shape[1]), axis=1)[:, -min(self.most, shares.shape[1]), None]
        return np.asarray(np.where(shares >= last, shares, 0.0))


@dataclass(frozen=True)
class Noisy:
    """Scores with Gaussian noise, the same for the same row: asking again does not average it away."""

    model: Any
    scale: float
    seed: int = 0

    def __call__(self, rows: Any) -> Floats:
        rows, found = np.asarray(rows, np.float64), Oracle(self.model)(rows)
        noise = [self._random(row).normal(size=found.shape[1]) for row in rows]
        return np.asarray(found + self.scale * np.array(noise))

    def _random(self, row: Floats) -> np.random.Generator:
        import hashlib

        digest = hashlib.blake2b(row.tobytes(), key=str(self.seed).encode()).digest()
        return np.random.default_rng(int.from_bytes(digest, "little"))


@dataclass
class RateLimited:
    """No more than `most` rows until `rest` seconds have passed: raises ModelUnreachable, as an interface answers 429.

    A request of more rows than that is refused: waiting would not help it (`Oracle` asks in parts: batch=…).
    """

    model: Any
    most: int
    rest: float
    clock: Any = None
    _since: float = field(default=-np.inf, init=False)
    _used: int = field(default=0, init=False)

    def __post_init__(self) -> None:
        check.whole("most", self.most), check.positive("rest", self.rest)

    def __call__(self, rows: Any) -> Floats:
        import time

        if len(rows) > self.most:
            raise InvalidValue(
                f"A request may have {self.most} rows; this one has {len(rows)}. Ask in parts: batch={self.most}."
            )
        now = (self.clock or time.monotonic)()
        if now - self._since >= self.rest:
            self._since, self._used = now, 0
        if self._used + len(rows) > self.most:
            left = self.rest - (now - self._since)
            raise ModelUnreachable(f"More than {self.most} rows in {self.rest:g} seconds.", retry_after=left)
        self._used += len(rows)
        return Oracle(self.model)(rows)
