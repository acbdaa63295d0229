"""Images made by random processes: data for pre-training that belongs to nobody.

Textures come from random networks of oriented filters fed with pink noise, one network for every image, after Baradad et al.
("Learning to see by looking at noise", 2021). Shapes cut from them, large and small, cover one another like dead leaves.
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor

from discreet.core import check

Device = torch.device | str
CHANNELS = 16
LEAVES = 20
AT_ONCE = 2048


def pink(count: int, side: int, device: Device) -> Tensor:
    """Noise whose amplitude falls with frequency, each image at its own pace; mean 0, deviation 1."""
    down = torch.fft.fftfreq(side, device=device)[:, None]
    frequency = (down**2 + torch.fft.rfftfreq(side, device=device) ** 2).sqrt().clamp_min(1 / side)
    spectrum = torch.fft.rfft2(torch.randn(count, side, side, device=device))
    pace = 0.5 + 1.5 * torch.rand(count, 1, 1, device=device)
    return scaled(torch.fft.irfft2(spectrum * frequency**-pace, s=(side, side))[:, None])


def scaled(x: Tensor) -> Tensor:
    spread, mean = torch.var_mean(x, (2, 3), correction=0, keepdim=True)
    return (x - mean) * (spread + 1e-4).rsqrt()


def oriented(count: int, device: Device) -> Tensor:
    """Gabor filters of 5 x 5, all different, [count, 1, 5, 5]."""
    grid = torch.arange(-2.0, 3.0, device=device)
    angle, phase, wide = (torch.rand(count, 1, 1, device=device) for _ in range(3))
    along = grid[:, None] * (math.tau * angle).cos() + grid * (math.tau * angle).sin()
    bell = torch.exp(-(grid[:, None] ** 2 + grid**2) / (2 * (0.7 + 1.3 * wide) ** 2))
    filters = bell * torch.cos(along * (0.4 + 1.6 * torch.rand(count, 1, 1, device=device)) + math.tau * phase)
    return (filters / filters.flatten(1).norm(dim=1)[:, None, None])[:, None]


def few(count: int, rows: int, columns: int, device: Device) -> Tensor:
    """Random matrices, mostly zeros."""
    mask = torch.rand(count, rows, columns, device=device) < 0.3
    return torch.randn(count, rows, columns, device=device) * mask


def coloured(x: Tensor) -> Tensor:
    """Every colour with a mean and a contrast of its own, within 0..1."""
    mean, spread = torch.randn(2, len(x), 3, 1, 1, device=x.device)
    shared = torch.randn(len(x), 1, 1, 1, device=x.device)
    return (scaled(x) * (0.21 + 0.06 * spread) + 0.45 + 0.1 * mean + 0.1 * shared).clamp(0, 1)


def textures(count: int, whole: int, device: Device) -> Tensor:
    """Outputs of random convolutional generators, one generator for every image, [count, 3, whole, whole]."""
    x, side = torch.randn(count, CHANNELS, 4, 4, device=device), 4
    while True:
        x = (few(count, CHANNELS, CHANNELS, device) @ x.flatten(2)).view(x.shape)
        x = F.pad(x, (2, 2, 2, 2), mode="replicate").view(1, -1, side + 4, side + 4)
        x = F.conv2d(x, oriented(x.shape[1], device), groups=x.shape[1]).view(count, CHANNELS, side, side)
        x = scaled(x) + pink(count, side, device) * torch.rand(count, CHANNELS, 1, 1, device=device)
        x = F.leaky_relu(x + 0.6 * torch.rand(count, CHANNELS, 1, 1, device=device) - 0.3, 0.2)
        if side >= whole:
            break
        x, side = F.interpolate(x, scale_factor=2, mode="bilinear"), 2 * side
    colour = few(count, 3, CHANNELS, device) * 0.4 + few(count, 1, CHANNELS, device)
    return coloured((colour @ x.flatten(2)).view(count, 3, side, side)[:, :, :whole, :whole])


def shapes(count: int, side: int, device: Device) -> Tensor:
    """Turned ellipses, boxes and what lies between, more small ones than large, as masks [count, 1, side, side]."""
    grid = torch.linspace(-1, 1, side, device=device)
    at, turn = 2.4 * torch.rand(2, count, 1, 1, device=device) - 1.2, math.tau * torch.rand(count, 1, 1, device=device)
    size = 0.1 * 9.0 ** torch.rand(count, 1, 1, device=device)
    slim = 0.35 + 0.65 * torch.rand(count, 1, 1, device=device)
    down, right = grid[:, None] - at[0], grid - at[1]
    u, v = (down * turn.cos() + right * turn.sin()) / size, (right * turn.cos() - down * turn.sin()) / (size * slim)
    power = torch.where(torch.rand(count, 1, 1, device=device) < 0.5, 2.0, 8.0)
    bent = 0.25 * torch.rand(count, 1, 1, device=device) * torch.sin(3 * torch.atan2(u, v) + turn)
    return (u.abs() ** power + v.abs() ** power < 1 + bent)[:, None]


def leaves(painted: Tensor) -> Tensor:
    """Each image covered by shapes cut from others, rough or smooth, shaded; some by many shapes, some by hardly one."""
    count, side, device = len(painted), painted.shape[3], painted.device
    image = painted.clone()
    often = 1.2 * torch.rand(count, 1, 1, 1, device=device) - 0.1
    ramp = torch.linspace(-1, 1, side, device=device).expand(side, side)
    for leaf in range(LEAVES):
        other = painted.roll(1 + leaf * 7, 0)
        other = other.flip(3) if leaf % 2 else other.transpose(2, 3)
        mean = 0.7 * torch.rand(count, 1, 1, 1, device=device) + 0.3 * torch.rand(count, 3, 1, 1, device=device)
        rough, presence = torch.rand(2, count, 1, 1, 1, device=device)
        shade = 0.15 * torch.randn(count, 1, 1, 1, device=device) * ramp
        middle = other.mean((2, 3), keepdim=True)
        drawn = (mean + middle) / 2 + rough.sqrt() * (other - middle) + shade
        image = torch.where(shapes(count, side, device) & (presence < often), drawn.clamp(0, 1), image)
    return image


def random_images(count: int, *, side: int = 64, device: Device = "cpu") -> Tensor:
    """Images that random processes make, [count, 3, side, side], whole numbers 0..255; drawn from torch's own generator.

    Nobody's data is in them, so what is learned from them costs no privacy.

    >>> random_images(2, side=16).shape
    torch.Size([2, 3, 16, 16])
    """
    check.whole("count", count)
    check.whole("side", side, least=8)
    parts = [leaves(textures(min(AT_ONCE, count - start), side, device)) for start in range(0, count, AT_ONCE)]
    return torch.cat([(part * 255).round().to(torch.uint8) for part in parts])
