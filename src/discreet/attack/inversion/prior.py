"""Where pictures lie: a mean and waves around it, slow ones first, as far from the mean as public pictures are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from discreet.core import check
from discreet.errors import InvalidValue

if TYPE_CHECKING:
    from torch import Tensor

Floats = NDArray[np.float64]
WAVES, PLAIN_RADIUS, LEAST = 300, 0.2, 1e-12


class Prior(Protocol):
    """Pictures by points of `size` numbers near 0, with numpy and, for gradients, with torch."""

    @property
    def shape(self) -> tuple[int, int, int]: ...
    @property
    def size(self) -> int: ...
    def pictures(self, points: Floats) -> Floats: ...
    def drawn(self, points: Tensor) -> Tensor: ...


@dataclass(frozen=True, eq=False)
class PicturePrior:
    """Where pictures lie: a mean, how strong each wave is (`waves` [count, pixels], scaled), and how far from the mean."""

    shape: tuple[int, int, int]
    mean: Floats
    waves: Floats
    radius: float

    @classmethod
    def learned(cls, public: ArrayLike, waves: int = WAVES) -> PicturePrior:
        """From public pictures [count, height, width, channels] of the same kind, within 0 and 1: none of a person attacked."""
        pictures = public_pictures(public)
        flat = pictures.reshape(len(pictures), -1)
        mean, basis = flat.mean(axis=0), basis_of(pictures.shape[1:], waves)
        strength = ((flat - mean) @ basis.T).std(axis=0)
        return cls(pictures.shape[1:], mean, basis * strength[:, None], float(np.sqrt(((flat - mean) ** 2).mean())))

    @classmethod
    def plain(cls, shape: Sequence[int], waves: int = WAVES, radius: float = PLAIN_RADIUS) -> PicturePrior:
        """Without public pictures: grey, and slow waves before fast ones."""
        if len(shape) != 3 or min(shape) < 1:
            raise InvalidValue(f"The shape of a picture is (height, width, channels); got {tuple(shape)}.")
        check.positive("radius", radius)
        size = (int(shape[0]), int(shape[1]), int(shape[2]))
        basis, pace = basis_of(size, waves), _paces(size, waves)
        return cls(size, np.full(int(np.prod(size)), 0.5), basis / (1 + pace)[:, None], float(radius))

    @property
    def size(self) -> int:
        return len(self.waves)

    def drawn(self, points: Tensor) -> Tensor:
        """The same with torch, of points [rows, waves]."""
        import torch

        away = points @ torch.tensor(self.waves)
        return torch.tensor(self.mean) + self.radius * away / (away.square().mean(dim=1, keepdim=True).sqrt() + LEAST)

    def pictures(self, points: Floats) -> Floats:
        """Points [..., waves] as pictures [..., pixels], each at `radius` from the mean."""
        away = points @ self.waves
        size = np.sqrt((away**2).mean(axis=-1, keepdims=True)) + LEAST
        return np.asarray(self.mean + self.radius * away / size)


def public_pictures(public: ArrayLike) -> Floats:
    """Public pictures, checked."""
    pictures = np.asarray(public, np.float64)
    if pictures.ndim != 4 or len(pictures) < 2 or not np.isfinite(pictures).all():
        raise InvalidValue(
            f"public must be two or more finite pictures [count, height, width, channels]; got {pictures.shape}."
        )
    return pictures


def _paces(shape: tuple[int, int, int], count: int) -> Floats:
    """How fast each of the `count` slowest waves is, in waves across."""
    down, across = np.meshgrid(np.arange(shape[0]), np.arange(shape[1]), indexing="ij")
    return np.sort(np.repeat(np.hypot(down, across).ravel(), shape[2]))[:count]


def basis_of(shape: tuple[int, int, int], count: int) -> Floats:
    """The slowest cosines, in each channel, as rows of length one."""
    from scipy.fft import idctn

    check.whole("waves", count)
    height, width, channels = shape
    down, across = np.meshgrid(np.arange(height), np.arange(width), indexing="ij")
    order = np.argsort(np.repeat(np.hypot(down, across).ravel(), channels), kind="stable")[:count]
    spots = np.zeros((len(order), height * width * channels))
    spots[np.arange(len(order)), order] = 1
    return np.asarray(idctn(spots.reshape(-1, *shape), axes=(1, 2), norm="ortho").reshape(len(order), -1))
