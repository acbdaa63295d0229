"""The scattering transform of images: wavelets, moduli and averages, with nothing to learn.

A linear model on these features reaches, under privacy, what networks trained end to end do not (Tramèr and Boneh,
"Differentially private learning needs better features (or much more data)", 2021). The filters are formulas and every image is
mapped by itself, so the map costs no privacy. The transform is that of Bruna and Mallat ("Invariant scattering convolution
networks", 2013) with Morlet wavelets:

    S0 = x * phi,   S1[j, a] = |x * psi_ja| * phi,   S2[j, a, k, b] = ||x * psi_ja| * psi_kb| * phi   for j < k

with psi_ja of wavelength ~ 2^j at angle pi a / L, phi a Gaussian as wide as 2^J, and the result kept at every 2^J-th pixel.
"""

from __future__ import annotations

import functools
import math

import torch
from torch import Tensor, nn

from discreet.errors import InvalidValue

WIDTH, FREQUENCY = (
    0.8,
    3 * math.pi / 4,
)  # of the finest wavelet: its Gaussian's width in pixels, its frequency in radians a pixel
CHUNK = {"cpu": 32, "cuda": 2048}  # maps at once: what stays in a processor's cache; what fills a GPU


class Scattering(nn.Module):
    """The map of images of one size, [..., height, width] to [..., channels, height / 2^J, width / 2^J], where J is `scales`.

    Channels: S0, S1 (scale by scale, `angles` angles each), S2 (first wavelet by first wavelet). It has no parameters.

    >>> scattering = Scattering((28, 28))
    >>> scattering.channels, scattering(torch.zeros(5, 28, 28)).shape
    (81, torch.Size([5, 81, 7, 7]))
    """

    def __init__(self, size: tuple[int, int], *, scales: int = 2, angles: int = 8) -> None:
        super().__init__()
        if scales < 1 or angles < 1:
            raise InvalidValue(f"Scattering takes scales and angles of 1 or more; got scales={scales}, angles={angles}.")
        step = 2**scales
        if len(size) != 2 or any(side < step + 1 or side % step for side in size):
            raise InvalidValue(
                f"Scattering with {scales} scales takes images whose sides are multiples of {step} and larger; got "
                f"{tuple(size)}. Pad the images."
            )
        self.size, self.scales, self.angles = size, scales, angles
        self.channels = 1 + scales * angles + angles**2 * scales * (scales - 1) // 2
        grid = size[0] + 2 * step, size[1] + 2 * step  # a margin of one output pixel on each side, filled by reflection
        for scale in range(scales):
            bank = torch.stack([morlet(grid, scale, math.pi * a / angles, 4 / angles) for a in range(angles)])
            for lower in range(scale + 1):  # the resolution of what it is applied to: every 2^lower-th pixel
                spectra = _folded(bank, 2**lower) / 4 ** (scale - lower)
                self.register_buffer(f"wavelets_{scale}_{lower}", spectra.to(torch.complex64), persistent=False)
        for lower in range(scales):
            self.register_buffer(f"average_{lower}", averaging(grid, scales, lower), persistent=False)

    def forward(self, images: Tensor) -> Tensor:
        if images.shape[-2:] != self.size:
            raise InvalidValue(f"This scattering takes images of size {self.size}; got {tuple(images.shape[-2:])}.")
        flat = images.reshape(-1, 1, *self.size).float()
        if not len(flat):
            return flat.new_empty(*images.shape[:-2], *self._shape())
        out = torch.cat([self._scatter_chunk(chunk) for chunk in torch.split(flat, CHUNK.get(flat.device.type, 32))])
        return out.view(*images.shape[:-2], *self._shape())

    def _shape(self) -> tuple[int, int, int]:
        return self.channels, self.size[0] >> self.scales, self.size[1] >> self.scales

    def _scatter_chunk(self, images: Tensor) -> Tensor:
        """Of a chunk [n, 1, height, width]."""
        margin = 2**self.scales
        start = nn.functional.pad(images, (margin,) * 4, mode="reflect")
        layer = [(-1, start)]  # the scale of the last wavelet, and maps [n, paths, ...]
        out = []
        for order in range(3):
            out += [self._averaged(maps, max(scale, 0)) for scale, maps in layer]
            if order < 2:
                layer = [
                    (scale, self._bands(maps_hat, scale, max(before, 0)))
                    for before, maps in layer if before + 1 < self.scales
                    for maps_hat in [torch.fft.fft2(maps)]
                    for scale in range(before + 1, self.scales)
                ]  # fmt: skip
        return torch.cat(out, dim=1).view(len(images), *self._shape())

    def _averaged(self, maps: Tensor, lower: int) -> Tensor:
        return maps.flatten(2) @ self.get_buffer(f"average_{lower}")

    def _bands(self, maps_hat: Tensor, scale: int, lower: int) -> Tensor:
        """|maps * psi| for all angles of a scale, kept at every 2^scale-th pixel: skipping pixels folds the spectrum."""
        n, _, height, width = maps_hat.shape
        skip = 2 ** (scale - lower)
        height, width = height // skip, width // skip
        wavelets = self.get_buffer(f"wavelets_{scale}_{lower}").view(-1, skip, height, skip, width)
        folded = torch.einsum("bpiqj,fpiqj->bfij", maps_hat.reshape(-1, skip, height, skip, width), wavelets)
        parts = torch.view_as_real(torch.fft.ifft2(folded).reshape(n, -1, height, width))
        return (parts[..., 0] ** 2).addcmul_(parts[..., 1], parts[..., 1]).sqrt_()


