"""InstaHide (Huang et al. 2020): pictures mixed with others, signs flipped at random. It hides far less than it seems to.

An encoding is the sum of a few private pictures and a few public ones with random weights, after which every pixel keeps its
sign or changes it by a fair coin. The coins are a fresh one-time pad for the signs alone: the absolute values are sent in the
clear, and each picture is sent many times, so `attack.encodings` recovers the pictures. There is no claim, since no
neighbouring data sets are compared; mixup (Zhang et al. 2018) is the same without the coins (`signs=False`).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from discreet.core import check
from discreet.errors import InvalidValue

Floats = NDArray[np.float32]


@dataclass(frozen=True)
class MixingKey:
    """What is never sent: which private pictures are in each encoding, in what shares, mirrored or not, and moved how far."""

    rows: NDArray[np.int64]
    shares: Floats
    mirrored: NDArray[np.bool_]
    moved: NDArray[np.int64]


@dataclass(frozen=True)
class Encodings:
    """What is sent: pictures [count, height, width, channels] and labels [count, classes] that hold the private shares."""

    pictures: Floats
    labels: Floats | None
    key: MixingKey


@dataclass(frozen=True)
class InstaHide:
    """Mix `private` pictures of one's own with `public` others; no share is above `largest`; flip signs by fair coins.

    Private pictures can be augmented each time anew: with `mirror` by a fair coin, with `crop` by moving them up to so many
    pixels down and across (what leaves the picture is lost, what comes in is grey).

    >>> rng = np.random.default_rng(0)
    >>> own, others = rng.uniform(-1, 1, (10, 8, 8, 3)), rng.uniform(-1, 1, (50, 8, 8, 3))
    >>> sent = InstaHide().encode(own, others, repeats=4, rng=rng)
    >>> sent.pictures.shape
    (40, 8, 8, 3)
    """

    private: int = 2
    public: int = 2
    largest: float = 0.65
    signs: bool = True
    mirror: bool = False
    crop: int = 0

    def __post_init__(self) -> None:
        check.whole("private", self.private)
        check.whole("public", self.public, least=0), check.whole("crop", self.crop, least=0)
        parts = self.private + self.public
        if parts < 2 or not 1 / parts < self.largest <= 1:
            raise InvalidValue(
                f"largest={self.largest:g} must lie above 1/{parts}, the share of {parts} equal parts, and be at most 1."
            )

    def encode(
        self, own: ArrayLike, others: ArrayLike, *, repeats: int, rng: np.random.Generator, labels: ArrayLike | None = None
    ) -> Encodings:
        """Encode each picture of `own` (values within -1 and 1) `repeats` times as the first of its mixture."""
        private, public = _pictures("own", own), _pictures("others", others)
        check.whole("repeats", repeats)
        if len(private) <= self.private or len(public) < self.public or private.shape[1:] != public.shape[1:]:
            raise InvalidValue(
                f"{len(private)} private pictures of shape {private.shape[1:]} and {len(public)} public ones of shape "
                f"{public.shape[1:]}: mixing {self.private} + {self.public} needs more than {self.private} and at least "
                f"{self.public}, all of one shape."
            )
        rows = np.concatenate([self._partners(len(private), rng) for _ in range(repeats)])
        shares = self._shares(len(rows), rng)
        mirrored = rng.random(rows.shape) < 0.5 if self.mirror else np.zeros(rows.shape, np.bool_)
        moved = rng.integers(-self.crop, self.crop + 1, (*rows.shape, 2)) if self.crop else np.zeros((*rows.shape, 2), np.int64)
        mixed = np.zeros((len(rows), *private.shape[1:]), np.float32)
        for place in range(self.private):
            pictures = private[rows[:, place]]
            pictures = np.where(mirrored[:, place, None, None, None], pictures[:, :, ::-1], pictures)
            pictures = _moved(pictures, moved[:, place]) if self.crop else pictures
            mixed += shares[:, place, None, None, None] * pictures
        for place in range(self.private, self.private + self.public):
            mixed += shares[:, place, None, None, None] * public[rng.integers(0, len(public), len(rows))]
        if self.signs:
            mixed *= rng.choice(np.array([-1, 1], np.float32), mixed.shape)
        return Encodings(
            mixed, self._labels(labels, rows, shares, len(private)), MixingKey(rows, shares[:, : self.private], mirrored, moved)
        )

    def _partners(self, count: int, rng: np.random.Generator) -> NDArray[np.int64]:
        """Distinct partners for each picture: neighbours at random distances in a random cyclic order."""
        order = rng.permutation(count)
        distances = np.r_[0, 1 + rng.choice(count - 1, self.private - 1, replace=False)]
        rows = np.stack([order[(np.arange(count) + distance) % count] for distance in distances], axis=1)
        return np.asarray(rows[np.argsort(order)], np.int64)

    def _shares(self, count: int, rng: np.random.Generator) -> Floats:
        """Absolute values of normal draws, scaled to sum to one, drawn again where one is above `largest`."""
        parts, out = self.private + self.public, np.zeros((count, self.private + self.public))
        pending = np.arange(count)
        while len(pending):
            drawn = np.abs(rng.normal(size=(len(pending), parts)))
            out[pending] = drawn / drawn.sum(axis=1, keepdims=True)
            pending = pending[out[pending].max(axis=1) > self.largest]
        return out.astype(np.float32)

    def _labels(self, labels: ArrayLike | None, rows: NDArray[np.int64], shares: Floats, count: int) -> Floats | None:
        if labels is None:
            return None
        classes = np.asarray(labels)
        if classes.shape != (count,) or classes.dtype.kind not in "iu" or (classes < 0).any():
            raise InvalidValue(f"labels must be {count} whole numbers from 0, a class for each private picture.")
        out = np.zeros((len(rows), int(classes.max()) + 1), np.float32)
        for place in range(self.private):
            np.add.at(out, (np.arange(len(rows)), classes[rows[:, place]]), shares[:, place])
        return out


def _moved(pictures: Floats, by: NDArray[np.int64]) -> Floats:
    """Each picture moved down and across, grey where nothing is left."""
    out = np.zeros_like(pictures)
    height, width = pictures.shape[1:3]
    for made, picture, (down, across) in zip(out, pictures, by.tolist()):
        rows, columns = slice(max(down, 0), height + min(down, 0)), slice(max(across, 0), width + min(across, 0))
        made[rows, columns] = picture[max(-down, 0) : height - max(down, 0), max(-across, 0) : width - max(across, 0)]
    return out


def _pictures(name: str, values: ArrayLike) -> Floats:
    numbers = np.asarray(values, np.float32)
    if numbers.ndim != 4 or not np.isfinite(numbers).all() or np.abs(numbers).max(initial=0) > 1:
        raise InvalidValue(f"{name} must be pictures [count, height, width, channels] with values within -1 and 1.")
    return numbers
