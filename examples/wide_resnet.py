"""A wide residual network fit for private training: no example sees another, and no kernel needs a batch to be scaled.

After De et al. ("Unlocking high-accuracy differentially private image classification through scale", 2022): kernels are
standardised, groups of channels are normalised, and normalised last, so that what a convolution reads has mean 0.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from discreet.learn.layers import RectifiedGroupNorm, StandardizedConv2d


class Block(nn.Module):
    def __init__(self, before: int, after: int, stride: int) -> None:
        super().__init__()
        one = RectifiedGroupNorm(16, before), StandardizedConv2d(before, after, 3, stride, 1)
        two = RectifiedGroupNorm(16, after), StandardizedConv2d(after, after, 3, 1, 1)
        self.straight, self.skip = nn.Sequential(*one, *two), nn.Identity()
        if before != after:
            self.skip = nn.Sequential(RectifiedGroupNorm(16, before), StandardizedConv2d(before, after, 1, stride))

    def forward(self, x: Tensor) -> Tensor:
        return self.straight(x) + self.skip(x)


class Wide(nn.Module):
    def __init__(self, depth: int = 16, width: int = 4) -> None:
        super().__init__()
        blocks, before = [StandardizedConv2d(3, 16, 3, padding=1)], 16
        for stage in range(3):
            for block in range((depth - 4) // 6):
                blocks.append(Block(before, 16 * width << stage, 2 if stage and not block else 1))
                before = 16 * width << stage
        self.blocks, self.norm, self.head = nn.Sequential(*blocks), RectifiedGroupNorm(16, before), nn.Linear(before, 10)

    def forward(self, x: Tensor) -> Tensor:
        x = x.contiguous(memory_format=torch.channels_last) if x.is_cuda else x  # the layout that a GPU's convolutions take
        with torch.autocast(x.device.type, torch.bfloat16, enabled=x.is_cuda):
            return self.head(self.norm(self.blocks(x)).mean((2, 3))).float()


def augment(x: Tensor) -> Tensor:
    """Every image moved by up to 4 pixels, and mirrored or not, each by itself."""
    top, left = torch.randint(0, 9, (2, len(x), 1), device=x.device)
    rows, columns = (start + torch.arange(32, device=x.device) for start in (top, left))
    columns = torch.where(torch.rand(len(x), 1, device=x.device) < 0.5, columns, columns.flip(1))
    every = torch.arange(len(x), device=x.device)[:, None, None]
    return F.pad(x, (4,) * 4, mode="reflect")[every, :, rows[:, :, None], columns[:, None, :]].permute(0, 3, 1, 2)


if __name__ == "__main__":
    model = Wide()
    shape = tuple(model(augment(torch.zeros(2, 3, 32, 32))).shape)
    print(f"WRN-16-4: {sum(p.numel() for p in model.parameters()):,} numbers; of two images, {shape}")