def normalise(features: Tensor, groups: int = 27) -> Tensor:
    """Each example's features [n, channels, ...] with mean 0 and variance 1 over each of `groups` runs of channels.

    The statistics are the example's own, so nothing is learned from others and nothing is paid (Tramèr and Boneh, section 2.3).
    """
    if features.dim() < 2 or groups < 1 or features.shape[1] % groups:
        raise InvalidValue(
            f"normalise takes [n, channels, ...] with channels a multiple of groups={groups}; got {tuple(features.shape)}."
        )
    return nn.functional.group_norm(features, groups) if len(features) else features


@torch.no_grad()
def scatter(images: Tensor, *, scales: int = 2, angles: int = 8, groups: int | None = 27) -> Tensor:
    """Normalised scattering features of a stack of images, ready for a linear layer.

    `images` is [n, height, width] or [n, colours, height, width], whole numbers 0..255 or floats; the result is
    [n, colours * channels, height / 2^scales, width / 2^scales] on the same device. `groups=None` leaves out `normalise`.

    >>> scatter(torch.randint(256, (2, 3, 32, 32), dtype=torch.uint8)).shape
    torch.Size([2, 243, 8, 8])
    """
    if images.dim() not in (3, 4):
        raise InvalidValue(
            f"scatter takes images [n, height, width] or [n, colours, height, width]; got {tuple(images.shape)}."
        )
    transform = _made(images.shape[-2], images.shape[-1], scales, angles, images.device)
    out = []
    for some in torch.split(images, 1024):
        features = transform(some if some.is_floating_point() else some.float() / 255)
        features = features.flatten(1, features.dim() - 3)
        out.append(features if groups is None else normalise(features, groups))
    return torch.cat(out)


@functools.lru_cache(maxsize=8)
def _made(height: int, width: int, scales: int, angles: int, device: torch.device) -> Scattering:
    """The transform of a size, cached: making its filters takes longer than mapping a thousand images."""
    return Scattering((height, width), scales=scales, angles=angles).to(device)


def morlet(grid: tuple[int, int], scale: int, angle: float, slant: float) -> Tensor:
    """The spectrum (real, since the wavelet is even up to conjugation) of a Morlet wavelet on a periodic grid, in float64.

    A plane wave of frequency FREQUENCY / 2^scale under a Gaussian of width WIDTH 2^scale along it and 1/slant of that across,
    less so much of the Gaussian that its sum is zero; the Gaussian's own sum is about 1.
    """
    width = WIDTH * 2**scale
    rows, columns = _around(grid[0]), _around(grid[1])
    y, x = rows[:, None, :, None], columns[None, :, None, :]  # [grid, grid, copies, copies]: pixels and their periodic copies
    along, across = x * math.cos(angle) + y * math.sin(angle), y * math.cos(angle) - x * math.sin(angle)
    bell = torch.exp(-(along**2 + (slant * across) ** 2) / (2 * width**2))
    wave = torch.polar(bell, along * FREQUENCY / 2**scale).sum((2, 3))
    bell = bell.sum((2, 3))
    wavelet = (wave - bell * (wave.sum() / bell.sum())) * slant / (2 * math.pi * width**2)
    spectrum: Tensor = torch.fft.fft2(wavelet).real
    return spectrum


def averaging(grid: tuple[int, int], scales: int, lower: int) -> Tensor:
    """phi and the choice of pixels as one matrix: from every 2^lower-th pixel (flattened) to the output inside the margin."""
    width = WIDTH * 2 ** (scales - 1)

    def line(side: int) -> Tensor:
        bell: Tensor = torch.exp(-(_around(side) ** 2) / (2 * width**2)).sum(1) * 2**lower / (math.sqrt(2 * math.pi) * width)
        sources = torch.arange(0, side, 2**lower)
        positions = torch.arange(2**scales, side - 2**scales, 2**scales)
        return bell[(positions[None, :] - sources[:, None]) % side]  # [sources, kept]

    both: Tensor = torch.kron(line(grid[0]), line(grid[1]))
    return both.float()


def _around(side: int) -> Tensor:
    """For each of `side` pixels, its distances from 0 and from the copies of 0 on both sides: [side, 5]."""
    return torch.arange(side, dtype=torch.float64)[:, None] - side * torch.arange(-2, 3, dtype=torch.float64)


def _folded(spectra: Tensor, times: int) -> Tensor:
    """The spectrum of every `times`-th pixel of filters, scaled to keep their sums."""
    *many, height, width = spectra.shape
    return spectra.view(*many, times, height // times, times, width // times).sum((-4, -2))
