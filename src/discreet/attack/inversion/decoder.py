"""A prior that is a network: a decoder trained on public pictures, and waves for what it cannot draw.

A variational autoencoder learns what the public pictures have in common, mirror images and mixtures of two among them. People
who are not in them differ from anything it draws, so waves are added, as strong as what it could not draw of public pictures
that it was not shown. It needs torch.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from discreet.attack.inversion.prior import LEAST, WAVES, basis_of, public_pictures
from discreet.core import check
from discreet.errors import InvalidValue

if TYPE_CHECKING:
    from torch import Tensor, nn

Floats = NDArray[np.float64]
HIDDEN, BATCH, RATE, MIXED = 256, 64, 2e-3, 0.7
TIGHT = 1e-3  # weight of the divergence from a normal distribution, for each coordinate
FITTED = 150  # steps in which a held-out picture is sought


@dataclass(frozen=True, eq=False)
class DecoderPrior:
    """What `decoder` draws from `code` numbers, and waves around it: `waves` [count, pixels], scaled, of size `radius`."""

    shape: tuple[int, int, int]
    decoder: nn.Module
    code: int
    waves: Floats
    radius: float

    @classmethod
    def learned(
        cls, public: ArrayLike, *, code: int = 16, steps: int = 1500, held_out: float = 0.25, seed: int = 0
    ) -> DecoderPrior:
        """From public pictures [count, height, width, channels] within 0 and 1: none of a person attacked.

        The last `held_out` of them are not shown to a first decoder, to tell what waves are needed: let these be of people who
        are not among the first.
        """
        import torch

        pictures = public_pictures(public)
        check.whole("code", code), check.whole("steps", steps), check.whole("seed", seed, least=0)
        kept = len(pictures) - round(check.open_fraction("held_out", held_out) * len(pictures))
        if not 2 <= kept < len(pictures):
            raise InvalidValue(f"Of {len(pictures)} public pictures {kept} are left to learn from; give more.")
        other = torch.tensor(pictures[kept:].reshape(len(pictures) - kept, -1), dtype=torch.float32)
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            first = _trained(pictures[:kept], code, steps)
            left = (other - _nearest(first, other, code)).double().numpy()
            decoder = _trained(pictures, code, steps)
        basis = basis_of(pictures.shape[1:], WAVES)
        strength = np.sqrt(((left @ basis.T) ** 2).mean(axis=0))
        return cls(pictures.shape[1:], decoder, code, basis * strength[:, None], float(np.sqrt((left**2).mean())))

    @property
    def size(self) -> int:
        return self.code + len(self.waves)

    def drawn(self, points: Tensor) -> Tensor:
        """Points [rows, size] as pictures [rows, pixels]; the code within the ball in which public pictures lie."""
        import torch

        away = points[:, self.code :] @ torch.tensor(self.waves)
        face = self.decoder(_within(points[:, : self.code].float())).double()
        drawn: Tensor = face + self.radius * away / (away.square().mean(dim=1, keepdim=True).sqrt() + LEAST)
        return drawn

    def pictures(self, points: Floats) -> Floats:
        """Points [..., size] as pictures [..., pixels]."""
        import torch

        with torch.no_grad():
            flat = self.drawn(torch.tensor(points.reshape(-1, self.size))).numpy()
        return np.asarray(flat.reshape(*points.shape[:-1], -1))


def _within(code: Tensor) -> Tensor:
    size = code.shape[1] ** 0.5
    inside: Tensor = code * size / code.norm(dim=1, keepdim=True).clamp_min(size)
    return inside


def _trained(pictures: Floats, code: int, steps: int) -> nn.Module:
    """A decoder of pictures, trained with an encoder that is thrown away."""
    import torch
    from torch import nn

    rows = torch.tensor(pictures, dtype=torch.float32)
    pixels, middle, spread = rows[0].numel(), rows.mean(dim=0).flatten(), rows.std() + LEAST
    encoder = nn.Sequential(nn.Linear(pixels, HIDDEN), nn.GELU(), nn.Linear(HIDDEN, 2 * code))
    decoder = nn.Sequential(nn.Linear(code, HIDDEN), nn.GELU(), nn.Linear(HIDDEN, pixels))
    search = torch.optim.Adam([*encoder.parameters(), *decoder.parameters()], RATE)
    for _ in range(steps):
        one, two = rows[torch.randint(len(rows), (2, BATCH))]
        share = (torch.rand(BATCH) * (torch.rand(BATCH) < MIXED)).reshape(-1, 1, 1, 1)
        mixed = (1 - share) * one + share * two
        turned = torch.where((torch.rand(BATCH) < 0.5).reshape(-1, 1, 1, 1), mixed.flip(2), mixed)
        seen = (turned.flatten(1) - middle) / spread
        mean, log = encoder(seen).chunk(2, dim=1)
        told = decoder(mean + torch.randn_like(mean) * (log / 2).exp())
        apart = (mean.square() + log.exp() - log - 1).mean() / 2
        loss = (told - seen).square().mean() + TIGHT * code * apart
        search.zero_grad()
        loss.backward()
        search.step()
    last: Any = decoder[-1]
    with torch.no_grad():  # pictures as they are, not centred ones
        last.weight.mul_(spread)
        last.bias.mul_(spread).add_(middle)
    return decoder.requires_grad_(False).eval()


def _nearest(decoder: nn.Module, wanted: Tensor, code: int) -> Tensor:
    """What the decoder draws that is nearest to each picture."""
    import torch

    points = torch.zeros(len(wanted), code, requires_grad=True)
    search = torch.optim.Adam([points], 0.05)
    for _ in range(FITTED):
        (points.grad,) = torch.autograd.grad((decoder(_within(points)) - wanted).square().sum(), [points])
        search.step()
    with torch.no_grad():
        drawn: Tensor = decoder(_within(points))
    return drawn
