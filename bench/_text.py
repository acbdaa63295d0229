"""A small GPT over words of WikiText-2, and batches of its validation text: the case `text` of bench/gradients.py."""

from __future__ import annotations

import lzma
from collections import Counter
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn


class Block(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.before, self.after = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attend, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.wide, self.narrow = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.heads = heads

    def forward(self, x: Tensor) -> Tensor:
        count, length, width = x.shape
        parts = self.attend(self.before(x)).reshape(count, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(*parts, is_causal=True).transpose(1, 2).reshape(count, length, width)
        x = x + self.out(mixed)
        return x + self.narrow(F.gelu(self.wide(self.after(x))))


class GPT(nn.Module):
    """GPT-2's layers and initialisation, two blocks; the output layer is the embedding."""

    def __init__(self, words: int, width: int = 384, heads: int = 6, length: int = 32) -> None:
        super().__init__()
        self.tokens, self.places = nn.Embedding(words, width), nn.Embedding(length, width)
        self.blocks, self.norm = nn.ModuleList(Block(width, heads) for _ in range(2)), nn.LayerNorm(width)
        for module in self.modules():
            if isinstance(module, (nn.Linear, nn.Embedding)):
                nn.init.normal_(module.weight, std=0.02)
            if isinstance(module, nn.Linear):
                nn.init.zeros_(module.bias)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.tokens(tokens) + self.places.weight[: tokens.shape[1]]
        for block in self.blocks:
            x = block(x)
        return self.norm(x) @ self.tokens.weight.T


def batches(folder: Path, batch: int, length: int, count: int, seed: int = 0) -> tuple[int, list[Tensor]]:
    """How many words there are, and batches of windows of text, one token longer than the network's input."""
    with lzma.open(folder / "wikitext2" / "wiki.valid.tokens.xz", "rt", encoding="utf-8") as file:
        text = file.read().replace("\n", " <eos> ").split()
    place = {word: index for index, (word, _) in enumerate(Counter(text).most_common())}
    numbers = torch.tensor([place[word] for word in text])
    starts = np.random.default_rng(seed).integers(0, len(text) - length - 1, (count, batch))
    return len(place), [torch.stack([numbers[start : start + length + 1] for start in row]) for row in starts]


def sent(model: nn.Module, windows: Tensor) -> dict[str, Tensor]:
    """The gradient of the mean cross entropy of each next token."""
    outputs = model(windows[:, :-1])
    loss = F.cross_entropy(outputs.flatten(0, 1), windows[:, 1:].flatten())
    return dict(zip(dict(model.named_parameters()), torch.autograd.grad(loss, list(model.parameters()))))
