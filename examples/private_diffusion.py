"""A private diffusion model: it learns to take noise away from points, and makes points that nobody gave.

    python examples/private_diffusion.py

20,000 made-up people stand around two circles. The model draws a time and noise for every person by itself, which training
allows as long as the numbers come from torch. What is sampled from it afterwards is post-processing: it costs nothing more.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import torch
from torch import Tensor, nn

import discreet

PEOPLE, TIMES = 20_000, 50


def around_two_circles(count: int) -> Tensor:
    turn, side = 2 * torch.pi * torch.rand(count), torch.where(torch.rand(count) < 0.5, -1.0, 1.0)
    far = 0.8 + 0.05 * torch.randn(count)
    return torch.stack([side + far * turn.cos(), far * turn.sin()], 1)


def kept(time: Tensor) -> Tensor:
    """What share of a point's variance is still its own."""
    return (time * torch.pi / 2).cos().square().clamp(1e-3, 1 - 1e-3)


class Denoiser(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(11, 96), nn.SiLU(), nn.Linear(96, 96), nn.SiLU(), nn.Linear(96, 2))

    def noise(self, x: Tensor, time: Tensor) -> Tensor:
        """The noise in points at a time between 0 (none) and 1 (nothing else)."""
        return self.net(torch.cat([x, time, *(wave(k * x) for k in (2, 4) for wave in (torch.sin, torch.cos))], 1))

    def forward(self, x: Tensor) -> Tensor:
        """What is not told of noise that was drawn, for every point."""
        time, noise = torch.rand(len(x), 1), torch.randn_like(x)
        return noise - self.noise(kept(time).sqrt() * x + (1 - kept(time)).sqrt() * noise, time)

    @torch.no_grad()
    def sample(self, count: int) -> Tensor:
        x, times = torch.randn(count, 2), torch.linspace(1, 0, TIMES + 1)
        for now, then in zip(times[:-1, None, None].expand(-1, count, 1), times[1:]):
            noise = self.noise(x, now)
            clean = ((x - (1 - kept(now)).sqrt() * noise) / kept(now).sqrt()).clamp(-2, 2)
            x = kept(then).sqrt() * clean + (1 - kept(then)).sqrt() * noise
        return x


def off(points: Tensor) -> float:
    """How far points are from the nearer circle, on average."""
    middles = torch.tensor([[-1.0, 0.0], [1.0, 0.0]])
    return float(((points[:, None] - middles).norm(dim=2) - 0.8).abs().min(1).values.mean())


torch.manual_seed(0)  # of the made-up people, the first weights and the times; it does not reach the noise that protects them
points, model = around_two_circles(PEOPLE), Denoiser()
run = discreet.learn.train(
    model, torch.optim.Adam(model.parameters(), 1e-2), (points, points), lambda left, _: left.square().sum(1),
    unit=discreet.record(), epsilon=2.0, delta=1e-6, rate=0.04, steps=800, clip_norm=0.5, divisor=0.04 * PEOPLE,
)  # fmt: skip
average = discreet.learn.Average(model, 0.995)
for _step in run:
    average.update()
average.copy_to(model)
folder = Path(tempfile.mkdtemp())
run.release(folder / "model")
for what, them in (("people", points), ("samples", model.sample(2000)), ("noise", torch.randn(2000, 2))):
    print(f"{what}: {off(them):.3f} from the nearer circle")
print(f"epsilon {run.spent():.2f} at delta {run.plan.delta:g}; the model with its claim: {folder / 'model'}")
